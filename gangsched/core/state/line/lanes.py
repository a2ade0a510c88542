"""Lanes: groups in line where QueueSort's order depends on usage (LaneSortPlugin).

Lives here: each lane's heap, the heap of lanes, and which lanes' keys are out of date. Not here: the plugin's
calls and failures (core.state.line.queue_order), a group's states (core.state.line.queue, the only caller).
Both heaps are lazy: an entry that no longer holds is dropped when it surfaces.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import islice
from typing import Any

from gangsched.core.cache.queues.namespace_usage import NamespaceUsage, QueueView
from gangsched.core.state.line.backing_off import BackingOff
from gangsched.core.state.line.heap_order import in_order
from gangsched.core.state.line.queue_order import QueueOrder
from gangsched.core.types.group import NEVER_S, Group
from gangsched.model.pod_group import GroupKey

Key = tuple[Any, ...]
# Stale entries are dropped at once when they outnumber the valid ones by this many.
_MAX_STALE = 64


class _Lane:
    """The groups of one lane. keyed_for: the group that the lane's key was made for; entry: of that key."""

    __slots__ = ("due_s", "entry", "groups", "keyed_for", "name", "reads")

    def __init__(self, name: str) -> None:
        self.name = name
        self.groups: list[tuple[Key, GroupKey, int, Group]] = []
        self.keyed_for: Group | None = None
        self.entry = 0
        self.reads: frozenset[str] = frozenset()
        self.due_s = NEVER_S

    def first(self) -> Group | None:
        """Returns the first group that is still in line."""
        while self.groups:
            *_, token, group = self.groups[0]
            if group.active_token == token:
                return group
            heapq.heappop(self.groups)
        return None

    def in_line(self) -> Iterator[Group]:
        """Yields the groups in line, in order; the lane must not change meanwhile."""
        return (group for *_, token, group in in_order(self.groups) if group.active_token == token)


class Lanes:
    """Groups in line, by lane."""

    def __init__(self, view: QueueView, usage: NamespaceUsage, order: QueueOrder) -> None:
        """view: read by the order for a lane's key."""
        self._view = view
        self._usage = usage
        self._order = order
        self._rekey_s = order.rekey_s
        self._lanes: dict[str, _Lane] = {}
        self._readers: dict[str, dict[str, None]] = {}
        """What is read -> the lanes whose keys have read it."""
        self._heads: list[tuple[Key, str, int]] = []
        self._due: list[tuple[float, str, int]] = []
        self._stale: dict[str, None] = {}
        self._serial = 0
        self.backing_off = BackingOff()
        """Groups that are not in line yet; the first of each lane come first."""
        self.n_keys = 0
        """How often a lane's key was computed."""

    def clear(self) -> None:
        """Takes all groups out of line."""
        self._lanes, self._readers, self._heads, self._due, self._stale = {}, {}, [], [], {}
        self.backing_off = BackingOff()

    def name_of(self, group: Group) -> str:
        """The group's lane."""
        return self._order.lane_or_last(group)

    def key_of(self, group: Group) -> Key:
        """The key that the group's lane would have now if the group were its first."""
        return self._order.lane_key_or_last(group)

    def push(self, group: Group, key: Key, token: int) -> None:
        """Puts the group in line, at the place of this key in its lane."""
        name = self._order.lane_or_last(group)
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = _Lane(name)
        heapq.heappush(lane.groups, (key, group.key, token, group))
        if lane.groups[0][3] is group:
            self._stale[name] = None

    def pop(self) -> Group | None:
        """Takes the first group of the lane with the smallest key out of line; None when no group is in
        line."""
        self._find_stale()
        while True:
            for name in self._stale:
                self._key_again(name)
            self._stale = {}
            if not self._heads:
                return None
            _, name, entry = self._heads[0]
            lane = self._lanes.get(name)
            if lane is None or lane.entry != entry:
                heapq.heappop(self._heads)
                continue
            first = lane.first()
            self._stale[name] = None
            if first is not None and first is lane.keyed_for:
                heapq.heappop(lane.groups)
                return first

    def in_line(self) -> Iterator[Group]:
        """Yields the first group of each lane, smallest key first, then the second of each, and so on.

        A guess at what `pop` will return: keys change with what is placed. Nothing may change meanwhile.
        """
        left: list[Iterator[Group]] = []
        for name in self._names():
            line = self._lanes[name].in_line()
            yield from islice(line, 1)
            left.append(line)
        while left:
            before, left = left, []
            for line in before:
                for group in islice(line, 1):
                    yield group
                    left.append(line)

    def _names(self) -> Iterator[str]:
        """Lanes with an unknown key, then the others by their keys."""
        stale = [name for name in self._stale if name in self._lanes]
        yield from stale
        for _, name, entry in in_order(self._heads):
            if name not in self._stale and self._holds(name, entry):
                yield name

    def _find_stale(self) -> None:
        """Marks lanes whose keys read something that has changed since, or the time."""
        for name in sorted(self._usage.changed):
            self._stale.update(self._readers.get(name, {}))
        self._usage.changed.clear()
        while self._due and self._due[0][0] <= self._view.now_s:
            _, name, entry = heapq.heappop(self._due)
            lane = self._lanes.get(name)
            if lane is not None and lane.entry == entry:
                self._stale[name] = None

    def _key_again(self, name: str) -> None:
        lane = self._lanes.get(name)
        if lane is None:
            return
        for read in lane.reads:
            self._readers[read].pop(name, None)
            if not self._readers[read]:
                del self._readers[read]
        lane.reads = frozenset()
        lane.keyed_for = lane.first()
        if lane.keyed_for is None:
            del self._lanes[name]
            return
        view = self._view
        view.forget_reads()
        self.n_keys += 1
        key = self._order.lane_key_or_last(lane.keyed_for)
        self._serial += 1
        lane.entry = self._serial
        lane.reads = frozenset(view.reads)
        for read in sorted(lane.reads):
            self._readers.setdefault(read, {})[name] = None
        if view.reads_time:
            heapq.heappush(self._due, (view.now_s + self._rekey_s, name, lane.entry))
        heapq.heappush(self._heads, (key, name, lane.entry))
        if len(self._heads) > 2 * len(self._lanes) + _MAX_STALE:
            self._heads = [one for one in self._heads if self._holds(one[1], one[2])]
            heapq.heapify(self._heads)
        if len(self._due) > 2 * len(self._lanes) + _MAX_STALE:
            self._due = [one for one in self._due if self._holds(one[1], one[2])]
            heapq.heapify(self._due)

    def _holds(self, name: str, entry: int) -> bool:
        lane = self._lanes.get(name)
        return lane is not None and lane.entry == entry
