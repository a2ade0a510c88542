"""Steps from the lease to the first decision: stop earlier leaders' writes, learn which ones succeeded.

Lives here: the order of the steps. Not here: each step (kube.election.fence_keeper, kube.effects.bumps,
kube.watch.catch_up), who leads (kube.election.lease). Called by the assembly, once per process.

1. With a fence: begin a new epoch. Only the objects in the fence's list can have writes in flight.
2. Bump every listed pod that is not bound, and every listed ResourceClaim: none of those writes can succeed
any more.
3. Then list the bound pods, and the claims if they are followed, and wait until the watches have shown them
all. A list from before the bumps would miss a write that succeeded in between.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from random import Random
from typing import Any

import anyio
import msgspec
import structlog

from gangsched.errors import ApiError
from gangsched.kube.client import ApiClient, offers
from gangsched.kube.effects.bumps import Bump, Bumps, target_of
from gangsched.kube.election.fence_keeper import FenceKeeper
from gangsched.kube.election.fence_list import CLAIMS, PODS, Listed, ListedObject
from gangsched.kube.evidence import is_refusal
from gangsched.kube.reach import is_logged
from gangsched.kube.transport.backoff import Backoff
from gangsched.kube.watch.catch_up import BOUND, UNBOUND, CatchUp, ask_pages
from gangsched.kube.watch.watch_state import WatchState
from gangsched.model.effects import BumpClaim, BumpPod

_log = structlog.get_logger(__name__)

# How often a new leader checks whether its watch has reached its predecessor's last write.
_CATCH_UP_STEP_S = 0.02
_CATCH_UP_SAY_S = 5.0
_CLAIMS_UNREAD = "the resource claims cannot be listed; not leading yet"


class _Metadata(msgspec.Struct, gc=False):
    name: str
    uid: str
    namespace: str = ""


class _Item(msgspec.Struct, gc=False):
    metadata: _Metadata


_decode_item = msgspec.json.Decoder(_Item).decode
Claims = Callable[[], WatchState | None]


async def take_over(
    client: ApiClient, pods: WatchState, claims: Claims, fence: FenceKeeper | None, bumps: Bumps, rng: Random
) -> None:
    """Returns when decisions may be based on the state of `pods` and of `claims`. All parts must be running.

    claims: returns their state now; None: this process does not follow them.
    """
    if fence is not None:
        await fence.take()
        inherited = fence.fence.inherited
        if inherited is None:
            _log.warning("the fence's list cannot be read; every unbound pod counts as listed in it")
            inherited = await _anybody(client, pods, claims(), rng)
        left = [one for one in inherited.values() if not _is_bound(one, pods)]
        await bumps.bump_all(_bumps(left), may_skip=partial(_may_skip, claims))
        fence.bumped()
        _log.info(
            "this replica holds the fence",
            epoch=fence.fence.epoch,
            n_listed=len(inherited),
            n_bumped=len(left),
        )
    async with anyio.create_task_group() as group:
        group.start_soon(_catch_up_pods, client, pods, rng)
        followed = claims()
        if followed is not None:
            group.start_soon(_catch_up_claims, client, followed, rng)


def _bumps(objects: Iterable[ListedObject]) -> Iterable[Bump]:
    for one in objects:
        make = BumpClaim if one.kind == CLAIMS else BumpPod
        yield make(one.uid, one.namespace, one.name, "takeover")


def _is_bound(one: ListedObject, pods: WatchState) -> bool:
    """Whether the watch shows the pod as bound; a late watch does not matter, as a bound pod stays bound."""
    known: Any = pods.known.get(f"{one.namespace}/{one.name}") if one.kind == PODS else None
    return known is not None and known.metadata.uid == one.uid and bool(known.spec.node_name)


def _may_skip(claims: Claims, bump: Bump, error: ApiError) -> bool:
    """Whether a listed claim is left as it is: this process may not write claims, and does not read them.

    So it allocates none, and a late patch of an earlier leader takes nothing from it.
    """
    if not isinstance(bump, BumpClaim) or claims() is not None:
        return False
    if error.code != 403 or not is_refusal(error, target_of(bump)):
        return False
    _log.warning(
        "a resource claim of an earlier leader is left as it is: claims are not followed",
        claim=f"{bump.namespace}/{bump.name}",
        err=str(error),
    )
    return True


async def _anybody(client: ApiClient, pods: WatchState, claims: WatchState | None, rng: Random) -> Listed:
    """Every pod without a node, and every claim if they are followed: a superset of any list."""
    found: dict[str, ListedObject] = {}

    async def read(state: WatchState, kind: str, selector: str) -> None:
        async for page in ask_pages(client, state.kind, selector):
            for raw in page.items or ():
                meta = _decode_item(raw).metadata
                found[meta.uid] = ListedObject(meta.uid, meta.namespace, meta.name, "", kind)

    problem = "the unbound pods cannot be listed; not leading yet"
    await _until_read(partial(read, pods, PODS, UNBOUND), problem, rng)
    if claims is not None:
        await _until_read(partial(read, claims, CLAIMS, ""), _CLAIMS_UNREAD, rng, _absence(client, claims))
    return found


async def _catch_up_pods(client: ApiClient, pods: WatchState, rng: Random) -> None:
    catch_up = CatchUp(pods, BOUND)
    problem = "the bound pods cannot be listed; not leading yet"
    await _until_read(partial(catch_up.ask, client), problem, rng)
    await _until_shown(catch_up, "the watch of pods is behind; not leading yet")


async def _catch_up_claims(client: ApiClient, claims: WatchState, rng: Random) -> None:
    catch_up = CatchUp(claims)
    if await _until_read(partial(catch_up.ask, client), _CLAIMS_UNREAD, rng, _absence(client, claims)):
        await _until_shown(catch_up, "the watch of resource claims is behind; not leading yet")


def _absence(client: ApiClient, claims: WatchState) -> Callable[[ApiError], Awaitable[bool]]:
    """Returns whether it follows from an answer that no claims can be listed: the server does not serve them,
    or does not let us. Then none are known, and a first list that succeeds later is newer than all of this.
    """

    async def is_absent(error: ApiError) -> bool:
        if claims.synced or error.code not in (403, 404):
            return False
        if error.code == 403:
            return error.subject is not None
        try:
            kind, version = claims.kind, claims.api_version.rpartition("/")[2]
            return not await offers(client, kind.group, version, kind.resource)
        except ApiError:
            return False

    return is_absent


async def _until_read(
    read: Callable[[], Awaitable[None]],
    problem: str,
    rng: Random,
    is_absent: Callable[[ApiError], Awaitable[bool]] | None = None,
) -> bool:
    """Tries until it succeeds, and returns true; false once `is_absent`."""
    backoff = Backoff(rng, first_s=0.1, max_s=2.0)
    while True:
        try:
            await read()
            return True
        except (ApiError, msgspec.MsgspecError) as error:
            if isinstance(error, ApiError) and is_absent is not None and await is_absent(error):
                return False
            if not is_logged(error):
                _log.warning(problem, err=str(error))
            await anyio.sleep(backoff.next_s(getattr(error, "retry_after_s", None)))


async def _until_shown(catch_up: CatchUp, problem: str) -> None:
    say_at_s = time.monotonic() + _CATCH_UP_SAY_S
    # Happens at most once per process; a signal would add cost to every event.
    while n_missing := catch_up.n_missing():
        if time.monotonic() >= say_at_s:
            _log.warning(problem, n_missing=n_missing)
            say_at_s = time.monotonic() + _CATCH_UP_SAY_S
        await anyio.sleep(_CATCH_UP_STEP_S)
