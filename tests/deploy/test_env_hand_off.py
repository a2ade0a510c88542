"""The hand-off by environment: deploy/env-hand-off/ on a real kube-apiserver, by itself and under gangs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangsched.lab.controlplane.processes import GANG_API_SINCE, ControlPlane
from gangsched.model.devices.annotations import VISIBLE_KEY
from gangsched.model.devices.labels import allocated_key
from gangsched.model.devices.required_ids import REQUIRE_IDS_KEY
from tests.conftest import wipe
from tests.deploy.conftest import ENV_HAND_OFF, HAND_OFF_SINCE
from tests.deploy.doors import PODS, Json, Person, new_pod
from tests.deploy.test_reserved_keys import KEYS
from tests.real.cluster import Cluster, checked
from tests.real.picture import GPU, annotation, ids_of, node_of
from tests.support.processes import until

pytestmark = [pytest.mark.real, pytest.mark.since(HAND_OFF_SINCE)]

VARIABLE = "NVIDIA_VISIBLE_DEVICES"
FIELD = {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{VISIBLE_KEY}']"}
INJECTED = {"name": VARIABLE, "valueFrom": {"fieldRef": FIELD}}
PREFIX = "gpu.nvidia.com.visible-devices.gangsched.io"
OWN = {"name": "OWN", "value": "x"}
POLICIES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
DRY = f"{PODS}?dryRun=All&fieldValidation=Strict"


def own_key(name: str) -> Json:
    """The variable, pointed to what this one container sees."""
    field = {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{PREFIX}/{name}']"}
    return {"name": VARIABLE, "valueFrom": {"fieldRef": field}}


def container(name: str = "main", *, env: list[Json] | None = None, **of: Any) -> Json:
    """One that asks for two GPUs, unless `resources` say otherwise."""
    made = {"name": name, "image": "busybox", "resources": {"limits": {GPU: "2"}}, **of}
    return made if env is None else {**made, "env": env}


def created(plane: ControlPlane, *containers: Json, scheduler: str = "gangsched", **more: Any) -> Json:
    """The pod as the API server would store it."""
    pod = new_pod("p", schedulerName=scheduler, containers=list(containers), **more)
    answer = Person(plane, plane.tokens["alice"]).send("POST", DRY, pod)
    assert answer.code == 201, answer.message
    return answer.body


def envs(pod: Json) -> dict[str, list[Json]]:
    """Each container's environment, init containers first."""
    spec = pod["spec"]
    return {c["name"]: c.get("env", []) for c in (*spec.get("initContainers", []), *spec["containers"])}


# -- what is injected ----------------------------------------------------------------------------------


def test_a_container_that_asks_for_devices_gets_the_variable(guarded: ControlPlane) -> None:
    assert envs(created(guarded, container())) == {"main": [INJECTED]}


def test_it_comes_before_the_containers_own_variables(guarded: ControlPlane) -> None:
    refers = {"name": "DEVICES", "value": f"$({VARIABLE})"}
    assert envs(created(guarded, container(env=[refers, OWN]))) == {"main": [INJECTED, refers, OWN]}


def test_only_containers_that_ask_get_it(guarded: ControlPlane) -> None:
    others = {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi", "amd.com/gpu": "1"}}
    none = {"limits": {GPU: "0"}}
    pod = created(
        guarded,
        container("sidecar", resources=others, env=[OWN]),
        container("trainer", env=[OWN]),
        container("zero", resources=none),
        container("second", resources={"requests": {GPU: "1"}, "limits": {GPU: "1"}}),
        initContainers=[
            container("fetch", resources={}),
            container("warm"),
            container("proxy", restartPolicy="Always", resources=others),
        ],
    )
    assert envs(pod) == {
        "fetch": [],
        "warm": [own_key("warm")],
        "proxy": [],
        "sidecar": [OWN],
        "trainer": [own_key("trainer"), OWN],
        "zero": [],
        "second": [own_key("second")],
    }


def test_many_containers(guarded: ControlPlane) -> None:
    pod = created(guarded, *(container(f"c{i}", env=[OWN] * (i % 2)) for i in range(40)))
    assert all(env[0] == own_key(name) and env[1:] in ([], [OWN]) for name, env in envs(pod).items())


def test_one_container_that_asks_for_two_kinds_is_pointed_to_its_own(guarded: ControlPlane) -> None:
    """What the pod sees is the first of them that nodes list, whichever that is."""
    both = {"limits": {GPU: "1", "rdma/hca": "1"}}
    assert envs(created(guarded, container(resources=both))) == {"main": [own_key("main")]}
    none = {"limits": {GPU: "1", "rdma/hca": "0"}}
    assert envs(created(guarded, container(resources=none))) == {"main": [INJECTED]}


def test_a_container_that_sets_the_variable_keeps_its_own(guarded: ControlPlane) -> None:
    own = {"name": VARIABLE, "value": "none"}
    pod = created(guarded, container("own", env=[OWN, own]), container("ours"))
    assert envs(pod) == {"own": [OWN, own], "ours": [own_key("ours")]}


def test_pods_of_other_schedulers_are_left_alone(guarded: ControlPlane) -> None:
    assert envs(created(guarded, container(), scheduler="default-scheduler")) == {"main": []}


def test_what_may_be_changed_is_listed_in_one_place_each(guarded: ControlPlane) -> None:
    text = (ENV_HAND_OFF / "policy.yaml").read_text()
    text = text.replace("name: gangsched-env-hand-off", "name: amd").replace(
        "policyName: gangsched-env-hand-off", "policyName: amd"
    )
    changed = {
        "'nvidia.com/gpu'": "'amd.com/gpu'",
        f"'{PREFIX}'": "'gpu.amd.com.visible-devices.gangsched.io'",
        f"'{VARIABLE}'": "'ROCR_VISIBLE_DEVICES'",
        "['gangsched']": "['gangsched', 'another']",
    }
    for old, new in changed.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    amd = container(resources={"limits": {"amd.com/gpu": "1"}})
    with policy(guarded, text):
        expected = [{**INJECTED, "name": "ROCR_VISIBLE_DEVICES"}]
        until(lambda: envs(created(guarded, amd)) == {"main": expected})
        assert envs(created(guarded, amd, scheduler="another")) == {"main": expected}
        assert envs(created(guarded, container())) == {"main": [INJECTED]}


def test_where_ids_are_labels_each_container_is_pointed_to_its_own(guarded: ControlPlane) -> None:
    text = (ENV_HAND_OFF / "policy.yaml").read_text()
    text = text.replace("name: gangsched-env-hand-off", "name: labels")
    text = text.replace("policyName: gangsched-env-hand-off", "policyName: labels")
    for old, new in {
        "'annotations'": "'labels'",
        "'nvidia.com/gpu'": "'example.com/fpga'",
        f"'{VARIABLE}'": "'FPGAS'",
    }.items():
        assert text.count(f'expression: "{old}"') == 1
        text = text.replace(f'expression: "{old}"', f'expression: "{new}"')
    fpga = {"limits": {"example.com/fpga": "2"}}
    both = (container("one", resources=fpga), container("two", resources=fpga))

    def pointed(name: str) -> list[Json]:
        field = f"metadata.labels['{allocated_key('example.com/fpga', name)}']"
        return [{"name": "FPGAS", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": field}}}]

    with policy(guarded, text):
        until(lambda: envs(created(guarded, both[0])) == {"one": pointed("one")})
        assert envs(created(guarded, *both)) == {"one": pointed("one"), "two": pointed("two")}


def test_what_a_later_policy_adds_gets_it_too_and_nothing_twice(guarded: ControlPlane) -> None:
    """A team's default scheduler, say; the API server asks policies in the order of their names."""
    expression = "[JSONPatch{op: 'replace', path: '/spec/schedulerName', value: 'gangsched'}]"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    spec = {
        "reinvocationPolicy": "Never",
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "of-the-team", "expression": "object.metadata.name.startsWith('team')"}],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
    }
    group, meta = {"apiVersion": "admissionregistration.k8s.io/v1"}, {"metadata": {"name": "zz-team"}}
    documents = [
        {**group, "kind": "MutatingAdmissionPolicy", **meta, "spec": spec},
        {**group, "kind": "MutatingAdmissionPolicyBinding", **meta, "spec": {"policyName": "zz-team"}},
    ]
    pod = new_pod("team-1", schedulerName="default-scheduler", containers=[container(env=[OWN])])
    alice = Person(guarded, guarded.tokens["alice"])

    def made() -> Json:
        return alice.send("POST", DRY, pod).body

    with policy(guarded, yaml.safe_dump_all(documents)):
        until(lambda: made()["spec"]["schedulerName"] == "gangsched")
        assert envs(made()) == {"main": [INJECTED, OWN]}


@contextmanager
def policy(plane: ControlPlane, text: str) -> Iterator[None]:
    """A policy and its binding, while the test needs them."""
    plane.kubectl("apply", "-f", "-", "--validate=strict", input=text)
    try:
        yield
    finally:
        plane.kubectl("delete", "-f", "-", input=text)


def required(pod: Json) -> str:
    """What the stored pod says of the IDs that it requires."""
    return str(pod["metadata"].get("annotations", {}).get(REQUIRE_IDS_KEY, ""))


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (None, GPU),
        ({"a": "b"}, GPU),
        ({REQUIRE_IDS_KEY: "example.com/nic"}, f"example.com/nic,{GPU}"),
        ({REQUIRE_IDS_KEY: f"example.com/nic,{GPU}"}, f"example.com/nic,{GPU}"),
        ({REQUIRE_IDS_KEY: "true"}, "true"),
        ({REQUIRE_IDS_KEY: "false"}, "false"),
    ],
    ids=str,
)
def test_a_pod_that_gets_the_variable_requires_the_ids(
    guarded: ControlPlane, own: dict[str, str] | None, expected: str
) -> None:
    """Otherwise a node that only counts its devices would start it with an empty variable."""
    pod = new_pod("p", schedulerName="gangsched", containers=[container()])
    if own is not None:
        pod["metadata"]["annotations"] = own
    answer = Person(guarded, guarded.tokens["alice"]).send("POST", DRY, pod)
    assert answer.code == 201, answer.message
    assert required(answer.body) == expected


def test_pods_that_get_no_variable_require_nothing(guarded: ControlPlane) -> None:
    own = container(env=[{"name": VARIABLE, "value": "none"}])
    assert required(created(guarded, own)) == ""
    assert required(created(guarded, container(), scheduler="default-scheduler")) == ""
    assert required(created(guarded, container(resources={"limits": {"amd.com/gpu": "1"}}))) == ""


# -- what arrives --------------------------------------------------------------------------------------


@pytest.fixture
def cluster(guarded: ControlPlane, tmp_path: Path) -> Iterator[Cluster]:
    """Empty; what must always hold is checked when the test has passed."""
    try:
        with checked(guarded, tmp_path) as made:
            yield made
    finally:
        wipe(guarded)


def seen_by(pod: Json, name: str = "main") -> str:
    """The variable's value, read from the pod as kubelet reads it: empty where the annotation is not."""
    [variable] = [e for e in envs(pod)[name] if e["name"] == VARIABLE]
    path: str = variable["valueFrom"]["fieldRef"]["fieldPath"]
    return annotation(pod, path.removeprefix("metadata.annotations['").removesuffix("']"))


def test_the_main_job_with_every_policy_in_force(cluster: Cluster) -> None:
    """Gangs in every dialect under the account of deploy/; the IDs come in the same write as the node."""
    cluster.nodes(4, gpus=8)
    cluster.schedule()
    core = "core" if cluster.plane.minor_version >= GANG_API_SINCE else "ours"
    for name, dialect in (("a", "ours"), ("b", core), ("c", "coscheduling"), ("d", "lightweight")):
        cluster.gang(name, pods=3, gpus=2, dialect=dialect)
    cluster.pod("lone", gpus=8)
    cluster.whole("a", "b", "c", "d")
    cluster.held("lone", says=f"Insufficient {GPU}")
    cluster.delete("a", "b")
    cluster.whole("lone")
    before: dict[str, str] = {}
    for type_, pod, _ in cluster.picture.sights:
        name = pod["metadata"]["name"]
        assert envs(pod) == {"main": [INJECTED]}, "from the first sight of the pod on"
        assert (VISIBLE_KEY in pod["metadata"].get("annotations", {})) == bool(node_of(pod)), name
        if type_ == "MODIFIED" and node_of(pod):
            assert before.setdefault(name, seen_by(pod)) == seen_by(pod), "kubelet never sees another value"
    assert len(before) == 13
    for name, value in before.items():
        assert len(set(value.split(","))) == (8 if name == "lone" else 2)
    noted = cluster.members("lone")[0]["metadata"]["annotations"]
    written = {key for key in noted if "gangsched" in key} - {REQUIRE_IDS_KEY}
    assert written <= set(KEYS), "all that the scheduler writes is reserved"
    others = {
        "gangsched.io/traceparent": "with tracing",
        "gangsched.io/started-in-queue": "with queues",
        "gangsched.io/start": "of a gang",
    }
    assert set(KEYS) - written <= set(others), "without that all others are written"


def test_containers_of_one_pod_see_each_their_own(cluster: Cluster) -> None:
    cluster.nodes(1, gpus=8)
    cluster.schedule()
    cluster.pod("p", containers=[container("a"), container("b"), container("c", resources={})])
    cluster.whole("p")
    [pod] = cluster.members("p")
    own = [seen_by(pod, name).split(",") for name in ("a", "b")]
    assert [len(ids) for ids in own] == [2, 2]
    assert sorted(own[0] + own[1]) == sorted(ids_of(pod)), "nobody sees the other's"
    assert envs(pod)["c"] == []
    bound = [p for type_, p, _ in cluster.picture.sights if type_ == "MODIFIED" and node_of(p)]
    assert all(seen_by(p, "a") == seen_by(pod, "a") for p in bound), "in the same write as the node"


def test_a_pod_waits_for_a_node_that_lists_its_devices(cluster: Cluster) -> None:
    """Elsewhere the variable would be empty, and a runtime that goes by it shows the container nothing."""
    cluster.node("n0", "{}")
    cluster.schedule()
    cluster.pod("p", gpus=2)
    cluster.held("p", says=f"node(s) did not list their {GPU}, whose IDs must be known", members=1)
    cluster.annotate_node("n0", json.dumps({GPU: [{"id": "g0"}, {"id": "g1"}]}))
    cluster.inventory["n0"] = {"g0", "g1"}
    cluster.whole("p")
    [pod] = cluster.members("p")
    assert envs(pod) == {"main": [INJECTED]}
    assert sorted(seen_by(pod).split(",")) == ["g0", "g1"]


def test_a_pod_that_says_false_goes_there_and_its_variable_is_empty(cluster: Cluster) -> None:
    cluster.node("n0", "{}")
    del cluster.inventory["n0"]
    cluster.schedule()
    cluster.pod("p", gpus=2, annotations={REQUIRE_IDS_KEY: "false"})
    cluster.whole("p")
    [pod] = cluster.members("p")
    assert envs(pod) == {"main": [INJECTED]}
    assert seen_by(pod) == ""
