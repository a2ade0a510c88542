"""BackingOff: groups in backoff that a change may have cured, by lane, so that the first of each is not late.

With lanes, use decides which group gets the next room; with claims, the order of the line. A backoff undoes
that: if two queues wait and one had all its groups tried a moment ago, that queue gets nothing and later
groups take what is freed. So a change that frees room ends the backoff of the first few groups of each lane,
once they have waited for part of a first backoff (core.state.line.queue says which part). Without lanes, all
groups are in one lane. Called by core.state.line.queue. Not here: places in line (core.state.line.lanes).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from gangsched.core.types.group import Group
from gangsched.model.pod_group import GroupKey

Key = tuple[Any, ...]
# Limits of one `take`: lanes (which take turns), groups per lane, and groups looked at to find them.
_MAX_LANES = 64
_MAX_EACH = 8
_MAX_LOOKS = 32
_MAX_STALE = 64

_Entry = tuple[Key, GroupKey, int, Group]


class BackingOff:
    """Ordered within a lane by the key that a group had when it came. Entries of groups that left are dropped
    late."""

    def __init__(self) -> None:
        self._lanes: dict[str, list[_Entry]] = {}
        self._tokens: dict[GroupKey, int] = {}
        self._serial = 0

    def __bool__(self) -> bool:
        return bool(self._tokens)

    def __contains__(self, group: Group) -> bool:
        return group.key in self._tokens

    @property
    def n_lanes(self) -> int:
        """Number of lanes with a group here; counts lanes whose stale entries have not been dropped yet,
        too."""
        return len(self._lanes)

    def put(self, lane: str, key: Key, group: Group) -> None:
        """Adds a group that waits only for the end of its backoff."""
        self._serial += 1
        self._tokens[group.key] = self._serial
        waiting = self._lanes.setdefault(lane, [])
        if len(waiting) > 2 * len(self._tokens) + _MAX_STALE:
            waiting[:] = [one for one in waiting if self._tokens.get(one[1]) == one[2]]
            heapq.heapify(waiting)
        heapq.heappush(waiting, (key, group.key, self._serial, group))

    def drop(self, group: Group) -> None:
        """Removes the group: it no longer waits for that."""
        if self._tokens:
            self._tokens.pop(group.key, None)

    def take(self, is_due: Callable[[Group], bool], n: int) -> list[Group]:
        """Removes and returns up to n due groups of each lane, first ones first."""
        found: list[Group] = []
        for lane in list(self._lanes)[:_MAX_LANES]:
            waiting = self._lanes.pop(lane)
            found += self._first(waiting, is_due, min(n, _MAX_EACH))
            if waiting:
                self._lanes[lane] = waiting  # goes behind the other lanes
        return found

    def _first(self, waiting: list[_Entry], is_due: Callable[[Group], bool], n: int) -> list[Group]:
        found: list[Group] = []
        looked_at: list[_Entry] = []
        while waiting and len(found) < n and len(looked_at) < _MAX_LOOKS:
            entry = heapq.heappop(waiting)
            _, key, token, group = entry
            if self._tokens.get(key) != token:
                continue
            if is_due(group):
                found.append(group)
                del self._tokens[key]
            else:
                looked_at.append(entry)
        for entry in looked_at:
            heapq.heappush(waiting, entry)
        return found
