"""Two replicas on a real kube-apiserver, and binds of the one that leads no more: none of them lands.

In each round the leader is stopped (SIGSTOP), or what it sends is held by the network, at a random moment
while it binds; when the other has taken over, more important gangs come; then the old leader's bytes are let
go. The whole history is checked, by an independent watch: no device twice, no node with more than it has, no
gang half bound beyond the limit. GANGSCHED_FENCE_ROUNDS says how many rounds, GANGSCHED_FENCE_SEED which.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from gangsched.errors import ApiError
from gangsched.lab.controlplane.processes import ControlPlane
from tests.real.cluster import MERGE, PODS, Cluster, checked
from tests.real.late_bytes import LateBytes
from tests.real.picture import check, is_live, node_of, reason_of
from tests.real.process import Scheduler, service_account, write_config
from tests.real.test_preemption import CLASSES, priority_class

ROUNDS = "GANGSCHED_FENCE_ROUNDS"
pytestmark = [pytest.mark.real, pytest.mark.timeout(120 + 30 * int(os.environ.get(ROUNDS, "3")))]

N_ROUNDS = int(os.environ.get(ROUNDS, "3"))
SEED = os.environ.get("GANGSCHED_FENCE_SEED", "1")
LEASES = "/apis/coordination.k8s.io/v1/namespaces/gangsched-system/leases"
ELECTION = {
    "leaderElect": True,
    "resourceNamespace": "gangsched-system",
    "leaseDuration": "4s",
    "renewDeadline": "3s",
    "retryPeriod": "500ms",
}
SETTLE_S = 5.0
LANDED_S = 1.0
"""So long after it was let go everything that was held has reached the server, and been answered."""
N_NODES = 6
N_GANGS = 6
"""Of 8 pods of one GPU each: together they fill the nodes."""
N_IMPORTANT = 6
"""As many: where a bind of the others is late there is nothing left for it."""
BURST_BYTES = 90_000
"""What a leader sends for 48 binds, nearly: greetings of a connection for each, requests, conditions."""
ALL_BOUND_S = 3.0
N_UNFENCED = 30
"""At most, until the attack succeeds; one in about eight does."""
AT_ONCE = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}


class Replica:
    """A scheduler whose way to the API server can be held up."""

    def __init__(self, cluster: Cluster, number: int, *, fence: bool) -> None:
        directory, plane = cluster.directory, cluster.plane
        self.network = LateBytes(plane.port)
        path = write_config(directory / f"replica-{number}.yaml", settleSeconds=SETTLE_S, fence=fence)
        documents = list(yaml.safe_load_all(path.read_text()))
        documents[0]["leaderElection"] = ELECTION
        path.write_text(yaml.safe_dump_all(documents))
        server = f"https://127.0.0.1:{self.network.port}"
        account = service_account(plane, directory / f"replica-{number}-account.yaml", server=server)
        self.network.__enter__()
        self.scheduler = Scheduler(path, account, directory / f"replica-{number}.log")
        cluster.schedulers.append(self.scheduler)

    @property
    def leads(self) -> bool:
        return self.scheduler.running and " leading " in self.scheduler.said

    @property
    def is_ready(self) -> bool:
        return "synced, " in self.scheduler.said

    def disturb(self, how: str) -> None:
        if how == "stopped":
            self.scheduler.process.send_signal(signal.SIGSTOP)
        else:
            self.network.hold()

    def let_go(self) -> None:
        self.network.let_go()
        self.scheduler.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        self.network.let_go()
        self.scheduler.kill()
        self.network.__exit__(None, None, None)


class Rounds:
    """The cluster, the two replicas, and one round after the other."""

    def __init__(self, cluster: Cluster, *, fence: bool) -> None:
        """Without the fence each round is of the hardest: all at once, held, the important ones early."""
        self.cluster = cluster
        self._fence = fence
        self._n_made = 0
        self.replicas: list[Replica] = []

    def run(self, number: int, seed: str) -> str:
        """One round; what it was like. Raises: AssertionError."""
        rng = random.Random(f"{seed}-{number}")
        how = rng.choice(("stopped", "held", "held")) if self._fence else "held"
        old, new = self._two()
        picture = self.cluster.picture
        first = len(picture.sights)
        self._submit_important(number, range(7))
        disturbed = self._submit(number, rng, lambda: self._disturb_amid(old, how, rng))
        disturbed.wait(ALL_BOUND_S)  # where that many bytes are not sent: when it has bound them all
        n_before = self._n_bound(f"r{number}-")
        is_early = (
            not self._fence or rng.random() < 0.7
        )  # before the next one leads, so that it begins with these
        if is_early:
            self._submit_important(number, range(7, 8))
        self.cluster.eventually(lambda: new.leads, "the other one leads")
        if not is_early:
            self._submit_important(number, range(7, 8))
        if self._fence:
            for i in range(rng.randrange(N_IMPORTANT + 1)):
                self._whole(f"r{number}-high-{i}", new)
        else:
            # Soon it writes why they wait on the pods that are held, and the API server refuses their binds.
            picture.until(lambda: self._n_bound(f"r{number}-high") > 0, "the important ones are bound")
        n_held = old.network.n_held
        old.let_go()
        self.cluster.eventually(lambda: not old.scheduler.running, "the old leader has ended")
        assert old.scheduler.process.returncode == 1, old.scheduler.said
        time.sleep(LANDED_S)  # most of it is refused: there is nothing to be seen of that
        for i in range(N_IMPORTANT):
            self._whole(f"r{number}-high-{i}", new)
        picture.until(lambda: not self._half_bound(number), "no gang is half bound", timeout_s=30 + SETTLE_S)
        self._check(first)
        self.cluster.schedulers.remove(old.scheduler)
        old.scheduler.never_broke()
        old.end()
        self.replicas = [new]
        self._clear(first)
        return f"round {number}: {how} with {n_before} bound, {n_held} bytes held"

    def _disturb_amid(self, old: Replica, how: str, rng: random.Random) -> threading.Event:
        """Counted in bytes, so that a slow machine is hit in the midst of the binds as a fast one is."""
        least, most = (0, BURST_BYTES) if self._fence else (BURST_BYTES // 8, BURST_BYTES)
        return old.network.after(rng.randrange(least, most), lambda: old.disturb(how))

    def _whole(self, gang: str, new: Replica) -> None:
        try:
            self.cluster.whole(gang)
        except AssertionError:  # a machine so slow that this lease is lost too says nothing of the fence
            assert new.scheduler.running, f"no leader is left:\n{new.scheduler.said}"
            raise

    def _submit(
        self, number: int, rng: random.Random, watch_binds: Callable[[], threading.Event]
    ) -> threading.Event:
        """Gangs for the leader to bind, one by one or all at one moment; `watch_binds` just before."""
        at_once = not self._fence or rng.random() < 0.6
        if at_once:
            self._cordon(True)
            self._wait_until_cordons_are_seen()
        watched = threading.Event() if at_once else watch_binds()
        for i in range(N_GANGS if at_once else rng.randint(1, N_GANGS)):
            self.cluster.gang(f"r{number}-low-{i}", pods=8, gpus=1)
        if at_once:
            for i in range(N_GANGS):
                self.cluster.held(f"r{number}-low-{i}", says="unschedulable")
            watched = watch_binds()
            self._cordon(False)
        return watched

    def _submit_important(self, number: int, members: range) -> None:
        for i in range(N_IMPORTANT):
            name = f"r{number}-high-{i}"
            self.cluster.gang(name, pods=8, gpus=1, members=members, priorityClassName="high")

    def _cordon(self, is_on: bool) -> None:
        for name in self.cluster.inventory:
            patch = {"spec": {"unschedulable": is_on}}
            self.cluster.plane.request("PATCH", f"/api/v1/nodes/{name}", patch, content_type=MERGE)

    def _wait_until_cordons_are_seen(self) -> None:
        """Pods and nodes are told by two watches: a pod may be decided before an earlier cordon is known."""
        refused = f"{N_NODES} node(s) were unschedulable"
        pods = self.cluster.picture.pods

        def is_decided() -> bool:
            pod = pods.get("asks")
            return pod is not None and (bool(node_of(pod)) or refused in reason_of(pod))

        while True:
            self.cluster.pod("asks")
            self.cluster.picture.until(is_decided, "the scheduler says what it knows of the nodes")
            is_seen = not node_of(pods["asks"])
            self.cluster.delete("asks")
            if is_seen:
                return

    def _two(self) -> tuple[Replica, Replica]:
        """A leader and a follower that is ready to take over."""
        self.replicas = [one for one in self.replicas if one.scheduler.running]
        while len(self.replicas) < 2:
            self._n_made += 1
            self.replicas.append(Replica(self.cluster, self._n_made, fence=self._fence))
            self.cluster.eventually(lambda: self.replicas[-1].is_ready, "a replica follows")
        self.cluster.eventually(lambda: any(one.leads for one in self.replicas), "one of two leads")
        old = next(one for one in self.replicas if one.leads)
        return old, next(one for one in self.replicas if one is not old)

    def _n_bound(self, prefix: str) -> int:
        pods = self.cluster.picture.pods
        return sum(bool(node_of(pod)) for name, pod in pods.items() if name.startswith(prefix))

    def _half_bound(self, number: int) -> list[str]:
        gangs = [f"r{number}-low-{i}" for i in range(N_GANGS)]
        gangs += [f"r{number}-high-{i}" for i in range(N_IMPORTANT)]
        return [gang for gang in gangs if 0 < self.cluster.n_bound(gang) < len(self.cluster.members(gang))]

    def _check(self, first: int) -> None:
        sights = self.cluster.picture.sights[first:]
        check(sights, self.cluster.inventory)
        on_node: dict[str, int] = {}
        for pod in self.cluster.picture.pods.values():
            if node_of(pod) and is_live(pod):
                on_node[node_of(pod)] = on_node.get(node_of(pod), 0) + 1
        assert all(n <= 8 for n in on_node.values()), on_node

    def _clear(self, first: int) -> None:
        plane, picture = self.cluster.plane, self.cluster.picture
        plane.request("DELETE", PODS, AT_ONCE)
        picture.until(lambda: not picture.pods, "all pods are gone")
        del picture.sights[first:]
        self.cluster.gangs.clear()

    def end(self) -> None:
        for one in self.replicas:
            one.network.let_go()


@pytest.fixture
def cluster(fresh_cluster: ControlPlane, tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        made = stack.enter_context(checked(fresh_cluster, tmp_path))
        for name in ("gangsched", "gangsched-fence"):
            with contextlib.suppress(ApiError):  # there is none yet
                fresh_cluster.request("DELETE", f"{LEASES}/{name}")
        priority_class(fresh_cluster, "high")
        stack.callback(fresh_cluster.request, "DELETE", f"{CLASSES}/high")
        made.nodes(N_NODES, gpus=8)
        yield made


def test_binds_of_a_leader_that_was_are_harmless(cluster: Cluster) -> None:
    rounds = Rounds(cluster, fence=True)
    for number in range(N_ROUNDS):
        print(rounds.run(number, SEED), flush=True)
    rounds.end()


@pytest.mark.timeout(420)
def test_without_the_fence_devices_are_given_twice(fresh_cluster: ControlPlane, tmp_path: Path) -> None:
    """The attack of the other test is one: where nothing fences, it is not long before it succeeds."""
    with pytest.raises(AssertionError, match="another live pod"):
        _unfenced(fresh_cluster, tmp_path)


def _unfenced(plane: ControlPlane, directory: Path) -> None:
    with checked(plane, directory) as cluster:
        priority_class(plane, "high")
        try:
            cluster.nodes(N_NODES, gpus=8)
            rounds = Rounds(cluster, fence=False)
            for number in range(N_UNFENCED):
                print(rounds.run(number, "unfenced"), flush=True)
        finally:
            plane.request("DELETE", f"{CLASSES}/high")
