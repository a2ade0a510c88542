"""Two schedulers that leader election does not keep apart: both logs say it, and neither of one alone."""

from __future__ import annotations

from typing import Any, cast

import anyio
import msgspec
import pytest
from structlog.testing import capture_logs

from gangsched.config import LeaderElectionSettings
from gangsched.errors import ApiError, Subject
from gangsched.kube.client import ApiClient
from gangsched.kube.election.other_scheduler import OtherScheduler

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


class Leases:
    """An API server that keeps Leases, and refuses a write over another version."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, Any]] = {}
        self.refusal: ApiError | None = None
        self.namespace = "kube-system"

    async def get(self, path: str, *, timeout_s: float) -> bytes:
        if self.refusal is not None:
            raise self.refusal
        name = path.rpartition("/")[2]
        if name not in self.kept:
            subject = Subject("leases", name, "coordination.k8s.io")
            raise ApiError("not found", code=404, reason="NotFound", subject=subject)
        return msgspec.json.encode(self.kept[name])

    async def post(self, path: str, body: bytes, *, timeout_s: float) -> bytes:
        namespace = path.split("/")[-2]
        if namespace != self.namespace:
            subject = Subject("namespaces", namespace)
            raise ApiError("namespaces not found", code=404, reason="NotFound", subject=subject)
        assert path == LEASES
        return self._keep(msgspec.json.decode(body), 1)

    async def put(self, path: str, body: bytes, *, timeout_s: float) -> bytes:
        sent = msgspec.json.decode(body)
        known = self.kept[path.rpartition("/")[2]]["metadata"]["resourceVersion"]
        if sent["metadata"]["resourceVersion"] != known:
            raise ApiError("the object has been modified", code=409, reason="Conflict")
        return self._keep(sent, int(known) + 1)

    def _keep(self, lease: dict[str, Any], version: int) -> bytes:
        lease["metadata"]["resourceVersion"] = str(version)
        self.kept[lease["metadata"]["name"]] = lease
        return msgspec.json.encode(lease)

    def elected(self, holder: str, renewed: str) -> None:
        """Writes leader election's Lease, as a leader does."""
        spec = {"holderIdentity": holder, "renewTime": renewed}
        self._keep({"metadata": {"name": "gangsched"}, "spec": spec}, 1)


def scheduler(server: Leases, name: str, *, elects: bool = False) -> OtherScheduler:
    settings = LeaderElectionSettings(leader_elect=elects)
    return OtherScheduler(cast(ApiClient, server), settings, identity=name)


def looks(*schedulers: OtherScheduler) -> dict[str, str]:
    """Each looks once, in this order; returns who was told of whom."""

    async def run() -> None:
        for one in schedulers:
            await one.look()

    with capture_logs() as logs:
        anyio.run(run)
    return {one["this"]: one["other"] for one in logs if "another scheduler" in one["event"]}


def test_two_without_election_both_say_so_and_once() -> None:
    server = Leases()
    one, two = scheduler(server, "one"), scheduler(server, "two")
    assert looks(one, two) == {}
    assert looks(one, two) == {"one": "two", "two": "one"}
    assert looks(one, two, one, two) == {}


def test_a_successor_is_no_other() -> None:
    server = Leases()
    one, two = scheduler(server, "one"), scheduler(server, "two")
    assert looks(one, one) == {}
    assert looks(two, two, two) == {}


def test_one_with_election_and_one_without_both_say_so() -> None:
    server = Leases()
    alone, replica = scheduler(server, "alone"), scheduler(server, "replica", elects=True)
    server.elected("leader", "10:00:00")
    assert looks(alone, replica) == {}
    server.elected("leader", "10:00:02")
    assert looks(alone, replica) == {"alone": "leader", "replica": "alone"}


def test_an_elected_leader_that_is_gone_is_no_other() -> None:
    server = Leases()
    alone, replica = scheduler(server, "alone"), scheduler(server, "replica", elects=True)
    server.elected("leader", "10:00:00")
    assert looks(alone, alone) == {}
    server.elected("", "10:00:04")  # released
    assert looks(alone, replica, replica) == {}


def test_what_cannot_be_read_is_reported_once_and_ends_nothing() -> None:
    server = Leases()
    subject = Subject("leases", "gangsched", "coordination.k8s.io")
    server.refusal = ApiError("may not get leases", code=403, reason="Forbidden", subject=subject)
    one = scheduler(server, "one")

    async def run() -> None:
        with anyio.move_on_after(0.05):
            await one.run()

    with capture_logs() as logs:
        anyio.run(run)
    assert [entry["log_level"] for entry in logs] == ["info"]
    assert "may not get leases" in logs[0]["err"]


def test_where_the_configured_namespace_is_not_there_they_meet_in_one_that_is() -> None:
    """As on a cluster for tries, with the configuration of an installation."""
    server, schedulers = Leases(), []
    settings = LeaderElectionSettings(resource_namespace="gangsched-system")
    for name in ("one", "two"):
        schedulers.append(OtherScheduler(cast(ApiClient, server), settings, identity=name))

    async def run() -> None:
        for one in schedulers:
            with anyio.move_on_after(0.05):
                await one.run()

    with capture_logs() as logs:
        anyio.run(run)
    assert not logs
    assert looks(*schedulers) == {"one": "two", "two": "one"}


@pytest.mark.parametrize("spec", [{"holderIdentity": 7, "renewTime": []}, None, {}])
def test_a_lease_that_cannot_be_read_names_no_other_scheduler(spec: Any) -> None:
    server = Leases()
    one = scheduler(server, "one")
    assert looks(one) == {}
    server.kept["gangsched-alone"]["spec"] = spec
    assert looks(one) == {}
