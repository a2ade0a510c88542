"""Steps from the lease to the first decision: stop earlier leaders' binds, learn which ones succeeded.

Lives here: the order of the steps. Not here: each step (kube.election.fence_keeper, kube.effects.bumps,
kube.watch.catch_up), who leads (kube.election.lease). Called by the assembly, once per process.

1. With a fence: begin a new epoch. Only the pods in the fence's list can have binds in flight.
2. Bump every listed pod that is not bound: none of those binds can succeed any more.
3. Then list the bound pods, and wait until the watch has shown them all. A list from before the bumps would
miss a bind that succeeded in between.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from random import Random
from typing import Any

import anyio
import msgspec
import structlog

from gangsched.errors import ApiError
from gangsched.kube.client import ApiClient
from gangsched.kube.effects.bumps import Bumps
from gangsched.kube.election.fence_keeper import FenceKeeper
from gangsched.kube.election.fence_list import Listed, ListedPod
from gangsched.kube.reach import is_logged
from gangsched.kube.transport.backoff import Backoff
from gangsched.kube.watch.catch_up import CatchUp, ask_pages
from gangsched.kube.watch.watch_state import WatchState
from gangsched.model.effects import BumpPod

_log = structlog.get_logger(__name__)

# How often a new leader checks whether its watch has reached its predecessor's last bind.
_CATCH_UP_STEP_S = 0.02
_CATCH_UP_SAY_S = 5.0
_UNBOUND = "spec.nodeName="


class _Metadata(msgspec.Struct, gc=False):
    name: str
    uid: str
    namespace: str = ""


class _Item(msgspec.Struct, gc=False):
    metadata: _Metadata


_decode_item = msgspec.json.Decoder(_Item).decode


async def take_over(
    client: ApiClient, pods: WatchState, fence: FenceKeeper | None, bumps: Bumps, rng: Random
) -> None:
    """Returns when decisions may be based on the state of `pods`. All its parts must be running."""
    if fence is not None:
        await fence.take()
        inherited = fence.fence.inherited
        if inherited is None:
            _log.warning("the fence's list cannot be read; every unbound pod counts as listed in it")
            inherited = await _anybody(client, rng)
        left = [pod for pod in inherited.values() if not _is_bound(pod, pods)]
        await bumps.bump_all(_bumps(left))
        fence.bumped()
        _log.info(
            "this replica holds the fence",
            epoch=fence.fence.epoch,
            n_listed=len(inherited),
            n_bumped=len(left),
        )
    await _catch_up(client, pods, rng)


def _bumps(pods: Iterable[ListedPod]) -> Iterable[BumpPod]:
    return (BumpPod(pod.uid, pod.namespace, pod.name, "takeover") for pod in pods)


def _is_bound(pod: ListedPod, pods: WatchState) -> bool:
    """Whether the watch shows the pod as bound; a late watch does not matter, as a bound pod stays bound."""
    known: Any = pods.known.get(f"{pod.namespace}/{pod.name}")
    return known is not None and known.metadata.uid == pod.uid and bool(known.spec.node_name)


async def _anybody(client: ApiClient, rng: Random) -> Listed:
    """Every pod without a node: a superset of any list."""
    backoff = Backoff(rng, first_s=0.1, max_s=2.0)
    while True:
        found: dict[str, ListedPod] = {}
        try:
            async for page in ask_pages(client, _UNBOUND):
                for raw in page.items or ():
                    meta = _decode_item(raw).metadata
                    found[meta.uid] = ListedPod(meta.uid, meta.namespace, meta.name, "")
            return found
        except (ApiError, msgspec.MsgspecError) as error:
            if not is_logged(error):
                _log.warning("the unbound pods cannot be listed; not leading yet", err=str(error))
            await anyio.sleep(backoff.next_s(getattr(error, "retry_after_s", None)))


async def _catch_up(client: ApiClient, pods: WatchState, rng: Random) -> None:
    catch_up = CatchUp(pods)
    backoff = Backoff(rng, first_s=0.1, max_s=2.0)
    while True:
        try:
            await catch_up.ask(client)
            break
        except ApiError as error:
            if not is_logged(error):
                _log.warning("the bound pods cannot be listed; not leading yet", err=str(error))
            await anyio.sleep(backoff.next_s(error.retry_after_s))
    say_at_s = time.monotonic() + _CATCH_UP_SAY_S
    # Happens at most once per process; a signal would add cost to every event.
    while n_missing := catch_up.n_missing():
        if time.monotonic() >= say_at_s:
            _log.warning("the watch of pods is behind; not leading yet", n_missing=n_missing)
            say_at_s = time.monotonic() + _CATCH_UP_SAY_S
        await anyio.sleep(_CATCH_UP_STEP_S)
