"""Namespaces: creates the ServiceAccount of each, and empties those being deleted.

Lives here: the controllers that create the ServiceAccount `default` and empty a namespace. Not here:
rejecting new objects in a terminating one (the registry). cluster.py passes changes in. Source: kubernetes
pkg/controller/namespace/deletion, pkg/controller/serviceaccount, read in v1.37.
"""

from __future__ import annotations

from collections import Counter

import msgspec
import structlog

from gangsched.api_rules.status import StatusError
from gangsched.lab.apiserver.resources import Resource
from gangsched.lab.apiserver.simulated.api import Api
from gangsched.lab.apiserver.simulated.view import meta_of
from gangsched.lab.apiserver.storage.store import Change, Item
from gangsched.lab.apiserver.strategy import Object, timestamp

_log = structlog.get_logger(__name__)

_MAX_AT_ONCE = 50
"""Limit on objects deleted in one look at a namespace."""
_CONTENT_REMAINING = "NamespaceContentRemaining"
_KUBERNETES = "kubernetes"


class _Status(msgspec.Struct):
    phase: str = ""


class _Metadata(msgspec.Struct, rename="camel"):
    deletion_timestamp: str | None = None


class _Namespace(msgspec.Struct):
    metadata: _Metadata
    status: _Status = msgspec.field(default_factory=_Status)


_decode = msgspec.json.Decoder(_Namespace).decode


class Namespaces:
    """One for the cluster; `act` works through the noted changes."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._accounts = api.resources.get("serviceaccounts")
        self._terminating: dict[str, str] = {}
        self._to_look_at: dict[str, None] = {}

    def heard(self, change: Change) -> None:
        """Note one change, of a namespace or in one."""
        item = change.item
        if change.collection == self._api.namespaces.storage_key:
            if change.type == "DELETED":
                self._terminating.pop(item.name, None)
            else:
                self._namespace_changed(item)
        elif item.namespace in self._terminating or (
            change.type == "DELETED" and change.collection == self._accounts.storage_key
        ):
            self._to_look_at[item.namespace] = None

    def _namespace_changed(self, item: Item) -> None:
        namespace = _decode(item.raw)
        if namespace.metadata.deletion_timestamp:
            self._terminating[item.name] = item.uid
        self._to_look_at[item.name] = None

    def act(self) -> int:
        """Process all noted namespaces; returns how many."""
        noted, self._to_look_at = self._to_look_at, {}
        for name in noted:
            try:
                if name in self._terminating:
                    self._empty(name)
                elif self._api.find(self._api.namespaces, "", name) is not None:
                    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
                    self._api.ensure(self._accounts, account, namespace=name)
            except StatusError as error:
                _log.warning("a namespace could not be looked after", namespace=name, err=str(error))
        return len(noted)

    def _empty(self, name: str) -> None:
        """Delete its objects; once it is empty, remove it."""
        uid = self._terminating[name]
        remaining: dict[str, int] = {}
        n_left = _MAX_AT_ONCE
        for resource in self._contained():
            for item in self._api.registry.store.items(resource.storage_key, name):
                if _is_deleted(item):
                    continue
                if not n_left:
                    self._to_look_at[name] = None  # continue after waiting requests
                    return
                n_left -= 1
                self._api.delete(resource, name, item.name, uid=item.uid, propagation="Background")
        finalizers: Counter[str] = Counter()
        for resource in self._contained():
            items = self._api.registry.store.items(resource.storage_key, name)
            if items:
                group = f".{resource.group}" if resource.group else "."
                remaining[f"{resource.plural}{group}"] = len(items)
            for item in items:
                finalizers.update(meta_of(item).finalizers)
        if remaining:
            self._say_what_remains(name, uid, remaining, finalizers)
        else:
            self._finalize(name, uid)

    def _contained(self) -> list[Resource]:
        """Returns namespaced resources, each storage once; Jobs before their pods."""
        found: dict[str, Resource] = {}
        for resource in self._api.resources:
            if resource.namespaced and resource.stored and resource.storage in ("", resource.key):
                found[resource.storage_key] = resource
        return sorted(found.values(), key=lambda each: (each is self._api.pods, each.key))

    def _say_what_remains(
        self, name: str, uid: str, remaining: dict[str, int], finalizers: Counter[str]
    ) -> None:
        now = timestamp(self._api.now())
        parts = (f"{what} has {count} resource instances" for what, count in sorted(remaining.items()))
        content = "Some resources are remaining: " + ", ".join(parts)
        waiting = (f"{what} in {count} resource instances" for what, count in sorted(finalizers.items()))
        held_up = "Some content in the namespace has finalizers remaining: " + ", ".join(waiting)

        def change(obj: Object) -> None:
            conditions = obj.setdefault("status", {}).setdefault("conditions", [])
            _say(conditions, _CONTENT_REMAINING, "SomeResourcesRemain", content, now)
            if finalizers:
                _say(conditions, "NamespaceFinalizersRemaining", "SomeFinalizersRemain", held_up, now)

        self._api.modify(self._api.namespaces, "", name, change, uid=uid)

    def _finalize(self, name: str, uid: str) -> None:
        def change(obj: Object) -> None:
            spec = obj.setdefault("spec", {})
            spec["finalizers"] = [each for each in spec.get("finalizers") or () if each != _KUBERNETES]

        self._api.modify(self._api.namespaces, "", name, change, uid=uid)
        self._api.delete(self._api.namespaces, "", name, uid=uid)


def _is_deleted(item: Item) -> bool:
    return b'"deletionTimestamp"' in item.raw and bool(meta_of(item).deletion_timestamp)


def _say(conditions: list[Object], type_: str, reason: str, message: str, now: str) -> None:
    known = next((each for each in conditions if each["type"] == type_), None)
    if known is None:
        known = {"type": type_, "status": "True", "lastTransitionTime": now}
        conditions.append(known)
    known.update(reason=reason, message=message)
