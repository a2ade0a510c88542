"""What-if and explain agree with what then happens: random jobs on random clusters, on a real API server.

Each job is asked about with `gangsched whatif` (nodes, devices ID for ID, victims, or why not), then
submitted to the running scheduler; of one that does not start, its condition and `gangsched explain` say what
was predicted. A lone pod gets one of several equally good nodes at random, as with kube-scheduler: of it only
that it starts is compared. GANGSCHED_AGREEMENT_JOBS says how many jobs; 500 take some minutes.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
import yaml

from gangsched.lab.controlplane.processes import ControlPlane
from gangsched.model.devices.annotations import ALLOCATED_KEY
from tests.conftest import wipe
from tests.real.answers import AskedCluster, printed
from tests.real.cluster import PODS, RACK, checking, words
from tests.real.picture import GPU, OURS, Json, node_of, reason_of
from tests.real.process import service_account
from tests.real.test_preemption import priority_class

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]

SEED = 20261123
N_JOBS = int(os.environ.get("GANGSCHED_AGREEMENT_JOBS", "40"))
N_A_CLUSTER = 10
# The first members by name have the full text.
N_SPEAKERS = 5


@pytest.fixture
def cluster(fresh_cluster: ControlPlane, tmp_path: Path) -> Iterator[AskedCluster]:
    with checking(AskedCluster(fresh_cluster, tmp_path)) as made:
        priority_class(fresh_cluster, "high")
        yield made


class Jobs:
    """Random jobs on one random cluster after the other."""

    def __init__(self, cluster: AskedCluster, seed: int) -> None:
        self.cluster = cluster
        self.seed = seed
        self.rng = Random(seed)
        self.account = service_account(cluster.plane, cluster.directory / "account.yaml")
        self.running: list[list[str]] = []
        self.came_of_it: Counter[str] = Counter()

    # -- clusters --------------------------------------------------------------------------------------

    def new_cluster(self, number: int) -> None:
        """Other nodes, and a scheduler that finds them there.

        Which of equal nodes comes first follows from the order in which a scheduler has heard of them: for
        one that has just started, and for a snapshot, that is the API server's.
        """
        cluster, rng = self.cluster, self.rng
        for scheduler in cluster.schedulers:
            if scheduler.running:
                scheduler.stop_cleanly()
        wipe(cluster.plane)
        cluster.picture.until(lambda: not cluster.picture.pods, "no pod is left")
        self.running.clear()
        for i in range(rng.randint(2, 6)):
            name = f"c{number}-n{i}"
            ids = [f"GPU-{name}-{k}" for k in range(rng.choice((2, 4, 8)))]
            devices = [{"id": one, "health": "Healthy", "numa": k // 4} for k, one in enumerate(ids)]
            cluster.node(name, devices, rack=f"r{rng.randrange(2)}")
        scheduler = cluster.schedule(kubeconfig=self.account)
        cluster.eventually(lambda: "synced, scheduling" in scheduler.said, "it has listed everything")

    def end_one(self) -> None:
        """Some job that runs ends."""
        if self.running:
            self.delete(self.running.pop(self.rng.randrange(len(self.running))))

    def delete(self, names: list[str]) -> None:
        for name in names:
            if name in self.cluster.picture.pods:
                self.cluster.plane.request("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})
        pods = self.cluster.picture.pods
        self.cluster.picture.until(lambda: pods.keys().isdisjoint(names), f"{names} are gone")

    # -- jobs ------------------------------------------------------------------------------------------

    def job(self, name: str) -> list[Json]:
        """A lone pod or a gang, at times one that is picky, large or urgent."""
        rng = self.rng
        n, gpus = rng.randint(1, 6), rng.choice((1, 2, 4, 8))
        labels, annotations = words("ours", name, n) if n > 1 or rng.random() < 0.5 else ({}, {})
        spec: Json = {"schedulerName": OURS, "terminationGracePeriodSeconds": 0}
        kind = rng.random()
        if labels and kind < 0.15:
            annotations["gangsched.io/topology"] = f"required: {RACK}"
        elif kind < 0.25:
            spec["nodeSelector"] = {RACK: rng.choice(("r0", "r1", "r2"))}
        elif labels and kind < 0.35:
            annotations["gangsched.io/device-constraints"] = json.dumps({GPU: {"sameNUMA": True}})
        if labels and rng.random() < 0.15:
            spec["priorityClassName"] = "high"
        limits = {GPU: str(gpus), "cpu": rng.choice(("1", "8", "24"))}
        spec["containers"] = [{"name": "main", "image": "busybox", "resources": {"limits": limits}}]
        metadata = {"labels": labels, "annotations": annotations}
        one = {"apiVersion": "v1", "kind": "Pod", "spec": spec}
        return [{**one, "metadata": {"name": f"{name}-{k}", **metadata}} for k in range(n)]

    def asked_and_submitted(self, name: str) -> None:
        """Asked about, submitted, and compared with what came of it."""
        pods = self.job(name)
        names = [pod["metadata"]["name"] for pod in pods]
        code, found = self.what_if(pods)
        [gang] = found["gangs"]
        about = f"{name} of seed {self.seed}: {json.dumps(pods[0])} x {len(pods)}, predicted {found}"
        assert code == (0 if gang["starts"] == "now" else 3), about
        before = set(self.cluster.picture.pods)
        for pod in pods:
            self.cluster.plane.request("POST", PODS, pod)
        picture = self.cluster.picture
        decided = self._decided(names)
        picture.until(decided, about)
        bound = {one: placed(picture.pods[one]) for one in names if node_of(picture.pods[one])}
        if code:
            assert not bound, about
            self._why_not(name, names, gang["why"], about)
            self.delete(names)
            self.came_of_it["does not fit"] += 1
            return
        told = {one["name"]: (one["node"], one["devices"].get(GPU, [])) for one in gang["members"]}
        if labelled := bool(pods[0]["metadata"]["labels"]):
            assert bound == told, about
        assert labelled or bound.keys() == told.keys(), about
        evicted = {one.removeprefix("default/") for one in found["evicted"]}
        picture.until(lambda: before - set(picture.pods) == evicted, f"{evicted} are evicted: {about}")
        self.running.append(names)
        self.came_of_it["evicts" if evicted else "fits"] += 1

    def what_if(self, pods: list[Json]) -> tuple[int, Json]:
        file = self.cluster.directory / "job.yaml"
        file.write_text(yaml.safe_dump_all(pods))
        kubeconfig = f"--kubeconfig={self.cluster.plane.kubeconfig}"
        out, code = printed(["whatif", "-f", str(file), "-o", "json", "--preempt", kubeconfig])
        return code, json.loads(out)

    def _decided(self, names: list[str]) -> Callable[[], bool]:
        """All are bound, or those that speak for them say why not; nothing waits for victims."""

        def seen() -> bool:
            pods = self.cluster.picture.pods
            if not all(one in pods for one in names):
                return False
            if all(node_of(pods[one]) for one in names):
                return True
            said = [reason_of(pods[one]) for one in sorted(names)[:N_SPEAKERS]]
            return all(said) and not any("to go: " in one or "is reserved" in one for one in said)

        return seen

    def _why_not(self, name: str, names: list[str], why: Json, about: str) -> None:
        """The condition, and the running scheduler, say what was predicted."""
        assert reason_of(self.cluster.picture.pods[names[0]]) == why["told"], about
        labels = self.cluster.picture.pods[names[0]]["metadata"].get("labels", {})
        text, code = self.cluster.asked(name if labels else names[0], "-o", "json")
        [page] = json.loads(text)
        assert code == 3, about
        assert page["explanation"]["answer"] == why["answer"], about
        assert page["explanation"]["cures"] == why["cures"], about


def placed(pod: Json) -> tuple[str, list[str]]:
    """(node, device IDs) of a bound pod."""
    text = pod["metadata"].get("annotations", {}).get(ALLOCATED_KEY)
    return node_of(pod), json.loads(text)["main"].get(GPU, []) if text else []


def test_what_was_predicted_happens(
    cluster: AskedCluster, record_property: Callable[[str, object], None]
) -> None:
    print(f"seed {SEED}, {N_JOBS} jobs")
    jobs = Jobs(cluster, SEED)
    for k in range(N_JOBS):
        if not k % N_A_CLUSTER:
            jobs.new_cluster(k // N_A_CLUSTER)
        elif jobs.rng.random() < 0.4:
            jobs.end_one()
        jobs.asked_and_submitted(f"job{k}")
    told = ", ".join(f"{n} {what}" for what, n in sorted(jobs.came_of_it.items()))
    record_property("figure", f"what-if and explain agreed for {N_JOBS} of {N_JOBS} jobs: {told}")
    assert {"fits", "does not fit"} <= jobs.came_of_it.keys(), jobs.came_of_it
