"""The gang's table: every state that a group can be in, what moves it on, and where to; and its story.

`move` is the one place where a group's state is written. A pair of state and cause that the table does not
have is a defect, reported with the group's story. A story keeps only causes and times; the table gives the
states. The callers decide when a cause applies: attempts, binding, gang, nomination and others, through the
queue, which keeps each group where its state says. How far a gang's start has come is in
core.state.tables.starts, what is known of a Binding in core.state.tables.binds.

Why two gangs never wait for each other. A group holds reservations without binding only in Waiting, and it
enters Waiting only when every existing member of every group that is yet to start with it is reserved too
(they are placed on one Trial, all or nothing). So what a Waiting group waits for is always something that
does not exist yet: a pod or a group that its user has still to create. When that comes and does not fit
beside what is held, all the set's reservations are released in the same turn before it is tried again as one
piece (Attempts.decide), and groups of a set leave Waiting together. Hence no edge "waits for" ever points
from a group that holds to a group that holds: there can be no cycle, and the deadline is for users who never
create the rest, not for deadlocks. A group that waits for its victims holds no pod's reservation: it waits
for pods that are being evicted, and those wait for nothing. tests/sim/test_no_deadlock.py draws that graph
after every turn.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from typing import NamedTuple

from gangsched.core.state.tables.table import draw, edges
from gangsched.core.types.group import Group, GroupState
from gangsched.errors import InvariantError

_MAX_MOVES = 64
"""Moves kept in one group's story; beyond this the oldest half is dropped."""


class Cause(enum.Enum):
    """Why a group is moved, as shown in its story."""

    # Every move looks its pair up; Enum's own hash is a call into Python.
    __hash__ = object.__hash__

    COMPLETE = "enough members exist and its numbers are known"
    INCOMPLETE = "members are missing"
    GATED = "every member that is left is gated"
    NOTHING_PENDING = "no member is pending, none is bound"
    PROBLEM = "what is asked cannot be done as it is written"
    ASKED_EXTENDERS = "extenders are asked about its nodes"
    EXTENDERS_ANSWERED = "the extenders have answered"
    EXTENDERS_FAILED = "an extender failed or did not answer in time"
    PERMITTED = "all are reserved, every Permit said yes"
    PERMIT_WAITS = "all are reserved, a Permit plugin said wait"
    PREEMPTS = "room is promised once victims are gone"
    REJECTED = "the attempt failed: no room, or a plugin said no"
    SAID_LATER = "the attempt failed; the plugin will say when to look again"
    GAVE_BACK = "what it held was given back"
    LOOK_AGAIN = "what it waits for has changed"
    PLACE_CHANGED = "its place in line has changed"
    CURED = "a change may have cured it"
    CURED_EARLY = "a change may have cured it, its backoff is not over"
    TIME_IS_UP = "its backoff, or the flush of the unschedulable, is due"
    ALL_BOUND = "every bind landed"
    BOUND_ELSEWHERE = "its members are bound and none is pending"
    MORE_MEMBERS = "members came to a gang that is bound"
    BIND_FAILED = "a bind failed for good: none landed, or the gang has started without it"
    HALF_BOUND = "bound in part: the rest is placed first in line"
    HALF_BOUND_AGAIN = "bound in part, and completing it has failed before"
    HALF_BOUND_ALONE = "bound in part, and no member is left to complete it"
    UNWINDS = "bound in part past its limit: bound members are evicted"
    EVICTED = "a device failed: the whole gang is evicted"
    OVERRUN = "it ran past its walltime: all of it is evicted"
    UNWOUND = "the last bound member is gone"
    STAYS = "evictions are not allowed any more: what is left of it stays"
    RECONFIGURED = "the configuration has changed"
    CONTAINED = "our own code failed on it, and what it held was given back"
    CONTAINED_BINDING = "our own code failed on it while binds were on their way"
    GONE = "its last member is gone"


_GATED, _GATHERING, _ACTIVE = GroupState.GATED, GroupState.GATHERING, GroupState.ACTIVE
_ASKING, _BACKOFF, _UNSCHEDULABLE = GroupState.ASKING, GroupState.BACKOFF, GroupState.UNSCHEDULABLE
_WAITING, _BINDING, _BOUND = GroupState.WAITING, GroupState.BINDING, GroupState.BOUND
_UNWINDING, _DELETED = GroupState.UNWINDING, GroupState.DELETED

_AT_REST = (_GATED, _GATHERING, _ACTIVE, _ASKING, _BACKOFF, _UNSCHEDULABLE, _BOUND)
"""States in which nothing is held and no bind is in flight; the members determine the group's place."""
_TRIED = (_ACTIVE, _ASKING, _BACKOFF, _UNSCHEDULABLE, _WAITING)
"""States of an attempt's groups: the one whose turn it is, and those that start together with it."""
_IN_LINE = (_ACTIVE, _WAITING)
"""Waiting groups are in line to be reconsidered, and keep their reservations."""
_ANY = tuple(state for state in GroupState if state is not _DELETED)
_HALF_BOUND = (*_AT_REST, _WAITING, _BINDING)

_ROWS: tuple[tuple[Sequence[GroupState], Cause, GroupState | None], ...] = (
    # The state that its members imply. None: it stays where it is.
    ((_GATED, _GATHERING, _UNSCHEDULABLE, _BOUND), Cause.COMPLETE, _ACTIVE),
    (_AT_REST, Cause.INCOMPLETE, _GATHERING),
    ((*_AT_REST, _WAITING), Cause.NOTHING_PENDING, _GATHERING),
    ((*_AT_REST, _WAITING), Cause.GATED, _GATED),
    ((*_AT_REST, _WAITING), Cause.BOUND_ELSEWHERE, _BOUND),
    (_AT_REST, Cause.PROBLEM, _UNSCHEDULABLE),
    # An attempt, and how it ends.
    ((_ACTIVE, _ASKING), Cause.ASKED_EXTENDERS, _ASKING),
    ((_ASKING,), Cause.EXTENDERS_ANSWERED, _ACTIVE),
    ((_WAITING,), Cause.EXTENDERS_ANSWERED, None),
    ((_ASKING,), Cause.EXTENDERS_FAILED, _BACKOFF),
    (_TRIED, Cause.PERMITTED, _BINDING),
    (_TRIED, Cause.PERMIT_WAITS, _WAITING),
    (_TRIED, Cause.PREEMPTS, _WAITING),
    (_TRIED, Cause.REJECTED, _UNSCHEDULABLE),
    (_TRIED, Cause.SAID_LATER, _BACKOFF),
    # While it waits: through Backoff, if the backoff of the last failure is not over.
    ((_BACKOFF, _UNSCHEDULABLE), Cause.CURED, _ACTIVE),
    ((_UNSCHEDULABLE,), Cause.CURED_EARLY, _BACKOFF),
    ((_BACKOFF, _UNSCHEDULABLE), Cause.TIME_IS_UP, _GATHERING),
    ((_WAITING,), Cause.LOOK_AGAIN, None),
    ((_WAITING,), Cause.GAVE_BACK, _BACKOFF),
    (_IN_LINE, Cause.PLACE_CHANGED, None),
    (_IN_LINE, Cause.RECONFIGURED, None),
    ((_UNSCHEDULABLE,), Cause.RECONFIGURED, _ACTIVE),
    # Binds, and the ways of a gang that is bound in part.
    ((_BINDING,), Cause.ALL_BOUND, _BOUND),
    ((_BOUND,), Cause.MORE_MEMBERS, _ACTIVE),
    ((_BINDING, _BOUND), Cause.BIND_FAILED, _BACKOFF),
    ((*_AT_REST, _BINDING), Cause.HALF_BOUND, _ACTIVE),
    ((_WAITING,), Cause.HALF_BOUND, None),
    (_HALF_BOUND, Cause.HALF_BOUND_AGAIN, _BACKOFF),
    (_HALF_BOUND, Cause.HALF_BOUND_ALONE, _GATHERING),
    (_HALF_BOUND, Cause.UNWINDS, _UNWINDING),
    ((*_AT_REST, _WAITING), Cause.EVICTED, _UNWINDING),
    ((*_AT_REST, _WAITING), Cause.OVERRUN, _UNWINDING),
    ((_UNWINDING,), Cause.UNWOUND, _BACKOFF),
    ((_UNWINDING,), Cause.STAYS, _GATHERING),
    # A fault of ours (core.turns.containment), and the end.
    (_ANY, Cause.CONTAINED, _BACKOFF),
    (_ANY, Cause.CONTAINED_BINDING, _BINDING),
    (_ANY, Cause.GONE, _DELETED),
)

TRANSITIONS = edges(_ROWS)
"""Every possible move."""


class Moved(NamedTuple):
    """One move of a group. at_s: by the core's clock."""

    at_s: float
    cause: Cause
    before: GroupState
    state: GroupState


def move(group: Group, cause: Cause, now_s: float) -> GroupState:
    """Puts the group into the state that the table gives; returns the previous one.

    Raises: InvariantError (the table has no such move).
    """
    before = group.state
    state = TRANSITIONS.get((before, cause))
    if state is None:
        lines = [f"{moved.at_s:.3f} {moved.state.value}: {moved.cause.value}" for moved in story(group)]
        raise InvariantError(
            f"{group.key} is {before.value} and cannot be moved by {cause.name}", story=lines
        )
    if state is not before:
        group.state = state
        group.since_s = now_s
        moves = group.moves
        if len(moves) >= _MAX_MOVES:
            group.moved_from = _replayed(group, _MAX_MOVES // 2)[-1].state
            del moves[: _MAX_MOVES // 2]
        moves.append((now_s, cause))
    return before


def story(group: Group) -> list[Moved]:
    """The group's moves, oldest first, as far back as they are kept."""
    return _replayed(group, len(group.moves))


def _replayed(group: Group, n_moves: int) -> list[Moved]:
    moves: list[Moved] = []
    state = group.moved_from
    for at_s, cause in group.moves[:n_moves]:
        before, state = state, TRANSITIONS[state, cause]
        moves.append(Moved(at_s, cause, before, state))
    return moves


AFTER_BINDS = frozenset(
    (
        Cause.ALL_BOUND,
        Cause.BIND_FAILED,
        Cause.HALF_BOUND,
        Cause.HALF_BOUND_AGAIN,
        Cause.HALF_BOUND_ALONE,
        Cause.UNWINDS,
        Cause.UNWOUND,
        Cause.STAYS,
    )
)
"""Causes that follow a bind, well or not."""


def drawn(causes: Collection[Cause] = frozenset(Cause)) -> str:
    """Draws the table, or the rows of these causes, for docs/architecture.md and docs/failed-binds.md."""
    return draw([row for row in _ROWS if row[1] in causes], _ANY)
