"""Decides when to write a measurement to the Node: after a large change, and at regular intervals. Pure.

Called by `running`; one Heartbeat for each annotation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


class Heartbeat:
    """threshold: how far a value may move from the last written one before it is written again.

    apart_s: minimum time between two writes, so that fluctuating traffic does not flood the API server.
    """

    def __init__(self, *, period_s: float, threshold: float, apart_s: float) -> None:
        self._period_s = period_s
        self._threshold = threshold
        self._apart_s = apart_s
        self._written: tuple[float, ...] | None = None
        self._at_s = -math.inf

    def is_due(self, values: Sequence[float], now_s: float) -> bool:
        """Values in the threshold's unit; another number of values (a new NIC) always counts."""
        if now_s - self._at_s >= self._period_s or self._written is None:
            return True
        if now_s - self._at_s < self._apart_s:
            return False
        if len(values) != len(self._written):
            return True
        pairs = zip(values, self._written, strict=True)
        return any(abs(now - then) > self._threshold for now, then in pairs)

    def written(self, values: Sequence[float], now_s: float) -> None:
        """Record that the Node has these values now."""
        self._written = tuple(values)
        self._at_s = now_s
