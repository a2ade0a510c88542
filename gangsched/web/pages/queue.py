"""The groups that have not started, and why: GET /queue, in QueueSort's order.

Lives here: the page's JSON. Not here: the order (core.state.line.queue), HTTP (web.serving.server), the
command that requests the page (web.commands.queue). Text of users and servers is made safe to print; a reader
must escape markup.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import msgspec
from msgspec.structs import replace

from gangsched.core.explaining.reports import GroupView, view_group
from gangsched.core.scheduler import Scheduler
from gangsched.core.state.state import SharedState
from gangsched.core.types.group import Group
from gangsched.core.types.states import NOT_QUEUED
from gangsched.model.pod_group import GroupKey
from gangsched.model.text.printable import clean
from gangsched.process.forecasting import worked_out
from gangsched.web.pages.answers import QueuePage, QueueRow
from gangsched.web.pages.queues import queues_page
from gangsched.web.turns import Turns

# Building a row takes some 20 us of the scheduler's loop; further groups are only counted.
MAX_ROWS = 500
# Requests within this time get the same answer: with thousands of groups the page takes 10 ms.
_FRESH_S = 1.0
_MAX_KEPT = 16
# Estimates that take a second of work are kept for ten seconds.
_MOST_OF_TIME = 0.1


class Queue:
    """Makes the page from the scheduler's current state."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        clock_s: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
        turns: Turns | None = None,
        leader: Callable[[], str | None] = lambda: None,
    ) -> None:
        """leader: returns the one that leads instead of this replica, None if this one leads."""
        self._leader = leader
        self._scheduler = scheduler
        self._turns = turns or Turns()
        self._clock_s = clock_s
        self._wall_s = wall_s
        self._kept: dict[str, tuple[float, bytes]] = {}
        self._lock = anyio.Lock()
        self._starts: Mapping[GroupKey, float] = {}
        self._fresh_until_s = -math.inf

    def listed(self, namespace: str = "", *, limit: int = MAX_ROWS) -> bytes:
        """Returns the page as JSON."""
        return msgspec.json.encode(self.page(namespace, limit=limit))

    def as_json(self, namespace: str = "") -> bytes:
        """Returns the same; requests within a second get the same answer."""
        now_s = self._clock_s()
        kept = self._kept.get(namespace)
        if kept is not None and now_s - kept[0] < _FRESH_S:
            return kept[1]
        body = self.listed(namespace)
        if len(self._kept) >= _MAX_KEPT:
            self._kept.clear()
        self._kept[namespace] = now_s, body
        return body

    async def listed_with_estimates(self, namespace: str = "") -> bytes:
        """Returns the same, with estimated starts, computed while the scheduler goes on."""
        starts = await self._estimates()
        return await self._turns.made(
            lambda: msgspec.json.encode(self._estimated(self.page(namespace), starts, self._clock_s()))
        )

    async def _estimates(self) -> Mapping[GroupKey, float]:
        """Returns estimates, computed once for all requests that come meanwhile or soon after."""
        async with self._lock:
            if self._clock_s() >= self._fresh_until_s:
                self._starts, spent_s = await worked_out(self._scheduler, self._clock_s())
                self._fresh_until_s = self._clock_s() + max(_FRESH_S, spent_s / _MOST_OF_TIME)
            return self._starts

    def _estimated(self, page: QueuePage, found: Mapping[GroupKey, float], now_s: float) -> QueuePage:
        starts = {clean(str(key)): max(at_s - now_s, 0.0) for key, at_s in found.items()}
        rows = (self._timed(row, starts[row.group]) if row.group in starts else row for row in page.rows)
        return replace(page, rows=tuple(rows))

    def _timed(self, row: QueueRow, in_s: float) -> QueueRow:
        range_s = self._scheduler.attempts.forecasts.range_s(in_s)
        early_s, late_s = (None, None) if range_s is None else (round(one, 3) for one in range_s)
        return replace(row, estimate_in_s=round(in_s, 3), estimate_from_s=early_s, estimate_to_s=late_s)

    def queues(self) -> bytes:
        """Returns what each queue uses and is entitled to (web.pages.queues), as JSON."""
        leads, leader = self.leadership()
        page = queues_page(self._scheduler.shared)
        return msgspec.json.encode(replace(page, leads=leads, leader=leader))

    def leadership(self) -> tuple[bool, str]:
        """Returns (whether this replica leads, the one that does instead, "" while unknown)."""
        leader = self._leader()
        return leader is None, clean(leader or "")

    def page(self, namespace: str = "", *, limit: int = MAX_ROWS) -> QueuePage:
        """Returns the page. `namespace`: only its groups; their positions are among all groups."""
        shared, now_s = self._scheduler.shared, self._clock_s()
        waiting = [group for group in shared.groups.values() if group.state not in NOT_QUEUED]
        keyed = [(not group.is_completing, shared.sort_key(group)[0], group.key, group) for group in waiting]
        if namespace:
            keyed.sort()
            placed = [(i, one[-1]) for i, one in enumerate(keyed, 1) if one[-1].key.namespace == namespace]
        else:
            placed = [(i, one[-1]) for i, one in enumerate(heapq.nsmallest(limit, keyed), 1)]
        by_state: dict[str, int] = {}
        for group in waiting:
            if not namespace or group.key.namespace == namespace:
                by_state[group.state.value] = by_state.get(group.state.value, 0) + 1
        rows = tuple(
            _row(shared, position, group, now_s, self._wall_s()) for position, group in placed[:limit]
        )
        return QueuePage(sum(by_state.values()), by_state, rows, *self.leadership())


def _row(shared: SharedState, position: int, group: Group, now_s: float, wall_s: float) -> QueueRow:
    view: GroupView = view_group(group)
    age_s, deadline_s = None, view.deadline_s
    if view.complete_since_s is not None:
        age_s = round(now_s - view.complete_since_s, 3)
    elif view.created_at is not None and view.is_counted and view.n_existing >= view.n_needed:
        age_s = round(max(wall_s - view.created_at, 0.0), 3)
    return QueueRow(
        position=position,
        group=view.name,
        is_gang=view.is_gang,
        scheduler=view.scheduler_name,
        priority=view.priority,
        state=view.state.value,
        state_s=round(now_s - view.since_s, 3),
        age_s=age_s,
        next_s=None if deadline_s is None else round(deadline_s - now_s, 3),
        needed=view.n_needed if view.is_counted else None,
        existing=view.n_existing,
        gated=view.n_gated,
        reserved=view.n_reserved,
        bound=view.n_bound,
        attempts=view.attempts,
        why=view.why,
        **_queueing(shared, group, now_s),
    )


def _queueing(shared: SharedState, group: Group, now_s: float) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if shared.walltimes is not None:
        walltime = shared.walltimes.walltime(group)
        found["walltime_s"] = walltime.seconds if math.isfinite(walltime.seconds) else None
        found["walltime_source"], found["walltime_field"] = walltime.source, clean(walltime.field)
    if shared.queue.bypasses is not None and (passed := shared.queue.bypasses.count(group)) is not None:
        found["passes"], found["passes_bound"] = passed.n, passed.bound
        found["claimed_s"] = None if passed.claimed_s is None else round(now_s - passed.claimed_s, 3)
    claims = shared.claims
    if claims is not None and (claim := claims.claim(group)) is not None:
        found["starts_in_s"] = round(claim.start_s - now_s, 3)
        found["is_promised"], found["claimed_nodes"] = claim.is_promise, len(claim.nodes)
    return found
