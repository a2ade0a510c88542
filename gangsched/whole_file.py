"""Writes a file as a whole or not at all: half a configuration or report looks like a complete one.

Called by the commands that leave a file behind. Not here: files that grow (journals, traces, logs); of those
only the mode they are made with: they hold names, annotations and conditions of every tenant.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gangsched.errors import ConfigError

# The directory takes no new file, or the file is a mount: it can only be written in place.
_ONLY_IN_PLACE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.ENAMETOOLONG)
# These names lead to an open file that other processes may still write to: do not replace it by a new file.
_OPEN_FILES = ("/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/")


PRIVATE_MODE = 0o640
PRIVATE_DIRECTORY_MODE = 0o750
"""For the owner and its group. In a pod that is the volume's (fsGroup), so another container may read too."""


def private(path: str | os.PathLike[str], flags: int) -> int:
    """Opens a file that others may not read, as `opener` of open(). A file that is there keeps its mode."""
    return os.open(path, flags, PRIVATE_MODE)


def write_whole(path: Path, data: bytes, *, opener: Callable[[str, int], int] | None = None) -> None:
    """Replaces the file in one step: if this fails or is killed, the old content stays.

    opener: opens a new file, for example `private`. A link stays a link, and a file keeps its mode. Devices
    and pipes are written to. Raises: OSError.
    """
    target = Path(os.path.realpath(path))
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        mode = 0
    is_file = stat.S_ISREG(mode) and os.access(target, os.W_OK)
    if (mode and not is_file) or str(path).startswith(_OPEN_FILES):
        _write_in_place(path, data)
        return
    try:
        _write_beside(target, data, stat.S_IMODE(mode), opener)
    except OSError as error:
        if error.errno not in _ONLY_IN_PLACE:
            raise
        _write_in_place(path, data)


def check_writable(path: Path) -> None:
    """Raises OSError now rather than after the work; leaves no new file behind."""
    is_new = not os.path.lexists(path)
    with open(path, "ab"):
        pass
    if is_new:
        path.unlink()


def check_file(path: str, *, flag: str = "") -> None:
    """As check_writable, of a file that a user has named, by this flag. Raises: ConfigError."""
    try:
        check_writable(Path(path))
    except OSError as error:
        raise _unwritable(path, flag, error) from None


def put_file(path: str, text: str, *, flag: str = "") -> None:
    """As write_whole, of a file that a user has named, by this flag. Raises: ConfigError."""
    try:
        write_whole(Path(path), text.encode())
    except OSError as error:
        raise _unwritable(path, flag, error) from None


def _unwritable(path: str, flag: str, error: OSError) -> ConfigError:
    return ConfigError(f"cannot be written: {error.strerror}", path=flag, source=path)


def _write_beside(target: Path, data: bytes, mode: int, opener: Callable[[str, int], int] | None) -> None:
    """mode: the existing file's, 0 if there is none."""
    beside = target.with_name(target.name + ".part")
    beside.unlink(missing_ok=True)  # left by a killed process
    try:
        with open(beside, "xb", opener=opener) as file:
            if mode:
                os.fchmod(file.fileno(), mode)
            file.write(data)
        os.replace(beside, target)
    except OSError:
        with suppress(OSError):
            beside.unlink()
        raise


def _write_in_place(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError:
        with suppress(OSError):
            os.truncate(path, 0)  # an empty file does not look complete
        raise
