"""Marks of pods that ask another system for something that gangsched does not do.

Pods that ask for a gang without naming a group that we can read would start alone, as a group of one, and
pods that ask for a topology would start anywhere, without a message. The configuration decides what happens
instead (foreignMarkers). Not here: marks that we do read (the other files of this room).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from gangsched.model.dialects import kai, koordinator, lightweight, ours, volcano, yunikorn
from gangsched.model.dialects.dialect import Metadata, PodGroup
from gangsched.model.objects import ObjectMeta, Pod
from gangsched.model.stated.topology import TOPOLOGY_KEY

_KUEUE_GROUP = "kueue.x-k8s.io/pod-group-name"
_KUEUE_SERVING = "kueue.x-k8s.io/pod-group-serving"
_KAI_QUEUE = "kai.scheduler/queue"
_VOLCANO_MIN_MEMBER = "scheduling.volcano.sh/group-min-member"
_GROVE_GANG = "grove.io/podgang"
_KTHENA_GROUP = "modelserving.volcano.sh/group-name"
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
    _GROVE_GANG: _always(
        _GROVE_GANG,
        f"{_NO_GROUP}: Grove makes PodGroups only for the schedulers kai-scheduler, volcano and "
        "default-scheduler; name a profile as one of these where that scheduler does not run, or write the "
        f"label {ours.LABEL} and the annotation {ours.MIN_MEMBERS_KEY} in the cliques' templates",
    ),
    _KTHENA_GROUP: _always(
        _KTHENA_GROUP,
        f"{_NO_GROUP}: kthena makes PodGroups only for the scheduler volcano; name a profile volcano where "
        f"Volcano's scheduler does not run, or write the label {ours.LABEL} and the annotation "
        f"{ours.MIN_MEMBERS_KEY} in the roles' templates",
    ),
}

LABELS = (
    *(volcano.TASK_SPEC, kai.SUBGROUP, _KAI_QUEUE, lightweight.MIN, _KUEUE_GROUP),
    *(_GROVE_GANG, _KTHENA_GROUP),
)
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
    marks = (_MARKS[key](meta) for key in found if key in _MARKS)
    return tuple(why for why in marks if why)


class Asked(NamedTuple):
    """What a pod asks of another system beyond a gang: `key: why`. wishes: it may start without."""

    refused: tuple[str, ...] = ()
    wishes: tuple[str, ...] = ()


_KUEUE = "kueue.x-k8s.io/"
_KUEUE_SLICES = (
    f"{_KUEUE}podset-slice-required-topology",
    f"{_KUEUE}podset-slice-required-topology-constraints",
)
_KUEUE_REQUIRED, _KUEUE_PREFERRED = f"{_KUEUE}podset-required-topology", f"{_KUEUE}podset-preferred-topology"
_BY_KUEUE = f"{_KUEUE}workload"
_KUEUE_MANAGED = f"{_KUEUE}managed"
_KAI_SEGMENTS = ("kai.scheduler/segment-size", "kai.scheduler/segment-topology-required-placement")
_KAI_REQUIRED = "kai.scheduler/topology-required-placement"
_KAI_PREFERRED = (
    "kai.scheduler/topology-preferred-placement",
    "kai.scheduler/segment-topology-preferred-placement",
)
_DISAGGREGATED = "disaggregatedset.x-k8s.io/name"
_NO_SEGMENTS = (
    "its parts are not placed in a domain each; write a group for each part, with the annotation "
    f"{TOPOLOGY_KEY}, as in 'required: topology.example.com/rack'"
)
_TOPOLOGY_MARKS = frozenset(
    (*_KUEUE_SLICES, _KUEUE_REQUIRED, _KUEUE_PREFERRED, *_KAI_SEGMENTS, _KAI_REQUIRED, *_KAI_PREFERRED)
)
ASKING_LABELS = (_DISAGGREGATED, _KUEUE_MANAGED)
ASKING_ANNOTATIONS = (*sorted(_TOPOLOGY_MARKS), _BY_KUEUE)
_NOTHING_ASKED = Asked()


def with_asked(group: PodGroup, pod: Pod) -> PodGroup:
    """Adds what a member asks of other systems to its group."""
    refused, wishes = asked_of_others(pod, by_kai=group.key.dialect == kai.DIALECT.name)
    if not refused and not wishes:
        return group
    return replace(group, unsupported=(*group.unsupported, *refused), wishes=(*group.wishes, *wishes))


def asked_of_others(pod: Pod, *, by_kai: bool = False) -> Asked:
    """Returns what the pod asks of Kueue, KAI or a DisaggregatedSet that neither they nor we have done.

    by_kai: a PodGroup of KAI describes its gang, in which KAI's grouper has put what the pod asks for.
    """
    labels, annotations = pod.metadata.labels or _NOTHING, pod.metadata.annotations or _NOTHING
    wishes = []
    if _DISAGGREGATED in labels:
        wishes.append(
            f"{_DISAGGREGATED}: each replica of a role starts whole, but a slice's roles do not start "
            "together: all of a slice may be of one role"
        )
    if _TOPOLOGY_MARKS.isdisjoint(annotations):
        return Asked((), tuple(wishes)) if wishes else _NOTHING_ASKED
    refused = []
    # Kueue has admitted the pods: it places them itself, by node selectors, or does not admit them.
    by_kueue = _BY_KUEUE in annotations or labels.get(_KUEUE_MANAGED) == "true"
    refused += [f"{key}: {_NO_SEGMENTS}" for key in _KUEUE_SLICES if key in annotations and not by_kueue]
    refused += [f"{key}: {_NO_SEGMENTS}" for key in _KAI_SEGMENTS if key in annotations and not by_kai]
    is_said = TOPOLOGY_KEY in annotations
    for keys, is_theirs, word, found in (
        ((_KUEUE_REQUIRED,), by_kueue, "required", refused),
        ((_KAI_REQUIRED,), by_kai, "required", refused),
        ((_KUEUE_PREFERRED,), by_kueue, "preferred", wishes),
        (_KAI_PREFERRED, by_kai, "preferred", wishes),
    ):
        for key in keys:
            if key in annotations and not is_theirs and not is_said:
                level = annotations[key][:80]
                found.append(f"{key}: it is not read; write the annotation {TOPOLOGY_KEY}: '{word}: {level}'")
    return Asked(tuple(refused), tuple(wishes))
