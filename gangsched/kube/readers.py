"""Many sockets looked at together while much is answered. Called by kube.connection for kube.binding_lane.

With binds on 16 connections the loop would wake up for each answer, and a wake-up costs more than reading
it. So these sockets are behind a selector of their own: while it is quiet the loop watches that one, and
every answer is heard at once; while hundreds come in a second it is asked once in HOLD_S instead.

Not for the lanes of one or two connections: alone, they would wait HOLD_S for each next answer, and a process
that sleeps between any two answers pays more for each (an event cost 72 us without this, and 123 with it).
"""

from __future__ import annotations

import asyncio
import selectors
import socket
from collections.abc import Callable

from gangsched.kube.pace import Pace

# Shorter than this it costs as much as it saves; a bind takes the server longer.
HOLD_S = 0.003


class Readers:
    """`add_reader` and `remove_reader` as the loop has them; `close()` when all are removed."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._pace = Pace(HOLD_S)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_watched = False
        self._later: asyncio.TimerHandle | None = None

    def add_reader(self, sock: socket.socket, callback: Callable[[], None]) -> None:
        """Call back when there is something to read."""
        self._selector.register(sock, selectors.EVENT_READ, callback)
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._watch(self._loop, True)

    def remove_reader(self, sock: socket.socket) -> None:
        """Not any more."""
        self._selector.unregister(sock)

    def close(self) -> None:
        """Give back what the loop and the kernel hold for us."""
        if self._later is not None:
            self._later.cancel()
        if self._loop is not None:
            self._watch(self._loop, False)
        self._selector.close()

    def _watch(self, loop: asyncio.AbstractEventLoop, wanted: bool) -> None:
        if wanted and not self._is_watched:
            loop.add_reader(self._selector, self._look, loop)
        elif self._is_watched and not wanted:
            loop.remove_reader(self._selector)
        self._is_watched = wanted

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        ready = self._selector.select(0)
        hold_s = self._pace.hold_s(len(ready), loop.time())
        self._watch(loop, not hold_s)
        if hold_s:
            self._later = loop.call_later(hold_s, self._look, loop)
        for key, _ in ready:
            key.data()
