"""A server beside the test: on an event loop of its own, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager

_START_S = 30.0


@contextmanager
def in_a_thread(server: AbstractAsyncContextManager[object]) -> Iterator[asyncio.AbstractEventLoop]:
    """Runs the server until the block ends; yields its loop, for what must be called there."""
    started, stop = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        async with server:
            loops.append(asyncio.get_running_loop())
            started.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    assert started.wait(_START_S), f"{server} did not start"
    [loop] = loops
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(_START_S)
