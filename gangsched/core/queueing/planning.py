"""When there is room for a gang, if pods end when expected: a search over the times of these ends.

Pure functions of arrays. `earliest` counts room for one template by resources alone, on nodes that it may
use, in one rack if it must be in one, so its result is a first guess. The cycle that places the gang decides
(core.kept.claim_plans), and tries later times (`Search`). Slurm and Flux plan like this for each job; here
only gangs at their bound are planned.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gangsched.core.types.arrays import BoolArray, IntArray

FloatArray = NDArray[np.float64]

# Limit on times tried after the first: each costs a cycle.
MAX_LOOKS = 12
# Up to this many kinds, pods are counted and amounts multiplied; amounts must be small enough for that.
_FEW_KINDS = 8
_LARGE = 2**40


class Amounts(NamedTuple):
    """What some pods hold of k resources: of_kind int64[k, n_kinds], and which kind each pod is of."""

    of_kind: IntArray
    kinds: IntArray

    def subset(self, some: IntArray | slice) -> Amounts:
        """The amounts of some of the pods."""
        return self._replace(kinds=self.kinds[some])

    def joined(self, other: Amounts) -> Amounts:
        """The amounts of these pods and then of the other ones."""
        kinds = np.concatenate((self.kinds, other.kinds + self.of_kind.shape[1]))
        return Amounts(np.concatenate((self.of_kind, other.of_kind), axis=1), kinds)

    def each(self) -> IntArray:
        """int64[k, n]: the amounts of each pod."""
        found: IntArray = self.of_kind[:, self.kinds]
        return found

    def by_row(self, n_rows: int, rows: IntArray) -> IntArray:
        """int64[k, n_rows]: the sums on each row. rows: each pod's. Exact up to 2**53."""
        n_kinds = self.of_kind.shape[1]
        if 0 < n_kinds <= _FEW_KINDS and int(self.of_kind.max(initial=0)) < _LARGE:
            at = self.kinds * n_rows + rows if n_kinds > 1 else rows
            counts = np.bincount(at, minlength=n_kinds * n_rows)
            sums: IntArray = self.of_kind @ counts.reshape(n_kinds, n_rows)
            return sums
        found: IntArray = np.array(
            [np.bincount(rows, weights=own[self.kinds], minlength=n_rows) for own in self.of_kind],
            dtype=np.int64,
        ).reshape(len(self.of_kind), n_rows)
        return found


class Wanted(NamedTuple):
    """How many copies of a template must fit, and where. request int64[k]: of each, all above 0; ok
    bool[n_rows]: where they may go; domains int64[n_rows]: they must be on rows of one domain; None:
    anywhere."""

    request: IntArray
    need: int
    ok: BoolArray
    domains: IntArray | None = None


class Ending(NamedTuple):
    """Pods that end: the row of each, when it ends, and what it holds. Shapes: rows int64[n], ends_s
    float64[n]."""

    rows: IntArray
    ends_s: FloatArray
    amounts: Amounts


def earliest(free: IntArray, wanted: Wanted, ending: Ending, from_s: float = -math.inf) -> float:
    """When these copies of a template fit. -inf: they fit at from_s; inf: they do not even fit when every pod
    that ends has ended.

    free int64[k, n_rows]: below 0 if more is promised than there is. from_s: -inf, or finite. Pods that end
    at the same time count together.
    """
    request, need, ok, domains = wanted
    rows, ends_s, amounts = ending
    n_rows = free.shape[1]
    if domains is None:
        domains = np.zeros(n_rows, dtype=np.int64)
    n_domains = int(domains.max(initial=0)) + 1
    if from_s > -math.inf:
        gone = np.flatnonzero(ends_s <= from_s)
        free = free + amounts.subset(gone).by_row(n_rows, rows[gone])
        ends_s = np.where(ends_s <= from_s, math.inf, ends_s)
    each = free // request[:, np.newaxis]
    now = np.where(ok, np.maximum(each.min(axis=0), 0), 0)
    if in_domains(now, need, domains, n_domains).max() >= need:
        return -math.inf
    known = np.flatnonzero(np.isfinite(ends_s) & ok[rows]) if len(rows) else np.zeros(0, dtype=np.int64)
    more = amounts.subset(known).by_row(n_rows, rows[known])
    last = np.where(ok, copies(free + more, request), 0)
    if in_domains(last, need, domains, n_domains).max() < need:
        return math.inf
    # What is left to search: rows that gain copies, and the resources that limit these.
    gains = last > now
    limits = (each[:, gains] < last[gains]).any(axis=1)
    known = known[gains[rows[known]]]
    known = known[np.argsort(ends_s[known])]
    own = Amounts(amounts.of_kind[limits], amounts.kinds[known])
    left = _Left(free[limits][:, gains], request[limits], need, domains[gains], n_domains)
    left.settle(now[~gains], domains[~gains])
    return left.earliest((np.cumsum(gains) - 1)[rows[known]], ends_s[known], own)


def in_domains(counts: IntArray, need: int, domains: IntArray, n_domains: int) -> IntArray:
    """int64[n_domains]: the sum of counts on the rows of each domain, each counted up to `need`. domains
    int64[n_rows]: below 0 for a row in no domain."""
    is_in = np.flatnonzero(domains >= 0)
    sums = np.bincount(domains[is_in], weights=np.minimum(counts[is_in], need), minlength=n_domains)
    found: IntArray = sums.astype(np.int64)
    return found


class _Left:
    """A bisection over the pods in order of their ends. Rows where none of the remaining pods ends are
    counted once."""

    def __init__(
        self, free: IntArray, request: IntArray, need: int, domains: IntArray, n_domains: int
    ) -> None:
        self._free = free
        self._request = request
        self._need = need
        self._domains = domains
        self._settled: IntArray = np.zeros(n_domains, dtype=np.int64)
        """Copies on settled rows, by domain."""

    def earliest(self, rows: IntArray, ends_s: FloatArray, amounts: Amounts) -> float:
        """When `need` copies fit; they do once all pods have ended."""
        while len(rows) > 1:
            middle = len(rows) // 2
            then = self._free + amounts.subset(slice(middle)).by_row(self._free.shape[1], rows[:middle])
            if self._has_enough(copies(then, self._request)):
                keep = slice(middle)
            else:
                self._free, keep = then, slice(middle, None)
            rows, ends_s, amounts = rows[keep], ends_s[keep], amounts.subset(keep)
            if 2 * len(rows) < self._free.shape[1]:
                rows = self._without_settled(rows)
        return float(ends_s[0])

    def settle(self, counts: IntArray, domains: IntArray) -> None:
        """Counts rows that no longer change."""
        self._settled += self._in_domains(counts, domains)

    def _has_enough(self, counts: IntArray) -> bool:
        found = self._settled + self._in_domains(counts, self._domains)
        return bool(found.max() >= self._need)

    def _in_domains(self, counts: IntArray, domains: IntArray) -> IntArray:
        return in_domains(counts, self._need, domains, len(self._settled))

    def _without_settled(self, rows: IntArray) -> IntArray:
        live: BoolArray = np.zeros(self._free.shape[1], dtype=np.bool_)
        live[rows] = True
        self.settle(copies(self._free[:, ~live], self._request), self._domains[~live])
        self._free, self._domains = self._free[:, live], self._domains[live]
        found: IntArray = (np.cumsum(live) - 1)[rows]
        return found


def copies(free: IntArray, request: IntArray) -> IntArray:
    """int64[n]: how many copies fit into each column of `free`."""
    if not len(request):
        return np.full(free.shape[1], np.iinfo(np.int32).max, dtype=np.int64)
    fits: IntArray = np.maximum((free // request[:, np.newaxis]).min(axis=0), 0)
    return fits


def moments_from(first_s: float, ends_s: Sequence[float] | FloatArray) -> list[float]:
    """The distinct finite end times from `first_s` on, in order."""
    found = np.unique(np.asarray(ends_s, dtype=np.float64))
    found = found[np.isfinite(found) & (found >= first_s)]
    return [float(one) for one in found]


class Search:
    """Finds the first of some times at which a condition holds, assuming that it holds from then on.

    Tries the first, then ever wider steps until one succeeds, then bisects: `for at in search:
    search.report(yes)`. If the condition comes and goes, a later time than the first may be found. Makes at
    most `n_looks` tries, and one more of the last time if none succeeds.
    """

    def __init__(self, n: int, n_looks: int = MAX_LOOKS) -> None:
        self._n, self._n_looks = n, n_looks
        self._low, self._high = -1, n
        self._step = 1
        self._at = 0

    def __iter__(self) -> Iterator[int]:
        for _ in range(self._n_looks):
            if self._high - self._low <= 1:
                return
            if self._high == self._n:
                self._at = min(self._low + self._step, self._n - 1)
                self._step *= 3
            else:
                self._at = (self._low + self._high) // 2
            yield self._at
        if self._high == self._n and self._n:  # try the last time of all before giving up
            self._at = self._n - 1
            yield self._at

    def report(self, is_so: bool) -> None:
        """Reports whether the condition holds at the time returned last."""
        if is_so:
            self._high = self._at
        else:
            self._low = self._at
