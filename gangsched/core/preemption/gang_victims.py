"""GangVictims: chooses a gang's victims as kube-scheduler does a pod's, node by node, the cheapest first.

Step 3 of core.preemption.search, which calls it and checks the result. Only each node's capacity without
certain pods is considered here, so constraints among members may still rule the result out.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from gangsched.core.cache.trial import Trial
from gangsched.core.cycle.device_allocation import listed_requests, reserve_devices
from gangsched.core.framework.profile import Demand
from gangsched.core.preemption.costs import Chosen, Cost
from gangsched.core.preemption.victim_trials import VictimTrials
from gangsched.core.preemption.victims import Victims
from gangsched.core.types.group import PodInfo
from gangsched.core.types.templates.pod_template import PodTemplate


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
    """n_candidates: number of nodes to compare out of n suitable ones."""

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
