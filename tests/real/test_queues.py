"""Queues on a real API server: shares over churn, a guarantee that is got back, and what a restart remembers.

Both queues list the one namespace of these tests; pods name theirs. GANGSCHED_SHARES_S: how long the churn
lasts (600 for ten minutes).
"""

from __future__ import annotations

import itertools
import json
import os
import random
import time
from typing import Any

import pytest
import yaml

from tests.real.cluster import Cluster
from tests.real.picture import is_live, node_of
from tests.real.process import Scheduler, service_account, write_config

pytestmark = pytest.mark.real

SHARES_S = float(os.environ.get("GANGSCHED_SHARES_S", "20"))
GPU = "nvidia.com/gpu"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/gangsched-system/leases/gangsched-queues"
SEED = 7
N_WAITING = 30
"""Pods of each queue: enough for the seconds in which a busy machine makes no more of them."""


def queue(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "namespaces": ["default"] if name == "b" else ["default*"], **more}


def named(name: str) -> dict[str, str]:
    return {"gangsched.io/queue": name}


def held(cluster: Cluster, letter: str) -> list[str]:
    """Names of pods on nodes that begin with this letter; each has one GPU."""
    pods = dict(cluster.picture.pods)  # the watch goes on
    return [n for n, pod in pods.items() if n.startswith(letter) and node_of(pod) and is_live(pod)]


@pytest.mark.timeout(SHARES_S + 120.0)
def test_two_queues_share_two_to_one_while_pods_come_and_go(cluster: Cluster) -> None:
    """Both wait before there is a node: else the first has all of it while the other's pods are made."""
    cluster.schedule(queues=[queue("a", share=2), queue("b", share=1)], fairness={"compare": [GPU]})
    rng, serial = random.Random(SEED), itertools.count()
    for _ in range(N_WAITING):
        for letter in "ab":
            cluster.pod(f"{letter}{next(serial)}", gpus=1, annotations=named(letter))
    cluster.nodes(2, gpus=6)
    cluster.picture.until(lambda: len(held(cluster, "a") + held(cluster, "b")) == 12, "all GPUs are in use")
    ends: dict[str, float] = {}
    had = {"a": 0.0, "b": 0.0}
    began_s = before_s = time.monotonic()
    while (now_s := time.monotonic()) < began_s + SHARES_S:
        for letter in "ab":
            running = held(cluster, letter)
            had[letter] += len(running) * (now_s - before_s)
            waiting = sum(name.startswith(letter) for name in list(cluster.picture.pods)) - len(running)
            for _ in range(N_WAITING - waiting):
                cluster.pod(f"{letter}{next(serial)}", gpus=1, annotations=named(letter))
            for name in running:
                ends.setdefault(name, now_s + rng.uniform(1.0, 3.0))
        before_s = now_s
        over = [name for name, end_s in ends.items() if end_s <= now_s]
        for name in over:
            del ends[name]
        cluster.delete(*over)
        time.sleep(0.05)
    x = had["a"] / 2, had["b"]
    jain = sum(x) ** 2 / (2 * sum(one * one for one in x))
    print(f"seed {SEED}, {SHARES_S:g} s, {next(serial)} pods: {had}, Jain {jain:.4f}")
    assert jain >= 0.97


def test_a_guarantee_is_got_back_as_a_whole_node(cluster: Cluster) -> None:
    cluster.nodes(2, gpus=8)
    cluster.schedule(queues=[queue("a", guaranteed={GPU: 8}), queue("b", guaranteed={GPU: 8})])
    for k in range(16):
        cluster.pod(f"b{k}", gpus=1, annotations=named("b"))
    cluster.picture.until(lambda: len(held(cluster, "b")) == 16, "b has borrowed all")
    began_s = time.monotonic()
    cluster.gang("a", pods=1, gpus=8, annotations=named("a"))
    cluster.whole("a")
    print(f"{time.monotonic() - began_s:.2f} s from the asking to the start; the victims' grace is 0 s")
    assert len(held(cluster, "b")) == 8, "what is guaranteed to it stays"


class Kubelets:
    """Ends pods that are asked to go once their grace is over, as each node's kubelet does."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._due_s: dict[str, float] = {}
        self.took_s: list[float] = []
        """How long each pod still held its place."""

    def look(self) -> None:
        """To be called a few times a second."""
        now_s = time.monotonic()
        for name, pod in dict(self._cluster.picture.pods).items():
            if pod["metadata"].get("deletionTimestamp"):
                grace_s = pod["metadata"]["deletionGracePeriodSeconds"]
                if now_s >= self._due_s.setdefault(name, now_s + grace_s):
                    self._cluster.delete(name)
                    self.took_s.append(time.monotonic() - self._due_s[name] + grace_s)


@pytest.mark.parametrize("grace_s", [2, 5])
def test_a_guarantee_of_whole_nodes_is_got_back_within_the_grace_of_who_has_borrowed(
    cluster: Cluster, grace_s: int
) -> None:
    """A gang of two whole nodes, of three that are full of another queue's pods of one GPU."""
    cluster.nodes(3, gpus=8)
    cluster.schedule(queues=[queue("a", guaranteed={GPU: 16}), queue("b", guaranteed={GPU: 8})])
    for k in range(24):
        cluster.pod(f"b{k}", gpus=1, annotations=named("b"), terminationGracePeriodSeconds=grace_s)
    cluster.picture.until(lambda: len(held(cluster, "b")) == 24, "b has borrowed all")
    kubelets = Kubelets(cluster)
    began_s = time.monotonic()
    cluster.gang("a", pods=2, gpus=8, annotations=named("a"))
    while cluster.n_bound("a") < 2:
        took_s = time.monotonic() - began_s
        assert took_s <= grace_s + 5.0, f"the guarantee is not held after {took_s:.1f} s"
        kubelets.look()
        time.sleep(0.05)
    took_s = time.monotonic() - began_s
    print(f"{took_s:.2f} s from the asking to the start, with a grace of {grace_s} s")
    assert min(kubelets.took_s) >= grace_s, "nobody went before its grace was over"
    assert took_s >= grace_s
    assert len(kubelets.took_s) == 16
    assert len(held(cluster, "b")) == 8, "what is guaranteed to it stays"
    assert {len(on) for on in nodes_of(cluster, "a")} == {1}, "each on a node of its own"


def nodes_of(cluster: Cluster, letter: str) -> list[list[str]]:
    """The pods that begin with this letter, by node."""
    pods = cluster.picture.pods
    found: dict[str, list[str]] = {}
    for name in held(cluster, letter):
        found.setdefault(node_of(pods[name]), []).append(name)
    return list(found.values())


def scheduler_beside_its_lease(cluster: Cluster, number: int) -> Scheduler:
    """Where leader election would have its lease, but without it."""
    path = write_config(
        cluster.directory / f"queues-{number}.yaml",
        queues=[queue("a"), queue("b")],
        fairness={"halfLife": "60s"},
    )
    documents: list[dict[str, Any]] = list(yaml.safe_load_all(path.read_text()))
    documents[0]["leaderElection"] = {"leaderElect": False, "resourceNamespace": "gangsched-system"}
    path.write_text(yaml.safe_dump_all(documents))
    account = service_account(cluster.plane, cluster.directory / f"queues-account-{number}.yaml")
    made = Scheduler(path, account, cluster.directory / f"queues-{number}.log")
    cluster.schedulers.append(made)
    return made


def test_what_queues_have_held_lately_survives_the_process(cluster: Cluster) -> None:
    cluster.plane.kubectl(
        "delete", "lease", "gangsched-queues", "-n", "gangsched-system", "--ignore-not-found"
    )
    cluster.nodes(1, gpus=8)
    first = scheduler_beside_its_lease(cluster, 0)
    cluster.pod("a", gpus=8, annotations=named("a"))
    cluster.whole("a")
    time.sleep(1.0)  # it holds all of the cluster for so long
    first.stop_cleanly()
    kept = json.loads(
        cluster.plane.request("GET", LEASE)["metadata"]["annotations"]["gangsched.io/queue-usage"]
    )
    assert kept["decayed"]["a"] > kept["decayed"]["b"] == 0.0
    second = scheduler_beside_its_lease(cluster, 1)
    cluster.eventually(lambda: "is known from before" in second.said, "the next one has read it")
    time.sleep(1.0)
    second.stop_cleanly()
    again = json.loads(
        cluster.plane.request("GET", LEASE)["metadata"]["annotations"]["gangsched.io/queue-usage"]
    )
    assert again["decayed"]["a"] > kept["decayed"]["a"], "it went on from there"
