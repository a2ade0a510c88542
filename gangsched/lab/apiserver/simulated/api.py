"""The API server for simulated kubelets and controllers: in process, with "gone" as a return value.

Lives here: their shared calls, and events recorded in Kubernetes' way. Not here: any decision. Every call
takes effect at once; the simulation processes its own changes later, like all other writes (cluster.py).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol

import structlog

from gangsched.api_rules.status import StatusError
from gangsched.lab.apiserver.resources import Resource, Resources
from gangsched.lab.apiserver.storage.store import Item, Store
from gangsched.lab.apiserver.strategy import Cluster, Object, timestamp

_log = structlog.get_logger(__name__)

# An event equal to one of this many remembered ones is counted on the first one's object, as in client-go's
# aggregation.
_MAX_REMEMBERED_EVENTS = 4096


class Registry(Cluster, Protocol):
    """The part of the registry that is used here (registry.py): what strategies use, and what is beneath."""

    store: Store
    resources: Resources
    now: Callable[[], datetime]


class Reference(Protocol):
    """Enough to name an object in an event."""

    @property
    def namespace(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def uid(self) -> str: ...


class _OtherObject(Exception):
    """The object of that name has another UID."""


class Api:
    """One for the whole simulated cluster."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.resources = registry.resources
        self.pods = self.resources.get("pods")
        self.nodes = self.resources.get("nodes")
        self.namespaces = self.resources.get("namespaces")
        self.leases = self.resources.get("leases.coordination.k8s.io")
        self.jobs = self.resources.get("jobs.batch")
        self.events = self.resources.get("events")
        self._repeated: OrderedDict[tuple[str, ...], tuple[str, str]] = OrderedDict()
        self._n_events = 0

    def now(self) -> datetime:
        return self.registry.now()

    def find(self, resource: Resource, namespace: str, name: str, uid: str = "") -> Item | None:
        """The object, if it exists with this UID."""
        item = self.registry.find(resource, namespace, name)
        return item if item is not None and uid in ("", item.uid) else None

    def modify(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        change: Callable[[Object], None],
        *,
        uid: str = "",
    ) -> bool:
        """Change the object in place; False if it is gone or another object now has its name.

        Raises: StatusError for anything but 404.
        """

        def checked(obj: Object) -> None:
            if uid and obj["metadata"]["uid"] != uid:
                raise _OtherObject
            change(obj)

        try:
            self.registry.modify(resource, namespace, name, checked)
        except _OtherObject:
            return False
        except StatusError as error:
            if error.code == 404:
                return False
            raise
        return True

    def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        grace_s: int | None = None,
        propagation: str | None = None,
    ) -> bool:
        """Delete it or begin to; False if it is gone or another object now has its name.

        Raises: StatusError for anything but 404 and a UID that differs.
        """
        if self.find(resource, namespace, name, uid) is None:
            return False
        try:
            self.registry.delete(
                resource, namespace, name, grace_s=grace_s, uid=uid or None, propagation=propagation
            )
        except StatusError as error:
            if error.code == 404:
                return False
            raise
        return True

    def ensure(self, resource: Resource, obj: Object, *, namespace: str = "") -> None:
        """Create it unless one of that name exists. Raises: StatusError."""
        if self.find(resource, namespace, obj["metadata"]["name"]) is None:
            self.registry.create(resource, obj, namespace=namespace)

    def event(
        self,
        kind: str,
        about: Reference,
        reason: str,
        message: str,
        *,
        component: str,
        host: str = "",
        warning: bool = False,
        field_path: str = "",
        api_version: str = "v1",
    ) -> None:
        """Record an event about an object. Equal events are counted on the first one's Event.

        An event that cannot be written (its namespace is being deleted) is dropped, as by a real recorder.
        """
        key = (kind, about.uid or about.name, reason, message, component, field_path)
        known = self._repeated.get(key)
        if known is not None and self.modify(self.events, *known, self._count):
            self._repeated.move_to_end(key)
            return
        namespace = about.namespace or "default"
        name = self._event_name(about.name)
        obj = self._event(kind, about, reason, message, warning=warning, api_version=api_version)
        obj["metadata"] = {"name": name, "namespace": namespace}
        obj["source"] = {"component": component, **({"host": host} if host else {})}
        obj.update(reportingComponent=component, reportingInstance=host)
        if field_path:
            obj["involvedObject"]["fieldPath"] = field_path
        try:
            self.registry.create(self.events, obj, namespace=namespace)
        except StatusError as error:
            _log.debug("event not recorded", event_reason=reason, about=about.name, err=str(error))
            return
        self._repeated[key] = (namespace, name)
        if len(self._repeated) > _MAX_REMEMBERED_EVENTS:
            self._repeated.popitem(last=False)

    def _event(
        self, kind: str, about: Reference, reason: str, message: str, *, warning: bool, api_version: str
    ) -> Object:
        moment = timestamp(self.now())
        involved: dict[str, Any] = {
            "kind": kind,
            "name": about.name,
            "uid": about.uid,
            "apiVersion": api_version,
        }
        if about.namespace:
            involved["namespace"] = about.namespace
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {},
            "involvedObject": involved,
            "reason": reason,
            # kube-apiserver rejects longer ones.
            "message": message[:1024],
            "type": "Warning" if warning else "Normal",
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "count": 1,
            "eventTime": None,
        }

    def _count(self, obj: Object) -> None:
        obj["count"] = obj.get("count", 1) + 1
        obj["lastTimestamp"] = timestamp(self.now())

    def _event_name(self, about: str) -> str:
        """Names an event as client-go does: the object's name and a unique hexadecimal number."""
        self._n_events += 1
        return f"{about}.{int(self.now().timestamp() * 1e6) * 1000 + self._n_events % 1000:x}"
