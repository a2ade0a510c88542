"""Two replicas with the base's configuration: what is not known of a node, or not understood, is not free.

The nodes, their lists, and what kubelets and drivers say of themselves are written here as they do it.
"""

from __future__ import annotations

import json

import pytest

from tests.real.cluster import MERGE, PODS, Cluster
from tests.real.picture import GPU, Json, ids_of, node_of
from tests.real.test_leader import says
from tests.real.test_started_or_not import two_replicas, write_status

pytestmark = pytest.mark.real

WITH_IDS = {"gangsched.io/require-device-ids": "true"}
UNKNOWN = f"node(s) where it is not known which of the listed {GPU} the pods there have"
ROOM = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: "8"}
DRIVERS, CSI_NODES = "/apis/storage.k8s.io/v1/csidrivers", "/apis/storage.k8s.io/v1/csinodes"
RESTARTS_ALL = "RestartAllContainersOnContainerExits"


def listed(prefix: str) -> str:
    return json.dumps({GPU: [{"id": f"{prefix}-{k}", "health": "Healthy"} for k in range(8)]})


def without_a_list(cluster: Cluster, name: str) -> None:
    """A node with eight GPUs, before its agent has said which."""
    cluster.plane.request("POST", "/api/v1/nodes", {"metadata": {"name": name}})
    status = {"status": {"allocatable": ROOM, "capacity": ROOM}}
    cluster.plane.request("PATCH", f"/api/v1/nodes/{name}/status", status, content_type=MERGE)


def ids(cluster: Cluster, name: str) -> list[str]:
    """The devices of a lone pod or of a gang's members that are bound."""
    return sorted(one for pod in cluster.members(name) if node_of(pod) for one in ids_of(pod))


def test_no_ids_are_given_beside_another_schedulers_pod_until_it_is_gone(cluster: Cluster) -> None:
    cluster.nodes(1, gpus=8)
    cluster.pod("stranger", gpus=4, scheduler="another")
    cluster.bind_by_hand("stranger", "n0")
    leader, follower = two_replicas(cluster)
    cluster.gang("exact", pods=2, gpus=2, annotations=WITH_IDS)
    cluster.held("exact", says=UNKNOWN)
    cluster.pod("counted", gpus=2)
    cluster.whole("counted")
    assert ids(cluster, "counted") == [], "it asks for two, whichever"
    leader.stop_cleanly()
    says(cluster, follower, " leading ")
    cluster.delete("stranger")
    cluster.gang("later", pods=1, gpus=1, annotations=WITH_IDS)
    cluster.held("later", says=UNKNOWN)  # counted has two of the eight, and nobody knows which
    assert cluster.n_bound("exact") == 0
    cluster.delete("counted")
    cluster.whole("exact", "later")
    assert len(set(ids(cluster, "exact") + ids(cluster, "later"))) == 5


def test_no_ids_are_given_beside_pods_bound_by_count_or_after_a_renaming(cluster: Cluster) -> None:
    without_a_list(cluster, "n0")
    two_replicas(cluster)
    cluster.pod("old", gpus=4)
    cluster.whole("old")
    cluster.annotate_node("n0", listed("GPU"))
    cluster.gang("new", pods=1, gpus=4, annotations=WITH_IDS)
    cluster.held("new", says=UNKNOWN)
    cluster.delete("old")
    cluster.whole("new")
    assert len(ids(cluster, "new")) == 4
    cluster.annotate_node("n0", listed("MIG"))
    cluster.gang("next", pods=1, gpus=4, annotations=WITH_IDS)
    cluster.held("next", says=UNKNOWN)
    cluster.delete("new")
    cluster.whole("next")
    assert {one[:3] for one in ids(cluster, "next")} == {"MIG"}


@pytest.mark.since(37)
def test_no_pod_goes_where_kubelet_would_refuse_it(cluster: Cluster) -> None:
    """A feature that one kubelet has, a driver that one node has, and cpu that a smaller pod still holds."""
    cluster.nodes(2, gpus=8)
    features = {"status": {"declaredFeatures": ["AnotherFeature"]}}
    cluster.plane.request("PATCH", "/api/v1/nodes/n0/status", features, content_type=MERGE)
    driver = {"metadata": {"name": "d.example.com"}, "spec": {"preventPodSchedulingIfMissing": True}}
    made = cluster.plane.request("POST", DRIVERS, driver)
    try:
        assert made["spec"]["preventPodSchedulingIfMissing"], "it is served"
        two_replicas(cluster)
        restarts: list[Json] = [
            {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
        ]
        container = {"name": "main", "image": "busybox", "restartPolicyRules": restarts}
        cluster.pod("feature", containers=[{**container, "restartPolicy": "Never"}], restartPolicy="Never")
        cluster.held("feature", says="node(s) didn't match Pod's required features")
        cluster.pod("driver", volumes=[{"name": "v", "csi": {"driver": "d.example.com"}}])
        cluster.held("driver", says="CSI driver is not installed on the node")
        features = {"status": {"declaredFeatures": [RESTARTS_ALL]}}
        cluster.plane.request("PATCH", "/api/v1/nodes/n1/status", features, content_type=MERGE)
        uid = cluster.plane.request("GET", "/api/v1/nodes/n0")["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "Node", "name": "n0", "uid": uid}
        spec = {"drivers": [{"name": "d.example.com", "nodeID": "n0"}]}
        body = {"metadata": {"name": "n0", "ownerReferences": [owner]}, "spec": spec}
        cluster.plane.request("POST", CSI_NODES, body)
        cluster.whole("feature", "driver")
        assert node_of(cluster.picture.pods["feature"]) == "n1"
        assert node_of(cluster.picture.pods["driver"]) == "n0"
    finally:
        cluster.plane.request("DELETE", f"{DRIVERS}/d.example.com")


def has_cpu(cluster: Cluster, name: str, cpu: str, **status: object) -> None:
    """As its kubelet says that it runs with so much."""
    amount, started = {"cpu": cpu}, "2026-01-01T00:00:00Z"
    one = {
        "name": "main",
        "image": "busybox",
        "imageID": "",
        "ready": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": started}},
        "allocatedResources": amount,
        "resources": {"requests": amount},
    }
    write_status(cluster, name, phase="Running", startTime=started, containerStatuses=[one], **status)


def resize(cluster: Cluster, name: str, cpu: str) -> int:
    """Its user asks for so much; returns the pod's generation."""
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    body = {"spec": {"containers": [container]}}
    strategic = "application/strategic-merge-patch+json"
    made = cluster.plane.request("PATCH", f"{PODS}/{name}/resize", body, content_type=strategic)
    return int(made["metadata"]["generation"])


def test_what_a_pod_made_smaller_still_has_is_not_given_to_others(cluster: Cluster) -> None:
    cluster.nodes(1, gpus=8)
    two_replicas(cluster)
    cluster.pod("large", cpu="60")
    cluster.whole("large")
    has_cpu(cluster, "large", "60", observedGeneration=1)
    seen = resize(cluster, "large", "1")
    cluster.pod("next", cpu="40")
    cluster.held("next", says="Insufficient cpu")  # its kubelet has not seen the new spec
    going_on = [{"type": "PodResizeInProgress", "status": "True", "observedGeneration": seen}]
    has_cpu(cluster, "large", "60", observedGeneration=seen, conditions=going_on)
    cluster.pod("second", cpu="40")
    cluster.held("second", says="Insufficient cpu")
    assert not node_of(cluster.picture.pods["next"])
    has_cpu(cluster, "large", "1", conditions=[])
    cluster.picture.until(
        lambda: [bool(node_of(cluster.picture.pods[name])) for name in ("next", "second")].count(True) == 1,
        "one of them has what was given back",
    )
