"""Counters that wrap or reset, as rates over sliding windows. Pure: told values and the time.

Called by `meters`, with what NICs and disks have counted since they came up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

_WRAPS = (2**32, 2**64)
# A wrapped counter was near its end before; one that fell from elsewhere was reset.
_NEAR_THE_END = 0.5


def growth(before: int, now: int, most: float) -> int:
    """How much a counter that only grows has counted. `most`: what it can have at the best.

    One that is smaller than before has wrapped, at 32 or at 64 bits, if that makes a growth that can be; else
    it was reset, and what it shows has been counted since.
    """
    if now >= before:
        return now - before
    for size in _WRAPS:
        if before < size and before >= size * _NEAR_THE_END and size - before + now <= most:
            return size - before + now
    return now if now <= most else 0


class Window:
    """Sums that only grow, with their times; k of them are kept together, so that they belong together."""

    def __init__(self, n_sums: int, *, keep_s: float) -> None:
        """keep_s: the longest window that will be asked for."""
        self._keep_s = keep_s
        self._sums = [0.0] * n_sums
        self._kept: deque[tuple[float, tuple[float, ...]]] = deque()

    @property
    def spans_s(self) -> float:
        """How much time lies between the first and the last sample."""
        return self._kept[-1][0] - self._kept[0][0] if self._kept else 0.0

    def add(self, at_s: float, growths: Sequence[float]) -> None:
        """What was counted since the last call; the first one's is counted from nothing."""
        if self._kept and at_s <= self._kept[-1][0]:
            return
        self._sums = [total + more for total, more in zip(self._sums, growths, strict=True)]
        self._kept.append((at_s, tuple(self._sums)))
        # One sample older than the window stays: the rate goes from there.
        while len(self._kept) > 2 and self._kept[1][0] <= at_s - self._keep_s:
            self._kept.popleft()

    def rates(self, window_s: float) -> tuple[float, ...] | None:
        """A second, over the last `window_s` or as much of it as there is; None before two samples."""
        if len(self._kept) < 2:
            return None
        now_s, sums = self._kept[-1]
        then_s, before = self._kept[0]
        for at_s, earlier in self._kept:
            if at_s > now_s - window_s:
                break
            then_s, before = at_s, earlier
        if then_s >= now_s:
            then_s, before = self._kept[-2]
        return tuple((now - then) / (now_s - then_s) for now, then in zip(sums, before, strict=True))
