"""Paths and bodies of each effect's request, from values to bytes. No I/O here.

Not here: the body of a bind (kube.effects.binding_lane). Called by the lanes and kube.effects.bumps.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from gangsched.kube.transport.http1 import segment
from gangsched.model.effects import (
    BindPod,
    BumpClaim,
    BumpPod,
    DeletePod,
    EvictPod,
    GetPod,
    NominateNode,
    NoteClaim,
    PatchPod,
    RecordEvent,
    WritePodCondition,
    WritePodGroupStatus,
    is_our_condition,
)
from gangsched.model.text import bounded

# events.k8s.io/v1 refuses a longer note.
MAX_NOTE_BYTES = 1024
MAX_NAME_CHARS = 200
BUMP_KEY = "gangsched.io/fenced"
"""An annotation, or a pod's label, that is written only to change a version; nothing reads its value."""

_TIMED = ("conditions", "schedulingConditions")
"""Fields of a status that hold conditions, each with a lastTransitionTime."""

_encode = msgspec.json.Encoder().encode


class _Version(msgspec.Struct, gc=False, rename="camel"):
    uid: str = ""
    resource_version: str = ""


class GroupOutline(msgspec.Struct, gc=False):
    """A group's object: which version it is, and its status."""

    metadata: _Version = msgspec.field(default_factory=_Version)
    status: Any = None


read_group_outline = bounded.lenient_decoder(GroupOutline)


def pod_path(
    effect: BindPod
    | GetPod
    | BumpPod
    | EvictPod
    | DeletePod
    | NominateNode
    | NoteClaim
    | PatchPod
    | WritePodCondition,
    subresource: str = "",
) -> str:
    """Path of a pod or of one of its subresources."""
    path = f"/api/v1/namespaces/{segment(effect.namespace)}/pods/{segment(effect.name)}"
    return f"{path}/{subresource}" if subresource else path


def group_status_path(effect: WritePodGroupStatus, *, whole: bool = False) -> str:
    """Path of a PodGroup's status, or of the `whole` PodGroup, in the API version that it was read in."""
    group_version = "/".join(segment(part) for part in effect.api_version.split("/"))
    namespace, name = segment(effect.namespace), segment(effect.name)
    path = f"/apis/{group_version}/namespaces/{namespace}/podgroups/{name}"
    return path if whole else f"{path}/status"


def events_path(effect: RecordEvent) -> str:
    """Path where an Event about this object is created; Events about nodes live in `default`."""
    return f"/apis/events.k8s.io/v1/namespaces/{segment(effect.namespace or 'default')}/events"


def eviction_body(effect: EvictPod) -> bytes:
    """An Eviction of this pod only, not of a later one with its name."""
    return _encode(
        {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": effect.name, "namespace": effect.namespace},
            "deleteOptions": {"preconditions": {"uid": effect.uid}},
        }
    )


def annotations_body(effect: PatchPod) -> bytes:
    """A merge patch of annotations and labels, for this version of this pod only."""
    metadata = {
        "uid": effect.uid,
        "resourceVersion": effect.resource_version,
        "annotations": effect.annotations,
    }
    if effect.labels:
        metadata["labels"] = effect.labels
    return _encode({"metadata": metadata})


def bump_body(effect: BumpPod | BumpClaim, mark: str, *, as_label: bool = False) -> bytes:
    """A merge patch that changes nothing but the version; `mark` must never have been written before.

    A pod's goes to pods/status, which the scheduler may patch, and which allows changes of annotations and
    labels; a claim's status does not allow them.
    """
    marks = {BUMP_KEY: mark}
    return _encode({"metadata": {"uid": effect.uid, "labels" if as_label else "annotations": marks}})


def deletion_body(effect: DeletePod) -> bytes:
    """DeleteOptions for this pod only, not a later one with its name; keeps the pod's own grace period."""
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": effect.uid}}
    return _encode(options)


def disruption_body(effect: DeletePod, wall_s: float) -> bytes:
    """The reason for the coming deletion, in kube-scheduler's words: Jobs do not count it as a failure."""
    reason = "PreemptionByScheduler"
    condition = _condition("DisruptionTarget", "True", reason, effect.message, wall_s)
    return _encode({"metadata": {"uid": effect.uid}, "status": {"conditions": [condition]}})


def nomination_body(effect: NominateNode) -> bytes:
    """A merge patch; null removes the field."""
    return _encode({"metadata": {"uid": effect.uid}, "status": {"nominatedNodeName": effect.node or None}})


def condition_body(effect: WritePodCondition, wall_s: float) -> bytes:
    """A strategic merge patch: conditions are merged by type, so other conditions stay."""
    condition = _condition(effect.type, effect.status, effect.reason, effect.message, wall_s)
    return _encode({"metadata": {"uid": effect.uid}, "status": {"conditions": [condition]}})


def scheduled_body(effect: WritePodCondition, wall_s: float) -> bytes:
    """The condition as kube-apiserver writes it with a Binding, to replace one written after the bind."""
    condition = {"type": effect.type, "status": "True", "reason": None, "message": None}
    now = {"lastTransitionTime": _rfc3339(wall_s)}
    return _encode({"metadata": {"uid": effect.uid}, "status": {"conditions": [condition | now]}})


def _condition(kind: str, status: str, reason: str, message: str, wall_s: float) -> Mapping[str, str]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": _rfc3339(wall_s),
    }


def has_conditions(effect: WritePodGroupStatus) -> bool:
    """Whether the status has a list that other programs write to as well."""
    return any(field in effect.status for field in _TIMED)


def merges_conditions(effect: WritePodGroupStatus) -> bool:
    """Whether the API server merges conditions by their type: it does for its own kinds."""
    return effect.api_version.startswith("scheduling.k8s.io/")


def group_status_body(
    effect: WritePodGroupStatus, wall_s: float, before: GroupOutline | None = None
) -> bytes:
    """A patch with the conditions that are ours; a merge patch replaces lists whole, so with all others too.

    before: the object as it is now, and as it must still be when this is written. A condition without a
    lastTransitionTime has just changed (the core has no wall clock).
    """
    status, metadata = dict(effect.status), {"uid": effect.uid}
    for field in _TIMED:
        if field in status:
            now = {"lastTransitionTime": _rfc3339(wall_s)}
            status[field] = [now | one for one in status[field] if is_our_condition(one)]
    if before is not None:
        metadata["resourceVersion"] = before.metadata.resource_version
        for field in (field for field in _TIMED if field in status):
            written = before.status.get(field) if isinstance(before.status, dict) else None
            there = written if isinstance(written, list) else ()
            others = [one for one in there if not is_our_condition(one)]
            status[field] = [*others, *status[field]]
    return _encode({"metadata": metadata, "status": status})


def unchanged_body(effect: WritePodGroupStatus) -> bytes:
    """A patch that changes nothing, and is answered with the object: whoever may write it may read it so."""
    return _encode({"metadata": {"uid": effect.uid}})


def event_name(effect: RecordEvent, serial: int) -> str:
    """A name that no other Event about the same object has."""
    return f"{effect.name[:MAX_NAME_CHARS]}.{serial:x}"


def event_body(effect: RecordEvent, *, controller: str, instance: str, wall_s: float, serial: int) -> bytes:
    """An Event; `serial` goes into its name."""
    return _encode(
        {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": event_name(effect, serial),
                "namespace": effect.namespace or "default",
            },
            "eventTime": _rfc3339_micro(wall_s),
            "reportingController": controller,
            "reportingInstance": instance[:128],
            "action": effect.action[:128],
            "reason": effect.reason[:128],
            "regarding": {
                "apiVersion": effect.api_version,
                "kind": effect.kind,
                "namespace": effect.namespace,
                "name": effect.name,
                "uid": effect.uid,
            },
            "note": note(effect.message),
            "type": effect.type,
        }
    )


def note(message: str) -> str:
    """Escapes control characters in the message and cuts it to what an Event may hold.

    Messages contain names and annotations written by users, and end up on terminals.
    """
    if message.isascii() and message.isprintable() and len(message) <= MAX_NOTE_BYTES:
        return message
    if not message.isprintable():
        message = "".join(
            char if char.isprintable() else char.encode("unicode_escape", "replace").decode("ascii")
            for char in message
        )
    data = message.encode("utf-8", "replace")
    if len(data) <= MAX_NOTE_BYTES:
        return data.decode()
    return data[: MAX_NOTE_BYTES - 3].decode("utf-8", "ignore") + "…"


@lru_cache(maxsize=2)
def _second(wall_s: int) -> str:
    """In ISO 8601, to the second; cached because hundreds of objects are written within the same second."""
    return datetime.fromtimestamp(wall_s, UTC).replace(tzinfo=None).isoformat()


def _rfc3339(wall_s: float) -> str:
    return f"{_second(int(wall_s))}Z"


def _rfc3339_micro(wall_s: float) -> str:
    """With all six digits, as the API server requires for MicroTime."""
    return f"{_second(int(wall_s))}.{int(wall_s % 1 * 1e6):06d}Z"
