"""GroupAdmission: the group-level Admit, asked in a unit's turn before any node is looked at.

Here: which members the plugins are asked about, and which of them take part in the attempt. Not here: the
plugins (plugins.fairness), and what follows from a "no" (core.groups.attempts).
"""

from __future__ import annotations

from collections.abc import Sequence

from gangsched.core.cycle.cycle import GANG
from gangsched.core.framework.status import SUCCESS, Code, Status
from gangsched.core.state.state import SharedState
from gangsched.core.types.group import PENDING, Group, PodInfo
from gangsched.core.types.needed import completes, needed_members


class GroupAdmission:
    """Asks Admit's plugins; without any it admits every group, at no cost."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared

    def ask(self, unit: Sequence[Group]) -> Status:
        """Whether the members that the unit needs may start. Raises: PluginError."""
        for group in unit if self._shared.retiring else ():
            if group.scheduler_name in self._shared.retiring and not completes(group):
                why = f"profile {group.scheduler_name} is gone from the configuration"
                return Status(Code.UNRESOLVABLE, why, GANG)
        if self._admits_all(unit):
            return SUCCESS
        return self._asked(unit, [info for group in unit for info in needed_members(group)])

    def members(self, unit: Sequence[Group], group: Group, pending: list[PodInfo]) -> list[PodInfo]:
        """The group's pending members that take part in this attempt: all if all pending members of the unit
        may start together, else the ones that the group needs. Raises: PluginError."""
        if (
            self._admits_all(unit)
            or self._asked(unit, [info for one in unit for info in one.in_state(PENDING)]).is_success
        ):
            return pending
        needed = set(map(id, needed_members(group)))
        return [info for info in pending if id(info) in needed]

    def _admits_all(self, unit: Sequence[Group]) -> bool:
        return not self._shared.profile_of(unit[0]).admit_plugins or any(group.recovering for group in unit)

    def _asked(self, unit: Sequence[Group], members: Sequence[PodInfo]) -> Status:
        view = self._shared.queue_view
        if view is None or not members:
            return SUCCESS
        return self._shared.profile_of(unit[0]).run_admit(unit[0], members, view)
