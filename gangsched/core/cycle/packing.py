"""Packing: how many of n equal members go to which node, when nodes differ only in free capacity.

Arithmetic on one array: fewest nodes, then fewest racks (a configurable label), then the tightest fit, then
the highest score, then the lowest row; nodes that the gang has opened come first. Called by core.cycle.cycle.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gangsched.core.cache.node_table import CodeArray
from gangsched.core.cache.trial import ClusterView
from gangsched.core.framework.interface import BoolArray, CycleState, FloatArray, IntArray
from gangsched.core.framework.profile import Profile
from gangsched.core.types.pod_template import PodTemplate

Lets = Callable[[IntArray], BoolArray]


def pack(
    profile: Profile,
    state: CycleState,
    template: PodTemplate,
    view: ClusterView,
    capacity: IntArray,
    n_members: int,
    used: list[int],
    topology_key: str,
    lets: Lets | None = None,
) -> list[tuple[int, int]]:
    """(row, count) for up to n_members of one template, nodes that the gang uses already first.

    lets: rows that plugins which look at nodes one by one allow, bool[len(rows)]; they are called for all
    nodes only if more than one node is needed.
    """
    if not used and lets is None:
        following = profile.batching.next(state, template, view, capacity, n_members)
        if following is not None:
            return [(following, n_members)]
    chosen: list[tuple[int, int]] = []
    left = n_members
    if used and lets is not None:
        capacity = _let_by(capacity, np.array(used), lets)
    for row in used:
        here = min(int(capacity[row]), left)
        if here:
            chosen.append((row, here))
            left -= here
    if used:
        capacity = capacity.copy()
        capacity[used] = 0
    largest = int(np.maximum.reduce(capacity, initial=0))
    if not left or not largest:
        return chosen
    if largest >= left:
        pick = _tightest(profile, state, template, view, capacity, left, used, topology_key, lets)
        if pick is not None:
            return [*chosen, (pick, left)]
    if lets is not None:
        capacity = _let_by(capacity, np.arange(len(capacity)), lets)
    racks, _ = view.label(topology_key)
    rows = np.flatnonzero(capacity > 0)
    if not len(rows):
        return chosen
    room = np.minimum(capacity[rows], left)
    # Nodes without the label do not form racks of one: together they count as one rack.
    return chosen + _pack_many(profile, state, template, view, rows, room, racks[rows], left)


def _let_by(capacity: IntArray, rows: IntArray, lets: Lets) -> IntArray:
    """`capacity`, with 0 for those of `rows` that are not allowed."""
    rows = rows[capacity[rows] > 0]
    capacity = capacity.copy()
    capacity[rows[~lets(rows)]] = 0
    return capacity


def _tightest(
    profile: Profile,
    state: CycleState,
    template: PodTemplate,
    view: ClusterView,
    capacity: IntArray,
    n_members: int,
    used: list[int],
    topology_key: str,
    lets: Lets | None,
) -> int | None:
    """One node that takes all: in a rack of the gang's, then least room left over, then score, then row."""
    rows = (capacity >= n_members).nonzero()[0]
    if not used and lets is None:
        best = rows[_has_least_room(capacity, rows)]
        return profile.batching.first(state, template, view, capacity, n_members, best)
    if used:
        racks, _ = view.label(topology_key)
        near = rows[np.isin(racks[rows], racks[used])]
        pick = _least_left_over(profile, state, template, view, capacity, near, lets)
        if pick is not None:
            return pick
    return _least_left_over(profile, state, template, view, capacity, rows, lets)


def _least_left_over(
    profile: Profile,
    state: CycleState,
    template: PodTemplate,
    view: ClusterView,
    capacity: IntArray,
    rows: IntArray,
    lets: Lets | None,
) -> int | None:
    if not len(rows):
        return None
    is_least = _has_least_room(capacity, rows)
    pick = profile.best(state, template, view, rows[is_least], lets)
    if pick is not None or lets is None:
        return pick
    others = rows[~is_least]
    return _least_left_over(profile, state, template, view, capacity, others[lets(others)], None)


def _has_least_room(capacity: IntArray, rows: IntArray) -> BoolArray:
    room = capacity[rows]
    is_least: BoolArray = room == np.minimum.reduce(room)
    return is_least


def _pack_many(
    profile: Profile,
    state: CycleState,
    template: PodTemplate,
    view: ClusterView,
    rows: IntArray,
    room: IntArray,
    rack: CodeArray,
    n_members: int,
) -> list[tuple[int, int]]:
    """Several nodes: the fewest possible, from the fewest racks that allow that number (greedy by rack)."""
    by_room = np.argsort(-room, kind="stable")
    total = np.cumsum(room[by_room])
    n_nodes = int(np.searchsorted(total, n_members)) + 1
    one = _one_rack(by_room, room, rack, n_nodes, n_members) if total[-1] > n_members else None
    # Scores decide between nodes of equal capacity; if one rack suffices, between those in it.
    at = np.arange(len(rows)) if one is None else np.flatnonzero(rack == one)
    scores = profile.score(state, template, view, rows, at)
    rows, room, rack = rows[at], room[at], rack[at]
    rank = np.zeros(len(rows)) if scores is None else -scores
    by_room = np.lexsort((rows, rank, -room))
    if total[-1] <= n_members:
        return [(int(rows[i]), int(room[i])) for i in by_room]
    order = _by_rack(by_room, room, rack, n_nodes, n_members) if one is None else by_room[:n_nodes]
    picked: list[tuple[int, int]] = []
    left = n_members
    for i in order[:-1]:
        picked.append((int(rows[i]), int(room[i])))
        left -= int(room[i])
    last = int(order[-1])
    if int(room[last]) > left:
        last = _last_node(order, rows, room, rack, rank, left)
    return [*picked, (int(rows[last]), left)]


def _one_rack(by_room: IntArray, room: IntArray, rack: CodeArray, n_nodes: int, n_members: int) -> int | None:
    """The rack that fits n_members on just n_nodes of its nodes; of several the one with least room."""
    by_rack, starts, best_of = _best_of_racks(by_room, room, rack, n_nodes)
    enough = np.flatnonzero(best_of >= n_members)
    if not len(enough):
        return None
    everything = np.add.reduceat(room[by_rack], starts)
    return int(rack[by_rack[starts[enough[int(np.argmin(everything[enough]))]]]])


def _best_of_racks(
    by_room: IntArray, room: IntArray, rack: CodeArray, n_nodes: int
) -> tuple[IntArray, IntArray, IntArray]:
    """(positions by rack and then as in `by_room`, where each rack starts, what its best n_nodes hold)."""
    by_rack = by_room[np.argsort(rack[by_room], kind="stable")]
    sorted_racks = rack[by_rack]
    starts = np.flatnonzero(np.r_[True, sorted_racks[1:] != sorted_racks[:-1]])
    place = np.arange(len(by_rack)) - np.repeat(starts, np.diff(np.r_[starts, len(by_rack)]))
    best_of = np.add.reduceat(np.where(place < n_nodes, room[by_rack], 0), starts)
    return by_rack, starts, best_of


def _by_rack(by_room: IntArray, room: IntArray, rack: CodeArray, n_nodes: int, n_members: int) -> IntArray:
    """The first n_nodes positions that hold n_members, from as few racks as the greedy order finds.

    Racks are taken by how much their best n_nodes nodes hold, as long as the number of nodes stays the least
    possible; no rack can do it alone.
    """
    by_rack, starts, best_of = _best_of_racks(by_room, room, rack, n_nodes)
    ends = np.r_[starts[1:], len(by_rack)]
    taken: list[int] = []
    missing = n_members
    for one in np.argsort(-best_of, kind="stable"):
        mine = by_rack[starts[one] : ends[one]][: n_nodes - len(taken)]
        for i in mine:
            if missing > 0:
                taken.append(int(i))
                missing -= int(room[i])
        if missing <= 0:
            return np.array(taken, dtype=np.int64)
        if len(taken) >= n_nodes:
            break
    return by_room[:n_nodes]


def _last_node(
    order: IntArray, rows: IntArray, room: IntArray, rack: CodeArray, rank: FloatArray, n_left: int
) -> int:
    """The last node need not be full: the tightest that takes the rest, if possible in used racks."""
    free = np.ones(len(rows), dtype=np.bool_)
    free[order[:-1]] = False
    fits = np.flatnonzero(free & (room >= n_left))
    opened = rack[order]
    far = ~np.isin(rack[fits], opened)
    best = np.lexsort((rows[fits], rank[fits], room[fits], far))
    return int(fits[best[0]])


def fewest(groups: IntArray, amounts: IntArray, wanted: IntArray) -> IntArray:
    """int64[n_groups]: how many of each group's items come to what is wanted of it, the largest first; where
    all do not, one more than there are items at all. Shapes: groups, amounts int64[n_items]; wanted
    int64[n_groups]."""
    counts: IntArray = np.full(len(wanted), len(groups) + 1, dtype=np.int64)
    order = np.lexsort((-amounts, groups))
    mine, sums = groups[order], np.cumsum(amounts[order])
    starts = np.flatnonzero(np.r_[True, mine[1:] != mine[:-1]][: len(mine)])
    n_before = np.repeat(starts, np.diff(np.r_[starts, len(mine)]))
    sums -= np.r_[0, sums][n_before]
    is_enough = sums >= wanted[mine]
    np.minimum.at(counts, mine[is_enough], (np.arange(len(mine)) - n_before + 1)[is_enough])
    return counts
