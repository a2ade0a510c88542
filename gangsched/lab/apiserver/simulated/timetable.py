"""Deadlines in one heap, in simulated seconds.

A key has one deadline; setting it again replaces it. Replaced and cancelled entries are skipped when they
come up, so there is never a search.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable

Action = Callable[[float], None]
"""Called with the current time, which may be later than the deadline."""


class Timetable:
    """Deadlines; ties run in the order in which they were set."""

    __slots__ = ("_due", "_heap", "_n")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Hashable]] = []
        self._due: dict[Hashable, tuple[int, Action]] = {}
        self._n = 0

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._due

    def at(self, when_s: float, key: Hashable, action: Action) -> None:
        """Do `action` at `when_s`, instead of the earlier action of `key`; an infinite time means never."""
        if when_s == float("inf"):
            self.cancel(key)
            return
        self._n += 1
        self._due[key] = (self._n, action)
        heapq.heappush(self._heap, (when_s, self._n, key))
        if len(self._heap) > 4 * len(self._due) + 1000:  # mostly deadlines that were replaced
            self._heap = [each for each in self._heap if self._holds(each)]
            heapq.heapify(self._heap)

    def cancel(self, key: Hashable) -> None:
        self._due.pop(key, None)

    def next_s(self) -> float | None:
        """The earliest deadline, or None."""
        while self._heap and not self._holds(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_s: float) -> Action | None:
        """Removes and returns the earliest action that is due."""
        next_s = self.next_s()
        if next_s is None or next_s > now_s:
            return None
        _, _, key = heapq.heappop(self._heap)
        return self._due.pop(key)[1]

    def _holds(self, entry: tuple[float, int, Hashable]) -> bool:
        held = self._due.get(entry[2])
        return held is not None and held[0] == entry[1]
