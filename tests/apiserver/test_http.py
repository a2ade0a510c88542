"""The HTTP face: what only shows on a socket, with our own client and with a plain one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import stat
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from random import Random

import aiohttp
import anyio
import pytest

from gangsched.accepting import Accepting
from gangsched.certificates import self_signed, server_context
from gangsched.errors import ApiError, ConfigError
from gangsched.kube.access.credentials import load_credentials
from gangsched.kube.client import ApiClient
from gangsched.kube.watch.decode import pods
from gangsched.kube.watch.reflector import Reflector
from gangsched.lab.apiserver.app import EmbeddedCluster
from gangsched.model.events import Event, PodAdded
from tests.apiserver.api import CONFIG_MAPS, PODS
from tests.support.bodies import pod

DEADLINE_S = 20.0


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster() as cluster:
        yield cluster


@pytest.fixture
async def http(cluster: EmbeddedCluster) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(cluster.url) as session:
        yield session


async def test_of_too_many_that_never_greet_the_oldest_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangsched.lab.apiserver.http.server.Accepting", partial(Accepting, max_handshakes=4))
    pair = self_signed("embedded", hosts=["127.0.0.1"])
    async with EmbeddedCluster(tls=server_context(pair)) as cluster:
        address = ("127.0.0.1", int(cluster.url.rpartition(":")[2]))
        silent = [socket.create_connection(address) for _ in range(20)]
        with anyio.fail_after(DEADLINE_S):
            for one in silent[:16]:
                one.setblocking(False)
                with contextlib.suppress(ConnectionError):  # as it may: the peer has just gone
                    assert await asyncio.get_running_loop().sock_recv(one, 1) == b""
        trust = ssl.create_default_context(cadata=pair.certificate.decode())
        async with aiohttp.ClientSession(cluster.url) as http, http.get("/livez", ssl=trust) as answer:
            assert await answer.text() == "ok"
        for one in silent:
            one.close()


async def test_of_too_many_connections_the_oldest_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangsched.lab.apiserver.http.server.MAX_CONNECTIONS", 4)
    async with EmbeddedCluster() as cluster:
        port = int(cluster.url.rpartition(":")[2])
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
        with anyio.fail_after(DEADLINE_S):
            for reader, _ in silent[:4]:
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
        assert not any(reader.at_eof() for reader, _ in silent[4:])
        for _, writer in silent:
            writer.close()


async def test_documents_and_health(http: aiohttp.ClientSession) -> None:
    async with http.get("/version") as answer:
        assert (await answer.json())["gitVersion"].startswith("v1.")
    for path in ("/healthz", "/livez", "/readyz"):
        async with http.get(path) as answer:
            assert await answer.text() == "ok"
    for path in ("/nothing", "/apis/nobody.example.com/v1/things"):
        async with http.get(path) as answer:
            assert (answer.status, await answer.text()) == (404, "404 page not found\n")
    async with http.get("/api/v1/things") as answer:
        assert (answer.status, (await answer.json())["reason"]) == (404, "NotFound")
    async with http.get("/apis") as answer:
        groups = (await answer.json())["groups"]
        assert "batch" in {group["name"] for group in groups}
    aggregated = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
    async with http.get("/apis", headers=aggregated) as answer:
        etag = answer.headers["ETag"]
    async with http.get("/apis", headers={**aggregated, "If-None-Match": etag}) as answer:
        assert answer.status == 304


async def test_a_request_goes_through(http: aiohttp.ClientSession) -> None:
    body = {"metadata": {"name": "a"}, "colour": "blue"}
    async with http.post(CONFIG_MAPS, json=body) as answer:
        assert answer.status == 201
        assert answer.headers["Warning"] == '299 - "unknown field \\"colour\\""'
    async with http.get(f"{CONFIG_MAPS}/a", headers={"Accept": "application/yaml"}) as answer:
        assert answer.content_type == "application/yaml"
        assert "name: a" in await answer.text()
    async with http.get(f"{CONFIG_MAPS}/a", headers={"Accept": "text/html"}) as answer:
        assert (answer.status, (await answer.json())["reason"]) == (406, "NotAcceptable")
    async with http.get(f"{CONFIG_MAPS}/%61") as answer:
        assert (await answer.json())["metadata"]["name"] == "a"


async def test_a_body_beyond_the_limit(http: aiohttp.ClientSession) -> None:
    async with http.post(CONFIG_MAPS, data=b'{"a":"' + b"x" * (4 * 2**20)) as answer:
        assert (answer.status, (await answer.json())["reason"]) == (413, "RequestEntityTooLarge")


async def test_a_client_may_ask_before_it_sends_its_body(http: aiohttp.ClientSession) -> None:
    async with http.post(CONFIG_MAPS, json={"metadata": {"name": "a"}}, expect100=True) as answer:
        assert answer.status == 201


async def test_a_watch_sends_events_and_ends_at_its_timeout(http: aiohttp.ClientSession) -> None:
    params = {"watch": "1", "timeoutSeconds": "3", "allowWatchBookmarks": "true"}
    async with http.get(CONFIG_MAPS, params=params) as watch:
        await http.post(CONFIG_MAPS, json={"metadata": {"name": "a"}})
        events = [json.loads(line) async for line in watch.content]
    # The bookmark comes shortly before the end, so that whoever starts over begins there.
    assert [event["type"] for event in events] == ["ADDED", "BOOKMARK"]


async def test_a_bad_watch_is_refused_before_it_begins(http: aiohttp.ClientSession) -> None:
    async with http.get(CONFIG_MAPS, params={"watch": "1", "sendInitialEvents": "true"}) as answer:
        assert (answer.status, (await answer.json())["reason"]) == (422, "Invalid")


async def test_a_watcher_that_leaves_is_forgotten(cluster: EmbeddedCluster) -> None:
    store = cluster.registry.store
    async with (
        aiohttp.ClientSession(cluster.url) as session,
        session.get(CONFIG_MAPS, params={"watch": "1"}) as watch,
    ):
        assert watch.status == 200
        assert store.n_listeners("/configmaps") == 1
    with anyio.fail_after(DEADLINE_S):
        while store.n_listeners("/configmaps"):
            await asyncio.sleep(0.01)


async def test_closing_ends_watches_and_leaves_no_task_and_no_socket() -> None:
    before = asyncio.all_tasks()
    async with EmbeddedCluster(nodes=2) as cluster:
        url, port = cluster.url, int(cluster.url.rpartition(":")[2])
        async with aiohttp.ClientSession(url) as session:
            watch = await session.get(PODS, params={"watch": "1"})
            ending = asyncio.create_task(watch.content.read())
            await asyncio.sleep(0)
            await cluster.__aexit__(None, None, None)
            assert await asyncio.wait_for(ending, DEADLINE_S) == b""
    assert asyncio.all_tasks() == before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=1)


async def test_a_port_that_is_taken() -> None:
    async with EmbeddedCluster() as cluster:
        port = int(cluster.url.rpartition(":")[2])
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
            async with EmbeddedCluster(port=port):
                pytest.fail("it listens")


async def test_a_kubeconfig_is_its_owner_s_alone(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    path = cluster.kubeconfig(tmp_path / "kubeconfig")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(ConfigError, match="cannot be written: No such file or directory"):
        cluster.kubeconfig(tmp_path / "nowhere" / "kubeconfig")


@pytest.mark.parametrize("tls", [False, True], ids=["http", "tls"])
async def test_our_own_client(tls: bool, tmp_path: Path) -> None:
    pair = self_signed("embedded", hosts=["127.0.0.1"]) if tls else None
    cluster = EmbeddedCluster(
        tls=server_context(pair) if pair else None, ca=pair.certificate if pair else b""
    )
    heard: list[Event] = []

    async def emit(events: list[Event]) -> None:
        heard.extend(events)

    async with cluster:
        assert cluster.url.startswith("https:" if tls else "http:")
        credentials = await load_credentials(kubeconfig=str(cluster.kubeconfig(tmp_path / "kubeconfig")))
        async with ApiClient(credentials) as client, anyio.create_task_group() as following:
            following.start_soon(Reflector(client, pods(), emit, rng=Random(1)).run)
            await client.post(PODS, json.dumps(pod("a")).encode())
            with pytest.raises(ApiError, match="already exists"):
                await client.post(PODS, json.dumps(pod("a")).encode())
            with anyio.fail_after(DEADLINE_S):
                while not any(
                    isinstance(event, PodAdded) and event.pod.metadata.name == "a" for event in heard
                ):
                    await asyncio.sleep(0.01)
            following.cancel_scope.cancel()
