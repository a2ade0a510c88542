"""A copy of this process, made in a moment, that writes one answer to one file and is gone.

The kernel copies a process's memory page by page when one of the two writes to it: the copy has the whole
state of the scheduler as it is now, for some milliseconds of the loop's time, and computes with it on another
core. A thread would take the interpreter from the loop, and a new process would have to be told everything.

The copy keeps no file and no socket but the one that it writes to, starts no thread and takes no lock of one
that it has not: it runs a pure function. Locks that another thread held when it was made stay held in it; if
it should ever wait for one, its own alarm ends it. Its time and its memory are bounded.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import warnings
from collections.abc import Callable
from typing import NoReturn

_MORE_MEMORY = 2**30
_NICE = 5
_FILE = 3


def forked() -> int:
    """A copy of this process: 0 in it. Raises: OSError."""
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        # Left so by what started us: the kernel would forget how a copy ended. Elsewhere than in the main
        # thread it cannot be changed.
        with contextlib.suppress(ValueError):
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with warnings.catch_warnings():
        # There are threads beside the loop's; the module's docstring says why that does no harm.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def write_and_end(answer: Callable[[], tuple[bytes, int]], file: int, limit_s: float) -> NoReturn:
    """In a copy: writes what `answer` returns to the file, and ends with the status that it returns.

    A regular file that cannot take all of it has the reason instead, and the status is 1; so it is where
    `answer` raises, and then nothing is written.
    """
    status = 1
    try:
        _leave(file, limit_s)
        body, ends = answer()
        try:
            _write_all(body)
            status = ends
        except OSError as error:
            os.ftruncate(_FILE, 0)
            os.lseek(_FILE, 0, os.SEEK_SET)
            _write_all((error.strerror or "").encode(errors="replace"))
    finally:
        os._exit(status)


def _leave(file: int, limit_s: float) -> None:
    """Gives up everything that is the other's but this file, and sets the bounds."""
    gc.disable()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    signal.alarm(int(limit_s) + 1)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.dup2(file, _FILE)
    os.closerange(_FILE + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    with open("/proc/self/statm", encoding="ascii") as statm:
        has = int(statm.read().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (has + _MORE_MEMORY, hard))


def _write_all(body: bytes) -> None:
    at = memoryview(body)
    while at:
        at = at[os.write(_FILE, at) :]
