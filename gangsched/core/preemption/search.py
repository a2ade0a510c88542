"""PreemptionSearch: the cheapest pods to evict so that a whole unit of groups fits, or none.

A pure search on Trials, called by plugins.default_preemption. Every candidate set is tested by the very cycle
that will place the unit (DryRun.place), so all Filters apply to it. core.preemption.victims defines which
pods may be evicted, which go together and their cost; core.preemption.victim_trials runs the tests and
accounts for their cost. core.preemption.by_node chooses a lone pod's victims. For gangs:

1. Remove all potential victims: if the unit does not fit then, none is evicted. In large clusters, first only
   on the nodes whose room is cheapest to free (core.preemption.node_costs), then on those of one domain (say
   a rack), as members may have to be near each other or apart, then on ever more.
2. Find the lowest level (sparing disruption budgets first, then by the highest priority taken) at which it
   fits.
3. Node by node, as kube-scheduler: what a node must give up for the next members, sparing the most important
   pods first; repeatedly take the cheapest node for a member, using free room before.
4. From the whole set spare each pod without which the unit still fits, the most important first.
5. If there are few: try every cheaper set too, the cheapest first.

The set is the cheapest if step 5 runs to its end (about a dozen pods of that level), otherwise one from which
no pod can be spared. If members have constraints among themselves and the usual orders of placing them fail,
core.cycle.orders.order_search tries others, here too. As a member may need a potential victim near it, step 1
then also tries smaller sets. Source: KEP-5710.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations, zip_longest
from math import comb

import numpy as np

from gangsched.core.cache.trial import Trial
from gangsched.core.framework.interface import Code, DryRun, PostFilterResult, Status
from gangsched.core.framework.plan import FitError, Plan, SearchOutcome
from gangsched.core.framework.profile import Demand
from gangsched.core.preemption.by_node import GangVictims, PodVictims
from gangsched.core.preemption.costs import Chosen, Cost, DisruptionBudget, Level
from gangsched.core.preemption.node_costs import OnNodes, rank
from gangsched.core.preemption.victim_trials import VictimTrials
from gangsched.core.preemption.victims import Victims, is_free
from gangsched.core.types.arrays import IntArray
from gangsched.core.types.group import PodInfo
from gangsched.core.types.victim_words import LOWER
from gangsched.core.why.evictions import (
    BeingBound,
    EvenWithAllGone,
    NoVictims,
    NoVictimsFound,
    VictimSearchEnded,
)

# Whole cycles that one search may run: to spare pods (fewer when more pods are removed, as each then costs
# more), and to find a cheaper set.
_MAX_LET_OFF = 64
_MIN_LET_OFF = 16
_LET_OFF_PODS = 8192
_MAX_IMPROVE = 100
# Sets that are priced, at a few microseconds each, before the cheapest are tried; and the most pods (or
# gangs) to combine.
_MAX_SETS = 2048
_MAX_POOL = 64
# Nodes that a search begins with: at least, and per member.
_FIRST_NODES = 128
_NODES_A_MEMBER = 4
# The growth factor of their number, and domains tried one by one, the cheapest first, before more nodes are.
_WIDER, _MAX_DOMAINS = 8, 16
# With more pods removed, a search for a placing order costs more than it is worth.
_MAX_SEARCHED = 512
# Smaller sets tried if a member may need a potential victim near it.
_MAX_STAYING = 256
_AFFINITY = "InterPodAffinity"
_NO_NODE = "there is no node with room for it"


BudgetsOf = Callable[[Iterable[PodInfo]], Sequence[DisruptionBudget]]


class PreemptionSearch:
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
        """n_candidates: number of nodes to compare out of n suitable ones."""
        self._unit = unit
        self._n_nodes, self._n_looks = trial.n_nodes, dry_run.n_looks
        self._n_candidates = n_candidates
        self._trials = VictimTrials(unit, trial, dry_run)
        priority = min(demand.group.priority for demand in unit)
        self._is_kept_out = dry_run.lacks is not None
        rows = self._helpful(trial)
        self._n_helpful = len(rows)
        if self._is_kept_out:  # a limit counts pods on any node
            rows = np.flatnonzero(trial.live).tolist()
        self.victims = Victims(
            trial,
            rows if dry_run.may_find(priority) else (),
            priority=priority,
            siblings=dry_run.siblings,
            spared=dry_run.spared,
            going=dry_run.going,
            rule=dry_run.rule,
        )
        self._rule = dry_run.rule
        self._whose = LOWER if dry_run.rule is None else dry_run.rule.whose
        self._everybody: dict[str, PodInfo] = {}
        self._free: dict[str, PodInfo] = {}
        self.victims.set_budgets(budgets_of(self.victims.with_their_gangs()))
        is_lone = len(unit) == 1 and len(unit[0].members) == 1 and not unit[0].group.is_gang
        self._is_on_one_node = is_lone and not self._is_kept_out

    def run(self) -> PostFilterResult | Status:
        """Returns room for the unit, or why none can be made."""
        if not self.victims.on_row:
            return self._helpless(None)
        if self._is_on_one_node:
            return self._for_one()
        if lacks := self._trials.lacks(self.victims.closure({i.uid: i for i in self.victims.all()})):
            return Status.refused(Code.UNSCHEDULABLE, EvenWithAllGone(self._whose, f"{lacks}."))
        found = self._enough()
        if isinstance(found, Status):
            return found
        self._everybody = dict(found)
        level = self._level()
        by_nodes = GangVictims(self._unit, self.victims, self._trials, self._n_candidates)
        chosen = by_nodes.choose(level, self._free)
        if chosen is None and self._rule is not None and len(level) < len(self._everybody):
            chosen = by_nodes.choose(self._everybody, self._free)  # too few of the cheaper pods may go
        if self._is_kept_out:
            chosen = by_nodes.until_let_in(chosen or dict(self._free), level)
        if chosen is None or not self._trials.fits(chosen):
            chosen = self._near(level)
        if len(chosen) == len(level) and self._trials.is_spent:
            return self._ran_out()  # do not evict pods that were not examined
        chosen = self._without_idle(self._improve(self._let_off(chosen)))
        plan = self._trials.place(chosen)
        if isinstance(plan, FitError):
            # A plugin is inconsistent: it accepts with more pods removed and refuses with fewer.
            return Status.refused(Code.UNSCHEDULABLE, NoVictimsFound())
        return self._result(plan, chosen)

    def _for_one(self) -> PostFilterResult | Status:
        [demand] = self._unit
        lone = PodVictims(demand, self.victims, self._trials, self._n_candidates)
        found = lone.choose()
        if found is not None:
            return self._result(*found)
        if lone.ran_out:
            return self._ran_out()
        everybody = {info.uid: info for info in self.victims.all()}
        if self.victims.n_binding or len(everybody) > _MAX_SEARCHED:
            return self._helpless(None, _NO_NODE)
        answer = self._trials.place(self.victims.closure(everybody))
        return self._helpless(answer if isinstance(answer, FitError) else None, _NO_NODE)

    def _result(self, plan: Plan, chosen: Chosen) -> PostFilterResult | Status:
        ordered = [info for part in self.victims.parts(chosen) for info in part.values()]
        if self._rule is not None and (why := self._rule.refuses(ordered)):
            return Status.unschedulable(why)
        cost = self.victims.cost(chosen)
        return PostFilterResult(plan, tuple(ordered), frozenset(self.victims.violating(chosen)), cost.key)

    def _helpful(self, trial: Trial) -> list[int]:
        """Returns nodes where evicting pods may help: their fixed properties admit some member."""
        mask = np.zeros(trial.n_rows, dtype=np.bool_)
        for demand in self._unit:
            for template, _ in demand.by_template().values():
                state = self._trials.state(demand, template, trial)
                if state is not None:
                    own = demand.profile.filtering.feasible(state, template, trial)
                    if state.subset is not None:
                        unknown = [trial.with_unknown(one) for one in template.device_resources]
                        own = own & np.logical_or.reduce([state.subset, *unknown])
                    mask |= own
        rows: list[int] = np.flatnonzero(mask).tolist()
        return rows

    # -- step 1 ------------------------------------------------------------------------------------------

    def _enough(self) -> Chosen | Status:
        """Returns a set of pods whose removal lets the unit fit, or why there is none."""
        answer: FitError | None = None
        on_row = self.victims.on_row
        n_first = max(_FIRST_NODES, _NODES_A_MEMBER * sum(demand.n_needed for demand in self._unit))
        nodes = list(on_row)
        if len(nodes) > n_first:
            ranked = self._ranked()
            if isinstance(ranked, Status):
                return ranked
            nodes = [*dict.fromkeys((*ranked, *on_row))] if self._is_kept_out else ranked
        for rows in _ever_more(nodes, n_first, _domains(self._unit, self._trials)):
            self.victims.on_row = {row: on_row[row] for row in rows}
            everybody = self.victims.closure({info.uid: info for info in self.victims.all()})
            self._everybody = everybody
            self._free = {uid: info for uid, info in everybody.items() if is_free(info)}
            search = self._order_matters() and len(everybody) <= _MAX_SEARCHED
            placed = self._trials.search(everybody) if search else self._trials.place(everybody)
            if isinstance(placed, Plan):
                return everybody
            answer = placed
            if self._trials.is_spent:
                return self._ran_out()
        fewer = self._where_some_stay() if self._may_need_somebody() else None
        return fewer if fewer is not None else self._helpless(answer)

    def _ranked(self) -> list[int] | Status:
        """Returns nodes where some template gets room if all potential victims leave, the cheapest first; or
        why that cannot suffice, if a sum already shows it."""
        room = self._trials.room
        victims = OnNodes(self.victims.on_row, self.victims.guarded, self.victims.last)
        ranked: list[list[int]] = []
        for demand in self._unit:
            templates = demand.by_template()
            for template, _ in templates.values():
                ranking = rank(room, template, victims)
                ranked.append(ranking.rows.tolist())
                if len(templates) == 1 and self._trials.is_local(demand, template):
                    takes = self._trials.capacity(demand, template, room).copy()
                    takes[ranking.rows] = np.maximum(takes[ranking.rows], ranking.room)
                    n = int(np.minimum(takes, demand.n_needed).sum())
                    if n < demand.n_needed and not self.victims.n_binding:
                        what = f"gang {demand.group.key}: {n} of {demand.n_needed} fit."
                        return Status.refused(Code.UNSCHEDULABLE, EvenWithAllGone(self._whose, what))
        found: dict[int, None] = {}
        for some in zip_longest(*ranked):
            found |= dict.fromkeys(row for row in some if row is not None)
        return list(found)

    def _order_matters(self) -> bool:
        """Whether the unit may fit in one placing order and not in another."""
        kinds = [kind for demand in self._unit for kind in demand.by_template().values()]
        return len(kinds) > 1 or any(self._seeing())

    def _may_need_somebody(self) -> bool:
        """Whether a member may fit only beside some pod that is a potential victim."""
        return any(name != _AFFINITY or near for name, near in self._seeing())

    def _seeing(self) -> Iterator[tuple[str, bool]]:
        """Yields plugins whose Filter sees pods, and whether the template wants some near it."""
        for demand in self._unit:
            for template, _ in demand.by_template().values():
                state = self._trials.state(demand, template, self._trials.room)
                affinity = template.spec.affinity
                near = affinity is not None and affinity.pod_affinity is not None
                if state is not None:
                    yield from ((name, near) for name in demand.profile.filtering.names_seeing(state))

    def _where_some_stay(self) -> Chosen | None:
        """Tries smaller sets, the cheapest first."""
        sets = self._sets(None)
        if (found := self._first_that_fits(sets[:_MAX_STAYING])) is not None:
            return found
        self._trials.gave_up |= not sets or len(sets) > _MAX_STAYING or not self._trials.may_refine
        return None

    # -- step 2 ------------------------------------------------------------------------------------------

    def _level(self) -> dict[str, PodInfo]:
        """Returns all potential victims up to the lowest level at which the unit fits."""
        levels: dict[Level, dict[str, PodInfo]] = {}
        for uid, info in self._everybody.items():
            if uid not in self._free:
                levels.setdefault(self.victims.level(info), {})[uid] = info
        ordered = [levels[key] for key in sorted(levels)]

        def up_to(n: int) -> dict[str, PodInfo]:
            taken = dict(self._free)
            for level in ordered[:n]:
                taken |= level
            return self.victims.closure(taken)

        low, high = 0, len(ordered)
        while low < high and not self._trials.is_spent:
            middle = (low + high) // 2
            if self._trials.fits(up_to(middle)):
                high = middle
            else:
                low = middle + 1
        return up_to(high)

    def _near(self, level: dict[str, PodInfo]) -> dict[str, PodInfo]:
        """Keeps those on nodes that the unit would use, or in the same domains, if that suffices."""
        plan = self._trials.place(level)
        if isinstance(plan, FitError):
            return level
        used = np.unique([placement.row for placement in plan.placements])
        here = np.zeros(self._trials.room.n_rows, dtype=np.bool_)
        here[used] = True
        areas = [here]
        for codes in _domains(self._unit, self._trials):
            areas.append(np.isin(codes, codes[used]) & (codes >= 0) | here)
        for area in areas:
            near = {uid: info for uid, info in level.items() if uid in self._free or area[info.row]}
            near = self.victims.closure(near)
            if len(near) < len(level) and self._trials.fits(near):
                return near
        return level

    # -- steps 4 and 5 -----------------------------------------------------------------------------------

    def _let_off(self, chosen: dict[str, PodInfo]) -> dict[str, PodInfo]:
        """Spares pods that cost something, as long as the unit still fits."""
        costly = [part for part in self.victims.parts(chosen) if any(uid not in self._free for uid in part)]
        is_narrow = len(chosen) < len(self._everybody)
        return self._spare(chosen, costly, _n_tries(chosen) if is_narrow else 4 * _MAX_LET_OFF)

    def _spare(
        self, chosen: dict[str, PodInfo], parts: list[dict[str, PodInfo]], n_tries: int
    ) -> dict[str, PodInfo]:
        """Spares halves of the remaining parts together while that works, so that many parts need few
        tries."""
        todo = [parts]
        for _ in range(n_tries):
            if not todo or not self._trials.may_refine:
                break
            parts = todo.pop()
            if not parts:
                continue
            off = {uid for part in parts for uid in part}
            fewer = self.victims.closure({uid: info for uid, info in chosen.items() if uid not in off})
            if len(fewer) < len(chosen) and self._trials.fits(fewer):
                chosen = fewer
            elif len(parts) > 1:
                half = len(parts) // 2
                todo += [parts[half:], parts[:half]]  # the more important half is tried first
        return chosen

    def _improve(self, chosen: dict[str, PodInfo]) -> dict[str, PodInfo]:
        """Returns the cheapest set, if there are few enough to try."""
        cheaper = self._first_that_fits(self._sets(self.victims.cost(chosen))[:_MAX_IMPROVE])
        return chosen if cheaper is None else cheaper

    def _first_that_fits(self, sets: Iterable[tuple[Cost, dict[str, PodInfo]]]) -> dict[str, PodInfo] | None:
        """Returns the first set that fits; None: none does, or none within the budget."""
        for _, taken in sets:
            if not self._trials.may_refine:
                break
            if self.victims.accepts(taken) and self._trials.fits(taken):
                return taken
        return None

    def _sets(self, before: Cost | None) -> list[tuple[Cost, dict[str, PodInfo]]]:
        """Returns closed sets that cost less than `before`, the cheapest first; none if there are too
        many."""
        pool: dict[frozenset[str], dict[str, PodInfo]] = {}
        costly = [info for uid, info in self._everybody.items() if uid not in self._free]
        if before is not None:
            costly = [info for info in costly if self.victims.level(info) <= before.level]
        for atom in self.victims.inseparable_sets(costly):
            pool[frozenset(atom)] = atom
            if len(pool) > _MAX_POOL:
                return []
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
                taken = self.victims.closure(taken)
                cost = self.victims.cost(taken)
                if before is None or cost < before:
                    cheaper[frozenset(taken)] = (cost, taken)
        return sorted(cheaper.values(), key=lambda one: one[0])

    def _without_idle(self, chosen: dict[str, PodInfo]) -> dict[str, PodInfo]:
        """Spares pods, and keeps reservations, on nodes that the unit does not use."""
        plan = self._trials.place(chosen)
        if isinstance(plan, FitError):
            return chosen
        used = {placement.row for placement in plan.placements}
        idle = {uid for uid, info in chosen.items() if uid in self._free and info.row not in used}
        fewer = self.victims.closure({uid: info for uid, info in chosen.items() if uid not in idle})
        chosen = fewer if len(fewer) < len(chosen) and self._trials.fits(fewer) else chosen
        free = [part for part in self.victims.parts(chosen) if all(uid in self._free for uid in part)]
        return self._spare(chosen, free, _n_tries(chosen))

    # -- messages ----------------------------------------------------------------------------------------

    def _helpless(self, answer: FitError | None, otherwise: str = "") -> Status:
        """Says, in kube-scheduler's sentence, why preemption does not help: counts nodes by reason. answer:
        with all potential victims gone; None: that says nothing, and `otherwise` is told."""
        if self.victims.n_binding:
            return Status.refused(Code.PENDING, BeingBound(self._whose))
        why = answer.why if answer is not None else otherwise
        if why:
            is_stated = answer is not None and answer.search is SearchOutcome.GAVE_UP
            may_exist = self._trials.gave_up and not is_stated
            return Status.refused(Code.UNSCHEDULABLE, EvenWithAllGone(self._whose, why, may_exist))
        return Status.refused(Code.UNSCHEDULABLE, NoVictims(self._n_nodes, self._n_helpful))

    def _ran_out(self) -> Status:
        return Status.refused(Code.UNSCHEDULABLE, VictimSearchEnded(self._whose, self._n_looks))


def _ever_more(rows: list[int], n: int, domains: Iterable[IntArray]) -> Iterator[list[int]]:
    """Yields parts of `rows` (cheapest first): n rows, those of one domain, then ever more; all at the
    end."""
    if n < len(rows):
        yield rows[:n]
        yield from _in_one_domain(rows, domains)
        n *= _WIDER
    while n < len(rows):
        yield rows[:n]
        n *= _WIDER
    yield rows


def _in_one_domain(rows: list[int], domains: Iterable[IntArray]) -> Iterator[list[int]]:
    n_yielded = 0
    for codes in domains:
        by_domain: dict[int, list[int]] = {}
        for row in rows:
            by_domain.setdefault(int(codes[row]), []).append(row)
        by_domain.pop(-1, None)
        for some in by_domain.values():
            if len(some) > 1 and n_yielded < _MAX_DOMAINS:
                n_yielded += 1
                yield some


def _domains(unit: Sequence[Demand], trials: VictimTrials) -> Iterator[IntArray]:
    """int64[n_rows] for each label that constraints use: the node's domain, -1: none."""
    keys: dict[str, None] = {}
    room = trials.room
    for demand in unit:
        for template, _ in demand.by_template().values():
            state = trials.state(demand, template, room)
            if state is not None:
                found = demand.profile.filtering.topology_keys(state, template, room)
                keys |= dict.fromkeys(found or ())
    for key in keys:
        yield room.label(key)[0].astype(np.int64)


def _n_tries(chosen: Chosen) -> int:
    """Number of tries: fewer if more pods are removed, as each try then costs more."""
    return max(_MIN_LET_OFF, min(_MAX_LET_OFF, _LET_OFF_PODS // max(len(chosen), 1)))
