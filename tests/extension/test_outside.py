"""What a plugin asks an HTTP service: JSON, of bounded size, from services that fail, lie and never end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import pytest
from aiohttp import web

from gangsched.extension.outside import MAX_ANSWER, Outside, ServiceError

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def service(answer: Answer) -> AsyncIterator[tuple[Outside, str]]:
    app = web.Application()
    app.router.add_route("*", "/ask", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    outside = Outside()
    try:
        yield outside, f"http://{host}:{port}/ask"
    finally:
        await outside.close()
        await runner.cleanup()


async def test_a_body_is_posted_and_none_is_a_get() -> None:
    async def answer(request: web.Request) -> web.Response:
        said = await request.json() if request.method == "POST" else None
        return web.json_response({"method": request.method, "said": said})

    async with service(answer) as (outside, url):
        assert await outside.ask(url, {"a": 1}) == {"method": "POST", "said": {"a": 1}}
        assert await outside.ask(url) == {"method": "GET", "said": None}


async def test_cookies_are_not_kept() -> None:
    seen: list[str | None] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Cookie"))
        return web.json_response({}, headers={"Set-Cookie": "a=b"})

    async with service(answer) as (outside, url):
        for _ in range(2):
            await outside.ask(url.replace("127.0.0.1", "localhost"))
    assert seen == [None, None]


async def _endless(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse()
    await answer.prepare(request)
    for _ in range(64):
        await answer.write(b"[" * 2**14)
    return answer


BAD: dict[str, tuple[Answer, str]] = {}


def bad(says: str) -> Callable[[Answer], Answer]:
    def named(answer: Answer) -> Answer:
        BAD[answer.__name__] = (answer, says)
        return answer

    return named


@bad("answers with code 500")
async def fails(request: web.Request) -> web.StreamResponse:
    return web.Response(status=500)


@bad("answers with code 302")
async def sends_elsewhere(request: web.Request) -> web.StreamResponse:
    raise web.HTTPFound("http://169.254.169.254/")


@bad("answers with something that is not JSON")
async def talks(request: web.Request) -> web.StreamResponse:
    return web.Response(text="<html>")


@bad("answers with something that is not JSON")
async def nests(request: web.Request) -> web.StreamResponse:
    return web.Response(text="[" * 5000 + "]" * 5000)


@bad(f"answers more than {MAX_ANSWER} bytes")
async def floods(request: web.Request) -> web.StreamResponse:
    return await _endless(request)


@pytest.mark.parametrize(("answer", "says"), BAD.values(), ids=BAD)
async def test_what_cannot_be_used_is_an_error_that_names_the_service(answer: Answer, says: str) -> None:
    async with service(answer) as (outside, url):
        with anyio.fail_after(30.0), pytest.raises(ServiceError) as error:
            await outside.ask(url)
        assert f"service {url} " in str(error.value)
        assert says in str(error.value)


async def test_a_service_that_is_not_there_is_an_error() -> None:
    outside = Outside()
    try:
        with pytest.raises(ServiceError, match="cannot be asked"):
            await outside.ask("http://127.0.0.1:1/ask")
        with pytest.raises(ServiceError, match="cannot be asked"):
            await outside.ask("not a url")
    finally:
        await outside.close()
