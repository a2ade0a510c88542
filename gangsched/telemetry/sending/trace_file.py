"""Opens the file to which traces are appended.

Called by telemetry.sending.otlp_json, and by the demo, which checks the file before it starts.
"""

from __future__ import annotations

import errno
import os
from io import FileIO
from pathlib import Path

from gangsched.whole_file import private

BEFORE = ".1"
"""Suffix for the name of a file that has reached its limit."""
_IS_PIPE = "it is a pipe or a terminal, and no file"


def opened(path: Path) -> FileIO:
    """Opens the file for appending. Raises: OSError."""
    try:
        # Without O_NONBLOCK, opening a named pipe without a reader waits for one.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
        file = FileIO(private(path, flags), "ab")
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise OSError(error.errno, _IS_PIPE) from None
    if not file.seekable():
        file.close()
        raise OSError(errno.ESPIPE, _IS_PIPE)
    return file
