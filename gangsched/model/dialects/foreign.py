"""Marks of pods that ask another system for a gang without naming a group that we can read.

Such a pod would start alone, as a group of one, without a message. The configuration decides what happens
instead (foreignMarkers). Not here: marks that we do read (the other files of this room).
"""

from __future__ import annotations

from collections.abc import Callable

from gangsched.model.dialects import kai, koordinator, lightweight, volcano, yunikorn
from gangsched.model.dialects.dialect import Metadata
from gangsched.model.objects import ObjectMeta

_KUEUE_GROUP = "kueue.x-k8s.io/pod-group-name"
_KUEUE_SERVING = "kueue.x-k8s.io/pod-group-serving"
_KAI_QUEUE = "kai.scheduler/queue"
_VOLCANO_MIN_MEMBER = "scheduling.volcano.sh/group-min-member"
# Controllers that own their pods directly and that KAI's grouper turns into gangs. Source: KAI-Scheduler
# `pkg/podgrouper/podgrouper/hub/hub.go`.
_KAI_GANGS = frozenset(("JAXJob", "MPIJob", "PyTorchJob", "RayCluster", "TFJob", "XGBoostJob"))


def _always(key: str, why: str) -> Callable[[ObjectMeta], str]:
    return lambda meta: f"{key}: {why}"


def _kueue(meta: ObjectMeta) -> str:
    if (meta.annotations or _NOTHING).get(_KUEUE_SERVING) == "true":
        return ""
    return f"{_KUEUE_GROUP}: Kueue's pod groups are not read in this profile (inferGangs)"


def _kai_queue(meta: ObjectMeta) -> str:
    for owner in meta.owner_references or ():
        if owner.controller and owner.kind in _KAI_GANGS:
            return (
                f"{_KAI_QUEUE}: KAI's grouper would make a gang of all pods of {owner.kind} {owner.name}, "
                f"but has not done so: no annotation {kai.POD_GROUP_NAME}"
            )
    return ""


_NOTHING: Metadata = {}
_NO_GROUP = "the pod names no group"
_NO_APPLICATION = f"the pod gives no application ID, as {yunikorn.APP_ID} would"
_MARKS: dict[str, Callable[[ObjectMeta], str]] = {
    volcano.TASK_SPEC: _always(volcano.TASK_SPEC, f"{_NO_GROUP}, as {volcano.GROUP_NAME} would"),
    _VOLCANO_MIN_MEMBER: _always(
        _VOLCANO_MIN_MEMBER, f"Volcano's controller has made no PodGroup for it: no {volcano.GROUP_NAME}"
    ),
    kai.SUBGROUP: _always(kai.SUBGROUP, f"{_NO_GROUP}, as {kai.POD_GROUP_NAME} would"),
    _KAI_QUEUE: _kai_queue,
    koordinator.MIN: _always(koordinator.MIN, f"{_NO_GROUP}, as {koordinator.NAME} would"),
    yunikorn.TASK_GROUPS: _always(yunikorn.TASK_GROUPS, _NO_APPLICATION),
    yunikorn.TASK_GROUP_NAME: _always(yunikorn.TASK_GROUP_NAME, _NO_APPLICATION),
    lightweight.MIN: _always(lightweight.MIN, f"{_NO_GROUP}, as {lightweight.NAME} would"),
    _KUEUE_GROUP: _kueue,
}

LABELS = (volcano.TASK_SPEC, kai.SUBGROUP, _KAI_QUEUE, lightweight.MIN, _KUEUE_GROUP)
ANNOTATIONS = (
    volcano.TASK_SPEC,
    _VOLCANO_MIN_MEMBER,
    koordinator.MIN,
    yunikorn.TASK_GROUPS,
    yunikorn.TASK_GROUP_NAME,
    _KUEUE_SERVING,
)
_IN_LABELS, _IN_ANNOTATIONS = frozenset(LABELS), frozenset(ANNOTATIONS)


def unsupported_marks(meta: ObjectMeta) -> tuple[str, ...]:
    """Returns the marks of another system on a pod without a group, each with why we do not follow it."""
    labels, annotations = meta.labels, meta.annotations
    found: dict[str, None] = {}
    if labels and not _IN_LABELS.isdisjoint(labels):
        found |= dict.fromkeys(key for key in LABELS if key in labels)
    if annotations and not _IN_ANNOTATIONS.isdisjoint(annotations):
        found |= dict.fromkeys(key for key in ANNOTATIONS if key in annotations)
    said = (_MARKS[key](meta) for key in found if key in _MARKS)
    return tuple(why for why in said if why)
