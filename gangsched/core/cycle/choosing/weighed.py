"""WeighedNodes: chooses each member's node where packing is one score among others.

Each member goes to the node with the highest sum of packing's points and scores, as if all sums were
recomputed after each. Few are: the sums of nodes that the gang does not use have an upper bound, and mostly
the node that took the last member, or the best in its rack, exceeds it. Called by core.cycle.placing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from gangsched.core.framework.scores.packing_score import (
    NODE,
    NODE_IN_USE,
    RACK,
    RACK_IN_USE,
    TIGHT,
    most_left_over,
    node_points,
    packing_points,
    rack_points,
    tightness,
)
from gangsched.core.framework.scores.weighing import Totals
from gangsched.core.types.arrays import FloatArray, IntArray

# With more nodes in use than this that have room, one pass over all nodes is cheaper.
_FEW_IN_USE = 8
# Scores of a node are computed for up to this many more members at once.
_MAX_AHEAD = 32
# Bounds are rounded differently than sums: if the two are closer than this, the sum is computed.
_ROUNDING = 1e-6


class Reserving(NamedTuple):
    """What the caller does on its Trial.

    put: reserves a node for more members; score_of: a node's score now; scores_of: that score and those with
    1 to n - 1 more members, float64[n], or None if unknown.
    """

    put: Callable[[int, int], None]
    score_of: Callable[[int], float]
    scores_of: Callable[[int, int], FloatArray | None]


class _InUse:
    """A node that the gang uses: has room for `room` more members, and `here` members of this template on it.

    scores: with `n_before` of those there, and with 1, 2, ... more.
    """

    __slots__ = ("here", "n_before", "room", "scores")

    def __init__(self, room: int) -> None:
        self.room = room
        self.here = 0
        self.n_before = 0
        self.scores: FloatArray | None = None


class WeighedNodes:
    """Nodes for one template's members; `base` is shared with other gangs and not changed.

    in_use: nodes that the gang uses already. Ties: the lowest row, as everywhere.
    """

    def __init__(self, base: Totals, in_use: list[int], reserving: Reserving) -> None:
        self._base = base
        self._reserving = reserving
        self._n_left = base.n_members
        self._in_use: dict[int, _InUse] = {}
        self._open: dict[int, None] = {}
        """Those of _in_use that have room."""
        self._racks: dict[int, None] = {}
        self._n_largest = base.n_largest
        """Number of unused nodes that have the largest room."""
        self._run: tuple[int, int] = (-1, 0)
        """The node of the last members, and how many of them are not put there yet."""
        self._near: IntArray | None = None
        self._all: tuple[IntArray, FloatArray] | None = None
        for row in in_use:
            self._begin_use(row)

    def place(self) -> int:
        """Places as many members as there is room for; returns their number."""
        while self._n_left:
            row = self._best()
            if row is None:
                break
            if row not in self._in_use:
                self._begin_use(row)
            last, n = self._run
            if row != last:
                self._put()
                n = 0
            self._run = row, n + 1
            own = self._in_use[row]
            own.room -= 1
            own.here += 1
            self._n_left -= 1
            if not own.room:
                del self._open[row]
            if self._all is not None:
                self._note(row, own)
        self._put()
        return self._base.n_members - self._n_left

    def _begin_use(self, row: int) -> None:
        base = self._base
        room, rack = base.room.item(row), base.racks.item(row)
        self._in_use[row] = _InUse(room)
        if room > 0:
            self._open[row] = None
        self._n_largest -= room == base.largest
        if rack not in self._racks:
            self._racks[rack] = None
            self._near = None
        elif self._near is not None:
            self._near = self._near[self._near != row]

    def _put(self) -> None:
        row, n = self._run
        if n:
            self._reserving.put(row, n)
            self._run = row, 0

    def _best(self) -> int | None:
        """Returns the node for one more member; None: none has room."""
        base = self._base
        if not self._in_use:
            row = int(base.totals.argmax())
            return row if base.room.item(row) else None
        # The bounds are about nodes not in use, at least one of which must have the largest room.
        if base.weight and self._n_largest > 0 and len(self._open) <= _FEW_IN_USE:
            best = self._only_open() if len(self._open) == 1 else None
            best = self._best_by_bounds() if best is None else best
            if best is not None:
                return best
        return self._best_of_all()

    def _only_open(self) -> int | None:
        """Returns the only node in use with room; None: another may have a higher sum."""
        base, n_left = self._base, self._n_left
        (row,) = self._open
        lead = NODE_IN_USE - NODE * min(base.largest, n_left) / n_left
        most = base.largest - n_left
        if most > 0:
            over = max(0, self._in_use[row].room - n_left)
            lead += (max(0, base.least - n_left) - over) * (TIGHT / most)
        lead = base.weight * lead - base.most_score - _ROUNDING * (100 * base.weight + abs(base.most_score))
        # No score is below 0.
        return row if lead > 0 or lead + self._score_in_use(row) > 0 else None

    def _best_by_bounds(self) -> int | None:
        """Returns the best node; None if the bounds do not tell."""
        base, n_left, weight = self._base, self._n_left, self._base.weight
        most = most_left_over(base.largest, n_left)
        # Upper bounds for nodes that are not in use: `near` in the gang's racks, `far` outside of them.
        elsewhere = NODE * min(base.largest, n_left) / n_left + _tightness(max(0, base.least - n_left), most)
        near = weight * (elsewhere + RACK_IN_USE) + base.most_score
        far = weight * (elsewhere + RACK) + base.most_score
        best, worth = None, -np.inf
        for row in sorted(self._open):
            own = self._in_use[row]
            points = NODE_IN_USE + RACK_IN_USE
            points += _tightness(own.room - min(own.room, n_left), most)
            own_worth = points * weight + self._score_in_use(row)
            if own_worth > worth:
                best, worth = row, own_worth
        if best is not None and worth > near + _ROUNDING * abs(near):
            return best
        rows = self._near_rows()
        if len(rows):
            worths = self._worth_near(rows, most)
            at = int(worths.argmax())
            row, own_worth = rows.item(at), worths.item(at)
            if own_worth > worth or (own_worth == worth and best is not None and row < best):
                best, worth = row, own_worth
        return best if best is not None and worth > far + _ROUNDING * abs(far) else None

    def _score_in_use(self, row: int) -> float:
        own = self._in_use[row]
        if own.scores is None or own.here - own.n_before >= len(own.scores):
            last, n_ahead = self._run
            n_ahead = n_ahead if row == last else 0
            n = n_ahead + min(own.room, self._n_left, _MAX_AHEAD)
            own.scores = self._reserving.scores_of(row, n)
            if own.scores is None:
                self._put()
                n_ahead = 0
                own.scores = np.array([self._reserving.score_of(row)])
            own.n_before = own.here - n_ahead
        return own.scores.item(own.here - own.n_before)

    def _near_rows(self) -> IntArray:
        """Returns nodes with room in the gang's racks that the gang does not use."""
        if self._near is None:
            rows = [self._base.rack_rows(rack) for rack in self._racks]
            near = np.sort(np.concatenate(rows)) if len(rows) > 1 else rows[0]
            near = near[self._base.room[near] > 0]
            self._near = near[~np.isin(near, list(self._in_use))]
        return self._near

    def _worth_near(self, rows: IntArray, most: int) -> FloatArray:
        base = self._base
        room = base.room[rows]
        taken = np.minimum(room, self._n_left)
        worths = node_points(self._n_left, taken)
        worths += RACK_IN_USE
        worths += tightness(room - taken, most)
        worths *= base.weight
        worths += base.scores[rows]
        return worths

    def _best_of_all(self) -> int | None:
        base, n_left = self._base, self._n_left
        if self._all is None:
            self._all = base.room.copy(), base.scores.copy()
            for row, own in self._in_use.items():
                self._note(row, own)
        room, scores = self._all
        for row in self._open:
            scores[row] = self._score_in_use(row)
        by_rack = rack_points(base.held(room, n_left), n_left, np.array(list(self._racks), dtype=np.int64))
        worths = packing_points(base.weight, n_left, room, base.racks, by_rack, list(self._in_use))
        worths += scores
        best = int(worths.argmax())
        return best if room.item(best) else None

    def _note(self, row: int, own: _InUse) -> None:
        assert self._all is not None
        room, scores = self._all
        room[row] = own.room
        if not own.room:
            scores[row] = -np.inf


def _tightness(over: int, most: int) -> float:
    # As packing_score.tightness, to the last bit.
    return over * (-TIGHT / most) + TIGHT if most else TIGHT
