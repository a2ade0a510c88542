"""ClaimPlans: where and when a unit will fit, if pods end when expected.

A first guess comes from arrays (core.queueing.planning); then the cycle itself is run for that time and later
ones, on Trials without the pods that will have ended. Called by core.groups.claiming.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from gangsched.core.cache.trial import Trial
from gangsched.core.cycle.cycle import run_cycle
from gangsched.core.framework.plan import FitError, Plan
from gangsched.core.framework.plugin_calls import PluginError
from gangsched.core.framework.profile import Demand
from gangsched.core.groups.units import Units
from gangsched.core.queueing.claimed_room import ClaimedRoom
from gangsched.core.queueing.claims import Claims
from gangsched.core.queueing.ends import End
from gangsched.core.queueing.idle_budget import idle_until
from gangsched.core.queueing.planning import Search, moments_from
from gangsched.core.queueing.room import Room, free_ids
from gangsched.core.queueing.running_pods import RunningPods
from gangsched.core.state.state import SharedState
from gangsched.core.types.arrays import BoolArray
from gangsched.core.types.claim import Blocker, StartClaim
from gangsched.core.types.group import Group, PodInfo
from gangsched.core.types.placement import Nominated, Placement

_LOOKS_AT_PODS = ("InterPodAffinity", "PodTopologySpread")
# A gang that finds so much free room and does not fit lacks something else.
_MAX_SPARED = 4096


class _Asked(NamedTuple):
    """Who is planned for; to_all: beside those, too, that yield to it and are promised a start; by_s: a later
    start is of no use."""

    claims: Claims
    unit: list[Group]
    to_all: bool = False
    by_s: float = math.inf


def _devices_by_node(claims: Iterable[StartClaim]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for one in (one for claim in claims for one in claim.held):
        found.setdefault(one.node_name, set()).update(i for ids in one.ids.values() for i in ids)
    return found


class ClaimPlans:
    """Plans claims; changes nothing."""

    def __init__(self, shared: SharedState, units: Units) -> None:
        self._shared = shared
        self._units = units
        self._running: RunningPods | None = None
        self._looked: tuple[float, ...] = ()
        """When `_running` was looked at: a claim that is checked and planned anew does not look twice."""
        self._claimed = ClaimedRoom(shared.cache.view)

    def made(
        self, claims: Claims, unit: list[Group], *, to_all: bool = False, by_s: float = math.inf
    ) -> StartClaim | None:
        """A claim for the first time found at which it fits; None: it would not fit even if everything
        ended, or not by then. to_all: so that those that yield to it can start as promised."""
        try:
            found = self._first(_Asked(claims, unit, to_all, by_s))
        except PluginError as error:
            self._shared.hooks.blame(error, unit[0])
            return None
        if found is None:
            return None
        return self._claim(claims, unit, *found)

    def eased(self, claims: Claims, claim: StartClaim) -> StartClaim | None:
        """The claim for the same start, where it keeps less of what is free now; None: it keeps no more than
        it must, or it cannot stay."""
        at_s, unit = claim.start_s, list(claim.unit)
        rooms = self._rooms(unit, self._look())
        if len(rooms) != 1 or not rooms[0].is_known or at_s <= self._shared.now_s:
            return None
        view, room = self._shared.cache.view, rooms[0]
        rows = [row for one in claim.held if (row := view.row_of(one.node_name)) is not None]
        asked = _Asked(claims, unit, to_all=True)
        ahead = self._claimed.of(self._holding_up(asked, at_s))
        if room.n_beyond(at_s, ahead, np.array(rows, dtype=np.int64)) <= 0:
            return None
        try:
            gone = self._ended_by(asked, at_s, rooms)
            answer = self._try(asked, at_s, gone, spared=self._spared(asked, at_s, rooms))
        except PluginError as error:
            self._shared.hooks.blame(error, unit[0])
            return None
        return self._claim(claims, unit, at_s, answer) if isinstance(answer, Plan) else None

    def _claim(self, claims: Claims, unit: list[Group], start_s: float, plan: Plan) -> StartClaim:
        now_s = self._shared.now_s
        held = self._held(plan.placements)
        nodes = dict.fromkeys(one.node_name for one in held)
        priority = min(group.priority for group in unit)
        return StartClaim(
            unit=tuple(unit),
            serial=claims.next_serial(),
            priority=priority,
            start_s=start_s,
            end_s=start_s + self.walltime_s(unit),
            held=held,
            blockers=self.blockers(nodes, start_s),
            beside=self._beside(nodes, start_s, priority),
            planned_s=now_s,
            look_s=math.inf,
            looked_s=now_s,
        )

    def blockers(
        self, nodes: Iterable[str], start_s: float, among: Collection[str] | None = None
    ) -> tuple[Blocker, ...]:
        """The pods on these nodes that end before a claim starts, the soonest first. among: of those with
        these UIDs, None: of all."""
        found = [
            Blocker(info.pod.key, end.at_s, end.is_stated, end.is_over, info.uid)
            for info, end in self._ending(nodes, start_s)
            if among is None or info.uid in among
        ]
        return tuple(sorted(found, key=lambda one: (one.end_s, one.name)))

    def _beside(self, nodes: Iterable[str], start_s: float, priority: int) -> frozenset[str]:
        """The UIDs of others' pods and of more important ones that are there and stay."""
        return frozenset(
            info.uid
            for name in nodes
            for info in self._shared.cache.by_node.get(name, {}).values()
            if (info.group is None or info.group.priority > priority)
            and (info.row < 0 or self._shared.end_of(info).at_s > start_s)
        )

    def still(self, claims: Claims, claim: StartClaim) -> tuple[Nominated, ...]:
        """Where its members go if it stays on its nodes and starts as it was to; (): that is not possible."""
        at_s, unit = max(claim.start_s, self._shared.now_s), list(claim.unit)
        nodes = None if any(one.template.needs for one in claim.held) else claim.nodes
        try:
            gone = self._ended_on(nodes, at_s)
            rooms = self._rooms(unit, self._look())
            for room in rooms:
                room.ok = room.ok & self._within(claim.nodes)
            asked = _Asked(claims, unit)
            spared = self._spared(asked, at_s, rooms)
            answer = self._try(asked, at_s, gone, claim.nodes, spared)
            if isinstance(answer, FitError) and spared:
                answer = self._try(asked, at_s, gone, claim.nodes)
        except PluginError as error:
            self._shared.hooks.blame(error, unit[0])
            return ()
        return self._held(answer.placements) if isinstance(answer, Plan) else ()

    def idle_s(self, claim: StartClaim) -> dict[str, float]:
        """What the claim will keep idle if nobody fills in (core.queueing.idle_budget.idle_until)."""
        ending = self._ending(claim.nodes, claim.start_s)
        leaving = [(info.row, end.at_s, info.template) for info, end in ending]
        return idle_until(claim.start_s, claim.held, self._shared.cache.view, leaving, self._shared.now_s)

    def walltime_s(self, unit: Sequence[Group]) -> float:
        """The longest walltime of its groups."""
        walltimes = self._shared.walltimes
        return math.inf if walltimes is None else max(walltimes.of(group).seconds for group in unit)

    def needs_nobody_who_is_to_come(self, demands: Sequence[Demand], plan: Plan) -> FitError | None:
        """Why a unit with required terms about other pods would not fit there without the claims' pods.

        Those are on the Trial to keep their room, and a term could match them as if they were running.
        """
        shared, claims = self._shared, self._shared.queue.claims
        if claims is None or not claims.by_key:
            return None
        if not any(name in _LOOKS_AT_PODS for one in plan.placements for name, _ in one.info.template.needs):
            return None
        within: BoolArray = np.zeros(shared.cache.view.n_rows, dtype=np.bool_)
        within[[one.row for one in plan.placements]] = True
        there = [msgspec.structs.replace(demand, within=within) for demand in demands]
        kept = list(shared.cache.nominated.values())
        answer = run_cycle(
            there, shared.cache.view, topology_key=shared.settings.topology_key, nominated=kept
        )
        return answer if isinstance(answer, FitError) else None

    def _first(self, asked: _Asked) -> tuple[float, Plan] | None:
        now_s = self._shared.now_s
        ahead = asked.claims.ahead_of(asked.unit)
        running = self._look()
        rooms = self._rooms(asked.unit, running)
        held = self._claimed.of(ahead)
        ends_s = np.array([asked.claims.end_s(one) for one in ahead], dtype=np.float64)
        guessed = (room.earliest_s(held, ends_s[held.claims]) for room in rooms)
        first_s = max(max(guessed, default=-math.inf), now_s)
        if not math.isfinite(first_s) or first_s > asked.by_s:
            return None
        gone = self._ended_by(asked, first_s, rooms)
        spared = self._spared(asked, first_s, rooms)
        answer = self._try(asked, first_s, gone, spared=spared)
        if isinstance(answer, FitError) and spared:
            answer = self._try(asked, first_s, gone)
        if isinstance(answer, Plan):
            return first_s, answer
        ends_s = np.append(running.ends_s, ends_s)
        moments = moments_from(math.nextafter(first_s, math.inf), ends_s[ends_s <= asked.by_s])
        search, found = Search(len(moments)), None
        for at in search:
            if not self._has_room(asked, moments[at], rooms):
                search.told(False)
                continue
            gone = self._ended_by(asked, moments[at], rooms)
            answer = self._try(asked, moments[at], gone)
            search.told(isinstance(answer, Plan))
            if isinstance(answer, Plan):
                found = moments[at], answer
        if found is not None and (spared := self._spared(asked, found[0], rooms)):
            gone = self._ended_by(asked, found[0], rooms)
            answer = self._try(asked, found[0], gone, spared=spared)
            found = (found[0], answer) if isinstance(answer, Plan) else found
        return found

    def _has_room(self, asked: _Asked, at_s: float, rooms: Sequence[Room]) -> bool:
        """Whether by resources alone each template finds room then, which costs a tenth of a try."""
        held = self._claimed.of(self._holding_up(asked, at_s))
        return all(room.n_at(at_s, held) >= room.need for room in rooms if room.free is not None)

    def _try(
        self,
        asked: _Asked,
        at_s: float,
        gone: Sequence[PodInfo],
        nodes: Sequence[str] | None = None,
        spared: Sequence[Nominated] = (),
    ) -> Plan | FitError:
        """Places it on the cluster as it will be then, beside the claims to which it yields, and beside what
        is spared; on `nodes` only."""
        shared = self._shared
        trial = Trial(shared.cache.view)
        trial.remove(*gone)
        demands = self._units.demands(asked.unit)
        if nodes is not None:
            within = self._within(nodes)
            for demand in demands:
                demand.within = within
        kept = list(shared.cache.nominated.values())
        kept += [one for claim in self._holding_up(asked, at_s) for one in claim.held]
        kept += spared
        return run_cycle(demands, trial, topology_key=shared.settings.topology_key, nominated=kept)

    def _holding_up(self, asked: _Asked, at_s: float) -> list[StartClaim]:
        """The claims beside which it would run if it starts then."""
        unit = asked.unit
        until_s = at_s + self.walltime_s(unit)
        return asked.claims.holding_up(unit, at_s, until_s, to_all=asked.to_all)

    def _within(self, nodes: Iterable[str]) -> BoolArray:
        """bool[n_rows]: these nodes."""
        view = self._shared.cache.view
        found: BoolArray = np.zeros(view.n_rows, dtype=np.bool_)
        found[[row for name in nodes if (row := view.row_of(name)) is not None]] = True
        return found

    def _spared(self, asked: _Asked, at_s: float, rooms: Sequence[Room]) -> list[Nominated]:
        """Room that is free now and is not needed then, with its devices, as if members were there."""
        now_s = self._shared.now_s
        if at_s <= now_s or not all(room.is_known for room in rooms):
            return []
        view, found = self._shared.cache.view, list[Nominated]()
        ahead = self._holding_up(asked, at_s)
        held = self._claimed.of(ahead)
        taken: dict[str, set[str]] | None = None
        for room in rooms:
            n_of = room.to_spare(at_s, held)
            rows = np.flatnonzero(n_of)
            if int(n_of.sum()) > _MAX_SPARED:
                return []
            if len(rows) and taken is None:
                taken = _devices_by_node(ahead)
            for row in rows.tolist():
                name, n = view.name(row), int(n_of[row])
                free = free_ids(view, row, room.template, (taken or {}).get(name, set()))
                for k in range(n):
                    ids = {
                        resource: some[k * amount : (k + 1) * amount]
                        for resource, (amount, some) in free.items()
                    }
                    found.append(Nominated(room.member, name, asked.unit[0].priority, ids))
        return found

    def _rooms(self, unit: list[Group], running: RunningPods) -> list[Room]:
        """One for each template, by itself."""
        view = self._shared.cache.view
        found = []
        for demand in self._units.demands(unit):
            for template, members in demand.by_template().values():
                state, status = demand.pre_filter(template, view)
                if not status.is_success or not template.columns:
                    found.append(Room(template, members[0], 0, len(members), view.live, running))
                    continue
                ok = demand.profile.filtering.feasible(state, template, view)
                ok = ok if state.subset is None else ok & state.subset
                need = demand.n_needed - len(demand.members) + len(members)
                free = view.free_at(template.column_array, np.arange(view.n_rows))
                amounts = running.amounts(template.names)
                found.append(Room(template, members[0], need, len(members), ok, running, free, amounts))
        return found

    def follow(self) -> None:
        """At the end of a turn: keeps up with changes of running pods."""
        self._pods().follow(self._shared.now_s, self._shared.wall_ahead_s)

    def _look(self) -> RunningPods:
        shared, running = self._shared, self._pods()
        looked = (shared.n_heard, shared.now_s, shared.cache.view.journal_end)
        if looked != self._looked:
            self._looked = looked
            running.look(shared.now_s, shared.wall_ahead_s)
        return running

    def _pods(self) -> RunningPods:
        shared = self._shared
        assert shared.ends is not None
        if self._running is None or self._running.ends is not shared.ends:
            self._running = RunningPods(shared.cache, shared.ends, shared.stuck)
            self._looked = ()
        return self._running

    def _ended_by(self, asked: _Asked, at_s: float, rooms: Sequence[Room]) -> list[PodInfo]:
        """The pods that will have ended, where that matters."""
        if any(room.free is None or room.template.needs for room in rooms):
            return self._ended_on(None, at_s)
        view = self._shared.cache.view
        rows: BoolArray = np.zeros(view.n_rows, dtype=np.bool_)
        held = self._claimed.of(self._holding_up(asked, at_s))
        for room in rooms:
            rows |= room.rows_at(at_s, held)
        return self._ended_on([view.name(row) for row in np.flatnonzero(rows).tolist()], at_s)

    def _ended_on(self, nodes: Sequence[str] | None, at_s: float) -> list[PodInfo]:
        """On these nodes. Elsewhere they make no difference to pods without terms about others and without
        volumes, if those would not fit there in any case; None: on all nodes."""
        by_node = self._shared.cache.by_node
        there = by_node.values() if nodes is None else [by_node[name] for name in nodes if name in by_node]
        return [
            info
            for infos in there
            for info in infos.values()
            if info.row >= 0 and self._shared.end_of(info).at_s <= at_s
        ]

    def _ending(self, nodes: Iterable[str], by_s: float) -> Iterator[tuple[PodInfo, End]]:
        """The pods on these nodes that end by then, in the order of the nodes."""
        for name in nodes:
            for info in self._shared.cache.by_node.get(name, {}).values():
                if info.row >= 0 and (end := self._shared.end_of(info)).at_s <= by_s:
                    yield info, end

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
