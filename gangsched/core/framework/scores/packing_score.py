"""PackingScore: how well each node packs one more member of a gang, as one score among others.

Of 100 points a node gets 60 where the gang uses it already, else up to 40 for the share of the members left
that it takes; 30 where the gang uses its rack already, else up to 20 for the share that the rack takes; and
up to 10 for how little it leaves over. Used where packing has a weight; called by
core.framework.scores.weighing, core.cycle.choosing.weighed and core.cycle.placing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gangsched.core.cache.view.nodes import NodeQueries
from gangsched.core.types.arrays import FloatArray, IntArray

NODE_IN_USE, NODE = 60.0, 40.0
RACK_IN_USE, RACK = 30.0, 20.0
TIGHT = 10.0


class PackingScore:
    """Packing's points for one Trial's nodes, with a weight."""

    def __init__(self, weight: int, view: NodeQueries, topology_key: str) -> None:
        self._weight = weight
        self._racks, self._n_racks = racks_of(view, topology_key)

    def points(self, room: IntArray, in_use: list[int], n_left: int) -> FloatArray:
        """Returns packing_points of all rows."""
        taken = np.minimum(room, n_left)
        held = np.bincount(self._racks, weights=taken, minlength=self._n_racks).astype(np.float64)
        by_rack = rack_points(held, n_left, self._racks[in_use])
        return packing_points(self._weight, n_left, room, self._racks, by_rack, in_use)


def racks_of(view: NodeQueries, topology_key: str) -> tuple[IntArray, int]:
    """Returns each node's rack as a number, int64[n_rows], and the number of racks.

    Nodes without the label are not racks of one: together they count as one rack, number 0.
    """
    codes, values = view.label(topology_key)
    return codes.astype(np.int64) + 1, len(values) + 1


def packing_points(
    weight: int, n_left: int, room: IntArray, racks: IntArray, rack_points: FloatArray, in_use: Sequence[int]
) -> FloatArray:
    """float64[n], 0 to 100 times the weight, for all nodes that may take a member.

    room: how many more members each takes; n_left: members that are not placed yet; rack_points: see there;
    in_use: positions of nodes that the gang uses.
    """
    taken = np.minimum(room, n_left)
    points = node_points(n_left, taken)
    points[list(in_use)] = NODE_IN_USE
    points += rack_points[racks]
    points += tightness(room - taken, most_left_over(int(np.maximum.reduce(room, initial=0)), n_left))
    points *= weight
    return points


def node_points(n_left: int, taken: IntArray) -> FloatArray:
    """Points of nodes that the gang does not use; taken: members left that each node takes."""
    points: FloatArray = np.multiply(taken, NODE / n_left, dtype=np.float64)
    return points


def rack_points(held: FloatArray, n_left: int, in_use: IntArray) -> FloatArray:
    """Points by rack; held: members left that its nodes take together; in_use: racks that the gang uses."""
    points = np.minimum(held, n_left)
    points *= RACK / n_left
    points[in_use] = RACK_IN_USE
    return points


def tightness(over: IntArray, most: int) -> FloatArray | float:
    """Points for little room left over. over: what a node has left over; most: the largest of all nodes."""
    if not most:
        return TIGHT
    points: FloatArray = np.multiply(over, -TIGHT / most, dtype=np.float64)
    points += TIGHT
    return points


def most_left_over(largest: int, n_left: int) -> int:
    """Returns the most room that a node has left over. largest: the most room of all nodes."""
    return max(0, largest - n_left)
