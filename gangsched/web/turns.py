"""Turns: pages are made one after the other, and so that the scheduler has most of its loop's time.

A page of another namespace, or of another gang, is another page, so keeping answers for a second bounds
nothing for somebody who asks for ever new ones. Called by the pages of web.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

T = TypeVar("T")
# What making pages may take of the loop's time.
MOST_OF_TIME = 0.1


class Turns:
    """Has one page made at a time. After one that took 10 ms, the next one is made 90 ms later."""

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
        """What `make` returns, when it has had its turn."""
        async with self._lock:
            if (wait_s := self._not_before_s - self._clock_s()) > 0.0:
                await self._sleep(wait_s)
            began_s = self._clock_s()
            try:
                return make()
            finally:
                ended_s = self._clock_s()
                self._not_before_s = ended_s + (ended_s - began_s) * (1.0 / MOST_OF_TIME - 1.0)
