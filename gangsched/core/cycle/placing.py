"""Placing: one group's members on one Trial, template by template; records where each goes.

Three ways. Equal members of a gang are packed together when nodes differ only in free capacity. If a Filter
sees pods (affinity to a sibling, spread over racks), they are placed one at a time in the order that packing
gives, and the Filter runs again after each. If the template prefers to be apart from its siblings, or packing
is one score among others, members are placed one at a time, each on the node with the highest score; so is a
lone pod. Called by core.cycle.cycle and core.cycle.orders.order_search.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from gangsched.core.cache.trial import Trial
from gangsched.core.cycle.choosing.packing import Batch, pack
from gangsched.core.cycle.choosing.weighed import Reserving, WeighedNodes
from gangsched.core.cycle.device_allocation import listed_requests, reserve_devices
from gangsched.core.framework.interface import SUCCESS, BoolArray, CycleState, FloatArray, IntArray, Status
from gangsched.core.framework.profile import Demand
from gangsched.core.framework.scores.packing_score import PackingScore
from gangsched.core.framework.scores.scoring import Query
from gangsched.core.types.group import PodInfo
from gangsched.core.types.needed import templates_of
from gangsched.core.types.placement import Placement
from gangsched.core.types.templates.pod_template import PodTemplate

# Nodes checked at once, at first, for whether they take the member.
_FIRST_LOOK = 16


class Placing:
    """`states` by template serial: from PreFilter on `trial` as it is now."""

    def __init__(
        self, demand: Demand, trial: Trial, states: Mapping[int, CycleState], topology_key: str
    ) -> None:
        self.demand = demand
        self.trial = trial
        self.placements: list[Placement] = []
        self.used: list[int] = []
        self._is_used: set[int] = set()
        self.refused = SUCCESS
        """PreFilter's "no" to the last template, after siblings were placed."""
        self._profile = demand.profile
        self._topology_key = topology_key
        self.states = dict(states)
        if self._profile.follows:
            self.states = {serial: state.fork() for serial, state in states.items()}

    def place_batch(self, template: PodTemplate, members: Sequence[PodInfo]) -> int:
        """Places as many equal members as fit; returns their number."""
        demand, profile = self.demand, self._profile
        state = self._state_of(template)
        if not self.refused.is_success:
            return 0
        is_gang = demand.group.is_gang or len(demand.members) > 1
        alike = len(members) == len(demand.members)
        siblings = [template] if alike else [info.template for info in demand.members]
        weight = demand.packing_weight
        if is_gang and (weight is not None or profile.scoring.spreads(template, siblings)):
            return self._each_by_score(template, members, state)
        if is_gang and profile.filtering.sees_pods(state):
            return self._one_by_one(template, members, state)
        if is_gang:
            room = profile.capacity(state, template, self.trial, looks=False)
            n_least = demand.n_needed - len(demand.members) + len(members)
            chosen = self.packed(template, state, room, len(members), n_least=n_least)
        else:
            room = profile.capacity(state, template, self.trial)
            best = self._best_scored(template, state, room, lone=True)
            chosen = [] if best is None else [(best, 1)]
        n_placed = 0
        for row, count in chosen:
            self.put(row, template, members[n_placed : n_placed + count])
            n_placed += count
        return n_placed

    def put(self, row: int, template: PodTemplate, infos: Sequence[PodInfo]) -> None:
        """Reserves a node, and devices, for some equal members."""
        trial = self.trial
        listed = listed_requests(trial, template) if self._profile.names_devices else []
        allocations = reserve_devices(trial, row, template, listed, len(infos))
        own = zip(infos, allocations, strict=True)
        self.placements += [Placement(info, row, allocation) for info, allocation in own]
        trial.place(row, template, len(infos))
        if row not in self._is_used:
            self._is_used.add(row)
            self.used.append(row)
        if self._profile.follows:
            for state, other in self._followers():
                for _ in infos:
                    self._profile.tell_placed(state, other, template, row, trial)

    def _followers(self) -> list[tuple[CycleState, PodTemplate]]:
        templates = templates_of(self.demand.members)
        return [(self.states[serial], template) for serial, template in templates.items()]

    def _state_of(self, template: PodTemplate) -> CycleState:
        """Returns PreFilter's result, run again if siblings were placed: they may carry terms it has not
        seen."""
        if self.placements and self._profile.filtering.depends_on_placed:
            self.states[template.serial], self.refused = self.demand.pre_filter(template, self.trial)
        return self.states[template.serial]

    def packed(
        self, template: PodTemplate, state: CycleState, room: IntArray, n_members: int, *, n_least: int = 0
    ) -> list[tuple[int, int]]:
        """(node, how many) for members that may share nodes as capacity allows; `room`: capacity without the
        plugins that look at nodes one by one."""
        profile, trial = self._profile, self.trial
        room = profile.scoring.preferred_room(state, template, trial, room, n_members)
        lets = None
        if profile.filtering.has_node_plugins(state):
            lets = partial(profile.filtering.allowed_one_by_one, state, template, trial)
        batch = Batch(state, template, trial, profile, self._topology_key, lets)
        return pack(batch, room, n_members, self.used, n_least=n_least)

    def _best_scored(
        self,
        template: PodTemplate,
        state: CycleState,
        room: IntArray,
        *,
        lone: bool,
        points: FloatArray | None = None,
    ) -> int | None:
        rows = np.flatnonzero(room > 0)
        if not len(rows):
            return None
        if lone and self.demand.early_stop is not None:
            rows = self.demand.early_stop.narrow(rows, self.trial.n_nodes, self.trial.n_rows)
        scores = self._profile.score(state, template, self.trial, rows)
        if points is not None:
            scores = points[rows] if scores is None else scores + points[rows]
        best = rows if scores is None else rows[scores == scores.max()]
        return int(best[self.demand.pick(len(best)) if lone and len(best) > 1 else 0])

    def _one_by_one(self, template: PodTemplate, members: Sequence[PodInfo], state: CycleState) -> int:
        """Places members in the order that packing gives; Filters run again after each."""
        filtering, trial = self._profile.filtering, self.trial
        room = self._profile.capacity(state, template, trial, looks=False)
        order = _Order(self, template, state, room, len(members))
        left = filtering.static_capacity(state, template, trial).copy()
        has_room = left > 0
        for n_placed, info in enumerate(members):
            open_to = filtering.open_to(state, template, trial)
            row = order.next(has_room if open_to is None else has_room & open_to)
            if row is None:
                return n_placed
            self.put(row, template, [info])
            self._count_down(left, template, state, row)
            has_room[row] = left[row] > 0
        return len(members)

    def _each_by_score(self, template: PodTemplate, members: Sequence[PodInfo], state: CycleState) -> int:
        """Places each member on the highest score, recomputed after each; packing counts if it has a
        weight."""
        filtering, trial = self._profile.filtering, self.trial
        room = self._profile.capacity(state, template, trial)
        is_local = filtering.is_local(state)
        weight, packing = self.demand.packing_weight, None
        if weight is not None:
            if is_local and not filtering.has_node_plugins(state):
                n_placed = self._each_weighed(template, members, state, room, weight)
                if n_placed is not None:
                    return n_placed
            packing = PackingScore(weight, trial, self._topology_key)
        # The known capacity of each node, counted down from here on as members are placed.
        left = (room if is_local else filtering.static_capacity(state, template, trial)).copy()
        for n_placed, info in enumerate(members):
            points = None if packing is None else packing.points(room, self.used, len(members) - n_placed)
            row = self._best_scored(template, state, room, lone=False, points=points)
            if row is None:
                return n_placed
            self.put(row, template, [info])
            self._count_down(left, template, state, row)
            if is_local:
                left[row] *= filtering.allowed_on(state, template, trial, row)
                room = left
            else:
                room = filtering.capacity(state, template, trial, ceiling=left)
        return len(members)

    def _each_weighed(
        self,
        template: PodTemplate,
        members: Sequence[PodInfo],
        state: CycleState,
        room: IntArray,
        weight: int,
    ) -> int | None:
        """Does as _each_by_score, computing only what may decide; None, with no member placed, if scores
        depend on more than the node itself."""
        if any(one.affinity_terms for one in templates_of(self.demand.members).values()):
            return None
        profile, trial = self._profile, self.trial
        query = Query(state, template, trial)
        base = profile.weighing.totals(query, room, weight, self._topology_key, len(members))
        if base is None:
            return None
        scoring, left = profile.scoring, deque(members)

        def put(row: int, n: int) -> None:
            self.put(row, template, [left.popleft() for _ in range(n)])

        def score_of(row: int) -> float:
            own = scoring.score(state, template, trial, np.array([row]))
            return 0.0 if own is None else own.item(0)

        def scores_of(row: int, n: int) -> FloatArray | None:
            return scoring.filled(state, template, trial, row, n)

        return WeighedNodes(base, self.used, Reserving(put, score_of, scores_of)).place()

    def _count_down(self, left: IntArray, template: PodTemplate, state: CycleState, row: int) -> None:
        """Decrements a capacity; recomputes it at 0, as it may have been a cautious estimate (for devices
        that were hard to divide)."""
        left[row] -= 1
        if not left[row]:
            left[row] = self._profile.filtering.static_capacity_on(state, template, self.trial, row)


class _Order:
    """The order in which equal members, placed one at a time, fill nodes.

    As they would be packed, as long as that is allowed. Once a node takes fewer than it has room for, the
    limit is something other than resources. Then all nodes are ranked once: first those that take as many as
    that node did, then those that its pods prefer, then the tightest; nodes in use before all others. Plugins
    that look at nodes one by one are called only for the node whose turn it is.
    """

    def __init__(
        self, placing: Placing, template: PodTemplate, state: CycleState, room: IntArray, n_members: int
    ) -> None:
        self._placing = placing
        self._template = template
        self._state = state
        self._plan = deque(placing.packed(template, state, room, n_members))
        self._on_node = 0
        self._ranked: IntArray | None = None
        self._looks = placing.demand.profile.filtering.has_node_plugins(state)
        self._used: IntArray = np.zeros(len(placing.used) + n_members, dtype=np.int64)
        self._n_used = 0

    def next(self, allowed: BoolArray) -> int | None:
        """Returns the node for one more member. allowed: by all Filters but plugins that look at single
        nodes."""
        if self._ranked is None:
            while self._plan:
                row, planned = self._plan[0]
                if self._on_node == planned:
                    self._plan.popleft()
                    self._on_node = 0
                elif allowed[row] and self._lets_onto(row):
                    self._on_node += 1
                    return row
                else:
                    break
            self._ranked = self._rank()
        row_in_use = self._first(self._in_use(), allowed)
        return self._first(self._ranked, allowed) if row_in_use is None else row_in_use

    def _lets_onto(self, row: int) -> bool:
        placing = self._placing
        filtering = placing.demand.profile.filtering
        return not self._looks or filtering.allowed_on(self._state, self._template, placing.trial, row)

    def _in_use(self) -> IntArray:
        for row in self._placing.used[self._n_used :]:
            self._used[self._n_used] = row
            self._n_used += 1
        return self._used[: self._n_used]

    def _first(self, rows: IntArray, allowed: BoolArray) -> int | None:
        """Returns the first of `rows` that takes the member."""
        here = allowed[rows]
        if not self._looks:
            at = int(here.argmax()) if len(here) else 0
            return int(rows[at]) if len(here) and here[at] else None
        filtering = self._placing.demand.profile.filtering
        rows, n = rows[here], _FIRST_LOOK
        while len(rows):
            lets = filtering.allowed_one_by_one(self._state, self._template, self._placing.trial, rows[:n])
            if lets.any():
                return int(rows[lets.argmax()])
            rows, n = rows[n:], n * 4
        return None

    def _rank(self) -> IntArray:
        """Ranks every node that may become allowed."""
        placing = self._placing
        profile, trial = placing.demand.profile, placing.trial
        ceiling = profile.filtering.static_capacity(self._state, self._template, trial)
        rows = np.flatnonzero(ceiling > 0)
        scores = profile.score(self._state, self._template, trial, rows) if len(rows) else None
        rank = np.zeros(len(rows)) if scores is None else -scores
        here = ceiling[rows]
        unwanted = np.zeros(len(rows))
        if len(rows) and profile.scoring.has_stated(self._state, self._template, trial):
            wanted = profile.stated(self._state, self._template, trial, rows)
            unwanted = unwanted if wanted is None else -wanted
        keys = (rows, rank, here, unwanted, -np.minimum(here, max(self._on_node, 1)))
        ranked: IntArray = rows[np.lexsort(keys)]
        return ranked


def pre_filtered(
    demand: Demand, templates: Sequence[PodTemplate], trial: Trial
) -> tuple[dict[int, CycleState], PodTemplate | None, Status]:
    """Returns a state for each template after its PreFilter; the first rejected template, and why."""
    states: dict[int, CycleState] = {}
    for template in templates:
        states[template.serial], status = demand.pre_filter(template, trial)
        if not status.is_success:
            return states, template, status
    return states, None, SUCCESS
