"""The lease lane against a server that answers as it is told."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import anyio
import pytest

from gangsched.config import LeaderElectionSettings
from gangsched.kube.client import ApiClient
from gangsched.kube.election.elector import LeaderElector
from gangsched.kube.election.lease import ElectionState
from tests.kube.scripted import (
    CUT,
    SILENCE,
    Request,
    ScriptedServer,
    created,
    credentials,
    page,
    status,
    within,
)
from tests.support.tasks import until

QUICK = LeaderElectionSettings(True, 3.0, 2.0, 0.05, "gangsched", "apps")
PATH = "/apis/coordination.k8s.io/v1/namespaces/apps/leases"


class LeaseServer:
    """Keeps one Lease as an API server does."""

    def __init__(self, lease: dict[str, Any] | None = None) -> None:
        self.lease = lease
        self.version = 1

    def __call__(self, request: Request) -> bytes:
        if request.line.startswith("GET"):
            if self.lease is None:
                return status(404, about="gangsched", kind="leases", group="coordination.k8s.io")
            return created(json.dumps(self.lease).encode())
        sent = request.json
        held = self.lease["metadata"]["resourceVersion"] if self.lease else None
        if sent["metadata"].get("resourceVersion") != held:
            return status(409, about="gangsched", kind="leases", group="coordination.k8s.io")
        self.version += 1
        meta = {"namespace": "apps", "uid": "u", **sent["metadata"], "resourceVersion": str(self.version)}
        self.lease = {**sent, "metadata": meta}
        return created(json.dumps(self.lease).encode())


class Driven:
    def __init__(self, server: ScriptedServer) -> None:
        self.leads = anyio.Event()
        self.elector = LeaderElector(ApiClient(credentials(server.port)), QUICK, identity="me", rng=Random(1))

    async def run(self) -> None:
        await self.elector.run(self.leads.set)


@asynccontextmanager
async def leading(answer: Callable[[Request], bytes]) -> AsyncIterator[tuple[ScriptedServer, Driven]]:
    """A server that answers so, and an elector that leads and goes on until it is done."""
    async with ScriptedServer(default=answer) as server, anyio.create_task_group() as group:
        driven = Driven(server)
        group.start_soon(driven.run)
        with within():
            await driven.leads.wait()
        yield server, driven


async def test_driver_creates_renews_and_releases() -> None:
    lease = LeaseServer()
    async with leading(lease) as (server, driven):
        assert driven.elector.holds
        await until(lambda: lease.version >= 4)
        assert await driven.elector.release()
        assert not driven.elector.has_lost
        assert lease.lease is not None
        assert lease.lease["spec"]["holderIdentity"] == ""
        assert lease.lease["spec"]["leaseDurationSeconds"] == 1
        lines = [request.line for request in server.requests]
        assert lines[:3] == [f"GET {PATH}/gangsched", f"POST {PATH}", f"PUT {PATH}/gangsched"]
        assert set(lines[3:]) == {f"PUT {PATH}/gangsched"}, "a leader does not read what it wrote"


async def test_a_release_that_lands_without_an_answer_is_not_reported_as_a_loss() -> None:
    kept = LeaseServer()

    def answer(request: Request) -> bytes:
        done = kept(request)
        is_release = request.line.startswith("PUT") and not request.json["spec"]["holderIdentity"]
        return CUT if is_release else done

    async with leading(answer) as (_, driven):
        assert await driven.elector.release()
        assert not driven.elector.has_lost


async def test_driver_keeps_what_others_put_on_the_lease() -> None:
    old = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": "gangsched",
            "namespace": "apps",
            "uid": "u",
            "resourceVersion": "1",
            "labels": {"a": "b"},
        },
        "spec": {"holderIdentity": "", "leaseTransitions": 4, "preferredHolder": "x"},
    }
    lease = LeaseServer(old)
    async with leading(lease) as (_, driven):
        assert lease.lease is not None
        assert lease.lease["metadata"]["labels"] == {"a": "b"}
        assert lease.lease["spec"]["preferredHolder"] == "x"
        assert lease.lease["spec"]["leaseTransitions"] == 5
        assert lease.lease["spec"]["renewTime"].endswith("Z")
        await driven.elector.release()


@pytest.mark.parametrize("trouble", [CUT, SILENCE, status(500), status(429), created(b"nonsense")])
async def test_driver_survives_one_bad_answer(trouble: bytes) -> None:
    lease = LeaseServer()
    async with leading(lease) as (server, driven):
        seen = lease.version
        server.script.append(trouble)
        await until(lambda: not server.script and lease.version >= seen + 2)
        assert driven.elector.holds
        await driven.elector.release()


def lease_of(holder: str, *, name: str = "gangsched") -> bytes:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 3, "renewTime": "2026-01-01T00:00:00.000000Z"}
    meta = {"name": name, "namespace": "apps", "uid": "u", "resourceVersion": "7"}
    return json.dumps({"kind": "Lease", "metadata": meta, "spec": spec}).encode()


@pytest.mark.parametrize(
    "strange",
    [
        page(200),
        page(200, b""),
        created(b"{}"),
        created(lease_of("me", name="another")),
        created(lease_of("me")),  # an old one: not what was written
        created(lease_of("you")),
    ],
)
async def test_an_answer_that_is_not_about_the_lease_as_written_makes_nobody_a_leader(strange: bytes) -> None:
    kept = LeaseServer()
    lies = True

    def answer(request: Request) -> bytes:
        if request.line.startswith("GET") or not lies:
            return kept(request)
        return strange

    async with ScriptedServer(default=answer) as server, anyio.create_task_group() as group:
        driven = Driven(server)
        group.start_soon(driven.run)
        await until(lambda: sum(r.line.startswith("POST") for r in server.requests) >= 2)
        assert not driven.elector.holds
        assert kept.lease is None
        lies = False
        with within():
            await driven.leads.wait()
        await driven.elector.release()


@pytest.mark.parametrize(
    "strange", [page(404), page(404, b""), status(404), status(404, about="another", kind="leases")]
)
async def test_a_lease_is_not_gone_because_something_before_the_server_says_so(strange: bytes) -> None:
    kept = LeaseServer(json.loads(lease_of("you")))
    async with (
        ScriptedServer(default=kept, script=[strange] * 3) as server,
        anyio.create_task_group() as group,
    ):
        driven = Driven(server)
        group.start_soon(driven.run)
        await until(lambda: len(server.requests) == 4)
        assert {request.line.split()[0] for request in server.requests} == {"GET"}
        group.cancel_scope.cancel()


async def test_a_leader_that_gets_nonsense_does_not_ask_again_without_pause() -> None:
    kept = LeaseServer()
    lies = False

    def answer(request: Request) -> bytes:
        done = kept(request)
        return page(200) if lies and request.line.startswith("PUT") else done

    async with leading(answer) as (server, driven):
        lies, before = True, len(server.requests)
        await until(lambda: driven.elector.election.state is ElectionState.LOST)
        # renewDeadline / retryPeriod rounds of a GET and a PUT, and the first one twice.
        assert len(server.requests) - before < 2 * 2.0 / 0.05 + 4


async def test_driver_gives_up_when_nobody_answers() -> None:
    lease = LeaseServer()
    async with leading(lease) as (server, driven):
        server.default = SILENCE
        await until(lambda: driven.elector.election.state is ElectionState.LOST)
        assert driven.elector.has_lost
        assert not driven.elector.holds
