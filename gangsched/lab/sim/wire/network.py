"""A network in memory: sockets that behave like the kernel's for kube.transport.connection, with faults.

Lives here: bytes in transit, cut anywhere, delayed, until a connection breaks; connections that are refused
or go silent. Not here: the meaning of the bytes (lab.sim.wire.server), probabilities (lab.sim.wire.weather).
One Network belongs to one process, so that it can be killed as a whole.
"""

from __future__ import annotations

import asyncio
import selectors
import socket
from collections.abc import Callable
from typing import Any, Protocol, cast

from gangsched.kube.network import Network, SocketSelector
from gangsched.lab.sim.wire.loop import MemorySelector, VirtualLoop
from gangsched.lab.sim.wire.weather import Dialled, Weather

_APART_S = 1e-6


class Peer(Protocol):
    """The server's end of a connection."""

    def received(self, data: bytes) -> None:
        """Takes bytes that have arrived."""

    def lost(self) -> None:
        """The connection has ended; its open requests take effect now or never."""


class Link:
    """One connection: both directions, each in order, and its end.

    `limit_to_client`: after that many more bytes to the client the connection breaks, by `breaks_by`: "close"
    (an orderly end), "reset", or "silence" (no more bytes arrive in either direction).
    """

    def __init__(self, loop: VirtualLoop, number: int, weather: Weather, record: Record) -> None:
        self.number = number
        self.loop = loop
        self.weather = weather
        self.sock = MemorySocket(self, loop.number())
        self.peer: Peer
        self.is_over = False
        self.is_silent = False
        self.limit_to_client: int | None = None
        self.breaks_by = "reset"
        self._record = record
        self._arrives_s = [0.0, 0.0]

    def to_client(self, data: bytes) -> None:
        """Sends bytes of the server."""
        for part in self.weather.pieces(data):
            self._travel(1, self._arrive_at_client, part)

    def to_client_whole(self, data: bytes) -> None:
        """The same, in one piece."""
        self._travel(1, self._arrive_at_client, data)

    def to_server(self, data: bytes) -> None:
        """Sends bytes of the client."""
        for part in self.weather.pieces(data):
            self._travel(0, self._arrive_at_server, part)

    def close_by_server(self, how: str) -> None:
        """Breaks the connection after the bytes in transit."""
        self._travel(1, self._break, how)

    def break_now(self, how: str) -> None:
        """Breaks the connection: both ends learn of it at once, or, of a silence, neither."""
        self._break(how)

    def closed_by_client(self) -> None:
        """The client has closed the connection: requests in transit are decided now."""
        if not self.is_over:
            self.is_over = True
            self.peer.lost()

    def _travel(self, way: int, arrive: Callable[[Any], None], what: bytes | str) -> None:
        # Timers of one moment are called in no order.
        at_s = max(self._arrives_s[way] + _APART_S, self.loop.time() + self.weather.latency_s())
        self._arrives_s[way] = at_s
        self.loop.call_at(at_s, arrive, what)

    def _arrive_at_client(self, data: bytes) -> None:
        if self.is_over or self.is_silent:
            return
        broken = False
        if self.limit_to_client is not None:
            broken = len(data) >= self.limit_to_client
            data = data[: self.limit_to_client]
            self.limit_to_client -= len(data)
        if data:
            self._record(self.number, b">", data)
            self.sock.inbox += data
            self.loop.news.has_come = True
        if broken:
            self._break(self.breaks_by)

    def _arrive_at_server(self, data: bytes) -> None:
        if self.is_over or self.is_silent:
            return
        self._record(self.number, b"<", data)
        self.peer.received(data)

    def _break(self, how: str) -> None:
        if self.is_over or self.is_silent:
            return
        self._record(self.number, b"!", how.encode())
        if how == "silence":
            self.is_silent = True
            return
        self.is_over = True
        self.sock.end = how
        self.loop.news.has_come = True
        self.peer.lost()


Record = Callable[[int, bytes, bytes], None]


class MemorySocket:
    """The client's end, with as much of a socket as kube.transport.connection uses."""

    def __init__(self, link: Link, number: int) -> None:
        self.link = link
        self.inbox = bytearray()
        self.end = ""
        self.is_closed = False
        self._number = number
        self._is_full = False

    def fileno(self) -> int:
        return self._number

    def readiness(self) -> int:
        read = selectors.EVENT_READ if self.inbox or self.end else 0
        return read | (0 if self._is_full else selectors.EVENT_WRITE)

    def recv_into(self, buffer: memoryview) -> int:
        """A reset discards unread bytes, as in the kernel."""
        if self.end == "reset":
            self.inbox.clear()
            raise ConnectionResetError(104, "Connection reset by peer")
        if self.inbox:
            n_bytes = min(len(self.inbox), len(buffer))
            buffer[:n_bytes] = self.inbox[:n_bytes]
            del self.inbox[:n_bytes]
            return n_bytes
        if self.end:
            return 0
        raise BlockingIOError(11, "Resource temporarily unavailable")

    def send(self, data: bytes) -> int:
        """Now and then takes only a part, and the rest a little later."""
        if self.end == "reset":
            raise BrokenPipeError(32, "Broken pipe")
        if self._is_full:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        n_bytes = self.link.weather.accepted(len(data))
        if n_bytes < len(data):
            self._is_full = True
            self.link.loop.call_later(self.link.weather.latency_s(), self._has_room)
        if n_bytes:
            self.link.to_server(bytes(data[:n_bytes]))
        return n_bytes

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.link.closed_by_client()

    def _has_room(self) -> None:
        self._is_full = False
        self.link.loop.news.has_come = True


class MemoryNetwork(Network):
    """The network of one process. `accept` makes the server's end of each connection."""

    spans_threads = False

    def __init__(
        self, loop: VirtualLoop, weather: Weather, accept: Callable[[Link], Peer], record: Record
    ) -> None:
        self._loop = loop
        self._weather = weather
        self._accept = accept
        self._record = record
        self._is_dead = False
        self.links: list[Link] = []

    async def connect(self, host: str, port: int) -> socket.socket:
        dialled = self._weather.dial()
        await asyncio.sleep(self._weather.latency_s())
        if dialled is Dialled.REFUSED:
            raise ConnectionRefusedError(111, "Connection refused")
        if dialled is Dialled.NOBODY or self._is_dead:
            await asyncio.get_running_loop().create_future()
        link = Link(self._loop, self._loop.number(), self._weather, self._record)
        link.peer = self._accept(link)
        self.links = [one for one in self.links if not one.sock.is_closed]
        self.links.append(link)
        return cast(socket.socket, link.sock)

    def selector(self) -> SocketSelector:
        return MemorySelector(self._loop.number(), self._loop.news)

    @property
    def n_open(self) -> int:
        """Sockets that this process has not closed."""
        return sum(not link.sock.is_closed for link in self.links)

    def sever(self) -> None:
        """Cuts off a dead process: its bytes arrive now or never."""
        self._is_dead = True
        for link in self.links:
            if link.is_silent:
                link.closed_by_client()
            else:
                link.break_now("close")
