"""The pages over HTTPS on loopback: paths, methods, headers, certificates; nothing can be written."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import aiohttp
import anyio
import pytest

from gangsched.accepting import Accepting
from gangsched.certificates import Pair, server_context
from gangsched.config import Settings
from gangsched.core.scheduler import Scheduler
from gangsched.errors import ConfigError
from gangsched.lab.sim.making import make_scheduler
from gangsched.model.events import Event
from gangsched.web.access import Access
from gangsched.web.board.pages import Board
from gangsched.web.listening import WebSettings, listen, port_of
from gangsched.web.metrics.measures import Measures
from gangsched.web.pages.explanations import Explanations
from gangsched.web.pages.queue import Queue
from gangsched.web.pages.reservations import Reservations
from gangsched.web.pages.stories import Stories
from gangsched.web.pages.waiting import Waiting
from gangsched.web.serving.health import Check, Health
from gangsched.web.serving.server import Server
from gangsched.web.top.page import Top
from tests.web.test_access import Server as ApiServer


async def test_of_too_many_connections_the_oldest_are_closed(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gangsched.web.serving.server.Accepting", partial(Accepting, max_connections=8))
    trust = ssl.create_default_context(cadata=pair.certificate.decode())
    async with serving(pair) as client:
        silent = [await asyncio.open_connection("127.0.0.1", client.port, ssl=trust) for _ in range(20)]
        with anyio.fail_after(10.0):
            for reader, _ in silent[:12]:
                with contextlib.suppress(ConnectionError):  # as it may: the peer has just gone
                    assert await reader.read() == b""
        assert not any(reader.at_eof() for reader, _ in silent[12:])
        assert (await client.ask("/livez"))[0] == 200
        for _, writer in silent:
            writer.close()


async def test_of_too_many_that_never_greet_the_oldest_are_closed(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gangsched.web.serving.server.Accepting", partial(Accepting, max_handshakes=4))
    async with serving(pair) as client:
        # Faster than each can be closed.
        silent = [socket.create_connection(("127.0.0.1", client.port)) for _ in range(100)]
        assert (await client.ask("/livez"))[0] == 200
        for one in silent:
            one.setblocking(False)
        with anyio.fail_after(10.0):
            for one in silent[:96]:
                with contextlib.suppress(ConnectionError):
                    assert await asyncio.get_running_loop().sock_recv(one, 1) == b""
        for one in silent[97:]:
            with pytest.raises(BlockingIOError):
                one.recv(1)
        for one in silent:
            one.close()


async def test_what_is_no_tls_leaves_nothing_for_the_garbage_collector(pair: Pair) -> None:
    def buffers() -> int:
        return sum(isinstance(one, SSLProtocol) for one in gc.get_objects())

    async with serving(pair) as client:
        gc.collect()
        gc.disable()
        try:
            before = buffers()
            for _ in range(10):
                reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
                writer.write(b"GET / HTTP/1.0\r\n\r\n")
                await reader.read()
                writer.close()
            with anyio.fail_after(10.0):
                while buffers() > before:
                    await anyio.sleep(0.01)
        finally:
            gc.enable()


def nobody() -> Scheduler:
    """A scheduler for which nobody waits."""
    return make_scheduler(Settings())


class Client:
    """Asks a running server, trusting the one certificate it was given."""

    def __init__(self, session: aiohttp.ClientSession, port: int, tls: ssl.SSLContext) -> None:
        self._session = session
        self._tls = tls
        self.port = port
        self._base = f"https://127.0.0.1:{port}"
        self.headers: dict[str, str] = {}

    async def ask(
        self, path: str, *, method: str = "GET", token: str = "", body: bytes | None = None, kind: str = ""
    ) -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if kind:
            headers["Content-Type"] = kind
        async with self._session.request(
            method, self._base + path, headers=headers, data=body, ssl=self._tls
        ) as answer:
            self.headers = dict(answer.headers)
            return answer.status, await answer.text()


@asynccontextmanager
async def serving(
    pair: Pair,
    problem: str = "",
    *,
    waiting: Waiting | None = None,
    stories: Stories | None = None,
    queue: Queue | None = None,
    explanations: Explanations | None = None,
    board: Board | None = None,
    api: ApiServer | None = None,
    always_allow: tuple[str, ...] = ("/livez", "/readyz"),
    reservations: Reservations | None = None,
    top: Top | None = None,
    leader: Callable[[], str | None] = lambda: None,
    cluster: Callable[[], str] = lambda: "",
) -> AsyncIterator[Client]:
    async def metrics(content_type: str) -> bytes:
        return b"scheduler_pending_pods 0\n"

    sockets = listen(WebSettings(0, bind_address="127.0.0.1"))
    server = Server(
        sockets,
        server_context(pair),
        access=Access(api or ApiServer(), always_allow=always_allow),
        health={
            "livez": Health("livez", []),
            "readyz": Health("readyz", [Check("watch", lambda: problem)]),
        },
        metrics=metrics,
        configz=lambda: b"{}",
        waiting=waiting or Waiting(nobody(), put_nowait=list[Event]().append, may_act=lambda: True),
        stories=stories or Stories(nobody()),
        queue=queue or Queue(nobody()),
        explanations=explanations or Explanations(nobody()),
        board=board,
        reservations=reservations or Reservations(nobody()),
        top=top or Top(nobody(), Queue(nobody()), Measures()),
        leader=leader,
        cluster=cluster,
    )
    trust = ssl.create_default_context(cadata=pair.certificate.decode())
    async with aiohttp.ClientSession() as session, anyio.create_task_group() as group:
        group.start_soon(server.run)
        yield Client(session, port_of(sockets), trust)
        group.cancel_scope.cancel()
    for one in sockets:
        one.close()


async def test_probes_need_no_token(pair: Pair) -> None:
    async with serving(pair, "pods is not watched") as client:
        assert await client.ask("/livez") == (200, "ok")
        code, said = await client.ask("/readyz")
        assert code == 500
        assert "[-]watch failed: reason withheld" in said
        assert (await client.ask("/readyz?exclude=watch"))[0] == 200
        assert "[+]ping ok" in (await client.ask("/livez?verbose"))[1]


async def test_all_pages_but_probes_need_a_token(pair: Pair) -> None:
    async with serving(pair, "pods is not watched") as client:
        for path in ("/metrics", "/configz", "/readyz/watch"):
            assert (await client.ask(path))[0] == 403, path
            assert (await client.ask(path, token="wrong"))[0] == 401, path
        assert await client.ask("/metrics", token="good") == (200, "scheduler_pending_pods 0\n")
        assert client.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert client.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_nothing_can_be_written(pair: Pair, method: str) -> None:
    async with serving(pair) as client:
        for path in ("/livez", "/metrics", "/configz"):
            assert (await client.ask(path, method=method, token="good"))[0] == 405


async def test_head_is_get_without_a_body(pair: Pair) -> None:
    async with serving(pair) as client:
        assert await client.ask("/livez", method="HEAD") == (200, "")


@pytest.mark.parametrize("path", ["/", "/nonsense", "/debug/pprof/", "/livez/../metrics/x", "/%2e%2e/etc"])
async def test_a_path_that_is_not_there(pair: Pair, path: str) -> None:
    async with serving(pair) as client:
        assert (await client.ask(path, token="good"))[0] == 404


async def test_nonsense_is_refused_without_a_line_in_the_log(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    trust = ssl.create_default_context(cadata=pair.certificate.decode())
    plain = (None, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    garbage = (trust, b"\x00\xff\r\n\r\n")
    long = (trust, b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n")
    async with serving(pair) as client:
        for tls, sent in (plain, garbage, long):
            reader, writer = await asyncio.open_connection("127.0.0.1", client.port, ssl=tls)
            writer.write(sent)
            answer = await reader.read()
            assert b" 200 " not in answer
            if tls is not None:  # it repeats what was sent
                assert b" 400 " in answer
                assert b"X-Content-Type-Options: nosniff\r\n" in answer
                assert b"Server: gangsched\r\n" in answer
            writer.close()
        assert (await client.ask("/livez"))[0] == 200
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_taken_port_is_reported_with_the_cure() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(
            ConfigError, match=rf"--secure-port: cannot listen on 127.0.0.1 port {port}: Addr"
        ):
            listen(WebSettings(port, bind_address="127.0.0.1"))


@pytest.mark.parametrize("address", ["localhost", "1.2.3", "203.0.113.7"])
def test_an_address_of_another_machine_is_reported(address: str) -> None:
    with pytest.raises(ConfigError, match="--"):
        listen(WebSettings(0, bind_address=address))


def test_everywhere_is_both_kinds_of_addresses() -> None:
    sockets = listen(WebSettings(0))
    try:
        assert {one.getsockname()[1] for one in sockets} == {port_of(sockets)}
        assert sockets[0].family == socket.AF_INET
    finally:
        for one in sockets:
            one.close()
