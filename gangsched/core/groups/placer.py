"""Placer: where a unit fits now, beside what is kept from it: the one function that decides.

It changes nothing. Called by core.groups.attempts in the unit's turn and, on copies of the cluster, by
core.groups.making_room. Not here: what follows from the answer (core.groups.commits), the cycle itself
(core.cycle), which also plans claims (core.kept) and explains (core.explain_room).
"""

from __future__ import annotations

from collections.abc import Sequence

from gangsched.core.cache.trial import ClusterView
from gangsched.core.cycle.cycle import run_cycle
from gangsched.core.framework.plan import FitError, Plan
from gangsched.core.framework.profile import Demand
from gangsched.core.kept.kept import Kept
from gangsched.core.state.state import SharedState
from gangsched.core.types.group import Group
from gangsched.core.types.placement import Nominated
from gangsched.core.units import Units


class Placer:
    """Places units on the cluster as it is, or on a copy."""

    def __init__(self, shared: SharedState, units: Units, kept: Kept) -> None:
        self._shared = shared
        self._units = units
        self._kept = kept

    def place(self, unit: list[Group]) -> Plan | FitError:
        """Places what the unit's pending members ask for on the cluster as it is. Raises: PluginError."""
        demands = self._units.demands(unit, observed=True)
        if not demands:
            return Plan([])  # all of it is reserved already
        groups, view = [demand.group for demand in demands], self._shared.cache.view
        answer: Plan | FitError | None = None
        for kept in self._kept.ways_to_start(groups):
            answer = self.cycle(demands, view, nominated=kept)
            if isinstance(answer, Plan):
                break
        assert answer is not None, "there is at least one way"
        return answer

    def cycle(
        self,
        demands: Sequence[Demand],
        view: ClusterView,
        search_budget: int | None = None,
        nominated: Sequence[Nominated] | None = None,
    ) -> Plan | FitError:
        """Runs the cycle. nominated: room kept from it; None: all that claims will need."""
        shared = self._shared
        if nominated is None:
            nominated = self._kept.kept_from([demand.group for demand in demands]).room
        return run_cycle(
            demands,
            view,
            topology_key=shared.settings.topology_key,
            nominated=nominated,
            search_budget=shared.settings.search_placements if search_budget is None else search_budget,
        )
