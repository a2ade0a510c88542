"""Writes records of a journal into a file, as fast as they come: nothing is decided live, so writing may
wait.

Called by the command, jobs and history.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from msgspec.structs import replace

from gangsched.core.framework.plan import first_of
from gangsched.errors import ConfigError
from gangsched.journal.counted import Counted
from gangsched.journal.directory import begin_empty, take_back
from gangsched.journal.recorder import Recorder
from gangsched.journal.records import Start
from gangsched.journal.segments import Stream, name_of
from gangsched.whole_file import private

_MANY = 1000


class JournalFile:
    """A Sink of one segment, of the process `name`."""

    def __init__(self, directory: Path, name: str) -> None:
        """Raises: ConfigError (the directory is not empty, or cannot be written to)."""
        self._directory = directory
        self._was_there = begin_empty(directory)
        try:
            self._path = directory / name_of(name, 1)
            self._file = open(self._path, "xb", opener=private)  # noqa: SIM115 (closed at the end)
        except OSError as error:
            raise _unwritable(directory, error) from None
        self._stream = Stream()
        self._waiting: list[bytes] = []
        self.n_records = 0
        self.n_bytes = 0

    def __enter__(self) -> JournalFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: object, trace: TracebackType | None) -> None:
        """Closes the file; after an error nothing is left of it. Raises: ConfigError."""
        is_whole = False
        try:
            if kind is None:
                self._write(is_last=True)
                self.n_bytes = self._file.tell()
                is_whole = True
        finally:
            with suppress(OSError):  # a failed write was reported before
                self._file.close()
            if not is_whole:
                take_back(self._directory, (self._path,), was_there=self._was_there)

    def put(self, framed: bytes) -> str:
        """Adds a record. Raises: ConfigError."""
        self._waiting.append(framed)
        self.n_records += 1
        if len(self._waiting) >= _MANY:
            self._write()
        return ""

    def _write(self, *, is_last: bool = False) -> None:
        """Writes the waiting records. Raises: ConfigError."""
        packed = self._stream.take(self._waiting)
        self._waiting.clear()
        try:
            self._file.write(packed + self._stream.end() if is_last else packed)
            self._file.flush()
        except OSError as error:
            raise _unwritable(self._directory, error) from None

    @property
    def wants_segment(self) -> bool:
        return False

    def begin_segment(self, number: int, write: Callable[[], list[bytes]]) -> None:
        """Never called."""

    def skip(self) -> None:
        """Does nothing: there is no gap."""

    def lose(self, why: str) -> None:
        """Raises: ConfigError."""
        raise ConfigError(why)

    @property
    def counted(self) -> Counted:
        return Counted(self.n_records, self.n_bytes, n_dropped=0, n_gaps=0, n_tries=0, goes_on=True)


def _unwritable(directory: Path, error: OSError) -> ConfigError:
    return ConfigError(f"cannot be written to: {error.strerror}", source=str(directory))


class VirtualRecorder(Recorder):
    """A recorder whose clock begins at 0, which was `began_s` seconds after 1970."""

    def __init__(self, sink: JournalFile, began_s: float) -> None:
        super().__init__(sink, first_of)
        self._began_s = began_s

    def _start(self, gap: str = "") -> Start:
        return replace(super()._start(gap), now_s=0.0, wall_s=self._began_s)
