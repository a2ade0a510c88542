"""When one gang starts, for `gangsched explain --start`: promised, estimated, or what must happen first.

Lives here: the answer for each state, from the gang's page and its row in the queue. Not here: the estimates
(core.estimates), promises (core.queueing.claims). Called by web.commands.explain.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

import msgspec

from gangsched.core.explaining.explain import Explanation
from gangsched.core.types.group import GroupState
from gangsched.model.walltime import LATEST_S
from gangsched.web.commands.queue import LATE_S, duration
from gangsched.web.pages.answers import QueueRow

Kind = Literal["promised", "estimated", "started", "unknown"]

_FIRST = {
    GroupState.GATED: "not before its scheduling gates are taken off",
    GroupState.GATHERING: "not before its members exist",
    GroupState.WAITING: "its room is reserved: it starts as soon as what it waits for has happened",
    GroupState.BINDING: "now: it is being bound",
    GroupState.UNWINDING: "not before its bound pods are gone",
}
_STARTED = (GroupState.BOUND, GroupState.DELETED)
_NO_ENDS = "the scheduler's configuration has no queueing, so it does not count when running pods end"
_NONE = (
    "it is not among the first in line, needs one domain or starts together with others, or what holds its"
    " room has no known end"
)


class Start(msgspec.Struct, frozen=True, rename="camel"):
    """kind: unknown also if something else has to happen first. in_s: seconds from now; from_s, to_s: the
    range in which four in five gangs with this estimate start. nodes: on how many room is kept for it. text:
    the same in words.
    """

    kind: Kind
    text: str
    in_s: float | None = None
    from_s: float | None = None
    to_s: float | None = None
    nodes: int = 0


def start_of(explanation: Explanation, row: QueueRow | None, now: datetime, *, problem: str = "") -> Start:
    """row: the gang's row in the queue, with estimates. problem: why the queue is unavailable."""
    try:
        state = GroupState(explanation.state)
    except ValueError:
        shown = repr(explanation.state[:40])
        return Start(
            "unknown", f"unknown: this version does not know the state {shown}; use the scheduler's version"
        )
    if state in _STARTED:
        return Start("started", "it has started, and has ended" if explanation.end else "it has started")
    if row is not None and row.starts_in_s is not None:
        nodes = f"{row.claimed_nodes} node{'' if row.claimed_nodes == 1 else 's'}"
        how: Kind = "promised" if row.is_promised else "estimated"
        return Start(
            how,
            f"{how}, {_claimed(row.starts_in_s, now, how)}: room is kept for it on {nodes}",
            in_s=row.starts_in_s,
            nodes=row.claimed_nodes,
        )
    if row is not None and row.estimate_in_s is not None:
        return Start(
            "estimated",
            f"estimated, in about {_at(row.estimate_in_s, now)}{_range(row)}, if nothing else comes first",
            in_s=row.estimate_in_s,
            from_s=row.estimate_from_s,
            to_s=row.estimate_to_s,
        )
    if state in _FIRST:
        return Start("unknown", _FIRST[state])
    if problem:
        return Start("unknown", f"unknown: {problem}")
    if row is None or not row.walltime_source:
        return Start("unknown", f"unknown: {_NONE if row is None else _NO_ENDS}")
    return Start("unknown", f"unknown: {_NONE}")


def _claimed(in_s: float, now: datetime, how: Kind) -> str:
    if in_s <= -LATE_S:
        return f"{_at(in_s, now)} ago, but what holds its room has not ended yet"
    return f"{'at the latest in' if how == 'promised' else 'in about'} {_at(in_s, now)}"


def _at(in_s: float, now: datetime) -> str:
    """How far away it is, past or to come, and the date."""
    away = duration(abs(in_s))
    if abs(in_s) >= LATEST_S:  # the gang that holds its room states a walltime of thousands of years
        return away
    return f"{away} ({now + timedelta(seconds=in_s):%Y-%m-%d %H:%M} UTC)"


def _range(row: QueueRow) -> str:
    if row.estimate_from_s is None or row.estimate_to_s is None:
        return ""
    return f", four in five between {duration(row.estimate_from_s)} and {duration(row.estimate_to_s)}"
