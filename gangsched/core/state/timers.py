"""Timers: when the core has something to do next. One heap holds every deadline, each with its owner.

An owner keeps its deadlines in a Deadlines table, or on its objects (the queue's are on the groups), and may
move them at any time. The heap is lazy: an entry whose owner now gives another time is dropped when it
surfaces. Nothing here sleeps: the inbox turns `Scheduler.next_deadline_s` into a sleep, and
`Scheduler.advance` asks each owner for its part, in its own order.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from gangsched.core.types.group import NEVER_S

K = TypeVar("K", bound=Hashable)


class DeadlineOwner(Protocol):
    """An object that has deadlines in the heap."""

    def due_s(self, key: Any) -> float:
        """Returns when the key's work is due as of now; NEVER_S if it has none."""
        ...


class Timers:
    """The heap of (when, serial, owner, key)."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, DeadlineOwner, Any]] = []
        self.n_pushed = 0

    def push(self, when_s: float, owner: DeadlineOwner, key: Any) -> None:
        """Adds the owner's work at `when_s`; NEVER_S needs no entry."""
        if when_s < NEVER_S:
            self.n_pushed += 1
            heapq.heappush(self._heap, (when_s, self.n_pushed, owner, key))

    def next_s(self) -> float:
        """Returns the earliest deadline that still holds; NEVER_S if none does."""
        heap = self._heap
        while heap:
            when_s, _, owner, key = heap[0]
            if owner.due_s(key) == when_s:
                return when_s
            heapq.heappop(heap)
        return NEVER_S

    def take(self, owner: DeadlineOwner, now_s: float) -> list[Any]:
        """Removes the owner's entries that are due; returns their keys, earliest first, ties as they came."""
        keys, others = [], []
        while self._heap and self._heap[0][0] <= now_s:
            entry = heapq.heappop(self._heap)
            if entry[2] is owner:
                if owner.due_s(entry[3]) == entry[0]:
                    keys.append(entry[3])
            else:
                others.append(entry)
        for entry in others:
            heapq.heappush(self._heap, entry)
        return keys

    def pending(self, owner: DeadlineOwner) -> Iterator[Any]:
        """Yields the keys of the owner's entries, in no order, stale ones included."""
        return (entry[3] for entry in self._heap if entry[2] is owner)

    def forget(self, owner: DeadlineOwner) -> None:
        """Drops the owner's entries."""
        self._heap = [entry for entry in self._heap if entry[2] is not owner]
        heapq.heapify(self._heap)


class Deadlines(Generic[K]):
    """One owner's deadlines by key, in the order in which the keys came."""

    __slots__ = ("_due_s", "_timers")

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._due_s: dict[K, float] = {}

    def __contains__(self, key: K) -> bool:
        return key in self._due_s

    def __iter__(self) -> Iterator[K]:
        return iter(self._due_s)

    def due_s(self, key: K) -> float:
        """Returns NEVER_S for a key that is not here."""
        return self._due_s.get(key, NEVER_S)

    def set(self, key: K, when_s: float) -> None:
        """Replaces the key's deadline; with NEVER_S the key keeps its place in the order."""
        self._due_s[key] = when_s
        self._timers.push(when_s, self, key)

    def set_if_absent(self, key: K, when_s: float) -> None:
        """Sets the deadline unless the key has one."""
        if key not in self._due_s:
            self.set(key, when_s)

    def drop(self, key: K) -> bool:
        """Removes the key; returns whether it was here."""
        return self._due_s.pop(key, None) is not None

    def due(self, now_s: float) -> list[K]:
        """Returns keys whose deadline has passed, in the order of the table; they stay until set again or
        dropped."""
        return [key for key, due_s in self._due_s.items() if due_s <= now_s]

    def take(self, now_s: float) -> list[K]:
        """Removes the keys whose deadline has passed: the earliest first, ties as they were set."""
        # A key that was moved and moved back has two entries that hold.
        keys = list(dict.fromkeys(self._timers.take(self, now_s)))
        for key in keys:
            self.drop(key)
        return keys


class Retries:
    """Pods to look at again, each at its time and for an attempt. Every request is answered."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers

    def __contains__(self, uid: str) -> bool:
        return any(uid == one for _, one, _ in self._timers.pending(self))

    def due_s(self, key: tuple[float, str, int]) -> float:
        return key[0]

    def add(self, when_s: float, uid: str, attempt: int) -> None:
        self._timers.push(when_s, self, (when_s, uid, attempt))

    def take(self, now_s: float) -> list[tuple[float, str, int]]:
        """Removes and returns those that are due, by time, UID and attempt."""
        return sorted(self._timers.take(self, now_s))
