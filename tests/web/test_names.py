"""Our metrics beside those of a kube-scheduler that runs: the same names, types, labels and buckets."""

from __future__ import annotations

import ssl
import time
import urllib.request
from typing import NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gangsched.lab.controlplane.processes import ControlPlane
from gangsched.lab.sim.objects import make_node
from tests.support.bodies import pod
from tests.support.scenario import gang, with_annotations
from tests.web.measured import MeasuredCluster

pytestmark = pytest.mark.real

PODS = "/api/v1/namespaces/default/pods"
GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
MERGE = "application/merge-patch+json"
PATIENCE_S = 30.0


class Shape(NamedTuple):
    """What a dashboard relies on."""

    type: str
    labels: frozenset[str]
    bounds: frozenset[str]


def shapes(text: str) -> dict[str, Shape]:
    """By name, of those that have values."""
    found = {}
    for family in text_string_to_metric_families(text):
        labels = {label for sample in family.samples for label in sample.labels}
        bounds = {sample.labels["le"] for sample in family.samples if "le" in sample.labels}
        if family.samples:
            found[family.name] = Shape(family.type, frozenset(labels), frozenset(bounds))
    return found


async def ours() -> str:
    """After a gang that fits, one that does not, and one that waited."""
    c = MeasuredCluster()
    c.node(make_node("n0", gpus=8))
    c.submit(gang("a", pods=2), gang("b", pods=2, gpus=8)).run()
    total = {"gangsched.io/total-members": "3"}
    c.submit(with_annotations(gang("w", pods=2), total)).run().wait(61.0)
    return await c.page(requests={("200", "GET"): 1}, leader={"gangsched": 1})


def theirs(plane: ControlPlane) -> str:
    """kube-scheduler's, after the like."""
    plane.request("POST", "/api/v1/nodes", {"metadata": {"name": "n0"}})
    room = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    status = {"status": {"allocatable": room, "capacity": room}}
    plane.request("PATCH", "/api/v1/nodes/n0/status", status, content_type=MERGE)
    daemon = plane.start_kube_scheduler(gang=True)
    plane.request(
        "POST", GROUPS, {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    )
    plane.request("POST", PODS, pod("fits", cpu="1"))
    plane.request("POST", PODS, pod("too-large", cpu="100"))
    for k in range(2):
        plane.request("POST", PODS, pod(f"g-{k}", cpu="1", schedulingGroup={"podGroupName": "g"}))
    [port] = [flag.partition("=")[2] for flag in daemon.command if flag.startswith("--secure-port=")]
    request = urllib.request.Request(
        f"https://127.0.0.1:{port}/metrics", headers={"Authorization": f"Bearer {plane.token}"}
    )
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        with urllib.request.urlopen(request, context=ssl._create_unverified_context()) as answer:
            text: str = answer.read().decode()
        seen = shapes(text)
        if {"scheduler_podgroup_schedule_attempts", "scheduler_permit_wait_duration_seconds"} <= set(seen):
            return text
        assert time.monotonic() < deadline_s, sorted(seen)
        time.sleep(0.2)


async def test_dashboards_for_kube_scheduler_read_ours(fresh_cluster: ControlPlane) -> None:
    mine, others = shapes(await ours()), shapes(theirs(fresh_cluster))
    own = {name for name in mine if name.startswith("gangsched_")}
    # client-go's, told only where there is an election; kube-scheduler runs without one here.
    told_elsewhere = {"leader_election_master_status"}
    # Timed for one attempt in ten: kube-scheduler draws which, and may have drawn none of these few.
    told_elsewhere |= {"scheduler_plugin_execution_duration_seconds"} - set(others)
    shared = set(mine) - own - told_elsewhere
    assert "scheduler_schedule_attempts" in shared
    assert not shared - set(others), "names that kube-scheduler does not have"
    for name in sorted(shared):
        assert mine[name] == others[name], name


async def test_bounds_that_are_no_round_numbers_are_kube_schedulers_to_the_last_digit() -> None:
    """It times one attempt in ten, so the comparison above rarely sees them: these are from its page."""
    bounds = shapes(await ours())["scheduler_plugin_execution_duration_seconds"].bounds
    assert bounds >= {
        "1e-05",
        "0.00011390625000000003",
        "0.0002562890625000001",
        "0.004378938903808595",
        "+Inf",
    }
    assert len(bounds) == 21
