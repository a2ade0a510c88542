"""PackingScore: how well one more member of a gang would be packed on each node, as one score among others.

Of 100 points a node gets 60 where the gang uses it already, else up to 40 for the share of the members left
that it takes; 30 where the gang uses its rack already, else up to 20 for the share that the rack takes; and
up to 10 for how little it leaves over. Used where packing has a weight; called by core.cycle.placing.
"""

from __future__ import annotations

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
        racks, n_left = self._racks[rows], max(self.n_left, 1)
        taken = np.minimum(room, n_left)
        held = np.minimum(np.bincount(racks, weights=taken, minlength=self._n_racks), n_left)
        over = room - taken
        most = int(over.max(initial=0))
        held *= _RACK / n_left
        by_node = taken * (_NODE / n_left)
        if used:
            held[self._racks[used]] = _RACK_IN_USE
            at = np.searchsorted(rows, used)
            at[at == len(rows)] = 0
            by_node[at[rows[at] == used]] = _NODE_IN_USE
        points: FloatArray = by_node + held[racks]
        points += _TIGHT - over * (_TIGHT / most) if most else _TIGHT
        return points * self._weight
