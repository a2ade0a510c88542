"""What is kept once for many pods is what each of them says, in a list as in a watch."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from gangsched.core.binding.start_records import is_refused
from gangsched.kube.watch.pod_reader import PodReader
from gangsched.model.devices.unwell import unwell
from gangsched.model.objects import Pod
from gangsched.model.resources import pod_requests

CONTAINERS = [
    {"name": "main", "image": "a:1", "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "8"}}}
]
BOUND = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}


def pod(name: str, *, labels: dict[str, str] | None = None, **also: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": "7"}
    spec = {"containers": CONTAINERS, "schedulerName": "gangsched"} | also.pop("spec", {})
    also = {"status": {"phase": "Pending"}, "spec": spec} | also
    return {"kind": "Pod", "metadata": meta | ({"labels": labels} if labels else {}), **also}


ASSORTED = (
    pod("a-0", labels={"app": "a"}),
    pod("a-1", labels={"app": "a"}),
    pod("a-2", labels={"app": "b"}, spec={"nodeName": "n1"}, status=BOUND),
    pod("a-3", labels={"app": "b"}, spec={"nodeName": "n1"}, status=BOUND),
    pod("a-4", spec={"nodeName": "n2"}, status=BOUND),
    pod("b-0", spec={"containers": [{"name": "other"}], "tolerations": [{"key": "x"}]}),
    pod("b-1", spec={"containers": [{"name": "other"}], "priority": 5}),
    {"metadata": {"name": "bare", "namespace": "other"}},
    {"metadata": {"name": "bare", "namespace": "ns"}, "spec": {}, "status": {}},
    pod("a-5", labels={"app": "a"}, spec={"nodeSelector": {"nodeName": "n1"}}),
)


def listed(reader: PodReader, *pods: dict[str, Any]) -> list[Pod]:
    return reader.page(json.dumps({"metadata": {"resourceVersion": "9"}, "items": pods}).encode()).items


def watched(reader: PodReader, *pods: dict[str, Any]) -> list[Pod]:
    data = b"".join(json.dumps({"type": "MODIFIED", "object": one}).encode() + b"\n" for one in pods)
    return [line.object for line in reader.lines(data)]


@pytest.mark.parametrize("read", [listed, watched])
def test_each_pod_is_what_it_says_whatever_came_before_it(read: Any) -> None:
    alone = [msgspec.json.decode(json.dumps(one), type=Pod) for one in ASSORTED]
    reader = PodReader()
    assert read(reader, *ASSORTED) == alone
    assert read(reader, *ASSORTED[::-1]) == alone[::-1]
    for one, expected in zip(ASSORTED, alone, strict=True):
        assert read(reader, one) == [expected]


@pytest.mark.parametrize("read", [listed, watched])
def test_pods_of_a_gang_share_one_spec_and_those_on_other_nodes_what_is_large_of_it(read: Any) -> None:
    first, second, bound, mate, elsewhere = read(PodReader(), *ASSORTED[:5])
    assert first.spec is second.spec
    assert first.metadata.labels is second.metadata.labels
    assert first.status is second.status
    assert bound.spec is mate.spec
    assert bound.spec.containers is first.spec.containers
    assert elsewhere.spec.node_name == "n2"
    assert elsewhere.spec.containers is bound.spec.containers
    assert elsewhere.status is bound.status


def test_of_what_was_refused_nothing_is_left() -> None:
    reader = PodReader()
    with pytest.raises(msgspec.MsgspecError):
        listed(reader, ASSORTED[0], pod("bad", spec={"nodeName": 7}))
    assert listed(reader, ASSORTED[1]) == [msgspec.json.decode(json.dumps(ASSORTED[1]), type=Pod)]


def test_pods_of_several_gangs_mixed_share_by_gang() -> None:
    gangs = [pod(f"{gang}-{rank}", spec={"priority": gang}) for rank in range(8) for gang in range(5)]
    read = watched(PodReader(), *gangs)
    assert [one.spec.priority for one in read] == [*range(5)] * 8
    assert len({id(one.spec) for one in read}) == 5


def test_more_specs_than_are_remembered_are_read_nevertheless() -> None:
    many = [pod(f"p-{n}", spec={"priority": n}) for n in (*range(200), *range(200))]
    assert [one.spec.priority for one in listed(PodReader(), *many)] == [*range(200)] * 2


def with_token(name: str, *volumes: dict[str, Any]) -> dict[str, Any]:
    """As the API server makes a pod of a real cluster: a token under a name of its own."""
    token = f"kube-api-access-{name}"
    mounts = [{"name": token, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]
    return pod(
        name,
        spec={
            "containers": [CONTAINERS[0] | {"volumeMounts": mounts}],
            "volumes": [*volumes, {"name": token, "projected": {"sources": []}}],
        },
    )


@pytest.mark.parametrize("read", [listed, watched])
def test_pods_that_differ_in_a_token_alone_share_a_spec(read: Any) -> None:
    first, second = read(PodReader(), with_token("a-0"), with_token("a-1"))
    assert first.spec.volumes is None
    assert first.spec is second.spec


def alone(reader: PodReader, *pods: dict[str, Any]) -> list[Pod]:
    """Each by itself, as the answer to a GET is read."""
    return [msgspec.json.decode(json.dumps(one), type=Pod) for one in pods]


@pytest.mark.parametrize("read", [listed, watched, alone])
def test_volumes_that_decide_where_a_pod_may_run_stay(read: Any) -> None:
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "disk-0"}}
    image = {"name": "model", "image": {"reference": "registry.example/model:2"}}
    (found,) = read(PodReader(), with_token("a-0", claim, {"name": "tmp", "emptyDir": {}}, image))
    assert [volume.name for volume in found.spec.volumes or ()] == ["data", "model"]


def resized(reason: str, *, allocated: str = "2", node: str = "n1") -> dict[str, Any]:
    """It had 2 cpu and a device and was to have 1000; its sidecar is to stay as it is."""
    sidecar = {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "3"}}}
    asked = {"requests": {"cpu": "1000", "nvidia.com/gpu": "8"}, "limits": {"nvidia.com/gpu": "8"}}
    main = {"name": "main", "resources": asked}
    spec = {"containers": [main], "initContainers": [sidecar], **({"nodeName": node} if node else {})}
    has = {"name": "main", "resources": {"requests": {"cpu": "1500m"}}, "allocatedResources": {}}
    has["allocatedResources"] = {"cpu": allocated}
    side = {"name": "side", "resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "3"}}
    pending = {"type": "PodResizePending", "status": "True", "reason": reason}
    status = {"phase": "Running", "conditions": [pending]}
    return pod(
        "r-0", spec=spec, status=status | {"containerStatuses": [has], "initContainerStatuses": [side]}
    )


def one_line(reader: PodReader, one: dict[str, Any]) -> list[Pod]:
    return [reader.line(json.dumps({"type": "ADDED", "object": one}).encode()).object]


def one_object(reader: PodReader, one: dict[str, Any]) -> list[Pod]:
    return [reader.object(json.dumps(one).encode())]


@pytest.mark.parametrize("read", [listed, watched, one_line, one_object])
def test_what_a_kubelet_has_refused_to_make_larger_counts_as_it_runs(read: Any) -> None:
    reader = PodReader()

    def cpu_of(one: dict[str, Any]) -> int:
        [found] = read(reader, one)
        requests = pod_requests(found.spec)
        assert requests["nvidia.com/gpu"] == 8
        return requests["cpu"]

    assert cpu_of(resized("Infeasible")) == 2000 + 3000
    assert cpu_of(resized("Infeasible", allocated="1")) == 1500 + 3000
    assert cpu_of(resized("Infeasible", allocated="what?")) == 1_000_000 + 3000
    assert cpu_of(resized("Deferred")) == 1_000_000 + 3000
    assert cpu_of(resized("Infeasible", node="")) == 1_000_000 + 3000


def shrinking(condition: dict[str, str] | None = None, *, seen: int = 0, **more: Any) -> dict[str, Any]:
    """It had 2 cpu in each of two containers, and is to have 1 and 3; kubelet has allocated 1 and 2."""
    asked = [{"name": n, "resources": {"requests": {"cpu": cpu}}} for n, cpu in (("a", "1"), ("b", "3"))]
    has = {"requests": {"cpu": "2"}}
    held = [
        {"name": n, "resources": has, "allocatedResources": {"cpu": cpu}}
        for n, cpu in (("a", "1"), ("b", "2"))
    ]
    status: dict[str, Any] = {
        "phase": "Running",
        "containerStatuses": held,
        "startTime": "2026-01-01T00:00:00Z",
    }
    status |= {"conditions": [condition] if condition else []}
    status |= {"observedGeneration": seen} if seen else {}
    one = pod("r-0", spec={"containers": asked, "nodeName": "n1", **more}, status=status)
    one["metadata"]["generation"] = 2
    return one


IN_PROGRESS = {"type": "PodResizeInProgress", "status": "True"}


@pytest.mark.parametrize("read", [listed, watched, one_line, one_object])
def test_what_is_being_made_smaller_counts_until_it_is(read: Any) -> None:
    def cpu_of(one: dict[str, Any]) -> int:
        [found] = read(PodReader(), one)
        return pod_requests(found.spec)["cpu"]

    for condition, seen in ((IN_PROGRESS, 2), (None, 1)):
        smaller = shrinking(condition, seen=seen)
        smaller["spec"]["containers"][1]["resources"]["requests"]["cpu"] = "1"
        assert cpu_of(smaller) == 4000
        # Amounts are compared as sums: what one container gives up another may have.
        assert cpu_of(shrinking(condition, seen=seen)) == 4000
        assert cpu_of(shrinking(condition, seen=seen, overhead={"cpu": "250m"})) == 4250
    done = shrinking(None, seen=2)
    done["spec"]["containers"][1]["resources"]["requests"]["cpu"] = "1"
    assert cpu_of(done) == 2000


@pytest.mark.parametrize("read", [listed, watched, one_line, one_object])
def test_pod_level_amounts_count_until_they_are_smaller(read: Any) -> None:
    one = shrinking(IN_PROGRESS, seen=2, resources={"requests": {"cpu": "5", "memory": "1Gi"}})
    one["status"] |= {
        "resources": {"requests": {"cpu": "8", "memory": "1Gi"}},
        "allocatedResources": {"cpu": "6"},
    }
    [found] = read(PodReader(), one)
    requests = pod_requests(found.spec)
    assert (requests["cpu"], requests["memory"]) == (8000, 2**30)


def test_what_no_resize_concerns_is_decoded_once() -> None:
    """A pod that its kubelet has not admitted yet is not behind, however often it was edited."""
    one = shrinking(None, seen=1)
    del one["status"]["startTime"]
    [found] = listed(PodReader(), one)
    assert found.spec.overhead is None


# What kubelet writes when the pod has ended, of a container that it cannot find.
LOST: dict[str, object] = {"exitCode": 137, "reason": "ContainerStatusUnknown"}


@pytest.mark.parametrize(
    ("status", "refused"),
    [
        ({"containerStatuses": [{"state": {"terminated": LOST}}]}, True),
        (
            {
                "initContainerStatuses": [{"state": {"terminated": LOST}}],
                "containerStatuses": [{"state": {"waiting": {"reason": "PodInitializing"}}}],
            },
            True,
        ),
        ({"containerStatuses": [{"containerID": "containerd://1", "state": {"terminated": LOST}}]}, False),
        ({"containerStatuses": [{"state": {"terminated": LOST}, "lastState": {"terminated": LOST}}]}, False),
    ],
    ids=["never made", "not even an init container", "made, and lost", "made again before"],
)
def test_a_container_that_kubelet_cannot_find_has_run_if_it_was_ever_made(
    status: dict[str, object], *, refused: bool
) -> None:
    told = pod("a-0", status={"phase": "Failed", "reason": "Evicted", **status})
    [read] = PodReader().page(json.dumps({"metadata": {}, "items": [told]}).encode()).items
    assert is_refused(read) is refused


@pytest.mark.parametrize(
    ("phase", "reason", "state", "refused"),
    [
        ("Failed", "UnexpectedAdmissionError", None, True),
        ("Failed", "Evicted", {"waiting": {"reason": "ContainerCreating"}}, True),
        ("Failed", "Evicted", {"terminated": {"exitCode": 137}}, False),
        ("Failed", "DeadlineExceeded", None, False),
        ("Failed", "", None, False),
        ("Running", "", {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, False),
    ],
)
def test_whether_a_kubelet_refused_a_pod_is_read_from_its_status(
    phase: str, reason: str, state: dict[str, object] | None, *, refused: bool
) -> None:
    statuses = [] if state is None else [{"name": "main", "state": state}]
    told = pod("a-0", status={"phase": phase, "reason": reason, "containerStatuses": statuses})
    [read] = PodReader().page(json.dumps({"metadata": {}, "items": [told]}).encode()).items
    assert is_refused(read) is refused
    assert phase == "Failed" or read.status.container_statuses is None, "costs memory, and nobody asks"


def with_health(phase: str, *health: str) -> dict[str, Any]:
    """Of its two containers one has devices of this health, its sidecar one more that is well."""
    state = {"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, "containerID": "containerd://1"}
    devices = [{"resourceID": f"GPU-{k}", "health": one, "message": "?"} for k, one in enumerate(health)]
    main = {"name": "main", "allocatedResourcesStatus": [{"name": "nvidia.com/gpu", "resources": devices}]}
    well = [{"name": "claim:nic", "resources": [{"resourceID": "a/b/c", "health": "Healthy"}]}]
    side = {"name": "side", "allocatedResourcesStatus": well}
    statuses = [{"name": "first", **state}, main | state]
    status = {"phase": phase, "containerStatuses": statuses, "initContainerStatuses": [side | state]}
    return pod("h-0", spec={"nodeName": "n1"}, status=status)


@pytest.mark.parametrize("read", [listed, watched, one_line, one_object])
def test_of_a_running_pods_devices_those_that_are_not_well_are_kept(read: Any) -> None:
    [found] = read(PodReader(), with_health("Running", "Healthy", "Unhealthy", "Unknown"))
    resource = "nvidia.com/gpu"
    assert [*unwell(found.status)] == [(resource, "GPU-1", "Unhealthy"), (resource, "GPU-2", "Unknown")]


@pytest.mark.parametrize("read", [listed, watched])
def test_of_devices_that_are_well_nothing_is_kept(read: Any) -> None:
    [found] = read(PodReader(), with_health("Running", "Healthy", "Healthy"))
    assert found.status.container_statuses is None, "costs memory, and nobody asks"
    assert found.status.init_container_statuses is None
