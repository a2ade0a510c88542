"""The independent clock: watches pods in its own process and records when each line came.

It keeps bytes and times, and extracts only what its caller needs at once (how many pods have a node so far);
everything else is parsed after the round (watch_log.py). It uses HTTP/1.0, so the server sends bare lines and
no chunks. Standard library only, blocking reads: its CPU time is part of every round and must stay small.

Run by watch_log.WatchProcess as `python -m gangsched.lab.bench.rounds.watcher BOARD OUTPUT REQUEST HOST PORT
CA`; writes OUTPUT on SIGTERM. The request is in a file because it carries a token.
"""

from __future__ import annotations

import mmap
import re
import signal
import socket
import ssl
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

RECORD = struct.Struct(">QI")
"""Before each line of the log: monotonic nanoseconds, length of the line."""
BOARD = struct.Struct("<QQ")
"""What the watcher shows while it runs: 1 once the watch is open, pods that have a node."""
RECEIVE_BYTES = 1 << 18
_UID = re.compile(rb'"uid":"([^"]+)"')
_HAS_NODE = b'"nodeName":"'


class Stopped(Exception):
    """SIGTERM came."""


class LineScanner:
    """Cuts bytes into lines, each with the time its end came, and collects pods that have a node."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, bytes]] = []
        self.bound: set[bytes] = set()
        self._rest = b""

    def feed(self, data: bytes, at_ns: int) -> None:
        """Takes in bytes cut anywhere."""
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            self.lines.append((at_ns, line))
            # A managed field is "f:nodeName", and in an annotation's JSON the quotes are escaped.
            if _HAS_NODE in line and (uid := _UID.search(line)):
                self.bound.add(uid[1])


def open_watch(host: str, port: int, ca_file: str, request: bytes) -> tuple[ssl.SSLSocket, bytes]:
    """The stream after its head, and what came with the head. Raises: OSError with the server's answer."""
    context = ssl.create_default_context(cafile=ca_file)
    stream = context.wrap_socket(socket.create_connection((host, port), timeout=30), server_hostname=host)
    stream.sendall(request)
    head = b""
    while (end := head.find(b"\r\n\r\n")) < 0:
        data = stream.recv(RECEIVE_BYTES)
        if not data:
            raise ConnectionError(f"the API server closed the watch: {head[:300]!r}")
        head += data
    if b" 200 " not in head[:20]:
        raise ConnectionError(f"the API server refused the watch: {head[:300]!r}")
    stream.settimeout(None)
    return stream, head[end + 4 :]


def watch(stream: ssl.SSLSocket, first: bytes, board: mmap.mmap, scanner: LineScanner) -> None:
    """Reads until the server ends the stream or SIGTERM comes."""
    scanner.feed(first, time.monotonic_ns())
    while True:
        board[:] = BOARD.pack(1, len(scanner.bound))
        data = stream.recv(RECEIVE_BYTES)
        at_ns = time.monotonic_ns()
        if not data:
            return
        scanner.feed(data, at_ns)


def write_log(path: Path, lines: Sequence[tuple[int, bytes]]) -> None:
    """Writes each line after its time and length; moves the file into place whole."""
    partial = path.with_suffix(".partial")
    with open(partial, "wb") as log:
        for at_ns, line in lines:
            log.write(RECORD.pack(at_ns, len(line)) + line)
    partial.replace(path)


def _stop(signum: int, frame: FrameType | None) -> None:
    raise Stopped


def main(arguments: Sequence[str]) -> int:
    """Watches, and writes the log when it is stopped."""
    board_path, output, request_path, host, port, ca_file = arguments
    scanner = LineScanner()
    signal.signal(signal.SIGTERM, _stop)
    with open(board_path, "r+b") as shared:
        board = mmap.mmap(shared.fileno(), BOARD.size)
    try:
        stream, first = open_watch(host, int(port), ca_file, Path(request_path).read_bytes())
        watch(stream, first, board, scanner)
        print("the API server ended the watch", flush=True)
    except Stopped:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    write_log(Path(output), scanner.lines)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
