"""Parts of a CompositePodGroup, on a real API server with the gate on: they never start alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gangsched.lab.controlplane.assets import Assets
from gangsched.lab.controlplane.processes import GANG_API_SINCE, ControlPlane, minor_version
from tests.conftest import wipe
from tests.controllers import Json, pod
from tests.real.cluster import CORE_GROUPS, PODS, Cluster, checking
from tests.real.picture import node_of, reason_of

pytestmark = pytest.mark.real

GATES = "--feature-gates=CompositePodGroup=true,TopologyAwareWorkloadScheduling=true"
GANG: Json = {"gang": {"minCount": 2}}


@pytest.fixture
def cluster(assets: Assets, tmp_path: Path) -> Iterator[Cluster]:
    if minor_version(assets.path("kube-apiserver")) < GANG_API_SINCE:
        pytest.skip(f"CompositePodGroups are of Kubernetes 1.{GANG_API_SINCE}: `make controlplane` builds it")
    with ControlPlane(assets=assets, apiserver_flags=[GATES], unsafe_no_fsync=True) as plane:
        with checking(Cluster(plane, tmp_path)) as made:
            yield made
        wipe(plane)


def part(cluster: Cluster, name: str, policy: Json, *, parent: str = "") -> Json:
    """The PodGroup as the API server keeps it, and two pods of it."""
    spec: Json = {"schedulingPolicy": policy}
    if parent:
        spec["parentCompositePodGroupName"] = parent
        spec["workloadRef"] = {"workloadName": "w", "templateName": name}
    made: Json = cluster.plane.request("POST", CORE_GROUPS, {"metadata": {"name": name}, "spec": spec})
    for k in range(2):
        one = pod(f"{name}-{k}")
        one["spec"]["schedulingGroup"] = {"podGroupName": name}
        cluster.plane.request("POST", PODS, one)
    return made


@pytest.mark.parametrize("policy", [GANG, {"basic": {}}], ids=["gang", "basic"])
def test_a_part_of_a_tree_is_held_and_says_why(cluster: Cluster, policy: Json) -> None:
    cluster.nodes(8, gpus=8)
    cluster.schedule()
    kept = part(cluster, "a", policy, parent="root")
    assert kept["spec"]["parentCompositePodGroupName"] == "root", "the gate is on"
    part(cluster, "b", GANG)
    pods = cluster.picture.pods
    names = {f"{name}-{k}" for name in "ab" for k in range(2)}
    cluster.picture.until(lambda: names <= pods.keys(), "all pods are shown")
    cluster.picture.until(lambda: all(node_of(pods[f"b-{k}"]) for k in range(2)), "another gang starts")
    field = "spec.parentCompositePodGroupName: a PodGroup that is part of a CompositePodGroup"
    cluster.picture.until(lambda: field in reason_of(pods["a-0"]), "its pods say why they wait")
    assert not any(node_of(pods[f"a-{k}"]) for k in range(2))
