"""HTTP proxies: which one leads to the API server, if any, and the tunnel through it.

Lives here: `proxy-url` of a kubeconfig, HTTPS_PROXY and NO_PROXY as client-go reads them, CONNECT. Not here:
TLS, which is spoken with the API server through the tunnel (kube.transport.connection). Called by
kube.access.credentials.

A proxy that we cannot use is an error at the start, never skipped: a direct connection around it may be
forbidden. https and socks5 proxies are not supported; http proxies are the common ones in companies.
Source: golang.org/x/net `http/httpproxy`, k8s.io/client-go `transport`.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import re
import socket
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import SplitResult, unquote_to_bytes, urlsplit

from gangsched.errors import ConfigError
from gangsched.kube.network import KERNEL, Network, SocketSelector

MAX_HEAD_BYTES = 16 * 1024
_DEFAULT_PORT = 80
_ANSWER = re.compile(rb"HTTP/1\.[01] (\d{3})(?: ([\t -~\x80-\xff]*))?\r\n")


class Proxy(NamedTuple):
    """A proxy's address, and its Proxy-Authorization ("": none)."""

    host: str
    port: int
    authorization: str = ""


class Tunnel(Network):
    """Sockets connected through a proxy, on top of the network that leads to it."""

    def __init__(self, proxy: Proxy, *, network: Network = KERNEL) -> None:
        self.proxy = proxy
        self._network = network

    async def connect(self, host: str, port: int) -> socket.socket:
        proxy = self.proxy
        try:
            sock = await self._network.connect(proxy.host, proxy.port)
        except OSError as error:
            why = str(error) or "no answer in time"
            raise OSError(f"the proxy {proxy.host}:{proxy.port} cannot be reached: {why}") from error
        try:
            await self._ask(sock, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        except BaseException:
            sock.close()
            raise
        return sock

    def selector(self) -> SocketSelector:
        return self._network.selector()

    async def _ask(self, sock: socket.socket, target: str) -> None:
        proxy, loop = self.proxy, asyncio.get_running_loop()
        lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
        if proxy.authorization:
            lines.append(f"Proxy-Authorization: {proxy.authorization}")
        await loop.sock_sendall(sock, "\r\n".join([*lines, "", ""]).encode("latin-1"))
        head = b""
        while b"\r\n\r\n" not in head:
            data = await loop.sock_recv(sock, MAX_HEAD_BYTES)
            head += data
            if not data or len(head) > MAX_HEAD_BYTES:
                raise OSError(f"the proxy {proxy.host}:{proxy.port} does not answer as one")
        found = _ANSWER.match(head)
        if found is None:
            raise OSError(f"the proxy {proxy.host}:{proxy.port} does not answer as one")
        if not found[1].startswith(b"2"):
            text = b" ".join(part for part in found.groups() if part).decode("latin-1")
            raise OSError(f"the proxy {proxy.host}:{proxy.port} does not connect to {target}: {text[:200]}")
        if not head.endswith(b"\r\n\r\n") or head.count(b"\r\n\r\n") != 1:
            # With TLS the client speaks first, so these bytes are not the server's.
            raise OSError(f"the proxy {proxy.host}:{proxy.port} sends more than it was asked for")


def network_to(server: str, *, proxy_url: str | None, source: str, environ: Mapping[str, str]) -> Network:
    """Returns the way to the server: the kubeconfig's proxy, else the environment's. Raises: ConfigError."""
    try:
        target = urlsplit(server)
        port = target.port or (443 if target.scheme == "https" else 80)
    except ValueError as error:
        raise ConfigError(f"the server's address cannot be read: {error}", source=source) from None
    if target.scheme not in ("https", "http") or not target.hostname:
        raise ConfigError(
            f"the server's address must be https://HOST:PORT; it has the scheme {target.scheme!r}"
            f" and the host {target.hostname or ''!r}",
            source=source,
        )
    if proxy_url:
        path, url = "clusters[].cluster.proxy-url", proxy_url
    else:
        source = "the environment"
        path, url = _of_environment(target.scheme, environ)
        if not url or is_excepted(target.hostname, port, _first(environ, "NO_PROXY")[1]):
            return KERNEL
    if target.scheme == "http":
        raise ConfigError(
            "a proxy is used for https only, and the server's address is http: name the host in NO_PROXY,"
            " or use https",
            source=source,
            path=path,
        )
    return Tunnel(_parse(url, source=source, path=path))


def _of_environment(scheme: str, environ: Mapping[str, str]) -> tuple[str, str]:
    return _first(environ, "HTTPS_PROXY" if scheme == "https" else "HTTP_PROXY")


def _first(environ: Mapping[str, str], name: str) -> tuple[str, str]:
    """Returns a variable's name and value, trying capitals first, as Go does."""
    for one in (name, name.lower()):
        if environ.get(one):
            return one, environ[one].strip()
    return name, ""


def is_excepted(host: str, port: int, no_proxy: str) -> bool:
    """Whether to reach this host directly: it is this machine, or NO_PROXY names it."""
    host = host.lower().rstrip(".")
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(_is_meant(entry.strip(), host, address, port) for entry in no_proxy.lower().split(","))


_Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


def _address(text: str) -> _Ip | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _is_meant(entry: str, host: str, address: _Ip | None, port: int) -> bool:
    """Whether one entry of NO_PROXY matches: *, an address, a network or a domain, with or without a port."""
    if not entry or entry == "*":
        return bool(entry)
    if "/" in entry:
        try:
            return address is not None and address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    if _address(entry) is None:
        name, _, number = entry.rpartition(":")
        if name and number.isdecimal():
            if int(number) != port:
                return False
            entry = name
        entry = entry.removeprefix("[").removesuffix("]")
    if (meant := _address(entry)) is not None:
        return address == meant
    entry = entry.removeprefix("*")
    return host.endswith(entry) if entry.startswith(".") else f".{host}".endswith(f".{entry}")


def _parse(url: str, *, source: str, path: str) -> Proxy:
    """Parse a proxy's URL. Raises: ConfigError, without the URL, since it may contain a password."""
    try:
        parts: SplitResult = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname, parts.port or _DEFAULT_PORT
    except ValueError:
        host, port = None, 0
        parts = urlsplit("http:")
    if parts.scheme != "http":
        raise ConfigError(
            f"{parts.scheme} proxies are not supported; http://HOST:PORT is, by CONNECT",
            source=source,
            path=path,
        )
    if not host:
        raise ConfigError(
            "the proxy's address cannot be read; it must be http://HOST:PORT or http://USER:PASSWORD@HOST:PORT",
            source=source,
            path=path,
        )
    authorization = ""
    if parts.username is not None:
        user = unquote_to_bytes(parts.username) + b":" + unquote_to_bytes(parts.password or "")
        authorization = f"Basic {base64.b64encode(user).decode()}"
    return Proxy(host, port, authorization)
