"""Nobody forges: deploy/reserved-keys.yaml on a real kube-apiserver, by every door, and what stays open."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
import yaml

from gangsched.lab.controlplane.processes import ControlPlane
from gangsched.model.devices.annotations import ALLOCATED_KEY, VISIBLE_KEY, is_device_key, visible_key
from gangsched.model.devices.labels import allocated_key, allocated_labels
from gangsched.model.pod_group import ATTEMPT_KEY, GANG_KEY, RANK_KEY, START_KEY, STARTED_IN_KEY
from gangsched.telemetry.names import TRACEPARENT_KEY
from tests.deploy.conftest import DEPLOY, SCHEDULER
from tests.deploy.doors import (
    BINDING,
    CHANGING,
    CLOSED,
    CREATING,
    MERGE,
    NAMESPACE,
    NODE,
    OPEN,
    PODS,
    STRATEGIC,
    Answer,
    Door,
    Json,
    Person,
    bind,
    create,
    new_pod,
    patch_status,
)
from tests.kubectl.run import Kubectl

pytestmark = pytest.mark.real

KEYS = {
    ALLOCATED_KEY: '{"main":{"nvidia.com/gpu":["GPU-1"]}}',
    VISIBLE_KEY: "GPU-1",
    GANG_KEY: "default/a",
    RANK_KEY: "0",
    ATTEMPT_KEY: "1",
    START_KEY: '{"together":2,"needs":2}',
    STARTED_IN_KEY: "research",
    TRACEPARENT_KEY: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
}
FORGED = {ALLOCATED_KEY: '{"main":{"nvidia.com/gpu":["GPU-2"]}}', "own/key": "kept"}
_numbers = count()


@pytest.fixture
def name(guarded: ControlPlane) -> Iterator[str]:
    """A pod's name that nobody has had; what it names is gone afterwards."""
    made = f"p{next(_numbers)}"
    yield made
    Person(guarded, guarded.token).send("DELETE", f"{PODS}/{made}", {"gracePeriodSeconds": 0})


@pytest.fixture
def admin(guarded: ControlPlane) -> Person:
    """A cluster admin: system:masters."""
    return Person(guarded, guarded.token)


@pytest.fixture
def alice(guarded: ControlPlane) -> Person:
    """A user who may do everything with pods, in all namespaces."""
    return Person(guarded, guarded.tokens["alice"])


@pytest.fixture
def scheduler(guarded: ControlPlane) -> Person:
    """With its token, so with the rights of deploy/rbac.yaml."""
    token = guarded.kubectl("create", "token", "gangsched", "--namespace=gangsched-system").strip()
    return Person(guarded, token)


@pytest.fixture
def kubectl(guarded: ControlPlane, tmp_path: Path) -> Kubectl:
    """Alice's, in the namespace of these tests."""
    made = Kubectl(guarded.assets.path("kubectl"), guarded.kubeconfig_of("alice"), tmp_path / "cache")
    made.namespace = NAMESPACE
    return made


@pytest.fixture
def held(name: str, alice: Person, scheduler: Person) -> str:
    """A pod that the scheduler has bound, with devices."""
    assert create(alice, name, {"own/key": "mine"}).code == 201
    answer = bind(scheduler, name, KEYS)
    assert answer.code == 201, answer.message
    return name


CONTAINERS_KEY = visible_key("nvidia.com/gpu", "main")
LABEL_KEY = allocated_key("nvidia.com/gpu", "main")
LABELS_OF_BINDINGS_SINCE = 35
"""An older kube-apiserver takes a Binding's annotations over to the pod, and not its labels."""


def keys_of(who: Person, name: str) -> dict[str, str]:
    """The reserved annotations and labels that the pod has; none where there is no pod."""
    found = who.send("GET", f"{PODS}/{name}").body["metadata"]
    notes = found.get("annotations", {})
    return {
        **{key: value for key, value in notes.items() if key in KEYS or is_device_key(key)},
        **allocated_labels(found.get("labels")),
    }


def refused(answer: Answer, user: str, *keys: str) -> None:
    """It says who may, what was wrong, who tried, and what would be right."""
    assert answer.code == 403, answer.body
    assert f"only the scheduler ({SCHEDULER}) writes {', '.join(keys)}, " in answer.message
    assert f"; {user} may not. Leave these keys out of the " in answer.message


# -- every door ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("door", OPEN)
def test_without_the_policy_any_account_writes_reserved_keys(fresh_cluster: ControlPlane, door: Door) -> None:
    """So that what is refused below is refused by the policy: annotation and label."""
    admin = Person(fresh_cluster, fresh_cluster.token)
    admin.send("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    name = f"open{next(_numbers)}"
    if door not in CREATING:
        assert create(admin, name, {}).code == 201
    answer = door(admin, name, {**FORGED, LABEL_KEY: "GPU-2"})
    assert answer.code == (201 if door.__name__.startswith(("create", "bind")) else 200), answer.message
    expected = {ALLOCATED_KEY, LABEL_KEY}
    if door in BINDING and fresh_cluster.minor_version < LABELS_OF_BINDINGS_SINCE:
        expected.remove(LABEL_KEY)
    assert expected <= {*keys_of(admin, name)}


@pytest.mark.parametrize("door", OPEN)
@pytest.mark.parametrize("user", ["alice", "admin"])
def test_no_request_of_another_account_writes_reserved_keys(
    user: str, door: Door, name: str, guarded: ControlPlane, admin: Person
) -> None:
    who = Person(guarded, guarded.tokens[user])
    if door not in CREATING:
        assert create(who, name, {}).code == 201
    refused(door(who, name, FORGED), user, ALLOCATED_KEY)
    pod = admin.send("GET", f"{PODS}/{name}")
    if door in CREATING:
        assert pod.code == 404
    else:
        assert "own/key" not in pod.body["metadata"].get("annotations", {}), "nothing of it was written"
        assert not keys_of(admin, name)
        assert "nodeName" not in pod.body["spec"]


@pytest.mark.parametrize("door", OPEN)
@pytest.mark.parametrize(
    ("key", "field"),
    [
        (CONTAINERS_KEY, "annotations"),
        pytest.param(LABEL_KEY, "labels", marks=pytest.mark.since(LABELS_OF_BINDINGS_SINCE)),
    ],
)
def test_what_one_container_has_is_guarded_too(
    key: str, field: str, door: Door, name: str, alice: Person, scheduler: Person, admin: Person
) -> None:
    """Its key has the container's name, which no list can foresee."""
    if door not in CREATING:
        assert create(alice, name, {}).code == 201
    refused(door(alice, name, {key: "GPU-2"}), "alice", key)
    if door in CHANGING:
        assert bind(scheduler, name, {**KEYS, key: "GPU-1"}).code == 201
        assert door(alice, name, {key: "GPU-2"}).code == 403
        gone = alice.send("PATCH", f"{PODS}/{name}", {"metadata": {field: {key: None}}}, MERGE)
        assert gone.code == 403
        assert f"takes away {key}, which say what this pod holds" in gone.message
        assert keys_of(admin, name)[key] == "GPU-1"


@pytest.mark.parametrize("door", CHANGING)
def test_what_the_scheduler_wrote_is_not_changed(door: Door, held: str, alice: Person) -> None:
    refused(door(alice, held, FORGED), "alice", ALLOCATED_KEY)
    assert keys_of(alice, held) == KEYS


@pytest.mark.parametrize("door", CLOSED)
def test_kubernetes_itself_drops_the_keys_from_these_requests(door: Door, held: str, alice: Person) -> None:
    answer = door(alice, held, {**KEYS, **FORGED})
    assert answer.code == 200, answer.message
    assert keys_of(alice, held) == KEYS


@pytest.mark.parametrize("key", sorted(KEYS))
def test_each_key_is_reserved(key: str, name: str, alice: Person) -> None:
    refused(create(alice, name, {key: "x"}), "alice", key)
    refused(create(alice, name, {key: ""}), "alice", key)
    assert create(alice, name, {}).code == 201
    refused(patch_status(alice, name, {key: "x"}), "alice", key)
    refused(bind(alice, name, {key: "x"}), "alice", key)


def test_every_wrong_key_is_named_at_once(name: str, alice: Person) -> None:
    refused(create(alice, name, KEYS), "alice", *KEYS)


@pytest.mark.parametrize("user", ["system:serviceaccount:kube-system:job-controller", "system:node:n0"])
def test_controllers_and_kubelets_are_no_exemption(user: str, name: str, guarded: ControlPlane) -> None:
    """A template with a key in it makes no pod, and a static pod's mirror may not have one either."""
    who = Person(guarded, guarded.token, acts_as=(user, "system:masters"))
    refused(create(who, name, {GANG_KEY: "default/a"}), user, GANG_KEY)


# -- taking keys away ----------------------------------------------------------------------------------


@pytest.mark.parametrize("subresource", ["", "/status"])
def test_reserved_keys_cannot_be_removed_while_the_pod_has_a_node(
    subresource: str, held: str, alice: Person
) -> None:
    patch = {"metadata": {"annotations": {VISIBLE_KEY: None}}}
    answer = alice.send("PATCH", f"{PODS}/{held}{subresource}", patch, MERGE)
    assert answer.code == 403
    assert f"takes away {VISIBLE_KEY}, which say what this pod holds on node {NODE}; alice" in answer.message
    assert "To give the devices back, delete the pod." in answer.message
    assert keys_of(alice, held) == KEYS


def test_one_from_before_the_policy_may_go_from_a_pod_without_a_node(
    name: str, alice: Person, guarded: ControlPlane
) -> None:
    as_scheduler = Person(guarded, guarded.token, acts_as=(SCHEDULER, "system:masters"))
    assert create(as_scheduler, name, KEYS).code == 201
    patch = {"metadata": {"annotations": dict.fromkeys(KEYS)}}
    assert alice.send("PATCH", f"{PODS}/{name}", patch, MERGE).code == 200
    assert not keys_of(alice, name)


# -- what stays open -----------------------------------------------------------------------------------


def test_the_schedulers_binding_passes(held: str, alice: Person) -> None:
    pod = alice.send("GET", f"{PODS}/{held}").body
    assert pod["spec"]["nodeName"] == NODE
    assert pod["metadata"]["annotations"] == {"own/key": "mine", **KEYS}


@pytest.mark.parametrize("door", BINDING)
def test_another_account_may_bind_a_pod_without_reserved_keys(door: Door, name: str, alice: Person) -> None:
    assert create(alice, name, {}).code == 201
    answer = door(alice, name, {"own/key": "x"})
    assert answer.code == 201, answer.message


def test_ordinary_writes_of_a_bound_pod_pass(held: str, guarded: ControlPlane, alice: Person) -> None:
    """As a kubelet writes status, a controller labels and finalizers, and a user annotations of his own."""
    kubelet = Person(guarded, guarded.token, acts_as=("system:node:elsewhere", "system:masters"))
    path = f"{PODS}/{held}"
    pod = alice.send("GET", path).body
    status = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": {"phase": "Running"}}
    assert kubelet.send("PATCH", f"{path}/status", status, STRATEGIC).code == 200
    pod = alice.send("GET", path).body
    pod["metadata"]["labels"] = {"a": "b"}
    pod["metadata"]["annotations"]["own/key"] = "changed"
    pod["metadata"]["finalizers"] = ["own/finalizer"]
    assert alice.send("PUT", path, pod).code == 200
    assert alice.send("PATCH", path, {"metadata": {"finalizers": None}}, MERGE).code == 200
    done = {"status": {"phase": "Succeeded"}}
    assert kubelet.send("PATCH", f"{path}/status", done, MERGE).code == 200
    assert keys_of(alice, held) == KEYS
    assert alice.send("DELETE", path, {"gracePeriodSeconds": 0}).code == 200


def test_an_admin_repairs_by_acting_as_the_scheduler(held: str, guarded: ControlPlane, alice: Person) -> None:
    """The way that the file names."""
    command = ["annotate", "pod", held, f"--namespace={NAMESPACE}", "--overwrite", f"{VISIBLE_KEY}=GPU-3"]
    who = [f"--as={SCHEDULER}", "--as-group=system:masters"]
    guarded.kubectl(*command, *who)
    assert keys_of(alice, held) == {**KEYS, VISIBLE_KEY: "GPU-3"}
    assert f"kubectl annotate ... {' '.join(who)}" in (DEPLOY / "reserved-keys.yaml").read_text()


# -- with kubectl --------------------------------------------------------------------------------------


def test_a_running_pod_is_read_and_applied_again(held: str, kubectl: Kubectl, alice: Person) -> None:
    text = kubectl.run(["get", "pod", held, "-o", "yaml"]).out
    said = kubectl.run(["apply", "-f", "-"], text)
    assert said.code == 0, said.err
    assert keys_of(alice, held) == KEYS


def test_the_refusal_of_a_running_pods_copy_says_what_to_leave_out(held: str, kubectl: Kubectl) -> None:
    pod = yaml.safe_load(kubectl.run(["get", "pod", held, "-o", "yaml"]).out)
    pod["metadata"] = {"name": f"{held}-copy", "annotations": pod["metadata"]["annotations"]}
    said = kubectl.run(["apply", "-f", "-"], yaml.safe_dump(pod))
    assert said.code == 1
    assert "in a copy of a pod that has run, delete them together with spec.nodeName." in said.err
    pod["metadata"]["annotations"] = {"own/key": "mine"}
    del pod["spec"]["nodeName"]
    said = kubectl.run(["apply", "-f", "-"], yaml.safe_dump(pod))
    assert said.code == 0, said.err
    kubectl.run(["delete", "pod", f"{held}-copy", "--now"])


def test_a_pods_file_replaces_it_only_with_its_keys(held: str, kubectl: Kubectl, alice: Person) -> None:
    pod = yaml.safe_load(kubectl.run(["get", "pod", held, "-o", "yaml"]).out)
    del pod["metadata"]["annotations"]
    said = kubectl.run(["replace", "-f", "-"], yaml.safe_dump(pod))
    assert said.code == 1
    assert "kubectl replace needs them in its file" in said.err
    assert keys_of(alice, held) == KEYS


def test_kubectl_debug_works(held: str, kubectl: Kubectl) -> None:
    """With an ephemeral container, and with a copy; a copy that keeps the annotations is refused."""
    debug = ["debug", held, "--image=busybox", "--profile=general", "--attach=false"]
    said = kubectl.run([*debug, "--container=shell"])
    assert said.code == 0, said.err
    copy = [*debug, f"--copy-to={held}-copy"]
    said = kubectl.run(copy)
    assert said.code == 0, said.err
    kubectl.run(["delete", "pod", f"{held}-copy", "--now"])
    said = kubectl.run([*copy, "--keep-annotations"])
    assert said.code == 1
    assert "Leave these keys out" in said.err


# -- the file ------------------------------------------------------------------------------------------


def test_it_names_the_keys_and_the_account_that_the_scheduler_has(base: list[Json]) -> None:
    [account] = [d["metadata"] for d in base if d["kind"] == "ServiceAccount"]
    assert f"system:serviceaccount:{account['namespace']}:{account['name']}" == SCHEDULER
    policies = [
        document
        for document in base
        if document["kind"] == "ValidatingAdmissionPolicy"
        and document["metadata"]["name"].startswith("gangsched-reserved-keys")
    ]
    assert len(policies) == 2
    for policy in policies:
        [condition] = policy["spec"]["matchConditions"]
        assert condition["expression"] == f"request.userInfo.username != '{SCHEDULER}'"
        listed = str(policy["spec"]["variables"][0]["expression"])
        named = json.loads(listed[: listed.index("]") + 1].replace("'", '"'))
        assert {f"gangsched.io/{key}" for key in named} == set(KEYS)


def test_a_pod_without_annotations_is_left_alone(name: str, alice: Person) -> None:
    pod = new_pod(name)
    del pod["metadata"]["annotations"]
    assert alice.send("POST", PODS, pod).code == 201
    assert alice.send("PATCH", f"{PODS}/{name}", {"metadata": {"labels": {"a": "b"}}}, MERGE).code == 200
