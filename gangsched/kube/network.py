"""Sockets and their readiness: from the kernel, unless another network is passed in.

Lives here: resolving a name, connecting, the options of a TCP socket. Not here: the bytes sent
(kube.transport.connection). A simulation passes its own network with the credentials, with in-memory sockets:
then everything above it, from the first byte to the last event, is the same code as in a cluster.
"""

from __future__ import annotations

import asyncio
import selectors
import socket
from collections.abc import Callable
from typing import Protocol

import anyio

# If a name has several addresses, a silent one must not use up the time of the rest.
ADDRESS_TIMEOUT_S = 3.0


class SocketSelector(Protocol):
    """The part of `selectors` that kube.transport.readers needs; the loop registers its `fileno`."""

    def fileno(self) -> int: ...

    def register(
        self, fileobj: socket.socket, events: int, data: Callable[[], None]
    ) -> selectors.SelectorKey: ...

    def unregister(self, fileobj: socket.socket) -> selectors.SelectorKey: ...

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]: ...

    def close(self) -> None: ...


class Network:
    """The kernel's network. spans_threads: event loops of several threads may use it."""

    spans_threads = True

    async def connect(self, host: str, port: int) -> socket.socket:
        """Returns a connected, non-blocking socket, trying a name's addresses in order. Raises: OSError."""
        sock = await _connected(asyncio.get_running_loop(), host, port)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _keep_alive(sock)
        except BaseException:
            sock.close()
            raise
        return sock

    def selector(self) -> SocketSelector:
        """A selector for sockets of this network; the loop can watch the selector itself."""
        return selectors.DefaultSelector()


KERNEL = Network()


def _keep_alive(sock: socket.socket) -> None:
    """Let the kernel detect, in about 25 s, that the peer of an idle connection is gone."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


async def _connected(loop: asyncio.AbstractEventLoop, host: str, port: int) -> socket.socket:
    try:  # an address needs no resolver, and so no thread
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:  # an empty label, or one of more than 63 characters
        raise socket.gaierror(socket.EAI_NONAME, "it is not a host name") from None
    failure: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, where in found:
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        try:
            with anyio.fail_after(ADDRESS_TIMEOUT_S if len(found) > 1 else None):
                await loop.sock_connect(sock, where)
            return sock
        except OSError as error:
            failure = error
            sock.close()
        except BaseException:
            sock.close()
            raise
    raise failure
