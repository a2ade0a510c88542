"""Holes: places of members that a running gang has lost, kept for those who come in their stead.

    a bound member is gone, or has failed     what it held is noted, until its gang is looked at in this turn
    its gang runs with fewer than it needs    as many of these places as are missing are kept
    a member of the gang is placed            the place on that node, else the oldest, is kept no longer
    it has enough; runs no more; is gone      none is
    `successorTimeoutSeconds` have passed     that one is kept no longer

A controller takes a second or two to make the next pod, and what a pod leaves is free at once: whoever waits
for as much takes it, and a gang that cannot work without all of its members waits for one, its other devices
idle. A place is kept from units of no higher priority, as a nomination is (core.queueing.kept_from), and says
nothing about where the successor goes. Each replica keeps them by what it has seen itself; a process that has
just started knows of none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from gangsched.core.cache.cache import Cache
from gangsched.core.state.timers import DeadlineKind, Deadlines, Timers
from gangsched.core.types.cluster_events import ClusterChange
from gangsched.core.types.group import Group, PodInfo
from gangsched.core.types.placement import Nominated
from gangsched.model.pod_group import GroupKey

_KEY = "hole/"
_NONE: dict[str, None] = {}


class Holes:
    """The places that are kept, as entries of the cache's nominations under keys of their own."""

    def __init__(self, cache: Cache, timers: Timers) -> None:
        self._cache = cache
        self._until_s: Deadlines[str] = Deadlines(timers, DeadlineKind.HOLE)
        self._of: dict[GroupKey, dict[str, None]] = {}
        self.kept: dict[str, GroupKey] = {}
        """By key of a place: its group. Empty nearly always: then nothing else here need be asked."""
        self.left_now: dict[GroupKey, list[Nominated]] = {}
        """What members have left in this turn whose groups have not been looked at since."""

    # -- what becomes of them --------------------------------------------------------------------------

    def left(self, info: PodInfo) -> None:
        """Notes what a bound member holds, which is about to be released."""
        group = info.group
        if group is None or not group.has_started or info.pod.status.phase == "Succeeded":
            return
        lost = PodInfo(info.pod, info.template, _KEY + info.uid)
        place = Nominated(lost, info.node_name, group.priority, dict(info.ids))
        self.left_now.setdefault(group.key, []).append(place)

    def settle(self, group: Group, n_missing: int, until_s: float) -> list[ClusterChange]:
        """Keeps as many of the places that the group has just lost as it is missing, and releases all of them
        if that is none; returns what is freed."""
        left = self.left_now.pop(group.key, ())
        if not n_missing:
            return self.drop(group.key)
        n_open = n_missing - len(self._of.get(group.key, _NONE)) - group.n_assumed
        for place in left[: max(n_open, 0)]:
            key = place.info.uid
            self._cache.nominated[key] = place
            self._of.setdefault(group.key, {})[key] = None
            self.kept[key] = group.key
            self._until_s.set(key, until_s)
        return []

    def filled(self, group: Group, node_name: str) -> list[ClusterChange]:
        """Releases one place, as a member has been placed; returns what is freed."""
        mine = self._of.get(group.key)
        if not mine:
            return []
        nominated = self._cache.nominated
        there = (key for key in mine if nominated[key].node_name == node_name)
        return self._release(next(there, next(iter(mine))))

    def drop(self, key: GroupKey) -> list[ClusterChange]:
        """Releases all places of the group; returns what is freed."""
        self.left_now.pop(key, None)
        return [change for one in list(self._of.get(key, _NONE)) for change in self._release(one)]

    def expired(self, now_s: float) -> list[ClusterChange]:
        """Releases places that have been kept for long enough; returns what is freed."""
        return [change for key in self._until_s.take(now_s) for change in self._release(key)]

    def _release(self, key: str) -> list[ClusterChange]:
        self._until_s.drop(key)
        whose = self.kept.pop(key)
        mine = self._of[whose]
        del mine[key]
        if not mine:
            del self._of[whose]
        freed = self._cache.room_of(self._cache.nominated[key])
        self._cache.unnominate(key)
        return freed

    # -- what is asked about them ----------------------------------------------------------------------

    def reserved(self, unit: Iterable[Group]) -> Collection[Nominated]:
        """Returns what is nominated, without the unit's own holes."""
        nominated = self._cache.nominated
        own = {key for group in unit for key in self._of.get(group.key, _NONE)}
        return [one for key, one in nominated.items() if key not in own] if own else nominated.values()

    def by_group(self) -> Iterator[tuple[GroupKey, list[tuple[str, float]]]]:
        """Yields for each group the keys of its places, and until when they are kept."""
        for whose, mine in self._of.items():
            yield whose, [(key, self._until_s.due_s(key)) for key in mine]

    def kept_for(self, group: Group) -> Iterator[tuple[Nominated, float]]:
        """Yields the places that are kept for members of the group, and until when."""
        for key in self._of.get(group.key, _NONE):
            yield self._cache.nominated[key], self._until_s.due_s(key)

    def kept_from(self, group: Group) -> list[tuple[Nominated, float]]:
        """Returns the places that are kept from the group, and until when."""
        nominated = self._cache.nominated
        return [
            (nominated[key], self._until_s.due_s(key))
            for key, whose in self.kept.items()
            if whose != group.key and nominated[key].priority >= group.priority
        ]
