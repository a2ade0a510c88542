"""Computes in a copy of this process, with bounds on the time and on the length of the answer.

Not here: the copy itself (gangsched.process_copy). Called by the board for work that the loop has no time
for.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import anyio

from gangsched.errors import ConfigError
from gangsched.process_copy import forked, write_and_end

MAX_ANSWER = 16 * 2**20
_DONE, _REFUSED, _FAILED = b"\x00", b"\x01", b"\x02"


class CopyFailed(Exception):
    """There is no answer; the message says why, for people."""


class Found(NamedTuple):
    """copied_s: CPU time of the caller's thread for making the copy, which blocks it."""

    body: bytes
    copied_s: float


async def in_copy(compute: Callable[[], bytes], *, limit_s: float) -> Found:
    """Returns what `compute` returns in a copy of this process. Raises: its ConfigError; CopyFailed."""
    receiving, sending = os.pipe()
    began_s = time.thread_time()
    try:
        pid = forked()
    except OSError as error:
        os.close(receiving)
        os.close(sending)
        raise CopyFailed(f"there is no room for it now: {error.strerror}") from None
    if not pid:
        write_and_end(partial(_answer, compute), sending, limit_s)
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
        raise CopyFailed(f"it took longer than {limit_s:g} s")
    if body[:1] == _REFUSED:
        raise ConfigError(body[1:].decode(errors="replace"))
    if body[:1] != _DONE:
        raise CopyFailed(body[1:].decode(errors="replace") or "it ended without an answer")
    return Found(body[1:], copied_s)


async def _received(pipe: int) -> bytes:
    """Reads all that the copy writes until it closes the pipe. Raises: CopyFailed."""
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
                raise CopyFailed(f"its answer is longer than {MAX_ANSWER // 2**20} MiB")
            parts.append(part)
    finally:
        loop.remove_reader(pipe)


def _answer(compute: Callable[[], bytes]) -> tuple[bytes, int]:
    """In the copy: returns a mark of the outcome followed by the answer, and the exit status."""
    try:
        return _DONE + compute(), 0
    except ConfigError as error:
        return _REFUSED + str(error).encode(errors="replace"), 0
    except CopyFailed as error:
        return _FAILED + str(error).encode(errors="replace"), 0
    except MemoryError:
        return _FAILED + b"it needs more memory than it may have here", 0
    except Exception as error:
        return _FAILED + f"{type(error).__name__}: {error}".encode(errors="replace")[:1000], 0
