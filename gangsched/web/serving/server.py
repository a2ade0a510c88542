"""The pages over HTTPS: paths, authorization, headers. GET and HEAD; POST for Permit decisions.

Lives here: aiohttp. Not here: the content of a page (health, metrics, configz come in as functions),
authorization (access). service.py imports it after the first decisions: an HTTP server costs a fifth of a
second to load.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

import anyio
import structlog
from aiohttp import web

from gangsched.accepting import Accepting
from gangsched.web.access import Access, Refused
from gangsched.web.board.pages import Board
from gangsched.web.listening import CLUSTER_HEADER, LEADER_HEADER
from gangsched.web.metrics.page import format_for
from gangsched.web.pages.answers import RESERVATIONS_PATH
from gangsched.web.pages.explanations import Explanations
from gangsched.web.pages.queue import Queue
from gangsched.web.pages.reservations import Reservations
from gangsched.web.pages.stories import Stories
from gangsched.web.pages.waiting import Waiting
from gangsched.web.serving.health import Health, Page
from gangsched.web.top.page import Top
from gangsched.web.turns import Turns

_log = structlog.get_logger(__name__)

PLAIN = "text/plain; charset=utf-8"
_USER = web.RequestKey("user", str)
_IDENTITY = re.compile(r"[A-Za-z0-9._-]{1,320}")
# Probes come every few seconds, scrapes every half minute.
_KEEP_ALIVE_S = 60.0
_SHUTDOWN_S = 1.0
_BODY_S = 10.0
_HEADERS = {
    "Server": "gangsched",
    "Cache-Control": "no-cache, private",
    "X-Content-Type-Options": "nosniff",
}


class Server:
    """Serves until cancelled, on sockets that already listen."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        tls: ssl.SSLContext | None,
        *,
        access: Access,
        health: Mapping[str, Health],
        metrics: Callable[[str], Awaitable[bytes]],
        configz: Callable[[], bytes],
        waiting: Waiting,
        stories: Stories,
        queue: Queue,
        explanations: Explanations,
        reservations: Reservations,
        top: Top,
        board: Board | None = None,
        turns: Turns | None = None,
        leader: Callable[[], str | None] = lambda: None,
        cluster: Callable[[], str] = lambda: "",
    ) -> None:
        """`tls` None: plain HTTP, for a loopback address. `board` None: no dashboard. leader: returns the one
        that leads instead of this replica, None if this one leads. cluster: returns its identity, "" while
        that is not known.
        """
        self._turns = turns or Turns()
        self._sockets = sockets
        self._tls = tls
        self._access = access
        self._health = health
        self._metrics = metrics
        self._configz = configz
        self._waiting = waiting
        self._stories = stories
        self._queue = queue
        self._explanations = explanations
        self._board = board
        self._reservations = reservations
        self._top = top
        self._leader = leader
        self._cluster = cluster

    async def run(self) -> None:
        app = web.Application(middlewares=[self._guarded], client_max_size=1024)
        app.on_response_prepare.append(_headers)
        for name in self._health:
            app.router.add_get(f"/{name}", self._all_checks)
            app.router.add_get(f"/{name}/{{check}}", self._one_check)
        app.router.add_get("/metrics", self._metrics_page)
        app.router.add_get("/configz", self._configz_page)
        app.router.add_get("/story/{namespace}/{name}", self._story_page)
        app.router.add_get("/explain/{namespace}/{name}", self._explain_page)
        app.router.add_get("/queue", self._queue_page)
        app.router.add_get("/queues", self._queues_page)
        app.router.add_get("/top", self._top_page)
        app.router.add_get(RESERVATIONS_PATH, self._reservations_page)
        app.router.add_get("/permit", self._permit_page)
        app.router.add_post("/permit/{namespace}/{name}/{word:allow|reject}", self._permit_word)
        if self._board is not None:
            self._board.add_to(app, self._access)
        runner = web.AppRunner(app, shutdown_timeout=_SHUTDOWN_S)
        await runner.setup()
        server = runner.server
        assert server is not None
        try:
            await Accepting(server, self._tls, partial(_connection, server)).run(self._sockets)
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_SHUTDOWN_S * 2):
                await runner.cleanup()

    @web.middleware
    async def _guarded(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Checks access, then calls the handler. Unknown paths get 404 without authorization."""
        try:
            if request.match_info.http_exception is None:
                if self._board is not None and self._board.guards(request.path):
                    return await self._board.guarded(request, handler)
                verb = "get" if request.method == "HEAD" else request.method.lower()
                request[_USER] = await self._access.check(
                    request.path,
                    request.headers.get("Authorization", ""),
                    verb=verb,
                    address=request.remote or "",
                )
            response = await handler(request)
            is_probe = request.path.split("/")[1] in self._health  # probes are open to anybody
            if _USER in request and not is_probe and (leader := self._leader()) is not None:
                # The lease's writer may set any text as holder, but a header is one line.
                response.headers[LEADER_HEADER] = leader if _IDENTITY.fullmatch(leader) else "unknown"
            if _USER in request and not is_probe and (cluster := self._cluster()):
                response.headers[CLUSTER_HEADER] = cluster if _IDENTITY.fullmatch(cluster) else "unknown"
            return response
        except Refused as refused:
            headers = {"Retry-After": "5"} if refused.code == 429 else {}
            return web.Response(status=refused.code, text=refused.message + "\n", headers=headers)
        except web.HTTPException:
            raise
        except Exception as error:
            _log.error("a page failed", path=request.path, err=f"{type(error).__name__}: {error}")
            return web.Response(status=500, text="internal server error\n")

    async def _all_checks(self, request: web.Request) -> web.Response:
        health = self._health[request.path.strip("/")]
        page = health.page(verbose="verbose" in request.query, exclude=request.query.getall("exclude", []))
        return _answer(page)

    async def _one_check(self, request: web.Request) -> web.Response:
        _, name, _ = request.path.split("/", 2)
        page = self._health[name].one(request.match_info["check"])
        if page is None:
            raise web.HTTPNotFound
        return _answer(page)

    async def _metrics_page(self, request: web.Request) -> web.Response:
        wanted = format_for(request.headers.get("Accept", ""))
        return web.Response(body=await self._metrics(wanted), headers={"Content-Type": wanted})

    async def _configz_page(self, _: web.Request) -> web.Response:
        return web.Response(body=self._configz(), content_type="application/json")

    async def _names_all(self, request: web.Request) -> bool:
        """Whether the user may read such a page of every namespace, so that it names objects of others."""
        page = request.path.split("/")[1]
        authorization = request.headers.get("Authorization", "")
        return await self._access.may(f"/{page}/*", authorization, address=request.remote or "")

    async def _story_page(self, request: web.Request) -> web.Response:
        to_tenant = not await self._names_all(request)
        body = await self._turns.made(partial(self._stories.as_json, _named(request), to_tenant=to_tenant))
        if body is None:
            raise web.HTTPNotFound
        return web.Response(body=body, content_type="application/json")

    async def _explain_page(self, request: web.Request) -> web.Response:
        to_tenant = not await self._names_all(request)
        body = await self._turns.made(
            partial(self._explanations.as_json, _named(request), to_tenant=to_tenant)
        )
        if body is None:
            raise web.HTTPNotFound
        return web.Response(body=body, content_type="application/json")

    async def _queue_page(self, request: web.Request) -> web.Response:
        namespace = request.query.get("namespace", "")
        if request.query.get("estimates") == "true":
            body = await self._queue.listed_with_estimates(namespace)
        else:
            body = await self._turns.made(partial(self._queue.as_json, namespace))
        return web.Response(body=body, content_type="application/json")

    async def _queues_page(self, _: web.Request) -> web.Response:
        body = await self._turns.made(self._queue.queues)
        return web.Response(body=body, content_type="application/json")

    async def _top_page(self, request: web.Request) -> web.Response:
        body = await self._top.as_json(request.query.get("namespace", ""))
        return web.Response(body=body, content_type="application/json")

    async def _reservations_page(self, _: web.Request) -> web.Response:
        body = await self._turns.made(self._reservations.listed)
        return web.Response(body=body, content_type="application/json")

    async def _permit_page(self, _: web.Request) -> web.Response:
        body = await self._turns.made(self._waiting.listed)
        return web.Response(body=body, content_type="application/json")

    async def _permit_word(self, request: web.Request) -> web.Response:
        try:
            # Not request.text(): the client's charset may name any of Python's codecs.
            with anyio.fail_after(_BODY_S):
                reason = (await request.read()).decode()
        except UnicodeDecodeError:
            return web.Response(status=400, text="the reason is not UTF-8 text\n")
        except TimeoutError:
            return web.Response(status=408, text="the reason has not come in time\n")
        code, text = self._waiting.decide(
            _named(request), word=request.match_info["word"], by=request[_USER], reason=reason.strip()
        )
        return web.Response(status=code, text=text + "\n")


class _Connection(web.RequestHandler):
    """One connection; answers invalid HTTP with the headers of all pages."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        response = super().handle_error(request, status, exc, message)
        response.headers.update(_HEADERS)
        return response


def _connection(server: web.Server) -> _Connection:
    return _Connection(
        server,
        loop=asyncio.get_running_loop(),
        access_log=None,  # type: ignore[arg-type]  # turns it off in aiohttp
        logger=_silent(),
        keepalive_timeout=_KEEP_ALIVE_S,
        # Else a compressed body is unpacked in our loop before its sender is checked.
        auto_decompress=False,
    )


def _named(request: web.Request) -> str:
    return f"{request.match_info['namespace']}/{request.match_info['name']}"


def _silent() -> logging.Logger:
    """aiohttp would log clients' input, with tracebacks; the server itself logs failures of a page."""
    logger = logging.Logger("gangsched.web")
    logger.disabled = True
    return logger


def _answer(page: Page) -> web.Response:
    return web.Response(status=page.code, text=page.text, headers={"Content-Type": PLAIN})


async def _headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)
