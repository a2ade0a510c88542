"""Turns: makes pages one after the other, leaving the scheduler most of its loop's time.

Each namespace and each gang has its own page, so caching answers for a second does not limit a client that
requests ever new ones. Called by the pages of web.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

T = TypeVar("T")
# Largest share of the loop's time for making pages.
MOST_OF_TIME = 0.1


class Turns:
    """Makes one page at a time. After a page that took 10 ms, the next one is made 90 ms later."""

    def __init__(
        self,
        *,
        clock_s: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._clock_s = clock_s
        self._sleep = sleep
        self._lock = anyio.Lock()
        self._not_before_s = 0.0

    async def made(self, make: Callable[[], T]) -> T:
        """Waits for a turn, and returns what `make` returns."""
        async with self._lock:
            if (wait_s := self._not_before_s - self._clock_s()) > 0.0:
                await self._sleep(wait_s)
            began_s = self._clock_s()
            try:
                return make()
            finally:
                ended_s = self._clock_s()
                self._not_before_s = ended_s + (ended_s - began_s) * (1.0 / MOST_OF_TIME - 1.0)
