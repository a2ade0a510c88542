"""handle.kubernetes(): the whole kubernetes-asyncio beside our bare loaders, on credentials that change."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gangsched.extension.handle import Handle
from gangsched.kube.access.loaders import FILE_REFRESH_S
from gangsched.kube.access.proxies import Proxy, Tunnel
from gangsched.kube.client import ApiClient
from tests.connect_proxy import ConnectProxy
from tests.kube.scripted import Request, ScriptedServer, status
from tests.kube.test_credentials import EXEC_OK, plugin
from tests.kube.test_rotation import Place
from tests.support.tasks import until

NODES = b'{"kind":"NodeList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"n0"}}]}'
REPO = Path(__file__).parents[2]


async def names(api: Any) -> list[str]:
    from kubernetes_asyncio.client import CoreV1Api

    return [node.metadata.name for node in (await CoreV1Api(api).list_node()).items]


def listing(request: Request) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
        len(NODES),
        NODES,
    )


def test_the_loaders_leave_no_stand_in_behind_and_work_beside_the_whole_package() -> None:
    """In a process of its own: what is imported stays."""
    code = """
import asyncio, sys
from gangsched.kube.access.loaders import from_kubeconfig, import_client, import_loaders
loaders, _ = import_loaders()
assert not [name for name in sys.modules if name.startswith("kubernetes_asyncio")]
import kubernetes_asyncio.client as whole
from kubernetes_asyncio import config
assert whole.CoreV1Api and config.load_kube_config
assert whole.ApiClient is config.kube_config.ApiClient is import_client().ApiClient
assert loaders.ApiClient is object and import_loaders()[0] is loaders
found = asyncio.run(from_kubeconfig(sys.argv[1], ""))
assert found.host == "https://127.0.0.1:6443", found.host
"""
    path = REPO / "tests" / "extension" / "kubeconfig.yaml"
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, cwd=REPO)


def test_the_loaders_work_where_the_whole_package_came_first() -> None:
    code = """
import asyncio, sys
import kubernetes_asyncio.client as whole
from gangsched.kube.access.loaders import from_kubeconfig, import_loaders
assert import_loaders()[0].ApiClient is whole.ApiClient
assert asyncio.run(from_kubeconfig(sys.argv[1], "")).host == "https://127.0.0.1:6443"
"""
    path = REPO / "tests" / "extension" / "kubeconfig.yaml"
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, cwd=REPO)


@asynccontextmanager
async def asked(
    place: Place, user: dict[str, Any] | None = None, *, script: Sequence[Any] = ()
) -> AsyncIterator[tuple[ScriptedServer, Handle]]:
    """A server over TLS, and a plugin's handle on it."""
    async with ScriptedServer(tls=place.tls(), default=listing, script=list(script)) as server:
        client = ApiClient(await place.load(server, user))
        handle = Handle("test", client, emit_nowait=lambda _: None, waiting=lambda _: None)
        yield server, handle
        handle.close()
        await handle.close_kubernetes()


async def test_it_is_one_client_until_somebody_closes_it(tmp_path: Path) -> None:
    async with asked(Place(tmp_path)) as (_, handle):
        first = await handle.kubernetes()
        assert await names(first) == ["n0"]
        assert await handle.kubernetes() is first
        async with first:
            pass
        second = await handle.kubernetes()
        assert second is not first
        assert await names(second) == ["n0"]
    assert second.rest_client.pool_manager.closed


async def test_new_certificates_are_used_and_old_connections_end(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with asked(place) as (server, handle):
        api = await handle.kubernetes()
        await names(api)
        old = set(server._writers)
        place.rotate("two")
        place.clock.now_s += FILE_REFRESH_S + 1
        await names(api)
        assert [request.client for request in server.requests] == ["one", "two"]
        await until(lambda: not old & server._writers)


async def test_a_refused_token_is_renewed_and_the_request_sent_again(tmp_path: Path) -> None:
    files = {"client-certificate": "client.crt", "client-key": "client.key"}
    user = {**plugin(tmp_path, EXEC_OK), **files}
    async with asked(Place(tmp_path), user, script=[status(401)]) as (server, handle):
        assert await names(await handle.kubernetes()) == ["n0"]
        sent = [request.headers["authorization"] for request in server.requests]
        assert sent == ["Bearer t1", "Bearer t2"]


async def test_it_goes_through_the_proxy_of_the_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # the credentials were given another
    async with (
        asked(Place(tmp_path)) as (server, handle),
        ConnectProxy(("127.0.0.1", server.port), login="user:secret") as proxy,
    ):
        network = Tunnel(Proxy("127.0.0.1", proxy.port, "Basic dXNlcjpzZWNyZXQ="))
        handle._client.credentials.network = network
        assert await names(await handle.kubernetes()) == ["n0"]
        assert proxy.targets == [f"127.0.0.1:{server.port}"]
