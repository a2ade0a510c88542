"""The port of the pages: bound at the start, served a little later.

Lives here: the settings, the sockets, errors of both. Not here: HTTP (web.serving.server). A client that
connects before the server runs waits in the socket's queue.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
from collections.abc import Sequence

import msgspec

from gangsched.errors import ConfigError

# In the answers of a replica that does not lead: the leader, as seen in the lease.
LEADER_HEADER = "Gangsched-Leader"
# In every answer to a user who may read it: the UID of the cluster's namespace kube-system, if that is known.
CLUSTER_HEADER = "Gangsched-Cluster"
_BACKLOG = 128


class WebSettings(msgspec.Struct, frozen=True):
    """port: 0 takes any free one. certificate and key: files, both or neither; neither: generated at start.
    always_allow: paths that need no token; a trailing * marks a prefix. dashboard: whether to serve it.
    plain: HTTP without TLS, for a loopback address.
    """

    port: int
    bind_address: str = "0.0.0.0"
    certificate: str = ""
    key: str = ""
    always_allow: tuple[str, ...] = ("/healthz", "/readyz", "/livez")
    dashboard: bool = True
    plain: bool = False


def listen(settings: WebSettings) -> list[socket.socket]:
    """Raises: ConfigError."""
    try:
        address = ipaddress.ip_address(settings.bind_address)
    except ValueError:
        raise ConfigError(f"{settings.bind_address!r} is not an IP address", path="--bind-address") from None
    if not address.is_unspecified:
        return [_bound(str(address), settings.port)]
    # kube-scheduler listens on both IPv4 and IPv6 for an unspecified address.
    first = _bound("0.0.0.0", settings.port)
    sockets = [first]
    with contextlib.suppress(ConfigError):
        sockets.append(_bound("::", first.getsockname()[1]))
    return sockets


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        made = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"{host}: {error.strerror}", path="--bind-address") from None
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind((host, port))
        made.listen(_BACKLOG)
        made.setblocking(False)
    except OSError as error:
        made.close()
        text = f"cannot listen on {host} port {port}: {error.strerror}; another port, or 0 for none"
        if error.errno == errno.EADDRINUSE:
            text = (
                f"cannot listen on {host} port {port}: {error.strerror}; is another scheduler running?"
                " another port, or 0 for none"
            )
        raise ConfigError(text, path="--secure-port") from None
    return made


def port_of(sockets: Sequence[socket.socket]) -> int:
    """The port that was bound."""
    return int(sockets[0].getsockname()[1])
