"""Gangs that have to be in one rack, on a real API server: as a core PodGroup, and as Kubernetes' own Job."""

from __future__ import annotations

import pytest

from gangsched.model.stated.topology import TOPOLOGY_KEY
from tests.real.cluster import CORE_GROUPS, RACK
from tests.real.jobs import JobCluster
from tests.real.picture import Json, node_of

pytestmark = pytest.mark.real

ONE_RACK: Json = {"schedulingConstraints": {"topology": [{"key": RACK}]}}


@pytest.fixture
def cluster(job_cluster: JobCluster) -> JobCluster:
    return job_cluster


def racks(cluster: JobCluster, name: str) -> list[str]:
    """Where the gang's bound members are: node n0 is in rack r0, n1 in r1, n2 in r0 again, and so on."""
    return sorted({f"r{int(node_of(pod)[1:]) % 2}" for pod in cluster.members(name) if node_of(pod)})


def core_group(cluster: JobCluster, name: str) -> Json:
    found: Json = cluster.plane.request("GET", f"{CORE_GROUPS}/{name}")
    return found


def message_of(group: Json) -> str:
    conditions = group.get("status", {}).get("conditions", [])
    return str(conditions[0].get("message", "")) if conditions else ""


def test_a_core_pod_group_is_bound_in_one_rack_or_not_at_all(cluster: JobCluster) -> None:
    """Two racks of two nodes: two members share one, three are not bound over both."""
    cluster.nodes(4, gpus=8, racks=2)
    cluster.schedule()
    cluster.gang("large", pods=3, dialect="core", group_spec=ONE_RACK)
    says = f"no {RACK} has room for 3 members: r0 could take 2, r1 could take 2."
    cluster.held("large", says=says)
    cluster.eventually(lambda: says in message_of(core_group(cluster, "large")), "its PodGroup says so too")
    cluster.unchanged("large")

    cluster.gang("small", pods=2, dialect="core", group_spec=ONE_RACK)
    cluster.whole("small")
    assert racks(cluster, "small") == ["r0"]

    cluster.nodes(2, gpus=8, racks=2, first=4)  # a third node of each rack
    cluster.whole("large")
    assert racks(cluster, "large") == ["r1"]


def test_a_job_with_a_constraint_is_bound_in_one_rack_or_not_at_all(cluster: JobCluster) -> None:
    cluster.nodes(4, gpus=8, racks=2)
    cluster.schedule()
    gang: Json = {"schedulingPolicy": {"gang": {}}, **ONE_RACK}
    cluster.job("large", pods=3, scheduling=gang)
    cluster.held("large", says=f"no {RACK} has room for 3 members")
    assert cluster.group_of("large")["spec"]["schedulingConstraints"] == ONE_RACK["schedulingConstraints"]
    cluster.job("small", pods=2, scheduling=gang)
    cluster.whole("small")
    assert len(racks(cluster, "small")) == 1
    cluster.nodes(2, gpus=8, racks=2, first=4)
    cluster.whole("large")
    assert len(racks(cluster, "large")) == 1


def test_a_member_that_is_replaced_stays_in_the_rack_of_the_others(cluster: JobCluster) -> None:
    cluster.nodes(4, gpus=8, racks=2)
    cluster.schedule()
    cluster.job("a", pods=2, scheduling={"schedulingPolicy": {"gang": {}}, **ONE_RACK})
    cluster.whole("a")
    before = racks(cluster, "a")
    cluster.ends(cluster.members("a")[0], "Failed")
    cluster.whole("a", pods=2)
    assert racks(cluster, "a") == before


def test_the_annotation_holds_beside_what_the_controller_writes(cluster: JobCluster) -> None:
    cluster.nodes(4, gpus=8, racks=2)
    cluster.schedule()
    cluster.gang("a", pods=3, annotations={TOPOLOGY_KEY: f"required: {RACK}"})
    cluster.held("a", says=f"no {RACK} has room for 3 members")
    cluster.gang("b", pods=3, annotations={TOPOLOGY_KEY: f"preferred: {RACK}"})
    cluster.whole("b")
    assert racks(cluster, "b") == ["r0", "r1"]
    cluster.gang("c", pods=1, annotations={TOPOLOGY_KEY: "rack"})
    cluster.held("c", says=f"{TOPOLOGY_KEY}: 'rack' is not a level of topology")
