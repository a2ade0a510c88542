"""DiskJournal: a thread that writes a journal's records, and keeps the directory within its bounds.

The loop only puts bytes into a list. Where the disk is slower than the cluster for so long that the list is
full, or refuses, the journal of this process ends: what follows a gap cannot be replayed. What is lost is
counted, and scheduling never waits. Files of earlier processes are deleted, the oldest first, where all
together are too large, and where one is too old; a process whose own file reaches the limit ends its journal.
"""

from __future__ import annotations

import os
import re
import threading
import time
from pathlib import Path

import structlog

from gangsched.config.recording import RecordSettings
from gangsched.errors import ConfigError
from gangsched.journal.segments import Stream, name_of, segments_in

_log = structlog.get_logger(__name__)

# The first lists of a large cluster come faster than any disk writes.
_MAX_WAITING = 256 * 2**20
_MANY_BYTES = 2**18
# What a kill may cost beyond what is on its way.
_WRITE_S = 0.2
_LOOK_S = 60.0


def process_name() -> str:
    """When, where and which: names of files sort by it."""
    host = re.sub(r"[^\w-]", "-", os.uname().nodename, flags=re.ASCII)
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{host}-{os.getpid()}"


class DiskJournal:
    """The journal of one process. n_*: what has been, for metrics; bytes are those on disk."""

    def __init__(self, settings: RecordSettings, process: str) -> None:
        """Raises: ConfigError (the directory cannot be written to)."""
        self._settings = settings
        self._directory = Path(settings.directory)
        self._path = self._directory / name_of(process, 1)
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._file = open(self._path, "xb", buffering=0)  # noqa: SIM115 (closed by the thread)
        except OSError as error:
            problem = f"cannot be written to: {error.strerror}"
            raise ConfigError(problem, path="record.directory", source=settings.directory) from None
        self._stream = Stream()
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        self._waiting: list[bytes] = []
        self._n_waiting = 0
        self._is_closing = False
        self._look_at_s = 0.0
        self.lost = ""
        """Why nothing is written any more."""
        self.n_records = 0
        self.n_bytes = 0
        self.n_dropped = 0
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def put(self, framed: bytes) -> str:
        """Takes a record, if there is room for it; returns why it is not taken."""
        with self._lock:
            if not self.lost and self._n_waiting + len(framed) > _MAX_WAITING:
                self.lost = f"the disk is too slow: {self._n_waiting // 2**20} MB wait for it"
            if self.lost:
                self.n_dropped += 1
                return self.lost
            self._waiting.append(framed)
            self._n_waiting += len(framed)
            if self._n_waiting >= _MANY_BYTES:
                self._wanted.set()
        return ""

    @property
    def counted(self) -> tuple[int, int, int, bool]:
        return self.n_records, self.n_bytes, self.n_dropped, not self.lost

    def close(self, timeout_s: float) -> None:
        """Writes what waits, within that time."""
        self._is_closing = True
        self._wanted.set()
        self._thread.join(timeout_s)

    # -- the thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        with self._file:
            try:
                while not self._is_closing:
                    self._wanted.wait(_WRITE_S)
                    self._write()
                    self._keep_bounds()
                self._write()
                self._file.write(self._stream.end())
            except OSError as error:
                self._lose(f"{self._path}: {error.strerror}")

    def _write(self) -> None:
        """Raises: OSError."""
        self._wanted.clear()
        with self._lock:
            records, self._waiting = self._waiting, []
            self._n_waiting = 0
        if not records:
            return
        packed = memoryview(self._stream.take(records))
        while packed:
            n = self._file.write(packed)
            packed = packed[n:]
            self.n_bytes += n
        self.n_records += len(records)

    def _lose(self, why: str) -> None:
        with self._lock:
            self.lost = self.lost or why
            self.n_dropped += len(self._waiting)
            self._waiting.clear()
            self._n_waiting = 0

    def _keep_bounds(self) -> None:
        """Raises: OSError."""
        now_s = time.monotonic()
        if now_s < self._look_at_s:
            return
        self._look_at_s = now_s + _LOOK_S
        settings = self._settings
        total = self.n_bytes
        others = []
        for one in segments_in(self._directory):
            if one.path != self._path:
                found = os.stat(one.path)
                others.append((found.st_mtime, found.st_size, one.path))
                total += found.st_size
        for written_s, n_bytes, path in sorted(others):
            if total > settings.max_bytes or time.time() - written_s > settings.max_age_s:
                path.unlink(missing_ok=True)
                total -= n_bytes
                _log.info("a journal is deleted, too old or too much", file=str(path))
        if total > settings.max_bytes:
            self._lose(f"it has reached maxSizeMB, {settings.max_bytes // 10**6}")
