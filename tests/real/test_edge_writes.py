"""What the slower lanes write is what a real API server takes: statuses, events, evictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gangsched.errors import ApiError
from gangsched.kube.transport.http1 import MERGE_PATCH
from gangsched.lab.controlplane.processes import ControlPlane
from gangsched.model.effects import EvictPod, RecordEvent, WritePodCondition, WritePodGroupStatus
from gangsched.model.events import EvictionFailed, EvictionSucceeded
from tests.conftest import DEFINITIONS
from tests.proxy import Proxy
from tests.real.edge import PODS, edge_on, make_pod, raw
from tests.real.shapes import group_crd
from tests.support.tasks import until

# Fixtures, named so that pytest finds them here.
__all__ = ["raw"]

pytestmark = pytest.mark.real

GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"


def is_served(cluster: ControlPlane, path: str) -> bool:
    try:
        return "items" in cluster.request("GET", path)
    except ApiError:
        return False


def conditions(cluster: ControlPlane, path: str) -> dict[str, str]:
    """Type and reason of each condition of an object."""
    status: dict[str, Any] = cluster.request("GET", path).get("status", {})
    return {found["type"]: found["reason"] for found in status.get("conditions", ())}


async def test_conditions_are_merged_by_type_and_meant_for_one_uid(
    raw: Proxy, fresh_cluster: ControlPlane, tmp_path: Path
) -> None:
    uid = make_pod(fresh_cluster, "a")["metadata"]["uid"]

    def condition(uid: str, kind: str, reason: str) -> WritePodCondition:
        return WritePodCondition(uid, "default", "a", kind, "False", reason, "why", "c")

    async with edge_on(raw, fresh_cluster, tmp_path) as edge:
        for kind in ("PodScheduled", "Other"):
            edge.dispatcher.submit([condition(uid, kind, "Unschedulable")])
        edge.dispatcher.submit([condition("another-uid", "PodScheduled", "NotMine")])
        await until(lambda: not edge.dispatcher.n_waiting)
        found = conditions(fresh_cluster, f"{PODS}/a")
        assert found == {"PodScheduled": "Unschedulable", "Other": "Unschedulable"}
        assert edge.dispatcher.statistics().n_status_dropped == 1
        await edge.agrees(fresh_cluster)


async def test_a_condition_that_comes_after_the_bind_leaves_the_pod_scheduled(
    raw: Proxy, fresh_cluster: ControlPlane, tmp_path: Path
) -> None:
    uid = make_pod(fresh_cluster, "a")["metadata"]["uid"]
    binding = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n1"}}
    fresh_cluster.request("POST", f"{PODS}/a/binding", binding)
    async with edge_on(raw, fresh_cluster, tmp_path) as edge:
        late = WritePodCondition(uid, "default", "a", "PodScheduled", "False", "Unschedulable", "why", "c")
        edge.dispatcher.submit([late])
        await until(lambda: not edge.dispatcher.n_waiting)
        [found] = fresh_cluster.request("GET", f"{PODS}/a")["status"]["conditions"]
        assert found["status"] == "True"
        assert not {"reason", "message"} & found.keys()


async def test_group_status_is_written(raw: Proxy, fresh_cluster: ControlPlane, tmp_path: Path) -> None:
    body = {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    group = fresh_cluster.request("POST", GROUPS, body)
    condition = {
        "type": "PodGroupInitiallyScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "no room",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    async with edge_on(raw, fresh_cluster, tmp_path) as edge:
        edge.dispatcher.submit(
            [
                WritePodGroupStatus(
                    group["metadata"]["uid"],
                    "default",
                    "g",
                    "scheduling.k8s.io/v1beta1",
                    {"conditions": [condition]},
                    "c",
                )
            ]
        )
        await until(lambda: not edge.dispatcher.n_waiting)
        assert conditions(fresh_cluster, f"{GROUPS}/g") == {"PodGroupInitiallyScheduled": "Unschedulable"}


@pytest.mark.parametrize(
    ("api_version", "field", "has_status"),
    [
        ("scheduling.k8s.io/v1beta1", "conditions", True),
        ("scheduling.volcano.sh/v1beta1", "conditions", False),
        ("scheduling.run.ai/v2alpha2", "schedulingConditions", True),
    ],
)
async def test_conditions_of_other_programs_stay_in_a_groups_status(
    raw: Proxy, fresh_cluster: ControlPlane, tmp_path: Path, api_version: str, field: str, has_status: bool
) -> None:
    """Another program adds a condition and changes one that we have read, before we write."""
    api_group, version = api_version.split("/")
    is_core = api_group == "scheduling.k8s.io"
    groups = f"/apis/{api_version}/namespaces/default/podgroups"
    if not is_core:
        fresh_cluster.request("POST", DEFINITIONS, group_crd(api_group, version, has_status=has_status))
        await until(lambda: is_served(fresh_cluster, groups))
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}} if is_core else {"minMember": 2}
    made = {"apiVersion": api_version, "kind": "PodGroup", "metadata": {"name": "g"}, "spec": spec}
    uid = fresh_cluster.request("POST", groups, made)["metadata"]["uid"]

    def condition(kind: str, reason: str) -> dict[str, str]:
        return {
            "type": kind,
            "status": "False",
            "reason": reason,
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }

    path = f"{groups}/g/status" if has_status else f"{groups}/g"
    theirs = [condition("example.com/Audited", "New"), condition("example.com/Added", "Since")]
    fresh_cluster.request("PATCH", path, {"status": {field: theirs}}, content_type=MERGE_PATCH)
    kind = {"conditions": "PodGroupInitiallyScheduled" if is_core else "Unschedulable"}.get(
        field, "UnschedulableOnNodePool"
    )
    status = {field: [condition("example.com/Audited", "Old"), condition(kind, "NoRoom")]}
    async with edge_on(raw, fresh_cluster, tmp_path) as edge:
        for reason in ("NoRoom", "StillNoRoom"):
            status[field][1]["reason"] = reason
            edge.dispatcher.submit([WritePodGroupStatus(uid, "default", "g", api_version, status, "c")])
            await until(lambda: not edge.dispatcher.n_waiting)
        found = fresh_cluster.request("GET", f"{groups}/g")["status"][field]
        assert {one["type"]: one["reason"] for one in found} == {
            "example.com/Audited": "New",
            "example.com/Added": "Since",
            kind: "StillNoRoom",
        }


async def test_events_about_pods_and_nodes(raw: Proxy, fresh_cluster: ControlPlane, tmp_path: Path) -> None:
    uid = make_pod(fresh_cluster, "a")["metadata"]["uid"]

    def event(kind: str, namespace: str, name: str, message: str) -> RecordEvent:
        return RecordEvent(
            kind, "v1", namespace, name, uid, "Warning", "FailedScheduling", "Scheduling", message, "c"
        )

    async with edge_on(raw, fresh_cluster, tmp_path) as edge:
        edge.dispatcher.submit([event("Pod", "default", "a", "€" * 2000), event("Node", "", "n1", "\x1b[2J")])
        await until(lambda: not edge.dispatcher.n_waiting)
        items = fresh_cluster.request("GET", "/apis/events.k8s.io/v1/namespaces/default/events")["items"]
        notes = {item["regarding"]["name"]: item["note"] for item in items if item["regarding"]["uid"] == uid}
        assert sorted(notes) == ["a", "n1"]
        assert notes["n1"] == "\\x1b[2J"


async def test_eviction_spares_another_pod_of_the_name(
    raw: Proxy, fresh_cluster: ControlPlane, tmp_path: Path
) -> None:
    uid = make_pod(fresh_cluster, "a")["metadata"]["uid"]
    async with edge_on(raw, fresh_cluster, tmp_path) as edge:
        refused = await edge.does(EvictPod("another-uid", "default", "a", "c"), EvictionFailed)
        assert refused.code == 409
        assert await edge.does(EvictPod(uid, "default", "a", "c"), EvictionSucceeded)
        await until(lambda: uid not in edge.pods)
        assert (await edge.does(EvictPod(uid, "default", "a", "again"), EvictionFailed)).code == 404
