"""When there is room for a gang, if pods end when expected: a search over the times of these ends.

Pure functions of arrays. `earliest` counts room of one template by resources alone, on nodes that it may use,
so what it says is a first guess: the cycle that places the gang decides (core.groups.claim_plans), and looks
at later moments (`Search`). Slurm and Flux plan like that for each job, here only gangs at their bound are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gangsched.core.types.arrays import BoolArray, IntArray

FloatArray = NDArray[np.float64]

# Moments that are looked at after the first: each costs a cycle.
_MAX_LOOKS = 12


def earliest(
    free: IntArray,
    request: IntArray,
    ok: BoolArray,
    need: int,
    rows: IntArray,
    ends_s: FloatArray,
    amounts: IntArray,
) -> float:
    """When `need` copies of a template fit. -inf: they do now; inf: not even when every pod that ends has
    ended.

    free int64[k, n_rows], below 0 where more is promised than there is; request int64[k], all above 0; ok
    bool[n_rows]: where copies may go. Of each pod that ends: its row, when, and what it holds, int64[k, n].
    Pods that end at the same moment count together.
    """
    if int(copies(free[:, ok], request).sum()) >= need:
        return -math.inf
    known = np.flatnonzero(np.isfinite(ends_s) & ok[rows]) if len(rows) else np.zeros(0, dtype=np.int64)
    left, found = _Ends(rows[known], ends_s[known], amounts[:, known]), math.inf
    # Of rows in which nothing is left to end the copies are counted once: what is looked at halves each time.
    n_settled, free, left = _settled(free, ok, request, left)
    while len(left.rows):
        middle_s = float(np.partition(left.ends_s, len(left.rows) // 2)[len(left.rows) // 2])
        is_early = left.ends_s <= middle_s
        more = freed(free.shape[1], left.rows[is_early], left.amounts[:, is_early])
        if n_settled + int(copies(free + more, request).sum()) >= need:
            found, keep = middle_s, left.ends_s < middle_s
        else:
            free, keep = free + more, ~is_early
        left = _Ends(left.rows[keep], left.ends_s[keep], left.amounts[:, keep])
        n, free, left = _settled(free, np.ones(free.shape[1], dtype=np.bool_), request, left)
        n_settled += n
    return found


class _Ends(NamedTuple):
    """Of each pod: its row, when it ends, and what it holds, int64[k, n]."""

    rows: IntArray
    ends_s: FloatArray
    amounts: IntArray


def _settled(free: IntArray, ok: BoolArray, request: IntArray, left: _Ends) -> tuple[int, IntArray, _Ends]:
    """How many copies fit into the rows where nothing is left to end; the other rows, and what ends there."""
    live: BoolArray = np.zeros(free.shape[1], dtype=np.bool_)
    live[left.rows] = True
    n = int(copies(free[:, ok & ~live], request).sum())
    return n, free[:, live], left._replace(rows=(np.cumsum(live) - 1)[left.rows])


def freed(n_rows: int, rows: IntArray, amounts: IntArray) -> IntArray:
    """int64[k, n_rows]: what becomes free on each row when these pods end. Exact up to 2**53."""
    found: IntArray = np.array(
        [np.bincount(rows, weights=one, minlength=n_rows) for one in amounts], dtype=np.int64
    ).reshape(len(amounts), n_rows)
    return found


def copies(free: IntArray, request: IntArray) -> IntArray:
    """int64[n]: how many copies fit into each column of `free`."""
    if not len(request):
        return np.full(free.shape[1], np.iinfo(np.int32).max, dtype=np.int64)
    fits: IntArray = np.maximum((free // request[:, np.newaxis]).min(axis=0), 0)
    return fits


def moments_from(first_s: float, ends_s: Sequence[float] | FloatArray) -> list[float]:
    """The times at which something ends, from `first_s` on, each once, in order."""
    found = np.unique(np.asarray(ends_s, dtype=np.float64))
    found = found[np.isfinite(found) & (found >= first_s)]
    return [float(one) for one in found]


class Search:
    """Finds the first of some times at which a condition holds, assuming that it holds from then on.

    Tries the first, then ever wider steps until one succeeds, then bisects: `for at in search:
    search.told(yes)`. If the condition comes and goes, a later time than the first may be found. At most 12
    tries.
    """

    def __init__(self, n: int) -> None:
        self._n = n
        self._low, self._high = -1, n
        self._step = 1
        self._at = 0

    def __iter__(self) -> Iterator[int]:
        for _ in range(_MAX_LOOKS):
            if self._high - self._low <= 1:
                return
            if self._high == self._n:
                self._at = min(self._low + self._step, self._n - 1)
                self._step *= 3
            else:
                self._at = (self._low + self._high) // 2
            yield self._at
        if self._high == self._n and self._n:  # the last moment of all, before it is called hopeless
            self._at = self._n - 1
            yield self._at

    def told(self, is_so: bool) -> None:
        """Reports whether the condition holds at the time returned last."""
        if is_so:
            self._high = self._at
        else:
            self._low = self._at
