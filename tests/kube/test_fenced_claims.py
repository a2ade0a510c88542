"""Patches of claims in the dispatcher: fenced, withdrawn and settled as binds are, and read and bumped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import cast

import anyio
import pytest
from msgspec.structs import replace

from gangsched.config import LeaderElectionSettings
from gangsched.kube.client import ApiClient
from gangsched.kube.effects.dispatcher import Dispatcher
from gangsched.kube.effects.write_lanes import READS_SAID
from gangsched.kube.election.fence_keeper import FenceKeeper
from gangsched.kube.transport.backoff import Backoff
from gangsched.model.effects import BindPod, BumpClaim, CancelBinds, GetClaim
from gangsched.model.events import (
    BindCancelled,
    BindSucceeded,
    ClaimBumped,
    ClaimCancelled,
    ClaimPatched,
    ClaimRead,
    ClaimUnread,
    Event,
)
from tests.kube import test_claim_lane as lane
from tests.kube.scripted import SILENCE, Request, ScriptedServer, created, credentials, page, status
from tests.kube.test_claim_lane import PATH, about, claim, patch
from tests.kube.test_fence_keeper import OneLease
from tests.support.tasks import until

READ = GetClaim("u0", "ns", "c0", "c")


def obliging(request: Request) -> bytes:
    return created() if request.line.endswith("/binding") else lane.obliging(request)


class Running:
    """A dispatcher, with a fence if it has a Lease for it; what it has said."""

    def __init__(self, client: ApiClient, lease: OneLease | None) -> None:
        self.events: list[Event] = []
        self.keeper = None
        if lease is not None:
            self.keeper = FenceKeeper(
                cast(ApiClient, lease),
                LeaderElectionSettings(resource_name="gangsched", resource_namespace="kube-system"),
                identity="me",
                rng=Random(1),
                is_on_its_way=lambda uid: True,
                deposed=lambda why: None,
            )
        self.dispatcher = Dispatcher(
            client, emit_nowait=self.events.append, rng=Random(1), bind_timeout_s=0.5, fence=self.keeper
        )

    async def lead(self) -> None:
        assert self.keeper is not None
        await self.keeper.take()
        self.keeper.bumped()

    async def said(self, n: int = 1) -> list[Event]:
        await until(lambda: len(self.events) >= n)
        return self.events


@asynccontextmanager
async def running(server: ScriptedServer, lease: OneLease | None = None) -> AsyncIterator[Running]:
    async with ApiClient(credentials(server.port)) as client, anyio.create_task_group() as group:
        run = Running(client, lease)
        group.start_soon(run.dispatcher.run)
        yield run
        group.cancel_scope.cancel()


def bind(cause: str = "c") -> BindPod:
    return BindPod("pu", "ns", "p", "n", {}, "ns/g", 1, cause, resource_version="5")


async def test_a_patch_is_sent_when_its_claim_is_listed_and_the_next_without_a_write() -> None:
    lease = OneLease()
    async with ScriptedServer(default=obliging) as server, running(server, lease) as run:
        run.dispatcher.submit([patch()])
        await anyio.sleep(0.05)
        assert not server.requests
        await run.lead()
        await run.said()
        assert '"resourceclaims/u0":"ns/c0"' in lease.listed
        n_writes = lease.n_writes
        run.dispatcher.submit([replace(patch(), resource_version="8")])
        await run.said(2)
        # The script's answer has version 8 again, which is the one that this patch was for.
        versions = [
            step["value"]
            for one in server.requests
            for step in one.json
            if step["path"] == "/metadata/resourceVersion"
        ]
        assert versions == ["7", "8"]
        assert lease.n_writes == n_writes


@pytest.mark.parametrize("lease", [None, OneLease()])
async def test_unsent_patches_and_binds_of_a_cause_are_withdrawn_together(lease: OneLease | None) -> None:
    """With a fence before they are listed; without, while the lane's connections are busy."""
    async with ScriptedServer(default=SILENCE) as server, running(server, lease) as run:
        if lease is None:
            run.dispatcher.submit([patch(n, cause="other") for n in range(10, 42)])
            await until(lambda: run.dispatcher.claims.n_in_flight == 32)
        run.dispatcher.submit([patch(0, cause="a"), patch(1, cause="b"), patch(2, cause="a")])
        assert run.dispatcher.n_binds_waiting == 3
        assert not run.dispatcher.is_settled
        if lease is not None:
            run.dispatcher.submit([bind("a")])
        run.dispatcher.submit([CancelBinds("a")])
        bound = [] if lease is None else [BindCancelled("pu", 1)]
        assert run.events == [ClaimCancelled("u0", 3), ClaimCancelled("u2", 3), *bound]
        run.dispatcher.cancel_all()
        assert run.events[-1] == ClaimCancelled("u1", 3)


async def test_a_clean_stop_sends_no_further_patch_and_waits_for_those_that_were_sent() -> None:
    async with ScriptedServer(default=SILENCE) as server, running(server) as run:
        run.dispatcher.submit([patch(0)])
        await until(lambda: len(server.requests) == 1)
        assert run.dispatcher.n_binds_in_flight == 1

        async def ends() -> None:
            assert await run.dispatcher.drain(5.0)
            assert "ClaimUnclear" in {type(one).__name__ for one in run.events}

        async with anyio.create_task_group() as group:
            group.start_soon(ends)
            await anyio.sleep(0.01)
            run.dispatcher.submit([patch(1)])
            assert run.events == [ClaimCancelled("u1", 3)]
        assert run.dispatcher.is_settled


async def test_binds_and_patches_have_lanes_of_their_own() -> None:
    async with ScriptedServer(default=obliging) as server, running(server) as run:
        run.dispatcher.submit([patch(), bind()])
        said = await run.said(2)
        assert {type(one) for one in said} == {ClaimPatched, BindSucceeded}
        statistics = run.dispatcher.statistics()
        assert (statistics.n_claims_sent, statistics.n_binds_sent) == (1, 1)


# -- reads and bumps -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "strange",
    [
        page(404),
        page(200, claim(1)),
        page(200, claim(kind="Pod")),
        page(200, b"{}"),
        about(404, 1),
        about(404, kind="pods"),
        about(403),
        about(409),
        status(500),
        status(401),
    ],
)
async def test_a_claim_is_read_until_the_server_itself_answers(strange: bytes) -> None:
    async with ScriptedServer(page(200, claim()), [strange, strange]) as server, running(server) as run:
        run.dispatcher.submit([READ])
        [answer] = await run.said()
        assert isinstance(answer, ClaimRead)
        assert answer.claim is not None
        assert answer.claim.key == "ns/c0"
        assert [one.line for one in server.requests] == [f"GET {PATH}/c0"] * 3


@pytest.mark.parametrize("answer", [about(404), page(200, claim(uid="another"))])
async def test_a_claim_that_is_gone_or_has_a_successor_is_none(answer: bytes) -> None:
    async with ScriptedServer(answer) as server, running(server) as run:
        run.dispatcher.submit([READ])
        assert await run.said() == [ClaimRead("u0", None)]


async def test_a_read_of_a_claim_that_stays_without_an_answer_is_reported_and_asked_on() -> None:
    async with ScriptedServer(default=page(404)) as server, running(server) as run:
        run.dispatcher._reads._backoff = Backoff(Random(1), first_s=0.01, max_s=0.02)
        run.dispatcher.submit([READ])
        [told] = await run.said()
        assert isinstance(told, ClaimUnread)
        assert (told.uid, len(server.requests)) == ("u0", READS_SAID)
        server.default = page(200, claim())
        await run.said(2)
        assert isinstance(run.events[1], ClaimRead)


async def test_a_claim_is_bumped_by_a_patch_of_its_metadata() -> None:
    """Its status allows no change of annotations."""
    async with ScriptedServer(default=obliging) as server, running(server) as run:
        await anyio.wait_all_tasks_blocked()
        run.dispatcher.submit([BumpClaim("u0", "ns", "c0", "c")])
        [answer] = await run.said()
        assert isinstance(answer, ClaimBumped)
        assert answer.claim is not None
        [request] = server.requests
        assert request.line == f"PATCH {PATH}/c0"
        assert set(request.json["metadata"]) == {"uid", "annotations"}
        await until(lambda: run.dispatcher.is_settled)
