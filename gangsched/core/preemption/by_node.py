"""PodVictims and GangVictims: chooses victims node by node, as kube-scheduler does, the cheapest node first.

On a node all potential victims are removed; then they are spared one by one, the most important first,
starting with those protected by a disruption budget. Unlike in kube-scheduler, a pod that is terminating
costs nothing: waiting for it harms no pod. Called by core.preemption.search, which for a gang checks the
result: only each node's capacity without certain pods is considered here, so constraints among members may
still rule it out. Sources: kube-scheduler 1.37 `plugins/defaultpreemption` (SelectVictimsOnNode),
`framework/preemption/preemption.go` (DryRunPreemption, pickOneNodeForPreemption).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import NamedTuple

import msgspec
import numpy as np

from gangsched.core.cache.trial import Trial
from gangsched.core.cycle.device_allocation import listed_requests, reserve_devices
from gangsched.core.framework.plan import Plan
from gangsched.core.framework.profile import Demand
from gangsched.core.preemption.costs import Chosen, Cost
from gangsched.core.preemption.node_costs import NodeCosts, OnNodes, rank
from gangsched.core.preemption.victim_trials import VictimTrials
from gangsched.core.preemption.victims import Victims
from gangsched.core.types.group import PodInfo
from gangsched.core.types.templates.pod_template import PodTemplate

# Plugins whose Filter depends on resources only (apart from ports).
_BY_ROOM = {"NodeResourcesFit", "Devices", "NodePorts"}
_Found = tuple[Cost, int, dict[str, PodInfo]]


class PodVictims:
    """One pod's search among the potential victims: those of the node where they cost least.

    Nodes are tried in the order that resources alone suggest (core.preemption.node_costs): if no other Filter
    matters the first result is the best one. Otherwise as many nodes are compared as the plugin's arguments
    say; kube-scheduler begins with a random node, we with the cheapest. ran_out: the search ended before
    enough nodes were compared.
    """

    def __init__(
        self, demand: Demand, victims: Victims, trials: VictimTrials, n_candidates: Callable[[int], int]
    ) -> None:
        self.ran_out = False
        self._demand = demand
        self._template = demand.members[0].template
        self._victims = victims
        self._trials = trials
        self._n_candidates = n_candidates

    def choose(self) -> tuple[Plan, dict[str, PodInfo]] | None:
        """Returns where the pod goes, and its victims; None: no node's pods make room for it."""
        victims = OnNodes(self._victims.on_row, self._victims.guarded, self._victims.last)
        ranking = rank(self._trials.room, self._template, victims)
        for _, _, chosen in sorted(self._weighed(ranking), key=itemgetter(0, 1)):
            plan = self._trials.place(chosen)
            if isinstance(plan, Plan):
                return plan, chosen
        return None

    def _weighed(self, ranking: NodeCosts) -> list[_Found]:
        is_sure = self._room_decides()
        n_enough = self._n_candidates(len(ranking.rows))
        found: list[_Found] = []
        for at, row in enumerate(ranking.rows.tolist()):
            if len(found) >= n_enough:
                break
            if self._trials.is_spent:
                self.ran_out = True
                break
            weighed = self._on_node(row)
            if weighed is None:
                is_sure = False
                continue
            found.append((weighed[0], row, weighed[1]))
            is_sure = is_sure and weighed[0].key == ranking.keys[at]
            if is_sure:
                break
        return found

    def _room_decides(self) -> bool:
        """Whether core.preemption.node_costs is exact for all nodes if it is for the first."""
        template, profile = self._template, self._demand.profile
        state = self._trials.state(self._demand, template, self._trials.room)
        if state is None or template.host_ports or template.volumes or template.constraints:
            return False
        concerned = {one.name for one in profile.filtering.capacities if one.name not in state.unconcerned}
        room_only = concerned <= _BY_ROOM and profile.filtering.is_local(state)
        return room_only and self._victims.are_independent

    def _on_node(self, row: int) -> tuple[Cost, dict[str, PodInfo]] | None:
        """Returns what the node has to give up, by SelectVictimsOnNode; None: even that would not suffice."""
        everybody = self._victims.closure({info.uid: info for info in self._victims.on_row[row]})
        against = self._victims.violating(everybody)
        victims = self._needed(row, everybody)
        if victims is not None and not self._victims.accepts(victims):
            victims = self._needed(row, self._victims.allowed(everybody, {}))
        if victims is None:
            return None
        return self._victims.cost(victims, n_violations=len(against & victims.keys())), victims

    def _needed(self, row: int, victims: dict[str, PodInfo]) -> dict[str, PodInfo] | None:
        """Returns those of the victims that must go; None: all of them are not enough."""
        if not self._takes(row, victims):
            return None
        return self._victims.needed(victims, row, {}, lambda fewer: self._takes(row, fewer))

    def _takes(self, row: int, gone: Chosen) -> bool:
        trial = self._trials.without(gone)
        return self._trials.capacity_on(self._demand, self._template, trial, row) > 0


class _Block(msgspec.Struct, gc=False):
    """What a node has to give up for the next n members."""

    row: int
    n: int
    victims: dict[str, PodInfo]


class _Step(NamedTuple):
    """Equal members to make room for. level: the pods that victims may be taken from; chosen: those taken so
    far, for the whole unit; trial: without these, and with the members placed so far."""

    demand: Demand
    template: PodTemplate
    level: Chosen
    trial: Trial
    chosen: dict[str, PodInfo]

    @property
    def rest(self) -> dict[str, PodInfo]:
        """The pods of the level that are not chosen."""
        return {uid: info for uid, info in self.level.items() if uid not in self.chosen}


class GangVictims:
    """A gang's search, member by member: step 3 of core.preemption.search. n_candidates: number of nodes to
    compare out of n suitable ones."""

    def __init__(
        self,
        unit: Sequence[Demand],
        victims: Victims,
        trials: VictimTrials,
        n_candidates: Callable[[int], int],
    ) -> None:
        self._unit = unit
        self._victims = victims
        self._trials = trials
        self._n_candidates = n_candidates
        self._stops_at = 0

    @property
    def _is_spent(self) -> bool:
        return self._trials.n_left <= self._stops_at

    def choose(self, level: Chosen, free: Chosen) -> dict[str, PodInfo] | None:
        """Chooses victims out of `level`, taking again and again what the cheapest node gives up for a
        member; None: no result, or the budget ran out. free: pods that cost nothing and are taken in any
        case."""
        self._stops_at = self._trials.n_left // 2  # the other steps need budget too
        trial = self._trials.without(free)
        chosen = dict(free)
        for demand in self._unit:
            n_left = demand.n_needed
            batches: dict[int, tuple[PodTemplate, int]] = {}
            for info in demand.members[:n_left]:
                template, n = batches.get(info.template.serial, (info.template, 0))
                batches[template.serial] = (template, n + 1)
            for template, n in batches.values():
                made = self._room_for(_Step(demand, template, level, trial, chosen), n)
                if made is None:
                    return None
                trial, chosen = made.trial, made.chosen
        return chosen

    def until_let_in(self, chosen: dict[str, PodInfo], level: Chosen) -> dict[str, PodInfo]:
        """Adds the least important pods of the level until what keeps the unit out is gone."""
        left = {uid: info for uid, info in level.items() if uid not in chosen}
        parts = self._victims.parts(left, chosen)

        def with_last(n: int) -> dict[str, PodInfo]:
            more = (part for part in parts[len(parts) - n :])
            return self._victims.closure({**chosen, **{uid: i for part in more for uid, i in part.items()}})

        low, high = 0, len(parts)
        while low < high:
            middle = (low + high) // 2
            if self._trials.lacks(with_last(middle)):
                low = middle + 1
            else:
                high = middle
        return with_last(high)

    def _room_for(self, step: _Step, n_left: int) -> _Step | None:
        """Returns where that leads; None: no result, or the budget ran out."""
        n_left -= self._fill(step, n_left)
        room = self._trials.capacity(step.demand, step.template, self._trials.without(step.rest, step.trial))
        rows = [row for row in self._victims.on_row if room[row] > 0]
        rows.sort(key=lambda row: (len(self._victims.on_row[row]), row))
        heap: list[tuple[tuple[float, ...], int, int, _Block]] = []

        def weigh(row: int) -> None:
            for n in sorted({1, min(n_left, int(room[row]))}):
                block = self._block(step, row, n)
                if block is not None:
                    cost = self._victims.cost(block.victims)
                    heapq.heappush(heap, (_a_member(cost, n), row, n, block))

        if n_left:
            for row in rows[: max(self._n_candidates(len(rows)), 2 * n_left)]:
                if not self._is_spent:
                    weigh(row)
        while n_left:
            if not heap or self._is_spent:
                return None
            *_, block = heapq.heappop(heap)
            if block.n > n_left:
                continue
            again = self._block(step, block.row, block.n)
            if again is None:
                continue
            if again.victims.keys() != block.victims.keys():
                cost = self._victims.cost(again.victims)
                heapq.heappush(heap, (_a_member(cost, again.n), again.row, again.n, again))
                continue
            trial = self._trials.without(again.victims, step.trial)
            step = step._replace(trial=trial, chosen={**step.chosen, **again.victims})
            _take(trial, step.template, again.row, again.n)
            n_left -= again.n
            n_left -= self._fill(step, n_left)
            if n_left:
                weigh(again.row)
        return step

    def _fill(self, step: _Step, n: int) -> int:
        """Places members where there is room without evicting; returns their number."""
        placed = 0
        while placed < n:
            room = self._trials.capacity(step.demand, step.template, step.trial)
            row = int(np.argmax(room))
            here = min(int(room[row]), n - placed)
            if here <= 0:
                break
            _take(step.trial, step.template, row, here)
            placed += here
        return placed

    def _block(self, step: _Step, row: int, n: int) -> _Block | None:
        """Returns what the node must give up for n members, as SelectVictimsOnNode: all go, then some are
        spared."""
        chosen = step.chosen
        here = {info.uid: info for info in self._victims.on_row[row] if info.uid in step.level}
        all_gone = self._victims.closure({**chosen, **here})
        victims = {uid: info for uid, info in all_gone.items() if uid not in chosen}
        found = self._spared(step, row, n, victims)
        if found is not None and not self._victims.accepts({**chosen, **found}):
            found = self._spared(step, row, n, self._victims.allowed(victims, chosen))
        return None if found is None else _Block(row, n, found)

    def _spared(
        self, step: _Step, row: int, n: int, victims: dict[str, PodInfo]
    ) -> dict[str, PodInfo] | None:
        """Returns those of the victims that n members need gone; None: all of them are not enough."""

        def suffice(gone: Chosen) -> bool:
            without = self._trials.without(gone, step.trial)
            return self._trials.capacity_on(step.demand, step.template, without, row) >= n

        return self._victims.needed(victims, row, step.chosen, suffice) if suffice(victims) else None


def _a_member(cost: Cost, n: int) -> tuple[float, ...]:
    """A block's cost per member, in the order of costs."""
    total, n_pods = cost.total / n, cost.n_pods / n
    return (cost.n_last / n, cost.n_violations / n, cost.highest, total, n_pods, cost.latest)


def _take(trial: Trial, template: PodTemplate, row: int, n: int) -> None:
    reserve_devices(trial, row, template, listed_requests(trial, template), n)
    trial.place(row, template, n)
