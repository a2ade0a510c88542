"""AdmissionConflicts: kubelet's device plugin API names no pod, so pods it could confuse must not be due
together.

A pod is due from the moment its Binding may have left until kubelet has admitted it (status.startTime, or the
node's report lists it). Two pods on one node that request the same number of a resource handed out that way
look alike to the plugin. If they are interchangeable that does no harm: they are swapped and recorded
(core.device_audit.drift). Otherwise they are due one after another:

    pods of two gangs that do not start together        the whole second gang waits, reserved and unsent
                                                        (core.binding.pre_bind)
    members of one gang that are not interchangeable,   the second one's bind waits, reserved and unsent,
    or of gangs that start together                     while the gang is binding (staggered_bind)

Pods that request other numbers or other resources are not delayed: the node is not locked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gangsched.core.state.state import SharedState
from gangsched.core.types.group import ON_ITS_WAY, BindState, Group, MemberState, PodInfo
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.core.why import Why
from gangsched.core.why.binds import MayBeMixedUp


class AdmissionConflicts:
    """Which pods have to wait for other pods; none, at no cost, if no resource is handed out that way."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self.resources = shared.settings.devices.spaced

    def blocks(self, groups: Sequence[Group]) -> Why:
        """Returns why none of these groups' binds may leave now; "" when some may."""
        if not self.resources:
            return ""
        for group in groups:
            for info in group.in_state(MemberState.ASSUMED):
                for other, resource, n in self._like(info):
                    # A group that has begun to bind goes before other groups.
                    if other.group not in groups and (self.is_due(other) or other.bind is BindState.HELD):
                        return _told(info, other, resource, n)
        return ""

    def holds(self, info: PodInfo) -> Why:
        """Returns why this member's bind may not be sent now, though its gang is binding; "" if it may."""
        for other, resource, n in self._like(info):
            if self.is_due(other) and not (
                other.group is info.group and are_interchangeable(info.template, other.template, resource)
            ):
                return _told(info, other, resource, n)
        return ""

    def is_due(self, info: PodInfo) -> bool:
        """Whether kubelet may be about to give this pod devices, or has not reported doing so."""
        if not info.ids or self.resources.isdisjoint(info.ids):
            return False
        if info.state is MemberState.ASSUMED:
            return info.bind in ON_ITS_WAY
        return (
            info.state is MemberState.BOUND
            and info.pod.status.start_time is None
            and not self._shared.is_reported(info)
        )

    def _like(self, info: PodInfo) -> Iterator[tuple[PodInfo, str, int]]:
        """Yields (pod of ours on the same node, resource, number) for each number that both request."""
        mine = self._counts(info)
        if not mine:
            return
        for other in self._shared.cache.by_node.get(info.node_name, {}).values():
            if other is not info and other.group is not None:
                for resource, n in sorted(mine & self._counts(other)):
                    yield other, resource, n

    def _counts(self, info: PodInfo) -> set[tuple[str, int]]:
        """Returns (resource, number) of each container's request."""
        return {
            (resource, len(ids))
            for sets in info.allocation.values()
            for resource, ids in sets.items()
            if resource in self.resources and ids
        }


def are_interchangeable(one: PodTemplate, other: PodTemplate, resource: str) -> bool:
    """Whether each of two members could use the devices of `resource` that were planned for the other.

    Both have the same constraints on them, and the same containers request the same numbers.
    """
    return one is other or (
        one.constraints.get(resource) == other.constraints.get(resource)
        and one.demand(resource) == other.demand(resource)
    )


def _told(info: PodInfo, other: PodInfo, resource: str, n: int) -> MayBeMixedUp:
    return MayBeMixedUp(info.pod.key, other.pod.key, n, resource, info.node_name)
