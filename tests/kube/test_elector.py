"""The lease lane against a server that answers as it is told."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import anyio
import pytest

from gangsched.config import LeaderElectionSettings
from gangsched.kube.client import ApiClient
from gangsched.kube.elector import LeaderElector
from gangsched.kube.lease import State
from tests.kube.scripted import (
    CUT,
    SILENCE,
    Request,
    ScriptedServer,
    created,
    credentials,
    status,
    until,
    within,
)

QUICK = LeaderElectionSettings(True, 3.0, 2.0, 0.05, "gangsched", "apps")
PATH = "/apis/coordination.k8s.io/v1/namespaces/apps/leases"


class LeaseServer:
    """Keeps one Lease as an API server does."""

    def __init__(self, lease: dict[str, Any] | None = None) -> None:
        self.lease = lease
        self.version = 1

    def __call__(self, request: Request) -> bytes:
        if request.line.startswith("GET"):
            return status(404) if self.lease is None else created(json.dumps(self.lease).encode())
        sent = request.json
        held = self.lease["metadata"]["resourceVersion"] if self.lease else None
        if sent["metadata"].get("resourceVersion") != held:
            return status(409)
        self.version += 1
        self.lease = {**sent, "metadata": {**sent["metadata"], "resourceVersion": str(self.version)}}
        return created(json.dumps(self.lease).encode())


class Driven:
    def __init__(self, server: ScriptedServer) -> None:
        self.leads = anyio.Event()
        self.elector = LeaderElector(ApiClient(credentials(server.port)), QUICK, identity="me", rng=Random(1))

    async def run(self) -> None:
        await self.elector.run(self.leads.set)


async def test_driver_creates_renews_and_releases() -> None:
    lease = LeaseServer()
    async with ScriptedServer(default=lease) as server, anyio.create_task_group() as group:
        driven = Driven(server)
        group.start_soon(driven.run)
        with within():
            await driven.leads.wait()
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


async def test_driver_keeps_what_others_put_on_the_lease() -> None:
    old = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "gangsched", "resourceVersion": "1", "labels": {"a": "b"}},
        "spec": {"holderIdentity": "", "leaseTransitions": 4, "preferredHolder": "x"},
    }
    lease = LeaseServer(old)
    async with ScriptedServer(default=lease) as server, anyio.create_task_group() as group:
        driven = Driven(server)
        group.start_soon(driven.run)
        with within():
            await driven.leads.wait()
        assert lease.lease is not None
        assert lease.lease["metadata"]["labels"] == {"a": "b"}
        assert lease.lease["spec"]["preferredHolder"] == "x"
        assert lease.lease["spec"]["leaseTransitions"] == 5
        assert lease.lease["spec"]["renewTime"].endswith("Z")
        await driven.elector.release()


@pytest.mark.parametrize("trouble", [CUT, SILENCE, status(500), status(429), created(b"nonsense")])
async def test_driver_survives_one_bad_answer(trouble: bytes) -> None:
    lease = LeaseServer()
    async with ScriptedServer(default=lease) as server, anyio.create_task_group() as group:
        driven = Driven(server)
        group.start_soon(driven.run)
        with within():
            await driven.leads.wait()
        seen = lease.version
        server.script.append(trouble)
        await until(lambda: not server.script and lease.version >= seen + 2)
        assert driven.elector.holds
        await driven.elector.release()


async def test_driver_gives_up_when_nobody_answers() -> None:
    lease = LeaseServer()
    async with ScriptedServer(default=lease) as server, anyio.create_task_group() as group:
        driven = Driven(server)
        group.start_soon(driven.run)
        with within():
            await driven.leads.wait()
        server.default = SILENCE
        await until(lambda: driven.elector.election.state is State.LOST)
        assert driven.elector.has_lost
        assert not driven.elector.holds
