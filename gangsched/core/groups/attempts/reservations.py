"""Reservations: whether a pod's reservation still holds, and what happens to its group if not.

An assumed pod never expires. But a node may be removed, be cordoned or lose a device, and another scheduler's
pod may land on reserved room. core.scheduler passes in changed nodes; reservations found broken elsewhere in
a turn are released here before the turn ends.
"""

from __future__ import annotations

from gangsched.core.binding.binder import Binder
from gangsched.core.binding.reservation_checks import reservation_broken
from gangsched.core.framework.plugin_calls import PluginError
from gangsched.core.groups.attempts.attempts import Attempts
from gangsched.core.kept.nominations import room_taken
from gangsched.core.state.state import SharedState
from gangsched.core.types.group import Group, GroupState, MemberState
from gangsched.core.why import Why
from gangsched.core.why.released import NodeRefuses
from gangsched.model.objects import Node


class Reservations:
    """Rechecks reservations when nodes change; takes back groups as far as no bind was sent."""

    def __init__(self, shared: SharedState, attempts: Attempts, binder: Binder) -> None:
        self._shared = shared
        self._attempts = attempts
        self._binder = binder

    def recheck(self, node: Node) -> None:
        """Checks the reservations on a node that has changed, or is gone."""
        shared, name = self._shared, node.metadata.name
        on_node = shared.cache.by_node.get(name) or {}
        if not on_node and not shared.victims:
            return
        broken = shared.broken_reservations
        for info in on_node.values():
            group = info.group
            if info.state is not MemberState.ASSUMED or group is None or group.key in broken:
                continue
            why = reservation_broken(shared.cache, info) or self._turned_away(
                info.template.serial, group, info.row
            )
            if why:
                broken[group.key] = (group, why)
        room_taken(shared, (name,))
        self.give_back_broken()

    def give_back_broken(self) -> None:
        """Releases groups with a reservation found broken in this turn."""
        broken = self._shared.broken_reservations
        if not broken:
            return
        self._shared.broken_reservations = {}
        for group, why in broken.values():
            if group.state is GroupState.WAITING:
                self._attempts.commits.give_back(group, why)
            elif group.state is GroupState.BINDING:
                self._binder.take_back(group, why)

    def _turned_away(self, serial: int, group: Group, row: int) -> Why:
        """Why the node's labels, taints or cordon now refuse a pod with a reservation there; "" if not."""
        shared = self._shared
        info = next(info for info in group.members.values() if info.template.serial == serial)
        profile = shared.profile_of(group)
        try:
            if profile.admits(info.template, shared.cache.view, row):
                return ""
        except PluginError as error:
            shared.hooks.blame(error, group)
            return ""  # no plugin has refused
        return NodeRefuses(shared.cache.view.name(row))
