"""Preemption on a real API server: evictions, deletions, nominations, and how long it lasts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gangsched.lab.controlplane.processes import ControlPlane
from tests.real.cluster import MERGE, PODS, Cluster, checked, is_let_through
from tests.real.picture import Json, node_of
from tests.real.process import Scheduler, service_account, write_config
from tests.support.processes import until

pytestmark = pytest.mark.real

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


@pytest.fixture
def cluster(fresh_cluster: ControlPlane, tmp_path: Path) -> Iterator[Cluster]:
    with checked(fresh_cluster, tmp_path) as made:
        priority_class(fresh_cluster, "high")
        priority_class(fresh_cluster, "patient", preemptionPolicy="Never")
        yield made


def priority_class(plane: ControlPlane, name: str, **more: Any) -> None:
    known = [item["metadata"]["name"] for item in plane.request("GET", CLASSES)["items"]]
    if name not in known:
        plane.request("POST", CLASSES, {"metadata": {"name": name}, "value": 1000, **more})
        tried = {"containers": [{"name": "c", "image": "c"}], "priorityClassName": name}
        body = {"metadata": {"name": f"tried-{name}"}, "spec": tried}
        until(lambda: is_let_through(plane, body), f"admission has seen the class {name}")


def budget(cluster: Cluster, allowed: int, **labels: str) -> None:
    """A budget with the status that its controller would write; nobody runs that one here."""
    spec = {"selector": {"matchLabels": labels}, "minAvailable": 1}
    cluster.plane.request("POST", BUDGETS, {"metadata": {"name": "budget"}, "spec": spec})
    counts = {"disruptionsAllowed": allowed, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2}
    status = {"status": {"observedGeneration": 1, **counts}}
    cluster.plane.request("PATCH", f"{BUDGETS}/budget/status", status, content_type=MERGE)


def high(cluster: Cluster, name: str = "high", *, pods: int, **more: Any) -> None:
    cluster.gang(name, pods=pods, gpus=8, priorityClassName="high", **more)


def gone(cluster: Cluster, *names: str) -> None:
    cluster.picture.until(lambda: not any(n in cluster.picture.pods for n in names), f"{names} are gone")


def leaving(cluster: Cluster, name: str) -> list[str]:
    return [p["metadata"]["name"] for p in cluster.members(name) if p["metadata"].get("deletionTimestamp")]


def conditions(pod: Json) -> dict[str, str]:
    return {c["type"]: c.get("reason", "") for c in pod["status"].get("conditions", ())}


def test_a_gang_takes_the_room_of_singles_and_of_no_more_than_it_needs(cluster: Cluster) -> None:
    cluster.nodes(3)
    cluster.schedule()
    for k in range(6):
        cluster.pod(f"low-{k}", gpus=4)
    cluster.whole("low", pods=6)
    high(cluster, pods=2)
    cluster.whole("high")
    assert cluster.n_bound("low") == 2
    told = [e for k in range(6) for e in cluster.events("Preempted", f"low-{k}")]
    assert len(told) == 4
    assert {(e["action"], e["type"]) for e in told} == {("Preempting", "Normal")}
    assert all(e["note"].startswith("Preempted by gang default/high on node n") for e in told)
    cluster.unchanged("low")


def test_a_gang_goes_whole_for_another(cluster: Cluster) -> None:
    cluster.nodes(2)
    cluster.schedule()
    cluster.gang("low", pods=2, gpus=8)
    cluster.whole("low")
    high(cluster, pods=1)
    cluster.whole("high")
    gone(cluster, "low-0", "low-1")
    cluster.gang("again", pods=2, gpus=8)
    cluster.held("again", says="1 of 2 fit")


def test_victims_that_take_their_time_are_waited_for(cluster: Cluster) -> None:
    """No kubelet ends them here: they are on their way out for as long as the test likes."""
    cluster.nodes(1)
    cluster.schedule()
    for k in range(2):
        cluster.pod(f"low-{k}", gpus=4, terminationGracePeriodSeconds=600)
    cluster.whole("low", pods=2)
    high(cluster, pods=1)
    cluster.held("high", says="waiting for 2 pods of lower priority to go: default/low-0, default/low-1")
    pods = cluster.picture.pods
    cluster.picture.until(
        lambda: pods["high-0"]["status"].get("nominatedNodeName") == "n0", "high-0 says where it will go"
    )
    cluster.picture.until(
        lambda: all(p["metadata"].get("deletionTimestamp") for p in cluster.members("low")), "both leave"
    )
    cluster.pod("thief", gpus=4)
    cluster.held("thief", says="0/1 nodes are available")
    cluster.plane.request("DELETE", f"{PODS}/low-0", {"gracePeriodSeconds": 0})
    gone(cluster, "low-0")
    cluster.unchanged("thief")
    cluster.plane.request("DELETE", f"{PODS}/low-1", {"gracePeriodSeconds": 0})
    cluster.whole("high")
    assert "nominatedNodeName" not in cluster.picture.pods["high-0"]["status"]
    assert not node_of(cluster.picture.pods["thief"])


def test_who_waits_for_an_hours_grace_takes_a_new_node_at_once(cluster: Cluster) -> None:
    """And the next that preempts waits for the pod that goes anyway: the other one is spared."""
    cluster.nodes(2)
    cluster.schedule()
    for k in range(2):
        cluster.pod(f"low-{k}", gpus=8, terminationGracePeriodSeconds=3600)
    cluster.whole("low", pods=2)
    high(cluster, pods=1)
    cluster.held("high", says="waiting for 1 pod of lower priority to go")
    cluster.picture.until(lambda: len(leaving(cluster, "low")) == 1, "one of them leaves")
    cluster.pod("thief", gpus=8)
    cluster.held("thief", says="0/2 nodes are available")
    cluster.nodes(1, first=2)
    cluster.whole("high")
    assert node_of(cluster.picture.pods["high-0"]) == "n2"
    assert "nominatedNodeName" not in cluster.picture.pods["high-0"]["status"]
    assert not node_of(cluster.picture.pods["thief"])
    high(cluster, "next", pods=1)
    cluster.held("next", says="waiting for 1 pod of lower priority to go")
    cluster.unchanged("low")
    [goes] = leaving(cluster, "low")
    cluster.plane.request("DELETE", f"{PODS}/{goes}", {"gracePeriodSeconds": 0})
    cluster.whole("next")
    assert not leaving(cluster, "low")


def test_a_gang_that_has_lost_a_nominated_node_makes_room_again_at_once(cluster: Cluster) -> None:
    """Its node is cordoned; it waits neither for the pod that leaves there nor for a flush."""
    cluster.nodes(2)
    cluster.schedule()
    for k in range(2):
        cluster.pod(f"low-{k}", gpus=8, terminationGracePeriodSeconds=3600)
    cluster.whole("low", pods=2)
    high(cluster, pods=1)
    cluster.picture.until(lambda: len(leaving(cluster, "low")) == 1, "one of them leaves")
    [first] = leaving(cluster, "low")
    node = node_of(cluster.picture.pods[first])
    cordon = {"spec": {"unschedulable": True}}
    cluster.plane.request("PATCH", f"/api/v1/nodes/{node}", cordon, content_type=MERGE)
    cluster.picture.until(lambda: len(leaving(cluster, "low")) == 2, "the other one leaves")
    [second] = [name for name in leaving(cluster, "low") if name != first]
    cluster.plane.request("DELETE", f"{PODS}/{second}", {"gracePeriodSeconds": 0})
    cluster.whole("high")


def test_a_gang_starts_as_soon_as_others_pods_have_ended_one_by_one(cluster: Cluster) -> None:
    """Each that ends may have it tried in vain; a backoff of ten minutes keeps it from nothing."""
    cluster.nodes(2)
    for k in range(16):
        cluster.pod(f"foreign-{k}", gpus=1, scheduler="other")
        cluster.bind_by_hand(f"foreign-{k}", f"n{k % 2}")
    config = write_config(cluster.directory / "patient.yaml")
    slow = "podInitialBackoffSeconds: 600\npodMaxBackoffSeconds: 600"
    config.write_text(config.read_text().replace("podMaxBackoffSeconds: 2", slow))
    account = service_account(cluster.plane, cluster.directory / "account.yaml")
    cluster.schedulers.append(Scheduler(config, account, cluster.directory / "patient.log"))
    cluster.gang("g", pods=2, gpus=8)
    cluster.held("g", says="0 of 2 fit")
    for k in range(16):
        cluster.delete(f"foreign-{k}")
    cluster.whole("g")


def test_victims_that_do_not_die_end_the_wait(cluster: Cluster) -> None:
    """A finalizer that nobody takes away."""
    cluster.nodes(1)
    cluster.schedule()
    cluster.pod("low", gpus=8)
    cluster.whole("low")
    patch = {"metadata": {"finalizers": ["example.com/never"]}}
    cluster.plane.request("PATCH", f"{PODS}/low", patch, content_type=MERGE)
    high(cluster, pods=1, annotations={"gangsched.io/schedule-timeout": "3s"})
    note = cluster.event("GangAborted", "high-0")["note"]
    assert "preemption: its victims did not go in time: default/low" in note
    cluster.held("high", says="preemption: ")
    cluster.picture.until(
        lambda: "nominatedNodeName" not in cluster.picture.pods["high-0"]["status"], "it says so no more"
    )
    cluster.plane.request("PATCH", f"{PODS}/low", {"metadata": {"finalizers": None}}, content_type=MERGE)
    cluster.whole("high")


def test_a_budget_is_kept_where_there_are_others_and_broken_where_there_are_none(cluster: Cluster) -> None:
    cluster.nodes(2)
    cluster.schedule()
    budget(cluster, 0, app="db")  # before the pods: it comes by another watch, which may be the later one
    cluster.pod("kept", gpus=8, labels={"app": "db"}, terminationGracePeriodSeconds=600)
    cluster.pod("free", gpus=8)
    cluster.whole("kept", "free")
    high(cluster, "first", pods=1)
    cluster.whole("first")
    gone(cluster, "free")
    assert not cluster.picture.pods["kept"]["metadata"].get("deletionTimestamp")
    high(cluster, "second", pods=1)
    cluster.picture.until(
        lambda: cluster.picture.pods["kept"]["metadata"].get("deletionTimestamp"), "kept is deleted"
    )
    assert conditions(cluster.picture.pods["kept"])["DisruptionTarget"] == "PreemptionByScheduler"
    cluster.plane.request("DELETE", f"{PODS}/kept", {"gracePeriodSeconds": 0})
    cluster.whole("second")


def test_a_gang_that_never_preempts_reports_that(cluster: Cluster) -> None:
    cluster.nodes(1)
    cluster.schedule()
    cluster.pod("low", gpus=8)
    cluster.whole("low")
    cluster.gang("patient", pods=1, gpus=8, priorityClassName="patient")
    cluster.held("patient", says="preemption: not eligible due to preemptionPolicy=Never.")
    cluster.unchanged("low")
    assert "nominatedNodeName" not in cluster.picture.pods["patient-0"]["status"]
