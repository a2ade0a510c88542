"""Reads a heap in order without taking anything out."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import TypeVar

EntryT = TypeVar("EntryT")


def in_order(heap: Sequence[EntryT]) -> Iterator[EntryT]:
    """Yields the entries, smallest first; the first k cost O(k log k).

    No two entries may be equal. The heap must not change meanwhile.
    """
    next_ones = [(heap[0], 0)] if heap else []
    while next_ones:
        entry, at = heapq.heappop(next_ones)
        yield entry
        for child in (2 * at + 1, 2 * at + 2):
            if child < len(heap):
                heapq.heappush(next_ones, (heap[child], child))
