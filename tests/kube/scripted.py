"""A server that answers as it is told, for what a real API server does too rarely to test against."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import anyio

from gangsched.kube.access.credentials import Credentials
from gangsched.kube.access.loaders import Loaded, blank

CUT = b"cut"
SILENCE = b"silence"


class Last(bytes):
    """An answer after which the server closes the connection."""


SUCCESS = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}\n'
PAGE = b"<html><body>Not here</body></html>"
# As kube-apiserver has them.
REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}


def status(
    code: int,
    *,
    reason: str | None = None,
    message: str = "",
    headers: str = "",
    about: str = "",
    kind: str = "pods",
    group: str = "",
) -> bytes:
    """A whole answer carrying a Status as the API server's; `about`: the object's name in its details."""
    details = {"name": about, "kind": kind, **({"group": group} if group else {})} if about else {}
    said = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": REASONS.get(code, "") if reason is None else reason,
        "details": details,
        "code": code,
    }
    return page(code, json.dumps(said).encode(), headers)


def page(code: int, body: bytes = PAGE, headers: str = "") -> bytes:
    """A whole answer, as anything between us and the API server may give it."""
    return f"HTTP/1.1 {code} Word\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body


def created(body: bytes = SUCCESS) -> bytes:
    """A whole answer of success; a Binding's and an Eviction's where no body is given."""
    return b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


_OBJECT = re.compile(
    r"[A-Z]+ /(?:api|apis/[^/]+)/[^/]+/namespaces/([^/]+)/([^/]+)(?:/([^/?]+))?(?:/([^/?]+))?"
)
_KINDS = {"pods": "Pod", "podgroups": "PodGroup", "events": "Event"}


def obliging(request: Request) -> bytes:
    """Success, with the object that was asked about in it."""
    found = _OBJECT.match(request.line)
    if found is None or found[4] in ("binding", "eviction"):
        return created()
    name = found[3] or request.json["metadata"]["name"]
    meta = {"name": name, "namespace": found[1], "uid": f"u-{name}", "resourceVersion": "9"}
    return created(json.dumps({"kind": _KINDS[found[2]], "metadata": meta}).encode())


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

    By default every request is a success.

    An entry is a whole answer, or the Last, CUT (close without one), SILENCE, or a function of the request. A
    connection's requests are answered one after the other, as HTTP/1.1 has it.
    """

    default: Any = obliging
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
