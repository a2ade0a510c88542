"""Bypasses: counts, before each start, how many groups have started in front of a group that does not fit.

A group h bypasses a group g when h is placed while g is in line or waits to be tried again, g comes before h
in the line, h's priority is not higher, and h takes, on a node where g may go, a resource that g was refused
for. A gang that grows bypasses all groups: its place in line was for the members that it needed. Two kinds of
starts are not counted, since neither may wait: the rest of a gang bound in part, and replacements in a whole
gang. Nor are bypasses of a group that would not fit on an empty cluster either.

Each group has a bound from its first refusal on. What happens when a start would exceed it depends on the
mode:

    shadow   nothing is enforced; the group "would be claimed" from then on, which is counted and reported
    hard     the start waits until the group has a claim (core.queueing.claims)
    budget   as hard, but while a claim would keep too much idle (core.queueing.idle) the group may be
             bypassed beyond its bound, and counting goes on

A group with a claim is not counted: every start leaves it its room, so nothing bypasses it. If the bound is
`auto`, the first in line may get a claim before it is bypassed at all, as EASY backfilling plans for the head
of the queue (Lifka, JSSPP 1995): that costs other groups little, and a bound alone leaves the head to luck.
In shortest-first order it gets that claim once it has waited long enough (core.queueing.bounds).

Groups with the same needs form one class, with an array of counters in the order of the line. So a start
costs one comparison per class, and one addition to a slice of the array if it takes what the class lacks.
Called by core.groups.attempts.attempts (refused), core.kept.claiming (charge) and core.state.line.queue
(moved); read by web.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from gangsched.config.queueing import BUDGET, SHADOW, QueueingSettings
from gangsched.core.cache.queues.namespace_usage import QueueView
from gangsched.core.cache.queues.tree import QueueTree
from gangsched.core.cache.trial import ClusterView
from gangsched.core.framework.plan import Plan
from gangsched.core.framework.profile import Demand
from gangsched.core.framework.status import Code
from gangsched.core.queueing.bounds import ArrivalWaits, Bounds, Order
from gangsched.core.queueing.needs import Needs, OpenRows, fits_empty, refused_for, taken
from gangsched.core.types.arrays import IntArray
from gangsched.core.types.group import Group, GroupState
from gangsched.core.types.needed import completes
from gangsched.core.types.states import IN_LINE, NOT_QUEUED
from gangsched.model.pod_group import GroupKey

BUCKETS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Passed(msgspec.Struct, frozen=True):
    """One group's count. claimed_s: when a claim would first have been made for it; None: none would be."""

    n: int
    bound: int
    claimed_s: float | None


class Bypasses:
    """Counts bypasses, and keeps statistics of groups that have started."""

    def __init__(
        self,
        settings: QueueingSettings,
        groups: Mapping[GroupKey, Group],
        order: Order,
        tree: QueueTree | None = None,
        waits: ArrivalWaits | None = None,
    ) -> None:
        """tree: as in Bounds. waits: used for shortest-first lanes; None: there are none."""
        self._claimed: Collection[GroupKey] = ()
        self.bounds = Bounds(settings, groups, order, tree)
        self._waits = waits
        self._early: Group | None = None
        self._records: dict[GroupKey, Record] = {}
        self._classes: dict[tuple[object, ...], WaitingClass] = {}
        self._moved: dict[GroupKey, Record] = {}
        """Groups with a changed state or place since the last `_settle`."""
        self._rows = OpenRows(self._classes)
        self._now_s = -math.inf
        """The time of the last turn that was reported."""
        self.at_start = [0] * (len(BUCKETS) + 1)
        """Histogram of bypasses over groups that were refused at least once and have started."""
        self.total_at_start = 0
        self.most_of_bound = 0.0
        """The highest (bypasses / bound) of such a group."""
        self.n_claimed = 0
        """How many groups have reached the point where a claim is made, or would be."""

    @property
    def order(self) -> Order:
        """The order of the line, by the present configuration."""
        return self.bounds.order

    def configure(
        self,
        settings: QueueingSettings,
        order: Order,
        tree: QueueTree | None,
        view: QueueView | None,
        now_s: float,
    ) -> None:
        """Applies new settings, also to groups that wait already: the bound and maybe the order change."""
        if self._waits is not None:
            self._waits.view = view
        self.bounds.configure(settings, order, tree)
        self._now_s = now_s
        for record in self._records.values():
            self._leave(record)
            record.bound = self.bounds.after(record.bound, record.group, now_s)
            if settings.mode != BUDGET:
                record.yields_until_s = -math.inf  # no budget limits what a claim keeps idle
            if record.n > record.bound and record.claimed_s is None:
                record.claimed_s = now_s
                self.n_claimed += 1
        self._moved = dict(self._records)

    def count_claimed(self, claimed: Collection[GroupKey]) -> None:
        """Replaces the set of groups with claims, which are not counted."""
        self._claimed = claimed
        for record in self._records.values():
            self._leave(record)
            self._enter(record)

    def count(self, group: Group) -> Passed | None:
        """The group's count; None if it was never refused, or has started."""
        record = self._records.get(group.key)
        if record is None:
            return None
        n = record.n if record.klass is None else record.klass.count_of(record)
        return Passed(n, record.bound, record.claimed_s)

    @property
    def counts_any(self) -> bool:
        """Whether a group waits whose bypasses are counted."""
        return bool(self._classes)

    def most(self) -> int:
        """The highest count of a group that waits."""
        self._settle()
        waiting = max((record.n for record in self._records.values() if record.klass is None), default=0)
        counted = (int(one.passes.max()) for one in self._classes.values() if len(one.passes))
        return max(waiting, max(counted, default=0))

    def claimed(self, unit: Sequence[Group], now_s: float) -> None:
        """Records that these groups have got or lost a claim."""
        for group in unit:
            self.moved(group)
            record = self._records.get(group.key)
            if record is not None and group.key in self._claimed and record.claimed_s is None:
                record.claimed_s = now_s
                self.n_claimed += 1

    def n_claimed_now(self) -> int:
        """How many waiting groups have a claim, or would have one if bounds were enforced."""
        return sum(record.claimed_s is not None for record in self._records.values())

    # -- what happens ------------------------------------------------------------------------------------

    def refused(self, demands: Sequence[Demand], code: Code, view: ClusterView, now_s: float) -> None:
        """Records that these groups, tried together, do not fit now."""
        self._now_s = now_s
        self._settle()
        self._rows.follow(view)
        for demand in demands:
            group = demand.group
            if group.is_completing or group.has_started or not self.bounds.protects(group):
                continue
            record = self._records.get(group.key)
            if record is None or record.group is not group:
                if record is not None:
                    self._leave(record)
                record = self._records[group.key] = Record(group, self.bounds.first(group, now_s))
            if self._waits is not None:
                lane, _, is_reordered = self.order.passing(group)
                self._waits.refused(group, lane, now_s, is_reordered=is_reordered)
            yields_until_s = -math.inf if now_s >= record.yields_until_s else record.yields_until_s
            needs: Needs = {}
            can_fit = code is not Code.UNRESOLVABLE and now_s >= record.not_before_s
            for template, members in demand.by_template().values():
                n_wanted = min(len(members), demand.n_needed)
                mask = self._rows.ask(demand, template, view)
                short = refused_for(template, mask, n_wanted, view)
                can_fit = can_fit and fits_empty(template, mask, n_wanted, view)
                needs[template.serial] = short | record.needs.get(template.serial, frozenset())
            if self._is_counted(record, yields_until_s, needs) and can_fit:
                continue
            self._leave(record)
            record.yields_until_s, record.can_fit, record.needs = yields_until_s, can_fit, needs
            self._enter(record)

    def charge(self, unit: Sequence[Group], plan: Plan, view: ClusterView, now_s: float) -> Group | None:
        """Counts the groups that the unit bypasses if it is reserved as planned; call it before that.

        If bounds are enforced and one would be exceeded, counts none and returns the first such group in
        line: it needs a claim before the unit may start. Also returns the first in line before its bound, if
        its start may be promised (is_early).
        """
        self._early, self._now_s = None, now_s
        if not self._records:
            return None
        self._settle()
        for group in unit:
            if (record := self._records.get(group.key)) is not None and record.group is group:
                self._leave(record)
        if not self._classes:
            return None
        self._rows.follow(view)
        hits = [hit for group in unit if not completes(group) for hit in self._hits(group, plan)]
        if self.bounds.settings.mode != SHADOW and hits:
            if (full := self._full(hits)) is not None:
                return full
            if (first := self._first(hits, now_s)) is not None:
                self._early = first
                return first
        for klass, n_before in hits:
            self._count(klass, n_before, now_s)
        return None

    def is_early(self, group: Group) -> bool:
        """Whether charge returned the group before its bound."""
        return self._early is group

    def not_early(self, group: Group, until_s: float) -> None:
        """Records that the group's start cannot be promised: until `until_s` it gets no claim before its
        bound."""
        if (record := self._records.get(group.key)) is not None:
            record.not_early_s = until_s

    def no_claim(self, group: Group, until_s: float) -> None:
        """Stops counting the group, for which no claim can be made, until it is refused after `until_s`."""
        record = self._records.get(group.key)
        if record is not None and record.group is group:
            record.not_before_s, record.can_fit = until_s, False
            self._leave(record)

    def let_pass_until(self, group: Group, until_s: float, now_s: float) -> None:
        """Lets the group be bypassed beyond its bound until then, as its claim would keep too much idle."""
        record = self._records.get(group.key)
        if record is None or record.group is not group:
            return
        self._leave(record)
        record.yields_until_s = until_s
        if record.claimed_s is None:
            record.claimed_s = now_s
            self.n_claimed += 1
        self._enter(record)

    def set_to_bound(self, group: Group, now_s: float) -> None:
        """Sets the group's count to its bound: it had a claim in an earlier process; counts are lost."""
        record = self._records.get(group.key)
        if record is None or record.group is not group:
            record = self._records[group.key] = Record(group, self.bounds.first(group, now_s))
        self._leave(record)
        record.n = record.bound
        record.claimed_s = now_s
        self._enter(record)

    def moved(self, group: Group) -> None:
        """Records that the group's state, or its place in line, has changed."""
        if not self._records:
            return
        record = self._records.get(group.key)
        if record is None or record.group is not group:
            return
        if group.state in NOT_QUEUED:
            self._leave(record)
            del self._records[group.key]
            self._moved.pop(group.key, None)
            if self._waits is not None:
                self._waits.leave(group.key)
            if group.state is GroupState.BOUND:
                self.at_start[bisect_left(BUCKETS, record.n)] += 1
                self.total_at_start += record.n
                self.most_of_bound = max(self.most_of_bound, record.n / record.bound)
        else:
            self._moved[group.key] = record

    # -- how it is counted -------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Moves groups to the classes where they belong now. Lazy: thousands leave the line for a moment."""
        moved, self._moved = self._moved, {}
        for key, record in moved.items():
            if self._records.get(key) is not record:
                continue
            is_there = record.klass is not None and self._is_eligible(record)
            if not is_there or self._place_of(record.group) != (record.lane, record.rank):
                self._leave(record)
                self._enter(record)

    def _hits(self, by: Group, plan: Plan) -> list[tuple[WaitingClass, int]]:
        """(class, how many of its groups `by` bypasses) for each class that lacks something it takes."""
        placed = [one for one in plan.placements if one.info.group is by]
        took = taken((one.row, one.info.template) for one in placed)
        lane, rank = self._place_of(by)
        place: Rank | None = None
        hits = []
        for klass in self._classes.values():
            if klass.priority < by.priority or not self._rows.is_contended(klass.needs, took):
                continue
            if klass.lane == lane or by.has_started:
                n_before = len(klass.ranks) if by.has_started else klass.n_before(rank)
            else:
                place = place or (self.order.lane_place(by), lane)
                first = klass.members[0].group
                n_before = len(klass.ranks) if (self.order.lane_place(first), klass.lane) < place else 0
            hits.append((klass, n_before))
        return hits

    def _full(self, hits: Sequence[tuple[WaitingClass, int]]) -> Group | None:
        """The first group in line that these starts would bypass beyond its bound."""
        full = []
        for klass in {id(klass): klass for klass, _ in hits}.values():
            passed = [n_before for other, n_before in hits if other is klass]
            at = klass.full_of(max(passed), len(passed))
            if at >= 0:
                full.append(klass.members[at])
        return min(full, key=self._in_line).group if full else None

    def _first(self, hits: Sequence[tuple[WaitingClass, int]], now_s: float) -> Group | None:
        """The first group in line, if it would be bypassed and may get an early claim."""
        of_lanes: dict[str, Record] = {}
        for klass in self._classes.values():
            one, other = klass.members[0], of_lanes.get(klass.lane)
            if other is None or one.rank < other.rank:
                of_lanes[klass.lane] = one
        first = min(of_lanes.values(), key=self._in_line)
        if now_s < first.not_early_s or self.bounds.stated(first.group) is not None:
            return None
        if not any(first.klass is klass and n_before for klass, n_before in hits):
            return None
        if self.order.passing(first.group)[2]:
            waited_s = now_s - first.group.first_complete_s
            if self._waits is not None and not self._waits.is_over(first.lane, waited_s, now_s):
                return None
        claimed = [self._records[key] for key in self._claimed if key in self._records]
        place = self._in_line(first) if claimed else ()
        if any(self._in_line(record) < place for record in claimed):
            return None
        return first.group

    def _count(self, klass: WaitingClass, n_before: int, now_s: float) -> None:
        passes = klass.passes[:n_before]
        for at in np.flatnonzero(passes == klass.bounds[:n_before]).tolist():
            if klass.members[at].claimed_s is None:
                klass.members[at].claimed_s = now_s
                self.n_claimed += 1
        passes += 1

    def _place_of(self, group: Group) -> tuple[str, Rank]:
        lane, key, _ = self.order.passing(group)
        return lane, (key, group.key)

    def _in_line(self, record: Record) -> Rank:
        """The group's present place among all groups."""
        lane, rank = self._place_of(record.group)
        return self.order.lane_place(record.group), lane, rank

    def _is_eligible(self, record: Record) -> bool:
        group = record.group
        if group.key in self._claimed or not record.can_fit or not group.is_complete:
            return False
        if not self.bounds.protects(group):
            return False
        return group.state in IN_LINE and not group.problem and not group.is_completing

    def _is_counted(self, record: Record, yields_until_s: float, needs: Needs) -> bool:
        """Whether the group is in the right class already: most refused again lack the same as before."""
        return (
            record.klass is not None
            and (record.yields_until_s, record.needs) == (yields_until_s, needs)
            and self._is_eligible(record)
            and self._place_of(record.group) == (record.lane, record.rank)
        )

    def _enter(self, record: Record) -> None:
        if not self._is_eligible(record):
            return
        group = record.group
        lane, record.rank = self._place_of(group)
        if lane != record.lane:
            record.lane, record.bound = lane, self.bounds.after(record.bound, group, self._now_s)
        needs = sorted((serial, *sorted(columns)) for serial, columns in record.needs.items())
        # A lane's place depends on how much its first group needs.
        n_members = len(group.members) if record.lane else 0
        key = (group.priority, record.lane, n_members, *needs)
        klass = self._classes.get(key)
        if klass is None:
            klass = self._classes[key] = WaitingClass(key, record.lane, group.priority, record.needs)
        klass.add(record)

    def _leave(self, record: Record) -> None:
        klass = record.klass
        if klass is None:
            return
        klass.remove(record)
        if not klass.members:
            del self._classes[klass.key]


Rank = tuple[Any, ...]

_NO_BOUND = 2**62


class Record(msgspec.Struct, eq=False):
    """What is known about a refused group. klass: where it is counted; None: it is not eligible now.
    not_before_s: until then no claim can be made for it, whatever ends, so it is not eligible. not_early_s:
    until then it gets no claim before its bound. yields_until_s: until then it may be bypassed beyond its
    bound, as its claim would keep too much idle. rank: its place in its lane."""

    group: Group
    bound: int
    needs: Needs = {}
    can_fit: bool = True
    not_before_s: float = -math.inf
    not_early_s: float = -math.inf
    yields_until_s: float = -math.inf
    n: int = 0
    claimed_s: float | None = None
    lane: str = ""
    rank: Rank = ()
    klass: WaitingClass | None = None


class WaitingClass:
    """Groups of one lane and priority with the same needs, in the order of the line."""

    __slots__ = ("bounds", "key", "lane", "members", "needs", "passes", "priority", "ranks")

    def __init__(self, key: tuple[object, ...], lane: str, priority: int, needs: Needs) -> None:
        self.key = key
        self.lane = lane
        self.priority = priority
        self.needs = needs
        self.ranks: list[Rank] = []
        self.members: list[Record] = []
        self.passes: IntArray = np.zeros(0, dtype=np.int64)
        self.bounds: IntArray = np.zeros(0, dtype=np.int64)

    def add(self, record: Record) -> None:
        at = bisect_left(self.ranks, record.rank)
        self.ranks.insert(at, record.rank)
        self.members.insert(at, record)
        self.passes = np.insert(self.passes, at, record.n)
        bound = record.bound if record.yields_until_s == -math.inf else _NO_BOUND
        self.bounds = np.insert(self.bounds, at, bound)
        record.klass = self

    def remove(self, record: Record) -> None:
        at = bisect_left(self.ranks, record.rank)
        record.n = int(self.passes[at])
        del self.ranks[at], self.members[at]
        self.passes = np.delete(self.passes, at)
        self.bounds = np.delete(self.bounds, at)
        record.klass = None

    def n_before(self, rank: Rank) -> int:
        """How many of its groups come before that place in its lane."""
        return bisect_left(self.ranks, rank)

    def full_of(self, first: int, n: int) -> int:
        """The index of the first among the `first` groups that n more may not bypass; -1 if there is none."""
        found = np.flatnonzero(self.passes[:first] + n > self.bounds[:first])
        return int(found[0]) if len(found) else -1

    def count_of(self, record: Record) -> int:
        return int(self.passes[bisect_left(self.ranks, record.rank)])
