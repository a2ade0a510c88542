"""Forecasting: estimates from time to time when queued groups start, if the configuration has queueing.

Lives here: when to estimate, in a small part of this process' time. Not here: the estimates (core.estimates),
reporting them (core.groups.attempts.forecasts). Called by the assembly, and by web.pages.queue for requests.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

import anyio

from gangsched.core.estimates import in_steps
from gangsched.core.scheduler import Scheduler
from gangsched.model.events import Event, StartsEstimated
from gangsched.model.pod_group import GroupKey

EVERY_S = 30.0
# If no group waits, a look costs next to nothing.
_IDLE_S = 5.0
# A cluster whose estimates take a second of work gets them about every minute and a half.
_MOST_OF_TIME = 0.01


async def worked_out(scheduler: Scheduler, now_s: float) -> tuple[dict[GroupKey, float], float]:
    """Returns (estimated starts by the core's clock, seconds of work for them) while the scheduler runs."""
    steps, spent_s = in_steps(scheduler, now_s), 0.0
    while True:
        began_s = time.perf_counter()
        try:
            next(steps)
        except StopIteration as done:
            found: dict[GroupKey, float] = done.value
            return found, spent_s + time.perf_counter() - began_s
        spent_s += time.perf_counter() - began_s
        await asyncio.sleep(0)


class Forecasting:
    """Computes estimates in steps between the scheduler's turns."""

    def __init__(
        self,
        scheduler: Scheduler,
        put: Callable[[Sequence[Event]], Awaitable[None]],
        *,
        may_act: Callable[[], bool],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """clock_s: the core's clock."""
        self._scheduler = scheduler
        self._put = put
        self._may_act = may_act
        self._clock_s = clock_s
        self._has_estimates = False

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            spent_s = await self.look() if self._may_act() else 0.0
            pause_s = EVERY_S if self._has_estimates else _IDLE_S
            await anyio.sleep(max(pause_s, spent_s / _MOST_OF_TIME))

    async def look(self) -> float:
        """Passes current estimates to the core, if there are or were any; returns the seconds of work."""
        from_s = self._clock_s()
        queueing = self._scheduler.shared.settings.queueing
        starts: dict[GroupKey, float] = {}
        spent_s = 0.0
        if queueing is not None and queueing.writes_estimates:
            starts, spent_s = await worked_out(self._scheduler, from_s)
        found = tuple(sorted(starts.items()))
        if (found or self._has_estimates) and self._may_act():
            self._has_estimates = bool(found)
            await self._put([StartsEstimated(from_s, found)])
        return spent_s
