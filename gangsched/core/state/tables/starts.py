"""The start's table: how far a gang's start has come, and what moves it on.

`move_start` is the one place where `Group.start` is written. It stands beside core.state.tables.groups, which
says where the group is in the queue: a gang bound in part, and one that has started and gets more members,
pass through the same places in line as one that is new, and differ in what holds for them there. A pair of
state and cause that the table does not have is a defect.

    not started    holds no node, or the ones it holds are not decided on yet: all of it is placed together
    completing     bound in part: first in line, its bound members count, and its time runs (settle_s)
    started        was bound whole: members that come or go later are placed one by one
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from gangsched.core.state.tables.table import draw, edges
from gangsched.core.types.group import Group
from gangsched.core.types.states import StartState
from gangsched.errors import InvariantError


class StartCause(enum.Enum):
    """Why a gang's start is moved."""

    # Looked up for every gang; Enum's own hash is a call into Python.
    __hash__ = object.__hash__

    WHOLE = "as many members run as it needs, or ran by what its Bindings say"
    IN_PART = "it is bound in part, and the rest is to be placed first"
    GIVEN_UP = "it is unwound, or evicted whole"
    NOBODY_LEFT = "no member of the former gang holds a node, or counts as having succeeded"
    REFUSED = "kubelet has refused a member before it ran"


_NOT, _COMPLETING, _STARTED = StartState.NOT_STARTED, StartState.COMPLETING, StartState.STARTED

_ROWS: tuple[tuple[Sequence[StartState], StartCause, StartState], ...] = (
    ((_NOT, _COMPLETING), StartCause.WHOLE, _STARTED),
    ((_NOT,), StartCause.IN_PART, _COMPLETING),
    ((_COMPLETING,), StartCause.GIVEN_UP, _NOT),
    ((_COMPLETING, _STARTED), StartCause.NOBODY_LEFT, _NOT),
    ((_STARTED,), StartCause.REFUSED, _NOT),
)

STARTS = edges(_ROWS)
"""Every possible move."""


def move_start(group: Group, cause: StartCause) -> None:
    """Puts the gang's start into the state that the table gives.

    Raises: InvariantError (the table has no such move).
    """
    to = STARTS.get((group.start, cause))
    if to is None:
        raise InvariantError(f"{group.key} is {group.start.value} and cannot be moved by {cause.name}")
    group.start = to


def drawn() -> str:
    """Draws the table for docs/failed-binds.md."""
    return draw(_ROWS, tuple(StartState))
