"""The watcher's process, seen from the bench, and its log, read after the round.

Not here: what runs in that process (watcher.py), and what is right or wrong (checks.py).
"""

from __future__ import annotations

import mmap
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from gangsched.lab.bench.rounds.watcher import BOARD, RECORD
from gangsched.lab.bench.rounds.workload import NAMESPACE
from gangsched.lab.controlplane.daemon import Daemon, StartFailed
from gangsched.lab.controlplane.processes import ControlPlane
from gangsched.model.objects import Pod

OPEN_S = 30.0
WRITE_S = 60.0


class Seen(NamedTuple):
    """One line of the watch; `at_ns` by the machine's monotonic clock."""

    at_ns: int
    type: str
    pod: Pod


class _Line(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


_decode_line = msgspec.json.Decoder(_Line).decode
_decode_pod = msgspec.json.Decoder(Pod).decode


def parse_log(data: bytes) -> list[Seen]:
    """The pods of a watcher's log, in the order they came. Raises: ValueError for a line that is no pod."""
    seen: list[Seen] = []
    at = 0
    while at < len(data):
        at_ns, size = RECORD.unpack_from(data, at)
        at += RECORD.size
        raw = data[at : at + size]
        at += size
        if not raw:
            continue
        line = _decode_line(raw)
        if line.type == "ERROR":
            raise ValueError(f"the watch was broken off: {bytes(line.object)[:300]!r}")
        if line.type != "BOOKMARK":
            seen.append(Seen(at_ns, line.type, _decode_pod(line.object)))
    return seen


def first_binds(log: list[Seen]) -> Mapping[str, Seen]:
    """For each pod's UID the first line that shows it on a node, in the order these came."""
    binds: dict[str, Seen] = {}
    for seen in log:
        if seen.pod.spec.node_name and seen.type != "DELETED":
            binds.setdefault(seen.pod.metadata.uid, seen)
    return binds


class WatchProcess:
    """A watcher that runs from construction to `finish()`; one that is not finished dies with the bench."""

    def __init__(self, cp: ControlPlane, folder: Path, resource_version: str) -> None:
        folder.mkdir(exist_ok=True)
        self._output = folder / "watch.log"
        board_path, request = folder / "board", folder / "request"
        board_path.write_bytes(bytes(BOARD.size))
        request.touch(mode=0o600)
        request.write_bytes(_request(cp, resource_version))
        with open(board_path, "r+b") as shared:
            self._board = mmap.mmap(shared.fileno(), BOARD.size)
        module = [sys.executable, "-m", "gangsched.lab.bench.rounds.watcher"]
        where = ["127.0.0.1", str(cp.port), str(cp.ca_file)]
        command = [*module, str(board_path), str(self._output), str(request), *where]
        self.daemon = Daemon("watcher", command, log=folder / "watcher.out", env=os.environ)
        try:
            self.daemon.wait_ready(lambda: BOARD.unpack(self._board[:])[0] == 1, timeout_s=OPEN_S)
        except BaseException:
            self.kill()
            raise

    @property
    def n_bound(self) -> int:
        """Pods seen with a node so far."""
        return int(BOARD.unpack(self._board[:])[1])

    def finish(self) -> list[Seen]:
        """Stops it and reads its log. Raises: StartFailed when it had ended by itself, or never wrote."""
        ended_early = not self.daemon.running
        self.daemon.process.terminate()
        deadline_s = time.monotonic() + WRITE_S
        while self.daemon.running and time.monotonic() < deadline_s:
            time.sleep(0.01)
        self.kill()
        if ended_early or not self._output.exists():
            raise StartFailed(f"the watcher ended before the round did:\n{self.daemon.tail()}")
        return parse_log(self._output.read_bytes())

    def kill(self) -> None:
        """Kills it, and its log may be lost; does nothing if it has ended."""
        self.daemon.kill()


def _request(cp: ControlPlane, resource_version: str) -> bytes:
    query = f"watch=1&resourceVersion={resource_version}&timeoutSeconds=7200"
    lines = [
        f"GET /api/v1/namespaces/{NAMESPACE}/pods?{query} HTTP/1.0",
        f"Host: 127.0.0.1:{cp.port}",
        "User-Agent: gangsched-bench-watcher",
        "Accept: application/json",
        f"Authorization: Bearer {cp.token}",
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
