"""The API server's JSON into events: which kinds there are, and how one object of each is read.

Lives here: typed decoders per kind. Not here: reading parts of objects that they reject
(kube.watch.unparsed), and the known objects (kube.watch.watch_state). Called by kube.watch.watch_state for
every page and every batch of lines. A pod costs a few microseconds, so rare lines (bookmarks, errors, refused
objects) pay a second decoding of their batch. Parts nested too deep to decode, as managedFields may be, are
left out and logged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec
import structlog

from gangsched.errors import ApiError
from gangsched.kube.watch.envelopes import (
    KindWatchEvent,
    Listed,
    ListMeta,
    Page,
    PageOf,
    RawPage,
    RawWatchEvent,
    WatchEvent,
    WatchEventOf,
)
from gangsched.kube.watch.pod_reader import PodReader
from gangsched.kube.watch.unparsed import allowing_none, cordoned, marked, read_fields, refused
from gangsched.model.events import (
    Event,
    NodeAdded,
    NodeDeleted,
    NodeUpdated,
    ObjectGone,
    ObjectPut,
    ObjectRefused,
    OwnerGone,
    OwnerPut,
    PodAdded,
    PodDeleted,
    PodGroupAdded,
    PodGroupDeleted,
    PodGroupUpdated,
    PodUpdated,
)
from gangsched.model.objects import CustomObject, Node, ObjectMeta, PlainObject, Pod
from gangsched.model.owners import OWNER_KINDS, OwnerKind, OwnerName
from gangsched.model.pod_group import OBJECT_KINDS
from gangsched.model.resource_claims.objects import (
    CLAIMS,
    DEVICE_CLASSES,
    SLICES,
    TAINT_RULES,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from gangsched.model.storage import (
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from gangsched.model.text import bounded
from gangsched.model.workloads import (
    PRIORITY_CLASSES,
    Namespace,
    PodDisruptionBudget,
    PriorityClass,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)

UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
"""Errors of decoding a batch. Objects decoded one by one, leniently, raise only the first of these."""
_MAX_TOLD_DEPTHS = 100
T = TypeVar("T")
_log = structlog.get_logger(__name__)


class ApiObject(Protocol):
    """What every decoded object has."""

    metadata: ObjectMeta


decode_raw_line = bounded.lenient_decoder(RawWatchEvent)
decode_raw_page = bounded.lenient_decoder(RawPage)
decode_kind_line = bounded.lenient_decoder(KindWatchEvent)


def _decoder(object_type: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(object_type, dec_hook=_plain)


def _plain(wanted: type, found: Any) -> Any:
    """msgspec's hook for types that it does not know: PlainObject."""
    if wanted is not PlainObject or not isinstance(found, dict) or not isinstance(found["metadata"], dict):
        raise TypeError(f"expected an object with metadata, got {type(found).__name__}")
    return PlainObject(found)


def _of(generic: Any, object_type: type[Any]) -> Any:
    return generic[object_type]


class Kind:
    """One kind that we follow: its path, how it is read, which events it produces.

    `name` is as in KindSynced; `versions` are tried in order, empty for kinds that every server has.
    `selector` restricts lists and watches: a fieldSelector or a labelSelector. `reader`, if given, decodes
    all objects; without it they are decoded as `object_type`.
    `page_limit`: objects per page, about a megabyte. `is_optional`: if the kind cannot be read, only gangs
    that name an object of it wait. `safe` gives an object with these unreadable paths their safe meaning; a
    kind without it is read in part only if its last state is known. Its decoders raise msgspec.MsgspecError.
    """

    def __init__(
        self,
        name: str,
        object_type: type[Any],
        *,
        kind: str,
        resource: str,
        group: str = "",
        versions: tuple[str, ...] = (),
        selector: Mapping[str, str] | None = None,
        reader: PodReader | None = None,
        page_limit: int = 500,
        is_optional: bool = False,
        safe: Callable[[Any, Sequence[str]], Any] | None = None,
        added: Callable[[Any, str], Event],
        updated: Callable[[Any, str], Event],
        deleted: Callable[[Any, str], Event],
    ) -> None:
        self.name = name
        self.kind = kind
        self.has_no_type = object_type is PlainObject
        """When set, only the kind's location is known, not its name."""
        self.resource = resource
        self.group = group
        self.versions = versions
        self.selector = dict(selector or {})
        self.reader = reader
        self.page_limit = page_limit
        self.is_optional = is_optional
        self._type = object_type
        self._safe = safe
        self._reported_depths: dict[str, None] = {}
        self.added = added
        self.updated = updated
        self.deleted = deleted
        lines, page = _decoder(_of(WatchEventOf, object_type)), _decoder(_of(PageOf, object_type))
        self._keeps_all = object_type in (CustomObject, PlainObject)
        self.decode_object: Callable[[bytes | msgspec.Raw], Any] = self._leniently(
            _decoder(object_type).decode if reader is None else reader.object
        )
        self.decode_line: Callable[[bytes], WatchEvent] = self._leniently(
            lines.decode if reader is None else reader.line
        )
        self.decode_lines: Callable[[bytes], list[WatchEvent]] = (
            reader.lines if reader is not None else self._leniently(lines.decode_lines)
        )
        """Decodes several at once; if it raises one of UNREADABLE, they are decoded one by one."""
        self.decode_page: Callable[[bytes], Page] = self._leniently(
            page.decode if reader is None else reader.page
        )

    def _leniently(self, decode: Callable[[bytes], T]) -> Callable[[bytes | msgspec.Raw], T]:
        return bounded.leniently(decode, keeps_all=self._keeps_all, tell=self._tell_depth)

    def _tell_depth(self, what: str) -> None:
        """Log once per place: a client that writes such an object does so with every update."""
        if what not in self._reported_depths and len(self._reported_depths) < _MAX_TOLD_DEPTHS:
            self._reported_depths[what] = None
            _log.warning(
                "an object is nested too deep, what is too deep is not read", kind=self.kind, err=what
            )

    def read_in_part(self, raw: bytes | msgspec.Raw, before: Any | None) -> Any | None:
        """Returns an object that does not parse with what can be read of it; None: it must not be used.

        before: its last known state, which unreadable fields keep.
        """
        if (before is None and self._safe is None) or not issubclass(self._type, msgspec.Struct):
            return None
        found, unread = read_fields(self._type, raw, before)
        if found is None or not found.metadata.name:
            return None
        return found if self._safe is None else self._safe(found, unread)

    def read_page(self, body: bytes, version: str = "v1") -> tuple[list[Any], list[ObjectRefused], ListMeta]:
        """The objects of a list's page, and those that do not parse. Raises: ApiError (no such list)."""
        try:
            page = self.decode_page(body)
            self.check_list(page, self.api_version(version))
            return page.items, [], page.metadata
        except msgspec.MsgspecError:
            pass
        try:
            raw_page = decode_raw_page(body)
        except msgspec.MsgspecError as error:
            raise ApiError(f"a list of {self.name} is not readable: {error}") from None
        self.check_list(raw_page, self.api_version(version))
        items, refusals = [], []
        for raw in raw_page.items or ():
            try:
                items.append(self.decode_object(raw))
            except msgspec.MsgspecError as error:
                refusals.append(refused(self.kind, raw, error))
        return items, refusals, raw_page.metadata

    def check_list(self, page: Listed, api_version: str) -> None:
        """Check that it lists our kind: else all our objects would count as deleted. Raises: ApiError."""
        if (page.kind, page.api_version) != (f"{self.kind}List", api_version):
            is_of_ours = self.has_no_type and page.kind.endswith("List") and page.api_version == api_version
            if not is_of_ours:
                raise ApiError(
                    f"not the API server's own answer: a list of {self.name} came as "
                    f"{page.api_version or '?'} {page.kind or '?'}"
                )
        if not page.metadata.resource_version:
            raise ApiError(
                f"not the API server's own answer: a list of {self.name} without a resourceVersion"
            )

    def check_line(self, line: bytes) -> None:
        """The first line of a watch shows whether it is one of this kind. Raises: ApiError."""
        try:
            found = decode_kind_line(line)
        except ValueError as error:
            raise ApiError(f"a line of the watch is not readable: {error}") from None
        if found.type != "ERROR" and not self.has_no_type and found.object.kind != self.kind:
            raise ApiError(
                f"not the API server's own answer: a watch of {self.name} shows {found.object.kind or '?'}"
            )

    def api_version(self, version: str) -> str:
        """`group/version`, or `v1`."""
        return f"{self.group}/{version}" if self.group else "v1"

    def path(self, version: str) -> str:
        """Where the whole cluster's objects of this kind are listed and watched."""
        return f"/apis/{self.group}/{version}/{self.resource}" if self.group else f"/api/v1/{self.resource}"


def pods(node: str = "") -> Kind:
    """All pods of the cluster, including finished ones (a gang counts them) and those of other schedulers.

    With `node`, only the pods bound to it.
    """
    return Kind(
        "pods",
        Pod,
        kind="Pod",
        resource="pods",
        selector={"fieldSelector": f"spec.nodeName={node}"} if node else None,
        reader=PodReader(),
        safe=marked,
        added=lambda pod, _: PodAdded(pod),
        updated=lambda pod, _: PodUpdated(pod),
        deleted=lambda pod, _: PodDeleted(pod),
    )


def nodes() -> Kind:
    """All nodes."""
    return Kind(
        "nodes",
        Node,
        kind="Node",
        resource="nodes",
        page_limit=100,  # 5 to 15 KB each with what agents and kubelets write on them
        safe=cordoned,
        added=lambda node, _: NodeAdded(node),
        updated=lambda node, _: NodeUpdated(node),
        deleted=lambda node, _: NodeDeleted(node),
    )


def pod_groups(dialect: str, group: str, versions: tuple[str, ...], *, name: str = "") -> Kind:
    """PodGroups of one dialect, which the server may not serve."""
    return Kind(
        name or f"podgroups.{dialect}",
        CustomObject,
        kind="PodGroup",
        resource="podgroups",
        group=group,
        versions=versions,
        is_optional=True,
        added=lambda item, api_version: PodGroupAdded(dialect, api_version, item),
        updated=lambda item, api_version: PodGroupUpdated(dialect, api_version, item),
        deleted=lambda item, api_version: PodGroupDeleted(dialect, api_version, item),
    )


def owners(kind: OwnerKind) -> Kind:
    """Objects of a controller that state how many pods a gang has; the server may not serve them."""

    def gone(item: Any, _: str) -> OwnerGone:
        meta = item.metadata
        return OwnerGone(OwnerName(kind.kind, meta.namespace, meta.name), meta.uid)

    return Kind(
        kind.followed_as,
        kind.wire,
        kind=kind.kind,
        resource=kind.resource,
        group=kind.group,
        versions=kind.versions,
        page_limit=100,  # each holds its pods' templates
        is_optional=True,
        added=lambda item, _: OwnerPut(kind.read(item)),
        updated=lambda item, _: OwnerPut(kind.read(item)),
        deleted=gone,
    )


def followed(name: str) -> Kind:
    """A kind by its name in Scheduler.watches: that of a controller's objects, or one that plugins use."""
    kind = _OWNERS.get(name)
    return objects(name) if kind is None else owners(kind)


_OWNERS = {kind.followed_as: kind for kind in OWNER_KINDS.values()}


def objects(name: str) -> Kind:
    """Objects of another kind, by the name that plugins use; the server may not serve it.

    Names are as in kubectl: `services`, `replicasets.apps`, or with a version `widgets.v1.example.com`.
    Without a version the usual ones are tried, the most stable first. A kind without a type of ours is read
    as plain JSON.
    """
    resource, _, rest = name.partition(".")
    version, _, group = rest.partition(".") if _VERSION.match(rest) else ("", "", rest)
    object_type, kind = _TYPED.get(name, (PlainObject, resource))
    return Kind(
        name,
        object_type,
        kind=kind,
        resource=resource,
        group=group,
        versions=(version,) if version else ("v1",) if object_type is not PlainObject else _VERSIONS,
        page_limit=100 if name == SLICES else 500,  # of a slice with 128 devices, some megabytes
        safe=_SAFE.get(name),
        added=lambda item, _: ObjectPut(name, item),
        updated=lambda item, _: ObjectPut(name, item),
        deleted=lambda item, _: _gone(name, item.metadata),
    )


def _gone(kind: str, meta: ObjectMeta) -> ObjectGone:
    return ObjectGone(kind, meta.namespace, meta.name, meta.uid)


_VERSION = re.compile(r"v[0-9]+((alpha|beta)[0-9]+)?(\.|$)")
_VERSIONS = ("v1", "v1beta3", "v1beta2", "v1beta1", "v1alpha3", "v1alpha2", "v1alpha1")
_TYPED: Mapping[str, tuple[type[Any], str]] = {
    "namespaces": (Namespace, "Namespace"),
    "services": (Service, "Service"),
    "replicationcontrollers": (ReplicationController, "ReplicationController"),
    "replicasets.apps": (ReplicaSet, "ReplicaSet"),
    "statefulsets.apps": (StatefulSet, "StatefulSet"),
    "poddisruptionbudgets.policy": (PodDisruptionBudget, "PodDisruptionBudget"),
    "persistentvolumeclaims": (PersistentVolumeClaim, "PersistentVolumeClaim"),
    PRIORITY_CLASSES: (PriorityClass, "PriorityClass"),
    DEVICE_CLASSES: (DeviceClass, "DeviceClass"),
    CLAIMS: (ResourceClaim, "ResourceClaim"),
    SLICES: (ResourceSlice, "ResourceSlice"),
    TAINT_RULES: (DeviceTaintRule, "DeviceTaintRule"),
    "persistentvolumes": (PersistentVolume, "PersistentVolume"),
    "storageclasses.storage.k8s.io": (StorageClass, "StorageClass"),
    "csinodes.storage.k8s.io": (CsiNode, "CSINode"),
    "csidrivers.storage.k8s.io": (CsiDriver, "CSIDriver"),
    "csistoragecapacities.storage.k8s.io": (CsiStorageCapacity, "CSIStorageCapacity"),
    "volumeattachments.storage.k8s.io": (VolumeAttachment, "VolumeAttachment"),
}

_SAFE: Mapping[str, Callable[[Any, Sequence[str]], Any]] = {
    "poddisruptionbudgets.policy": allowing_none,
    CLAIMS: marked,
    SLICES: marked,
}


def all_kinds(watched: Iterable[str] = ()) -> tuple[Kind, ...]:
    """What the scheduler follows: the kinds it always needs, and those named in its `watches`."""
    return (
        pods(),
        nodes(),
        *(
            pod_groups(dialect, kind.api_group, kind.versions, name=name)
            for name, (dialect, kind) in OBJECT_KINDS.items()
        ),
        *(followed(name) for name in watched),
    )
