"""An answer without end, over TLS and plain: cut anywhere, held back, ended, refused. And the pace of it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gangsched.errors import ApiError
from gangsched.kube.client import ApiClient
from gangsched.kube.transport.connection import Address, Connection
from gangsched.kube.transport.http1 import Answer, Chunks, ProtocolError
from gangsched.kube.transport.pace import RECENT_S, Pace
from gangsched.kube.transport.stream import Stream, open_stream
from tests.kube.scripted import CUT, ScriptedServer, created, credentials, status, within
from tests.proxy import self_signed
from tests.support.tasks import until

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@asynccontextmanager
async def following(answer: bytes) -> AsyncIterator[tuple[Stream, Callable[[bytes], None]]]:
    """A stream that has begun with `answer`, and a way to send more of it."""
    async with ScriptedServer(default=answer) as server:
        with within():
            async with open_stream(credentials(server.port), "/x", {"watch": "1"}, timeout_s=5) as stream:
                [writer] = server._writers
                yield stream, writer.write
        assert server.requests[0].line == "GET /x?watch=1"


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_chunks_are_taken_off_wherever_they_are_cut(step: int) -> None:
    data = chunk(b"one") + b"00A;ext=1\r\n0123456789\r\n" + chunk(b"\r\n0\r\n\r\n") + END
    chunks = Chunks()
    parts = [part for at in range(0, len(data), step) for part in chunks.feed(data[at : at + step])]
    assert b"".join(parts) == b"one0123456789\r\n0\r\n\r\n"
    assert chunks.whole


@pytest.mark.parametrize("data", [b"zz\r\n", b"-5\r\n", b"\r\n", b"1" * 5000])
def test_chunk_without_a_size_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        Chunks().feed(data)


@pytest.mark.parametrize(
    ("head", "whole"),
    [(b"Transfer-Encoding: chunked\r\n", True), (b"Content-Length: 3\r\n", True), (b"", False)],
)
def test_stream_gives_what_has_come_of_its_body(head: bytes, whole: bool) -> None:
    body = chunk(b"abc") + END if b"chunked" in head else b"abc"
    answer = Answer(stream=True)
    answer.feed(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n" + body)
    assert (answer.take(), answer.take(), answer.whole) == (b"abc", b"", whole)


async def test_stream_is_read_to_its_end() -> None:
    async with following(HEAD + chunk(b"one")) as (stream, send):
        assert await stream.read() == b"one"
        send(chunk(b"two") + END)
        assert await stream.read() == b"two"
        assert await stream.read() == b""


async def test_more_than_is_read_at_a_time_comes_whole_and_in_order() -> None:
    bodies = [b"%06d" % n * 1000 for n in range(100)]
    async with following(HEAD) as (stream, send):
        send(b"".join(chunk(body) for body in bodies) + END)
        came = b""
        while data := await stream.read(0.01):
            came += data
    assert came == b"".join(bodies)


async def test_what_came_before_a_cut_is_given_first() -> None:
    async with following(HEAD + chunk(b"one") + b"5\r\ntw") as (stream, _):
        assert await stream.read() == b"onetw"
        stream.lost("cut")
        with pytest.raises(ConnectionError, match="cut"):
            await stream.read()


async def test_nonsense_in_a_stream_ends_it() -> None:
    async with following(HEAD + chunk(b"one")) as (stream, send):
        assert await stream.read() == b"one"
        send(b"zz\r\n")
        with pytest.raises(ConnectionError, match="no sense"):
            await stream.read()


async def test_held_back_bytes_come_in_one_piece() -> None:
    async with following(HEAD + chunk(b"one")) as (stream, send):
        assert await stream.read() == b"one"
        for _ in range(50):
            send(chunk(b"x"))
        # Long enough for a kernel that is late with loopback's packets on a busy machine.
        assert await stream.read(0.5) == b"x" * 50
        send(chunk(b"last"))
        assert await stream.read(0.01) == b"last"  # also when nothing came while it held back


async def test_refusal_of_a_stream_is_an_api_error() -> None:
    async with ScriptedServer(default=status(410, reason="Expired", message="too old")) as server:
        with pytest.raises(ApiError, match="too old") as caught:
            async with open_stream(credentials(server.port), "/x", {}, timeout_s=5):
                pass
        assert (caught.value.code, caught.value.reason) == (410, "Expired")


async def test_stream_renews_refused_credentials_once() -> None:
    async with ScriptedServer(script=[status(401)], default=HEAD) as server:
        async with open_stream(credentials(server.port, "old", "new"), "/x", {}, timeout_s=5):
            pass
        assert [r.headers["authorization"] for r in server.requests] == ["Bearer old", "Bearer new"]


@pytest.mark.parametrize("is_stale", [False, True])
async def test_a_stream_goes_on_over_a_warm_connection_unless_it_is_stale(is_stale: bool) -> None:
    async with ScriptedServer(script=[created(), *([CUT] if is_stale else [])], default=HEAD) as server:
        client = ApiClient(credentials(server.port))
        await client.get("/list")
        warm = client.take_idle()
        assert warm is not None
        assert client.take_idle() is None, "it has been given up"
        with within():
            async with open_stream(client.credentials, "/x", {}, timeout_s=5, warm=warm) as stream:
                next(iter(server._writers)).write(chunk(b"news"))
                assert await stream.read() == b"news"
                assert not warm.is_open
        assert server.n_connections == 1 + is_stale


class Echo(Connection):
    """Remembers what comes."""

    def __init__(self) -> None:
        super().__init__()
        self.data = b""
        self.why = ""

    def received(self, data: bytes) -> None:
        self.data += data

    def lost(self, why: str) -> None:
        self.why = why


@pytest.mark.parametrize("tls", [False, True])
async def test_more_than_a_socket_takes_arrives_whole(tls: bool, tmp_path: Path) -> None:
    server_ssl, certificate = self_signed(tmp_path) if tls else (None, None)
    client_ssl = ssl.create_default_context(cafile=str(certificate)) if tls else None
    data = bytes(range(256)) * 40_000

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.05)  # let the sender's socket fill up
        writer.write(await reader.readexactly(len(data)))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=server_ssl)
    connection = Echo()
    await connection.open(Address("127.0.0.1", server.sockets[0].getsockname()[1], client_ssl, "127.0.0.1"))
    connection.write(data[:1000])
    connection.write(data[1000:])
    await until(lambda: connection.why)
    assert connection.data == data
    assert not connection.is_open
    server.close()


async def test_server_that_is_not_the_one_is_refused(tmp_path: Path) -> None:
    server_ssl, certificate = self_signed(tmp_path)
    server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0, ssl=server_ssl)
    port = server.sockets[0].getsockname()[1]
    trusting = ssl.create_default_context(cafile=str(certificate))
    for context, name in ((ssl.create_default_context(), "127.0.0.1"), (trusting, "another.example")):
        connection = Echo()
        with pytest.raises(ssl.SSLCertVerificationError):
            await connection.open(Address("127.0.0.1", port, context, name))
        assert not connection.is_open
    server.close()


def test_a_gang_on_an_idle_cluster_is_never_held_back() -> None:
    pace, now_s = Pace(0.004), 0.0
    for n_events in (8, 1, 1, 8, 8, 1):  # created, conditions, bound, a status: all within milliseconds
        assert pace.hold_s(n_events, now_s) == 0
        now_s += 0.005


def test_thousands_of_events_are_held_back_until_they_are_over() -> None:
    pace, now_s = Pace(0.004), 0.0
    held = []
    for _ in range(50):
        held.append(pace.hold_s(8, now_s))
        now_s += 0.005
    assert held[-1] > 0
    assert pace.hold_s(1, now_s + RECENT_S) == 0
