"""DiskJournal: a thread that writes a journal's records, and keeps the directory within its bounds.

The loop only puts bytes into a list. Where the disk is slower than the cluster for so long that the list is
full, or refuses, the journal of this process ends: what follows a gap cannot be replayed. What is lost is
counted, and scheduling never waits.

A segment that is long is followed by another, which begins with the core's state. A copy of this process, as
the kernel makes it in a moment, writes that; until it is done records go to both segments, and if it fails
the old one goes on. The oldest segments are deleted where all together are too large, and where one is too
old.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, NoReturn

import structlog

from gangsched.config.recording import RecordSettings
from gangsched.errors import ConfigError
from gangsched.journal.segments import Stream, name_of, segments_in
from gangsched.web.board.aside import KEPT, alone, forked

_log = structlog.get_logger(__name__)

# The first lists of a large cluster come faster than any disk writes.
_MAX_WAITING = 256 * 2**20
_MANY_BYTES = 2**18
# What a kill may cost beyond what is on its way.
_WRITE_S = 0.2
# So many segments fill the room that there is, and the time; hours at most, so that a replay is soon there.
_N_SEGMENTS = 8
_SEGMENT_S = 3600.0
_AGAIN_S = 600.0
_COPY_S = 600.0
_LOOK_S = 60.0


def process_name() -> str:
    """When, where and which: names of files sort by it."""
    host = re.sub(r"[^\w-]", "-", os.uname().nodename, flags=re.ASCII)
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{host}-{os.getpid()}"


class _Next(NamedTuple):
    """A segment that is being begun by a copy of this process."""

    pid: int
    path: Path
    part: Path


class DiskJournal:
    """The journal of one process. n_*: what has been, for metrics; bytes are those on disk."""

    def __init__(self, settings: RecordSettings, process: str) -> None:
        """Raises: ConfigError (the directory cannot be written to)."""
        self._settings = settings
        self._process = process
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
        self._next: _Next | None = None
        self._for_next: list[bytes] = []
        self._is_closing = False
        self._look_at_s = 0.0
        self._n_in_segment = 0
        self._n_begun_with = 0
        self._began_s = time.monotonic()
        self._not_before_s = 0.0
        self.wants_segment = False
        self.lost = ""
        """Why nothing is written any more."""
        self.n_records = 0
        self.n_bytes = 0
        self.n_dropped = 0
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    @property
    def _segment_s(self) -> float:
        return min(_SEGMENT_S, self._settings.max_age_s / _N_SEGMENTS)

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
            if self._next is not None:
                self._for_next.append(framed)
            if self._n_waiting >= _MANY_BYTES:
                self._wanted.set()
        return ""

    def begin_segment(self, number: int, write: Callable[[], list[bytes]]) -> None:
        """A copy of this process writes what it begins with, as of now."""
        self.wants_segment = False
        path = self._directory / name_of(self._process, number)
        part = path.with_suffix(".part")
        try:
            file = os.open(part, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o666)
            try:
                pid = forked()
                if not pid:
                    _copy(write, file)
            finally:
                os.close(file)
        except OSError as error:
            self._not_before_s = time.monotonic() + _AGAIN_S
            _log.warning("no new segment of the journal now, the old one goes on", err=error.strerror)
            return
        with self._lock:
            self._next = _Next(pid, path, part)

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
        try:
            while not self._is_closing:
                self._wanted.wait(_WRITE_S)
                self._wanted.clear()
                self._write(self._taken())
                self._turn_over()
                self._keep_bounds()
            self._write(self._taken())
            self._file.write(self._stream.end())
        except OSError as error:
            self._lose(f"{self._path}: {error.strerror}")
        finally:
            self._file.close()
            if self._next is not None:
                with contextlib.suppress(OSError):
                    os.kill(self._next.pid, signal.SIGKILL)
                    os.waitpid(self._next.pid, 0)
                self._next.part.unlink(missing_ok=True)

    def _taken(self) -> list[bytes]:
        with self._lock:
            records, self._waiting = self._waiting, []
            self._n_waiting = 0
        return records

    def _write(self, records: list[bytes]) -> None:
        """Raises: OSError."""
        if not records:
            return
        packed = memoryview(self._stream.take(records))
        while packed:
            n = self._file.write(packed)
            packed = packed[n:]
            self.n_bytes += n
            self._n_in_segment += n
        self.n_records += len(records)

    def _turn_over(self) -> None:
        """Goes on to the next segment, once its beginning is written. Raises: OSError."""
        upcoming = self._next
        if upcoming is None:
            n_since = self._n_in_segment - self._n_begun_with
            is_long = n_since > max(self._settings.max_bytes // _N_SEGMENTS, self._n_begun_with)
            now_s = time.monotonic()
            is_due = is_long or (n_since > 0 and now_s >= self._began_s + self._segment_s)
            self.wants_segment = is_due and now_s >= self._not_before_s
            return
        pid, status = os.waitpid(upcoming.pid, os.WNOHANG)
        if not pid:
            return
        with self._lock:
            records, self._waiting, self._n_waiting = self._waiting, [], 0
            others, self._for_next, self._next = self._for_next, [], None
        self._write(records)
        if status:
            why = upcoming.part.read_bytes()[:500].decode(errors="replace") or f"status {status}"
            upcoming.part.unlink()
            self._not_before_s = time.monotonic() + _AGAIN_S
            _log.warning("no new segment of the journal now, the old one goes on", err=why)
            return
        self._file.write(self._stream.end())
        self._file.close()
        self._file = open(upcoming.part, "ab", buffering=0)  # noqa: SIM115
        upcoming.part.rename(upcoming.path)
        self._path, self._stream = upcoming.path, Stream()
        self._n_in_segment = self._n_begun_with = os.stat(upcoming.path).st_size
        self.n_bytes += self._n_in_segment
        self._began_s = time.monotonic()
        self._write(others)
        self.n_records -= len(others)  # they are in both

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
        total = self._n_in_segment
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


def _copy(write: Callable[[], list[bytes]], file: int) -> NoReturn:
    """What runs in the copy, to its end: the beginning of a segment, or why there is none and status 1."""
    status = 1
    try:
        alone(file, _COPY_S)
        try:
            stream = Stream()
            body, status = stream.take(write()) + stream.end(), 0
        except Exception as error:
            body = f"{type(error).__name__}: {error}".encode(errors="replace")
        at = memoryview(body)
        while at:
            at = at[os.write(KEPT, at) :]
    except BaseException:
        status = 1
    finally:
        os._exit(status)
