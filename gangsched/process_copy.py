"""A forked copy of this process that writes one answer to one file and ends.

The kernel copies memory page by page, when either process writes to it. So for a few milliseconds of the
loop's time the copy has the scheduler's whole current state and computes with it on another core. A thread
would take the interpreter from the loop, and a new process would have to be sent everything.

The copy keeps no file or socket except the one that it writes to, starts no thread and takes no lock of
another thread: it runs a pure function. Locks that another thread held at the fork stay held in the copy; if
it ever waits for one, its own alarm ends it. Its time and memory are bounded.
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
    """Forks this process; returns 0 in the copy. Raises: OSError."""
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        # Inherited from our parent: the kernel would discard the copy's exit status. Only the main thread can
        # change it.
        with contextlib.suppress(ValueError):
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with warnings.catch_warnings():
        # Other threads than the loop's exist; the module's docstring explains why that is harmless.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def write_and_end(answer: Callable[[], tuple[bytes, int]], file: int, limit_s: float) -> NoReturn:
    """In a copy: writes the bytes that `answer` returns to the file, and exits with the status it returns.

    If a regular file cannot take all of it, the reason is written instead, and the status is 1. If `answer`
    raises, the status is 1 and nothing is written.
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
    """Gives up everything of the parent's except this file, and sets the bounds."""
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
