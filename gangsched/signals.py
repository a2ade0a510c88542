"""Signals before a command has its own handlers: they end it as Ctrl-C does, so that it cleans up.

Without this, SIGTERM ended the process at once, and a credential plugin that it was waiting for ran on.
SIGHUP makes the scheduler reread its configuration: an early one is remembered until extension.reload takes
it. Called by cli, for every command; a command's own handlers replace these.

A signal is handled at once only if it interrupts the main thread's wait. One that comes just before, or to
another thread, would be handled only when the loop next has something to do, so `run_loop` wakes the loop.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")


class EndedBySignal(KeyboardInterrupt):
    """A KeyboardInterrupt, since asyncio lets only those out of its loop."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(f"ended by {signal.Signals(number).name}")


class _Early:
    hung_up = False


@contextmanager
def early_signals(*, reloads: bool) -> Iterator[None]:
    """Handles signals until the end, or until the command's own handlers. reloads: SIGHUP does not end it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _Early.hung_up = False
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if number == signal.SIGHUP and reloads:
            signal.signal(number, _remember)
        elif handler is signal.SIG_DFL:  # `nohup` makes it ignored
            signal.signal(number, _end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def run_loop(command: Callable[..., Awaitable[T]], *of: Any) -> T:
    """Runs like anyio.run, in a loop that every signal wakes."""
    import asyncio  # not at the top: every command imports this module, and some need no loop
    import socket

    import anyio

    async def woken() -> T:
        if threading.current_thread() is not threading.main_thread():
            return await command(*of)
        loop, (reader, writer) = asyncio.get_running_loop(), socket.socketpair()
        with reader, writer:
            reader.setblocking(False)
            writer.setblocking(False)
            loop.add_reader(reader, reader.recv, 4096)
            signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
            try:
                return await command(*of)
            finally:
                signal.set_wakeup_fd(-1)
                loop.remove_reader(reader)

    return anyio.run(woken)


def take_hang_up() -> bool:
    """Returns whether SIGHUP came before there was a handler; True only once."""
    found, _Early.hung_up = _Early.hung_up, False
    return found


def _end(number: int, frame: FrameType | None) -> None:
    raise EndedBySignal(number)


def _remember(number: int, frame: FrameType | None) -> None:
    _Early.hung_up = True
