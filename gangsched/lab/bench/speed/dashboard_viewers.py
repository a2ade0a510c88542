"""Viewers of the dashboard, for `bench --dashboard`: event streams that are read and dropped.

`python -m gangsched.lab.bench.speed.dashboard_viewers ADDRESS N` prints "following" once each has received
something, and ends when its standard input does.
"""

from __future__ import annotations

import sys

import aiohttp
import anyio


async def _follow(session: aiohttp.ClientSession, address: str, has_all: anyio.Event) -> None:
    # The certificate is made for the run, so there is nothing to check it against.
    async with session.get(f"{address}/dashboard/events", ssl=False) as events:
        async for part in events.content.iter_any():
            if part.endswith(b"\n\n"):
                has_all.set()


async def follow(address: str, n: int) -> None:
    """Follows until standard input ends."""
    timeout = aiohttp.ClientTimeout(total=None)
    connector = aiohttp.TCPConnector(limit=n)
    async with (
        aiohttp.ClientSession(timeout=timeout, connector=connector) as session,
        anyio.create_task_group() as group,
    ):
        followed = [anyio.Event() for _ in range(n)]
        for has_all in followed:
            group.start_soon(_follow, session, address, has_all)
        for has_all in followed:
            await has_all.wait()
        print("following", flush=True)
        await anyio.to_thread.run_sync(sys.stdin.buffer.read, abandon_on_cancel=True)
        group.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(follow, sys.argv[1], int(sys.argv[2]))
