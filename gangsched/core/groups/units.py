"""Units: which groups take one turn together, and what their members ask the cycle for.

A unit is a group with the groups that start together with it and can be tried now. Called by
core.groups.attempts in the unit's turn, and by core.groups.claiming and core.groups.making_room, which plan
for units. Not here: which groups form a set (core.state.start_together).
"""

from __future__ import annotations

from collections.abc import Callable

from gangsched.core.framework.plugin_calls import PluginError
from gangsched.core.framework.profile import Demand
from gangsched.core.framework.sampling import EarlyStop
from gangsched.core.groups.admission import GroupAdmission
from gangsched.core.state.state import SharedState
from gangsched.core.types.group import PENDING, Group, GroupState
from gangsched.core.types.needed import needed_first

_TRIABLE = (
    GroupState.ACTIVE,
    GroupState.ASKING,
    GroupState.BACKOFF,
    GroupState.UNSCHEDULABLE,
    GroupState.WAITING,
)


class Units:
    """Makes units, and their demands."""

    def __init__(self, shared: SharedState, admission: GroupAdmission, pick: Callable[[int], int]) -> None:
        """pick: which of n equally good nodes a lone pod gets, from 0."""
        self._shared = shared
        self.admission = admission
        self._pick = pick
        self._early_stops = {
            name: EarlyStop(percentage) for name, percentage in shared.settings.nodes_to_score.items()
        }

    def unit(self, group: Group) -> list[Group]:
        """The group, and the groups that start together with it and can be tried now."""
        others = self._shared.start_together.starting_with(group)
        return [group, *(one for one in others if one.state in _TRIABLE)]

    def is_admitted(self, unit: list[Group]) -> bool:
        """Whether Admit lets the unit start now; a plugin's failure counts as no."""
        try:
            return self.admission.ask(unit).is_success
        except PluginError as error:
            self._shared.hooks.blame(error, unit[0])
            return False

    def demands(self, unit: list[Group], *, observed: bool = False) -> list[Demand]:
        """What the unit's pending members ask for; groups without pending members are left out.

        observed: whether plugins' calls for these demands are traced and measured, as in the unit's own turn.
        Raises: PluginError.
        """
        demands = []
        for group in unit:
            members = self.admission.members(unit, group, group.in_state(PENDING))
            if members:
                profile = self._shared.profile_of(group)
                n_needed = min(group.n_needed, len(members))
                asked = profile if observed else profile.quiet
                early_stop = self._early_stops.get(group.scheduler_name) if self._early_stops else None
                roles = group.short_roles()
                if roles:
                    members = needed_first(members, roles)
                demand = Demand(group, asked, members, n_needed, self._pick, early_stop, roles=roles)
                demand.packing_weight = self._shared.packing_weight(group)
                demands.append(demand)
        return demands
