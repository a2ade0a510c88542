"""Packing: how many of n equal members go to which node, when nodes differ only in free capacity.

Arithmetic on one array: fewest nodes, then fewest racks (a configurable label), then what the pods themselves
prefer (core.cycle.choosing.preferred), then the tightest fit, then the highest score, then the lowest row;
nodes that the gang has opened come first. Called by core.cycle.placing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gangsched.core.cycle.choosing.preferred import Nodes, best_of_racks, best_racks, first_enough
from gangsched.core.framework.interface import BoolArray, FloatArray, IntArray
from gangsched.core.framework.profile import Profile
from gangsched.core.framework.scores.scoring import Query

_NOBODY: frozenset[str] = frozenset()
_Lets = Callable[[IntArray], BoolArray]


class Batch(Query, frozen=True, gc=False):
    """The members to pack, all of one template: what plugins are asked about them.

    lets: which rows plugins that look at nodes one by one allow, bool[len(rows)]; None: all. It is called for
    all nodes only if more than one node is needed.
    """

    profile: Profile
    topology_key: str
    lets: _Lets | None = None

    def stated(self, rows: IntArray) -> FloatArray | None:
        """Scores the rows by what the pods themselves prefer; None: that does not distinguish them."""
        return self.profile.stated(self.state, self.template, self.view, rows)

    def score(self, rows: IntArray, at: IntArray) -> FloatArray | None:
        """Scores the rows at these positions; None: no plugin has an opinion."""
        return self.profile.score(self.state, self.template, self.view, rows, at)

    def let_by(self, capacity: IntArray, rows: IntArray) -> IntArray:
        """Returns `capacity`, with 0 for those of `rows` that are not allowed."""
        if self.lets is None:
            return capacity
        rows = rows[capacity[rows] > 0]
        capacity = capacity.copy()
        capacity[rows[~self.lets(rows)]] = 0
        return capacity


def pack(
    batch: Batch, capacity: IntArray, n_members: int, used: list[int], *, n_least: int = 0
) -> list[tuple[int, int]]:
    """(row, count) for up to n_members; nodes that the gang uses already come first.

    n_least: with fewer members the gang does not start, so the choice of nodes makes no difference.
    """
    scoring = batch.profile.scoring
    prefers = scoring.has_stated(batch.state, batch.template, batch.view)
    stating = scoring.only_of_nodes(batch.template, batch.view) if prefers else _NOBODY
    if (
        not used
        and batch.lets is None
        and (not prefers or stating or scoring.only_repelled(batch.template, batch.view))
    ):
        following = batch.profile.batching.next(batch, capacity, n_members, prefers=prefers, stating=stating)
        if following is not None:
            return [(following, n_members)]
    chosen: list[tuple[int, int]] = []
    left = n_members
    if used:
        capacity = batch.let_by(capacity, np.array(used))
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
        pick = _tightest(batch, capacity, left, used, prefers=prefers)
        if pick is not None:
            return [*chosen, (pick, left)]
    if batch.lets is not None:
        capacity = batch.let_by(capacity, np.arange(len(capacity)))
    racks, _ = batch.view.label(batch.topology_key)
    rows = np.flatnonzero(capacity > 0)
    if not len(rows):
        return chosen
    room = np.minimum(capacity[rows], left)
    if int(np.add.reduce(room)) < n_least - n_members + left:
        return chosen + list(zip(rows.tolist(), room.tolist(), strict=True))
    # Nodes without the label are not racks of one: together they count as one rack.
    return chosen + _pack_many(batch, Nodes(rows, room, racks[rows]), left, prefers=prefers)


def _tightest(
    batch: Batch, capacity: IntArray, n_members: int, used: list[int], *, prefers: bool
) -> int | None:
    """Returns one node that takes all: in a rack that the gang uses, then by its pods' stated preferences,
    least room left over, score, row."""
    rows = (capacity >= n_members).nonzero()[0]
    pick_from = _most_wanted if prefers else _least_left_over
    if not used and batch.lets is None:
        wanted = batch.stated(rows) if prefers else None
        if wanted is not None:
            rows = rows[wanted == wanted.max()]
        best = rows[_has_least_room(capacity, rows)]
        profile = batch.profile
        stating = profile.scoring.only_of_nodes(batch.template, batch.view) if prefers else _NOBODY
        return profile.batching.first(batch, capacity, n_members, best, stating)
    if used:
        racks, _ = batch.view.label(batch.topology_key)
        near = rows[np.isin(racks[rows], racks[used])]
        pick = pick_from(batch, capacity, near, batch.lets)
        if pick is not None:
            return pick
    return pick_from(batch, capacity, rows, batch.lets)


def _most_wanted(batch: Batch, capacity: IntArray, rows: IntArray, lets: _Lets | None) -> int | None:
    """lets: as the batch's; None: it has been asked about all of the rows."""
    wanted = batch.stated(rows)
    if wanted is None:
        return _least_left_over(batch, capacity, rows, lets)
    is_most = wanted == wanted.max()
    pick = _least_left_over(batch, capacity, rows[is_most], lets)
    if pick is not None or lets is None:
        return pick
    others = rows[~is_most]
    return _most_wanted(batch, capacity, others[lets(others)], None)


def _least_left_over(batch: Batch, capacity: IntArray, rows: IntArray, lets: _Lets | None) -> int | None:
    if not len(rows):
        return None
    is_least = _has_least_room(capacity, rows)
    pick = batch.profile.best(batch.state, batch.template, batch.view, rows[is_least], lets)
    if pick is not None or lets is None:
        return pick
    others = rows[~is_least]
    return _least_left_over(batch, capacity, others[lets(others)], None)


def _has_least_room(capacity: IntArray, rows: IntArray) -> BoolArray:
    room = capacity[rows]
    is_least: BoolArray = room == np.minimum.reduce(room)
    return is_least


def _pack_many(batch: Batch, nodes: Nodes, n_members: int, *, prefers: bool) -> list[tuple[int, int]]:
    """Chooses several nodes: the fewest possible, from the fewest racks that allow that number (greedy by
    rack)."""
    by_room = np.argsort(-nodes.room, kind="stable")
    total = np.cumsum(nodes.room[by_room])
    n_nodes = int(np.searchsorted(total, n_members)) + 1
    wanted = batch.stated(nodes.rows) if prefers and total[-1] > n_members else None
    if wanted is not None:
        is_most = wanted == wanted.max()
        one = _one_rack(by_room[is_most[by_room]], nodes, n_nodes, n_members)
        if one is None:
            return _pack_wanted(batch, nodes, wanted, by_room, n_nodes, n_members)
    elif total[-1] > n_members:
        one = _one_rack(by_room, nodes, n_nodes, n_members)
    else:
        one = None
    # Scores decide between nodes of equal capacity; if one rack suffices, between those in it.
    at = np.arange(len(nodes.rows)) if one is None else np.flatnonzero(nodes.rack == one)
    if wanted is not None:
        at = at[is_most[at]]
    scores = batch.score(nodes.rows, at)
    nodes = nodes.subset(at)
    rows, room, _ = nodes
    rank = np.zeros(len(rows)) if scores is None else -scores
    by_room = np.lexsort((rows, rank, -room))
    if total[-1] <= n_members:
        return [(int(rows[i]), int(room[i])) for i in by_room]
    order = _by_rack(by_room, nodes, n_nodes, n_members) if one is None else by_room[:n_nodes]
    return _filled(order, nodes, rank, n_members)


def _pack_wanted(
    batch: Batch, nodes: Nodes, wanted: FloatArray, by_room: IntArray, n_nodes: int, n_members: int
) -> list[tuple[int, int]]:
    """Does as _pack_many, where no rack has enough of the most preferred nodes."""
    fewest_racks = _by_rack(by_room, nodes, n_nodes, n_members)
    at = best_racks(nodes, wanted, by_room, fewest_racks, n_nodes, n_members)
    scores = batch.score(nodes.rows, at)
    nodes, wanted = nodes.subset(at), wanted[at]
    rows, room, _ = nodes
    rank = np.zeros(len(rows)) if scores is None else -scores
    order = first_enough(np.lexsort((rows, rank, -room, -wanted)), room, n_nodes, n_members)
    return _filled(order, nodes, rank, n_members, wanted)


def _filled(
    order: IntArray, nodes: Nodes, rank: FloatArray, n_members: int, wanted: FloatArray | None = None
) -> list[tuple[int, int]]:
    """(row, count): all positions in `order` are filled but the last."""
    picked: list[tuple[int, int]] = []
    left = n_members
    for i in order[:-1]:
        picked.append((int(nodes.rows[i]), int(nodes.room[i])))
        left -= int(nodes.room[i])
    last = int(order[-1])
    if int(nodes.room[last]) > left:
        last = _last_node(order, nodes, rank, left, wanted)
    return [*picked, (int(nodes.rows[last]), left)]


def _one_rack(by_room: IntArray, nodes: Nodes, n_nodes: int, n_members: int) -> int | None:
    """Returns the rack that fits n_members on just n_nodes of its nodes in `by_room`; of several, the one
    with the least room."""
    by_rack, starts, best_of = best_of_racks(by_room, nodes.room, nodes.rack, n_nodes)
    enough = np.flatnonzero(best_of >= n_members)
    if not len(enough):
        return None
    everything = np.add.reduceat(nodes.room[by_rack], starts)
    return int(nodes.rack[by_rack[starts[enough[int(np.argmin(everything[enough]))]]]])


def _by_rack(by_room: IntArray, nodes: Nodes, n_nodes: int, n_members: int) -> IntArray:
    """Returns the first n_nodes positions that hold n_members, from as few racks as the greedy order finds.

    Racks are taken by how much their best n_nodes nodes hold, as long as the number of nodes stays minimal;
    no rack can hold all alone.
    """
    by_rack, starts, best_of = best_of_racks(by_room, nodes.room, nodes.rack, n_nodes)
    ends = np.r_[starts[1:], len(by_rack)]
    taken: list[int] = []
    missing = n_members
    for one in np.argsort(-best_of, kind="stable"):
        mine = by_rack[starts[one] : ends[one]][: n_nodes - len(taken)]
        for i in mine:
            if missing > 0:
                taken.append(int(i))
                missing -= int(nodes.room[i])
        if missing <= 0:
            return np.array(taken, dtype=np.int64)
        if len(taken) >= n_nodes:
            break
    return by_room[:n_nodes]


def _last_node(
    order: IntArray, nodes: Nodes, rank: FloatArray, n_left: int, wanted: FloatArray | None
) -> int:
    """Chooses the last node, which need not be full: of those that take the rest, the most preferred, then
    the tightest; in a used rack if possible."""
    rows, room, rack = nodes
    free = np.ones(len(rows), dtype=np.bool_)
    free[order[:-1]] = False
    fits = np.flatnonzero(free & (room >= n_left))
    opened = rack[order]
    far = ~np.isin(rack[fits], opened)
    unwanted = np.zeros(len(fits)) if wanted is None else -wanted[fits]
    best = np.lexsort((rows[fits], rank[fits], room[fits], unwanted, far))
    return int(fits[best[0]])


def fewest(groups: IntArray, amounts: IntArray, wanted: IntArray) -> IntArray:
    """int64[n_groups]: how many of each group's items, largest first, reach the amount wanted of it; if they
    do not, more than there are items. Shapes: groups, amounts int64[n_items]; wanted int64[n_groups]."""
    counts: IntArray = np.full(len(wanted), len(groups) + 1, dtype=np.int64)
    order = np.lexsort((-amounts, groups))
    mine, sums = groups[order], np.cumsum(amounts[order])
    starts = np.flatnonzero(np.r_[True, mine[1:] != mine[:-1]][: len(mine)])
    n_before = np.repeat(starts, np.diff(np.r_[starts, len(mine)]))
    sums -= np.r_[0, sums][n_before]
    is_enough = sums >= wanted[mine]
    np.minimum.at(counts, mine[is_enough], (np.arange(len(mine)) - n_before + 1)[is_enough])
    return counts
