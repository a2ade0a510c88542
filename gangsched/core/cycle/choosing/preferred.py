"""Preferences that pods state themselves: which of the fewest nodes, racks and domains a gang takes.

Arithmetic on arrays, as in core.cycle.choosing.packing. `wanted` is each node's score by these preferences
alone, float64, more is better; the score of several nodes is the sum over the members there. Preferences come
after the number of nodes and of racks, and before how tight the fit is. Called by core.cycle.choosing.packing
and core.cycle.domains.domains.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gangsched.core.cache.nodes.table import CodeArray
from gangsched.core.types.arrays import FloatArray, IntArray

# Racks filled in trial to see what they are worth; more than one only where nodes differ in room too.
_MAX_TRIED = 16


class Nodes(NamedTuple):
    """The nodes to choose from, in parallel arrays: their rows, how many members each takes, and its rack, a
    number. Shapes: [n] each."""

    rows: IntArray
    room: IntArray
    rack: CodeArray | IntArray

    def subset(self, at: IntArray) -> Nodes:
        """Those at these positions."""
        return Nodes(self.rows[at], self.room[at], self.rack[at])


def first_enough(order: IntArray, room: IntArray, n_items: int, wanted_room: int) -> IntArray:
    """Returns up to n_items positions of `order`, each as early in it as possible, that have enough room
    together.

    The n_items with the most room must be enough.
    """
    by_room = order[np.argsort(-room[order], kind="stable")][:n_items].tolist()
    is_spare = np.zeros(len(room), dtype=np.bool_)
    is_spare[by_room] = True  # the roomiest of those left, as many as are still to be taken
    slack = int(room[by_room].sum()) - wanted_room
    rooms, at, taken, held = room[order], 0, list[int](), 0
    while held < wanted_room:
        while not is_spare[by_room[-1]]:
            by_room.pop()
        weakest = int(room[by_room[-1]])
        # It takes the place of the weakest; what is too small now stays too small.
        if rooms[at] < weakest - slack:
            at += int((rooms[at:] >= weakest - slack).argmax())
        one = int(order[at])
        if not is_spare[one]:
            slack -= weakest - int(room[one])
            one_less = by_room.pop()
        else:
            one_less = one
        is_spare[one_less] = False
        taken.append(one)
        held += int(room[one])
        at += 1
    return np.array(taken, dtype=np.int64)


def worth(groups: IntArray, room: IntArray, wanted: FloatArray, n_members: IntArray) -> FloatArray:
    """float64[n_groups]: the score of each group's items for its n_members, the best item filled first.
    Shapes: groups int64, room int64 and wanted float64[n_items]; n_members int64[n_groups]."""
    order = np.lexsort((-wanted, groups))
    mine, here = groups[order], room[order]
    starts = np.flatnonzero(np.r_[True, mine[1:] != mine[:-1]][: len(mine)])
    sums = np.cumsum(here) - here
    sums -= np.repeat(sums[starts], np.diff(np.r_[starts, len(mine)]))
    taken = np.clip(n_members[mine] - sums, 0, here)
    return np.bincount(mine, weights=taken * wanted[order], minlength=len(n_members)).astype(np.float64)


def best_of_racks(
    by_room: IntArray, room: IntArray, rack: CodeArray | IntArray, n_nodes: int
) -> tuple[IntArray, IntArray, IntArray]:
    """(positions by rack and then as in `by_room`, where each rack starts, what its best n_nodes hold)."""
    by_rack = by_room[np.argsort(rack[by_room], kind="stable")]
    sorted_racks = rack[by_rack]
    starts = np.flatnonzero(np.r_[True, sorted_racks[1:] != sorted_racks[:-1]])
    place = np.arange(len(by_rack)) - np.repeat(starts, np.diff(np.r_[starts, len(by_rack)]))
    best_of = np.add.reduceat(np.where(place < n_nodes, room[by_rack], 0), starts)
    return by_rack, starts, best_of


def best_racks(
    nodes: Nodes, wanted: FloatArray, by_room: IntArray, fewest: IntArray, n_nodes: int, n_members: int
) -> IntArray:
    """Returns the positions in the racks to choose from: as many racks as `fewest` is in, worth the most.

    by_room: all positions, most room first; fewest: n_nodes of them that hold n_members, in the fewest racks
    known to do so.
    """
    room = nodes.room
    codes, at = np.unique(nodes.rack, return_inverse=True)
    nodes = nodes._replace(rack=at)
    _, _, best_of = best_of_racks(by_room, room, at, n_nodes)
    bounds = worth(at, room, wanted, np.full(len(codes), n_members, dtype=np.int64))
    everything = np.bincount(at, weights=room)
    n_racks = len(np.unique(at[fewest]))
    if n_racks == 1:
        enough = np.flatnonzero(best_of >= n_members)
        ranked = enough[np.lexsort((everything[enough], -bounds[enough]))]
        return np.flatnonzero(at == _best_rack(ranked, bounds, nodes, wanted, n_nodes, n_members))
    held = np.minimum(everything, n_members)
    order = np.lexsort((everything, -best_of, -bounds / held))
    chosen = first_enough(order, best_of, n_racks, n_members)
    mine: IntArray = np.flatnonzero(np.isin(at, chosen))
    if int(np.sort(room[mine])[::-1][:n_nodes].sum()) >= n_members:
        return mine
    return np.flatnonzero(np.isin(at, at[fewest]))


def _best_rack(
    ranked: IntArray, bounds: FloatArray, nodes: Nodes, wanted: FloatArray, n_nodes: int, n_members: int
) -> int:
    """Returns the rack with the highest score of those that suffice alone; `bounds`: upper bounds of the
    scores."""
    room = nodes.room
    best, most = int(ranked[0]), -np.inf
    for one in ranked[:_MAX_TRIED].tolist():
        if bounds[one] <= most:
            break
        mine = np.flatnonzero(nodes.rack == one)
        taken = first_enough(mine[np.lexsort((-room[mine], -wanted[mine]))], room, n_nodes, n_members)
        counts = np.diff(np.minimum(np.r_[0, np.cumsum(room[taken])], n_members))
        own = float((counts * wanted[taken]).sum())
        if own > most:
            best, most = one, own
    return best
