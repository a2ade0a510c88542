"""The data of top, from the scheduler's current state: GET /top.

Lives here: the page's JSON; one answer for requests within a second. Not here: HTTP (server), rates and
percentiles, which the client computes from two pages (rates), drawing (screen).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice

import anyio
import msgspec
import numpy as np

from gangsched import __version__
from gangsched.core.cache.devices.column import DeviceColumn
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import MemberState
from gangsched.model.resource_claims.objects import DeviceId
from gangsched.model.text.printable import clean
from gangsched.web.metrics.measures import ATTEMPT_S, LAG_S, SCHEDULED, SLI_S, Distribution, Measures
from gangsched.web.pages.answers import DeviceCounts, Times, TopPage
from gangsched.web.pages.queue import Queue
from gangsched.web.turns import Turns

# Requests within this time get the same answer.
_FRESH_S = 1.0
_MAX_KEPT = 16
# Rows of the queue: what people look at; `gangsched queue` has more.
MAX_ROWS = 100
# About a millisecond.
_NODES_AT_ONCE = 2000
# Kubelets choose the names of resources.
_MAX_RESOURCES = 16
# A resource without device IDs is shown only if no node has more than this: plugins for /dev/fuse report
# thousands.
_MAX_COUNTED = 64


class Top:
    """Answers with the page."""

    def __init__(
        self,
        scheduler: Scheduler,
        queue: Queue,
        measures: Measures,
        *,
        may_act: Callable[[], bool] = lambda: True,
        clock_s: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
        turns: Turns | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._queue = queue
        self._measures = measures
        self._may_act = may_act
        self._clock_s = clock_s
        self._wall_s = wall_s
        self._turns = turns or Turns()
        self._lock = anyio.Lock()
        self._kept: dict[str, tuple[float, bytes]] = {}
        self._counted_s = -math.inf
        self._counts: dict[str, DeviceCounts] = {}

    async def as_json(self, namespace: str = "") -> bytes:
        """Returns a TopPage as JSON. `namespace`: only its part of the queue."""
        async with self._lock:
            kept = self._kept.get(namespace)
            if kept is not None and self._clock_s() - kept[0] < _FRESH_S:
                return kept[1]
            if not self._clock_s() - self._counted_s < _FRESH_S:
                self._counts, self._counted_s = await self._devices(), self._clock_s()
            body = await self._turns.made(lambda: msgspec.json.encode(self._page(self._counts, namespace)))
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            self._kept[namespace] = self._clock_s(), body
            return body

    def _page(self, devices: dict[str, DeviceCounts], namespace: str) -> TopPage:
        table, measures = self._scheduler.shared.cache.nodes, self._measures
        bound = [one for (result, _), one in measures.attempts.items() if result == SCHEDULED]
        return TopPage(
            at=round(self._wall_s(), 3),
            clock_s=round(self._clock_s(), 6),
            version=__version__,
            leads=self._may_act(),
            nodes=table.n_live,
            nodes_open=int((table.live & ~table.unschedulable).sum()),
            pods=len(self._scheduler.shared.cache.pods),
            devices=devices,
            attempts=measures.n_attempts,
            binds=sum(one.n for one in bound),
            decision=_times([measures.group_algorithm], ATTEMPT_S),
            start=_times([*measures.sli.values()], SLI_S),
            bind=_times(bound, ATTEMPT_S),
            lag=_times([measures.lag], LAG_S),
            queue=self._queue.page(namespace, limit=MAX_ROWS),
        )

    async def _devices(self) -> dict[str, DeviceCounts]:
        """Counts devices by resource, in slices."""
        cache = self._scheduler.shared.cache
        found: dict[str, DeviceCounts] = {}
        for resource in sorted(cache.ledger.columns)[:_MAX_RESOURCES]:
            column = cache.ledger.columns[resource]
            counts = await _listed(column)
            if counts.total:
                found[clean(resource)] = counts
        names = cache.nodes.table.names
        for i, resource in enumerate(names[: len(cache.nodes.allocatable)]):
            if len(found) < _MAX_RESOURCES and "/" in resource:
                self._count(i, resource, found)
        claims = cache.claims
        for pool_id, n in claims.pools.n_listed():
            driver = clean(pool_id.driver)
            if driver in found or len(found) < _MAX_RESOURCES:
                counts, held = found.setdefault(driver, DeviceCounts()), min(claims.n_held(pool_id), n)
                counts.total += n
                counts.bound += held
                counts.free += n - held
        for resource, n in self._reserved().items():
            if (taken := found.get(clean(resource))) is not None:
                taken.reserved = min(n, taken.bound)
                taken.bound -= taken.reserved
        return found

    def _count(self, i: int, resource: str, found: dict[str, DeviceCounts]) -> None:
        """Adds nodes that state only the number of their devices."""
        nodes = self._scheduler.shared.cache.nodes
        column = self._scheduler.shared.cache.ledger.columns.get(resource)
        only = nodes.live if column is None else nodes.live & (column.free < 0)
        has = np.where(only, nodes.allocatable[i], 0)
        total = int(has.sum())
        if not total or int(has.max(initial=0)) > _MAX_COUNTED:
            return
        free = int(np.clip(nodes.free[i], 0, has).sum())
        counts = found.setdefault(clean(resource), DeviceCounts())
        counts.total += total
        counts.free += free
        counts.bound += total - free

    def _reserved(self) -> dict[str, int]:
        """Returns what reserved but unbound members request."""
        found: dict[str, int] = {}
        given: set[DeviceId] = set()
        claims = self._scheduler.shared.cache.claims
        for group in self._scheduler.shared.groups.values():
            if group.n_assumed:
                for info in group.in_state(MemberState.ASSUMED):
                    for resource, n in info.template.requests.items():
                        found[resource] = found.get(resource, 0) + n
                    for claim in claims.claims_of(info.pod).values():
                        allocation = claims.allocation(claim.metadata.uid)
                        if allocation is not None:
                            given.update(one.id for one in allocation.devices.results)
        for driver, n in Counter(one.driver for one in given).items():
            found[driver] = found.get(driver, 0) + n
        return found


async def _listed(column: DeviceColumn) -> DeviceCounts:
    counts = DeviceCounts()
    rows = iter(list(column.at.values()))
    while part := list(islice(rows, _NODES_AT_ONCE)):
        for node in part:
            if node.inventory is not None:
                healthy, free = node.inventory.healthy.bit_count(), node.free.bit_count()
                counts.total += len(node.inventory.ids)
                counts.unhealthy += len(node.inventory.ids) - healthy
                counts.free += free
                counts.bound += healthy - free
        await asyncio.sleep(0)
    return counts


def _times(of: Sequence[Distribution], bounds: tuple[float, ...]) -> Times:
    """Adds up distributions with the same bounds."""
    columns = zip(*(one.counts for one in of), strict=True)
    return Times(bounds, tuple(sum(column) for column in columns) or (0,) * (len(bounds) + 1))
