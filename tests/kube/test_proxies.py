"""HTTP proxies: which is used, what is refused at the start, and requests through one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gangsched.errors import ApiError, ConfigError
from gangsched.kube.access.credentials import Credentials, load_credentials
from gangsched.kube.access.proxies import MAX_HEAD_BYTES, Proxy, Tunnel, is_excepted, network_to
from gangsched.kube.network import KERNEL
from gangsched.kube.transport.pool import RequestPool
from tests.authority import Authority, replace, server_context
from tests.connect_proxy import ConnectProxy
from tests.kube.scripted import ScriptedServer
from tests.kube.test_credentials import kubeconfig

FAR = "https://api.example.test:6443"


def chosen(server: str = FAR, *, proxy_url: str | None = None, **environ: str) -> Proxy | None:
    network = network_to(server, proxy_url=proxy_url, source="config", environ=environ)
    assert network is KERNEL or isinstance(network, Tunnel)
    return network.proxy if isinstance(network, Tunnel) else None


def test_the_kubeconfigs_proxy_goes_before_the_environments() -> None:
    assert chosen() is None
    assert chosen(HTTPS_PROXY="http://env:1") == ("env", 1, "")
    assert chosen(https_proxy="env:1") == ("env", 1, "")
    assert chosen(HTTPS_PROXY="http://env:1", https_proxy="http://other:2") == ("env", 1, "")
    assert chosen(HTTP_PROXY="http://env:1") is None
    assert chosen(proxy_url="http://own:3128", HTTPS_PROXY="http://env:1") == ("own", 3128, "")
    assert chosen(proxy_url="http://own", NO_PROXY="*") == ("own", 80, "")
    assert chosen(HTTPS_PROXY="http://us%40er:p%3Aw@[::1]:1") == ("::1", 1, "Basic dXNAZXI6cDp3")


@pytest.mark.parametrize(
    ("host", "no_proxy", "direct"),
    [
        ("10.96.0.1", "10.0.0.0/8", True),
        ("11.96.0.1", "10.0.0.0/8", False),
        ("10.96.0.1", "10.96.0.1", True),
        ("10.96.0.1", "10.96.0.1:443", False),
        ("10.96.0.1", "10.96.0.1:6443", True),
        ("fd00::1", "fd00::/8", True),
        ("fd00::1", "[fd00::1]:6443", True),
        ("fd00::1", "fd00::1", True),
        ("api.corp.test", "example.test, corp.test", True),
        ("corp.test", "corp.test", True),
        ("API.Corp.Test.", "CORP.test", True),
        ("corp.test", ".corp.test", False),
        ("api.corp.test", ".corp.test", True),
        ("api.corp.test", "*.corp.test", True),
        ("notcorp.test", "corp.test", False),
        ("api.corp.test", "corp.test:443", False),
        ("api.corp.test", "", False),
        ("api.corp.test", ",,", False),
        ("api.corp.test", "10.0.0.0/99", False),
        ("api.corp.test", "*", True),
        ("localhost", "", True),
        ("127.0.0.9", "", True),
        ("::1", "", True),
    ],
)
def test_no_proxy_is_read_as_client_go_reads_it(host: str, no_proxy: str, direct: bool) -> None:
    assert is_excepted(host, 6443, no_proxy) is direct


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://user:secret@proxy:1", "https proxies are not supported"),
        ("socks5://user:secret@proxy:1", "socks5 proxies are not supported"),
        ("http://user:secret@proxy:port", "must be http://HOST:PORT"),
        ("http://user:secret@proxy:99999", "must be http://HOST:PORT"),
        ("http://user:secret@[proxy", "must be http://HOST:PORT"),
        ("http://", "must be http://HOST:PORT"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_an_error(url: str, said: str) -> None:
    for proxy_url, environ, where in (
        (url, {}, "config: clusters[].cluster.proxy-url: "),
        (None, {"HTTPS_PROXY": url}, "the environment: HTTPS_PROXY: "),
        (None, {"https_proxy": url}, "the environment: https_proxy: "),
    ):
        with pytest.raises(ConfigError) as caught:
            network_to(FAR, proxy_url=proxy_url, source="config", environ=environ)
        assert str(caught.value).startswith(where)
        assert said in str(caught.value)
        assert "secret" not in str(caught.value)


def test_a_proxy_to_a_server_without_tls_is_an_error() -> None:
    with pytest.raises(ConfigError, match="https only"):
        chosen("http://api.example.test:8080", HTTP_PROXY="http://env:1")
    with pytest.raises(ConfigError, match="https only"):
        chosen("http://127.0.0.1:8080", proxy_url="http://own:1")
    assert chosen("http://127.0.0.1:8080", HTTP_PROXY="http://env:1") is None


@pytest.mark.parametrize("server", ["ftp://a:1", "a:1", "https://:1", "https://a:port", "https://[a:1"])
def test_a_server_without_an_address_is_an_error(server: str) -> None:
    with pytest.raises(ConfigError, match="server's address"):
        chosen(server)


def test_the_scheduler_does_not_start_around_a_proxy(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"token": "t"}, server=FAR)
    done = subprocess.run(
        [sys.executable, "-m", "gangsched.command.cli", "scheduler", "--kubeconfig", path],
        env={**os.environ, "HTTPS_PROXY": "socks5://user:secret@proxy:1080", "NO_PROXY": ""},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert "the environment: HTTPS_PROXY: socks5 proxies are not supported" in line
    assert "secret" not in line


async def through(directory: Path, proxy: ConnectProxy, login: str = "") -> Credentials:
    """Credentials for a server whose name only the proxy knows."""
    path = kubeconfig(
        directory,
        {"token": "t"},
        server=FAR,
        **{"certificate-authority": str(directory / "ca.crt"), "tls-server-name": "localhost"},
    )
    at = f"http://{login}@127.0.0.1:{proxy.port}" if login else f"http://127.0.0.1:{proxy.port}"
    return await load_credentials(kubeconfig=path, environ={"HTTPS_PROXY": at})


@pytest.mark.parametrize("login", ["", "user:pa%3Ass"])
async def test_requests_go_through_a_tunnel_and_connections_stay_warm(tmp_path: Path, login: str) -> None:
    authority = Authority("ca")
    replace(tmp_path / "ca.crt", authority.certificate)
    tls = server_context(authority.issue(tmp_path, "server"))
    async with (
        ScriptedServer(tls=tls) as server,
        ConnectProxy(("127.0.0.1", server.port), login=login.replace("%3A", ":")) as proxy,
        RequestPool(await through(tmp_path, proxy, login)) as pool,
    ):
        for _ in range(3):
            await pool.request("GET", "/x")
        assert proxy.targets == ["api.example.test:6443"]
        assert server.requests[0].headers["host"] == "api.example.test:6443"
        assert "proxy-authorization" not in server.requests[0].headers


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "does not connect to api.example.test:6443: 407 Proxy Authentication Required"),
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "does not connect to api.example.test:6443: 403 Forbidden"),
        (b"SSH-2.0-x\r\n\r\n", "does not answer as one"),
        (b"x" * (MAX_HEAD_BYTES + 1), "does not answer as one"),
        (b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "sends more than it was asked for"),
    ],
)
async def test_a_proxy_that_refuses_is_named(tmp_path: Path, answer: bytes, said: str) -> None:
    replace(tmp_path / "ca.crt", Authority("ca").certificate)
    async with (
        ConnectProxy(login="user:secret", answer=answer) as proxy,
        RequestPool(await through(tmp_path, proxy)) as pool,
    ):
        with pytest.raises(ApiError) as caught:
            await pool.request("GET", "/x")
    assert caught.value.code == 0
    assert str(caught.value).split(": ", 1)[1].startswith(f"the proxy 127.0.0.1:{proxy.port} {said}")


async def test_a_proxy_that_is_not_there_is_named(tmp_path: Path) -> None:
    replace(tmp_path / "ca.crt", Authority("ca").certificate)
    async with ConnectProxy() as proxy:
        pass
    async with RequestPool(await through(tmp_path, proxy)) as pool:
        with pytest.raises(ApiError, match=f"the proxy 127.0.0.1:{proxy.port} cannot be reached: "):
            await pool.request("GET", "/x")
