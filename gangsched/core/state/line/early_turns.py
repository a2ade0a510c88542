"""EarlyTurns: groups that wait for the end of a backoff, or for victims, get a turn when room would do.

A failed attempt must not cost a group its place: freed room is given in the order of the line, whichever
group was tried last. So the first groups in line are asked about what has changed (Cures), and those for
which the free room adds up have their turn at once; if one of them does not take it, those that were left out
for it have theirs. A turn that was in vain all the same delays the next one, so that a stream of changes
costs a group that cannot start no more than about one turn for each doubling of its backoff. Called by
core.state.line.queue. Not here: what a change cures (core.state.line.waking), the sums
(core.state.line.enough), places in line (core.state.line.queue).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import merge
from typing import Any, Protocol

from gangsched.core.state.line.backing_off import BackingOff
from gangsched.core.state.line.enough import Sums
from gangsched.core.state.line.lanes import Lanes
from gangsched.core.state.tables.groups import Cause
from gangsched.core.types.cluster_events import Change, ClusterChange
from gangsched.core.types.group import Group, GroupState

# What a changed node counts for: it may have room for several groups, where a pod that ends makes room for
# one.
_NODES = (
    Change.NODE_ADDED
    | Change.NODE_ALLOCATABLE
    | Change.NODE_LABELS
    | Change.NODE_TAINTS
    | Change.NODE_DEVICES
)
_OF_A_NODE = 8
# With lanes, a group that has waited for this part of a first backoff is tried when something frees room: one
# pod that ends gets all groups but one refused, and what is freed soon after would stand idle. With more than
# a few lanes the part is larger: in one of them a group is due anyway, and each group tried costs a turn.
_LEAST_IN_LANES = 0.1
_FEW_LANES = 8
# After an early turn in vain the next is at least this part of a first backoff later, and twice as late after
# each further one.
_LEAST_PAUSE = 0.1
# So many groups have a turn at once for what one in front of them did not take after all.
_MAX_LEFT_OUT = 8
# So many failures that the backoff is as long as it gets.
_MANY = 31


class Cures(Protocol):
    """Which groups some changes may cure; core.state.line.waking has the one implementation."""

    def may_cure(self, group: Group) -> bool:
        """Whether the group may fit now."""
        ...

    def is_news(self, group: Group) -> bool:
        """Likewise, for a group that waits for victims: beside the room that is kept for units like it."""
        ...

    def sums(self, group: Group) -> Sums:
        """Says whether what is free adds up for the group; if so, it counts as taken for the groups that are
        asked about later."""
        ...


class Line(Protocol):
    """The line that turns are given in; core.state.line.queue has the one implementation."""

    lanes: Lanes | None

    def key_of(self, group: Group) -> tuple[Any, ...]:
        """Returns QueueSort's key."""
        ...

    def backoff_s(self, n_failures: int) -> float:
        """Returns how long a group waits after so many failed attempts."""
        ...

    def activate(self, group: Group, cause: Cause) -> None:
        """Puts a group in line."""
        ...

    def set_deadline(self, group: Group, deadline_s: float) -> None:
        """Sets when the group's present state times out."""
        ...


class EarlyTurns:
    """Gives turns before their time."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._counted: list[Group] = []
        """The groups that were counted as taking the room, when it was last heard of."""
        self._left_out: list[Group] = []
        """In order, those for which there would have been enough without them."""

    def try_early(
        self,
        waiting: BackingOff,
        preempting: Iterable[Group],
        cures: Cures,
        changes: Sequence[ClusterChange],
        now_s: float,
        *,
        has_claims: bool,
    ) -> None:
        """Tries the groups that wait for victims, and the first ones that wait for the end of a backoff, if
        what is free adds up for them: in order, as the first ones take it.

        With lanes, or beside claims, also groups for which it does not, once they have waited for part of a
        first backoff.
        """
        lanes = self._line.lanes
        n = sum(_OF_A_NODE if change.what in _NODES else 1 for change in changes)
        if lanes is not None:
            self._end_in_lanes(waiting, cures, n, now_s)
        heads = self._heads(waiting, n, lanes)
        self._counted, self._left_out = [], []
        in_order = self._place if lanes is None else _least_important_last
        for group in merge(sorted(preempting, key=self._place), heads, key=in_order):
            sums = cures.sums(group)
            if sums is Sums.ENOUGH:
                self._counted.append(group)
                self._try(group, now_s)
            elif has_claims and lanes is None and self._has_waited(group, now_s) and cures.may_cure(group):
                group.backoff_until_s = now_s
                self._line.activate(group, Cause.CURED)
            elif sums is Sums.LEFT_OUT and len(self._left_out) < _MAX_LEFT_OUT:
                self._left_out.append(group)
        if any(_waits(group) for group in self._counted):
            self._try_left_out(now_s)

    def retry_left_out(self, group: Group, now_s: float) -> None:
        """Gives the groups a turn for which too little was left beside this group, which does not fit."""
        if any(one is group for one in self._counted):
            self._try_left_out(now_s)

    def _try_left_out(self, now_s: float) -> None:
        left_out, self._counted, self._left_out = self._left_out, [], []
        for group in left_out:
            if _waits(group):
                self._try(group, now_s)

    def _has_waited(self, group: Group, now_s: float) -> bool:
        """Whether it has waited for a first backoff: beside claims it may fit where no sum shows it."""
        return group.state is GroupState.BACKOFF and now_s >= group.tried_s + self._line.backoff_s(1)

    def _heads(self, waiting: BackingOff, n: int, lanes: Lanes | None) -> list[Group]:
        """Returns the first groups that wait for the end of a backoff, in order; with lanes n of each: the
        first of each lane by the lanes' keys, then the second of each."""
        found: list[tuple[tuple[Any, ...], Group]] = []
        n_of_lane: dict[str, int] = {}

        def note(group: Group) -> bool:
            if group.state is not GroupState.BACKOFF:
                return False
            if lanes is None:
                found.append((self._place(group), group))
                return False
            name = lanes.name_of(group)
            place = n_of_lane[name] = n_of_lane.get(name, 0) + 1
            if place <= n:
                found.append(((place, lanes.key_of(group), name), group))
            return False

        waiting.take(note, n)
        return [group for _, group in sorted(found, key=lambda one: one[0])]

    def _end_in_lanes(self, waiting: BackingOff, cures: Cures, n: int, now_s: float) -> None:
        """Ends the backoff of the first groups of each lane that have waited for a moment and may be cured,
        whether or not the sums are enough for all of them: the lanes' keys decide between them."""
        part = min(max(waiting.n_lanes / _FEW_LANES, 1.0) * _LEAST_IN_LANES, 1.0)
        least_s = self._line.backoff_s(1) * part

        def is_due(group: Group) -> bool:
            may_go = group.state is GroupState.BACKOFF and now_s >= group.tried_s + least_s
            return may_go and cures.may_cure(group)

        for group in waiting.take(is_due, n):
            group.backoff_until_s = now_s
            self._line.activate(group, Cause.CURED)

    def _place(self, group: Group) -> tuple[Any, ...]:
        return not group.is_completing, self._line.key_of(group), group.key

    def _try(self, group: Group, now_s: float) -> None:
        """Puts a group in line; after turns that were in vain, a little later."""
        from_s = group.tried_s
        if group.n_early:
            pause_s = self._line.backoff_s(1) * _LEAST_PAUSE * 2.0 ** min(group.n_early - 1, _MANY)
            from_s += min(pause_s, self._line.backoff_s(_MANY))
        if now_s >= from_s:
            group.n_early += 1
            group.backoff_until_s = min(group.backoff_until_s, now_s)
            self._line.activate(group, Cause.LOOK_AGAIN if group.state is GroupState.WAITING else Cause.CURED)
        elif group.state is GroupState.WAITING:
            assert group.preemption is not None
            group.preemption.looks_at_s = from_s
            self._line.set_deadline(group, min(group.deadline_s, from_s))
        elif from_s < group.deadline_s:
            group.n_early += 1
            self._end_at(group, from_s)

    def _end_at(self, group: Group, when_s: float) -> None:
        group.backoff_until_s = when_s
        self._line.set_deadline(group, when_s)

    def is_whole_backoff(self, group: Group) -> bool:
        """Whether the group has waited, or waits, as long as its failures ask for."""
        return group.backoff_until_s >= group.tried_s + self._line.backoff_s(max(group.failure, 1))


def _least_important_last(group: Group) -> tuple[Any, ...]:
    return (-group.priority,)


def _waits(group: Group) -> bool:
    """Whether it waits for room: of those in Waiting, who waits for victims and not with its reservations."""
    if group.state is GroupState.WAITING:
        return group.preemption is not None and not group.active_token
    return group.state is GroupState.BACKOFF and not group.active_token
