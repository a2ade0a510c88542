"""Weighing: each node's total score for a gang's first member, where packing has a weight.

Kept from one gang to the next of the same size and template, as in core.framework.scores.batching and under
the same conditions: only rows that changed since are looked at. Owned by core.framework.profile, called by
core.cycle.placing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gangsched.core.cache.view.nodes import NodeQueries
from gangsched.core.framework.filters.filtering import Filtering
from gangsched.core.framework.filters.row_cache import n_kept
from gangsched.core.framework.interface import FloatArray, IntArray
from gangsched.core.framework.scores.packing_score import (
    most_left_over,
    node_points,
    packing_points,
    rack_points,
    racks_of,
    tightness,
)
from gangsched.core.framework.scores.scoring import Query, Scoring

# Looking at more rows one by one costs more than recomputing all.
_MAX_CHANGED = 64
# After this many changed rows `least` is recomputed, as updates only lower it.
_MAX_CHANGES = 64
_NO_RACKS: IntArray = np.zeros(0, dtype=np.int64)


class Totals:
    """Scores of all rows for the first of n_members, while the gang uses no node.

    rows: those with room, ascending, and perhaps some that have none left; room: how many members each takes,
    int64[n_rows]; scores: of the Score plugins, -inf without room; totals: scores plus packing's points,
    float64[n_rows]; racks: by number, int64[n_rows].
    """

    __slots__ = (
        "_held",
        "_of_rack",
        "capacity",
        "largest",
        "least",
        "mark",
        "most_score",
        "n_changes",
        "n_largest",
        "n_members",
        "n_racks",
        "racks",
        "room",
        "rows",
        "scores",
        "topology_key",
        "totals",
        "weight",
    )

    def __init__(
        self,
        view: NodeQueries,
        rows: IntArray,
        capacity: IntArray,
        weight: int,
        topology_key: str,
        n_members: int,
    ) -> None:
        self.rows = rows
        self.capacity = capacity
        self.weight = weight
        self.topology_key = topology_key
        self.n_members = n_members
        self.mark = view.journal_end
        self.racks, self.n_racks = racks_of(view, topology_key)
        self.room = capacity.copy()
        self.scores: FloatArray = np.where(capacity > 0, 0.0, -np.inf)
        self._of_rack: list[IntArray] | None = None

    def rack_rows(self, rack: int) -> IntArray:
        """Returns the rows of one rack, ascending."""
        if self._of_rack is None:
            order = np.argsort(self.racks, kind="stable")
            ends = np.cumsum(np.bincount(self.racks, minlength=self.n_racks))
            self._of_rack = np.split(order, ends[:-1])
        return self._of_rack[rack]

    def compute(self) -> None:
        """Computes all totals, from room and scores."""
        self._held = self.held(self.room, self.n_members)
        self.totals = self._points_of_all()
        self._note_extremes()

    def _points_of_all(self) -> FloatArray:
        by_rack = rack_points(self._held, self.n_members, _NO_RACKS)
        totals = packing_points(self.weight, self.n_members, self.room, self.racks, by_rack, ())
        totals += self.scores
        return totals

    def held(self, room: IntArray, n_left: int) -> FloatArray:
        """float64[n_racks]: how many of n_left members the nodes of each rack take, together."""
        taken = np.minimum(room, n_left)
        return np.bincount(self.racks, weights=taken, minlength=self.n_racks).astype(np.float64)

    def _note_extremes(self) -> None:
        room = self.room
        self.n_changes = 0
        self.largest: int = int(np.maximum.reduce(room, initial=0))
        self.n_largest = int(np.count_nonzero(room == self.largest))
        self.least = int(room.min(initial=self.largest, where=room > 0))
        self.most_score = float(np.maximum.reduce(self.scores, initial=-np.inf))

    def _note_one(self, before: int, now: int) -> None:
        """Takes in one row's change: `least` stays a bound, and `largest` exact while n_largest is not 0."""
        self.n_largest += (now == self.largest) - (before == self.largest)
        if now > self.largest:
            self.largest, self.n_largest = now, 1
        if now:
            self.least = min(self.least, now)

    def change(self, rows: Sequence[int], scores: FloatArray) -> None:
        """Takes in new room and scores of these rows."""
        n_members, largest = self.n_members, self.largest
        stale: dict[int, None] = {}
        for row, score in zip(rows, scores.tolist(), strict=True):
            rack, before, now = self.racks.item(row), self.room.item(row), self.capacity.item(row)
            held = self._held.item(rack)
            self._held[rack] = now_held = held + min(now, n_members) - min(before, n_members)
            if min(held, n_members) != min(now_held, n_members):
                stale[rack] = None
            self.room[row] = now
            self.scores[row] = score if now else -np.inf
            if now and not before:
                self.rows = np.flatnonzero(self.room > 0)
            self._note_one(before, now)
        self.n_changes += len(rows)
        if not self.n_largest or self.n_changes > _MAX_CHANGES:
            self._note_extremes()
        self.most_score = float(np.maximum.reduce(self.scores))
        if self.largest != largest:
            self.totals = self._points_of_all()
            return
        self._compute_again(np.array(rows))
        for rack in stale:
            self._compute_again(self.rack_rows(rack))

    def _compute_again(self, rows: IntArray) -> None:
        room = self.room[rows]
        if not room.any():
            self.totals[rows] = -np.inf
            return
        taken = np.minimum(room, self.n_members)
        points = node_points(self.n_members, taken)
        points += rack_points(self._held[self.racks[rows]], self.n_members, _NO_RACKS)
        points += tightness(room - taken, most_left_over(self.largest, self.n_members))
        points *= self.weight
        points += self.scores[rows]
        self.totals[rows] = points


class Weighing:
    """One profile's Totals, by template."""

    def __init__(self, filtering: Filtering, scoring: Scoring) -> None:
        self._filtering = filtering
        self._scoring = scoring
        self._kept: dict[int, Totals] = {}

    def totals(
        self, query: Query, capacity: IntArray, weight: int, topology_key: str, n_members: int
    ) -> Totals | None:
        """Returns the totals; None if scores depend on more than the node itself, or there is no room at all.
        capacity: int64[n_rows], by which members are counted."""
        state, template, view = query.state, query.template, query.view
        kept = self._kept.pop(template.serial, None)
        asked = (capacity, weight, topology_key, n_members)
        if kept is not None and not self._still_holds(kept, query, *asked):
            kept = None
        if kept is not None:
            self._kept[template.serial] = kept
            return kept
        rows = np.flatnonzero(capacity > 0)
        if not len(rows) or not self._scoring.goes_by_row:
            return None
        scores, by_row = self._scoring.sums(state, template, view, rows)
        if not by_row and not self._scoring.is_decided_by_rows(state, template, view, rows):
            return None
        totals = Totals(view, rows, *asked)
        if scores is not None:
            totals.scores[rows] = scores
        totals.compute()
        if by_row and self._filtering.is_cached(template, capacity):
            if len(self._kept) > n_kept(8 * view.n_rows):
                self._kept.clear()
            self._kept[template.serial] = totals
        return totals

    def _still_holds(
        self,
        kept: Totals,
        query: Query,
        capacity: IntArray,
        weight: int,
        topology_key: str,
        n_members: int,
    ) -> bool:
        """Brings `kept` up to date; returns whether it answers this query."""
        state, template, view = query.state, query.template, query.view
        same = (kept.weight, kept.topology_key, kept.n_members) == (weight, topology_key, n_members)
        if kept.capacity is not capacity or not same:
            return False
        recent = view.rows_since(kept.mark)
        if recent is None or len(recent) > _MAX_CHANGED:
            return False
        changed = sorted(recent)
        codes, values = view.label(topology_key)
        moved = len(values) + 1 != kept.n_racks
        if moved or any(codes.item(row) + 1 != kept.racks.item(row) for row in changed):
            return False
        if changed:
            rows = np.array(changed)
            scores, is_open = np.zeros(len(rows)), capacity[rows] > 0
            if is_open.any():
                scores[is_open] = self._scoring.by_row(state, template, view, rows[is_open])
            kept.change(changed, scores)
        kept.mark = view.journal_end
        return self._scoring.is_decided_by_rows(state, template, view, kept.rows)
