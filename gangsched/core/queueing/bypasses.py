"""Bypasses: how many groups have started in front of each group that does not fit, before each start.

A group h bypasses a group g when h is placed while g is in line or waits to be tried again, g comes before h
in the line, h's priority is not higher, and h takes, on a node where g may go, a resource that g was refused
for. Not counted: a gang that is bound in part and the replacements of one that is whole, neither of which may
wait; and bypasses of a group that would not fit on an empty cluster either.

Each group has a bound from its first refusal on. In shadow mode, the only one, nothing is enforced: when a
start would go beyond a group's bound, the group "would be claimed" from there on, which is counted and told.

Groups with the same needs are one class, an array of counters in the order of the line, so that a start costs
one comparison a class, and one addition to a part of an array where it takes what the class lacks. Called by
core.groups.passed_over (refused, before_start) and core.state.queue (moved); read by web.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from gangsched.config.queueing import QueueingSettings
from gangsched.core.cache.trial import ClusterView
from gangsched.core.framework.plan import Plan
from gangsched.core.framework.plugin_calls import PluginError
from gangsched.core.framework.profile import Demand
from gangsched.core.framework.status import Code
from gangsched.core.types.arrays import BoolArray, IntArray
from gangsched.core.types.group import BOUND, Group, GroupState
from gangsched.core.types.pod_template import PodTemplate
from gangsched.model.pod_group import GroupKey

BUCKETS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_LEAST_BOUND = 64
_BOUND_PER_RUNNING = 8
# Counting the groups that run is a walk over all of them.
_COUNT_AGAIN_S = 1.0
_MAX_MASKS = 10_000
_ELIGIBLE = (GroupState.ACTIVE, GroupState.ASKING, GroupState.BACKOFF, GroupState.UNSCHEDULABLE)

Rank = tuple[Any, ...]
_Needs = dict[int, frozenset[int]]
"""By template serial: the resource columns that it was refused for."""


class Passed(msgspec.Struct, frozen=True):
    """One group's count. claimed_s: since when it would be claimed, None: it would not."""

    n: int
    bound: int
    claimed_s: float | None


class _Record(msgspec.Struct, eq=False):
    """What is known of a group that was refused. klass: where it is counted; None: it is not eligible now."""

    group: Group
    bound: int
    needs: _Needs = {}
    can_fit: bool = True
    n: int = 0
    claimed_s: float | None = None
    rank: Rank = ()
    klass: _Class | None = None


class _Class:
    """Groups of one priority with the same needs, in the order of the line."""

    __slots__ = ("bounds", "key", "members", "needs", "passes", "priority", "ranks")

    def __init__(self, key: tuple[object, ...], priority: int, needs: _Needs) -> None:
        self.key = key
        self.priority = priority
        self.needs = needs
        self.ranks: list[Rank] = []
        self.members: list[_Record] = []
        self.passes: IntArray = np.zeros(0, dtype=np.int64)
        self.bounds: IntArray = np.zeros(0, dtype=np.int64)

    def add(self, record: _Record) -> None:
        at = bisect_left(self.ranks, record.rank)
        self.ranks.insert(at, record.rank)
        self.members.insert(at, record)
        self.passes = np.insert(self.passes, at, record.n)
        self.bounds = np.insert(self.bounds, at, record.bound)
        record.klass = self

    def remove(self, record: _Record) -> None:
        at = bisect_left(self.ranks, record.rank)
        record.n = int(self.passes[at])
        del self.ranks[at], self.members[at]
        self.passes = np.delete(self.passes, at)
        self.bounds = np.delete(self.bounds, at)
        record.klass = None

    def count_of(self, record: _Record) -> int:
        return int(self.passes[bisect_left(self.ranks, record.rank)])


class Bypasses:
    """Counts, and remembers the counts of groups that have started."""

    def __init__(
        self,
        settings: QueueingSettings,
        groups: Mapping[GroupKey, Group],
        sort_key: Callable[[Group], Rank],
    ) -> None:
        self._settings = settings
        self._groups = groups
        self._sort_key = sort_key
        self._records: dict[GroupKey, _Record] = {}
        self._classes: dict[tuple[object, ...], _Class] = {}
        self._masks: dict[int, int] = {}
        """By template serial: the rows where it may go, as bits; of nodes as they were at `_revision`."""
        self._asked: dict[int, tuple[Demand, PodTemplate]] = {}
        """By template serial: how to ask again. The demand is for nobody, and keeps no pods in memory."""
        self._revision: tuple[int, int] = (-1, -1)
        self._running: tuple[float, int] = (-math.inf, 0)
        self.at_start = [0] * (len(BUCKETS) + 1)
        """Groups that were refused at least once and have started, by how often they had been bypassed."""
        self.total_at_start = 0
        self.n_claimed = 0
        """Groups that have come to where they would be claimed."""

    def configure(self, settings: QueueingSettings) -> None:
        """Another bound is in effect, for groups that are refused for the first time from now on."""
        self._settings = settings

    def of(self, group: Group) -> Passed | None:
        """The group's count; None while it was never refused, or has started."""
        record = self._records.get(group.key)
        if record is None:
            return None
        n = record.n if record.klass is None else record.klass.count_of(record)
        return Passed(n, record.bound, record.claimed_s)

    def most(self) -> int:
        """The highest count of a group that waits."""
        waiting = max((record.n for record in self._records.values() if record.klass is None), default=0)
        counted = (int(one.passes.max()) for one in self._classes.values() if len(one.passes))
        return max(waiting, max(counted, default=0))

    def n_claimed_now(self) -> int:
        """How many groups that wait would be claimed."""
        return sum(record.claimed_s is not None for record in self._records.values())

    # -- what happens ------------------------------------------------------------------------------------

    def refused(self, demands: Sequence[Demand], code: Code, view: ClusterView, now_s: float) -> None:
        """These groups were tried together and do not fit now."""
        self._follow(view)
        for demand in demands:
            group = demand.group
            if group.recovering or group.satisfied:
                continue
            record = self._records.get(group.key)
            if record is None or record.group is not group:
                if record is not None:
                    self._leave(record)
                record = self._records[group.key] = _Record(group, self._bound(now_s))
            self._leave(record)
            needs: _Needs = {}
            record.can_fit = code is not Code.UNRESOLVABLE
            for template, members in demand.by_template().values():
                n_wanted = min(len(members), demand.n_needed)
                mask = self._mask(demand, template, view)
                short = _refused_for(template, mask, n_wanted, view)
                record.can_fit = record.can_fit and _fits_empty(template, mask, n_wanted, view)
                needs[template.serial] = short | record.needs.get(template.serial, frozenset())
            record.needs = needs
            self._enter(record)

    def before_start(self, unit: Sequence[Group], plan: Plan, view: ClusterView, now_s: float) -> None:
        """The unit is about to be reserved as planned: whoever is bypassed is counted first."""
        if not self._records:
            return
        for group in unit:
            if (record := self._records.get(group.key)) is not None and record.group is group:
                self._leave(record)
        if not self._classes:
            return
        self._follow(view)
        for group in unit:
            if not (group.recovering or group.satisfied):
                placed = [one for one in plan.placements if one.info.group is group]
                self._count(group, _taken((one.row, one.info.template) for one in placed), now_s)

    def moved(self, group: Group) -> None:
        """The group's state, or its place in line, has changed."""
        record = self._records.get(group.key)
        if record is None or record.group is not group:
            return
        if group.state in (GroupState.BOUND, GroupState.DELETED):
            self._leave(record)
            del self._records[group.key]
            if group.state is GroupState.BOUND:
                self.at_start[bisect_left(BUCKETS, record.n)] += 1
                self.total_at_start += record.n
        elif record.klass is None or not self._is_eligible(record) or self._place_of(group) != record.rank:
            self._leave(record)
            self._enter(record)

    # -- how it is counted -------------------------------------------------------------------------------

    def _count(self, by: Group, taken: Mapping[int, int], now_s: float) -> None:
        rank = self._place_of(by)
        for klass in self._classes.values():
            if klass.priority < by.priority or not self._is_hit(klass, taken):
                continue
            n_before = bisect_left(klass.ranks, rank)
            passes = klass.passes[:n_before]
            for at in np.flatnonzero(passes == klass.bounds[:n_before]).tolist():
                if klass.members[at].claimed_s is None:
                    klass.members[at].claimed_s = now_s
                    self.n_claimed += 1
            passes += 1

    def _is_hit(self, klass: _Class, taken: Mapping[int, int]) -> bool:
        """Whether what is taken is of what the class was refused for, where it may go."""
        for serial, columns in klass.needs.items():
            rows = self._masks.get(serial, 0)
            if any(rows & bits for column, bits in taken.items() if column in columns):
                return True
        return False

    def _place_of(self, group: Group) -> Rank:
        return self._sort_key(group), group.key

    def _is_eligible(self, record: _Record) -> bool:
        group = record.group
        return record.can_fit and group.state in _ELIGIBLE and not group.problem and not group.recovering

    def _enter(self, record: _Record) -> None:
        if not self._is_eligible(record):
            return
        group = record.group
        record.rank = self._place_of(group)
        needs = sorted((serial, *sorted(columns)) for serial, columns in record.needs.items())
        key = (group.priority, *needs)
        klass = self._classes.get(key)
        if klass is None:
            klass = self._classes[key] = _Class(key, group.priority, record.needs)
        klass.add(record)

    def _leave(self, record: _Record) -> None:
        klass = record.klass
        if klass is None:
            return
        klass.remove(record)
        if not klass.members:
            del self._classes[klass.key]

    def _bound(self, now_s: float) -> int:
        if self._settings.bound is not None:
            return self._settings.bound
        counted_s, n = self._running
        if now_s - counted_s >= _COUNT_AGAIN_S:
            n = sum(group.counts[BOUND] > 0 for group in self._groups.values())
            self._running = (now_s, n)
        return max(_LEAST_BOUND, _BOUND_PER_RUNNING * n)

    def _follow(self, view: ClusterView) -> None:
        """Nodes have changed: asks again where the templates may go."""
        revision = (view.static_revision, view.n_rows)
        if revision == self._revision:
            return
        self._revision = revision
        used = {serial for klass in self._classes.values() for serial in klass.needs}
        self._masks.clear()
        self._asked = {serial: demand for serial, demand in self._asked.items() if serial in used}
        for serial, (demand, template) in self._asked.items():
            self._masks[serial] = _bits(_open_to(demand, template, view))

    def _mask(self, demand: Demand, template: PodTemplate, view: ClusterView) -> BoolArray:
        mask = _open_to(demand, template, view)
        if len(self._masks) >= _MAX_MASKS and template.serial not in self._masks:
            used = {serial for klass in self._classes.values() for serial in klass.needs}
            self._masks = {serial: bits for serial, bits in self._masks.items() if serial in used}
            self._asked = {serial: one for serial, one in self._asked.items() if serial in used}
        self._masks[template.serial] = _bits(mask)
        self._asked[template.serial] = (Demand(demand.group, demand.profile, [], 0), template)
        return mask


def _open_to(demand: Demand, template: PodTemplate, view: ClusterView) -> BoolArray:
    """Rows that the Filters of fixed node properties leave to the template; all, where a plugin fails."""
    try:
        state, _ = demand.pre_filter(template, view)
        mask = demand.profile.filtering.feasible(state, template, view)
    except PluginError:
        return view.live
    return mask if state.subset is None else mask & state.subset


def _refused_for(template: PodTemplate, mask: BoolArray, n_wanted: int, view: ClusterView) -> frozenset[int]:
    """The columns that keep a node from taking them all; all columns, where it is not for lack of room."""
    rows = np.flatnonzero(mask)
    if not len(rows) or not template.columns:
        return frozenset(template.columns)
    fits = np.maximum(view.free_at(template.column_array, rows), 0) // template.amount_array
    least = fits.min(axis=0)
    short = ((fits == least) & (least < n_wanted)).any(axis=1)
    return frozenset(c for c, is_short in zip(template.columns, short.tolist(), strict=True) if is_short) or (
        frozenset(template.columns)
    )


def _fits_empty(template: PodTemplate, mask: BoolArray, n_wanted: int, view: ClusterView) -> bool:
    """Whether nodes with nothing on them would have room."""
    if template.missing:
        return False
    rows = np.flatnonzero(mask)
    room = view.room_at(template.column_array, rows)[0] // template.amount_array
    return bool(np.maximum(room.min(axis=0), 0).sum() >= n_wanted) if len(rows) else False


def _taken(placed: Iterable[tuple[int, PodTemplate]]) -> dict[int, int]:
    """By column: the rows where some of it is taken, as bits."""
    taken: dict[int, int] = {}
    for row, template in placed:
        for column in template.columns:
            taken[column] = taken.get(column, 0) | 1 << row
    return taken


def _bits(mask: BoolArray) -> int:
    return int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")
