"""SchedulingQueue: which group is tried next, and when the others may be retried.

Groups that can be tried are in a heap ordered by QueueSort; groups with something to wait for are in the
core's heap of deadlines (core.state.timers). Both are lazy: an entry that no longer matches its group is
dropped when it surfaces.
Source of the behaviour: kube-scheduler `backend/queue/scheduling_queue.go` (backoff 1 s doubling to 10 s,
unschedulable groups flushed after 5 minutes).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from gangsched.core.framework.observer import Observer
from gangsched.core.queueing.bypasses import Bypasses
from gangsched.core.queueing.claims import Claims
from gangsched.core.state.line.backing_off import BackingOff
from gangsched.core.state.line.early_turns import Cures, EarlyTurns
from gangsched.core.state.line.heap_order import in_order
from gangsched.core.state.line.lanes import Lanes
from gangsched.core.state.line.queue_order import QueueOrder
from gangsched.core.state.tables.groups import Cause, move
from gangsched.core.state.timers import DeadlineKind, Timers
from gangsched.core.types.clock import Clock
from gangsched.core.types.cluster_events import ClusterChange
from gangsched.core.types.group import NEVER_S, Group, GroupState, PodInfo
from gangsched.core.types.states import ASKING, WAITING
from gangsched.model.pod_group import GroupKey

# Waking compares every change with every unschedulable group; beyond this many pairs the changes of one kind
# are merged into one without detail, which can only wake too many groups.
_MAX_PAIRS = 20_000
# How a turn ends that takes nothing, and why there is none after all.
_IN_VAIN = frozenset(
    (
        Cause.REJECTED,
        Cause.SAID_LATER,
        Cause.PREEMPTS,
        Cause.EXTENDERS_FAILED,
        Cause.GAVE_BACK,
        Cause.INCOMPLETE,
        Cause.GATED,
        Cause.NOTHING_PENDING,
        Cause.BOUND_ELSEWHERE,
        Cause.PROBLEM,
        Cause.CONTAINED,
        Cause.GONE,
    )
)
_PERMITTED, _TIME_IS_UP = Cause.PERMITTED, Cause.TIME_IS_UP
# Changes kept for a group whose nodes extenders are asked about; beyond this they are merged by kind.
_MAX_MISSED = 64
# With lanes, the end of one backoff also ends those that are due within this part of a first backoff.
_TOGETHER = 0.5


class _Shared(Protocol):
    """What is read of core.state.state.SharedState."""

    claims: Claims | None


class Wakes(Protocol):
    """What may let a group fit; core.state.line.waking has the one implementation."""

    def cured_by(self, changes: Sequence[ClusterChange]) -> Cures:
        """Returns what these changes mean to groups."""
        ...

    def lacks_room(self, group: Group) -> bool:
        """Whether the group's last attempt failed for want of room."""
        ...


class SchedulingQueue:
    """Holds groups by state; every change of a group's place goes through here."""

    def __init__(
        self,
        *,
        shared: _Shared,
        order: QueueOrder,
        waking: Wakes,
        clock: Clock,
        timers: Timers,
        initial_backoff_s: float = 1.0,
        max_backoff_s: float = 10.0,
        flush_s: float = 300.0,
        observer: Observer | None = None,
    ) -> None:
        """When a state began, by the clock, is shown to people and affects no decision."""
        self._shared = shared
        self._clock = clock
        self._timers = timers
        self.observer = observer
        self.order = order
        """QueueSort's, by the present configuration."""
        self._waking = waking
        self._initial_backoff_s = initial_backoff_s
        self._max_backoff_s = max_backoff_s
        self._flush_s = flush_s
        self._active: list[tuple[bool, tuple[Any, ...], GroupKey, int, Group]] = []
        self._n_active = 0
        self.n_lined_up = 0
        self._unschedulable: dict[GroupKey, Group] = {}
        self._waiting: dict[GroupKey, Group] = {}
        self._missed: dict[GroupKey, list[ClusterChange]] = {}
        """Changes since extenders were asked about the nodes of these groups; their next turn will not know
        of them."""
        self.bypasses: Bypasses | None = None
        self.lanes: Lanes | None = None
        """With lanes in QueueSort, all groups in line but those that go first."""
        self._one_line = BackingOff()
        self._early = EarlyTurns(self)

    def configure(self, *, initial_backoff_s: float, max_backoff_s: float, flush_s: float) -> None:
        """Applies to failures from now on; running backoffs keep their end."""
        self._initial_backoff_s = initial_backoff_s
        self._max_backoff_s = max_backoff_s
        self._flush_s = flush_s

    @property
    def n_active(self) -> int:
        """Groups waiting for their turn."""
        return self._n_active

    @property
    def waiting(self) -> Iterable[Group]:
        """Groups that hold room without binding: in Permit, or until their victims are gone."""
        return self._waiting.values()

    def key_of(self, group: Group) -> tuple[Any, ...]:
        """Returns QueueSort's key, within the group's lane where there are lanes."""
        return self.order.key_or_last(group)

    def activate(self, group: Group, cause: Cause) -> None:
        """Puts a group in line; a group already in line moves to the place of its current key.

        A group that is WAITING stays so and is reconsidered (a member or a sibling has come).
        """
        self._leave_unschedulable(group)
        before = move(group, cause, self._clock.now_s)
        if group.state is not WAITING:
            if before is WAITING:
                self._waiting.pop(group.key, None)
            self._tell(group, before)
            group.deadline_s = NEVER_S
        self._line_up(group)

    def rebuild(self, groups: Iterable[Group]) -> None:
        """Puts each group where its state says, whatever a step that failed halfway left behind."""
        self._active, self._unschedulable, self._waiting, self._missed = [], {}, {}, {}
        self._one_line = BackingOff()
        self._timers.forget(DeadlineKind.STATE)
        self._n_active = 0
        if self.lanes is not None:
            self.lanes.clear()
        for group in groups:
            if group.state is WAITING:
                self._waiting[group.key] = group
            is_in_line = group.state is GroupState.ACTIVE or (group.active_token and group.state is WAITING)
            group.active_token = 0
            if is_in_line:
                self._line_up(group)
            elif group.state is GroupState.UNSCHEDULABLE:
                self._unschedulable[group.key] = group
            self.set_deadline(group, group.deadline_s)

    def _line_up(self, group: Group) -> None:
        if not group.active_token:
            self._n_active += 1
        self.n_lined_up += 1
        group.active_token = self.n_lined_up
        if self.lanes is not None and not group.is_completing:
            self.lanes.push(group, self.order.key_or_last(group), self.n_lined_up)
            return
        key = (not group.is_completing, self.order.key_or_last(group), group.key, self.n_lined_up, group)
        heapq.heappush(self._active, key)

    def in_line(self) -> Iterator[Group]:
        """Yields the groups that `pop_active` would return next, in order; with lanes, a best guess.

        The line must not change meanwhile.
        """
        for *_, token, group in in_order(self._active):
            if group.active_token == token:
                yield group
        if self.lanes is not None:
            yield from self.lanes.in_line()

    def pop_active(self) -> Group | None:
        """Takes the next group out of line and returns it; None when nothing can be tried now."""
        while self._active:
            *_, token, group = heapq.heappop(self._active)
            if group.active_token == token:
                group.active_token = 0
                self._n_active -= 1
                return group
        first = self.lanes.pop() if self.lanes is not None else None
        if first is not None:
            first.active_token = 0
            self._n_active -= 1
        return first

    def leave_line(self, group: Group) -> None:
        """Takes a group out of line, wherever it goes next."""
        if group.active_token:
            group.active_token = 0
            self._n_active -= 1
        self._leave_unschedulable(group)

    def park(self, group: Group, cause: Cause, deadline_s: float = NEVER_S) -> None:
        """Takes a group out of line; the state that the cause leads to may time out at `deadline_s`."""
        self.leave_line(group)
        before = move(group, cause, self._clock.now_s)
        if group.state is WAITING:
            self._waiting[group.key] = group
        elif before is WAITING:
            self._waiting.pop(group.key, None)
        if group.state is ASKING:
            self._missed.setdefault(group.key, [])
        elif self._missed:
            self._missed.pop(group.key, None)
        if cause is _PERMITTED or (cause is _TIME_IS_UP and self._early.is_whole_backoff(group)):
            group.n_early = 0
        self._tell(group, before)
        self.set_deadline(group, deadline_s)
        if cause in _IN_VAIN:
            self._early.retry_left_out(group, self._clock.now_s)

    def reject(self, group: Group, cause: Cause, now_s: float, *, was_tried: bool = True) -> None:
        """Records a failed attempt: unschedulable until a curing change, and at least until its backoff is
        over. A change that came while extenders were asked about its nodes counts as if it came now.

        was_tried: False where another group is in the way: it waits as after a first failure, each time.
        """
        group.failure += was_tried
        group.backoff_until_s = now_s + self.backoff_s(group.failure if was_tried else 1)
        missed = self._missed.get(group.key)
        self.set_aside(group, cause, now_s)
        if missed and self._waking.cured_by(missed).may_cure(group):
            self.wake(group, Cause.CURED, now_s)

    def set_aside(self, group: Group, cause: Cause, now_s: float) -> None:
        """Keeps a group out of line as unschedulable. By itself it is no failed attempt: a gang refused as it
        is written has not been tried, and has its turn as soon as it is corrected."""
        self.park(group, cause, now_s + self._flush_s)
        self._unschedulable[group.key] = group

    def back_off(self, group: Group, cause: Cause, now_s: float) -> None:
        """Records a failed attempt that time alone may cure: tried again when its backoff is over."""
        group.failure += 1
        group.backoff_until_s = now_s + self.backoff_s(group.failure)
        self.park(group, cause, group.backoff_until_s)

    def backoff_s(self, n_failures: int) -> float:
        """1, 2, 4, 8, 10, 10, … with the defaults."""
        doubled = self._initial_backoff_s * 2.0 ** min(n_failures - 1, 30)
        return min(doubled, self._max_backoff_s)

    def wake(self, group: Group, cause: Cause, now_s: float) -> None:
        """Puts a group that may be cured in line, or lets it wait out its backoff first.

        A group with a claim has room kept for it, so it skips the backoff; others may have an early turn. Not
        where a plugin refuses it: two such groups would wake each other by what each gives back.
        """
        if group.state is GroupState.UNSCHEDULABLE:
            claims = self._shared.claims
            is_awaited = claims is not None and claims.claim(group) is not None
            is_awaited = is_awaited and any(template is not None for _, template in group.rejected_by)
            if group.backoff_until_s > now_s and not is_awaited:
                self.park(group, Cause.CURED_EARLY, group.backoff_until_s)
                if self._waking.lacks_room(group):
                    lane = "" if self.lanes is None else self.lanes.name_of(group)
                    self._backing_off.put(lane, self.order.key_or_last(group), group)
            else:
                self.activate(group, cause)

    def wake_cured(self, changes: Iterable[ClusterChange], now_s: float) -> None:
        """Wakes the groups that one of the changes can cure: those that are unschedulable, wait for the end
        of a backoff or for victims, or will know that they are unschedulable once extenders have answered."""
        waiting = self._backing_off
        preempting = [g for g in self._waiting.values() if _waits_for_victims(g)] if self._waiting else ()
        if not self._unschedulable and not waiting and not preempting and not self._missed:
            return
        every = new = list(changes)
        for key, missed in self._missed.items():
            self._missed[key] = missed + new if len(missed) < _MAX_MISSED else _merged(missed + new)
        if len(new) * len(self._unschedulable) > _MAX_PAIRS and not self._are_alike(len(new)):
            new = _merged(new)
        if not new:
            return
        cures = self._waking.cured_by(new)
        waits = [group for group in self._unschedulable.values() if not group.problem]
        for group in [group for group in waits if cures.may_cure(group)]:
            self.wake(group, Cause.CURED, now_s)
        news = [group for group in preempting if cures.is_news(group)]
        if waiting or news:
            claims = self._shared.claims
            has_claims = claims is not None and bool(claims.by_key)
            self._early.try_early(waiting, news, cures, every, now_s, has_claims=has_claims)

    def _are_alike(self, n: int) -> bool:
        """Whether n changes times the kinds of waiting groups stay within the limit; only asked where claims
        exist, as new changes would wake groups for room that is kept from them."""
        claims = self._shared.claims
        if claims is None or not claims.by_key:
            return False
        kinds = {(group.scheduler_name, group.rejected_by) for group in self._unschedulable.values()}
        return n * len(kinds) <= _MAX_PAIRS

    def end_backoff(self, group: Group, now_s: float) -> None:
        """Ends the backoff of a group that was refused, as it is no longer what was tried."""
        if group.state is GroupState.UNSCHEDULABLE or group in self._backing_off:
            group.backoff_until_s = min(group.backoff_until_s, now_s)
            if group.state is GroupState.BACKOFF:
                self.activate(group, Cause.CURED)

    def ends_edited(self, edited: Mapping[str, PodInfo], now_s: float) -> None:
        """Wakes groups whose claims wait for one of these running pods (by UID), which may end at another
        time."""
        claims = self._shared.claims
        for claim in claims.waiting_for_ends(edited) if claims is not None else ():
            self.wake(claim.unit[0], Cause.CURED, now_s)

    def set_deadline(self, group: Group, deadline_s: float) -> None:
        """Sets when the group's present state times out; replaces an earlier deadline."""
        group.deadline_s = deadline_s
        self._timers.push(deadline_s, DeadlineKind.STATE, group)

    def due(self, now_s: float) -> list[Group]:
        """Returns groups whose deadline has passed, earliest first; each is returned once.

        With lanes, backoffs that end soon after one another end together. Otherwise, of two lanes tried while
        both hold nothing, all groups of one would be tried first and take all room freed meanwhile. Source of
        the idea: kube-scheduler `backend/queue/backoff_queue.go`, where groups that leave backoff within the
        same second go by their order.
        """
        groups = list(dict.fromkeys(self._timers.take(DeadlineKind.STATE, now_s)))
        if self.lanes is not None and any(group.state is GroupState.BACKOFF for group in groups):
            groups += self._over_too(now_s + self._initial_backoff_s * _TOGETHER)
        for group in groups:
            group.deadline_s = NEVER_S
        return groups

    def _over_too(self, until_s: float) -> list[Group]:
        """Removes and returns groups whose backoff ends by then."""
        found = []
        for group in dict.fromkeys(self._timers.take(DeadlineKind.STATE, until_s)):
            if group.state is GroupState.BACKOFF:
                found.append(group)
            else:
                self.set_deadline(group, group.deadline_s)
        return found

    def forget(self, group: Group) -> None:
        """Forgets a deleted group. A heap may keep it for minutes, so it must not keep its templates."""
        self.park(group, Cause.GONE)
        group.rejected_by = ()

    def _tell(self, group: Group, before: GroupState) -> None:
        if self.observer is not None:
            self.observer.moved(group, before)
        if (claims := self._shared.claims) is not None:
            claims.moved(group)
        if self.bypasses is not None:
            self.bypasses.moved(group)

    @property
    def _backing_off(self) -> BackingOff:
        """Groups backing off that room may cure: the order of the line decides which of them gets it."""
        return self._one_line if self.lanes is None else self.lanes.backing_off

    def _leave_unschedulable(self, group: Group) -> None:
        self._unschedulable.pop(group.key, None)
        if group.state is GroupState.BACKOFF:
            self._backing_off.drop(group)


def _waits_for_victims(group: Group) -> bool:
    """Whether a waiting group stands for a unit that waits for victims and is not in line anyway."""
    preemption = group.preemption
    return preemption is not None and preemption.unit[0] is group and not group.active_token


def _merged(changes: list[ClusterChange]) -> list[ClusterChange]:
    by_kind: dict[tuple[int, str], ClusterChange] = {}
    for change in changes:
        known = by_kind.get((change.what.value, change.kind))
        resources = change.resources | known.resources if known else change.resources
        ports = change.ports or (known is not None and known.ports)
        merged = ClusterChange(change.what, -1, resources, ports, kind=change.kind)
        by_kind[change.what.value, change.kind] = merged
    return list(by_kind.values())
