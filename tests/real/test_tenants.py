"""What a tenant can do to others, from outside, on a real API server: words that lift limits, and names.

Two namespaces share the nodes: `default`, in which these tests write, and `team-b`, of somebody else.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gangsched.lab.controlplane.processes import ControlPlane
from tests.real.cluster import CORE_GROUPS, MERGE, PODS, Cluster, checked
from tests.real.picture import OURS, Json, node_of
from tests.real.test_preemption import priority_class
from tests.support.processes import until

pytestmark = pytest.mark.real

OTHERS = "/api/v1/namespaces/team-b/pods"
GPU = "nvidia.com/gpu"


@pytest.fixture
def cluster(fresh_cluster: ControlPlane, tmp_path: Path) -> Iterator[Cluster]:
    plane = fresh_cluster
    names = [item["metadata"]["name"] for item in plane.request("GET", "/api/v1/namespaces")["items"]]
    if "team-b" not in names:
        plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": "team-b"}})
        account = "/api/v1/namespaces/team-b/serviceaccounts"
        known = [item["metadata"]["name"] for item in plane.request("GET", account)["items"]]
        if "default" not in known:
            plane.request("POST", account, {"metadata": {"name": "default"}})
    with checked(plane, tmp_path) as made:
        priority_class(plane, "high")
        yield made
        for item in plane.request("GET", OTHERS)["items"]:
            plane.request("DELETE", f"{OTHERS}/{item['metadata']['name']}", {"gracePeriodSeconds": 0})


def of_others(cluster: Cluster, name: str, *, gpus: int, grace_s: int = 0) -> None:
    """A pod in team-b that has started."""
    container = {"name": "main", "image": "busybox", "resources": {"limits": {GPU: str(gpus)}}}
    spec = {"schedulerName": OURS, "terminationGracePeriodSeconds": grace_s, "containers": [container]}
    cluster.plane.request("POST", OTHERS, {"metadata": {"name": name}, "spec": spec})
    until(lambda: bool(other(cluster, name)["spec"].get("nodeName")), f"{name} runs")


def other(cluster: Cluster, name: str) -> Json:
    found: Json = cluster.plane.request("GET", f"{OTHERS}/{name}")
    return found


def texts(cluster: Cluster, namespace: str) -> str:
    """All that readers of the namespace see: its pods with their conditions, its PodGroups and its events."""
    paths = (
        f"/api/v1/namespaces/{namespace}/pods",
        f"/apis/events.k8s.io/v1/namespaces/{namespace}/events",
        f"/apis/scheduling.k8s.io/v1beta1/namespaces/{namespace}/podgroups",
    )
    return " ".join(str(cluster.plane.request("GET", path)) for path in paths)


def n_started(cluster: Cluster) -> int:
    return sum(bool(node_of(pod)) for pod in dict(cluster.picture.pods).values())


def test_the_priority_of_a_pod_group_evicts_nobody(cluster: Cluster) -> None:
    """The API server gives it the class's value; no quota and no admission of pods has seen that."""
    cluster.nodes(1)
    cluster.schedule()
    of_others(cluster, "secret-project", gpus=8)
    wish: dict[str, Any] = {"priorityClassName": "high"}
    cluster.gang("a", pods=1, gpus=8, dialect="core", group_spec=wish)
    made = cluster.plane.request("GET", f"{CORE_GROUPS}/a")["spec"]
    assert made["priority"] == 1000
    cluster.held("a", says="0/1 nodes are available")
    cluster.unchanged("a")
    assert "deletionTimestamp" not in other(cluster, "secret-project")["metadata"]


def test_a_pod_group_counts_where_the_file_lists_its_class(cluster: Cluster) -> None:
    cluster.nodes(1)
    cluster.schedule(podGroupPriorityClasses=["high"])
    of_others(cluster, "gives-way", gpus=8)
    cluster.gang("a", pods=1, gpus=8, dialect="core", group_spec={"priorityClassName": "high"})
    cluster.whole("a")


def test_labels_of_kueue_start_nothing_above_a_limit(cluster: Cluster) -> None:
    labels = {"kueue.x-k8s.io/managed": "true", "kueue.x-k8s.io/queue-name": "q"}
    cluster.nodes(1)
    queues = [{"name": "all", "limit": {GPU: 4}, "namespaces": ["*"]}]
    cluster.schedule(queues=queues)
    for k in range(8):
        cluster.pod(f"p-{k}", gpus=1, labels=labels if k < 4 else {})
    cluster.picture.until(lambda: n_started(cluster) == 4, "four of eight have started")
    for name, pod in dict(cluster.picture.pods).items():
        if not node_of(pod):
            patch = {"metadata": {"labels": labels}}
            cluster.plane.request("PATCH", f"{PODS}/{name}", patch, content_type=MERGE)
            cluster.held(name, says="queue all: 4 of 4 nvidia.com/gpu used, needs 1")
    assert n_started(cluster) == 4


def test_no_name_of_another_namespace_stands_in_conditions_and_events(cluster: Cluster) -> None:
    """The victim takes its time: meanwhile both sides are told what they wait for, and why they go."""
    cluster.nodes(1)
    cluster.schedule()
    of_others(cluster, "secret-project", gpus=8, grace_s=600)
    cluster.gang("hidden-plan", pods=1, gpus=8, priorityClassName="high")
    cluster.held("hidden-plan", says="waiting for 1 pod of lower priority to go: a pod of another namespace")
    until(lambda: "Preempted" in texts(cluster, "team-b"), "the victim is told")
    assert "Preempted by a gang of another namespace on node n0" in texts(cluster, "team-b")
    assert "secret-project" not in texts(cluster, "default")
    assert "hidden-plan" not in texts(cluster, "team-b")
