"""DiskJournal: a thread that writes a journal's records, and keeps the directory within its bounds.

The loop only puts bytes into a list. If the disk is too slow for so long that the list is full, or rejects
writes, the journal has a gap: lost records are counted, and scheduling never waits. Records after a gap
cannot be replayed from earlier ones, so recording resumes with a new segment once the disk accepts one: the
thread tries that after seconds, then less and less often.

A long segment is followed by another, which begins with the core's state. A forked copy of this process
writes that state; until it is done, records go to both segments, and if it fails, the old one continues.
Oldest segments are deleted when all together are too large, and each when it is too old.

| file | next segment | a record |
|---|---|---|
| open | none | is written |
| open | begun by a copy | is written, and also to the next segment when the copy is done |
| none: a gap | none | is dropped, and counted |
| none: a gap | begun by a copy | is written to the next segment when the copy is done, or dropped |
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple

import structlog

from gangsched.config.recording import RecordSettings
from gangsched.errors import ConfigError
from gangsched.journal.counted import Counted
from gangsched.journal.directory import keep_bounds, try_to_write
from gangsched.journal.segments import Stream, name_of, part_of
from gangsched.process_copy import forked, write_and_end
from gangsched.whole_file import PRIVATE_DIRECTORY_MODE, private

_log = structlog.get_logger(__name__)

# The first lists of a large cluster arrive faster than any disk writes.
_MAX_WAITING = 256 * 2**20
_MANY_BYTES = 2**18
# How much a kill may lose beyond data being written.
_WRITE_S = 0.2
# This many segments fill the size and age limits; at most hours each, so that a replay reaches a time
# quickly.
_N_SEGMENTS = 8
_SEGMENT_S = 3600.0
_AGAIN_S = 600.0
_COPY_S = 600.0
_LOOK_S = 60.0
# Tries after a gap: the first one soon, then doubling; starts over after a while without a gap.
_FIRST_TRY_S = 2.0
_LAST_TRY_S = 600.0
_LONG_S = 300.0
_UNTOLD = -1
# Why nothing is written before the first segment; not reported.
_NOT_BEGUN = "unbegun"


class _Next(NamedTuple):
    """A segment that a copy of this process is beginning."""

    pid: int
    path: Path
    part: Path


class DiskJournal:
    """The journal of one process. n_*: counts for metrics; bytes are those on disk."""

    def __init__(self, settings: RecordSettings, process: str, *, from_state: bool = False) -> None:
        """from_state: it begins with begin_segment instead of a first record.

        Raises: ConfigError (the directory cannot be written to).
        """
        self._settings = settings
        self._process = process
        self._directory = Path(settings.directory)
        self._path = self._directory / name_of(process, 1)
        self._file: BinaryIO | None = None
        try:
            self._directory.mkdir(PRIVATE_DIRECTORY_MODE, parents=True, exist_ok=True)
            if from_state:
                try_to_write(self._directory, process, b"")
            else:
                self._file = open(self._path, "xb", 0, opener=private)  # noqa: SIM115 (closed by the thread)
        except OSError as error:
            problem = f"cannot be written to: {error.strerror}"
            raise ConfigError(problem, path="record.directory", source=settings.directory) from None
        self._stream = Stream()
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        self._waiting: list[bytes] = []
        self._for_next: list[bytes] = []
        self._n_waiting = self._n_for_next = 0
        self._next: _Next | None = None
        self._is_late = self._is_beginning = self._is_closing = False
        self._look_at_s = 0.0
        self._undeleted = ""
        self._n_in_segment = 0
        self._n_begun_with = 0
        self._began_s = time.monotonic()
        self._not_before_s = 0.0
        self._try_s = _FIRST_TRY_S
        self._lost_s, self._n_dropped_before = 0.0, 0
        self.wants_segment = False
        self.lost = _NOT_BEGUN if from_state else ""
        """Why nothing is written now."""
        self.n_records = self.n_bytes = self.n_dropped = self.n_gaps = self.n_tries = 0
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def change(self, settings: RecordSettings) -> None:
        """Applies new bounds to the same directory."""
        self._settings = settings

    @property
    def _segment_s(self) -> float:
        return min(_SEGMENT_S, self._settings.max_age_s / _N_SEGMENTS)

    def put(self, framed: bytes) -> str:
        """Takes a record if there is room for it; returns why it was not taken."""
        n = len(framed)
        with self._lock:
            if self._next is not None and not self._is_late:
                self._for_next.append(framed)
                self._n_for_next += n
                self._is_late = self._n_for_next > _MAX_WAITING
            if not self.lost and self._n_waiting + n > _MAX_WAITING:
                self._lose(f"the disk is too slow: {self._n_waiting // 2**20} MB are waiting for it")
            if not self.lost:
                self._waiting.append(framed)
                self._n_waiting += n
                if self._n_waiting >= _MANY_BYTES and not self._wanted.is_set():
                    self._wanted.set()
            elif self._next is None or self._is_late:
                return self.lost
        return ""

    def skip(self) -> None:
        """Counts a missing record."""
        with self._lock:
            self.n_dropped += 1

    def lose(self, why: str) -> None:
        """Begins a gap: later records cannot follow the earlier ones."""
        with self._lock:
            self._lose(why)

    def _lose(self, why: str) -> None:
        """Does so with the lock held."""
        if self.lost and self.lost != _NOT_BEGUN:
            return
        self.lost = why
        self._lost_s = now_s = time.monotonic()
        self._n_dropped_before = self.n_dropped
        self.n_gaps += 1
        if now_s - self._began_s > _LONG_S:
            self._try_s = _FIRST_TRY_S
        self._put_off(now_s)
        _log.error("the journal has a gap from here on; scheduling goes on", why=why)

    def _put_off(self, now_s: float) -> None:
        """Schedules the next try to resume."""
        self.wants_segment = False
        self._not_before_s = now_s + self._try_s
        self._try_s = min(2.0 * self._try_s, _LAST_TRY_S)

    def begin_segment(self, number: int, write: Callable[[], list[bytes]]) -> None:
        """Forks a copy of this process that writes the segment's beginning, as of now."""
        self._is_beginning = True
        self.wants_segment = False
        path = self._directory / name_of(self._process, number)
        part = part_of(path)
        try:
            file = private(part, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
            try:
                pid = forked()
                if not pid:
                    write_and_end(partial(_beginning, write), file, _COPY_S)
            finally:
                os.close(file)
        except OSError as error:
            self._failed(error.strerror or str(error))
        else:
            with self._lock:
                self._next, self._is_late = _Next(pid, path, part), False
        self._is_beginning = False

    def _failed(self, why: str) -> None:
        """Handles a failure to begin a segment. In a gap, that is already logged and counted."""
        if self.lost == _NOT_BEGUN:
            self.lose(why)
        elif self.lost:
            self._put_off(time.monotonic())
        else:
            self._not_before_s = time.monotonic() + _AGAIN_S
            _log.warning("no new segment of the journal for now, the old one continues", err=why)

    @property
    def is_open(self) -> bool:
        """Whether the thread still writes."""
        return self._thread.is_alive()

    @property
    def counted(self) -> Counted:
        with self._lock:  # counts a gap together with its lost records
            n_missing, goes_on = self.n_dropped, not self.lost
            return Counted(self.n_records, self.n_bytes, n_missing, self.n_gaps, self.n_tries, goes_on)

    def close(self, timeout_s: float) -> None:
        """Writes the waiting records within that time; 0: leaves it to the thread."""
        self._is_closing = True
        self._wanted.set()
        self._thread.join(timeout_s)

    # -- the thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_closing:
            self._wanted.wait(_WRITE_S)
            self._wanted.clear()
            self._step()
        self._step(is_last=True)
        if self._next is not None:
            with contextlib.suppress(OSError):
                os.kill(self._next.pid, signal.SIGKILL)
                os.waitpid(self._next.pid, 0)
            with contextlib.suppress(OSError):
                self._next.part.unlink(missing_ok=True)

    def _step(self, *, is_last: bool = False) -> None:
        has_gap = bool(self.lost)  # before taking the rest, which still follows the written records
        try:
            self._write(self._taken())
            if is_last or has_gap:
                self._end_segment()
            if not is_last:
                self._turn_over()
                self._keep_bounds()
        except OSError as error:
            self._refused(error)

    def _refused(self, error: OSError) -> None:
        """Handles a write error: drops the waiting records, and removes a partly written one."""
        with self._lock:
            self._lose(f"{self._path.name}: {error.strerror}")
            self.n_dropped += len(self._waiting)
            self._waiting, self._n_waiting = [], 0
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.truncate(self._n_in_segment)
            with contextlib.suppress(OSError):
                file.close()

    def _end_segment(self) -> None:
        """Raises: OSError."""
        file, self._file = self._file, None
        if file is not None:
            with file:
                file.write(self._stream.end())

    def _taken(self) -> list[bytes]:
        with self._lock:
            records, self._waiting = self._waiting, []
            self._n_waiting = 0
        return records

    def _write(self, records: list[bytes]) -> None:
        """Raises: OSError."""
        if not records:
            return
        if self._file is None:
            self._missing(len(records))
            return
        packed = memoryview(self._stream.take(records))
        n_whole = len(packed)
        try:
            while packed:
                packed = packed[self._file.write(packed) :]
        except OSError as error:
            with self._lock:
                self._lose(f"{self._path.name}: {error.strerror}")
                self.n_dropped += len(records)
            raise
        self.n_bytes += n_whole
        self._n_in_segment += n_whole
        self.n_records += len(records)

    def _missing(self, n: int) -> None:
        with self._lock:
            self.n_dropped += n

    def _turn_over(self) -> None:
        """Switches to the next segment, once its beginning is written. Raises: OSError."""
        upcoming = self._next
        if upcoming is None:
            self._look_ahead()
            return
        if self._is_late:
            with contextlib.suppress(OSError):
                os.kill(upcoming.pid, signal.SIGKILL)
        try:
            pid, status = os.waitpid(upcoming.pid, os.WNOHANG)
        except ChildProcessError:  # other code, such as a plugin, has collected its exit status
            pid, status = upcoming.pid, _UNTOLD
        if not pid:
            return
        with self._lock:
            lost, is_done = self.lost, not (status or self._is_late)
            records, self._waiting, self._n_waiting = self._waiting, [], 0
            others, self._for_next, self._n_for_next, self._next = self._for_next, [], 0, None
            if is_done:
                self.lost = ""
        self._write(records)
        if not is_done:
            beginning = upcoming.part.read_bytes()[:500].decode(errors="replace") if status > 0xFF else ""
            upcoming.part.unlink(missing_ok=True)
            if lost:
                self._missing(len(others))
            self._failed(beginning or f"its copy ended with status {status}")
            return
        try:
            self._go_on(upcoming)
        except OSError:
            self._missing(len(others))
            raise
        self._write(others)
        if not lost:
            self.n_records -= len(others)  # they are in both segments
        elif lost != _NOT_BEGUN:
            gap_s = round(time.monotonic() - self._lost_s, 3)
            n_missing = self.n_dropped - self._n_dropped_before
            _log.warning("the journal goes on after a gap", missing=n_missing, gap_s=gap_s)

    def _go_on(self, upcoming: _Next) -> None:
        """Continues in the file that has the beginning. Raises: OSError."""
        with contextlib.suppress(OSError):  # its end is known anyway
            self._end_segment()
        self._file = open(upcoming.part, "ab", buffering=0)  # noqa: SIM115
        upcoming.part.rename(upcoming.path)
        self._path, self._stream = upcoming.path, Stream()
        self._n_in_segment = self._n_begun_with = os.stat(upcoming.path).st_size
        self.n_bytes += self._n_in_segment
        self._began_s = time.monotonic()

    def _look_ahead(self) -> None:
        """Decides whether a segment should begin now, by this one's length and age, or after a gap."""
        now_s = time.monotonic()
        if self._is_beginning or self.lost == _NOT_BEGUN:
            return
        if self.lost:
            if now_s >= self._not_before_s and not self.wants_segment:
                self.n_tries += 1
                try:
                    try_to_write(self._directory, self._process)
                except OSError:
                    self._put_off(now_s)
                else:
                    self.wants_segment = True
            return
        n_since = self._n_in_segment - self._n_begun_with
        is_long = n_since > max(self._settings.max_bytes // _N_SEGMENTS, self._n_begun_with)
        is_due = is_long or (n_since > 0 and now_s >= self._began_s + self._segment_s)
        self.wants_segment = is_due and now_s >= self._not_before_s

    def _keep_bounds(self) -> None:
        """Raises: OSError."""
        now_s = time.monotonic()
        if now_s < self._look_at_s:
            return
        self._look_at_s = now_s + _LOOK_S
        own = None if self._file is None else self._path
        kept = keep_bounds(self._directory, self._settings, own=own, n_own=self._n_in_segment)
        if kept.problem and kept.problem != self._undeleted:
            _log.warning(
                "a journal that is too old or over the size limit cannot be deleted", err=kept.problem
            )
        self._undeleted = kept.problem
        if kept.n_bytes > self._settings.max_bytes and not self.lost:
            self.lose(f"it has reached maxSizeMB, {self._settings.max_bytes // 10**6}")


def _beginning(write: Callable[[], list[bytes]]) -> tuple[bytes, int]:
    """In the copy: returns the begin of a segment; or why there is none, and status 1."""
    stream = Stream()
    try:
        return stream.take(write()) + stream.end(), 0
    except Exception as error:
        return f"{type(error).__name__}: {error}".encode(errors="replace"), 1
