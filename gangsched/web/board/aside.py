"""A copy of this process, made in a moment, that answers one question and is gone.

The kernel copies a process's memory page by page when one of the two writes to it: the copy has the whole
state of the scheduler as it is now, for some milliseconds of the loop's time, and computes with it on another
core. A thread would take the interpreter from the loop, and a new process would have to be told everything.

The copy keeps no file and no socket but the pipe of its answer, starts no thread and takes no lock of one
that it has not: it runs a pure function. Locks that another thread held when it was made stay held in it; if
it should ever wait for one, its own alarm ends it. Its memory, time and answer are bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import signal
import time
import warnings
from collections.abc import Callable
from typing import NamedTuple, NoReturn

import anyio

from gangsched.errors import ConfigError

MAX_ANSWER = 16 * 2**20
_MORE_MEMORY = 2**30
_NICE = 5
_DONE, _REFUSED, _FAILED = b"\x00", b"\x01", b"\x02"


class AsideFailed(Exception):
    """It has not come to an answer; the message says why, for people."""


class Found(NamedTuple):
    """copied_s: CPU time of the caller's thread while the copy was made; it does nothing else meanwhile."""

    body: bytes
    copied_s: float


async def aside(compute: Callable[[], bytes], *, limit_s: float) -> Found:
    """What `compute` returns in a copy of this process. Raises: ConfigError as it does; AsideFailed."""
    receiving, sending = os.pipe()
    began_s = time.thread_time()
    try:
        pid = forked()
    except OSError as error:
        os.close(receiving)
        os.close(sending)
        raise AsideFailed(f"there is no room for it now: {error.strerror}") from None
    if not pid:
        _copy(compute, sending, limit_s)
    copied_s = time.thread_time() - began_s
    os.close(sending)
    try:
        with anyio.move_on_after(limit_s) as limit:
            body = await _received(receiving)
    finally:
        os.close(receiving)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with anyio.CancelScope(shield=True), contextlib.suppress(ChildProcessError):
            await anyio.to_thread.run_sync(os.waitpid, pid, 0)
    if limit.cancelled_caught:
        raise AsideFailed(f"it took longer than {limit_s:g} s")
    if body[:1] == _REFUSED:
        raise ConfigError(body[1:].decode(errors="replace"))
    if body[:1] != _DONE:
        raise AsideFailed(body[1:].decode(errors="replace") or "it ended without an answer")
    return Found(body[1:], copied_s)


def forked() -> int:
    """A copy of this process: 0 in it. Raises: OSError."""
    with warnings.catch_warnings():
        # There are threads beside the loop's; the module's docstring says why that does no harm.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


async def _received(pipe: int) -> bytes:
    """All that the copy writes until it closes the pipe. Raises: AsideFailed."""
    os.set_blocking(pipe, False)
    loop, parts, n = asyncio.get_running_loop(), list[bytes](), 0
    ready = asyncio.Event()
    loop.add_reader(pipe, ready.set)
    try:
        while True:
            await ready.wait()
            ready.clear()
            try:
                part = os.read(pipe, 1 << 16)
            except BlockingIOError:
                continue
            if not part:
                return b"".join(parts)
            n += len(part)
            if n > MAX_ANSWER:
                raise AsideFailed(f"its answer is longer than {MAX_ANSWER // 2**20} MiB")
            parts.append(part)
    finally:
        loop.remove_reader(pipe)


def _copy(compute: Callable[[], bytes], sending: int, limit_s: float) -> NoReturn:
    """What runs in the copy, to its end."""
    try:
        alone(sending, limit_s)
        try:
            body = _DONE + compute()
        except ConfigError as error:
            body = _REFUSED + str(error).encode(errors="replace")
        except AsideFailed as error:
            body = _FAILED + str(error).encode(errors="replace")
        except MemoryError:
            body = _FAILED + b"it needs more memory than it may have here"
        except Exception as error:
            body = _FAILED + f"{type(error).__name__}: {error}".encode(errors="replace")[:1000]
        at = memoryview(body)
        while at:
            at = at[os.write(KEPT, at) :]
    finally:
        os._exit(0)


KEPT = 3


def alone(sending: int, limit_s: float) -> None:
    """In a copy: leaves everything that is the other's but this file, which is KEPT from now on, and sets the
    bounds."""
    gc.disable()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    signal.alarm(int(limit_s) + 1)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.dup2(sending, KEPT)
    os.closerange(KEPT + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    with open("/proc/self/statm", encoding="ascii") as file:
        has = int(file.read().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (has + _MORE_MEMORY, hard))
