"""QueueMemory: keeps the queues' recent usage beyond the process, if the configuration has queues.

Read once, before the first decision of a leader; written every five minutes, and at the end. Lives here:
when. Not here: the requests (kube.queue_usage), its meaning (core.cache.queues.book). Called by Leadership.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence

import anyio
import structlog

from gangsched.core.cache.queues.book import QueueBook
from gangsched.errors import ApiError
from gangsched.kube.queue_usage import QueueUsage
from gangsched.model.events import Event, QueueUsageRead

_log = structlog.get_logger(__name__)

WRITE_EVERY_S = 300.0


class QueueMemory:
    """Reads and writes the usage; a failure loses what came since the last write, never the leadership."""

    def __init__(
        self,
        usage: QueueUsage,
        book: Callable[[], QueueBook | None],
        put: Callable[[Sequence[Event]], Awaitable[None]],
        *,
        may_act: Callable[[], bool],
    ) -> None:
        self._usage = usage
        self._book = book
        self._put = put
        self._may_act = may_act
        self._has_read = False

    async def recall(self) -> None:
        """Passes the usage saved by the last process to the core."""
        if self._book() is None:
            return
        try:
            found = await self._usage.read()
        except (ApiError, ValueError) as error:
            _log.warning("what queues have held lately is not known from before", why=str(error))
            found = None
        self._has_read = True
        if found is not None:
            decayed, age_s = found
            await self._put([QueueUsageRead(decayed, age_s)])
            _log.info("what queues have held lately is known from before", age_s=round(age_s))

    async def run(self) -> None:
        """Writes from time to time, until cancelled."""
        while True:
            await anyio.sleep(WRITE_EVERY_S)
            await self.save()

    async def save(self) -> None:
        """Writes now, if this process leads."""
        book = self._book()
        if book is None or not self._may_act():
            return
        if not self._has_read:
            await self.recall()  # the usage of newly configured queues may be stored from before
            return
        try:
            await self._usage.write(book.all_decayed(time.monotonic()))
        except ApiError as error:
            _log.warning("what queues have held lately could not be written", why=str(error))
