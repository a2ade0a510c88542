"""ClaimPlans: where and when a unit will fit, if pods end when they are thought to.

A first guess by arrays (core.queueing.planning), then the cycle itself, at that moment and at later ones, on
Trials without the pods that will have ended. Called by core.groups.claiming.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np

from gangsched.core.cache.trial import Trial
from gangsched.core.cycle.cycle import run_cycle
from gangsched.core.framework.plan import FitError, Plan
from gangsched.core.framework.plugin_calls import PluginError
from gangsched.core.framework.profile import Demand
from gangsched.core.queueing.claims import Claims
from gangsched.core.queueing.ends import End
from gangsched.core.queueing.planning import Search, earliest, moments_from
from gangsched.core.state.state import SharedState
from gangsched.core.types.arrays import BoolArray, IntArray
from gangsched.core.types.claim import Blocker, StartClaim
from gangsched.core.types.group import Group, PodInfo
from gangsched.core.types.placement import Nominated, Placement
from gangsched.core.types.pod_template import PodTemplate

# A pod that did not go when it was evicted is not waited for.
_STUCK = End(math.inf)


class _Running(msgspec.Struct):
    """Pods on nodes, and when each ends."""

    infos: list[PodInfo]
    ends: list[End]

    def ended_by(self, at_s: float) -> Iterator[PodInfo]:
        for info, end in zip(self.infos, self.ends, strict=True):
            if end.at_s <= at_s:
                yield info


class _Holders(msgspec.Struct):
    """Who holds room until when, pods and members of earlier claims, as parallel lists."""

    rows: list[int]
    ends_s: list[float]
    templates: list[PodTemplate]

    def amounts(self, columns: Sequence[int]) -> IntArray:
        """int64[len(columns), n]: what each holds of some columns."""
        kinds = {one.serial: one for one in self.templates}
        code_of = {serial: code for code, serial in enumerate(kinds)}
        of_kind = np.zeros((len(columns), len(kinds)), dtype=np.int64)
        for code, template in enumerate(kinds.values()):
            held = dict(zip(template.columns, template.amounts, strict=True))
            of_kind[:, code] = [held.get(column, 0) for column in columns]
        codes = np.array([code_of[one.serial] for one in self.templates], dtype=np.int64)
        found: IntArray = of_kind[:, codes]
        return found


class ClaimPlans:
    """Plans claims; changes nothing."""

    def __init__(self, shared: SharedState, demands_of: Callable[[list[Group]], list[Demand]]) -> None:
        self._shared = shared
        self._demands_of = demands_of

    def made(self, claims: Claims, unit: list[Group]) -> StartClaim | None:
        """A claim from the first moment that is found at which it fits; None: it would not, whatever ends."""
        now_s, running = self._shared.now_s, self._running()
        try:
            found = self._first(claims, unit, running)
        except PluginError as error:
            self._shared.hooks.blame(error, unit[0])
            return None
        if found is None:
            return None
        start_s, plan = found
        held = self._held(plan.placements)
        nodes = {one.node_name for one in held}
        blockers = [
            Blocker(info.pod.key, end.at_s, end.is_stated, end.is_over)
            for info, end in zip(running.infos, running.ends, strict=True)
            if info.node_name in nodes and end.at_s <= start_s
        ]
        return StartClaim(
            unit=tuple(unit),
            serial=claims.next_serial(),
            priority=min(group.priority for group in unit),
            start_s=start_s,
            end_s=start_s + self.walltime_s(unit),
            held=held,
            blockers=tuple(sorted(blockers, key=lambda one: (one.end_s, one.name))),
            planned_s=now_s,
            look_s=math.inf,
            looked_s=now_s,
        )

    def still(self, claims: Claims, claim: StartClaim) -> tuple[Nominated, ...]:
        """Where its members go if it stays on its nodes and starts as it was to; (): that is not possible."""
        at_s, unit = max(claim.start_s, self._shared.now_s), list(claim.unit)
        try:
            answer = self._try(claims, unit, at_s, self._running(), claim.nodes)
        except PluginError as error:
            self._shared.hooks.blame(error, unit[0])
            return ()
        return self._held(answer.placements) if isinstance(answer, Plan) else ()

    def walltime_s(self, unit: Sequence[Group]) -> float:
        """As long as the longest of its groups."""
        walltimes = self._shared.walltimes
        return math.inf if walltimes is None else max(walltimes.of(group).seconds for group in unit)

    def _first(self, claims: Claims, unit: list[Group], running: _Running) -> tuple[float, Plan] | None:
        now_s = self._shared.now_s
        ahead = claims.ahead_of(unit)
        first_s = max(self._guess(claims, unit, running, ahead), now_s)
        moments = moments_from(
            first_s, [one.at_s for one in running.ends] + [claims.end_s(one) for one in ahead]
        )
        if first_s == now_s:
            moments = [now_s, *moments]
        search, found = Search(len(moments)), None
        for at in search:
            answer = self._try(claims, unit, moments[at], running)
            search.told(isinstance(answer, Plan))
            if isinstance(answer, Plan):
                found = moments[at], answer
        return found

    def _try(
        self,
        claims: Claims,
        unit: list[Group],
        at_s: float,
        running: _Running,
        nodes: Sequence[str] | None = None,
    ) -> Plan | FitError:
        """Places it as things will be then, beside the claims to which it yields; on `nodes` only."""
        shared = self._shared
        trial = Trial(shared.cache.view)
        trial.remove(*running.ended_by(at_s))
        demands = self._demands_of(unit)
        if nodes is not None:
            within: BoolArray = np.zeros(trial.n_rows, dtype=np.bool_)
            within[[row for name in nodes if (row := trial.row_of(name)) is not None]] = True
            for demand in demands:
                demand.within = within
        kept = list(shared.cache.nominated.values())
        kept += claims.against(unit, at_s, at_s + self.walltime_s(unit))
        return run_cycle(demands, trial, topology_key=shared.settings.topology_key, nominated=kept)

    def _guess(
        self, claims: Claims, unit: list[Group], running: _Running, ahead: Sequence[StartClaim]
    ) -> float:
        """By resources, each template alone."""
        view = self._shared.cache.view
        claimed = [
            (row, claims.end_s(claim), one.template)
            for claim in ahead
            for one in claim.held
            if (row := view.row_of(one.node_name)) is not None
        ]
        holders = _Holders(
            [row for row, _, _ in claimed] + [info.row for info in running.infos],
            [end_s for _, end_s, _ in claimed] + [end.at_s for end in running.ends],
            [template for _, _, template in claimed] + [info.template for info in running.infos],
        )
        guesses_s = [
            self._guess_for(
                demand, template, demand.n_needed - len(demand.members) + len(members), holders, len(claimed)
            )
            for demand in self._demands_of(unit)
            for template, members in demand.by_template().values()
        ]
        return max(guesses_s, default=-math.inf)

    def _guess_for(
        self,
        demand: Demand,
        template: PodTemplate,
        need: int,
        holders: _Holders,
        n_claimed: int,
    ) -> float:
        view = self._shared.cache.view
        state, status = demand.pre_filter(template, view)
        if not status.is_success or not template.columns:
            return -math.inf
        ok = demand.profile.filtering.feasible(state, template, view)
        ok = ok if state.subset is None else ok & state.subset
        amounts = holders.amounts(template.columns)
        rows = np.array(holders.rows, dtype=np.int64)
        free = view.free_at(template.column_array, np.arange(view.n_rows)).copy()
        for i in range(n_claimed):
            free[:, rows[i]] -= amounts[:, i]
        ends_s = np.array(holders.ends_s, dtype=np.float64)
        return earliest(free, template.amount_array[:, 0], ok, need, rows, ends_s, amounts)

    def _running(self) -> _Running:
        shared = self._shared
        assert shared.ends is not None
        ends, ahead_s, now_s = shared.ends, shared.wall_ahead_s, shared.now_s
        infos = [info for there in shared.cache.by_node.values() for info in there.values() if info.row >= 0]
        found = [_STUCK if one.uid in shared.stuck else ends.of(one, now_s, ahead_s) for one in infos]
        return _Running(infos, found)

    def _held(self, placements: Sequence[Placement]) -> tuple[Nominated, ...]:
        view = self._shared.cache.view
        held = []
        for one in placements:
            ids: dict[str, tuple[str, ...]] = {}
            for sets in one.allocation.values():
                for resource, some in sets.items():
                    ids[resource] = (*ids.get(resource, ()), *some)
            assert one.info.group is not None
            held.append(Nominated(one.info, view.name(one.row), one.info.group.priority, ids))
        return tuple(held)
