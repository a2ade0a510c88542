"""Timeline: virtual time as a heap of scheduled calls. No clock is read anywhere in sim.

Everything in a simulation that takes time is a call on this heap; calls of equal times run in the order in
which they were scheduled, so one seed gives one history.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable


class Timeline:
    """Virtual seconds, and the scheduled calls."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._heap: list[tuple[float, int, Callable[[], object]]] = []
        self._serial = 0

    def at(self, when_s: float, call: Callable[[], object]) -> None:
        """Schedules `call`; a time in the past means now."""
        self._serial += 1
        heapq.heappush(self._heap, (when_s if when_s > self.now_s else self.now_s, self._serial, call))

    def after(self, delay_s: float, call: Callable[[], object]) -> None:
        self.at(self.now_s + delay_s, call)

    def next_s(self) -> float:
        """The time of the next call; inf: there is none."""
        return self._heap[0][0] if self._heap else math.inf

    def advance_to(self, when_s: float) -> None:
        """Moves time on and runs the calls that are due meanwhile, also those that they schedule."""
        heap = self._heap
        while heap and heap[0][0] <= when_s:
            at_s, _, call = heapq.heappop(heap)
            self.now_s = at_s
            call()
        if when_s > self.now_s:
            self.now_s = when_s
