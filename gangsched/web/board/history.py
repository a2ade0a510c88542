"""The last hours as numbers: queue length, devices in use, fragmentation, decisions a second.

Lives here: a ring of samples. Their number bounds the memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec
import numpy as np

from gangsched.core.cache.cache import Cache
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.states import NOT_QUEUED
from gangsched.web.board.cells import MAX_COUNTED

PERIOD_S = 10.0
# Four hours.
MAX_SAMPLES = 1440


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """at: seconds since 1970. n_waiting: groups that have not started. used: the share of devices not free;
    split: the share of free devices that are on nodes where others are in use; None: there are no (free)
    devices. decisions: attempts a second.
    """

    at: float
    n_waiting: int
    used: float | None
    split: float | None
    decisions: float


class History:
    """Samples, oldest first."""

    def __init__(self, scheduler: Scheduler, *, n_attempts: Callable[[], int]) -> None:
        self._scheduler = scheduler
        self._n_attempts = n_attempts
        self._last: tuple[float, int] | None = None
        self.samples: deque[Sample] = deque(maxlen=MAX_SAMPLES)

    def take(self, now_s: float, at: float) -> Sample | None:
        """A sample, if one is due."""
        n = self._n_attempts()
        if self._last is None:
            self._last = now_s, n
            return None
        last_s, before = self._last
        if now_s - last_s < PERIOD_S:
            return None
        self._last = now_s, n
        groups = self._scheduler.shared.groups.values()
        n_waiting = sum(group.state not in NOT_QUEUED for group in groups)
        used, split = device_use(self._scheduler.shared.cache)
        sample = Sample(round(at, 1), n_waiting, used, split, round((n - before) / (now_s - last_s), 3))
        self.samples.append(sample)
        return sample


def device_use(cache: Cache) -> tuple[float | None, float | None]:
    """Returns the share in use, and the share of free devices on partly used nodes, or in such pools.

    Devices of pools with counters are not among them: not all partitions can be in use at once.
    """
    nodes, total, free, split = cache.nodes, 0, 0, 0
    for i, resource in enumerate(nodes.table.names[: len(nodes.allocatable)]):
        has, left = nodes.allocatable[i], np.maximum(nodes.free[i], 0)
        column = cache.ledger.columns.get(resource)
        if column is not None:
            left = np.where(column.free >= 0, column.free, left)
        elif "/" not in resource or has.max(initial=0) > MAX_COUNTED:
            continue
        left = np.minimum(left, has)
        total += int(has.sum())
        free += int(left.sum())
        split += int(left[left < has].sum())
    for pool_id, n in cache.claims.pools.n_listed():
        n_left = max(n - cache.claims.n_held(pool_id), 0)
        total += n
        free += n_left
        split += n_left if n_left < n else 0
    if not total:
        return None, None
    return round(1 - free / total, 4), round(split / free, 4) if free else None
