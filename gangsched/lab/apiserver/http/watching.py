"""One watch over one connection: lines as they come, bookmarks from time to time, its end.

Lives here: time and the connection. Not here: which lines (lab.apiserver.storage.watches). Called by
server.py.
"""

from __future__ import annotations

import asyncio
import contextlib

from aiohttp import web

from gangsched.api_rules.status import StatusError
from gangsched.lab.apiserver.http import responses
from gangsched.lab.apiserver.http.handlers import Watching
from gangsched.lab.apiserver.storage.watches import Watch

# As in the real server: about once a minute, and shortly before a watch ends.
BOOKMARK_S = 60.0
BEFORE_END_S = 2.0
# The kernel and aiohttp buffer some lines; a client that takes nothing for this long is cut off.
STALLED_S = 60.0


async def stream_watch(
    http: web.BaseRequest, watching: Watching, *, closing: asyncio.Event, default_s: float
) -> web.StreamResponse:
    """Send a watch until its time is over, its client leaves, or the server closes."""
    loop = asyncio.get_running_loop()
    awake = asyncio.Event()
    try:
        watch = watching.open(awake.set)
    except StatusError as error:
        refusal = responses.status(error)
        return web.Response(
            body=refusal.body, status=refusal.code, headers={"Content-Type": refusal.content_type}
        )
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.enable_chunked_encoding()
    end_s = loop.time() + (watching.timeout_s or default_s)
    try:
        await response.prepare(http)
        await _stream(response, watch, awake, closing, end_s=end_s, bookmarks=watching.bookmarks)
        if watch.too_slow and http.transport is not None:
            http.transport.abort()
        else:
            await response.write_eof()
    except (ConnectionError, TimeoutError):
        # The client has left, or no longer reads.
        if http.transport is not None:
            http.transport.abort()
    finally:
        watch.close()
    return response


async def _stream(
    response: web.StreamResponse,
    watch: Watch,
    awake: asyncio.Event,
    closing: asyncio.Event,
    *,
    end_s: float,
    bookmarks: bool,
) -> None:
    loop = asyncio.get_running_loop()
    closed = asyncio.ensure_future(closing.wait())
    closed.add_done_callback(lambda _: awake.set())
    next_bookmark_s = min(loop.time() + BOOKMARK_S, end_s - BEFORE_END_S) if bookmarks else end_s
    try:
        while True:
            awake.clear()
            lines = watch.take()
            if lines:
                async with asyncio.timeout(STALLED_S):
                    await response.write(lines[0] if len(lines) == 1 else b"".join(lines))
                continue
            now_s = loop.time()
            if watch.ended or closing.is_set() or now_s >= end_s:
                return
            if bookmarks and now_s >= next_bookmark_s:
                watch.bookmark()
                before_end_s = end_s - BEFORE_END_S
                later_s = now_s + BOOKMARK_S
                next_bookmark_s = before_end_s if now_s < before_end_s < later_s else later_s
                continue
            until_s = min(next_bookmark_s, end_s) if bookmarks else end_s
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(until_s - now_s, 0.0)):
                    await awake.wait()
    finally:
        closed.cancel()
