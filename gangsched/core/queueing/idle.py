"""How much room claims keep idle: now, with a planned claim, and at most (mode budget); and which queues pay.

Idle is room that is claimed and free; room that short jobs fill meanwhile is not idle. The budget is earned
over time: with 10 %, all claims together may keep as much of each resource idle as the whole cluster offers
in six minutes of each hour, and the unused part is saved for up to a week. A claim that needs more than a
week's budget is made once a week's is saved; the rest is earned afterwards, before any other claim is made.
So if no pod states an end, a gang waits longer for its claim, but still gets one. A claim that slips is
continued on credit.

A claim costs other queues the room that no pod fills meanwhile. It counts as held lately (H of
core.cache.queues.book), not as held now (D, guarantees, limits), so the queue's other groups do not lose
their turn at once. If claims of several queues keep the same free room, the first claim's queue is charged.

Called by core.kept.claiming; read by web.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from gangsched.core.cache.cluster_view import ClusterView
from gangsched.core.cache.queues.book import QueueBook
from gangsched.core.cache.view.room import RoomQueries
from gangsched.core.cache.view.rows import RowQueries
from gangsched.core.queueing.room import ClaimedRoom
from gangsched.core.types.arrays import BoolArray, IntArray
from gangsched.core.types.claim import StartClaim
from gangsched.core.types.placement import Nominated
from gangsched.core.types.templates.pod_template import PodTemplate

_SAVED_FOR_S = 7 * 86_400.0
_CREDIT_S = 86_400.0
# Not counted: each pod takes one of these, and they are never short.
_PODS = "pods"

_Kept = dict[tuple[int, int], int]
"""(row, column) -> the amount claimed there."""


class TooIdle(msgspec.Struct, frozen=True):
    """Why a claim cannot be afforded yet. resource: the one that is short for the longest; from_s: when
    enough of it is earned."""

    resource: str
    from_s: float


class IdleBudget:
    """Earns and spends, per resource, in seconds of the whole cluster's amount."""

    def __init__(self, share: float, now_s: float) -> None:
        self._share = share
        self._at_s = now_s
        self._earned_s = 0.0
        self._saved_s: dict[str, float] = {}
        """Savings of resources that were ever kept idle."""
        self._idle: Mapping[str, float] = {}

    def configure(self, share: float, now_s: float) -> None:
        """Sets how fast the budget is earned from now on."""
        self._pass_to(now_s)
        self._share = share

    def keep(self, idle: Mapping[str, float], now_s: float) -> None:
        """Sets the shares of the cluster that are claimed and free from now on."""
        self._pass_to(now_s)
        self._idle = idle

    def too_idle(self, costs_s: Mapping[str, float], now_s: float) -> TooIdle | None:
        """What a claim with these costs must wait for; None if it can be afforded."""
        self._pass_to(now_s)
        worst, most_s = TooIdle("", now_s), self._share * _SAVED_FOR_S
        for resource, cost_s in sorted(costs_s.items()):
            short_s = min(cost_s, most_s) - self._saved_s.get(resource, self._earned_s)
            if short_s <= 0.0:
                continue
            from_s = now_s + short_s / self._share
            if from_s > worst.from_s:
                worst = TooIdle(resource, from_s)
        return worst if worst.resource else None

    def on_credit(self, costs_s: Mapping[str, float]) -> dict[str, float]:
        """What of these costs a claim that stands must have saved: what is beyond a day's earnings, which are
        earned afterwards, before any other claim is made."""
        credit_s = self._share * _CREDIT_S
        return {resource: cost_s - credit_s for resource, cost_s in costs_s.items()}

    def _pass_to(self, now_s: float) -> None:
        past_s, most_s = now_s - self._at_s, self._share * _SAVED_FOR_S
        if past_s <= 0.0:
            return
        before_s, self._at_s = self._earned_s, now_s
        self._earned_s = min(before_s + past_s * self._share, most_s)
        for resource in dict.fromkeys((*self._saved_s, *self._idle)):
            saved_s = self._saved_s.get(resource, before_s)
            saved_s += past_s * (self._share - self._idle.get(resource, 0.0))
            self._saved_s[resource] = min(saved_s, most_s)


def idle_now(held: Iterable[Nominated], view: RoomQueries) -> dict[str, float]:
    """By resource: the share of the cluster's amount that is claimed and free."""
    kept, names = _kept(held, view)
    amounts: dict[int, int] = {}
    for (row, column), amount in kept.items():
        free = view.free_on((column,), row)[0]
        amounts[column] = amounts.get(column, 0) + min(amount, max(free, 0))
    return {names[column]: amount / _total(column, view) for column, amount in amounts.items() if amount}


def idle_until(
    start_s: float,
    held: Sequence[Nominated],
    view: RoomQueries,
    leaving: Iterable[tuple[int, float, PodTemplate]],
    now_s: float,
) -> dict[str, float]:
    """By resource: what a claim will keep idle until it starts, if no pod fills the room meanwhile, in
    seconds of the whole cluster's amount. leaving: (row, end, template) of each pod that ends before."""
    kept, names = _kept(held, view)
    gains: dict[tuple[int, int], list[tuple[float, int]]] = {place: [] for place in kept}
    for row, end_s, template in leaving:
        for column, amount in zip(template.columns, template.amounts, strict=True):
            if (row, column) in gains:
                gains[row, column].append((max(end_s, now_s), amount))
    costs: dict[int, float] = {}
    for (row, column), amount in kept.items():
        free, at_s = view.free_on((column,), row)[0], now_s
        for end_s, more in [*sorted(gains[row, column]), (start_s, 0)]:
            until_s = min(end_s, start_s)
            costs[column] = costs.get(column, 0.0) + (until_s - at_s) * min(amount, max(free, 0))
            free, at_s = free + more, until_s
    return {names[column]: cost / _total(column, view) for column, cost in costs.items() if cost > 0.0}


def _kept(held: Iterable[Nominated], view: RowQueries) -> tuple[_Kept, dict[int, str]]:
    kept: _Kept = {}
    names: dict[int, str] = {}
    for one in held:
        row = view.row_of(one.node_name)
        if row is None:
            continue
        template = one.template
        for name, column, amount in zip(template.names, template.columns, template.amounts, strict=True):
            if name != _PODS:
                names[column] = name
                kept[row, column] = kept.get((row, column), 0) + amount
    return kept, names


def _total(column: int, view: RoomQueries) -> int:
    return max(int(np.where(view.live, view.allocatable(column), 0).sum()), 1)


class _KeptFor(NamedTuple):
    """What claims keep for a leaf queue: int64[k, n_rows] of the compared resources."""

    queue: str
    amounts: IntArray


class IdleOfQueues:
    """Recomputes idle room when claims, or rows that they are on, change."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._room = ClaimedRoom(view)
        self._book: QueueBook | None = None
        self._made_of: tuple[int, ...] = ()
        self._mark = 0
        self._kept: list[_KeptFor] = []
        self._names: list[str] = []
        self._columns: IntArray = np.zeros(0, dtype=np.int64)
        self._rows: BoolArray = np.zeros(0, dtype=np.bool_)

    def charge(self, book: QueueBook, claims: Sequence[StartClaim], revision: int, now_s: float) -> None:
        """Sets the room kept idle for each queue from now on. revision: changes with the claims."""
        view = self._view
        made_of = (revision, view.static_revision, view.n_rows, view.table.edition)
        mark, self._mark = self._mark, view.journal_end
        if made_of != self._made_of or book is not self._book:
            self._made_of, self._book = made_of, book
            self._read_claims(book, claims)
        else:
            if not self._kept:
                return
            changed = view.changed_since(mark) if mark != self._mark else ()
            if changed is not None and not (len(changed) and self._rows[changed].any()):
                return
        book.keep_idle(self._idle(), now_s)

    def _read_claims(self, book: QueueBook, claims: Sequence[StartClaim]) -> None:
        n_rows, names = self._view.n_rows, self._view.table.names
        columns = [column for column, name in enumerate(names) if name in book.tree.settings.compare]
        self._names = [names[column] for column in columns]
        self._columns = np.array(columns, dtype=np.int64)
        claims = [one for one in claims if one.held]  # a claim whose members are all gone is about to end
        held = self._room.held(claims)
        amounts = held.amounts(columns)
        member_queues = self._member_queues(book, claims)
        self._kept = []
        for queue in dict.fromkeys(member_queues):
            own = np.flatnonzero(np.array([one == queue for one in member_queues]))
            self._kept.append(_KeptFor(queue, amounts.subset(own).by_row(n_rows, held.rows[own])))
        self._rows = np.zeros(n_rows, dtype=np.bool_)
        self._rows[held.rows] = True

    def _member_queues(self, book: QueueBook, claims: Sequence[StartClaim]) -> list[str]:
        """The queue of each member on an existing node: gangs of one claim may be in several queues."""
        found = []
        for claim in claims:
            queues: dict[int, str] = {}
            for one in claim.held:
                if self._view.row_of(one.node_name) is not None:
                    gang = id(one.info.group)
                    if gang not in queues:
                        queues[gang] = book.tree.choice(one.info.pod).queue
                    found.append(queues[gang])
        return found

    def _idle(self) -> dict[str, dict[str, int]]:
        rows = np.flatnonzero(self._rows)
        free = np.maximum(self._view.free_at(self._columns, rows), 0)
        found = {}
        for queue, amounts in self._kept:
            taken = np.minimum(amounts[:, rows], free)
            free -= taken
            found[queue] = dict(zip(self._names, taken.sum(axis=1).tolist(), strict=True))
        return found
