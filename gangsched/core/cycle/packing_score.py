"""PackingScore: how well one more member of a gang would be packed on each node, as one score among others.

Of 100 points a node gets 60 where the gang uses it already, else up to 40 for the share of the members left
that it takes; 30 where the gang uses its rack already, else up to 20 for the share that the rack takes; and
up to 10 for how little it leaves over. Used where packing has a weight; called by core.cycle.placing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gangsched.core.cache.trial import Trial
from gangsched.core.types.arrays import FloatArray, IntArray

_NODE_IN_USE, _NODE = 60.0, 40.0
_RACK_IN_USE, _RACK = 30.0, 20.0
_TIGHT = 10.0


class PackingScore:
    """Weighted, for one template's members on one Trial. n_left: members that are not placed yet."""

    def __init__(self, weight: int, trial: Trial, topology_key: str, n_left: int) -> None:
        self._weight = weight
        codes, values = trial.label(topology_key)
        # Nodes without the label do not form racks of one: together they count as one rack.
        self._racks = codes.astype(np.int64) + 1
        self._n_racks = len(values) + 1
        self.n_left = n_left

    def of(self, rows: IntArray, room: IntArray, used: list[int]) -> FloatArray:
        """float64[len(rows)], 0 to 100 times the weight. room: how many more members each row takes."""
        if not self._weight:
            return np.zeros(len(rows))
        racks = self._racks[rows]
        taken = np.minimum(room, self.n_left)
        held = np.bincount(racks, weights=taken, minlength=self._n_racks).astype(np.float64)
        return self.points(rows, racks, room, taken, held, used)

    def racks_of(self, rows: IntArray) -> tuple[IntArray, int]:
        """The rack of each row, by number, and how many numbers there are."""
        return self._racks[rows], self._n_racks

    def points(
        self,
        rows: IntArray,
        racks: IntArray,
        room: IntArray,
        taken: IntArray,
        held: FloatArray,
        used: list[int],
    ) -> FloatArray:
        """As `of`. taken: members left that each row takes; held: the sum of it by rack."""
        if not self._weight:
            return np.zeros(len(rows))
        by_rack = np.minimum(held, self.n_left).astype(np.float64)
        by_rack *= _RACK / self.n_left
        points: FloatArray = np.multiply(taken, _NODE / self.n_left, dtype=np.float64)
        if used:
            by_rack[self._racks[used]] = _RACK_IN_USE
            at = np.searchsorted(rows, used)
            at[at == len(rows)] = 0
            points[at[rows[at] == used]] = _NODE_IN_USE
        points += by_rack[racks]
        over = room - taken
        most = int(over.max(initial=0))
        points += _TIGHT - over * (_TIGHT / most) if most else _TIGHT
        points *= self._weight
        return points


class WeighedRows:
    """The nodes that may take members, while those are placed: for scores that depend on a node alone.

    Shapes: rows, room int64[n]; scores float64[n]. Ties: the lowest row, as everywhere.
    """

    def __init__(self, packing: PackingScore, rows: IntArray, room: IntArray, scores: FloatArray) -> None:
        self._packing = packing
        self._racks, self._n_racks = packing.racks_of(rows)
        self.rows = rows
        self.room = room
        self.scores = scores
        self._most = int(room.max(initial=0))
        self._unknown: int | None = None
        self._taken = np.minimum(room, packing.n_left)
        self._held = np.bincount(self._racks, weights=self._taken, minlength=self._n_racks).astype(np.float64)

    def best(self, used: list[int], score_of: Callable[[int], float]) -> int | None:
        """The position of the node for one more member; None: none has room.

        score_of: of the node at a position, as it is now. No score is below 0, so the node that took the last
        member is asked for its own only where it would not win without any.
        """
        packing, taken = self._packing, self._taken
        if packing.n_left < self._most:
            np.minimum(self.room, packing.n_left, out=taken)
            self._held = np.bincount(self._racks, weights=taken, minlength=self._n_racks).astype(np.float64)
        totals = packing.points(self.rows, self._racks, self.room, taken, self._held, used)
        totals += self.scores
        at, last = int(totals.argmax()), self._unknown
        if last is not None and at != last:
            self.scores[last] = score = score_of(last)
            totals[last] += score
            at, self._unknown = int(totals.argmax()), None
        return at if self.room[at] else None

    def took(self, at: int) -> None:
        """A member was placed there."""
        self.room[at] -= 1
        if self._taken[at] > self.room[at]:
            self._taken[at] -= 1
            self._held[self._racks[at]] -= 1
        self.scores[at] = 0.0 if self.room[at] else -np.inf
        self._unknown = at if self.room[at] else None
