"""Certificates and authorities that change while connections are open, over real TLS."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from gangsched.errors import ApiError
from gangsched.kube.access.credentials import Credentials, load_credentials
from gangsched.kube.access.loaders import FILE_REFRESH_S, RETRY_S
from gangsched.kube.effects.write_lanes import StatusLane
from gangsched.kube.transport.connection import Connection
from gangsched.kube.transport.pool import RequestPool
from gangsched.kube.transport.readers import Readers
from gangsched.kube.transport.stream import open_stream
from tests.authority import Authority, replace, server_context
from tests.kube.scripted import Request, ScriptedServer, created, obliging, status, within
from tests.kube.test_credentials import Clock, kubeconfig, plugin
from tests.kube.test_lanes import Quiet, word
from tests.support.tasks import until

STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nnews\r\n"


class Place:
    """A directory with an authority that client and server trust, and the client's certificate."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = Clock()
        self.authority = Authority("first")
        self.bundle = directory / "ca.crt"
        replace(self.bundle, self.authority.certificate)
        self.clients = directory / "clients.crt"
        replace(self.clients, self.authority.certificate)
        self.rotate("one")

    def rotate(self, name: str, **options: Any) -> None:
        self.authority.issue(self.directory, name, as_files="client", **options)

    def tls(self, authority: Authority | None = None) -> ssl.SSLContext:
        files = (authority or self.authority).issue(self.directory, "server")
        return server_context(files, clients=self.clients)

    async def load(self, server: ScriptedServer, user: dict[str, Any] | None = None) -> Credentials:
        files = {"client-certificate": "client.crt", "client-key": "client.key"}
        path = kubeconfig(
            self.directory,
            files if user is None else user,
            server=f"https://127.0.0.1:{server.port}",
            **{"certificate-authority": str(self.bundle)},
        )
        return await load_credentials(kubeconfig=path, environ={}, clock=self.clock)

    async def a_minute_later(self, account: Credentials) -> None:
        self.clock.now_s += FILE_REFRESH_S + 1
        await account.headers()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@asynccontextmanager
async def running_lane(account: Credentials, *, size: int = 2) -> AsyncIterator[StatusLane]:
    lane = StatusLane(
        account, lambda _: None, rng=Random(1), readers=Readers(), binds=Quiet(), size=size, limit=100
    )
    async with anyio.create_task_group() as group:
        group.start_soon(lane.run)
        yield lane
        group.cancel_scope.cancel()


@asynccontextmanager
async def connected(account: Credentials) -> AsyncIterator[tuple[RequestPool, StatusLane]]:
    """A pool with one connection and a lane with two."""
    async with RequestPool(account) as pool, running_lane(account) as lane:
        with within():
            lane.warm()
            await until(lambda: len(lane._idle) == 2)
            await pool.request("GET", "/x")
        yield pool, lane


async def settled(lane: StatusLane) -> None:
    await until(lambda: not lane.n_waiting)


def clients(server: ScriptedServer) -> list[str]:
    return [request.client for request in server.requests]


def answer_watches(request: Request) -> bytes:
    return STREAM if "watch=1" in request.line else obliging(request)


async def test_connections_by_an_old_client_certificate_are_closed(place: Place) -> None:
    async with ScriptedServer(tls=place.tls(), default=answer_watches) as server:
        account = await place.load(server)
        async with connected(account) as (pool, lane):
            with within():
                async with open_stream(account, "/x", {"watch": "1"}, timeout_s=20) as stream:
                    assert await stream.read() == b"news"
                    old = set(server._writers)
                    assert len(old) == 4
                    place.rotate("two")
                    await place.a_minute_later(account)
                    with pytest.raises(ConnectionError, match="certificates have changed"):
                        await stream.read()
                await until(lambda: not old & server._writers)
                lane.submit(word("x"))
                await pool.request("GET", "/x")
                async with open_stream(account, "/x", {"watch": "1"}, timeout_s=20):
                    await until(lambda: not lane.n_waiting)
        assert clients(server)[:2] == ["one", "one"]
        assert set(clients(server)[2:]) == {"two"}
        assert len(server.requests) == 5


async def test_a_watch_that_is_opened_while_the_certificates_change_has_the_new_ones(place: Place) -> None:
    """The warm connection is chosen first, and asking for credentials finds the new files."""
    async with ScriptedServer(tls=place.tls(), default=answer_watches) as server:
        account = await place.load(server)
        async with RequestPool(account) as pool:
            await pool.request("GET", "/x")
            warm = pool.take_idle()
            place.rotate("two")
            place.clock.now_s += FILE_REFRESH_S + 1
            with within():
                async with open_stream(account, "/x", {"watch": "1"}, timeout_s=20, warm=warm) as stream:
                    assert await stream.read() == b"news"
        assert clients(server) == ["one", "two"]


async def test_a_watch_whose_handshake_began_with_old_certificates_has_the_new_ones(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    shake_hands = Connection._shake_hands

    async def meanwhile(self: Connection, tls: ssl.SSLObject) -> None:
        monkeypatch.undo()
        place.rotate("two")
        await place.a_minute_later(account)
        await shake_hands(self, tls)

    async with ScriptedServer(tls=place.tls(), default=answer_watches) as server:
        account = await place.load(server)
        monkeypatch.setattr(Connection, "_shake_hands", meanwhile)
        with within():
            async with open_stream(account, "/x", {"watch": "1"}, timeout_s=20) as stream:
                assert await stream.read() == b"news"
        assert clients(server) == ["two"]


async def test_what_is_on_its_way_is_answered_before_its_connection_is_closed(place: Place) -> None:
    held: list[Request] = []

    def hold(request: Request) -> bytes:
        held.append(request)
        return b""

    async with ScriptedServer(tls=place.tls(), script=[hold]) as server:
        account = await place.load(server)
        async with running_lane(account, size=1) as lane:
            with within():
                lane.submit(word("x"))
                await until(lambda: held)
                [old] = server._writers
                place.rotate("two")
                await place.a_minute_later(account)
                lane.submit(word("y", name="q"))
                await anyio.sleep(0.02)
                assert len(server.requests) == 1, "it goes over another connection"
                old.write(obliging(held[0]))
                await until(lambda: not lane.n_waiting)
                assert old not in server._writers
        assert clients(server) == ["one", "two"]
        assert account.answers.by_code_and_method() == {("201", "PATCH"): 2}


async def test_a_401_reads_the_certificate_again_and_opens_a_connection(place: Place) -> None:
    def refuse_the_old(request: Request) -> bytes:
        return status(401, reason="Unauthorized") if request.client == "one" else answer_watches(request)

    async with ScriptedServer(tls=place.tls(), default=refuse_the_old) as server:
        for name in ("request", "effect", "watch"):
            place.rotate("one")
            account = await place.load(server)
            place.rotate("two")
            server.requests.clear()
            with within():
                if name == "request":
                    async with RequestPool(account) as pool:
                        await pool.request("POST", "/x")
                elif name == "effect":
                    async with running_lane(account) as lane:
                        lane.submit(word("x"))
                        await settled(lane)
                else:
                    async with open_stream(account, "/x", {"watch": "1"}, timeout_s=20):
                        pass
            assert clients(server) == ["one", "two"], name


async def test_a_refused_certificate_that_has_expired_is_reported(place: Place) -> None:
    place.rotate("one", lifetime_s=-1.0)
    tls = place.tls()
    tls.verify_mode = ssl.CERT_NONE  # as kube-apiserver, which lets everybody in and answers 401
    async with ScriptedServer(tls=tls, default=status(401, reason="Unauthorized")) as server:
        account = await place.load(server)
        async with RequestPool(account) as pool:
            with pytest.raises(ApiError):
                await pool.request("GET", "/x")
            assert "the client certificate has expired" in account.last_error
            n_connections = server.n_connections
            with pytest.raises(ApiError):
                await pool.request("GET", "/x")
            assert server.n_connections == n_connections + 1, "what was refused is not used again"
            server.default = created()
            place.rotate("two")
            await place.a_minute_later(account)
            await pool.request("GET", "/x")
            assert account.last_error == ""


async def test_half_of_a_rotation_changes_nothing(place: Place) -> None:
    async with ScriptedServer(tls=place.tls()) as server:
        account = await place.load(server)
        async with RequestPool(account) as pool:
            await pool.request("GET", "/x")
            key = (place.directory / "client.key").read_bytes()
            place.rotate("two")
            new_key = (place.directory / "client.key").read_bytes()
            replace(place.directory / "client.key", key)
            await place.a_minute_later(account)
            assert "client certificate cannot be used" in account.last_error
            await pool.request("GET", "/x")
            assert server.n_connections == 1
            replace(place.directory / "client.key", new_key)
            place.clock.now_s += RETRY_S
            await pool.request("GET", "/x")
        assert account.last_error == ""
        assert clients(server) == ["one", "one", "two"]


async def test_a_withdrawn_authority_is_no_longer_trusted(place: Place) -> None:
    second = Authority("second")
    async with ScriptedServer(tls=place.tls(), default=answer_watches) as server:
        account = await place.load(server)
        async with connected(account) as (pool, _):
            with within():
                async with open_stream(account, "/x", {"watch": "1"}, timeout_s=20) as stream:
                    assert await stream.read() == b"news"
                    replace(place.bundle, second.certificate)
                    await place.a_minute_later(account)
                    with pytest.raises(ConnectionError):
                        await stream.read()
                await until(lambda: not server._writers)
                with pytest.raises(ApiError, match="its certificate is not accepted") as caught:
                    await pool.request("GET", "/x")
                assert caught.value.code == 0
        assert len(server.requests) == 2


async def test_a_new_authority_is_found_soon_after_a_handshake_has_failed(place: Place) -> None:
    second = Authority("second")
    async with ScriptedServer(tls=place.tls(second)) as server:
        account = await place.load(server, {"token": "t"})
        async with RequestPool(account) as pool:
            with pytest.raises(ApiError, match="its certificate is not accepted"):
                await pool.request("GET", "/x")
            replace(place.bundle, second.certificate)
            place.clock.now_s += RETRY_S
            await pool.request("GET", "/x")
        assert len(server.requests) == 1


async def test_a_kubeconfig_that_is_rewritten_is_reread(place: Place) -> None:
    async with ScriptedServer() as server:
        config = {"server": f"http://127.0.0.1:{server.port}"}
        path = kubeconfig(place.directory, {"token": "one"}, **config)
        account = await load_credentials(kubeconfig=path, environ={}, clock=place.clock)
        kubeconfig(place.directory, {"token": "two"}, **config)
        assert await account.headers() == {"Authorization": "Bearer one"}
        await place.a_minute_later(account)
        assert account.authorization == "Bearer two"


CERTIFICATE_PLUGIN = """
import json, pathlib, sys
counter = pathlib.Path(sys.argv[0]).with_suffix(".n")
counter.write_text(counter.read_text() + "x" if counter.exists() else "x")
place = pathlib.Path(sys.argv[0]).parent
status = {
    "clientCertificateData": (place / "client.crt").read_text(),
    "clientKeyData": (place / "client.key").read_text(),
}
version = "client.authentication.k8s.io/v1"
print(json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status}))
"""


async def test_a_plugins_certificate_is_renewed_before_it_expires(place: Place) -> None:
    place.rotate("one", lifetime_s=600.0)
    async with ScriptedServer(tls=place.tls()) as server:
        account = await place.load(server, plugin(place.directory, CERTIFICATE_PLUGIN))
        async with RequestPool(account) as pool:
            await pool.request("GET", "/x")
            place.rotate("two")
            place.clock.now_s += 500.0
            await pool.request("GET", "/x")
            place.clock.now_s += 60.0  # within a minute of its end
            await pool.request("GET", "/x")
        assert clients(server) == ["one", "one", "two"]
        assert (place.directory / "plugin.n").read_text() == "xx"


@pytest.mark.parametrize("token", ["tök€n", "a\x00b", "a\x7fb"])
async def test_a_token_of_odd_characters_is_a_clear_error(place: Place, token: str) -> None:
    path = kubeconfig(place.directory, {"tokenFile": "token"}, server="http://127.0.0.1:1")
    (place.directory / "token").write_text("good")
    account = await load_credentials(kubeconfig=path, environ={}, clock=place.clock)
    (place.directory / "token").write_text(token)
    await place.a_minute_later(account)
    assert "characters that no token has" in account.last_error
    assert account.authorization == "Bearer good"


async def test_another_servers_address_is_reported_and_not_taken_up(place: Place) -> None:
    path = kubeconfig(place.directory, {"token": "t"}, server="http://127.0.0.1:1")
    account = await load_credentials(kubeconfig=path, environ={}, clock=place.clock)
    kubeconfig(place.directory, {"token": "t"}, server="http://127.0.0.1:2")
    with capture_logs() as logs:
        for _ in range(2):
            await place.a_minute_later(account)
    assert [line["server"] for line in logs] == ["http://127.0.0.1:2"]
    assert account.server == "http://127.0.0.1:1"
