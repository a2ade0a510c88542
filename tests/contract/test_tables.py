"""Tables, which kubectl prints: columns of every kind that it is used for, and the cells that are computed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.api import CORE, JSON, TABLE, Api, Json
from tests.contract.objects import condition, gated, unique
from tests.support.bodies import container, node, pod

ACCEPT = f"{TABLE},application/json;as=Table;v=v1beta1;g=meta.k8s.io,{JSON}"
COLUMNS = {
    f"{CORE}/pods": "Name Ready Status Restarts Age IP+ Node+ Nominated_Node+ Readiness_Gates+",
    f"{CORE}/nodes": "Name Status Roles Age Version Internal-IP+ External-IP+ OS-Image+ Kernel-Version+ Container-Runtime+",
    f"{CORE}/namespaces": "Name Status Age",
    f"{CORE}/events": "Last_Seen Type Reason Object Subobject+ Source+ Message First_Seen+ Count+ Name+",
    f"{CORE}/services": "Name Type Cluster-IP External-IP Port(s) Age Selector+",
    f"{CORE}/configmaps": "Name Data Age",
    f"{CORE}/secrets": "Name Type Data Age",
    f"{CORE}/serviceaccounts": "Name Age",
    f"{CORE}/persistentvolumeclaims": "Name Status Volume Capacity Access_Modes StorageClass VolumeAttributesClass Age VolumeMode+",
    f"{CORE}/persistentvolumes": "Name Capacity Access_Modes Reclaim_Policy Status Claim StorageClass VolumeAttributesClass Reason Age VolumeMode+",
    "/apis/apps/v1/deployments": "Name Ready Up-to-date Available Age Containers+ Images+ Selector+",
    "/apis/batch/v1/jobs": "Name Status Completions Duration Age Containers+ Images+ Selector+",
    "/apis/policy/v1/poddisruptionbudgets": "Name Min_Available Max_Unavailable Allowed_Disruptions Age",
    "/apis/scheduling.k8s.io/v1/priorityclasses": "Name Value Global-Default Age PreemptionPolicy",
    "/apis/scheduling.k8s.io/v1beta1/podgroups": "Name Policy Workload Status Age",
    "/apis/coordination.k8s.io/v1/leases": "Name Holder Age",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions": "Name Scope Versions Created_At Group+ Kind+ ShortNames+ Established+",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles": "Name Created_At",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings": "Name Role Age Users+ Groups+ ServiceAccounts+",
    "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas": "Name PriorityLevel MatchingPrecedence DistinguisherMethod Age MissingPL",
    "/apis/resource.k8s.io/v1/deviceclasses": "Name Age",
    "/apis/resource.k8s.io/v1/devicetaintrules": "Name Key Value Effect TimeAdded Age",
    "/apis/resource.k8s.io/v1/resourceclaims": "Name State Age",
    "/apis/resource.k8s.io/v1/resourceclaimtemplates": "Name Age",
    "/apis/resource.k8s.io/v1/resourceslices": "Name Node Driver Pool Age",
    "/apis/storage.k8s.io/v1/storageclasses": "Name Provisioner ReclaimPolicy VolumeBindingMode AllowVolumeExpansion Age",
}


# Columns that kubectl's users see since then.
NEW_COLUMNS = {
    f"{CORE}/serviceaccounts",
    "/apis/scheduling.k8s.io/v1beta1/podgroups",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/resource.k8s.io/v1/devicetaintrules",
}


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[pytest.mark.since(37)] if path in NEW_COLUMNS else []) for path in COLUMNS],
)
def test_columns(api: Api, path: str) -> None:
    table = api.get(path, accept=ACCEPT).ok()
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    shown = [
        each["name"].replace(" ", "_") + "+" * (each["priority"] > 0) for each in table["columnDefinitions"]
    ]
    assert " ".join(shown) == COLUMNS[path]
    assert table["metadata"]["resourceVersion"]


def row(api: Api, path: str, **query: Any) -> Json:
    [found] = api.get(path, accept=ACCEPT, **query).ok()["rows"]
    assert isinstance(found, dict)
    return found


def status_of(**fields: Any) -> Json:
    return {"name": "main", "image": "i", "imageID": "", "ready": False, "restartCount": 0, **fields}


RUNNING: Json = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
PODS: dict[str, tuple[Json, Json, list[Any]]] = {
    "pending": (pod("p"), {}, ["0/1", "Pending", "0"]),
    "gated": (gated("p"), {}, ["0/1", "SchedulingGated", "0"]),
    "creating": (
        pod("p"),
        {"containerStatuses": [status_of(state={"waiting": {"reason": "ContainerCreating"}})]},
        ["0/1", "ContainerCreating", "0"],
    ),
    "running": (
        pod("p"),
        {
            "phase": "Running",
            "conditions": [condition("Ready", "True")],
            "containerStatuses": [status_of(ready=True, state=RUNNING)],
        },
        ["1/1", "Running", "0"],
    ),
    "completed": (
        pod("p"),
        {
            "phase": "Succeeded",
            "containerStatuses": [status_of(state={"terminated": {"exitCode": 0, "reason": "Completed"}})],
        },
        ["0/1", "Completed", "0"],
    ),
    "failed": (
        pod("p"),
        {"phase": "Failed", "containerStatuses": [status_of(state={"terminated": {"exitCode": 3}})]},
        ["0/1", "ExitCode:3", "0"],
    ),
    "refused by its kubelet": (
        pod("p"),
        {"phase": "Failed", "reason": "OutOfnvidia.com/gpu"},
        ["0/1", "OutOfnvidia.com/gpu", "0"],
    ),
    "crashing": (
        pod("p"),
        {
            "phase": "Running",
            "containerStatuses": [
                status_of(
                    restartCount=4,
                    state={"waiting": {"reason": "CrashLoopBackOff"}},
                    lastState={"terminated": {"exitCode": 1, "finishedAt": "2001-01-01T00:00:00Z"}},
                )
            ],
        },
        ["0/1", "CrashLoopBackOff", "4 (25y ago)"],
    ),
    "initializing": (
        pod("p", initContainers=[container("i"), container("k")]),
        {
            "initContainerStatuses": [
                status_of(name="i", state={"terminated": {"exitCode": 0}}),
                status_of(name="k", state=RUNNING),
            ]
        },
        ["0/1", "Init:1/2", "0"],
    ),
}


@pytest.mark.parametrize("case", PODS)
def test_the_row_of_a_pod(api: Api, case: str) -> None:
    body, status, expected = PODS[case]
    api.post(api.at("pods"), body).ok(201)
    if status:
        api.patch(api.at("pods", "p", "status"), {"status": status}).ok()
    shown = row(api, api.at("pods"))
    assert shown["cells"][:4] == ["p", *expected]
    assert shown["cells"][5:] == ["<none>", "<none>", "<none>", "<none>"]
    ended = [each["reason"] for each in shown.get("conditions", ())]
    assert ended == ([status["phase"]] if status.get("phase") in ("Succeeded", "Failed") else [])
    assert (shown["object"]["kind"], shown["object"]["metadata"]["name"]) == ("PartialObjectMetadata", "p")


def test_a_pod_that_is_leaving(api: Api) -> None:
    api.post(api.at("pods"), pod("p", nodeName="some-node")).ok(201)
    api.delete(api.at("pods", "p")).ok()
    cells = row(api, api.at("pods", "p"))["cells"]
    assert cells[2] == "Terminating"
    assert cells[6] == "some-node"


@pytest.mark.since(37)
def test_what_a_node_says(api: Api) -> None:
    name = unique("node")
    api.post(f"{CORE}/nodes", node(name, labels={"node-role.kubernetes.io/worker": ""})).ok(201)
    path = f"{CORE}/nodes/{name}"
    assert row(api, path)["cells"][1:3] == ["Unknown", "worker"]
    status = {
        "conditions": [condition("Ready", "True")],
        "addresses": [{"type": "InternalIP", "address": "10.1.2.3"}, {"type": "Hostname", "address": name}],
        "nodeInfo": {
            "kubeletVersion": "v1.37.1",
            "osImage": "Linux",
            "kernelVersion": "6.1",
            "architecture": "amd64",
            "containerRuntimeVersion": "containerd://2.0",
        },
    }
    api.patch(f"{path}/status", {"status": status}).ok()
    api.patch(path, {"spec": {"unschedulable": True}}).ok()
    cells = row(api, path)["cells"]
    assert cells[:3] == [name, "Ready,SchedulingDisabled", "worker"]
    assert cells[4:] == ["v1.37.1", "10.1.2.3", "<none>", "Linux", "6.1 (amd64)", "containerd://2.0"]
    api.delete(path).ok()


def test_what_an_event_says(api: Api) -> None:
    event = {
        "metadata": {"name": "e", "namespace": api.namespace},
        "eventTime": "2001-01-01T00:00:00.000000Z",
        "reportingController": "gangsched",
        "reportingInstance": "gangsched-0",
        "action": "Scheduling",
        "reason": "FailedScheduling",
        "regarding": {"kind": "Pod", "namespace": api.namespace, "name": "p"},
        "note": " no room\n",
        "type": "Warning",
    }
    api.post(api.at("events", group="/apis/events.k8s.io/v1"), event).ok(201)
    for group in (CORE, "/apis/events.k8s.io/v1"):
        cells = row(api, api.at("events", group=group))["cells"]
        assert cells[0].startswith("25y")
        assert cells[1:7] == [
            "Warning",
            "FailedScheduling",
            "pod/p",
            "",
            "gangsched, gangsched-0",
            "no room",
        ]
        assert cells[8:] == [1, "e"]


def test_how_much_of_the_object_comes_along(api: Api) -> None:
    api.post(api.at("pods"), pod("p")).ok(201)
    whole = row(api, api.at("pods"), includeObject="Object")["object"]
    assert (whole["kind"], whole["spec"]["schedulerName"]) == ("Pod", "default-scheduler")
    assert row(api, api.at("pods"), includeObject="None")["object"] is None
    answer = api.get(api.at("pods"), accept=ACCEPT, includeObject="Some")
    answer.no(
        400,
        "BadRequest",
        "Unable to convert to Table as requested: includeObject: Invalid value: \"Some\": must be 'Metadata', 'Object', 'None', or empty",
    )


def test_pages_of_a_table(api: Api) -> None:
    for name in ("a", "b", "c"):
        api.post(api.at("pods"), pod(name)).ok(201)
    first = api.get(api.at("pods"), accept=ACCEPT, limit=2).ok()
    assert [each["cells"][0] for each in first["rows"]] == ["a", "b"]
    assert first["metadata"]["remainingItemCount"] == 1
    rest = {"limit": 2, "continue": first["metadata"]["continue"]}
    assert [each["cells"][0] for each in api.get(api.at("pods"), accept=ACCEPT, **rest).ok()["rows"]] == ["c"]


def test_an_empty_table_has_columns(api: Api) -> None:
    empty = api.get(api.at("pods"), accept=ACCEPT).ok()
    assert (empty["rows"], len(empty["columnDefinitions"])) == ([], 9)


def test_the_state_of_a_claim(api: Api) -> None:
    group = "/apis/resource.k8s.io/v1"
    path = api.at("resourceclaims", group=group)
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
    metadata = {"name": "c", "finalizers": ["example.com/kept"]}
    api.post(path, {"metadata": metadata, "spec": {"devices": {"requests": [request]}}}).ok(201)
    states = [row(api, path)["cells"][1]]
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": "p", "device": "d"}
    for status in (
        {"allocation": {"devices": {"results": [result]}}},
        {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]},
    ):
        api.patch(f"{path}/c/status", {"status": status}).ok()
        states.append(row(api, path)["cells"][1])
    api.delete(f"{path}/c").ok()
    states.append(row(api, path)["cells"][1])
    api.patch(f"{path}/c/status", {"status": {"allocation": None, "reservedFor": None}}).ok()
    states.append(row(api, path)["cells"][1])
    assert states == [
        "pending",
        "allocated",
        "allocated,reserved",
        "deleted,allocated,reserved",
        "deleted",
    ]
