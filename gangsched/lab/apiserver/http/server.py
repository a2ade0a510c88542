"""The HTTP face: aiohttp's server around the handlers; bytes in, bytes out.

Lives here: sockets, reading bodies, sending answers, opening watches, closing it all. Not here: the answers
(handlers.py, lab.apiserver.documents.documents). Started by the assembly (lab.apiserver.app).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno as errors
import os
import socket
import ssl
from collections.abc import Callable

import structlog
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from gangsched.accepting import Accepting
from gangsched.api_rules.status import StatusError
from gangsched.errors import ConfigError
from gangsched.lab.apiserver.http import responses
from gangsched.lab.apiserver.http.bodies import MAX_BODY_BYTES
from gangsched.lab.apiserver.http.handlers import Watching
from gangsched.lab.apiserver.http.negotiation import YAML, negotiate
from gangsched.lab.apiserver.http.requests import Request
from gangsched.lab.apiserver.http.responses import Answer
from gangsched.lab.apiserver.http.watching import stream_watch
from gangsched.lab.apiserver.status import internal_error, request_too_large

_log = structlog.get_logger(__name__)

# How long requests may go on once the server is closed; watches end at once.
SHUTDOWN_S = 2.0
KEEP_ALIVE_S = 3600.0
# A scheduler has about thirty connections, a load of the benchmark a hundred.
MAX_CONNECTIONS = 1024
_BACKLOG = 1024
# Selectors and continue tokens make long request lines; Go's servers take a megabyte of head.
MAX_LINE_BYTES = 256 * 2**10

Handle = Callable[[Request], Answer | Watching]


class HttpServer:
    """Serves one `Handle`; `port` 0 takes a free one. `close()` leaves no socket and no task."""

    def __init__(self, handle: Handle, *, watch_s: Callable[[], float]) -> None:
        self._handle = handle
        self._watch_s = watch_s
        self._closing = asyncio.Event()
        self._server = web.Server(
            self._respond,
            request_factory=_request,
            handler_cancellation=True,
            access_log=None,
            # A scheduler keeps connections open until the next gang, however long that takes.
            keepalive_timeout=KEEP_ALIVE_S,
            max_line_size=MAX_LINE_BYTES,
            max_field_size=MAX_LINE_BYTES,
        )
        self._runner = web.ServerRunner(self._server, shutdown_timeout=SHUTDOWN_S)
        self._sockets: list[socket.socket] = []
        self._accepting: asyncio.Task[None] | None = None
        self.port = 0

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        """Raises: ConfigError, if the address cannot be bound."""
        try:
            await self._bind(host, port)
        except OSError as error:
            self._unbind()
            # asyncio's own text repeats the address.
            errno = error.errno or 0
            why = os.strerror(errno) if errno > 0 else error.strerror or str(error)
            if errno == errors.EADDRINUSE:
                why += "; is another API server running? Another --port, or 0 for a free one"
            raise ConfigError(f"cannot listen on {host}:{port}: {why}") from None
        except UnicodeError:
            self._unbind()
            raise ConfigError(f"cannot listen on {host}:{port}: it is not a host name") from None
        await self._runner.setup()
        accepting = Accepting(self._server, tls, self._server, max_connections=MAX_CONNECTIONS)
        self._accepting = asyncio.create_task(accepting.run(self._sockets), name="accepting")

    async def _bind(self, host: str, port: int) -> None:
        """Binds all addresses of this host. Raises: OSError."""
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
            made = socket.create_server((address[0], self.port or port), family=family, backlog=_BACKLOG)
            made.setblocking(False)
            self._sockets.append(made)
            self.port = made.getsockname()[1]

    def _unbind(self) -> None:
        for one in self._sockets:
            one.close()
        self._sockets.clear()

    async def close(self) -> None:
        self._closing.set()
        if self._accepting is not None:
            self._accepting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._accepting
        self._unbind()
        await self._runner.cleanup()

    async def _respond(self, http: web.BaseRequest) -> web.StreamResponse:
        if "Expect" in http.headers and http.transport is not None:
            http.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        try:
            body = await http.read() if http.body_exists else b""
        except web.HTTPRequestEntityTooLarge:
            return _sent(responses.status(request_too_large(MAX_BODY_BYTES)))
        headers = http.headers
        request = Request(
            http.method,
            http.raw_path,
            accept=headers.get("Accept", ""),
            content_type=headers.get("Content-Type", ""),
            user_agent=headers.get("User-Agent", ""),
            body=body,
            if_none_match=headers.get("If-None-Match", ""),
        )
        try:
            answer = self._handle(request)
        except StatusError as error:
            answer = responses.status(error)
        except Exception:
            # A bug of ours: the client gets the real server's answer to a panic, the log the traceback.
            _log.exception("request failed", method=request.method, target=request.target)
            answer = responses.status(internal_error("the request failed; the server's log says why"))
        if isinstance(answer, Watching):
            return await stream_watch(http, answer, closing=self._closing, default_s=self._watch_s())
        if "yaml" in request.accept and _prefers_yaml(request.accept):
            answer = responses.as_yaml(answer)
        return _sent(answer)


def _prefers_yaml(accept: str) -> bool:
    try:
        return negotiate(accept).type == YAML
    except StatusError:
        return False


def _sent(answer: Answer) -> web.Response:
    response = web.Response(body=answer.body, status=answer.code)
    response.headers["Content-Type"] = answer.content_type
    for name, value in answer.headers.items():
        for line in value.split("\n"):
            response.headers.add(name, line)
    return response


def _request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    """Makes a request with the real server's limit on the body."""
    return web.BaseRequest(
        message,
        payload,
        protocol,
        writer,
        task,
        asyncio.get_running_loop(),
        client_max_size=MAX_BODY_BYTES,
    )
