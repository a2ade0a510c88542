"""Compares a version of a pod with another version, and with what is known about the pod. Pure functions,
called by core.groups.members.membership for each new version.
"""

from __future__ import annotations

from collections.abc import Mapping

from gangsched.core.binding.reservation_checks import is_resized
from gangsched.core.groups.own_keys import WRITTEN_KEYS
from gangsched.core.types.group import BOUND, ON_ITS_WAY, Group, PodInfo
from gangsched.core.types.states import AT_THE_GATE
from gangsched.core.types.templates.pod_template import device_demands_of
from gangsched.model.devices.annotations import is_device_key
from gangsched.model.devices.labels import allocated_labels, allocation_text
from gangsched.model.objects import Pod
from gangsched.model.pod_group import (
    ATTEMPT_KEY,
    GANG_KEY,
    RANK_KEY,
    STARTED_IN_KEY,
    GroupKey,
    is_inferred,
)

_OF_A_BIND = WRITTEN_KEYS - {STARTED_IN_KEY}


def is_newer(pod: Pod, known: Pod) -> bool:
    """Compares resource versions as numbers (KEP-5504 guarantees that); any other change counts as newer."""
    new, old = pod.metadata.resource_version, known.metadata.resource_version
    if new.isdecimal() and old.isdecimal():
        return int(new) > int(old)
    return new != old


def is_unseen(info: PodInfo) -> bool:
    """Whether it is, or may be, on a node that no version of the pod received so far shows."""
    return (info.state is BOUND or info.bind in ON_ITS_WAY) and not info.pod.spec.node_name


def allocated_in(info: PodInfo, pod: Pod) -> str | None:
    """The allocation in the pod's metadata. Reads labels only if a container requests devices."""
    meta = pod.metadata
    return allocation_text(meta.annotations, meta.labels if info.template.asks_for_devices else None)


def lacks_devices(info: PodInfo, pod: Pod) -> bool:
    """Whether this version shows our own Binding without the device IDs that it carried."""
    is_ours = info.node_name == pod.spec.node_name and GANG_KEY in (pod.metadata.annotations or {})
    return is_ours and bool(info.ids) and allocated_in(info, pod) is None


def is_elsewhere(info: PodInfo, pod: Pod) -> bool:
    """Whether the pod's node or devices differ from the known ones."""
    return info.node_name != pod.spec.node_name or info.allocated != allocated_in(info, pod)


def is_leaving_an_inferred_gang(key: GroupKey, pod: Pod) -> bool:
    """Whether the pod has a node and is being deleted, so it no longer counts for its inferred gang."""
    leaves = bool(pod.spec.node_name) and pod.metadata.deletion_timestamp is not None
    return leaves and is_inferred(key)


def runs_on(info: PodInfo, pod: Pod) -> bool:
    """Whether this version shows it running where it is known to be."""
    return info.state is BOUND and info.node_name == pod.spec.node_name and not pod.is_terminal


def placement_differs(info: PodInfo, old: Pod, pod: Pod) -> bool:
    """Whether the pod's node or devices differ from the known ones, or from its previous version."""
    if is_elsewhere(info, pod):
        return True
    if not old.spec.node_name:
        return False
    before, now = old.metadata.annotations or {}, pod.metadata.annotations or {}
    if before != now and _device_keys(before) != _device_keys(now):
        return True
    then, labels = old.metadata.labels, pod.metadata.labels
    return then != labels and allocated_labels(then) != allocated_labels(labels)


def is_edited(old: Pod, pod: Pod) -> bool:
    """Whether plugins may now read something different in its metadata."""
    before, now = old.metadata, pod.metadata
    return before.annotations != now.annotations or before.labels != now.labels


def may_change_template(info: PodInfo, old: Pod, pod: Pod) -> bool:
    """Whether its template may be different with this version."""
    if pod.spec.node_name and not old.spec.node_name:
        return is_resized(info, pod)
    return (
        pod.spec != old.spec
        or pod.unreadable != old.unreadable
        or (not pod.spec.node_name and device_demands_of(pod) != device_demands_of(old))
        or (info.state in AT_THE_GATE and is_edited(old, pod))
    )


def shows_its_bind(old: Pod, pod: Pod) -> bool:
    """Whether all that is new in this version is a node, and annotations that a Binding writes, without a
    queue: in which one a pod counts decides when others may start."""
    before, now = old.metadata, pod.metadata
    if before.labels != now.labels or now.deletion_timestamp is not None or pod.is_terminal:
        return False
    had, has = before.annotations or {}, now.annotations or {}
    return (
        had.items() <= has.items()
        and _OF_A_BIND.issuperset(has.keys() - had.keys())
        and old.status.phase == pod.status.phase
        and old.spec.priority == pod.spec.priority
        and old.spec.scheduling_group == pod.spec.scheduling_group
    )


def _device_keys(annotations: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in annotations.items() if is_device_key(key)}


def is_started_by_others(info: PodInfo, pod: Pod) -> bool:
    """Whether a bound pod's rank or attempt differs from what this process gave it, even if this process has
    a bind in flight."""
    annotations = pod.metadata.annotations or {}
    has_our_rank = annotations.get(RANK_KEY) == str(info.rank)
    return not has_our_rank or annotations.get(ATTEMPT_KEY) != str(info.attempt)


def read_start(info: PodInfo, pod: Pod, group: Group) -> None:
    """Takes over rank and attempt, if present, from a pod that any process has bound."""
    annotations = pod.metadata.annotations or {}
    info.rank = _number_or(annotations.get(RANK_KEY), info.rank)
    info.attempt = _number_or(annotations.get(ATTEMPT_KEY), info.attempt)
    group.attempts = max(group.attempts, info.attempt)


def _number_or(text: str | None, default: int) -> int:
    """The number in an annotation of ours; the default if there is none."""
    return int(text) if text is not None and text.isdecimal() and len(text) < 10 else default
