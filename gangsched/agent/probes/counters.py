"""Turns counters that wrap or reset into rates over sliding windows. Pure: takes values and the time.

Called by `meters`, with the counts of NICs and disks since they came up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

_WRAPS = (2**32, 2**64)
# A wrapped counter was near its end before; a drop from a lower value is a reset.
_NEAR_THE_END = 0.5


def growth(before: int, now: int, most: float) -> int:
    """The increase of a counter that only grows. `most`: the largest possible increase.

    A counter that dropped has wrapped, at 32 or at 64 bits, if that gives a possible increase; else it was
    reset, and its value has been counted since.
    """
    if now >= before:
        return now - before
    for size in _WRAPS:
        if before < size and before >= size * _NEAR_THE_END and size - before + now <= most:
            return size - before + now
    return now if now <= most else 0


class Window:
    """Cumulative sums with their times; k sums are kept together, so that they stay consistent."""

    def __init__(self, n_sums: int, *, keep_s: float) -> None:
        """keep_s: the longest window that will be requested."""
        self._keep_s = keep_s
        self._sums = [0.0] * n_sums
        self._kept: deque[tuple[float, tuple[float, ...]]] = deque()

    @property
    def spans_s(self) -> float:
        """The time between the first and the last sample."""
        return self._kept[-1][0] - self._kept[0][0] if self._kept else 0.0

    def add(self, at_s: float, growths: Sequence[float]) -> None:
        """Add the increase since the last call; for the first call, since zero."""
        if self._kept and at_s <= self._kept[-1][0]:
            return
        self._sums = [total + more for total, more in zip(self._sums, growths, strict=True)]
        self._kept.append((at_s, tuple(self._sums)))
        # Keep one sample older than the window: the rate starts there.
        while len(self._kept) > 2 and self._kept[1][0] <= at_s - self._keep_s:
            self._kept.popleft()

    def rates(self, window_s: float) -> tuple[float, ...] | None:
        """Rates per second over the last `window_s` or as much as is known; None before two samples."""
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
