"""Objects that once cost every leader its lease, on 2,000 nodes: the base's configuration, two replicas."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.hostile.heavy import BOUND, HEAVY
from tests.real.cluster import MERGE, PODS, Cluster
from tests.real.fuzz import Api
from tests.real.picture import Json, condition_of, node_of
from tests.real.test_leader import transitions
from tests.real.test_started_or_not import two_replicas

pytestmark = pytest.mark.real

N_NODES, N_THREADS = 2_000, 4
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def many_nodes(cluster: Cluster) -> None:
    """As kubelets register them: with their status."""
    room = {"cpu": "64", "memory": "512Gi", "pods": "110"}
    labels = {"number": "7", "topology.kubernetes.io/zone": "a"}

    def make(first: int) -> None:
        api = Api(cluster.plane)
        for i in range(first, N_NODES, N_THREADS):
            metadata = {"name": f"m{i}", "labels": {"kubernetes.io/hostname": f"m{i}", **labels}}
            body = {"metadata": metadata, "status": {"allocatable": room, "capacity": room}}
            code, answer = api.send("POST", "/api/v1/nodes", json.dumps(body).encode())
            assert code == 201, answer

    with ThreadPoolExecutor(N_THREADS) as threads:
        list(threads.map(make, range(N_THREADS)))


def volumes(cluster: Cluster) -> None:
    """A local volume on each node, of a class whose claims wait for their pod."""
    name = {"metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner"}
    waits = {**name, "volumeBindingMode": "WaitForFirstConsumer"}
    cluster.plane.request("POST", "/apis/storage.k8s.io/v1/storageclasses", waits)

    def make(first: int) -> None:
        api = Api(cluster.plane)
        for i in range(first, N_NODES, N_THREADS):
            on = [{"key": "kubernetes.io/hostname", "operator": "In", "values": [f"m{i}"]}]
            body = {
                "metadata": {"name": f"v{i}"},
                "spec": {
                    "capacity": {"storage": "9Gi"},
                    "accessModes": ["ReadWriteOnce"],
                    "storageClassName": "local",
                    "local": {"path": "/disk"},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": on}]}},
                },
            }
            code, answer = api.send("POST", "/api/v1/persistentvolumes", json.dumps(body).encode())
            assert code == 201, answer
            # No volume controller runs here, which would say so.
            code, answer = api.send(
                "PATCH",
                f"/api/v1/persistentvolumes/v{i}/status",
                b'{"status": {"phase": "Available"}}',
                kind=MERGE,
            )
            assert code == 200, answer

    with ThreadPoolExecutor(N_THREADS) as threads:
        list(threads.map(make, range(N_THREADS)))


def claiming(cluster: Cluster, name: str, n: int) -> None:
    """A pod with `n` claims that have no volume, each of another size."""
    for k in range(n):
        claim = {
            "metadata": {"name": f"{name}-{k}"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "local",
                "resources": {"requests": {"storage": f"{k + 1}Mi"}},
            },
        }
        cluster.plane.request("POST", "/api/v1/namespaces/default/persistentvolumeclaims", claim)
    mounts = [{"name": f"d{k}", "persistentVolumeClaim": {"claimName": f"{name}-{k}"}} for k in range(n)]
    cluster.pod(name, volumes=mounts)


def apart(member: int) -> Json:
    """Terms as many as one pod may have, none like another member's."""
    terms = [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": f"v{member}-{k}"}}}
        for k in range(100)
    ]
    return {"podAntiAffinity": {REQUIRED: terms}}


def create(cluster: Cluster, body: Json, **spec: str) -> None:
    del body["metadata"]["uid"]
    body["spec"] |= spec
    cluster.plane.request("POST", PODS, body)


def test_the_leader_stays_whatever_one_tenant_creates(cluster: Cluster) -> None:
    many_nodes(cluster)
    leader, follower = two_replicas(cluster)
    terms = HEAVY["node affinity Gt and NotIn"]("terms", 10**6)
    wanted = terms["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    del wanted[3_000:]
    apart = HEAVY["pod anti-affinity"]("apart", 10**6)
    del apart["spec"]["affinity"]["podAntiAffinity"][REQUIRED][400:]
    for k in range(20):
        there = BOUND["anti-affinity against all namespaces"](f"there-{k}", 10**6)
        assert len(there["spec"]["affinity"]["podAntiAffinity"][REQUIRED]) == 2_000
        create(cluster, there, nodeName=f"m{k}")
    create(cluster, terms)
    create(cluster, apart)
    for k in range(3):
        cluster.gang(f"good{k}", pods=4, gpus=0)
        cluster.whole(f"good{k}")
    limits = {
        "terms": "spec.affinity.nodeAffinity: 6,000 requirements",
        "apart": "spec.affinity: podAntiAffinity: 400 terms",
    }
    for name, limit in limits.items():
        cluster.held(name, says=limit)
        assert ", at most 1" in condition_of(cluster.picture.pods[name])["message"]
    assert {node_of(cluster.picture.pods[f"there-{k}"]) for k in range(20)} == {f"m{k}" for k in range(20)}
    assert transitions(cluster) == 0
    assert leader.running
    assert follower.running
    assert " leading " not in follower.said


def test_the_leader_stays_whatever_claims_and_gangs_ask_together(cluster: Cluster) -> None:
    many_nodes(cluster)
    volumes(cluster)
    leader, follower = two_replicas(cluster)
    claiming(cluster, "many", 300)
    claiming(cluster, "hundred", 100)
    for k in range(300):
        cluster.gang("heavy", pods=300, gpus=0, members=[k], affinity=apart(k))
    for k in range(3):
        cluster.gang(f"good{k}", pods=4, gpus=0)
        cluster.whole(f"good{k}")
    cluster.held("many", says="300 PVCs without a volume, at most 100 are compared with each node")
    cluster.held("hundred", says="didn't find available persistent volumes to bind")
    cluster.held("heavy", says="all pods that start together ask too much in podAffinity")
    assert transitions(cluster) == 0
    assert leader.running
    assert follower.running
    assert " leading " not in follower.said
