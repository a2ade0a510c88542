"""Two replicas with the base's configuration: what cannot start, or lacks a member, says why and what would
let it go on; it holds no device meanwhile, and does not cost others their pods without end.

Pods and objects are as each system's users and controllers write them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gangsched.lab.controlplane.processes import ControlPlane
from tests import controllers as made
from tests.real.answers import NOBODY, printed
from tests.real.cluster import Cluster, checked
from tests.real.controllers import Controllers
from tests.real.picture import Json, node_of, reason_of
from tests.real.test_leader import says
from tests.real.test_preemption import priority_class
from tests.real.test_roles import CREATE, KAI, groups_of, n_bound, prepare
from tests.real.test_started_or_not import run, two_replicas

pytestmark = pytest.mark.real

DRA = "/apis/resource.k8s.io/v1"


@pytest.fixture
def cluster(fresh_cluster: ControlPlane, tmp_path: Path) -> Iterator[Cluster]:
    with checked(fresh_cluster, tmp_path) as made:
        priority_class(fresh_cluster, "high")
        yield made


def explained(cluster: Cluster, name: str) -> str:
    """As `gangsched explain` answers from what is on the API server alone."""
    flags = (f"--server={NOBODY}", f"--kubeconfig={cluster.plane.kubeconfig}")
    return " ".join(printed(["explain", f"default/{name}", *flags])[0].split())


# -- roles ----------------------------------------------------------------------------------------------


def test_a_ray_cluster_one_of_whose_groups_never_fits_holds_nothing(cluster: Cluster) -> None:
    """Under the autoscaler: a head, a worker of `gpus` at least, three now, and two of `big`."""
    controllers = Controllers(cluster)
    controllers.install("RayCluster")
    item = made.ray_cluster("ray", workers=3, min_workers=1, autoscaling=True)
    groups = item["spec"]["workerGroupSpecs"]
    groups.append({**groups[0], "groupName": "big", "replicas": 2, "minReplicas": 2})
    controllers.put(item)
    big = made.ray_pods("ray", workers=2, first=10, head=False, gpus=16)
    for one in big:
        one["metadata"]["labels"]["ray.io/group"] = "big"
    cluster.nodes(5, gpus=8)
    two_replicas(cluster)
    controllers.create([*made.ray_pods("ray", workers=3), *big])
    controllers.held("role big: ")
    cluster.gang("other", pods=5, gpus=8)
    cluster.whole("other")
    assert controllers.n_bound() == 0


def test_a_role_below_its_minimum_is_reported_in_every_form(cluster: Cluster) -> None:
    """It runs on; the gang has as many as before, and one role has too few."""
    prepare(cluster, "kai")
    cluster.nodes(4, gpus=8)
    leader, follower = two_replicas(cluster)
    for role, n in (("head", 2), ("worker", 2)):
        for k in range(n):
            CREATE["kai"](cluster, role, k)
    cluster.picture.until(lambda: n_bound(cluster) == 4, "all run")
    run(cluster, "g-head", "g-worker")
    cluster.delete("g-worker-0")
    lost = "gang default/g has lost members: 3 of 3 members run; role worker: 1 of 2"
    told = ("g", *(f"g-{role}-{k}" for role in ("head", "worker") for k in range(2)))
    cluster.eventually(lambda: cluster.events("LostMembers", *told), "an event says so")
    assert {one["note"] for one in cluster.events("LostMembers", *told)} == {lost}

    def status() -> Json:
        found: Json = cluster.plane.request("GET", f"{groups_of(KAI)}/g").get("status", {})
        return found

    cluster.eventually(lambda: "LostMembers" in str(status().get("schedulingConditions")), "its object does")
    assert status()["running"] == 3
    cluster.picture.until(lambda: "gangsched.io/GangWhole" in str(cluster.picture.pods), "a pod says so")
    since = "has lost members since: 3 of 3 members run; role worker: 1 of 2"
    assert since in explained(cluster, "g")
    leader.stop_cleanly()
    says(cluster, follower, " leading ")
    CREATE["kai"](cluster, "worker", 2)
    cluster.picture.until(lambda: n_bound(cluster, "worker") == 2, "a successor has its place")
    cluster.eventually(lambda: not status()["schedulingConditions"], "its object says it no more")
    assert "lost members" not in explained(cluster, "g")
    cluster.plane.request("DELETE", f"{groups_of(KAI)}/g")


# -- words ----------------------------------------------------------------------------------------------


@pytest.mark.since(36)
def test_a_share_of_a_device_is_refused_with_what_to_write(cluster: Cluster) -> None:
    """KAI's examples, with only the scheduler's name changed, on a node with whole devices."""
    shares = ({"gpu-fraction": "0.5"}, {"gpu-memory": "2000"}, {"gpu-fraction": "0.5", "mps": "true"})
    cluster.nodes(1, gpus=8)
    two_replicas(cluster)
    for k, own in enumerate(shares):
        cluster.pod(f"p-{k}", annotations=own, labels={"kai.scheduler/queue": "q"})
    for k, own in enumerate(shares):
        cluster.held(f"p-{k}", says=f"{next(iter(own))} asks KAI (and Run:ai) for a share")
        said = reason_of(cluster.picture.pods[f"p-{k}"])
        assert "ask for whole devices" in said
        assert "schedulerName: kai-scheduler" in said
    cluster.pod("whole", gpus=8)
    cluster.whole("whole")


# -- others' pods ---------------------------------------------------------------------------------------


class Remaker:
    """A controller and its scheduler, which knows nothing of our nominations: the successor of each pod that
    is asked to go has its node before anybody else can."""

    def __init__(self, cluster: Cluster, *nodes: str) -> None:
        self._cluster = cluster
        self.n = 0
        self._on = {node: self._make(node) for node in nodes}

    def _make(self, node: str) -> str:
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web"}
        name, self.n = f"web-{self.n}", self.n + 1
        owned = {"ownerReferences": [{**owner, "controller": True}]}
        self._cluster.pod(
            name, gpus=8, scheduler="another", metadata=owned, terminationGracePeriodSeconds=600
        )
        self._cluster.bind_by_hand(name, node)
        self._cluster.picture.until(lambda: name in self._cluster.picture.pods, f"{name} is shown")
        return name

    def remake(self) -> None:
        """To be called often."""
        for node, name in list(self._on.items()):
            if self._cluster.picture.pods[name]["metadata"].get("deletionTimestamp"):
                self._on[node] = self._make(node)
                self._cluster.delete(name)


def test_pods_that_others_recreate_are_not_evicted_without_end(cluster: Cluster) -> None:
    """Two rounds, whoever leads; then the gang says what goes on, and waits longer each time."""
    cluster.nodes(2, gpus=8)
    theirs = Remaker(cluster, "n0", "n1")
    leader, follower = two_replicas(cluster)
    cluster.gang("g", pods=2, gpus=8, priorityClassName="high")
    vain = "of evictions did not let it start, as pods of another scheduler took the room"

    def said() -> bool:
        theirs.remake()
        return vain in reason_of(cluster.members("g")[0])

    cluster.eventually(said, "it says what goes on")
    before = theirs.n
    assert 4 <= before <= 6, "two nodes, and one or two rounds"
    leader.stop_cleanly()
    says(cluster, follower, " leading ")
    cluster.pod("later", gpus=8)
    cluster.held("later", says="nodes are available")  # the gang was tried before it
    theirs.remake()
    assert theirs.n == before
    cluster.delete("later")
    cluster.nodes(2, gpus=8, first=2)
    cluster.whole("g")
    assert {node_of(pod) for pod in cluster.members("g")} == {"n2", "n3"}
    theirs.remake()
    assert theirs.n == before
