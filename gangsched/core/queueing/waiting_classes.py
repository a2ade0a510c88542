"""Classes of refused groups that lack the same, with counters in the order of the line. Called by
core.queueing.bypasses."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import Any

import msgspec
import numpy as np

from gangsched.core.types.arrays import IntArray
from gangsched.core.types.group import Group

Rank = tuple[Any, ...]
Needs = dict[int, frozenset[int]]
"""template serial -> the resource columns that it was refused for."""

_NO_BOUND = 2**62


class Record(msgspec.Struct, eq=False):
    """What is known about a refused group. klass: where it is counted; None: it is not eligible now.
    not_before_s: until then no claim can be made for it, whatever ends, so it is not eligible. not_early_s:
    until then it gets no claim before its bound. yields_until_s: until then it may be bypassed beyond its
    bound, as its claim would keep too much idle. rank: its place in its lane."""

    group: Group
    bound: int
    needs: Needs = {}
    can_fit: bool = True
    not_before_s: float = -math.inf
    not_early_s: float = -math.inf
    yields_until_s: float = -math.inf
    n: int = 0
    claimed_s: float | None = None
    lane: str = ""
    rank: Rank = ()
    klass: WaitingClass | None = None


class WaitingClass:
    """Groups of one lane and priority with the same needs, in the order of the line."""

    __slots__ = ("bounds", "key", "lane", "members", "needs", "passes", "priority", "ranks")

    def __init__(self, key: tuple[object, ...], lane: str, priority: int, needs: Needs) -> None:
        self.key = key
        self.lane = lane
        self.priority = priority
        self.needs = needs
        self.ranks: list[Rank] = []
        self.members: list[Record] = []
        self.passes: IntArray = np.zeros(0, dtype=np.int64)
        self.bounds: IntArray = np.zeros(0, dtype=np.int64)

    def add(self, record: Record) -> None:
        at = bisect_left(self.ranks, record.rank)
        self.ranks.insert(at, record.rank)
        self.members.insert(at, record)
        self.passes = np.insert(self.passes, at, record.n)
        bound = record.bound if record.yields_until_s == -math.inf else _NO_BOUND
        self.bounds = np.insert(self.bounds, at, bound)
        record.klass = self

    def remove(self, record: Record) -> None:
        at = bisect_left(self.ranks, record.rank)
        record.n = int(self.passes[at])
        del self.ranks[at], self.members[at]
        self.passes = np.delete(self.passes, at)
        self.bounds = np.delete(self.bounds, at)
        record.klass = None

    def n_before(self, rank: Rank) -> int:
        """How many of its groups come before that place in its lane."""
        return bisect_left(self.ranks, rank)

    def full_of(self, first: int, n: int) -> int:
        """The index of the first among the `first` groups that n more may not bypass; -1 if there is none."""
        found = np.flatnonzero(self.passes[:first] + n > self.bounds[:first])
        return int(found[0]) if len(found) else -1

    def count_of(self, record: Record) -> int:
        return int(self.passes[bisect_left(self.ranks, record.rank)])
