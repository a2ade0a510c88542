"""The main job on a real kube-apiserver: gangs held, placed whole with their devices, or given back."""

from __future__ import annotations

import json

import pytest

from gangsched.lab.controlplane.processes import GANG_API_SINCE
from tests.real.cluster import (
    CORE_GROUPS,
    COSCHEDULING_GROUPS,
    CRD,
    DIALECTS,
    MERGE,
    PODS,
    Cluster,
    together,
)
from tests.real.picture import GPU, annotation, condition_of, ids_of, node_of, reason_of

pytestmark = pytest.mark.real


CORE = pytest.param("core", marks=pytest.mark.since(GANG_API_SINCE))


@pytest.mark.parametrize("dialect", [CORE if dialect == "core" else dialect for dialect in DIALECTS])
def test_gang_is_bound_whole_or_held(cluster: Cluster, dialect: str) -> None:
    cluster.nodes(3, gpus=8)
    cluster.schedule()
    cluster.gang("a", pods=2, gpus=8, dialect=dialect)
    cluster.whole("a")
    assert {annotation(p, "gangsched.io/gang") for p in cluster.members("a")} == {"default/a"}
    assert sorted(annotation(p, "gangsched.io/rank") for p in cluster.members("a")) == ["0", "1"]
    assert all(len(ids_of(pod)) == 8 for pod in cluster.members("a"))

    cluster.gang("b", pods=2, gpus=8, dialect=dialect)
    cluster.held("b", says=f"Insufficient {GPU}")
    reasons = {reason_of(pod) for pod in cluster.members("b")}
    assert len(reasons) == 1, "one reason for the whole gang"
    about = "b" if dialect in ("core", "coscheduling") else "b-0"
    said = cluster.event("FailedScheduling", about)
    assert (said["type"], said["note"], said["reportingController"]) == ("Warning", *reasons, "gangsched")
    cluster.pod("lone", gpus=0)
    cluster.whole("lone")  # others come and go meanwhile
    cluster.unchanged("b")
    assert len(cluster.events("FailedScheduling", "b", "b-0", "b-1")) == 1

    cluster.delete("a")
    cluster.whole("b")
    cluster.event("GangScheduled", about)


def test_lone_pod_is_a_gang_of_one(cluster: Cluster) -> None:
    cluster.nodes(1, gpus=8)
    cluster.schedule()
    cluster.pod("p", gpus=3)
    cluster.pod("q")
    cluster.whole("p", "q")
    [p], [q] = cluster.members("p"), cluster.members("q")
    assert len(ids_of(p)) == 3
    assert not ids_of(q)
    assert "default/p" in cluster.event("Scheduled", "p")["note"]
    cluster.pod("r", gpus=6)
    cluster.held("r", says=f"0/1 nodes are available: 1 Insufficient {GPU}")
    cluster.delete("p")
    cluster.whole("r")


def test_gang_is_packed_into_one_rack(cluster: Cluster) -> None:
    cluster.nodes(6, gpus=8, racks=3)
    cluster.schedule()
    cluster.gang("a", pods=2, gpus=8)
    cluster.whole("a")
    racks = {int(node_of(pod)[1:]) % 3 for pod in cluster.members("a")}
    assert len(racks) == 1
    cluster.gang("b", pods=4, gpus=4)
    cluster.whole("b")
    assert len({node_of(pod) for pod in cluster.members("b")}) == 2


def test_a_large_gang_tells_why_on_a_few_members_and_leaves_the_others_unwritten(cluster: Cluster) -> None:
    cluster.nodes(2, gpus=8)
    cluster.schedule()
    cluster.gang("a", pods=14, gpus=2)
    cluster.held("a", says="8 of 14 fit")
    before = versions(cluster, "a")
    speakers = list(before)[:5]
    assert [p["metadata"]["name"] for p in cluster.members("a") if "8 of 14" in reason_of(p)] == speakers
    cluster.nodes(1, gpus=8, first=2)
    cluster.held("a", says="12 of 14 fit")
    now = versions(cluster, "a")
    assert [name for name in now if now[name] != before[name]] == speakers


def versions(cluster: Cluster, gang: str) -> dict[str, str]:
    """The resourceVersion of each member, by name in order."""
    return {pod["metadata"]["name"]: pod["metadata"]["resourceVersion"] for pod in cluster.members(gang)}


def test_pods_of_other_schedulers_are_counted_and_left_alone(cluster: Cluster) -> None:
    cluster.nodes(2, gpus=8)
    cluster.pod("theirs", gpus=8, scheduler="default-scheduler")
    cluster.bind_by_hand("theirs", "n0")
    cluster.pod("nominated", gpus=8, scheduler="default-scheduler")
    status = {"status": {"nominatedNodeName": "n1"}}
    cluster.plane.request("PATCH", f"{PODS}/nominated/status", status, content_type=MERGE)
    cluster.pod("pending", gpus=8, scheduler="default-scheduler")
    cluster.schedule()
    cluster.gang("a", pods=2, gpus=4)
    cluster.held("a", says=f"Insufficient {GPU}")
    for name in ("nominated", "pending"):
        [pod] = cluster.members(name)
        assert not node_of(pod)
        assert not condition_of(pod), "not ours to write to"
    # The nominated pod goes elsewhere: its room is free for the gang.
    cluster.delete("nominated")
    cluster.whole("a")
    assert {node_of(pod) for pod in cluster.members("a")} == {"n1"}


@pytest.mark.parametrize("dialect", ["ours", CORE])
def test_gangs_start_together(cluster: Cluster, dialect: str) -> None:
    cluster.nodes(3, gpus=8)
    cluster.schedule()
    cluster.gang("a", pods=2, dialect=dialect, annotations=together("a", "b"))
    cluster.held("a", says="is reserved and waits: group default/b does not exist")
    cluster.event("GangWaiting", "a", "a-0")
    cluster.pod("small", gpus=8)
    cluster.whole("small")  # what waits holds two nodes, and only those
    cluster.gang("b", pods=1, gpus=8, dialect=dialect, annotations=together("a", "b"))
    cluster.held("b", says=f"Insufficient {GPU}")
    assert not cluster.n_bound("a"), "no room for both: neither starts"
    cluster.delete("small")
    cluster.whole("a", "b")


def test_total_members_are_waited_for_and_given_up(cluster: Cluster) -> None:
    cluster.nodes(2, gpus=8)
    cluster.schedule(permitWaitSeconds=2)
    total = {"gangsched.io/total-members": "4"}
    cluster.gang("a", pods=3, gpus=4, min_count=2, annotations=total)
    cluster.gangs["a"] = 4
    cluster.held("a", says="3 of 4 members are here", members=3)
    cluster.event("GangWaiting", "a-0")
    # Nobody comes: on the deadline it holds nothing any more.
    cluster.held("a", says="WaitOnPermit timed out", members=3)
    assert "WaitOnPermit timed out" in cluster.event("GangAborted", "a-0")["note"]
    cluster.gang("a", pods=4, gpus=4, min_count=2, members=[3], annotations=total)
    cluster.gangs["a"] = 4
    cluster.whole("a")


@pytest.mark.parametrize("dialect", [CORE, "coscheduling"])
def test_permit_timeout_is_reported_on_the_group(cluster: Cluster, dialect: str) -> None:
    groups = CORE_GROUPS if dialect == "core" else COSCHEDULING_GROUPS
    cluster.nodes(1, gpus=8)
    cluster.schedule(permitWaitSeconds=2)
    cluster.gang("a", pods=2, gpus=4, dialect=dialect, annotations=together("a", "b"))
    cluster.event("GangWaiting", "a")
    aborted = cluster.event("GangAborted", "a")
    assert aborted["regarding"]["kind"] == "PodGroup"
    cluster.held("a", says="WaitOnPermit timed out")

    def status() -> dict[str, object]:
        read: dict[str, object] = cluster.plane.request("GET", f"{groups}/a").get("status", {})
        return read

    def condition() -> dict[str, str]:
        found = status().get("conditions")
        return found[0] if isinstance(found, list) and found else {}

    if dialect == "core":
        cluster.eventually(lambda: "timed out" in condition().get("message", ""), "the condition says so")
        assert (condition()["type"], condition()["status"]) == ("PodGroupInitiallyScheduled", "False")
        assert condition()["lastTransitionTime"].endswith("Z")
    else:
        cluster.eventually(lambda: status().get("phase") == "Pending", "the phase says so")
    cluster.gang("b", pods=1, gpus=0, dialect=dialect, annotations=together("a", "b"))
    cluster.whole("a", "b")
    if dialect == "core":
        cluster.eventually(lambda: condition().get("status") == "True", "the condition says so")
    else:
        cluster.eventually(lambda: status().get("phase") in ("Scheduled", "Running"), "the phase says so")


def test_min_resources_are_what_the_cluster_must_have(
    cluster: Cluster,
) -> None:
    """As the MPI operator writes it: a launcher that may come later is in minResources, the timeout is 0."""
    cluster.nodes(2, gpus=8)
    cluster.schedule()
    spec = {"minResources": {GPU: 20}, "scheduleTimeoutSeconds": 0}
    cluster.gang("a", pods=2, gpus=4, dialect="coscheduling", group_spec=spec)
    cluster.held("a", says=f"minResources is 20 {GPU} and all nodes together have 16")
    cluster.nodes(1, gpus=8, first=2)
    cluster.whole("a")


def test_crd_that_comes_later_is_picked_up(cluster: Cluster) -> None:
    cluster.plane.kubectl("delete", "-f", str(CRD), "--wait=true")
    cluster.nodes(1, gpus=8)
    scheduler = cluster.schedule()
    cluster.gang("a", pods=2, gpus=4, dialect="coscheduling", members=range(2))
    cluster.held("a", says="waits for its PodGroup object")
    cluster.plane.kubectl("apply", "-f", str(CRD))
    cluster.plane.kubectl("wait", "--for=condition=Established", "-f", str(CRD), "--timeout=20s")
    cluster.eventually(cluster._serves_crd, "the CRD is served")
    cluster.group_object("a", 2, "coscheduling")
    cluster.whole("a")
    not_offered = "API not offered by the server; checking for it now and then kind=podgroups.coscheduling"
    assert sum(line.endswith(not_offered) for line in scheduler.said.splitlines()) == 1, scheduler.said


def test_unhealthy_device_is_never_chosen(cluster: Cluster) -> None:
    devices = [{"id": f"GPU-x-{k}", "health": "Unhealthy" if k == 1 else "Healthy"} for k in range(4)]
    cluster.node("x", devices)
    cluster.schedule()
    cluster.pod("p", gpus=3)
    cluster.whole("p")
    cluster.pod("q", gpus=1)
    cluster.held("q", says="0/1 nodes are available")
    # Its agent says that the device is well again.
    cluster.inventory["x"].add("GPU-x-1")
    cluster.annotate_node("x", json.dumps({GPU: [{**d, "health": "Healthy"} for d in devices]}))
    cluster.whole("q")
    [q] = cluster.members("q")
    assert ids_of(q) == ["GPU-x-1"]


def test_restart_reads_the_devices_back(cluster: Cluster) -> None:
    cluster.nodes(2, gpus=8)
    first = cluster.schedule()
    cluster.gang("a", pods=3, gpus=2)
    cluster.pod("p", gpus=3)
    cluster.whole("a", "p")
    first.stop_cleanly()
    cluster.schedule()
    cluster.gang("b", pods=7, gpus=1)
    cluster.whole("b")  # the 16th GPU is the last: one ID doubled would be found by the check at the end
    cluster.pod("q", gpus=1)
    cluster.held("q", says=f"Insufficient {GPU}")
