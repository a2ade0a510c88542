"""The feed: changes, collected once a tick for all viewers, and each viewer's bounded buffer.

Lives here: ticks, messages of server-sent events, viewers. Not here: HTTP (pages.py), what the map shows
(cells.py). Without viewers only the history's samples are taken. A viewer that does not keep up is dropped:
its browser reconnects and starts from the whole map.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import anyio
import msgspec

from gangsched.core.scheduler import Scheduler
from gangsched.web.board.cells import Cells, Changes
from gangsched.web.board.history import History, Sample
from gangsched.web.pages.queue import Queue

TICK_S = 0.5
# The tick while the first viewer waits for the whole map.
_FILL_S = 0.1
MAX_VIEWERS = 32
MAX_BUFFERED = 16
# Some 8 us each: bounds the time that a tick takes from the loop, however much has changed.
ROWS_AT_ONCE = 300
MAX_QUEUE = 100
# Sending the queue requires sorting it, and a row takes some 30 us.
QUEUE_TICKS = 6
# Proxies close idle connections.
_QUIET_TICKS = 30


class Viewer:
    """One open page: the messages not yet sent to it."""

    def __init__(self) -> None:
        self.waiting: deque[bytes] = deque()
        self._news = anyio.Event()
        self.is_dropped = False

    def put(self, message: bytes) -> None:
        """Adds a message, or drops the viewer if it is too far behind."""
        if len(self.waiting) >= MAX_BUFFERED:
            self.waiting.clear()
            self.is_dropped = True
        else:
            self.waiting.append(message)
        self._news.set()

    async def take(self) -> bytes:
        """Returns all messages since the last call; waits for one. b"": dropped."""
        while not self.waiting and not self.is_dropped:
            await self._news.wait()
            self._news = anyio.Event()
        taken = b"".join(self.waiting)
        self.waiting.clear()
        return b"" if self.is_dropped else taken


class Feed:
    """Sends changes to viewers."""

    def __init__(
        self,
        scheduler: Scheduler,
        history: History,
        queue: Queue,
        *,
        may_act: Callable[[], bool] = lambda: True,
        clock_s: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._scheduler = scheduler
        self._may_act = may_act
        self._history = history
        self._queue = queue
        self._clock_s = clock_s
        self._wall_s = wall_s
        self._cells: Cells | None = None
        self._viewers: list[Viewer] = []
        self._last_queue = b""
        self._n_ticks = 0
        self._n_quiet = 0

    @property
    def n_viewers(self) -> int:
        return len(self._viewers)

    @property
    def has_map(self) -> bool:
        """Whether any memory is used for viewers."""
        return self._cells is not None

    async def run(self) -> None:
        """Ticks until cancelled."""
        while True:
            self.tick()
            await anyio.sleep(_FILL_S if self._cells is not None and self._cells.is_filling else TICK_S)

    def join(self) -> Viewer | None:
        """Adds a viewer that starts from the whole map; None: too many viewers."""
        if len(self._viewers) >= MAX_VIEWERS:
            return None
        if self._cells is None:
            self._cells = Cells(self._scheduler)
        viewer = Viewer()
        samples = list(self._history.samples)
        viewer.put(
            self._message(self._cells.whole(), samples, self._last_queue or self._listed(), is_first=True)
        )
        self._viewers.append(viewer)
        return viewer

    def leave(self, viewer: Viewer) -> None:
        """Removes a viewer; after the last one, drops the map."""
        if viewer in self._viewers:
            self._viewers.remove(viewer)
        if not self._viewers:
            self._cells, self._last_queue = None, b""

    def tick(self) -> None:
        """Finds what changed and sends it to all viewers."""
        sample = self._history.take(self._clock_s(), self._wall_s())
        for viewer in [one for one in self._viewers if one.is_dropped]:
            self.leave(viewer)
        if self._cells is None:
            return
        self._n_ticks += 1
        changes = self._cells.changes(ROWS_AT_ONCE)
        queue = self._listed() if self._n_ticks % QUEUE_TICKS == 0 else b""
        samples = [] if sample is None else [sample]
        if not (changes.nodes or changes.gone or changes.is_whole or queue or samples):
            self._n_quiet += 1
            if self._n_quiet < _QUIET_TICKS:
                return
        self._n_quiet = 0
        message = self._message(changes, samples, queue)
        for viewer in self._viewers:
            viewer.put(message)

    def _listed(self) -> bytes:
        self._last_queue = self._queue.listed(limit=MAX_QUEUE)
        return self._last_queue

    def _message(
        self, changes: Changes, samples: list[Sample], queue: bytes, *, is_first: bool = False
    ) -> bytes:
        body: dict[str, Any] = {
            "at": round(self._wall_s(), 3),
            "first": is_first,
            "leads": self._may_act(),
            "leader": self._queue.leadership()[1],
            "whole": changes.is_whole,
            "nodes": changes.nodes,
            "gone": changes.gone,
            "groups": changes.groups,
            "samples": samples,
        }
        if queue:
            body["queue"] = msgspec.Raw(queue)
        return b"data: " + msgspec.json.encode(body) + b"\n\n"
