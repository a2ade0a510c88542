"""Reading files that somebody names: regular ones, and those that credentials are in of bounded length.

Lives here: the one way to open them, and where a user's kubeconfig is. Not here: what is in them. A named
pipe would hold the reader for ever, a device has no end, and files named in a kubeconfig are read anew each
minute.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from typing import BinaryIO

from gangsched.errors import ConfigError

# A kubeconfig with a thousand clusters and their certificates has a third of this.
MAX_BYTES = 8 * 2**20


def home_kubeconfig(environ: Mapping[str, str]) -> str:
    """~/.kube/config, whether it is there or not.

    An account without HOME that the machine does not know, as in many containers, has no such file.
    """
    return os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".kube", "config")


def read_regular(path: str, what: str, max_bytes: int = MAX_BYTES) -> bytes:
    """All of it. `what`: it is, in words. Raises: OSError; ConfigError (not a regular file, or longer)."""
    with open_regular(path) as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise ConfigError(f"has more than {max_bytes} bytes, too many for a {what}", source=path)
    return data


def open_regular(path: str) -> BinaryIO:
    """For reading. Raises: OSError; ConfigError (it is not a regular file)."""
    # Opening a named pipe waits for its other end, but for this flag.
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
