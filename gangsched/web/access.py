"""Decides who may read a page by asking the API server, as kube-scheduler does (delegated authentication).

Lives here: TokenReview, SubjectAccessReview, the cache of recent answers, and the rate limit for unknown
clients. Not here: HTTP (web.serving.server). The role needs `create` on both. Tokens only: client
certificates would need the cluster's CA. Source: k8s.io/apiserver
`pkg/server/options/{authentication,authorization}.go`.
"""

from __future__ import annotations

import hashlib
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Generic, Protocol, TypeVar

import anyio
import msgspec
import structlog

from gangsched.errors import ApiError
from gangsched.kube.reach import is_logged
from gangsched.model.text import bounded
from gangsched.model.text.printable import one_line

_log = structlog.get_logger(__name__)

TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
# kube-scheduler's defaults for both.
CACHE_S = 10.0
REVIEW_TIMEOUT_S = 10.0
# Unknown clients can make up any number of tokens and paths, so the number of cached answers is limited ("no"
# apart from "yes", so that it evicts none), the number of concurrent requests, and their rate.
MAX_CACHED = 1024
MAX_ASKED_AT_ONCE = 4
# A user with 10,000 groups takes half of this.
MAX_REVIEW_BYTES = 2**20
STRANGERS_A_SECOND = 2.0
STRANGERS_AT_ONCE = 20.0
# The limits above are per address; all addresses together get this many times as much. After a restart no
# client is known, and one address that makes up tokens must not block all others.
ADDRESSES_WORTH = 2
MAX_ADDRESSES = 1024
# A request that was allowed within this time has its own rate limit: a flood does not lock out clients that
# had access before.
REMEMBERED_S = 600.0
KNOWN_A_SECOND = 10.0
KNOWN_AT_ONCE = 50.0
# Its members may do everything; the API server would answer the same.
MASTERS = "system:masters"
_CANNOT_ASK = "the API server cannot be asked who may read this"
_MAX_SHOWN = 256

ValueT = TypeVar("ValueT")


class User(msgspec.Struct, frozen=True):
    """A user as the API server authenticated it."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, list[str] | None] = {}


ANONYMOUS = User("system:anonymous", "", ("system:unauthenticated",))


class Refused(Exception):
    """`code` 401: not authenticated; 403: forbidden; 429: too many requests of unknown clients; 503: the API
    server cannot be asked."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(message)


class Poster(Protocol):
    """The part of the API server's client that is needed here."""

    async def post(self, path: str, body: bytes, *, timeout_s: float = ...) -> bytes: ...


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: User = User()


class _TokenReview(msgspec.Struct, tag_field="kind", tag="TokenReview"):
    """Without a status it is not an answer, not even a "no"."""

    status: _TokenStatus


class _AccessStatus(msgspec.Struct):
    """If both are set, an authorizer contradicts itself; kube-scheduler takes that as a no."""

    allowed: bool = False
    denied: bool = False


class _AccessReview(msgspec.Struct, tag_field="kind", tag="SubjectAccessReview"):
    status: _AccessStatus


_decode_token_review = bounded.lenient_decoder(_TokenReview)
_decode_access_review = bounded.lenient_decoder(_AccessReview)


class _Bucket:
    """A token bucket: a rate per second, and a burst after a rest."""

    def __init__(self, clock: Callable[[], float], *, a_second: float, at_once: float) -> None:
        self._clock = clock
        self._a_second = a_second
        self._at_once = at_once
        self._left = at_once
        self._at_s = clock()

    def take(self) -> bool:
        """Whether one more request may be sent now."""
        now_s = self._clock()
        self._left = min(self._at_once, self._left + (now_s - self._at_s) * self._a_second)
        self._at_s = now_s
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


class _Recent(Generic[ValueT]):
    """Cached answers, each for `keep_s`; the oldest are evicted first."""

    def __init__(self, clock: Callable[[], float], keep_s: float = CACHE_S) -> None:
        self._clock = clock
        self._keep_s = keep_s
        self._kept: OrderedDict[object, tuple[float, ValueT]] = OrderedDict()

    def get(self, key: object) -> ValueT | None:
        kept = self._kept.get(key)
        return kept[1] if kept is not None and self._clock() < kept[0] else None

    def put(self, key: object, value: ValueT) -> ValueT:
        self._kept.pop(key, None)
        self._kept[key] = (self._clock() + self._keep_s, value)
        if len(self._kept) > MAX_CACHED:
            self._kept.popitem(last=False)
        return value


class _Share:
    """Limits on the rate and number of concurrent reviews for one kind of client."""

    def __init__(self, clock: Callable[[], float], *, a_second: float, at_once: float, turns: int) -> None:
        self.bucket = _Bucket(clock, a_second=a_second, at_once=at_once)
        self.turns = anyio.Semaphore(turns)


class _Strangers:
    """The shares of unknown clients: one for each address, and one for all together."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._all = self._share(ADDRESSES_WORTH)
        self._by_address: OrderedDict[str, _Share] = OrderedDict()

    def shares(self, address: str) -> tuple[_Share, _Share]:
        """Returns the two shares that a client at this address uses."""
        network = _network(address)
        own = self._by_address.setdefault(network, self._share(1))
        self._by_address.move_to_end(network)
        if len(self._by_address) > MAX_ADDRESSES:
            self._by_address.popitem(last=False)
        return own, self._all

    def _share(self, times: int) -> _Share:
        return _Share(
            self._clock,
            a_second=STRANGERS_A_SECOND * times,
            at_once=STRANGERS_AT_ONCE * times,
            turns=MAX_ASKED_AT_ONCE * times,
        )


def _network(address: str) -> str:
    """Returns the part of an address that one client controls: all of IPv4, the first 64 bits of IPv6."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return found.packed[:8].hex()


class Access:
    """Lets a request through, or raises Refused. `always_allow`: paths; a trailing * marks a prefix."""

    def __init__(
        self,
        client: Poster,
        *,
        always_allow: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._exact = {path for path in always_allow if not path.endswith("*")}
        self._prefixes = tuple(path[:-1] for path in always_allow if path.endswith("*"))
        self._users: _Recent[User] = _Recent(clock)
        self._allowed: _Recent[bool] = _Recent(clock)
        self._refused: _Recent[bool] = _Recent(clock)
        self._known: _Recent[bool] = _Recent(clock, REMEMBERED_S)
        self._share_of_known = _Share(
            clock, a_second=KNOWN_A_SECOND, at_once=KNOWN_AT_ONCE, turns=MAX_ASKED_AT_ONCE
        )
        self._strangers = _Strangers(clock)
        self._logged = ""

    def is_open(self, path: str) -> bool:
        """Whether this path needs no authorization."""
        return path in self._exact or path.startswith(self._prefixes)

    async def check(self, path: str, authorization: str, *, verb: str = "get", address: str = "") -> str:
        """Returns the user's name; "" for an open path. `authorization`: the header; address: the client's.

        Raises: Refused. Open paths are open for reading only: changes are always authorized.
        """
        if verb == "get" and self.is_open(path):
            return ""
        try:
            user = await self._who(authorization, address)
            if MASTERS in user.groups or await self._may(user, path, verb, address):
                return user.username
        except (ApiError, msgspec.MsgspecError) as error:
            if not is_logged(error):
                self._complain(str(error))
            raise Refused(503, _CANNOT_ASK) from None
        raise Refused(403, f'User "{one_line(user.username[:_MAX_SHOWN])}" cannot {verb} path "{path}"')

    async def may(self, path: str, authorization: str, *, address: str = "") -> bool:
        """Whether the user may read this path too; no where that cannot be asked."""
        try:
            await self.check(path, authorization, address=address)
        except Refused:
            return False
        return True

    async def _who(self, authorization: str, address: str) -> User:
        scheme, _, token = authorization.strip().partition(" ")
        token = token.strip()
        if not authorization:
            return ANONYMOUS
        # RFC 6750: a token is ASCII. Bytes that are not text arrive as lone surrogates, which are not ASCII.
        if scheme.lower() != "bearer" or not token or not token.isascii():
            raise Refused(401, "Unauthorized")
        key = _key(TOKEN_REVIEWS, token.encode())  # do not keep users' secrets
        if self._refused.get(key):
            raise Refused(401, "Unauthorized")
        user = self._users.get(key)
        if user is None:
            body = _review("authentication.k8s.io/v1", "TokenReview", {"token": token})
            status = _decode_token_review(await self._ask(TOKEN_REVIEWS, body, key, address)).status
            if not status.authenticated or not status.user.username:
                self._refused.put(key, value=True)
                raise Refused(401, "Unauthorized")
            self._known.put(key, value=True)
            user = self._users.put(key, status.user)
        return user

    async def _may(self, user: User, path: str, verb: str, address: str) -> bool:
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "nonResourceAttributes": {"path": path, "verb": verb},
        }
        body = _review("authorization.k8s.io/v1", "SubjectAccessReview", spec)
        # The whole request decides the answer, so it is the key.
        key = _key(ACCESS_REVIEWS, body)
        if self._refused.get(key):
            return False
        if self._allowed.get(key):
            return True
        status = _decode_access_review(await self._ask(ACCESS_REVIEWS, body, key, address)).status
        if status.allowed and not status.denied:
            self._known.put(key, value=True)
            return self._allowed.put(key, value=True)
        self._refused.put(key, value=True)
        return False

    async def _ask(self, path: str, body: bytes, key: bytes, address: str) -> bytes:
        """Raises: ApiError; Refused when a rate limit for unknown clients is reached, or no turn is free.

        Unknown clients have their own turns: if the API server needs long for each token, because it asks
        another service, known clients would wait behind them.
        """
        shares = (self._share_of_known,) if self._known.get(key) else self._strangers.shares(address)
        if not all(share.bucket.take() for share in shares):
            raise Refused(429, "too many requests from unknown users; try again in a few seconds")
        async with AsyncExitStack() as turns:
            try:
                # A waiting request would never end by itself: aiohttp does not notify a handler that its
                # client left.
                with anyio.fail_after(REVIEW_TIMEOUT_S):
                    for share in shares:
                        await turns.enter_async_context(share.turns)
            except TimeoutError:
                raise Refused(503, _CANNOT_ASK) from None
            answer = await self._client.post(path, body, timeout_s=REVIEW_TIMEOUT_S)
        self._logged = ""
        return answer

    def _complain(self, why: str) -> None:
        if why != self._logged:
            self._logged = why
            _log.warning("cannot ask the API server who may read the pages", err=why)


def _key(kind: str, text: bytes) -> bytes:
    """Makes a cache key that includes `kind`: a client may send the text of a user's review as a token."""
    return hashlib.sha256(kind.encode() + b"\0" + text).digest()


def _review(api_version: str, kind: str, spec: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"apiVersion": api_version, "kind": kind, "spec": spec})
