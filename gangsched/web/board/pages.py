"""The dashboard's paths: the page, its login, its events, a gang, a node, and what-if.

Lives here: aiohttp, headers, the cookie. Not here: who may read (access.py requires `get` on /dashboard, for
all of its data). The page and its script are open: they contain no cluster data, and show the login.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from functools import partial
from importlib.resources import files
from urllib.parse import urlsplit

import anyio
import msgspec
from aiohttp import web

from gangsched.core.explaining.claim_views import ClaimView, PoolView, view_claims, view_pool
from gangsched.core.explaining.reports import MemberView, NodeView, view_members, view_node
from gangsched.core.scheduler import Scheduler
from gangsched.errors import ConfigError
from gangsched.model.resource_claims.objects import PoolId
from gangsched.model.text.printable import clean
from gangsched.web.access import Access, Refused
from gangsched.web.board.feed import Feed
from gangsched.web.board.sessions import COOKIE, LIFETIME_S, Sessions
from gangsched.web.board.whatif import MAX_BYTES, NotNow, WhatIf
from gangsched.web.pages.explanations import Explanations
from gangsched.web.pages.stories import Stories
from gangsched.web.turns import Turns

ROOT = "/dashboard"
_WHATIF = f"{ROOT}/whatif"
_JSON = "application/json"
_BODY_S = 10.0
_ASSETS = {
    "style.css": "text/css",
    "main.js": "text/javascript",
    "map.js": "text/javascript",
    "panels.js": "text/javascript",
    "text.js": "text/javascript",
    "whatif.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_WRITE_S = 10.0
# Within this time a revoked token ends its streams.
_CHECK_S = 30.0
_MAX_MEMBERS = 1024
_MAX_CLAIMS = 512
_MAX_POOLS = 64


class Gang(msgspec.Struct, frozen=True):
    """Everything about the groups of one name; members and resource claims: the first ones of all."""

    explanations: msgspec.Raw
    stories: msgspec.Raw
    n_members: int
    members: list[MemberView]
    n_claims: int
    claims: list[ClaimView]


class NodePage(NodeView, frozen=True):
    """A node, with its pools of devices for resource claims, and the names of those it shares with others."""

    pools: tuple[PoolView, ...] = ()
    reaches: tuple[str, ...] = ()


class Board:
    """Serves the dashboard's paths."""

    def __init__(
        self,
        scheduler: Scheduler,
        feed: Feed,
        *,
        stories: Stories,
        explanations: Explanations,
        whatif: WhatIf,
        turns: Turns | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._turns = turns or Turns()
        self.feed = feed
        self._stories = stories
        self._explanations = explanations
        self.whatif = whatif
        self._sessions = Sessions()
        here = files("gangsched.web.board") / "static"
        self._page = (here / "index.html").read_bytes()
        self.assets = {name: (here / name).read_bytes() for name in _ASSETS}
        self._access: Access | None = None

    def add_to(self, app: web.Application, access: Access) -> None:
        """Adds the paths; `access` lets requests through."""
        self._access = access
        add = app.router.add_get
        add(ROOT, self._index)
        add(f"{ROOT}/events", self._events)
        add(f"{ROOT}/gang/{{namespace}}/{{name}}", self._gang)
        add(f"{ROOT}/node/{{name}}", self._node)
        add(f"{ROOT}/pool/{{driver}}/{{name}}", self._pool)
        for name in self.assets:
            add(f"{ROOT}/{name}", self._asset)
        add(f"{ROOT}/session", self._session)
        app.router.add_post(f"{ROOT}/session", self._begin)
        app.router.add_post(_WHATIF, self._answer)
        app.router.add_delete(f"{ROOT}/session", self._end)

    def guards(self, path: str) -> bool:
        """Whether this path checks its requests itself."""
        return path == ROOT or path.startswith(ROOT + "/")

    async def guarded(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Serves a request. Open: the page, its assets, the logout. The rest needs the right to read.

        Raises: Refused.
        """
        path = request.path
        is_asked = path == f"{ROOT}/session" and request.method in ("GET", "HEAD", "DELETE")
        is_open = path == ROOT or path.removeprefix(f"{ROOT}/") in self.assets or is_asked
        if request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none") and (
            not is_open or request.method == "DELETE"
        ):
            raise Refused(403, "another site asks")
        if path == _WHATIF and not _is_own(request):
            raise Refused(403, "another site asks")
        if not is_open:
            await self._check(request)
        response = await handler(request)
        if not response.prepared:
            _secure(response)
        return response

    async def _check(self, request: web.Request) -> None:
        """Raises: Refused."""
        if self._access is None:
            raise Refused(503, "not ready")
        authorization = request.headers.get("Authorization", "")
        session = request.cookies.get(COOKIE, "")
        # A login must present the token; an earlier cookie does not count.
        is_login = request.method == "POST" and request.path != _WHATIF
        if not authorization and session and not is_login:
            token = self._sessions.token(session)
            if not token:
                raise Refused(401, "the session has ended")
            authorization = f"Bearer {token}"
        if self._access.is_open(ROOT) and not _is_local(request.host):
            # A site whose name resolves to the loopback address must not read the pages open there (DNS
            # rebinding).
            raise Refused(403, "an open dashboard is read by the address of its machine, not by a name")
        await self._access.check(ROOT, authorization, address=request.remote or "")

    async def _index(self, _: web.Request) -> web.Response:
        return web.Response(body=self._page, content_type="text/html", charset="utf-8")

    async def _asset(self, request: web.Request) -> web.Response:
        name = request.path.rpartition("/")[2]
        return web.Response(body=self.assets[name], content_type=_ASSETS[name], charset="utf-8")

    async def _session(self, request: web.Request) -> web.Response:
        """Answers whether this browser may read. The page asks first: a rejected stream shows no reason."""
        why = ""
        try:
            await self._check(request)
        except Refused as refused:
            why = refused.message
        session = COOKIE in request.cookies
        return web.json_response({"allowed": not why, "why": why, "session": session})

    async def _begin(self, request: web.Request) -> web.Response:
        token = request.headers.get("Authorization", "").partition(" ")[2].strip()
        response = web.Response(status=204)
        if token:
            response.set_cookie(
                COOKIE,
                self._sessions.begin(token),
                path=ROOT,
                max_age=int(LIFETIME_S),
                httponly=True,
                secure=request.secure,
                samesite="Strict",
            )
        return response

    async def _end(self, request: web.Request) -> web.Response:
        self._sessions.end(request.cookies.get(COOKIE, ""))
        response = web.Response(status=204)
        response.del_cookie(COOKIE, path=ROOT)
        return response

    async def _events(self, request: web.Request) -> web.StreamResponse:
        viewer = await self._turns.made(self.feed.join)
        if viewer is None:
            return web.Response(
                status=503, text="too many viewers; close one\n", headers={"Retry-After": "30"}
            )
        response = web.StreamResponse()
        response.content_type = "text/event-stream"
        _secure(response)
        try:
            await response.prepare(request)
            checked_s = anyio.current_time()
            while message := await viewer.take():
                with anyio.fail_after(_WRITE_S):
                    await response.write(message)
                if anyio.current_time() - checked_s > _CHECK_S:
                    await self._check(request)
                    checked_s = anyio.current_time()
        except (Refused, TimeoutError, ConnectionError):
            if request.transport is not None:
                request.transport.abort()
        finally:
            self.feed.leave(viewer)
        return response

    async def _gang(self, request: web.Request) -> web.Response:
        name = f"{request.match_info['namespace']}/{request.match_info['name']}"
        body = await self._turns.made(partial(self._all_about, name))
        if body is None:
            raise web.HTTPNotFound
        return web.Response(body=body, content_type="application/json")

    def _all_about(self, name: str) -> bytes | None:
        """Returns a Gang as JSON; None: no group has that name."""
        groups = [group for key, group in self._scheduler.shared.groups.items() if str(key) == name]
        explanations, stories = self._explanations.as_json(name), self._stories.as_json(name)
        if not groups or explanations is None or stories is None:
            return None
        members = [member for group in groups for member in view_members(group)]
        claims, n_claims = view_claims(self._scheduler, groups, _MAX_CLAIMS)
        about = msgspec.Raw(explanations), msgspec.Raw(stories)
        gang = Gang(*about, len(members), members[:_MAX_MEMBERS], n_claims, claims)
        return msgspec.json.encode(gang)

    async def _answer(self, request: web.Request) -> web.Response:
        """Answers what-if. Another site's form cannot send this type, and its script may not."""
        if request.content_type != _JSON:
            return _refused(415, f"send {_JSON}")
        try:
            with anyio.fail_after(_BODY_S):
                body = await _body(request, MAX_BYTES)
        except TimeoutError:
            return _refused(408, "the question has not come in time")
        if body is None:
            return _refused(413, f"the question has more than {MAX_BYTES // 1024} KiB")
        try:
            found = await self.whatif.answer(body)
        except ConfigError as error:
            return _refused(400, clean(str(error)))
        except NotNow as error:
            return _refused(error.code, clean(error.message))
        return web.Response(body=found.body, content_type=_JSON)

    async def _node(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        return await self._shown(lambda: self._view_node(name))

    async def _pool(self, request: web.Request) -> web.Response:
        driver, name = request.match_info["driver"], request.match_info["name"]
        return await self._shown(lambda: self._view_pool(PoolId(driver, name)))

    async def _shown(self, view: Callable[[], msgspec.Struct | None]) -> web.Response:
        found = await self._turns.made(view)
        if found is None:
            raise web.HTTPNotFound
        return web.Response(body=msgspec.json.encode(found), content_type="application/json")

    def _view_node(self, name: str) -> NodePage | None:
        view, cache = view_node(self._scheduler, name), self._scheduler.shared.cache
        if view is None:
            return None
        pools, node = cache.claims.pools.own_at(name), cache.nodes.nodes[cache.nodes.row_of[name]]
        own = {pool.id for pool in pools}
        there = cache.claims.offer(node).pools if node is not None else ()
        return NodePage(
            **{field: getattr(view, field) for field in NodeView.__struct_fields__},
            pools=tuple(view_pool(self._scheduler, pool) for pool in pools[:_MAX_POOLS]),
            reaches=tuple(clean(str(pool.id)) for pool in there if pool.id not in own)[:_MAX_POOLS],
        )

    def _view_pool(self, pool_id: PoolId) -> PoolView | None:
        shared = self._scheduler.shared.cache.claims.pools.shared()
        return next((view_pool(self._scheduler, pool) for pool in shared if pool.id == pool_id), None)


async def _body(request: web.Request, most: int) -> bytes | None:
    """Returns the body; None: it is longer than `most`."""
    if (request.content_length or 0) > most:
        return None
    parts, n = list[bytes](), 0
    async for part in request.content.iter_any():
        n += len(part)
        if n > most:
            return None
        parts.append(part)
    return b"".join(parts)


def _refused(code: int, why: str) -> web.Response:
    headers = {"Retry-After": "2"} if code in (429, 503) else {}
    return web.Response(status=code, text=why + "\n", headers=headers)


def _secure(response: web.StreamResponse) -> None:
    response.headers["Content-Security-Policy"] = _POLICY
    response.headers["Referrer-Policy"] = "no-referrer"
    response.headers["Cross-Origin-Resource-Policy"] = "same-origin"


def _is_own(request: web.Request) -> bool:
    """Whether a browser without Sec-Fetch-Site sends the request from one of our pages. A browser that sends
    it may be behind a proxy that changes the host.
    """
    origin = request.headers.get("Origin", "")
    if "Sec-Fetch-Site" in request.headers or not origin:
        return True
    try:
        return urlsplit(origin).netloc == request.host
    except ValueError:  # http://[
        return False


def _is_local(host: str) -> bool:
    """Whether the Host header names an address, or localhost."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name == "localhost"
    return True
