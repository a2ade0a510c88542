"""What a new leader asks before it decides: bumps of what is listed, then lists that its watches reach."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any, cast

import anyio
from structlog.testing import capture_logs

from gangsched.kube import take_over
from gangsched.kube.client import ApiClient
from gangsched.kube.effects.bumps import Bumps
from gangsched.kube.election.fence_keeper import FenceKeeper
from gangsched.kube.election.fence_list import CLAIMS as LISTED_CLAIMS
from gangsched.kube.election.fence_list import Listed, ListedObject
from gangsched.kube.watch.decode import followed, pods
from gangsched.kube.watch.watch_state import WatchState
from gangsched.model.resource_claims.objects import CLAIMS
from tests.kube.scripted import Request, ScriptedServer, credentials, status
from tests.kube.scripted import page as page_of
from tests.kube.test_claim_lane import GROUP, PATH, about, claim
from tests.kube.test_watch import resources, served
from tests.kube.test_watch_state import line, page, pod
from tests.support.tasks import until

V1 = f"{GROUP}/v1"
LIST_PODS, LIST_CLAIMS = "GET /api/v1/pods?", f"GET /apis/{V1}/resourceclaims?"
POD = ListedObject("uid-a", "ns", "a", "ns/g")
CLAIM = ListedObject("u0", "ns", "c0", "ns/g", LISTED_CLAIMS)


class Taken:
    """A fence that was just taken, with this list."""

    def __init__(self, listed: Listed | None) -> None:
        self.fence = self
        self.inherited = listed
        self.epoch = 2
        self.is_bumped = False

    async def take(self) -> None:
        pass

    def bumped(self) -> None:
        self.is_bumped = True


class Cluster:
    """One unbound pod and one claim, which a bump changes; `lists` of claims may be answered otherwise."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.lists: Any = None
        self.bump: Any = None
        self.claim_version = 9

    def __call__(self, request: Request) -> bytes:
        asked = request.line
        self.asked.append(asked.split("?")[0] + ("?" if "?" in asked else ""))
        if asked.startswith(f"PATCH {PATH}/c0"):
            return self.bump if self.bump is not None else page_of(200, claim(version="12"))
        if asked.startswith("PATCH /api/v1/namespaces/ns/pods/a/status"):
            return page_of(200, json.dumps(pod("a", 11)).encode())
        if asked.startswith(LIST_CLAIMS):
            if self.lists is not None:
                return cast(bytes, self.lists)
            known = json.loads(claim(version=str(self.claim_version)))
            return page_of(200, page(known, rv=20, kind="ResourceClaim", api_version=V1))
        assert asked.startswith(LIST_PODS), asked
        found = [pod("a", 11)] if "spec.nodeName%3D" in asked and "%21" not in asked else []
        return page_of(200, page(*found, rv=20))


class Leader:
    def __init__(self, client: ApiClient, listed: Listed | None, *, follows: bool) -> None:
        self.pods = WatchState(pods())
        self.pods.page(page(rv=20))
        self.claims = WatchState(followed(CLAIMS)) if follows else None
        self.fence = Taken(listed)
        self.client = client
        self.bumps = Bumps(client, emit_nowait=lambda event: None, rng=Random(1))
        self.leads = False

    async def run(self) -> None:
        await take_over.take_over(
            self.client, self.pods, lambda: self.claims, cast(FenceKeeper, self.fence), self.bumps, Random(1)
        )
        self.leads = True

    def shows(self, version: int, *, rv: int = 10) -> None:
        """The watch of claims has listed the claim in this version."""
        assert self.claims is not None
        known = json.loads(claim(version=str(version)))
        self.claims.page(page(known, rv=rv, kind="ResourceClaim", api_version=V1))


@asynccontextmanager
async def taking_over(
    cluster: Callable[[Request], bytes],
    listed: Listed | None,
    *,
    follows: bool = True,
    known: int | None = 7,
) -> AsyncIterator[Leader]:
    """`known`: the version of the claim that the watch has shown; None: no list yet."""
    async with (
        ScriptedServer(default=cluster) as server,
        ApiClient(credentials(server.port)) as client,
        anyio.create_task_group() as group,
    ):
        leader = Leader(client, listed, follows=follows)
        if follows and known is not None:
            leader.shows(known)
        group.start_soon(leader.run)
        yield leader
        group.cancel_scope.cancel()


async def test_listed_claims_are_bumped_and_then_the_watch_of_claims_must_catch_up() -> None:
    cluster = Cluster()
    cluster.claim_version = 12
    async with taking_over(cluster, {"uid-a": POD, "u0": CLAIM}) as leader:
        await until(lambda: len(cluster.asked) == 4)
        assert set(cluster.asked[:2]) == {f"PATCH {PATH}/c0", "PATCH /api/v1/namespaces/ns/pods/a/status"}
        assert set(cluster.asked[2:]) == {LIST_PODS, LIST_CLAIMS}
        assert leader.fence.is_bumped
        await anyio.sleep(0.1)
        assert not leader.leads, "what the last leader wrote may be in version 12"
        assert leader.claims is not None
        leader.claims.lines(line("MODIFIED", json.loads(claim(version="12"))))
        await until(lambda: leader.leads)


async def test_claims_are_caught_up_with_though_none_is_listed() -> None:
    """What is settled left the list, and the watch may not have shown it yet."""
    cluster = Cluster()
    async with taking_over(cluster, {}) as leader:
        await until(lambda: len(cluster.asked) == 2)
        await anyio.sleep(0.1)
        assert not leader.leads
        leader.shows(9)
        await until(lambda: leader.leads)


async def test_without_claims_no_request_is_made_for_them() -> None:
    cluster = Cluster()
    async with taking_over(cluster, {"uid-a": POD}, follows=False) as leader:
        await until(lambda: leader.leads)
    assert cluster.asked == ["PATCH /api/v1/namespaces/ns/pods/a/status", LIST_PODS]


async def test_listed_claims_are_bumped_though_they_are_not_followed_yet() -> None:
    """They may be followed a moment later, from the first DeviceClass on."""
    cluster = Cluster()
    async with taking_over(cluster, {"u0": CLAIM}, follows=False) as leader:
        await until(lambda: leader.leads)
    assert cluster.asked == [f"PATCH {PATH}/c0", LIST_PODS]


async def test_who_may_not_patch_claims_and_follows_none_leads_all_the_same() -> None:
    cluster = Cluster()
    cluster.bump = about(403, message="cannot patch")
    with capture_logs() as logs:
        async with taking_over(cluster, {"u0": CLAIM}, follows=False) as leader:
            await until(lambda: leader.leads)
    assert [log["claim"] for log in logs if "left as it is" in log["event"]] == ["ns/c0"]


async def test_who_follows_claims_does_not_lead_before_it_may_patch_them() -> None:
    cluster = Cluster()
    cluster.bump = about(403)
    async with taking_over(cluster, {"u0": CLAIM}, known=9) as leader:
        await until(lambda: len(cluster.asked) >= 3)
        assert set(cluster.asked) == {f"PATCH {PATH}/c0"}
        cluster.bump = None
        await until(lambda: leader.leads)


async def test_with_an_unreadable_list_every_unbound_pod_and_every_claim_is_bumped() -> None:
    cluster = Cluster()
    async with taking_over(cluster, None, known=9) as leader:
        await until(lambda: leader.leads)
    bumps = {one for one in cluster.asked if one.startswith("PATCH")}
    assert bumps == {f"PATCH {PATH}/c0", "PATCH /api/v1/namespaces/ns/pods/a/status"}


async def test_claims_that_the_server_does_not_serve_are_not_waited_for() -> None:
    cluster = Cluster()

    def older(request: Request) -> bytes:
        path = request.line.split()[1]
        if path == "/apis":
            return page_of(200, served("resource.k8s.io/v1beta1"))
        return status(404) if GROUP in path else cluster(request)

    async with taking_over(older, {}, known=None) as leader:
        await until(lambda: leader.leads)


async def test_a_404_of_a_server_that_serves_claims_proves_nothing() -> None:
    cluster = Cluster()
    cluster.lists = page_of(404)

    def behind_a_proxy(request: Request) -> bytes:
        path = request.line.split()[1]
        if path == f"/apis/{V1}":
            return page_of(200, resources(V1).replace(b"podgroups", b"resourceclaims"))
        return cluster(request)

    async with taking_over(behind_a_proxy, {}, known=None) as leader:
        await until(lambda: cluster.asked.count(LIST_CLAIMS) > 1)
        assert not leader.leads
        cluster.lists = None
        leader.shows(9)
        await until(lambda: leader.leads)


async def test_claims_that_may_not_be_listed_are_waited_for_only_if_any_are_known() -> None:
    forbidden = status(403, about="", kind="resourceclaims", group=GROUP)
    cluster = Cluster()
    cluster.lists = forbidden
    async with taking_over(cluster, {}, known=None) as leader:
        await until(lambda: leader.leads)
    cluster = Cluster()
    cluster.lists = forbidden
    async with taking_over(cluster, {}, known=9) as leader:
        await until(lambda: cluster.asked.count(LIST_CLAIMS) > 1)
        assert not leader.leads
