"""Requests pages from a running scheduler's port: the client of our own pages, for commands.

Lives here: the address, trust, the token, errors that state what would be correct. Not here: the content of a
page. The token is the kubeconfig's token for the API server; the scheduler lets the API server review it.
"""

from __future__ import annotations

import argparse
import re
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import urlsplit

import aiohttp
import msgspec

from gangsched.errors import ApiError, ConfigError
from gangsched.kube.credentials import header_of, load_credentials
from gangsched.kube.reach import plain
from gangsched.web.listening import LEADER_HEADER

DEFAULT_SERVER = "https://127.0.0.1:10259"
_TIMEOUT_S = 10.0
# Long enough for pages that a scheduler has to compute first.
_ANSWER_TIMEOUT_S = 30.0
_MAX_BYTES = 16 * 2**20
_MAX_ERROR_BYTES = 500
# More than the bytes and microseconds of any cluster, yet safe to calculate with.
_MAX_NUMBER = 10**30
# The demo's scheduler serves its pages without TLS, on loopback only.
_PLAIN = re.compile(r"http://(127\.0\.0\.1|localhost|\[::1\]):[0-9]{1,5}")
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_T = TypeVar("_T")


class Ask(Protocol):
    """Requests a page, or the answer to a `body` of JSON; None if the scheduler has no such object.

    Raises: ConfigError (the scheduler rejects the body), ApiError.
    """

    async def __call__(self, path: str, body: bytes | None = None) -> bytes | None: ...


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds flags for the scheduler's address and the client's credentials."""
    add_server_flags(
        parser,
        default=DEFAULT_SERVER,
        text=f"the scheduler's port ({DEFAULT_SERVER}); as `kubectl port-forward` gives it",
    )
    parser.add_argument(
        "--kubeconfig", metavar="FILE", default="", help="default: KUBECONFIG, in-cluster, ~/.kube/config"
    )
    parser.add_argument("--context", metavar="NAME", default="", help="a context of the kubeconfig")


def add_server_flags(parser: argparse.ArgumentParser, *, default: str, text: str) -> None:
    """Adds flags for the scheduler's address, and trust. `text`: help on the address."""
    parser.add_argument("--server", metavar="URL", default=default, help=text)
    parser.add_argument("--token", metavar="TOKEN", default="", help="default: the kubeconfig's")
    parser.add_argument("--ca", metavar="FILE", default="", help="the CA of its certificate")
    parser.add_argument(
        "--insecure", action="store_true", help="trust any certificate; the default on a loopback address"
    )


async def ask(args: argparse.Namespace, path: str, body: bytes | None = None) -> bytes | None:
    """Asks like `Ask`, on a new connection; notes a replica that does not lead on stderr.

    Raises: ConfigError, ApiError.
    """
    leaders: list[str] = []
    async with connected(args, leaders) as asked:
        page = await asked(path, body)
    for leader in leaders:
        print(f"gangsched: note: {_of_follower(str(args.server), leader)}", file=sys.stderr)
    return page


def _of_follower(server: str, leader: str) -> str:
    """`leader`: the lease's holder as seen by that replica. In a cluster a host's name is its pod's."""
    note = f"{server} is a replica that does not lead: it decides nothing, and its queue does not move"
    host = leader.rpartition("_")[0]
    if host and _HOST.fullmatch(host):
        return f"{note}; the one that leads: kubectl -n gangsched-system port-forward pod/{host} 10259"
    return f"{note}; which one leads, if any: kubectl -n gangsched-system get lease gangsched"


@asynccontextmanager
async def connected(args: argparse.Namespace, leaders: list[str] | None = None) -> AsyncIterator[Ask]:
    """Yields an `Ask` for several pages, on one connection. Raises: ConfigError.

    leaders: gets the leader's name for each answer of a replica that does not lead.
    """
    server = str(args.server).rstrip("/")
    is_plain = _PLAIN.fullmatch(server) is not None
    if not (is_plain or _is_address(server)):
        raise ConfigError(f"{server!r} is not an https:// address, as {DEFAULT_SERVER} is", path="--server")
    trust = is_plain or _trust(args, server)
    async with aiohttp.ClientSession() as session:

        async def asked(path: str, body: bytes | None = None) -> bytes | None:
            # Each time, as it may be renewed. A token is never sent over a plain connection.
            token = "" if is_plain else await _token(args)
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            return await _ask(session, server, path, headers, trust, body, [] if leaders is None else leaders)

        yield asked


def decoded(args: argparse.Namespace, body: bytes | None, kind: type[_T]) -> _T:
    """Decodes the page in `body`. Raises: ApiError (another program answers at that address)."""
    try:
        page = msgspec.json.decode(body or b"", type=kind)
        if _has_giant(page):
            raise msgspec.ValidationError(f"a number of it is beyond {_MAX_NUMBER:.0e}")
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ApiError(f"{args.server} does not answer as a gangsched scheduler does: {error}") from None
    return page


def _has_giant(page: object) -> bool:
    """Whether it contains a number whose sums and products may not fit a float."""
    todo = [msgspec.to_builtins(page)]
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            todo += one.values()
        elif isinstance(one, list | tuple):
            todo += one
        elif isinstance(one, int | float) and not -_MAX_NUMBER <= one <= _MAX_NUMBER:
            return True
    return False


async def _ask(
    session: aiohttp.ClientSession,
    server: str,
    path: str,
    headers: dict[str, str],
    trust: ssl.SSLContext | bool,
    body: bytes | None,
    leaders: list[str],
) -> bytes | None:
    method, limit_s = ("GET", _TIMEOUT_S) if body is None else ("POST", _ANSWER_TIMEOUT_S)
    if body is not None:
        headers = {**headers, "Content-Type": "application/json"}
    limit = aiohttp.ClientTimeout(total=limit_s)
    try:
        async with session.request(
            method, server + path, ssl=trust, allow_redirects=False, headers=headers, data=body, timeout=limit
        ) as answer:
            page = b"".join([part async for part in _bounded(answer)])
            code, reason = answer.status, answer.reason
            leaders += answer.headers.getall(LEADER_HEADER, [])[:1]
    except aiohttp.ClientConnectorCertificateError as error:
        why = f"{server}: its certificate is not trusted: {error.certificate_error}; give --ca, or --insecure"
        raise ApiError(why) from None
    except (aiohttp.ClientError, TimeoutError, UnicodeError) as error:
        if isinstance(error, aiohttp.ClientConnectorError):
            why = plain(error.os_error)
        elif isinstance(error, UnicodeError):
            why = "it is not a host name"
        else:
            why = " ".join(str(error).split()) or "no answer in time"
        forward = "kubectl -n gangsched-system port-forward deployment/gangsched 10259"
        raise ApiError(f"no scheduler answers at {server}: {why}; in a cluster: {forward}") from None
    if code == 404:
        return None
    if 300 <= code < 400:
        where = "it redirects, as a proxy that wants a login does; a gangsched scheduler never does"
        raise ApiError(f"{server}{path}: {where}; give its own port", code=code)
    said = page[:_MAX_ERROR_BYTES].decode(errors="replace").strip() or reason or "no reason is given"
    if code == 400 and body is not None:
        raise ConfigError(said)
    if code != 200:
        raise ApiError(f"{server}{path}: {said}{_cure(code, headers)}", code=code)
    return page


def _cure(code: int, headers: dict[str, str]) -> str:
    """Returns what would help if the scheduler rejects this client; "" for other codes."""
    if code not in (401, 403):
        return ""
    if "Authorization" not in headers:
        # Only the API server can check a client certificate, and kubeadm's and kind's kubeconfigs have
        # nothing else.
        return (
            ". The scheduler knows users by their tokens, and none was sent: the kubeconfig's user has none,"
            " and a client certificate is for the API server alone. Give --token, for example of a service"
            ' account that may get this path: --token "$(kubectl create token NAME)"'
        )
    if code == 401:
        return ": the API server does not accept the token; it may have expired, or be another cluster's"
    return ": a ClusterRole that has this path among its nonResourceURLs, bound to that user, allows it"


async def _bounded(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Raises: ApiError, past _MAX_BYTES."""
    n = 0
    async for part in answer.content.iter_any():
        n += len(part)
        if n > _MAX_BYTES:
            raise ApiError(f"{answer.url} answers more than {_MAX_BYTES // 2**20} MiB")
        yield part


async def _token(args: argparse.Namespace) -> str:
    if args.token:
        return header_of(args.token, path="--token")
    try:
        credentials = await load_credentials(kubeconfig=args.kubeconfig, context=args.context)
    except ConfigError:
        if args.kubeconfig or args.context:
            raise
        return ""
    scheme, _, token = (await credentials.headers()).get("Authorization", "").partition(" ")
    return token if scheme == "Bearer" else ""  # a password is only for the API server


def _is_address(server: str) -> bool:
    """Whether it is https:// with a host, a valid port and no user."""
    try:
        parts = urlsplit(server)
        return (
            parts.scheme == "https" and bool(parts.hostname) and parts.port != 0 and "@" not in parts.netloc
        )
    except ValueError:  # https://[::1, or port 99999
        return False


def _trust(args: argparse.Namespace, server: str) -> ssl.SSLContext | bool:
    if args.ca:
        try:
            return ssl.create_default_context(cadata=Path(args.ca).read_text())
        except (OSError, ssl.SSLError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot be used: {error}", path=f"--ca {args.ca}") from None
    # A scheduler without a configured certificate generates one, which no client can verify.
    return not (args.insecure or urlsplit(server).hostname in ("127.0.0.1", "localhost", "::1"))
