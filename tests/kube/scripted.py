"""A server that answers as it is told, for what a real API server does too rarely to test against."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import anyio

from gangsched.kube.credentials import Credentials
from gangsched.kube.loaders import Loaded, blank

CUT = b"cut"
SILENCE = b"silence"


class Last(bytes):
    """An answer after which the server closes the connection."""


def status(code: int, *, reason: str = "", message: str = "", headers: str = "") -> bytes:
    """A whole answer carrying a Status."""
    body = json.dumps(
        {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    ).encode()
    return f"HTTP/1.1 {code} Word\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body


def created(body: bytes = b'{"status":"Success"}') -> bytes:
    """A whole answer of success."""
    return b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


@dataclass
class Request:
    line: str
    headers: dict[str, str]
    body: bytes
    client: str = ""  # the common name in its certificate

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class ScriptedServer:
    """Answers with `script`'s entries one after the other, then with `default`; remembers all requests.

    An entry is a whole answer, or the Last, CUT (close without one), SILENCE, or a function of the request. A
    connection's requests are answered one after the other, as HTTP/1.1 has it.
    """

    default: Any = field(default_factory=created)
    script: list[Any] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    n_connections: int = 0
    port: int = 0
    tls: ssl.SSLContext | None = None

    async def __aenter__(self) -> Self:
        self._writers: set[asyncio.StreamWriter] = set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.n_connections += 1
        self._writers.add(writer)
        subject = (writer.get_extra_info("peercert") or {}).get("subject", ())
        client = next((value for [(name, value)] in subject if name == "commonName"), "")
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                line, *rest = head.rstrip().split("\r\n")
                headers = {name.lower(): value for name, value in (part.split(": ", 1) for part in rest)}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                request = Request(line.removesuffix(" HTTP/1.1"), headers, body, client)
                self.requests.append(request)
                answer = self.script.pop(0) if self.script else self.default
                if callable(answer):
                    answer = answer(request)
                if answer == CUT:
                    return
                if answer == SILENCE:
                    await reader.read()  # until the client closes: later requests stay unanswered, too
                    return
                writer.write(answer)
                if isinstance(answer, Last):
                    writer.close()
                    return await writer.wait_closed()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.transport.abort()
            self._writers.discard(writer)


def credentials(port: int, *tokens: str) -> Credentials:
    """Credentials for a server on loopback; each renewal gives the next token."""
    left = list(tokens)

    def load() -> Loaded:
        loaded = blank()
        loaded.host = f"http://127.0.0.1:{port}"
        if left:
            loaded.api_key["BearerToken"] = f"Bearer {left.pop(0) if len(left) > 1 else left[0]}"
        return loaded

    async def source() -> Loaded:
        return load()

    return Credentials(source, load())


@contextmanager
def within(seconds: float = 20.0) -> Iterator[None]:
    """A guard against hanging, not a measurement."""
    with anyio.fail_after(seconds):
        yield


async def until(true: Callable[[], object]) -> None:
    """Wait until `true()`."""
    with within():
        while not true():
            await anyio.sleep(0.005)
