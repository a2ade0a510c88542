"""Reads many sockets together under load. Called by kube.transport.connection for the lanes.

With requests on 16 or more connections the loop would wake up for each answer, and a wake-up costs more than
reading it, since by then the server has evicted our caches. So these sockets have a selector of their own.
When the load is low, the loop watches that selector and reads every answer at once. At hundreds of answers a
second, the selector is polled when about a quarter of the answers in flight have arrived, so that the server
works on the rest meanwhile. That time is learned from what each poll finds.
"""

from __future__ import annotations

import asyncio
import selectors
import socket
from collections.abc import Callable

from gangsched.kube.network import KERNEL, Network
from gangsched.kube.transport.pace import Pace, Patience

# A shorter delay costs as much as it saves; people would notice a longer one.
MIN_HOLD_S, MAX_HOLD_S = 0.001, 0.01


class Readers:
    """`add_reader` and `remove_reader` as on the event loop; `close()` once all are removed."""

    def __init__(self, network: Network = KERNEL) -> None:
        self.n_awaited = 0
        """Answers in flight, including any that arrived but are unread; the lanes count them."""
        self._selector = network.selector()
        self._pace = Pace()
        self._patience = Patience(MIN_HOLD_S, MAX_HOLD_S)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_watched = False
        self._next_steps: dict[Callable[[], None], None] = {}
        self._later: asyncio.TimerHandle | None = None

    def add_reader(self, sock: socket.socket, callback: Callable[[], None]) -> None:
        """Call back when there is something to read."""
        self._selector.register(sock, selectors.EVENT_READ, callback)
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._watch(self._loop, True)

    def remove_reader(self, sock: socket.socket) -> None:
        """Stop watching the socket."""
        self._selector.unregister(sock)

    def then(self, callback: Callable[[], None]) -> None:
        """Call it once all sockets found ready have been read; for callbacks with more to do then."""
        self._next_steps[callback] = None

    def close(self) -> None:
        """Free the resources that the loop and the kernel hold for us."""
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
        is_held = self._pace.is_much(len(ready), loop.time())
        self._watch(loop, not is_held)
        if is_held:
            hold_s = self._patience.hold_s(len(ready), self.n_awaited)
            self._later = loop.call_later(hold_s, self._look, loop)
        try:
            for key, _ in ready:
                key.data()
        finally:
            steps, self._next_steps = self._next_steps, {}
            for step in steps:
                step()
