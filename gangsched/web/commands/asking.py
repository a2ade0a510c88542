"""Requests pages from a running scheduler's port: the client of our own pages, for commands.

Lives here: the address, trust, the token, errors that state what would be correct. Not here: the content of a
page. The token is the kubeconfig's token for the API server; the scheduler lets the API server review it.
"""

from __future__ import annotations

import argparse
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

import aiohttp
import msgspec

from gangsched.command.messages import tell_note
from gangsched.errors import ApiError, ConfigError
from gangsched.kube.access.credentials import header_of, load_credentials
from gangsched.kube.access.flags import add_cluster_flags
from gangsched.kube.reach import plain
from gangsched.web.leader import LEASE, Known, forwarded, known_of
from gangsched.web.listening import CLUSTER_HEADER, LEADER_HEADER

DEFAULT_SERVER = "https://127.0.0.1:10259"
_TIMEOUT_S = 10.0
# Long enough for pages that a scheduler has to compute first.
_ANSWER_TIMEOUT_S = 30.0
_MAX_BYTES = 16 * 2**20
_MAX_ERROR_BYTES = 500
_MAX_UID = 64
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


def add_flags(parser: argparse.ArgumentParser, *, with_master: bool = False) -> None:
    """Adds flags for the scheduler's address and the client's credentials. with_master: as
    add_cluster_flags."""
    add_server_flags(
        parser,
        default="",
        text=f"the scheduler's port; default: {DEFAULT_SERVER} if the one that leads the kubeconfig's cluster"
        " answers there, else that one, by kubectl port-forward",
    )
    add_cluster_flags(parser, with_master=with_master)


def add_server_flags(parser: argparse.ArgumentParser, *, default: str, text: str) -> None:
    """Adds flags for the scheduler's address, and trust. `text`: help on the address."""
    parser.add_argument("--server", metavar="URL", default=default, help=text)
    parser.add_argument(
        "--lease",
        metavar="NAMESPACE/NAME",
        default=LEASE,
        help=f"the Lease that names the scheduler that leads ({LEASE})",
    )
    parser.add_argument("--token", metavar="TOKEN", default="", help="default: the kubeconfig's")
    parser.add_argument("--ca", metavar="FILE", default="", help="the CA of its certificate")
    parser.add_argument(
        "--insecure", action="store_true", help="trust any certificate; the default on a loopback address"
    )


def server_of(args: argparse.Namespace) -> str:
    """Returns the address that is asked, for messages."""
    return str(args.server or DEFAULT_SERVER)


async def ask(args: argparse.Namespace, path: str, body: bytes | None = None) -> bytes | None:
    """Asks like `Ask`, on a new connection; notes on stderr which server it asks if no address was given, and
    a replica that does not lead.

    Raises: ConfigError, ApiError.
    """
    async with connected(args) as asked:
        return await asked(path, body)


def _of_follower(server: str, leader: str) -> str:
    """`leader`: the lease's holder as seen by that replica. In a cluster a host's name is its pod's."""
    note = f"{server} is a replica that does not lead: it decides nothing, and its queue does not move"
    host = leader.rpartition("_")[0]
    if host and _HOST.fullmatch(host):
        return f"{note}; the one that leads: kubectl -n gangsched-system port-forward pod/{host} 10259"
    return f"{note}; which one leads, if any: kubectl -n gangsched-system get lease gangsched"


class _Answer(NamedTuple):
    """An answer. leader: of a replica that does not lead, who does; cluster: the identity of its cluster, ""
    if it does not say."""

    page: bytes | None
    leader: str | None
    cluster: str


@asynccontextmanager
async def connected(args: argparse.Namespace) -> AsyncIterator[Ask]:
    """Yields an `Ask` for several pages, on one connection, to one scheduler. Raises: ConfigError."""
    async with aiohttp.ClientSession() as session, AsyncExitStack() as stack:
        asking = _Asking(args, session, stack)
        if args.server:
            asking.line = _Line(args, session, str(args.server))
        yield asking.asked


class _Line:
    """The way to one address. Raises: ConfigError (it is none, or cannot be trusted)."""

    def __init__(self, args: argparse.Namespace, session: aiohttp.ClientSession, server: str) -> None:
        self._args = args
        self._session = session
        self.server = server.rstrip("/")
        self._is_plain = _PLAIN.fullmatch(self.server) is not None
        if not (self._is_plain or _is_address(self.server)):
            problem = f"{self.server!r} is not an https:// address, as {DEFAULT_SERVER} is"
            raise ConfigError(problem, path="--server")
        self._trust = self._is_plain or _trust(args, self.server)

    async def ask(self, path: str, body: bytes | None) -> _Answer:
        """Asks once. Raises: ConfigError, ApiError."""
        # Each time, as it may be renewed. A token is never sent over a plain connection.
        token = "" if self._is_plain else await _token(self._args)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return await _ask(self._session, self.server, path, headers, self._trust, body)


class _Asking:
    """One scheduler, found with the first question if no address was given."""

    def __init__(
        self, args: argparse.Namespace, session: aiohttp.ClientSession, stack: AsyncExitStack
    ) -> None:
        self._args = args
        self._session = session
        self._stack = stack
        self._is_checked = False
        self.line: _Line | None = None

    async def asked(self, path: str, body: bytes | None = None) -> bytes | None:
        """As Ask."""
        if self.line is None:
            return await self._first(path, body)
        try:
            answer = await self.line.ask(path, body)
        except ApiError as error:
            if error.code or self._is_checked or "lease" not in self._args:
                raise
            hint = "without --server the one that leads is looked for"
            raise ApiError(f"{error.message}; {hint}") from None
        if not self._is_checked:
            self._is_checked = True
            await self._check(self.line.server, answer)
        return answer.page

    async def _check(self, server: str, answer: _Answer) -> None:
        """Notes a given address that is not what it may be taken for."""
        if answer.leader is not None:
            tell_note(_of_follower(server, answer.leader))
        if not answer.cluster:
            return
        known = await known_of(self._args, with_leader=False)
        if known is not None and known.uid not in ("", answer.cluster):
            tell_note(_of_another(server, answer.cluster, known))

    async def _first(self, path: str, body: bytes | None) -> bytes | None:
        """Asks the default port, else the one that leads. Raises: ConfigError, ApiError."""
        local = _Line(self._args, self._session, DEFAULT_SERVER)
        answer, problem = None, None
        try:
            answer = await local.ask(path, body)
        except ApiError as error:
            if error.code not in (0, 401, 403):
                raise
            problem = error
        known = await known_of(self._args, with_leader=True)
        is_other = answer is not None and known is not None and _is_other(answer, known)
        if answer is not None and not is_other and answer.leader is None:
            return self._taken(local, answer, known)
        try:
            if known is None or not known.leader:
                raise ApiError(known.why if known is not None else "no cluster is configured")
            server = await self._stack.enter_async_context(forwarded(self._args, known.leader))
            line = _Line(self._args, self._session, server)
            page = (await line.ask(path, body)).page
        except ApiError as error:
            if answer is None and problem is not None:
                raise ApiError(f"{problem.message}; {error.message}", code=problem.code) from None
            if answer is None or (is_other and known is not None):
                other = _of_another(DEFAULT_SERVER, answer.cluster if answer else "", known) if known else ""
                raise ApiError(f"{other}; {error.message}") from None
            tell_note(_of_follower(DEFAULT_SERVER, answer.leader or ""))
            return self._taken(local, answer, known)
        tell_note(
            f"asked pod {known.leader}, which leads in the cluster {known.server}, by kubectl port-forward"
        )
        self.line, self._is_checked = line, True
        return page

    def _taken(self, line: _Line, answer: _Answer, known: Known | None) -> bytes | None:
        cluster = ""
        if known is not None and answer.cluster and known.uid:
            cluster = f", of the cluster {known.server}"
        elif known is not None:
            cluster = f"; whether it is of the kubeconfig's cluster {known.server} is not known"
        tell_note(f"asked the scheduler at {line.server}{cluster}")
        self.line, self._is_checked = line, True
        return answer.page


def _is_other(answer: _Answer, known: Known) -> bool:
    return bool(answer.cluster and known.uid) and answer.cluster != known.uid


def _of_another(server: str, cluster: str, known: Known) -> str:
    return (
        f"the scheduler at {server} is of another cluster ({cluster}) than the kubeconfig's, {known.server}"
        f" ({known.uid})"
    )


def decoded(args: argparse.Namespace, body: bytes | None, kind: type[_T]) -> _T:
    """Decodes the page in `body`. Raises: ApiError (another program answers at that address)."""
    try:
        page = msgspec.json.decode(body or b"", type=kind)
        if _has_giant(page):
            raise msgspec.ValidationError(f"a number of it is beyond {_MAX_NUMBER:.0e}")
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ApiError(f"{server_of(args)} does not answer as a gangsched scheduler does: {error}") from None
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
) -> _Answer:
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
            leader = answer.headers.get(LEADER_HEADER)
            cluster = answer.headers.get(CLUSTER_HEADER, "")[:_MAX_UID]
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
        raise ApiError(f"no scheduler answers at {server}: {why}") from None
    if code == 404:
        return _Answer(None, leader, cluster)
    if 300 <= code < 400:
        where = "it redirects, as a proxy that wants a login does; a gangsched scheduler never does"
        raise ApiError(f"{server}{path}: {where}; give its own port", code=code)
    text = page[:_MAX_ERROR_BYTES].decode(errors="replace").strip() or reason or "no reason is given"
    if code == 400 and body is not None:
        raise ConfigError(text)
    if code != 200:
        raise ApiError(f"{server}{path}: {text}{_cure(code, headers)}", code=code)
    return _Answer(page, leader, cluster)


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
