"""What a failed attempt lacked, beyond counted reasons: what is reserved, too small, misspelt, unhealthy.

Computed once for an attempt that failed for good, from what the cycle left behind (core.framework.plan's
Shortage). The work is bounded, so that a rejected gang costs no more on a large cluster than its reasons did.
A sentence changes only when what it names does: a condition is written again whenever its text changes.
Called by core.groups.attempts.attempts for the condition and by core.explaining.explain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from gangsched.core.cache.trial import ClusterView
from gangsched.core.cache.view.devices import DeviceQueries
from gangsched.core.cache.view.nodes import NodeQueries
from gangsched.core.cycle.near_names import near_names
from gangsched.core.framework.plan import Shortage
from gangsched.core.types.arrays import NO_LIMIT, BoolArray, IntArray
from gangsched.core.types.group import NO_ROW, Group, MemberState, PodInfo
from gangsched.core.why import MAX_NAMED, Why
from gangsched.core.why.nodes import ReservedBy, TakenByItself, TooFewNodes, UnhealthyDevices
from gangsched.model.text.printable import marked

# Limits: names in one sentence; groups, members and nodes looked at for it.
_MAX_GROUPS = 64
_MAX_MEMBERS = 10_000
_MAX_ROWS = 64


class Lack(NamedTuple):
    """A resource short on nodes that otherwise suit a member. Shapes: free int64[n_rows]; rows bool[n_rows],
    those nodes."""

    resource: str
    amount: int
    free: IntArray
    rows: BoolArray


def lack_sentences(
    short: Shortage,
    group: Group,
    waiting: Iterable[Group],
    name: Callable[[Group], str] = lambda other: marked("gang", [str(other.key)]),
) -> Iterator[Why]:
    """Yields sentences for the group's condition. waiting: groups that hold room without binding; name: gives
    their names."""
    yield from near_names(short)
    found = lacks(short)
    if not found:
        return
    if small := too_small(short):
        yield small
    elif n_own := int((found[0].rows & _own_rows(short, found[0])).sum()):
        yield TakenByItself(n_own)
    for lack in found:
        if by := reserved_by(lack, short, group, waiting):
            yield ReservedBy(lack.resource, tuple((name(other), n) for other, n in by.items()))
    if ill := unhealthy(found, short.trial):
        yield UnhealthyDevices(tuple(ill[:MAX_NAMED]), max(len(ill) - MAX_NAMED, 0))


def lacks(short: Shortage) -> list[Lack]:
    """Returns the resources that are short on nodes that otherwise suit the member."""
    template, trial = short.template, short.trial
    found = []
    for resource, column, amount in zip(template.names, template.columns, template.amounts, strict=True):
        free = room_of(trial, resource, column)
        rows = short.suits & (free < amount)
        if np.count_nonzero(rows):
            found.append(Lack(resource, amount, free, rows))
    return found


def room_of(view: ClusterView, resource: str, column: int) -> IntArray:
    """int64[n_rows]: the free amount of a resource; for listed devices only healthy ones."""
    free, listed = view.free(column), view.device_free(resource)
    return free if listed is None else np.where(listed < 0, free, np.minimum(free, listed))


def n_when_empty(short: Shortage) -> int:
    """Counts the members that would fit on the nodes that suit them if nothing else ran there."""
    template, trial = short.template, short.trial
    room: IntArray = np.where(short.suits, NO_LIMIT, 0)
    for column, amount in zip(template.columns, template.amounts, strict=True):
        if amount:
            room = np.minimum(room, trial.allocatable(column) // amount)
    return 0 if template.missing else int(np.minimum(room, short.n_wanted).sum())


def n_too_many(short: Shortage) -> int:
    """Counts the members to be placed that would have no room on empty nodes either; 0 where it is unknown.

    Neither running members nor what they use is counted: their nodes may suit no new member, and they may
    need less or more than it.
    """
    if not short.is_alike or not short.suits.any():
        return 0
    return max(0, short.n_wanted - short.n_held - n_when_empty(short))


def too_small(short: Shortage) -> TooFewNodes | None:
    """Returns the reason if the group would not fit even on empty nodes."""
    if not (n_more := n_too_many(short)):
        return None
    n = short.n_wanted - short.n_held
    return TooFewNodes(n - n_more, n)


def reserved_by(lack: Lack, short: Shortage, group: Group, waiting: Iterable[Group]) -> dict[Group, int]:
    """Group -> how much of the resource it has reserved, or is promised, on nodes that suit the member."""
    found: Counter[Group] = Counter()
    n_left = _MAX_MEMBERS
    for other in islice(waiting, _MAX_GROUPS):
        if other is group or n_left < len(other.members):
            continue
        n_left -= len(other.members)
        for info in other.members.values():
            row = _reserved_row(info, other, short.trial)
            if row != NO_ROW and short.suits[row]:
                found[other] += info.template.requests.get(lack.resource, 0)
    return {other: n for other, n in found.most_common() if n}


def _reserved_row(info: PodInfo, group: Group, view: NodeQueries) -> int:
    """Returns the row where room is reserved for a member, or NO_ROW. Not every member of a group that waits
    for victims has some."""
    if info.state is MemberState.ASSUMED:
        return info.row
    if info.state is not MemberState.PENDING or group.preemption is None:
        return NO_ROW
    row = view.row_of(group.preemption.node_names.get(info.uid, ""))
    return NO_ROW if row is None else row


def unhealthy(found: Sequence[Lack], view: DeviceQueries) -> list[tuple[str, str]]:
    """(ID, node) of unhealthy devices, on the first nodes that are short."""
    lines = []
    for lack in found:
        if not view.has_unhealthy(lack.resource):
            continue
        for row in np.flatnonzero(lack.rows)[:_MAX_ROWS].tolist():
            inventory = view.inventory(row, lack.resource)
            if inventory is not None and inventory.healthy.bit_count() < len(inventory.ids):
                ill = [one for i, one in enumerate(inventory.ids) if not inventory.healthy >> i & 1]
                lines += [(one, view.name(row)) for one in ill]
    return lines


def _own_rows(short: Shortage, lack: Lack) -> BoolArray:
    """bool[n_rows]: nodes that had room for the member before members of its template were placed there."""
    rows = np.zeros(len(short.suits), dtype=np.bool_)
    mine = [row for row, template in short.own if template is short.template]
    if mine:
        column = short.trial.table.column(lack.resource)
        rows[mine] = room_of(short.trial.base(), lack.resource, column)[mine] >= lack.amount
    return rows
