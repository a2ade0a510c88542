"""Forecasting: estimates when groups in line start, from time to time, if the configuration has queueing.

Lives here: when, and that it takes no more than a small part of this process' time. Not here: the estimates
(core.estimates), what is told of them (core.groups.forecasts). Called by the assembly, and by web.queue for
who asks.
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
# Where nobody waits a look costs next to nothing.
_IDLE_S = 5.0
# So a cluster whose estimates take a second of work has them each minute and a half.
_MOST_OF_TIME = 0.01


async def worked_out(scheduler: Scheduler, now_s: float) -> tuple[dict[GroupKey, float], float]:
    """(estimated starts by the core's clock, the seconds of work for them), while the scheduler goes on."""
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
    """Works while the scheduler decides, in steps between its turns."""

    def __init__(
        self,
        scheduler: Scheduler,
        put: Callable[[Sequence[Event]], Awaitable[None]],
        *,
        may_act: Callable[[], bool],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """clock_s: the core's."""
        self._scheduler = scheduler
        self._put = put
        self._may_act = may_act
        self._clock_s = clock_s
        self._has_told = False

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            spent_s = await self.look() if self._may_act() else 0.0
            pause_s = EVERY_S if self._has_told else _IDLE_S
            await anyio.sleep(max(pause_s, spent_s / _MOST_OF_TIME))

    async def look(self) -> float:
        """Tells the core what is estimated now, if anything is or was; returns how long it worked for it."""
        from_s = self._clock_s()
        starts, spent_s = await worked_out(self._scheduler, from_s)
        found = tuple(sorted(starts.items()))
        if (found or self._has_told) and self._may_act():
            self._has_told = bool(found)
            await self._put([StartsEstimated(from_s, found)])
        return spent_s
