"""What is kept once for many pods is what each of them says, in a list as in a watch."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from gangsched.kube.watch.pod_reader import PodReader
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
