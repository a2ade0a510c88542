"""Connections to a server of ours: limits their number, including silent ones. Floor 0.

Lives here: accepting, TLS handshakes, closing the oldest. Not here: requests, and which addresses (the pages'
web.serving.server and web.listening, the embedded API server's lab.apiserver.http.server). asyncio's own
servers do not limit TLS handshakes: each holds 256 KiB for up to a minute, uncounted. A stranger who opens
sockets and stays silent would exhaust the process' memory and file descriptors.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence

import anyio
import structlog
from aiohttp import web

_log = structlog.get_logger(__name__)

# Each connection is a file descriptor and a TLS buffer, even if no request ever comes on it.
MAX_CONNECTIONS = 256
MAX_HANDSHAKES = 128
_HANDSHAKE_S = 10.0
# A peer that does not answer the TLS shutdown keeps its buffers for this long.
_GOODBYE_S = 5.0
_TELL_S = 10.0
# After a failed accept: there may be no file descriptor left.
_PAUSE_S = 0.2


class Accepting:
    """Accepts connections and hands them to `made`, until cancelled."""

    def __init__(
        self,
        server: web.Server,
        tls: ssl.SSLContext | None,
        made: Callable[[], web.RequestHandler],
        *,
        max_connections: int = MAX_CONNECTIONS,
        max_handshakes: int = MAX_HANDSHAKES,
    ) -> None:
        """`server`: tracks the connections that `made` creates."""
        self._server = server
        self._tls = tls
        self._made = made
        self._max_connections = max_connections
        self._max_handshakes = max_handshakes
        self._handshakes: dict[asyncio.Task[None], None] = {}
        self._n_closed = 0

    async def run(self, sockets: Sequence[socket.socket]) -> None:
        try:
            async with anyio.create_task_group() as group:
                for one in sockets:
                    group.start_soon(self._accept, one)
                while True:
                    await anyio.sleep(_TELL_S)
                    self._tell()
        finally:
            for task in self._handshakes:
                task.cancel()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError:
                await anyio.sleep(_PAUSE_S)
                continue
            task = loop.create_task(self._begin(connection))
            self._handshakes[task] = None
            task.add_done_callback(self._ended)
            # Regular clients are done in a few milliseconds.
            if len(self._handshakes) > self._max_handshakes:
                oldest = next(iter(self._handshakes))
                del self._handshakes[oldest]  # it ends in a later turn; do not count it until then
                oldest.cancel()
                self._n_closed += 1
            # Accept one per turn of the loop: while clients wait, sock_accept returns at once, without a
            # turn.
            await asyncio.sleep(0)

    async def _begin(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        limits = {} if self._tls is None else _LIMITS
        try:
            await loop.connect_accepted_socket(self._made, connection, ssl=self._tls, **limits)
        except OSError as error:  # the client does not speak TLS, or has left
            # Its frames hold the TLS buffer and the future that holds the error: a quarter of a MiB that
            # would wait for the garbage collector, which runs rarely.
            error.__traceback__ = None
            return
        self._n_closed += close_oldest(self._server, self._max_connections)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._handshakes.pop(task, None)

    def _tell(self) -> None:
        if self._n_closed:
            _log.warning(
                "too many connections: the oldest are closed",
                closed=self._n_closed,
                most=self._max_connections,
            )
            self._n_closed = 0


_LIMITS: Mapping[str, float] = {"ssl_handshake_timeout": _HANDSHAKE_S, "ssl_shutdown_timeout": _GOODBYE_S}


def close_oldest(server: web.Server, most: int = MAX_CONNECTIONS) -> int:
    """Closes the longest-open connections, down to `most`; returns how many.

    A client may open any number of connections and never send a request; aiohttp waits for one without end.
    Regular readers reconnect.
    """
    connections = server.connections
    n_closed = 0
    for connection in connections[: max(0, len(connections) - most)]:
        if connection.transport is None:  # closed before; its handler has not ended yet
            continue
        # With a graceful close, a peer that does not read would keep its unsent data in memory.
        if isinstance(connection.transport, asyncio.WriteTransport):
            connection.transport.abort()
        connection.force_close()
        n_closed += 1
    return n_closed
