"""Spacing: kubelet's device plugin API names no pod, so pods that it could mix up are not due together.

A pod is due from the moment its Binding may have left until kubelet has admitted it (status.startTime, or
the node's report lists it). Two pods on one node that ask for the same number of one resource handed out
that way look alike to the plugin: members of one gang may be swapped and recorded (core.audit), others wait
with their whole gang, reserved and unsent, until nobody of another gang is due there. Pods that ask for other
numbers or other resources are not held up: this is no lock on the node. Asked by core.preparing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gangsched.core.group import BindState, Group, MemberState, PodInfo
from gangsched.core.world import World


class Spacing:
    """Who has to wait for whom. Without a resource handed off that way, nobody, at no cost."""

    def __init__(self, world: World, is_reported: Callable[[PodInfo], bool]) -> None:
        self._world = world
        self._is_reported = is_reported
        self.resources = world.settings.devices.spaced

    def blocks(self, groups: Iterable[Group]) -> str:
        """Why these groups' binds may not leave now; "" when they may."""
        if not self.resources:
            return ""
        for group in groups:
            for info in group.in_state(MemberState.ASSUMED):
                if why := self._waits_for(info, group):
                    return why
        return ""

    def is_due(self, info: PodInfo) -> bool:
        """Whether kubelet may be about to give this pod devices, or has not been heard to have done so."""
        if not info.ids or self.resources.isdisjoint(info.ids):
            return False
        if info.state is MemberState.ASSUMED:
            return info.bind in (BindState.SENT, BindState.READING)
        return (
            info.state is MemberState.BOUND
            and info.pod.status.start_time is None
            and not self._is_reported(info)
        )

    def _waits_for(self, info: PodInfo, group: Group) -> str:
        mine = self._counts(info)
        if not mine:
            return ""
        for other in self._world.cache.by_node.get(info.node_name, {}).values():
            if other.group is None or other.group is group or not self.is_due(other):
                continue
            for resource, n in mine & self._counts(other):
                return (
                    f"{other.pod.key} is about to be given {n} {resource} on {info.node_name} by kubelet's"
                    f" device plugin API, which could mix it up with {info.pod.key}"
                )
        return ""

    def _counts(self, info: PodInfo) -> set[tuple[str, int]]:
        """(resource, number) of each container's request."""
        return {
            (resource, len(ids))
            for sets in info.allocation.values()
            for resource, ids in sets.items()
            if resource in self.resources and ids
        }
