"""The directory of a journal: names of processes, whether the disk accepts writes, which files are deleted.

Lives here: the writing thread's other operations on the file system; making the directory for other code that
writes a journal. Called by writing, journal.anonymise.command and importing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import structlog

from gangsched.config.recording import RecordSettings
from gangsched.errors import ConfigError
from gangsched.journal.segments import PART, segments_in
from gangsched.whole_file import PRIVATE_DIRECTORY_MODE, private

_log = structlog.get_logger(__name__)
_PROBE = bytes(2**20)
# Age at which the file of a process that was killed while beginning a segment is deleted.
_LEFT_S = 86_400.0


def process_name(n: int = 1) -> str:
    """Names time, host and process, so that file names sort by time. n: which journal of this process."""
    host = re.sub(r"[^\w-]", "-", os.uname().nodename, flags=re.ASCII)
    name = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{host}-{os.getpid()}"
    return name if n == 1 else f"{name}-{n}"


def try_to_write(directory: Path, process: str, body: bytes = _PROBE) -> None:
    """Checks that a file with this content can be made there, and deletes it. Raises: OSError."""
    directory.mkdir(PRIVATE_DIRECTORY_MODE, parents=True, exist_ok=True)
    part = directory / f"{process}{PART}"
    try:
        with open(part, "wb", 0, opener=private) as file:
            if file.write(body) < len(body):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        with contextlib.suppress(FileNotFoundError):
            part.unlink()


def begin_empty(directory: Path) -> bool:
    """Makes the directory, or checks that it is empty; returns whether it existed. Raises: ConfigError."""
    try:
        if directory.is_dir():
            if any(directory.iterdir()):
                why = "is not empty: give an empty directory, or a new one"
                raise ConfigError(why, source=str(directory))
            return True
        directory.mkdir(PRIVATE_DIRECTORY_MODE, parents=True)
    except OSError as error:
        raise ConfigError(f"cannot be written to: {error.strerror}", source=str(directory)) from None
    return False


def take_back(directory: Path, made: Iterable[Path], *, was_there: bool) -> None:
    """Deletes the files made in it, and the directory if it is new; other files stay.

    Raises: ConfigError (a file cannot be deleted).
    """
    for path in made:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            why = f"is incomplete, and cannot be deleted: {error.strerror}"
            raise ConfigError(why, source=str(path)) from None
    if not was_there:
        with contextlib.suppress(OSError):  # it is gone, or has other files
            directory.rmdir()


class Kept(NamedTuple):
    """What stays in a directory. problem: which file cannot be deleted, and why; "": none."""

    n_bytes: int
    problem: str = ""


def keep_bounds(directory: Path, settings: RecordSettings, *, own: Path | None, n_own: int) -> Kept:
    """Deletes the oldest files while all together are too large, and files that are too old.

    Sizes in bytes. own: the file being written, which stays. Raises: OSError (that file or the directory is
    gone).
    """
    if own is not None:
        os.stat(own)
    total, problem = n_own, ""
    others = []
    try:
        found = segments_in(directory)
    except ConfigError as error:
        raise OSError(errno.EIO, str(error)) from None
    now_s = time.time()
    for one in found:
        # Another process may apply the same bounds to a shared directory.
        with contextlib.suppress(OSError):
            if one.path != own:
                stat = os.stat(one.path)
                others.append((stat.st_mtime, stat.st_size, one.path))
                total += stat.st_size
    for written_s, n_bytes, path in sorted(others):
        if total > settings.max_bytes or now_s - written_s > settings.max_age_s:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:  # a directory of that name, another account's file, a closed directory
                problem = problem or f"{path.name}: {error.strerror}"
                continue
            total -= n_bytes
            _log.info("a journal was deleted: too old, or over the size limit", file=str(path))
    for part in directory.glob(f"*{PART}"):
        with contextlib.suppress(OSError):
            if now_s - os.stat(part).st_mtime > _LEFT_S:
                part.unlink()
    return Kept(total, problem)
