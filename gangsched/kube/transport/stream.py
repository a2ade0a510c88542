"""An endless answer (a watch) over its own connection, read in as few pieces as its reader likes.

Lives here: opening it, the bytes that have arrived, holding back. Not here: what the bytes mean
(kube.watch.watch_state), and whether a silent stream is dead (kube.watch.reflector).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlencode

import anyio

from gangsched.kube.access.credentials import Credentials
from gangsched.kube.transport.answered import AnsweredConnection
from gangsched.kube.transport.connection import Connection, address_of
from gangsched.kube.transport.exchange import exchange
from gangsched.kube.transport.http1 import Answer, Verb

# How much is buffered here for a slow reader; beyond it the kernel, and then the server, keep the rest.
MAX_WAITING_BYTES = 4 * 2**20


class Stream(AnsweredConnection):
    """The body of one answer; `read()` returns what has arrived."""

    __slots__ = ("__weakref__", "_ended", "_n_waiting", "_only", "_waiter", "_why")

    def __init__(self) -> None:
        super().__init__()
        self._only = self._answer = Answer(stream=True)
        """The only answer, also when it is complete."""
        self._n_waiting = 0
        self._ended = False
        self._why = ""
        self._waiter: asyncio.Future[None] | None = None

    async def ask(self, request: bytes) -> Answer:
        """Send the request and wait for the head, or for the whole body of a refusal. Raises: OSError."""
        self.write(request)
        while not self._ended and not (200 <= self._only.status < 300):
            await self._wait()
        if not self._only.status:
            raise ConnectionError(self._why or "closed by the server")
        return self._only

    async def read(self, hold_s: float = 0.0) -> bytes:
        """Returns the bytes since the last call, at least one; b"" at the end. Raises: OSError, if cut.

        With `hold_s` bytes are left in the kernel for that long and then read all at once: a wake-up costs as
        much as decoding several events.
        """
        if hold_s and not self._ended:
            self.pause()
            await asyncio.sleep(hold_s)
            self.read_now()
        data = self._only.take()
        while not data and not self._ended:
            self.resume()
            await self._wait()
            data = self._only.take()
        self._n_waiting = 0
        if not data and self._why:
            raise ConnectionError(self._why)
        return data

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def received(self, data: bytes) -> None:
        self._n_waiting += len(data)
        super().received(data)
        if self._n_waiting > MAX_WAITING_BYTES:
            self.pause()
        self._wake()

    def _may_follow(self) -> bool:
        return True  # what follows is not read: the connection is closed at the answer's end

    def answered(self, answer: Answer) -> None:
        self._finish("")

    def failed(self, why: str, *, is_cut: bool) -> None:
        self._finish(why)

    def certificates_changed(self) -> None:
        """End the stream; the reader resumes over a connection with the new certificates."""
        if self.is_open:
            self._finish("the certificates have changed")

    def _finish(self, why: str) -> None:
        self.close()
        self._ended = True
        self._why = why
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


@asynccontextmanager
async def open_stream(
    credentials: Credentials,
    path: str,
    params: Mapping[str, str],
    *,
    timeout_s: float,
    warm: Connection | None = None,
) -> AsyncIterator[Stream]:
    """GET an endless answer; only opening it has a deadline. Raises: ApiError.

    `warm`: an idle connection to the same place, given up to the stream; replaced if it has died meanwhile.
    """
    stream = await _opened(credentials, f"{path}?{urlencode(params)}", timeout_s, warm)
    try:
        yield stream
    finally:
        stream.close()


async def _opened(credentials: Credentials, target: str, timeout_s: float, warm: Connection | None) -> Stream:
    opened: list[Stream] = []

    async def send(request: bytes) -> Answer:
        try:
            with anyio.fail_after(timeout_s):
                stream, answer = await _asked(credentials, request, None if opened else warm)
        except OSError as error:  # TimeoutError and SSLError are OSErrors
            raise credentials.not_reached(error) from error
        opened.append(stream)
        if answer.status >= 300:
            stream.close()
        return answer

    await exchange(credentials, Verb("GET"), target, b"", send)
    return opened[-1]


async def _asked(credentials: Credentials, request: bytes, warm: Connection | None) -> tuple[Stream, Answer]:
    """Open the stream over the warm connection, or over a new one if that is closed or missing.

    The certificates may change between the choice of a connection and the request: it then needs another.
    """
    while True:
        stream = Stream()
        credentials.follow(stream)
        try:
            if warm is not None:
                stream.adopt(warm)
            else:
                await stream.open(address_of(credentials))
            if stream.context is credentials.ssl_context:
                return stream, await stream.ask(request)
            stream.close()
            warm = None
        except OSError:
            stream.close()
            if warm is None:
                raise
            warm = None
        except BaseException:
            stream.close()
            raise
