"""A byte proxy that misbehaves on command, between our clients and a real (or fake) API server.

Raw mode (`Proxy(host, port)`) forwards TCP and sees nothing of what passes: cut, stall, delay, refuse.
HTTP mode (`Proxy(..., server_ssl=..., upstream_ssl=...)`) ends TLS, sees each request, and encrypts again to
the upstream: rules can answer instead of it, truncate its answers, or cut after it has committed. Not here:
what must hold under these faults (the tests that use it).
"""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from gangsched.kube.transport.http1 import Answer
from gangsched.lab.controlplane.processes import ControlPlane


@dataclass
class Rule:
    """What happens to the next `times` requests whose line (`GET /path?query`) `matches`.

    Exactly one of: `answer` these bytes instead of asking the upstream; `cut_before` forwarding;
    `cut_after` the upstream has begun to answer (it has committed), of which `forward_bytes` still pass;
    `stall` (forwarded, but no answer comes back); `until` this is set it is held, then forwarded, be its
    client still there or not.
    """

    matches: Callable[[str], bool]
    times: int = 1
    answer: bytes | None = None
    cut_before: bool = False
    cut_after: bool = False
    forward_bytes: int = 0
    stall: bool = False
    until: asyncio.Event | None = None
    seen: list[str] = field(default_factory=list)


class Lie(NamedTuple):
    """An answer of the proxy's own, whether or not the request is `passed_on`; the true answer is dropped."""

    answer: bytes
    passed_on: bool = False


class Link:
    """One client connection and its upstream one; `request` is the latest request's line (HTTP mode).

    In HTTP mode a request is taken when those before it have been answered, as proxies do that rewrite.
    """

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self.client = client
        self.upstream: asyncio.StreamWriter | None = None
        self.request = ""
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.budget: int | None = None
        self.is_answered = asyncio.Event()
        self.is_answered.set()
        self.lie: bytes | None = None
        self._answer = Answer(stream=True)

    def passes(self, data: bytes) -> None:
        """Bytes of an answer go by."""
        while data:
            self._answer.feed(data)
            self._answer.take()
            if not self._answer.whole:
                return
            data = self._answer.rest
            self._answer = Answer(stream=True)
            self.is_answered.set()

    def lies(self, data: bytes) -> None:
        """Bytes of the true answer come, and are dropped; behind the last of them goes the other one."""
        self.passes(data)
        if self.is_answered.is_set() and self.lie is not None:
            self.client.write(self.lie)
            self.lie = None

    def cut(self) -> None:
        """Reset both sides."""
        for writer in (self.client, self.upstream):
            if writer is not None:
                writer.transport.abort()

    def inject(self, line: bytes) -> None:
        """Put a line of our own into an answer that is being streamed in chunks."""
        self.client.write(b"%x\r\n%b\r\n" % (len(line), line))


class Proxy:
    """Listens on loopback at `port` once entered; all switches may be changed at any time."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        server_ssl: ssl.SSLContext | None = None,
        upstream_ssl: ssl.SSLContext | None = None,
    ) -> None:
        self._upstream = (host, port)
        self._server_ssl = server_ssl
        self._upstream_ssl = upstream_ssl
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.http = server_ssl is not None or upstream_ssl is not None
        self.port = 0
        self.links: list[Link] = []
        self.rules: list[Rule] = []
        self.lie: Callable[[str], Lie | None] = lambda request: None
        """Asked for each request (HTTP mode) that no rule is for."""
        self.requests: list[str] = []
        self.refusing = False
        self.delay_s = 0.0
        self.n_accepted = 0

    @classmethod
    def before(cls, plane: ControlPlane, directory: Path) -> tuple[Self, Path]:
        """A proxy that ends TLS before this kube-apiserver, and the file of its own certificate."""
        server_ssl, certificate = self_signed(directory)
        upstream_ssl = ssl.create_default_context(cafile=str(plane.ca_file))
        return cls("127.0.0.1", plane.port, server_ssl=server_ssl, upstream_ssl=upstream_ssl), certificate

    @property
    def url(self) -> str:
        """Its address, where it ends TLS."""
        return f"https://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop_listening()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def listen(self) -> None:
        """Accept connections, again on the same port after `stop_listening`."""
        self._server = await asyncio.start_server(
            self._accepted, "127.0.0.1", self.port, ssl=self._server_ssl, limit=2**22
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop_listening(self) -> None:
        """From now on the kernel refuses connections."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def rule(self, rule: Rule) -> Rule:
        """Add a rule; the first that matches is applied. `rule.seen` collects what it was applied to."""
        self.rules.append(rule)
        return rule

    def find(self, text: str) -> list[Link]:
        """The living links whose latest request contains `text`."""
        return [link for link in self.links if text in link.request]

    def cut(self, text: str = "") -> int:
        """Reset the links whose latest request contains `text`; how many there were."""
        links = self.find(text)
        for link in links:
            link.cut()
        return len(links)

    def stall(self, text: str = "") -> int:
        """Let nothing more pass to the clients of these links, which stay open."""
        links = self.find(text)
        for link in links:
            link.flowing.clear()
        return len(links)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.n_accepted += 1
        link = Link(writer)
        task = asyncio.current_task()
        if self.refusing or task is None:
            link.cut()
            return
        self._tasks.add(task)
        self.links.append(link)
        try:
            host, port = self._upstream
            up_reader, link.upstream = await asyncio.open_connection(
                host, port, ssl=self._upstream_ssl, limit=2**22
            )
            down = asyncio.create_task(self._down(link, up_reader))
            self._tasks.add(down)
            down.add_done_callback(self._tasks.discard)
            await (self._requests(link, reader) if self.http else self._up(link, reader))
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # cancelled by our own end only, and asyncio's server would report it as a failure
        finally:
            link.cut()
            self.links.remove(link)
            self._tasks.discard(task)

    async def _up(self, link: Link, reader: asyncio.StreamReader) -> None:
        assert link.upstream is not None
        while data := await reader.read(65536):
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            link.upstream.write(data)
            await link.upstream.drain()

    async def _requests(self, link: Link, reader: asyncio.StreamReader) -> None:
        assert link.upstream is not None
        while True:
            await link.is_answered.wait()
            head = await reader.readuntil(b"\r\n\r\n")
            lengths = [
                int(line.split(b":")[1])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length:")
            ]
            body = await reader.readexactly(lengths[0]) if lengths else b""
            link.request = head.split(b" HTTP/", 1)[0].decode("latin-1")
            self.requests.append(link.request)
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            rule = self._applies(link.request)
            lie = self.lie(link.request) if rule is None else None
            if rule is not None and rule.answer is not None:
                link.client.write(rule.answer)
                continue
            if lie is not None and not lie.passed_on:
                link.client.write(lie.answer)
                continue
            link.lie = lie.answer if lie is not None else None
            if rule is not None and rule.cut_before:
                return
            if rule is not None and rule.cut_after:
                link.budget = rule.forward_bytes
            if rule is not None and rule.stall:
                link.flowing.clear()
            if rule is not None and rule.until is not None:
                await rule.until.wait()
            link.is_answered.clear()
            link.upstream.write(head + body)
            await link.upstream.drain()

    def _applies(self, request: str) -> Rule | None:
        for rule in self.rules:
            if len(rule.seen) < rule.times and rule.matches(request):
                rule.seen.append(request)
                return rule
        return None

    async def _down(self, link: Link, reader: asyncio.StreamReader) -> None:
        try:
            while data := await reader.read(65536):
                await link.flowing.wait()
                if link.lie is not None:
                    link.lies(data)
                    continue
                if link.budget is not None:
                    data = data[: link.budget]
                    link.budget -= len(data)
                link.client.write(data)
                await link.client.drain()
                if self.http:
                    link.passes(data)
                if link.budget == 0:
                    # What was let through must leave before the reset, which would discard it.
                    await asyncio.sleep(0.05)
                    break
            await link.flowing.wait()
        except OSError:
            pass
        finally:
            link.cut()


def http_answer(status: str, body: bytes = b"", *headers: str) -> bytes:
    """A whole HTTP answer, as `http_answer("429 Too Many Requests", b"", "Retry-After: 1")`."""
    lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def self_signed(directory: Path) -> tuple[ssl.SSLContext, Path]:
    """A server context for loopback and the file of its certificate, made with openssl."""
    key, certificate = directory / "proxy.key", directory / "proxy.crt"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=proxy "
        "-addext subjectAltName=IP:127.0.0.1,DNS:localhost"
    )
    subprocess.run(
        [*command.split(), "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context, certificate
