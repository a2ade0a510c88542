"""Preemption: the cheapest pods to take away so that a whole unit of groups fits, or none.

A pure search on Trials, called by plugins.default_preemption. Every candidate set is judged by the very cycle
that will place the unit (DryRun.place), so whatever a Filter says holds for it too. Who may go, what goes
together and what it costs is core.victims'. Steps:

1. Without all who may go: if the unit does not fit then, nobody goes.
2. The lowest level (sparing disruption budgets first, then by the highest priority taken) at which it fits.
3. Node by node, as kube-scheduler: what a node needs to give up for the next members, the most important let
   off first; the cheapest node a member is taken, again and again, room that is free being used before.
4. Of the whole set everybody is let off without whom it fits as well, the most important first.
5. For gangs, where there are few: every set that costs less is tried too, the cheapest first.

So for a lone pod the answer is kube-scheduler's: the node with the cheapest victims, those of a node by
letting off the important, which now and then takes two small pods for one large of the same priority. For a
gang it is a least one wherever step 5 comes to its end (about a dozen pods of that level), else a set of
which nobody can be let off. Sources: kube-scheduler 1.37 `framework/preemption/preemption.go`
(DryRunPreemption, SelectVictimsOnNode, pickOneNodeForPreemption), KEP-5710.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from math import comb

import msgspec
import numpy as np

from gangsched.core.allotment import reserve_devices
from gangsched.core.framework import Code, CycleState, DryRun, IntArray, PostFilterResult, Status
from gangsched.core.group import PodInfo
from gangsched.core.plan import Demand, FitError, Plan
from gangsched.core.snapshot import Trial
from gangsched.core.template import PodTemplate
from gangsched.core.victims import Budget, Chosen, Cost, Victims, is_free

# Whole cycles that one search may try: to let somebody off, to find a cheaper set.
_MAX_LET_OFF = 64
_MAX_IMPROVE = 100
# Sets that are priced, at a few microseconds each, before the cheapest are tried.
_MAX_SETS = 2048


BudgetsOf = Callable[[Iterable[PodInfo]], Sequence[Budget]]


class _Block(msgspec.Struct, gc=False):
    """What a node has to give up for the next n members."""

    row: int
    n: int
    victims: dict[str, PodInfo]


class Search:
    """One unit's search for room."""

    def __init__(
        self,
        unit: Sequence[Demand],
        trial: Trial,
        dry_run: DryRun,
        *,
        budgets_of: BudgetsOf,
        n_candidates: Callable[[int], int],
    ) -> None:
        """n_candidates: how many of n nodes that would do are weighed against each other in step 3."""
        self._unit = unit
        self._trial = trial
        self._dry_run = dry_run
        self._n_candidates = n_candidates
        priority = min(demand.group.priority for demand in unit)
        self._rows = self._helpful()
        self.victims = Victims(
            trial,
            self._rows if dry_run.lowest_priority < priority else (),
            priority=priority,
            siblings=dry_run.siblings,
            spared=dry_run.spared,
        )
        self._everybody = self.victims.close({info.uid: info for info in self.victims.everybody()})
        self.victims.respect(budgets_of(self._everybody.values()))
        self._free = {uid: info for uid, info in self._everybody.items() if is_free(info)}
        self._is_lone = len(unit) == 1 and len(unit[0].members) == 1 and not unit[0].group.is_gang

    def run(self) -> PostFilterResult | Status:
        """Room for the unit, or why there is none to be made."""
        if not self._everybody:
            return self._helpless(None)
        answer = self._place(self._everybody)
        if isinstance(answer, FitError):
            return self._helpless(answer)
        level = self._level()
        chosen = self._by_nodes(level)
        if chosen is None or not self._fits(chosen):
            chosen = level
        chosen = self._let_off(chosen)
        if not self._is_lone:
            chosen = self._improve(chosen)
        chosen = self._without_idle(chosen)
        plan = self._place(chosen)
        if isinstance(
            plan, FitError
        ):  # a plugin that answers one way with more pods gone and another with less
            return Status.unschedulable("no set of victims was found that makes room")
        ordered = [info for part in self.victims.parts(chosen) for info in part.values()]
        return PostFilterResult(plan, tuple(ordered), frozenset(self.victims.violating(chosen)))

    # -- trying ------------------------------------------------------------------------------------------

    def _without(self, chosen: Chosen, trial: Trial | None = None) -> Trial:
        made = (trial or self._trial).fork()
        made.remove(*chosen.values())
        return made

    def _place(self, chosen: Chosen) -> Plan | FitError:
        return self._dry_run.place(self._without(chosen))

    def _fits(self, chosen: Chosen) -> bool:
        return isinstance(self._place(chosen), Plan)

    def _capacity(self, demand: Demand, template: PodTemplate, trial: Trial) -> IntArray:
        state = CycleState()
        profile = demand.profile
        if not profile.run_pre_filter(state, template, trial).is_success:
            return np.zeros(trial.n_rows, dtype=np.int64)
        return profile.capacity(state, template, trial)

    def _capacity_on(self, demand: Demand, template: PodTemplate, trial: Trial, row: int) -> int:
        """As _capacity, for a node that takes the template by what it is."""
        state = CycleState()
        profile = demand.profile
        if not profile.run_pre_filter(state, template, trial).is_success:
            return 0
        if profile.filtering.is_local(state):
            return profile.filtering.capacity_on(state, template, trial, row)
        return int(profile.capacity(state, template, trial)[row])

    def _helpful(self) -> list[int]:
        """Nodes where taking pods away may help: those whose own properties let some member in."""
        mask = np.zeros(self._trial.n_rows, dtype=np.bool_)
        for demand in self._unit:
            for template in {info.template.serial: info.template for info in demand.members}.values():
                state = CycleState()
                if demand.profile.run_pre_filter(state, template, self._trial).is_success:
                    mask |= demand.profile.filtering.feasible(state, template, self._trial)
        rows: list[int] = np.flatnonzero(mask).tolist()
        return rows

    # -- step 2 ------------------------------------------------------------------------------------------

    def _level(self) -> dict[str, PodInfo]:
        """Everybody up to the lowest level at which the unit fits."""
        levels: dict[tuple[bool, int], dict[str, PodInfo]] = {}
        for uid, info in self._everybody.items():
            if uid not in self._free:
                levels.setdefault(self.victims.level(info), {})[uid] = info
        ordered = [levels[key] for key in sorted(levels)]

        def up_to(n: int) -> dict[str, PodInfo]:
            taken = dict(self._free)
            for level in ordered[:n]:
                taken |= level
            return self.victims.close(taken)

        low, high = 0, len(ordered)
        while low < high:
            middle = (low + high) // 2
            if self._fits(up_to(middle)):
                high = middle
            else:
                low = middle + 1
        return up_to(low)

    # -- step 3 ------------------------------------------------------------------------------------------

    def _by_nodes(self, level: Chosen) -> dict[str, PodInfo] | None:
        """The cheapest node for a member, again and again; None: it did not come out that way."""
        trial = self._without(self._free)
        chosen = dict(self._free)
        for demand in self._unit:
            n_left = demand.n_needed
            batches: dict[int, tuple[PodTemplate, int]] = {}
            for info in demand.members[:n_left]:
                template, n = batches.get(info.template.serial, (info.template, 0))
                batches[template.serial] = (template, n + 1)
            for template, n in batches.values():
                made = self._room_for(demand, template, n, trial, chosen, level)
                if made is None:
                    return None
                trial, chosen = made
        return chosen

    def _room_for(
        self,
        demand: Demand,
        template: PodTemplate,
        n_left: int,
        trial: Trial,
        chosen: dict[str, PodInfo],
        level: Chosen,
    ) -> tuple[Trial, dict[str, PodInfo]] | None:
        n_left -= self._fill(demand, template, n_left, trial)
        room = self._capacity(demand, template, self._without(self._rest(level, chosen), trial))
        rows = [row for row in self.victims.on_row if room[row] > 0]
        rows.sort(key=lambda row: (len(self.victims.on_row[row]), row))
        heap: list[tuple[tuple[float, ...], int, int, _Block]] = []

        def weigh(row: int) -> None:
            for n in sorted({1, min(n_left, int(room[row]))}):
                block = self._block(demand, template, row, n, trial, chosen, level)
                if block is not None:
                    cost = self.victims.cost(block.victims)
                    heapq.heappush(heap, (_a_member(cost, n), row, n, block))

        if n_left:
            for row in rows[: max(self._n_candidates(len(rows)), 2 * n_left)]:
                weigh(row)
        while n_left:
            if not heap:
                return None
            *_, block = heapq.heappop(heap)
            if block.n > n_left:
                continue
            again = self._block(demand, template, block.row, block.n, trial, chosen, level)
            if again is None:
                continue
            if again.victims.keys() != block.victims.keys():
                cost = self.victims.cost(again.victims)
                heapq.heappush(heap, (_a_member(cost, again.n), again.row, again.n, again))
                continue
            trial = self._without(again.victims, trial)
            chosen = {**chosen, **again.victims}
            _take(trial, template, again.row, again.n)
            n_left -= again.n
            n_left -= self._fill(demand, template, n_left, trial)
            if n_left:
                weigh(again.row)
        return trial, chosen

    def _rest(self, level: Chosen, chosen: Chosen) -> dict[str, PodInfo]:
        return {uid: info for uid, info in level.items() if uid not in chosen}

    def _fill(self, demand: Demand, template: PodTemplate, n: int, trial: Trial) -> int:
        """Members go where there is room without anybody leaving; answers how many."""
        placed = 0
        while placed < n:
            room = self._capacity(demand, template, trial)
            row = int(np.argmax(room))
            here = min(int(room[row]), n - placed)
            if here <= 0:
                break
            _take(trial, template, row, here)
            placed += here
        return placed

    def _block(
        self,
        demand: Demand,
        template: PodTemplate,
        row: int,
        n: int,
        trial: Trial,
        chosen: Chosen,
        level: Chosen,
    ) -> _Block | None:
        """What the node must give up for n members, as SelectVictimsOnNode: all go, then some are let off."""
        here = {info.uid: info for info in self.victims.on_row[row] if info.uid in level}
        victims = self._rest(self.victims.close({**chosen, **here}), chosen)
        if self._capacity_on(demand, template, self._without(victims, trial), row) < n:
            return None
        for part in self.victims.parts(victims):
            fewer = {uid: info for uid, info in victims.items() if uid not in part}
            fewer = self._rest(self.victims.close({**chosen, **fewer}), chosen)
            if len(fewer) == len(victims):
                continue
            if self._capacity_on(demand, template, self._without(fewer, trial), row) >= n:
                victims = fewer
        return _Block(row, n, victims)

    # -- steps 4 and 5 -----------------------------------------------------------------------------------

    def _let_off(self, chosen: dict[str, PodInfo]) -> dict[str, PodInfo]:
        """Halves of those left are let off together as long as that works, so that many need few tries."""
        todo = [[part for part in self.victims.parts(chosen) if any(uid not in self._free for uid in part)]]
        for _ in range(_MAX_LET_OFF if len(chosen) < len(self._everybody) else 4 * _MAX_LET_OFF):
            if not todo:
                break
            parts = todo.pop()
            if not parts:
                continue
            off = {uid for part in parts for uid in part}
            fewer = self.victims.close({uid: info for uid, info in chosen.items() if uid not in off})
            if len(fewer) < len(chosen) and self._fits(fewer):
                chosen = fewer
            elif len(parts) > 1:
                half = len(parts) // 2
                todo += [parts[half:], parts[:half]]  # the more important half is tried first
        return chosen

    def _improve(self, chosen: dict[str, PodInfo]) -> dict[str, PodInfo]:
        """The cheapest set there is, where there are few enough to try."""
        before = self.victims.cost(chosen)
        pool: dict[frozenset[str], dict[str, PodInfo]] = {}
        for uid, info in self._everybody.items():
            if uid not in self._free and self.victims.level(info) <= before.level:
                atom = self.victims.atom(info)
                pool[frozenset(atom)] = atom
                if len(pool) > _MAX_SETS:
                    return chosen
        cheaper: dict[frozenset[str], tuple[Cost, dict[str, PodInfo]]] = {}
        n_sets = 0
        for n in range(1, len(pool) + 1):
            n_sets += comb(len(pool), n)
            if n_sets > _MAX_SETS:
                break
            for some in combinations(pool.values(), n):
                taken = dict(self._free)
                for atom in some:
                    taken |= atom
                taken = self.victims.close(taken)
                cost = self.victims.cost(taken)
                if cost < before:
                    cheaper[frozenset(taken)] = (cost, taken)
        for _, taken in sorted(cheaper.values(), key=lambda one: one[0])[:_MAX_IMPROVE]:
            if self._fits(taken):
                return taken
        return chosen

    def _without_idle(self, chosen: dict[str, PodInfo]) -> dict[str, PodInfo]:
        """Nobody is waited for, and no reservation is taken, on a node that the unit does not use."""
        plan = self._place(chosen)
        if isinstance(plan, FitError):
            return chosen
        used = {placement.row for placement in plan.placements}
        idle = {uid for uid, info in chosen.items() if uid in self._free and info.row not in used}
        fewer = self.victims.close({uid: info for uid, info in chosen.items() if uid not in idle})
        chosen = fewer if len(fewer) < len(chosen) and self._fits(fewer) else chosen
        for part in [part for part in self.victims.parts(chosen) if all(uid in self._free for uid in part)][
            :_MAX_LET_OFF
        ]:
            fewer = {uid: info for uid, info in chosen.items() if uid not in part}
            if self._fits(fewer):
                chosen = fewer
        return chosen

    # -- words -------------------------------------------------------------------------------------------

    def _helpless(self, error: FitError | None) -> Status:
        """kube-scheduler's sentence about preemption: every node counted under why it is no help."""
        if self.victims.n_binding:
            return Status(Code.PENDING, "pods of lower priority are being bound, who may go once they are")
        if error is not None:
            return Status.unschedulable(f"without all pods of lower priority too, {error.message}")
        n_nodes = self._trial.n_nodes
        n_rows = len(self._rows)
        counts = [
            (n_rows, "No preemption victims found for incoming pod"),
            (n_nodes - n_rows, "Preemption is not helpful for scheduling"),
        ]
        told = ", ".join(f"{n} {why}" for n, why in counts if n)
        return Status.unschedulable(f"0/{n_nodes} nodes are available: {told}.")


def _a_member(cost: Cost, n: int) -> tuple[float, ...]:
    """A block's cost for one of its n members, in the order of costs."""
    return (cost.n_violations / n, cost.highest, cost.total / n, cost.n_pods / n, cost.latest)


def _take(trial: Trial, template: PodTemplate, row: int, n: int) -> None:
    listed = [(r, k) for r, k in template.requests.items() if trial.lists(r)]
    reserve_devices(trial, row, template, listed, n)
    trial.place(row, template, n)
