"""Two replicas on a real kube-apiserver: one binds, the other takes over; every gang whole, no device twice.

The leader is killed, paused beyond its lease, or asked to end, each time in the middle of binding; that the
devices are right is checked over the whole history when the test ends (the fixture's check).
"""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.real.cluster import Cluster
from tests.real.picture import node_of
from tests.real.process import Scheduler, binding_gate, service_account, write_config

pytestmark = pytest.mark.real

LEASE = "/apis/coordination.k8s.io/v1/namespaces/gangsched-system/leases/gangsched"
# Longer than a busy machine stands still: who loses the lease by that is not who a test disturbs.
SHORT = {"leaseDuration": "6s", "renewDeadline": "4s", "retryPeriod": "500ms"}
LONG = {"leaseDuration": "60s", "renewDeadline": "40s", "retryPeriod": "500ms"}
Record = Callable[[str, object], None]
N_GANGS = 40
N_BEFORE = 80
"""So many pods are bound when the leader is disturbed."""


def replica(
    cluster: Cluster,
    name: str,
    timing: dict[str, str],
    *,
    kubeconfig: Path | None = None,
    plugin: Path | None = None,
) -> Scheduler:
    """A scheduler with leader election, under the rights of deploy/rbac.yaml; `plugin` may take its time."""
    path = write_config(cluster.directory / f"{name}.yaml", pluginBudgetSeconds=10)
    documents: list[dict[str, Any]] = list(yaml.safe_load_all(path.read_text()))
    if plugin is not None:
        documents[0]["profiles"][0]["plugins"] = {"multiPoint": {"enabled": [{"name": "Slow"}]}}
    documents[0]["leaderElection"] = {
        "leaderElect": True,
        "resourceNamespace": "gangsched-system",
        **timing,
    }
    path.write_text(yaml.safe_dump_all(documents))
    account = kubeconfig or service_account(cluster.plane, cluster.directory / f"{name}-account.yaml")
    plugins = [] if plugin is None else [plugin]
    made = Scheduler(path, account, cluster.directory / f"{name}.log", plugins=plugins)
    cluster.schedulers.append(made)
    return made


def says(cluster: Cluster, scheduler: Scheduler, words: str) -> None:
    cluster.eventually(lambda: words in scheduler.said, f"{scheduler.log.name} says {words!r}")


def two_replicas(
    cluster: Cluster, timing: dict[str, str], kubeconfig: Path
) -> tuple[Scheduler, Scheduler, list[str]]:
    """A leader that reaches the server through `kubeconfig`, a warm follower, and names of gangs."""
    cluster.plane.kubectl("delete", "lease", "gangsched", "-n", "gangsched-system", "--ignore-not-found")
    cluster.nodes(N_GANGS, gpus=8, racks=4)
    leader = replica(cluster, "first", timing, kubeconfig=kubeconfig)
    says(cluster, leader, " leading ")
    follower = replica(cluster, "second", timing)
    says(cluster, follower, "synced, following")
    return leader, follower, [f"g{i}" for i in range(N_GANGS)]


def submit(cluster: Cluster, names: list[str]) -> None:
    for name in names:
        cluster.gang(name, pods=8, gpus=1)


class Disturbance:
    """Sends a signal to the leader at the moment when its N_BEFOREth Binding passes the proxy."""

    def __init__(self, number: signal.Signals) -> None:
        self._number = number
        self.leader: Scheduler | None = None
        self.at_s = 0.0
        self.at = datetime.now(UTC)

    def __call__(self, _: str, n_passed: int) -> bool:
        if n_passed == N_BEFORE and self.leader is not None:
            self.at_s, self.at = time.monotonic(), datetime.now(UTC)
            self.leader.process.send_signal(self._number)
        return True


def longest_silence_s(cluster: Cluster, since_s: float) -> float:
    """The longest time without a bind from then on, until the last one."""
    seen: dict[str, float] = {}
    for _, pod, at_s in cluster.picture.sights:
        if node_of(pod):
            seen.setdefault(pod["metadata"]["uid"], at_s)
    times = [since_s, *sorted(at_s for at_s in seen.values() if at_s > since_s)]
    return max(b - a for a, b in itertools.pairwise(times))


def transitions(cluster: Cluster) -> int:
    n: int = cluster.plane.request("GET", LEASE)["spec"]["leaseTransitions"]
    return n


def without_a_leader(cluster: Cluster, since_s: float, since: datetime) -> str:
    """How long nobody held the lease, by the server's own record of it, and how long nobody bound."""
    acquired = cluster.plane.request("GET", LEASE)["spec"]["acquireTime"]
    taken = (datetime.fromisoformat(acquired) - since).total_seconds()
    silence_s = longest_silence_s(cluster, since_s)
    return f"{taken:.1f} s until the next one held the lease, {silence_s:.1f} s without a bind"


def test_leader_is_killed(cluster: Cluster, record_property: Record) -> None:
    kill = Disturbance(signal.SIGKILL)
    with binding_gate(cluster.plane, cluster.directory, kill) as (_, kubeconfig):
        kill.leader, follower, names = two_replicas(cluster, SHORT, kubeconfig)
        submit(cluster, names)
        cluster.whole(*names)
        assert kill.leader.process.wait(20) == -signal.SIGKILL
    figure = without_a_leader(cluster, kill.at_s, kill.at)
    record_property("figure", f"leader killed while binding, lease of 6 s: {figure}")
    assert " leading " in follower.said
    assert transitions(cluster) == 1


def test_leader_wakes_up_with_binds_on_the_way_while_the_next_one_binds(
    cluster: Cluster, record_property: Record
) -> None:
    # From the N_BEFOREth on the leader's Bindings are held: it has them in flight, and more waiting.
    through = binding_gate(cluster.plane, cluster.directory, lambda _, n: n < N_BEFORE)
    with through as (gate, kubeconfig):
        leader, follower, names = two_replicas(cluster, SHORT, kubeconfig)
        submit(cluster, names)
        cluster.eventually(lambda: bool(gate.held), "the leader waits for answers")
        leader.process.send_signal(signal.SIGSTOP)
        at_s, at = time.monotonic(), datetime.now(UTC)
        says(cluster, follower, " leading ")
        n_sent = len(gate.passed) + len(gate.held)
        leader.process.send_signal(signal.SIGCONT)
        assert leader.process.wait(20) == 1, leader.said
        assert len(gate.passed) + len(gate.held) == n_sent, "it woke up and went on"
        assert "the lease is lost" in leader.said
        cluster.whole(*names)
    figure = without_a_leader(cluster, at_s, at)
    record_property("figure", f"leader paused with binds on the way, lease of 6 s: {figure}")
    assert transitions(cluster) == 1


def test_leader_paused_at_full_speed_wakes_up_to_its_answers(
    cluster: Cluster, record_property: Record
) -> None:
    pause = Disturbance(signal.SIGSTOP)
    with binding_gate(cluster.plane, cluster.directory, pause) as (gate, kubeconfig):
        pause.leader, _, names = two_replicas(cluster, SHORT, kubeconfig)
        submit(cluster, names)
        cluster.whole(*names)  # by the other one
        n_sent = len(gate.passed)
        assert n_sent < N_GANGS * 8
        pause.leader.process.send_signal(signal.SIGCONT)
        assert pause.leader.process.wait(20) == 1, pause.leader.said
        # It may have been stopped between the last look at its lease and the write of one bind: that one is
        # refused by the server, its pod is bound.
        assert len(gate.passed) <= n_sent + 1
        assert "the lease is lost" in pause.leader.said
    figure = without_a_leader(cluster, pause.at_s, pause.at)
    record_property("figure", f"leader paused at full speed, lease of 6 s: {figure}")
    assert transitions(cluster) == 1


def test_leader_that_ends_in_order_hands_over_at_once(cluster: Cluster, record_property: Record) -> None:
    stop = Disturbance(signal.SIGTERM)
    with binding_gate(cluster.plane, cluster.directory, stop) as (_, kubeconfig):
        stop.leader, follower, names = two_replicas(cluster, LONG, kubeconfig)
        submit(cluster, names)
        assert stop.leader.process.wait(30) == 0, stop.leader.said
        assert "the lease is released" in stop.leader.said
        cluster.whole(*names)  # within half of the lease's duration, so it cannot have run out
    figure = without_a_leader(cluster, stop.at_s, stop.at)
    record_property("figure", f"leader asked to end, lease of 60 s: {figure}")
    assert " leading " in follower.said
    taken = next(line for line in follower.said.splitlines() if "this replica holds the fence" in line)
    assert "n_listed=0" in taken, "every bind was answered before it ended"
    assert transitions(cluster) == 1


SLOW = """
class Slow:
    name = "Slow"

    def filter_node(self, state, pod, node_info):
        until_s = time.monotonic() + (4.5 if pod.metadata.name.startswith("slow") else 0.0)
        while time.monotonic() < until_s:
            pass
        return SUCCESS
"""


def test_a_turn_longer_than_the_lease_costs_nobody_the_lease(cluster: Cluster) -> None:
    """Here by a plugin; an object that made a turn this long would end each replica that came to lead."""
    plugin = cluster.directory / "slow.py"
    plugin.write_text("import time\nfrom gangsched.plugin import SUCCESS\n" + SLOW)
    cluster.plane.kubectl("delete", "lease", "gangsched", "-n", "gangsched-system", "--ignore-not-found")
    cluster.nodes(1, gpus=8)
    leader = replica(cluster, "first", SHORT, plugin=plugin)
    says(cluster, leader, " leading ")
    follower = replica(cluster, "second", SHORT, plugin=plugin)
    says(cluster, follower, "synced, following")
    cluster.gang("slow", pods=2, gpus=3)
    cluster.whole("slow")
    cluster.gang("after", pods=2, gpus=1)
    cluster.whole("after")
    assert transitions(cluster) == 0
    assert " leading " not in follower.said
    assert "the lease is lost" not in leader.said
