"""The Binding's table: every state that a member's Binding can be in, and what moves it on.

`move_bind` is the one place where `PodInfo.bind` is written, as core.state.tables.groups.move is for a
group's state. A pair of state and cause that the table does not have is a defect. Here is what is known of
one Binding; what becomes of its gang, once answers are in, is decided by core.binding.group_outcome.

The state tells what may still happen at the API server: in `sent`, `reading` and `bumping` the Binding may
take effect, so the member's node and devices stay reserved; in the others it cannot.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

from gangsched.core.state.tables.table import draw, edges
from gangsched.core.types.group import BindState, PodInfo
from gangsched.errors import InvariantError


class BindCause(enum.Enum):
    """Why a Binding is moved."""

    # Two moves for every pod; Enum's own hash is a call into Python.
    __hash__ = object.__hash__

    PREPARES = "PreBind is called for its gang, or the gang waits for its turn on a node"
    PREPARED = "PreBind has ended for the whole gang, well or not"
    HOLDS = "kubelet could confuse it with another pod that is due"
    SENDS = "it is sent, for the first time or again"
    LANDED = "the API server has answered that the pod is bound"
    UNCLEAR = "its answer is lost, or says neither: the server is asked"
    NOT_BOUND = "a consistent read shows no node: the same Binding is sent again"
    IN_DOUBT = "it is given up, and one that was sent may still land"
    FREED = "it is given up, and none that was sent can land any more"
    WITHDRAWN = "it is given up before it was sent"
    SEEN = "the watch shows the pod on a node, or ended"
    NOT_TAKEN_IN = "our own code failed on the server's answer"
    CONTAINED = "our own code failed on its group, and what was not sent is given back"
    DROPPED = "our own code failed on its pod, which counts as another scheduler's from now on"


_NONE, _PREPARING, _HELD = BindState.NONE, BindState.PREPARING, BindState.HELD
_SENT, _READING, _BUMPING = BindState.SENT, BindState.READING, BindState.BUMPING
_ANY = tuple(BindState)

_ROWS: tuple[tuple[Sequence[BindState], BindCause, BindState], ...] = (
    ((_NONE,), BindCause.PREPARES, _PREPARING),
    ((_PREPARING,), BindCause.PREPARED, _NONE),
    ((_NONE, _HELD), BindCause.HOLDS, _HELD),
    ((_NONE, _HELD, _SENT), BindCause.SENDS, _SENT),
    ((_SENT,), BindCause.LANDED, _NONE),
    ((_SENT,), BindCause.UNCLEAR, _READING),
    ((_READING,), BindCause.NOT_BOUND, _SENT),
    ((_SENT, _READING), BindCause.IN_DOUBT, _BUMPING),
    ((_SENT, _READING, _BUMPING), BindCause.FREED, _NONE),
    ((_NONE, _PREPARING, _HELD), BindCause.WITHDRAWN, _NONE),
    (_ANY, BindCause.SEEN, _NONE),
    ((_NONE, _SENT), BindCause.NOT_TAKEN_IN, _SENT),
    (_ANY, BindCause.CONTAINED, _NONE),
    (_ANY, BindCause.DROPPED, _NONE),
)

BINDS = edges(_ROWS)
"""Every possible move."""


def move_bind(info: PodInfo, cause: BindCause) -> None:
    """Puts the member's Binding into the state that the table gives.

    Raises: InvariantError (the table has no such move).
    """
    to = BINDS.get((info.bind, cause))
    if to is None:
        raise InvariantError(
            f"the Binding of {info.pod.key} is {info.bind.value} and cannot be moved by {cause.name}"
        )
    info.bind = to


def move_binds(members: Iterable[PodInfo], cause: BindCause) -> None:
    """Does so for many members, nearly always all in one state: this runs for every pod."""
    before, to = None, None
    for info in members:
        if info.bind is not before:
            before = info.bind
            to = BINDS.get((before, cause))
        if to is None:
            move_bind(info, cause)
        else:
            info.bind = to


def drawn() -> str:
    """Draws the table for docs/failed-binds.md."""
    return draw(_ROWS, _ANY)
