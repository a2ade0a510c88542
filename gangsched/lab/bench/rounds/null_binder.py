"""The null binder: posts prepared Bindings over warm connections, and nothing else. A process of its own.

It marks the upper limit: no watch, no decision, no parsing beyond the status line, one non-blocking TLS
socket per connection and one epoll. asyncio is not used: its TLS costs more CPU than all of this, and on a
machine where the API server has no cores of its own that would lower the ceiling. Standard library only.

Run by contenders.py as `python -m gangsched.lab.bench.rounds.null_binder PLAN HOST PORT CA CONNECTIONS`. It
sleeps when it is done, until SIGTERM, so that its CPU time and memory can still be read.
"""

from __future__ import annotations

import re
import selectors
import signal
import socket
import ssl
import struct
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

_LENGTH = struct.Struct(">I")
_CONTENT_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
RECEIVE_BYTES = 65536


def write_plan(path: Path, requests: Iterable[bytes]) -> None:
    """Writes whole requests, each after its length; they carry a token, so only the owner may read."""
    path.touch(mode=0o600)
    with open(path, "wb") as plan:
        for request in requests:
            plan.write(_LENGTH.pack(len(request)) + request)


def read_plan(path: Path) -> list[bytes]:
    """The requests of a plan, in order."""
    data, at = path.read_bytes(), 0
    requests = []
    while at < len(data):
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        requests.append(data[at : at + size])
        at += size
    return requests


def is_whole(answer: bytes) -> bool:
    """Whether all of one answer is there; kube-apiserver answers a Binding with a Content-Length."""
    end = answer.find(b"\r\n\r\n")
    if end < 0:
        return False
    length = _CONTENT_LENGTH.search(answer, 0, end)
    if length is None:
        raise ValueError(f"an answer without a length: {answer[:200]!r}")
    return len(answer) >= end + 4 + int(length[1])


def connect(host: str, port: int, context: ssl.SSLContext) -> ssl.SSLSocket:
    """One warm connection: its handshake is done."""
    plain = socket.create_connection((host, port), timeout=30)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    secure = context.wrap_socket(plain, server_hostname=host)
    secure.setblocking(False)
    return secure


def post_all(requests: Sequence[bytes], connections: Sequence[ssl.SSLSocket]) -> list[bytes]:
    """Sends them all, one at a time on each connection; returns the answers that were not 201 Created."""
    waiting = iter(requests)
    refused: list[bytes] = []
    selector = selectors.DefaultSelector()
    parts: dict[ssl.SSLSocket, bytes] = {}
    for connection, request in zip(connections, waiting, strict=False):
        selector.register(connection, selectors.EVENT_READ, connection)
        connection.send(request)
        parts[connection] = b""
    n_open = len(parts)
    while n_open:
        for key, _ in selector.select():
            connection = key.data
            answer = _receive(connection, parts[connection])
            if not is_whole(answer):
                parts[connection] = answer
                continue
            if not answer.startswith(b"HTTP/1.1 201"):
                refused.append(answer)
            following = next(waiting, None)
            if following is None:
                selector.unregister(connection)
                n_open -= 1
            else:
                parts[connection] = b""
                connection.send(following)
    return refused


def _receive(connection: ssl.SSLSocket, before: bytes) -> bytes:
    """Returns what has arrived so far. Raises: ConnectionError when the server has closed."""
    while True:
        try:
            data = connection.recv(RECEIVE_BYTES)
        except ssl.SSLWantReadError:
            return before
        if not data:
            raise ConnectionError("the API server closed a connection of the null binder")
        before += data


def main(arguments: Sequence[str]) -> int:
    """Posts the plan, prints what was refused, and sleeps until a signal ends it."""
    plan, host, port, ca_file, n_connections = arguments
    requests = read_plan(Path(plan))
    context = ssl.create_default_context(cafile=ca_file)
    connections = [connect(host, int(port), context) for _ in range(int(n_connections))]
    refused = post_all(requests, connections)
    if refused:
        print(f"{len(refused)} of {len(requests)} bindings refused, first: {refused[0][-400:]!r}", flush=True)
    signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
