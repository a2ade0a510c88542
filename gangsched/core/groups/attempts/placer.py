"""Placer: where a unit fits, beside what is kept from it: the one function that decides.

It changes nothing. Called by core.groups.attempts.attempts in the unit's turn, and on copies of the cluster
by all that ask what would be decided: core.groups.attempts.making_room (once victims have gone), core.kept
(once pods have ended) and core.explaining.room (now, for people). No other module runs the cycle (tests/house
holds it). Not here: what follows from the answer (core.groups.attempts.commits), what is kept (core.kept),
the cycle (core.cycle).
"""

from __future__ import annotations

from collections.abc import Sequence

from gangsched.core.cache.trial import ClusterView, Trial
from gangsched.core.cycle.cycle import run_cycle
from gangsched.core.framework.plan import FitError, Plan
from gangsched.core.framework.profile import Demand
from gangsched.core.kept.kept import Kept
from gangsched.core.state.state import SharedState
from gangsched.core.types.arrays import BoolArray
from gangsched.core.types.group import Group, PodInfo
from gangsched.core.types.placement import Nominated
from gangsched.core.units import Units


class Placer:
    """Places units on the cluster as it is, or on a copy."""

    def __init__(self, shared: SharedState, units: Units) -> None:
        self._shared = shared
        self._units = units

    def place(self, unit: list[Group], kept: Kept) -> Plan | FitError:
        """Places what the unit's pending members ask for on the cluster as it is, in its turn. Raises:
        PluginError."""
        demands = self._units.demands(unit, observed=True)
        if not demands:
            return Plan([])  # all of it is reserved already
        groups, view = [demand.group for demand in demands], self._shared.cache.view
        answer: Plan | FitError | None = None
        for nominated in kept.ways_to_start(groups):
            answer = self.cycle(demands, view, nominated)
            if isinstance(answer, Plan):
                break
        assert answer is not None, "there is at least one way"
        return answer

    def trial(
        self,
        unit: list[Group],
        view: ClusterView,
        nominated: Sequence[Nominated],
        *,
        within: BoolArray | None = None,
    ) -> Plan | FitError:
        """Places the unit on a copy, without trying further orders. within bool[n_rows]: the nodes allowed.
        Raises: PluginError."""
        demands = self._units.demands(unit)
        if within is not None:
            for demand in demands:
                demand.within = within
        return self.cycle(demands, view, nominated, 0)

    def preview(self, unit: list[Group], nominated: Sequence[Nominated]) -> Plan | FitError:
        """Places the unit on the cluster as it is, without trying further orders, for people who look on
        between two turns: no later decision depends on whether they have. Raises: PluginError."""
        return self.cycle(self._units.demands(unit, preview=True), self._shared.cache.view, nominated, 0)

    def anew(self, group: Group, members: Sequence[PodInfo], kept: Kept) -> Plan | FitError:
        """Where a running gang would go if these started now, as its members, and what it holds were free.

        members: copies of its members, pending. Its own preemption is not asked for. Raises: PluginError.
        """
        view = Trial(self._shared.cache.view)
        view.remove(*group.members.values())
        again = Group(group.key, group.scheduler_name, now_s=self._shared.now_s)
        again.definition = group.definition
        for info in members:
            again.add(info)
        room_kept = next(iter(kept.ways_to_start([group])))
        return self.cycle(self._units.demands([again], preview=True), view, room_kept, 0)

    def cycle(
        self,
        demands: Sequence[Demand],
        view: ClusterView,
        nominated: Sequence[Nominated],
        search_budget: int | None = None,
    ) -> Plan | FitError:
        """Runs the cycle. nominated: room kept from the unit; search_budget: None for that of its turn."""
        settings = self._shared.settings
        return run_cycle(
            demands,
            view,
            topology_key=settings.topology_key,
            nominated=nominated,
            search_budget=settings.search_placements if search_budget is None else search_budget,
        )
