"""Opens the file to which traces are appended.

Called by telemetry.otlp_json, and by the demo, which looks at the file before it starts.
"""

from __future__ import annotations

import errno
import os
from io import FileIO
from pathlib import Path

BEFORE = ".1"
"""What is added to the name of a file that has grown to its limit."""
_IS_PIPE = "it is a pipe or a terminal, and no file"


def opened(path: Path) -> FileIO:
    """The file, for appending. Raises: OSError."""
    try:
        # Opening a named pipe that nobody reads waits for a reader, but for this flag.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
        file = FileIO(os.open(path, flags, 0o666), "ab")
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise OSError(error.errno, _IS_PIPE) from None
    if not file.seekable():
        file.close()
        raise OSError(errno.ESPIPE, _IS_PIPE)
    return file
