"""When a measurement is written on the Node: when it has moved, and in any case every so often. Pure.

Called by `running`; one Heartbeat for each annotation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


class Heartbeat:
    """threshold: how far one of the values may move away from what was last written before that is told.

    apart_s: two writes are at least so far apart, so that traffic that jumps does not flood the API server.
    """

    def __init__(self, *, period_s: float, threshold: float, apart_s: float) -> None:
        self._period_s = period_s
        self._threshold = threshold
        self._apart_s = apart_s
        self._written: tuple[float, ...] | None = None
        self._at_s = -math.inf

    def is_due(self, values: Sequence[float], now_s: float) -> bool:
        """Values in the unit of the threshold; other values than before (a NIC more) are always news."""
        if now_s - self._at_s >= self._period_s or self._written is None:
            return True
        if now_s - self._at_s < self._apart_s:
            return False
        if len(values) != len(self._written):
            return True
        pairs = zip(values, self._written, strict=True)
        return any(abs(now - then) > self._threshold for now, then in pairs)

    def written(self, values: Sequence[float], now_s: float) -> None:
        """The Node says so now."""
        self._written = tuple(values)
        self._at_s = now_s
