"""Reads files named by users: only regular ones, and credential files only up to a length limit.

Lives here: the one way to open them, and where a user's kubeconfig is. Not here: their content. A named pipe
would block the reader for ever, a device has no end, and files named in a kubeconfig are reread every minute.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from typing import BinaryIO

from gangsched.errors import ConfigError

# A kubeconfig with a thousand clusters and their certificates takes a third of this.
MAX_BYTES = 8 * 2**20


def home_kubeconfig(environ: Mapping[str, str]) -> str:
    """Returns ~/.kube/config, whether or not it exists.

    An account that has no HOME and is unknown to the machine, as in many containers, has no such file.
    """
    return os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".kube", "config")


def read_regular(path: str, what: str, max_bytes: int = MAX_BYTES) -> bytes:
    """Reads it all. `what`: its name in errors. Raises: OSError; ConfigError (not regular, or too long)."""
    with open_regular(path) as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise ConfigError(f"has more than {max_bytes} bytes, too many for a {what}", source=path)
    return data


def open_regular(path: str) -> BinaryIO:
    """Opens for reading. Raises: OSError; ConfigError (not a regular file)."""
    # Without O_NONBLOCK, opening a named pipe waits for its other end.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(mode):
            raise ConfigError("is not a regular file; pipes and devices are not read", source=path)
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise
