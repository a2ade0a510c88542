"""Timers: when the core has something to do next. One heap holds every deadline: when, its kind, and its key.

The deadlines of a kind are in a table (Deadlines), or on the objects that they are about: a group's is the
end of its state, a claim's is when it is looked at, a retry's is part of its key. All may be moved at any
time.
The heap is lazy: an entry is dropped when it surfaces, if its deadline is another one by then. Nothing here
sleeps: the inbox turns `Scheduler.next_deadline_s` into a sleep, and `Scheduler.advance` does what is due,
kind by kind (core.turns.overdue).
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from gangsched.core.types.claim import StartClaim
from gangsched.core.types.group import NEVER_S, Group, GroupState
from gangsched.model.pod_group import GroupKey

K = TypeVar("K", bound=Hashable)


class DeadlineKind(enum.Enum):
    """What is due; core.turns.overdue says what is done then."""

    # Looked up for each entry; Enum's own hash is a call into Python.
    __hash__ = object.__hash__

    RETRY = "retry"
    HALF_BOUND = "half bound"
    STATE = "state"
    CLAIM = "claim"
    FOREIGN_NOMINATION = "foreign nomination"
    ANNOTATION = "annotation"
    ENDED_POD = "ended pod"
    UNUSABLE_DEVICES = "unusable devices"
    FAILED_DEVICES = "failed devices"
    REFUSALS = "refusals"
    LOST_MEMBERS = "lost members"
    PREPARED_UNIT = "prepared unit"
    HELD_MEMBERS = "held members"
    WALLTIME = "walltime"
    RESOURCE_CLAIM = "resource claim"
    LEFT_CLAIM = "left claim"
    BINDING_CONDITION = "binding condition"
    UNPREPARED = "unprepared"
    HELD_DEVICES = "held devices"
    HOLE = "hole"


class Timers:
    """The heap of (when, serial, kind, key), and the tables of those that are kept by key."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, DeadlineKind, Any]] = []
        self.n_pushed = 0
        self.tables: dict[DeadlineKind, dict[Any, float]] = {}
        """By kind and key: when it is due. Written only by Deadlines."""
        self.claims: Mapping[GroupKey, StartClaim] = {}
        """The claims by each of their groups: the deadlines of others no longer hold."""

    def push(self, when_s: float, kind: DeadlineKind, key: Any) -> None:
        """Adds work of this kind at `when_s`; NEVER_S needs no entry."""
        if when_s < NEVER_S:
            self.n_pushed += 1
            heapq.heappush(self._heap, (when_s, self.n_pushed, kind, key))

    def due_s(self, kind: DeadlineKind, key: Any) -> float:
        """Returns when the key's work is due as of now; NEVER_S if it has none."""
        if kind is DeadlineKind.STATE:
            return _end_of_state(key)
        if kind is DeadlineKind.CLAIM:
            claim: StartClaim = key
            return claim.look_s if self.claims.get(claim.unit[0].key) is claim else NEVER_S
        if kind is DeadlineKind.RETRY:
            return float(key[0])
        return self.tables[kind].get(key, NEVER_S)

    def next_s(self) -> float:
        """Returns the earliest deadline that still holds; NEVER_S if none does."""
        heap = self._heap
        while heap:
            when_s, _, kind, key = heap[0]
            if self.due_s(kind, key) == when_s:
                return when_s
            heapq.heappop(heap)
        return NEVER_S

    def take(self, kind: DeadlineKind, now_s: float) -> list[Any]:
        """Removes the kind's entries that are due; returns their keys, earliest first, ties as they came."""
        keys, others = [], []
        while self._heap and self._heap[0][0] <= now_s:
            entry = heapq.heappop(self._heap)
            if entry[2] is kind:
                if self.due_s(kind, entry[3]) == entry[0]:
                    keys.append(entry[3])
            else:
                others.append(entry)
        for entry in others:
            heapq.heappush(self._heap, entry)
        return keys

    def pending(self, kind: DeadlineKind) -> Iterator[Any]:
        """Yields the keys of the kind's entries, in no order, stale ones included."""
        return (entry[3] for entry in self._heap if entry[2] is kind)

    def forget(self, kind: DeadlineKind) -> None:
        """Drops the kind's entries."""
        self._heap = [entry for entry in self._heap if entry[2] is not kind]
        heapq.heapify(self._heap)


def _end_of_state(group: Group) -> float:
    return NEVER_S if group.state is GroupState.DELETED else group.deadline_s


class Deadlines(Generic[K]):
    """The deadlines of one kind by key, in the order in which the keys came."""

    __slots__ = ("_due_s", "_kind", "_timers")

    def __init__(self, timers: Timers, kind: DeadlineKind) -> None:
        self._timers = timers
        self._kind = kind
        self._due_s: dict[K, float] = timers.tables.setdefault(kind, {})

    def __contains__(self, key: K) -> bool:
        return key in self._due_s

    def __iter__(self) -> Iterator[K]:
        return iter(self._due_s)

    def __len__(self) -> int:
        return len(self._due_s)

    def due_s(self, key: K) -> float:
        """Returns NEVER_S for a key that is not here."""
        return self._due_s.get(key, NEVER_S)

    def set(self, key: K, when_s: float) -> None:
        """Replaces the key's deadline; with NEVER_S the key keeps its place in the order."""
        self._due_s[key] = when_s
        self._timers.push(when_s, self._kind, key)

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
        keys = list(dict.fromkeys(self._timers.take(self._kind, now_s)))
        for key in keys:
            self.drop(key)
        return keys


class Retries:
    """Pods to look at again, each at its time and for an attempt. Every request is answered."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers

    def __contains__(self, uid: str) -> bool:
        return any(uid == one for _, one, _ in self._timers.pending(DeadlineKind.RETRY))

    def add(self, when_s: float, uid: str, attempt: int) -> None:
        self._timers.push(when_s, DeadlineKind.RETRY, (when_s, uid, attempt))

    def take(self, now_s: float) -> list[tuple[float, str, int]]:
        """Removes and returns those that are due, by time, UID and attempt."""
        return sorted(self._timers.take(DeadlineKind.RETRY, now_s))
