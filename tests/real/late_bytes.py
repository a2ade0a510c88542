"""A network that holds what a client sends, and delivers it later, also when the client is long gone.

Bytes alone: TLS passes through as it is. Answers pass at once. Not here: who is held, and when
(test_fence.py).
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

_CHUNK = 1 << 16
# So long a client that has gone seems to be there: a server stops working for one that it knows to be gone.
_AFTERLIFE_S = 3.0


class LateBytes:
    """A TCP proxy before `upstream_port` of loopback, a thread for each direction of a connection."""

    def __init__(self, upstream_port: int) -> None:
        self._upstream_port = upstream_port
        self._flows = threading.Event()
        self._flows.set()
        self._ends = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.n_held = 0
        """Bytes that are held now, as far as they have been read."""
        self._lock = threading.Lock()
        self._n_until = 0
        self._then: Callable[[], None] | None = None

    def __enter__(self) -> Self:
        _begin(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.set()
        self._flows.set()
        self._listener.close()

    def hold(self) -> None:
        """From now on nothing that a client sends arrives."""
        self._flows.clear()

    def after(self, n_bytes: int, act: Callable[[], None]) -> threading.Event:
        """Call `act` before the chunk that passes `n_bytes` from now on; the event is set when it was."""
        done = threading.Event()

        def then() -> None:
            act()
            done.set()

        with self._lock:
            self._n_until, self._then = n_bytes, then
        return done

    def let_go(self) -> None:
        """All of it arrives."""
        self._flows.set()

    def _accept(self) -> None:
        while not self._ends.is_set():
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._upstream_port))
            except OSError:
                return
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _begin(lambda c=client, s=server: self._up(c, s))
            _begin(lambda c=client, s=server: self._down(s, c))

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        try:
            while data := client.recv(_CHUNK):
                self._count(len(data))
                if not self._flows.is_set():
                    self.n_held += len(data)
                    self._flows.wait()
                    self.n_held -= len(data)
                    server.sendall(data)
                    self._ends.wait(_AFTERLIFE_S)  # what follows is the client's goodbye
                    continue
                server.sendall(data)
        except OSError:
            pass
        self._flows.wait()
        self._ends.wait(_AFTERLIFE_S)
        _shut(server)

    def _count(self, n_bytes: int) -> None:
        with self._lock:
            self._n_until -= n_bytes
            if self._then is not None and self._n_until < 0:
                then, self._then = self._then, None
                then()

    def _down(self, server: socket.socket, client: socket.socket) -> None:
        try:
            while data := server.recv(_CHUNK):
                client.sendall(data)
        except OSError:
            pass  # the client has gone; what it sent may still be held
        else:
            _shut(client)


def _begin(work: object) -> None:
    threading.Thread(target=work, daemon=True).start()  # type: ignore[arg-type]


def _shut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
