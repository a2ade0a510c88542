"""What is kept and bounded where packing has a weight: always what computing everything again comes to."""

from __future__ import annotations

from random import Random
from typing import cast

import numpy as np
import pytest

from gangsched.core.cache.trial import ClusterView
from gangsched.core.cycle.choosing.weighed import Reserving, WeighedNodes
from gangsched.core.framework.scores.packing_score import PackingScore
from gangsched.core.framework.scores.weighing import Totals
from gangsched.core.types.arrays import FloatArray, IntArray


class _View:
    """As much of a ClusterView as is asked for: racks, by code, -1 without one."""

    journal_end = 0

    def __init__(self, codes: list[int]) -> None:
        self._codes = np.array(codes, dtype=np.int32)

    def label(self, key: str) -> tuple[np.ndarray[tuple[int], np.dtype[np.int32]], dict[str, int]]:
        return self._codes, {f"r{i}": i for i in range(int(self._codes.max(initial=-1)) + 1)}


def _cluster(rng: Random) -> tuple[_View, IntArray]:
    n = rng.randint(1, 30)
    n_racks = rng.randint(1, max(1, n // 2))
    view = _View([rng.randrange(-1, n_racks) for _ in range(n)])
    return view, np.array([rng.choice((0, 1, 2, 4, 4, 4, 8)) for _ in range(n)], dtype=np.int64)


def _totals(view: _View, capacity: IntArray, weight: int, n_members: int, scores: FloatArray) -> Totals:
    rows = np.flatnonzero(capacity > 0)
    totals = Totals(cast(ClusterView, view), rows, capacity, weight, "rack", n_members)
    totals.scores[rows] = scores[rows]
    totals.compute()
    return totals


@pytest.mark.parametrize("block", range(4))
def test_totals_after_changes_are_those_computed_again(block: int) -> None:
    for seed in range(block * 100, block * 100 + 100):
        rng = Random(seed)
        view, capacity = _cluster(rng)
        if not capacity.any():
            continue
        weight, n_members = rng.choice((0, 1, 3, 50)), rng.randint(1, 12)
        scores = np.array([float(rng.randint(0, 40)) for _ in capacity])
        kept = _totals(view, capacity, weight, n_members, scores)
        for _ in range(20):
            rows = sorted(rng.sample(range(len(capacity)), rng.randint(1, min(3, len(capacity)))))
            for row in rows:
                capacity[row] = rng.choice((0, 0, 1, 2, 4, 8))
                scores[row] = rng.randint(0, 40)
            kept.change(rows, scores[rows])
            again = _totals(view, capacity, weight, n_members, scores)
            assert np.array_equal(kept.totals, again.totals), f"seed {seed}"
            assert kept.largest == again.largest, f"seed {seed}"
            assert kept.n_largest == again.n_largest, f"seed {seed}"
            assert kept.least <= again.least, f"seed {seed}"
            assert kept.most_score >= again.most_score, f"seed {seed}"
            assert set(np.flatnonzero(capacity > 0)) <= set(kept.rows.tolist()), f"seed {seed}"


class _Filled:
    """Stands for the Trial. by_fill: scores of each node with 0, 1, ... members there."""

    def __init__(self, by_fill: FloatArray, *, tells: bool) -> None:
        self.by_fill = by_fill
        self.here = np.zeros(len(by_fill), dtype=np.int64)
        self.taken: list[int] = []
        self.n_together = 0
        self.reserving = Reserving(self._put, self._score_of, self._scores_of if tells else lambda *_: None)

    def _put(self, row: int, n: int) -> None:
        self.n_together += n > 1
        self.here[row] += n
        self.taken += [row] * n

    def _score_of(self, row: int) -> float:
        return float(self.by_fill[row, self.here[row]])

    def _scores_of(self, row: int, n: int) -> FloatArray:
        return self.by_fill[row, self.here[row] : self.here[row] + n]


@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize("block", range(4))
def test_each_member_goes_where_the_sum_of_all_is_highest(block: int, tells: bool) -> None:
    n_together = 0
    for seed in range(block * 300, block * 300 + 300):
        rng = Random(seed)
        view, room = _cluster(rng)
        weight, n_members = rng.choice((0, 1, 1, 2, 3, 10)), rng.randint(1, 12)
        most = rng.choice((1, 5, 30, 100))
        by_fill = np.array([[float(rng.randint(0, most)) for _ in range(9)] for _ in room])
        filled = _Filled(by_fill, tells=tells)
        in_use = rng.sample(range(len(room)), rng.randint(1, len(room))) if rng.random() < 0.3 else []
        base = _totals(view, room, weight, n_members, by_fill[:, 0])
        n_placed = WeighedNodes(base, in_use, filled.reserving).place()
        expected = _computing_all(view, room.copy(), weight, n_members, by_fill, in_use)
        assert filled.taken == expected, f"seed {seed}"
        assert n_placed == len(expected), f"seed {seed}"
        n_together += filled.n_together
    assert n_together > 50


def _computing_all(
    view: _View, room: IntArray, weight: int, n_members: int, by_fill: FloatArray, in_use: list[int]
) -> list[int]:
    packing, chosen = PackingScore(weight, cast(ClusterView, view), "rack"), list[int]()
    for n_left in range(n_members, 0, -1):
        now = np.array([by_fill[row, min(chosen.count(row), 8)] for row in range(len(room))])
        sums = np.where(room > 0, packing.points(room, in_use, n_left) + now, -np.inf)
        best = int(sums.argmax())
        if not room[best]:
            break
        chosen.append(best)
        room[best] -= 1
        if best not in in_use:
            in_use.append(best)
    return chosen
