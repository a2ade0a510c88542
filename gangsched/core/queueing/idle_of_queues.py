"""IdleOfQueues: charges room that claims keep idle to their queues' use (H of core.cache.queue_book).

A claim costs other queues the room that no pod fills meanwhile. It counts as held lately (H), not as held now
(D, guarantees, limits), so the queue's other groups do not lose their turn at once. If claims of several
queues keep the same free room, the first claim's queue is charged. Called by core.groups.claiming.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gangsched.core.cache.cluster_view import ClusterView
from gangsched.core.cache.queue_book import QueueBook
from gangsched.core.queueing.claimed_room import ClaimedRoom
from gangsched.core.types.arrays import BoolArray, IntArray
from gangsched.core.types.claim import StartClaim


class _Kept(NamedTuple):
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
        self._kept: list[_Kept] = []
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
        whose = self._whose(book, claims)
        self._kept = []
        for queue in dict.fromkeys(whose):
            own = np.flatnonzero(np.array([one == queue for one in whose]))
            self._kept.append(_Kept(queue, amounts.subset(own).by_row(n_rows, held.rows[own])))
        self._rows = np.zeros(n_rows, dtype=np.bool_)
        self._rows[held.rows] = True

    def _whose(self, book: QueueBook, claims: Sequence[StartClaim]) -> list[str]:
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
