"""Order search: tries further orders of placing a gang when the usual ones have failed, until one works.

A way of placing is a sequence of steps: each puts a member on a node that every Filter allows at that point.
The search walks the tree of such sequences depth first. Of two equivalent ways (members of one template
swapped, or nodes that core.cycle.orders.symmetry considers alike) only one is followed. A branch is pruned
when some group cannot place as many more members as it needs, by free resources and by plugins' upper bounds
(at_most). The search ends with a Plan; or when nothing is left, which proves that there is none; or when
`budget` placements beyond one per member have been tried, or as much work is done: a placement asks about
each kind of member again, and costs more the more is placed. No clock: the same input ends at the same place.

When pods see each other the first choice (which rack) matters most, and a depth-first walk revises it last.
So each first choice is tried for a while before any is tried to its end. Called by core.cycle.cycle.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from gangsched.core.cache.trial import Trial
from gangsched.core.cycle.device_allocation import listed_requests, reserve_devices, settle
from gangsched.core.cycle.orders.symmetry import Counts, Symmetry
from gangsched.core.cycle.placing import Placing, pre_filtered
from gangsched.core.cycle.roles import requirements
from gangsched.core.cycle.shared_room import by_room_left, n_at_most
from gangsched.core.framework.interface import CycleState
from gangsched.core.framework.plan import Plan, SearchOutcome
from gangsched.core.framework.profile import Demand
from gangsched.core.types.arrays import IntArray
from gangsched.core.types.group import PodInfo
from gangsched.core.types.needed import templates_of
from gangsched.core.types.templates.pod_template import PodTemplate

# Placements that each first choice may try before the next one's turn, beyond one per member; and the share
# of the budget for this.
_PROBE = 16
_PROBES_SHARE = 0.5
# Placements of a search that must not cost more than the usual orders.
_SHORT = 64
# Looks for each placement of the budget; looks for any search, however small its budget; and the most looks
# added for a walk that places members of one kind. A look asks about one kind, beside few others and with
# little placed, and takes a quarter of a millisecond. All of them together take seconds, also where each of a
# hundred racks is searched.
_LOOKS = 5
_LOOKS_OF_ANY = 64
_LOOKS_OF_A_WALK = 512
_FEW = 64


class _Kind:
    """The members of one template, and of one role that counts, in one group.

    meets: the places in `needed` that one of them counts for.
    """

    __slots__ = ("at", "demand", "meets", "members", "n", "template")

    def __init__(self, at: int, demand: int, template: PodTemplate, meets: tuple[int, ...]) -> None:
        self.at = at
        self.demand = demand
        self.meets = meets
        self.template = template
        self.members: list[PodInfo] = []
        self.n = 0


class _Way:
    """A state with some members placed. left: members of each kind not placed; needed: how many more each
    group, and each of its roles, needs."""

    __slots__ = ("before", "left", "needed", "placed", "step", "trial")

    def __init__(
        self,
        trial: Trial,
        left: Counts,
        needed: Counts,
        placed: Mapping[int, Counts],
        before: _Way | None = None,
        step: tuple[int, int] = (0, -1),
    ) -> None:
        self.trial = trial
        self.left = left
        self.needed = needed
        self.placed = placed
        self.before = before
        self.step = step
        """(kind, row) of the last step."""

    def steps(self) -> list[tuple[int, int]]:
        """(kind, row) of each placement, in order."""
        found = []
        way: _Way | None = self
        while way is not None and way.before is not None:
            found.append(way.step)
            way = way.before
        return found[::-1]


def search_orders(
    demands: Sequence[Demand], trial: Trial, topology_key: str, budget: int
) -> tuple[Plan | SearchOutcome, int]:
    """Places all demands on `trial`, or returns PROVED or GAVE_UP; and the number of placements tried."""
    tree = _Tree(demands, trial, topology_key)
    found = tree.search(budget)
    if isinstance(found, SearchOutcome):
        return found, tree.n_tried
    return _plan(tree, found, trial, topology_key), tree.n_tried


def most_looks(n_members: int, budget: int) -> int:
    """Limit on the looks of a search."""
    walk = n_members * (1 + n_members // _FEW)
    return budget * _LOOKS + _LOOKS_OF_ANY + min(walk, _LOOKS_OF_A_WALK)


def proves_hopeless(demands: Sequence[Demand], trial: Trial, topology_key: str, budget: int) -> int | None:
    """Returns the number of placements after which a short search proves that no order works; None: no proof.

    `search_orders` would end the same, after as many. Only where pods do not see each other and no member
    needs particular devices: there, a placement that any order finds is one that the search would find.
    """
    if any(_requires_devices(demand) for demand in demands):
        return None
    tree = _Tree(demands, trial, topology_key)
    if tree.sees_pods or tree.search(min(budget, _SHORT)) is not SearchOutcome.PROVED:
        return None
    return tree.n_tried


def _requires_devices(demand: Demand) -> bool:
    """Whether a member must get particular devices: which are left then depends on the order."""
    definition = demand.group.definition
    if definition is not None and definition.required_ids:
        return True
    return any(one.constraints or one.required_ids for one in templates_of(demand.members).values())


def _plan(tree: _Tree, way: _Way, trial: Trial, topology_key: str) -> Plan:
    """Repeats the way found, recording a Plan; then places members beyond those needed, if they fit."""
    placings = []
    for demand in tree.demands:
        templates = [kind.template for kind in tree.kinds if tree.demands[kind.demand] is demand]
        states, _, _ = pre_filtered(demand, templates, trial)
        placings.append(Placing(demand, trial, states, topology_key))
    waiting = [iter(kind.members) for kind in tree.kinds]
    for at, row in way.steps():
        kind = tree.kinds[at]
        placings[kind.demand].put(row, kind.template, [next(waiting[at])])
    for kind in tree.kinds:
        rest = list(waiting[kind.at])
        if rest:
            placings[kind.demand].place_batch(kind.template, rest)
    plan = Plan([])
    for placing in placings:
        plan.placements += placing.placements
        key = placing.demand.group.key
        plan.states |= {(key, serial): state for serial, state in placing.states.items()}
    if trial.repacked:
        settle(trial, plan.placements)
    return plan


class _Tree:
    """The problem: what is to be placed, and which nodes are alike."""

    def __init__(self, demands: Sequence[Demand], trial: Trial, topology_key: str) -> None:
        self.demands = demands
        self.n_tried = 0
        """Placements tried so far."""
        self.looks_left = 0
        needed, role_at = requirements(demands)
        self.kinds = _kinds(demands, role_at)
        self._racks = trial.label(topology_key)[0]
        states = [self._state(kind, trial) for kind in self.kinds]
        filterings = [self._demand(kind).profile.filtering for kind in self.kinds]
        self.sees_pods = any(
            state is None or filtering.sees_pods(state)
            for filtering, state in zip(filterings, states, strict=True)
        )
        nowhere = np.zeros(trial.n_rows, dtype=np.int64)
        room = [
            nowhere if state is None else filtering.static_capacity(state, kind.template, trial)
            for kind, filtering, state in zip(self.kinds, filterings, states, strict=True)
        ]
        slack = [int(np.minimum(r, kind.n).sum()) - kind.n for kind, r in zip(self.kinds, room, strict=True)]
        self._order = sorted(range(len(self.kinds)), key=lambda at: (slack[at], at))
        self._turn_of = {at: turn for turn, at in enumerate(self._order)}
        self._states: Mapping[int, CycleState | None] = dict(enumerate(states))
        self._all_needed = all(len(demand.members) == demand.n_needed for demand in demands)
        self._found_room = room
        n_all = tuple(kind.n for kind in self.kinds)
        self._root = _Way(trial.fork(), n_all, tuple(needed), {})

    @cached_property
    def _symmetry(self) -> Symmetry:
        """Computed only once there is a step to take."""
        keys: set[str] | None = set()
        trial = self._root.trial
        for kind in self.kinds:
            filtering, state = self._demand(kind).profile.filtering, self._states[kind.at]
            own = None if state is None else filtering.topology_keys(state, kind.template, trial)
            keys = None if own is None or keys is None else keys | set(own)
        return Symmetry(
            trial,
            [kind.template for kind in self.kinds],
            np.stack(self._found_room),
            None if keys is None else sorted(keys),
            sees_pods=self.sees_pods,
        )

    def _room_of(self, way: _Way, kind: _Kind) -> IntArray | None:
        """Returns the kind's room if no step is taken yet; None: it has to be computed."""
        return self._found_room[kind.at] if way.before is None else None

    def _demand(self, kind: _Kind) -> Demand:
        return self.demands[kind.demand]

    def search(self, budget: int) -> _Way | SearchOutcome:
        if self._are_too_many():
            return SearchOutcome.PROVED
        n_members = sum(kind.n for kind in self.kinds)
        limit = budget + n_members
        self.looks_left = most_looks(n_members, budget)
        seen: set[Hashable] = set()
        done: set[Hashable] = set()
        for step in self._steps(self._root) if self.sees_pods else ():
            if self.n_tried >= limit * _PROBES_SHARE:
                break
            placed, key = self._after(self._root, step)
            self.n_tried += 1
            if key in seen:
                continue
            seen.add(key)
            further = self._go(self._root, step, placed)
            if not any(further.needed):
                return further
            found = self._walk(further, set(), n_members + _PROBE)
            if isinstance(found, _Way):
                return found
            if found is SearchOutcome.PROVED:
                done.add(key)
        return self._walk(self._root, done, limit - self.n_tried)

    def _are_too_many(self) -> bool:
        states = [state for state in self._states.values() if state is not None]
        if len({id(demand.profile) for demand in self.demands}) > 1 or len(states) < len(self.kinds):
            return False
        asked = [(kind.template, kind.n, state) for kind, state in zip(self.kinds, states, strict=True)]
        n_needed = sum(self._root.needed[: len(self.demands)])
        filtering, trial = self.demands[0].profile.filtering, self._root.trial
        return n_at_most(filtering, by_room_left(filtering, asked, trial), trial) < n_needed

    def _walk(self, root: _Way, seen: set[Hashable], limit: int) -> _Way | SearchOutcome:
        """Searches depth first from `root`, on its own stack: gangs are deeper than Python's."""
        limit += self.n_tried
        stack = [(root, self._steps(root))]
        while stack:
            way, steps = stack[-1]
            step = next(steps, None)
            if self.looks_left < 0:
                return SearchOutcome.GAVE_UP
            if step is None:
                stack.pop()
                continue
            if self.n_tried >= limit:
                return SearchOutcome.GAVE_UP
            self.n_tried += 1
            placed, key = self._after(way, step)
            if key in seen:
                continue
            seen.add(key)
            further = self._go(way, step, placed)
            if not any(further.needed):
                return further
            stack.append((further, self._steps(further)))
        return SearchOutcome.PROVED

    def _after(self, way: _Way, step: tuple[int, int]) -> tuple[dict[int, Counts], Hashable]:
        at, row = step
        counts = list(way.placed.get(row, (0,) * len(self.kinds)))
        counts[at] += 1
        placed = {**way.placed, row: tuple(counts)}
        return placed, (self._turn(at), self._symmetry.key(placed))

    def _turn(self, at: int) -> int:
        """Returns the kind's turn. If nothing but resources is used up, kinds are placed one after another,
        as any way can be reordered so; then the turn is part of a way's key."""
        return 0 if self.sees_pods else self._turn_of[at]

    def _go(self, way: _Way, step: tuple[int, int], placed: Mapping[int, Counts]) -> _Way:
        at, row = step
        kind = self.kinds[at]
        trial = way.trial.fork()
        names_devices = self._demand(kind).profile.names_devices
        listed = listed_requests(trial, kind.template) if names_devices else []
        reserve_devices(trial, row, kind.template, listed, 1)
        trial.place(row, kind.template)
        left = tuple(n - (i == at) for i, n in enumerate(way.left))
        needed = tuple(max(n - (i in kind.meets), 0) for i, n in enumerate(way.needed))
        return _Way(trial, left, needed, placed, way, step)

    def _state(self, kind: _Kind, trial: Trial) -> CycleState | None:
        state, status = self._demand(kind).pre_filter(kind.template, trial)
        return state if status.is_success else None

    def _steps(self, way: _Way) -> Iterator[tuple[int, int]]:
        """Yields (kind, row) of possible next steps, the most promising first; none if `way` cannot
        succeed."""
        kinds, states = [self.kinds[at] for at in self._order if way.left[at]], self._states
        if not self.sees_pods:
            turn = self._turn(way.step[0]) if way.before is not None else 0
            kinds = [kind for kind in kinds if self._turn(kind.at) >= turn]
        self.looks_left -= len(kinds) * (1 + (len(kinds) + len(way.placed)) // _FEW)
        if self.looks_left < 0:
            return
        if self.sees_pods:
            states = {kind.at: self._state(kind, way.trial) for kind in kinds}
        if self._is_hopeless(way, kinds, states):
            return
        if not self.sees_pods and self._all_needed:
            kinds = kinds[:1]
        for kind in kinds:
            state = states[kind.at]
            if state is None:
                continue
            filtering, known = self._demand(kind).profile.filtering, self._room_of(way, kind)
            room = filtering.capacity(state, kind.template, way.trial, ceiling=known)
            for row in self._rows(way, kind, room):
                yield kind.at, row

    def _is_hopeless(
        self, way: _Way, kinds: Sequence[_Kind], states: Mapping[int, CycleState | None]
    ) -> bool:
        most = [0] * len(way.needed)
        for kind in kinds:
            state, n_left = states[kind.at], way.left[kind.at]
            if state is not None:
                others = [other.template for other in kinds if other is not kind]
                filtering = self._demand(kind).profile.filtering
                known = self._room_of(way, kind)
                n_left = filtering.at_most(state, kind.template, way.trial, others, n_left, known)
            for i in kind.meets:
                most[i] += n_left
        return any(n < needed for n, needed in zip(most, way.needed, strict=True))

    def _rows(self, way: _Way, kind: _Kind, room: IntArray) -> list[int]:
        """Orders nodes: those in use first, then the tightest that takes all, else the roomiest; racks
        alternate when pods see each other."""
        rows = self._symmetry.representatives(np.flatnonzero(room > 0), way.placed)
        here = room[rows]
        takes_all = here >= way.left[kind.at]
        is_new = np.array([row not in way.placed for row in rows.tolist()], dtype=np.bool_)
        order = np.lexsort((rows, np.where(takes_all, here, -here), ~takes_all, is_new))
        rows = rows[order]
        if not self.sees_pods:
            return [int(row) for row in rows]
        seen: dict[int, int] = {}
        ranked = []
        for place, row in enumerate(rows.tolist()):
            rack = int(self._racks[row])
            nth = seen[rack] = seen.get(rack, -1) + 1
            ranked.append((row not in way.placed, nth, place, row))
        return [row for _, _, _, row in sorted(ranked)]


def _kinds(demands: Sequence[Demand], role_at: Mapping[tuple[int, str], int]) -> list[_Kind]:
    kinds: dict[tuple[int, int, str], _Kind] = {}
    for which, demand in enumerate(demands):
        for info in demand.members:
            role = info.role if info.role in demand.roles else ""
            key = which, info.template.serial, role
            kind = kinds.get(key)
            if kind is None:
                meets = (which, role_at[which, role]) if role else (which,)
                kind = kinds[key] = _Kind(len(kinds), which, info.template, meets)
            kind.members.append(info)
            kind.n += 1
    return list(kinds.values())
