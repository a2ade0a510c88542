"""Requests over warm connections: one request and its whole answer.

Lives here: deadlines, connections kept for the next one, error mapping. Not here: queries and lists
(kube.client, which asks through a pool), effects (kube.transport.lane, without a task for each), watches
(kube.transport.stream).
"""

from __future__ import annotations

import asyncio
from functools import partial

import anyio

from gangsched.errors import ApiError, Unreachable
from gangsched.kube.access.credentials import Credentials
from gangsched.kube.reach import UNAUTHORIZED
from gangsched.kube.transport.answered import AnsweredConnection
from gangsched.kube.transport.connection import address_of
from gangsched.kube.transport.exchange import exchange
from gangsched.kube.transport.http1 import MAX_BODY_BYTES, Answer, Verb

CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 30.0


class _PoolConnection(AnsweredConnection):
    """One connection, at most one request at a time, its answer as a future."""

    __slots__ = ("_done", "_max_body_bytes")

    def __init__(self, *, max_body_bytes: int) -> None:
        super().__init__()
        self._max_body_bytes = max_body_bytes
        self._done: asyncio.Future[Answer] | None = None

    async def ask(self, request: bytes, *, timeout_s: float) -> Answer:
        """Send and wait. Raises: ApiError with code 0 (then it is closed); Unreachable if it was cut."""
        loop = asyncio.get_running_loop()
        self._answer = Answer(max_body_bytes=self._max_body_bytes)
        self._done = loop.create_future()
        # A timer instead of a cancel scope: it is nearly always cancelled, and then costs next to nothing.
        timer = loop.call_later(timeout_s, self._give_up, f"no answer in {timeout_s:g} s")
        try:
            self.write(request)
            return await self._done
        except BaseException:
            self.close()
            raise
        finally:
            timer.cancel()
            self._done = None

    @property
    def is_untouched(self) -> bool:
        """Nothing of the answer has arrived."""
        return self._answer is not None and self._answer.is_untouched

    def answered(self, answer: Answer) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(answer)

    def failed(self, why: str, *, is_cut: bool) -> None:
        self._fail(Unreachable(why) if is_cut and self.is_untouched else ApiError(why))

    def _give_up(self, why: str) -> None:
        self._fail(ApiError(why))

    def _fail(self, error: ApiError) -> None:
        self.close()
        if self._done is not None and not self._done.done():
            self._done.set_exception(error)


class RequestPool:
    """Warm connections, one per concurrent request; the callers bound the number.

    Use as an async context manager, or call `close`.
    """

    def __init__(self, credentials: Credentials, *, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        """`max_body_bytes`: a longer answer is an error."""
        self._credentials = credentials
        self._max_body_bytes = max_body_bytes
        self._idle: list[_PoolConnection] = []
        credentials.follow(self)

    async def __aenter__(self) -> RequestPool:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that are not in use."""
        while self._idle:
            self._idle.pop().close()

    def certificates_changed(self) -> None:
        """Close idle connections now, busy ones when they are answered."""
        self.close()

    def take_idle(self) -> _PoolConnection | None:
        """An open idle connection; from now on it belongs to the caller."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
        return None

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes = b"",
        content_type: str = "",
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> bytes:
        """One request and its whole answer. Raises: ApiError, with code 0 when the outcome is unknown."""
        send = partial(self._answer, timeout_s=timeout_s, twice=method == "GET")
        answer = await exchange(self._credentials, Verb(method, content_type), path, body, send)
        return answer.body

    async def _answer(self, data: bytes, *, timeout_s: float, twice: bool) -> Answer:
        """Ask over a warm connection or a new one; `twice`: retry a read whose warm connection was closed."""
        connection = self.take_idle()
        if connection is not None:
            try:
                return await self._ask(connection, data, timeout_s)
            except ApiError:
                if not twice or not connection.is_untouched:
                    raise
        connection = await self._connected()
        try:
            return await self._ask(connection, data, timeout_s)
        except Unreachable as error:
            raise self._credentials.reach.not_reached(error.message) from None

    async def _ask(self, connection: _PoolConnection, data: bytes, timeout_s: float) -> Answer:
        answer = await connection.ask(data, timeout_s=timeout_s)
        is_old = connection.context is not self._credentials.ssl_context
        if is_old or (answer.status == UNAUTHORIZED and connection.is_known_by_certificate):
            connection.close()
        if connection.is_open:
            self._idle.append(connection)
        return answer

    async def _connected(self) -> _PoolConnection:
        connection = _PoolConnection(max_body_bytes=self._max_body_bytes)
        try:
            with anyio.fail_after(CONNECT_TIMEOUT_S):
                await connection.open(address_of(self._credentials))
        except OSError as error:  # TimeoutError and SSLError are OSErrors
            raise self._credentials.not_reached(error) from error
        return connection
