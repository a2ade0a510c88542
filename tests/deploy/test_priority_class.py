"""The PriorityClass gangsched is for the scheduler's namespace alone: deploy/ on a real kube-apiserver."""

from __future__ import annotations

from typing import Any

import pytest

from gangsched.lab.controlplane.processes import ControlPlane
from tests.deploy.doors import NAMESPACE, PODS, Person, new_pod

pytestmark = pytest.mark.real

CLASS = "gangsched"


@pytest.mark.parametrize("who", ["alice", "admin"])
def test_no_pod_of_another_namespace_has_the_schedulers_class(guarded: ControlPlane, who: str) -> None:
    person = Person(guarded, guarded.tokens["alice"] if who == "alice" else guarded.token)
    for dry in ("", "?dryRun=All"):
        answer = person.send("POST", PODS + dry, new_pod("above-all", priorityClassName=CLASS))
        assert answer.code == 403
        assert "the PriorityClass gangsched is for the scheduler" in answer.message
        assert f"may not use it in {NAMESPACE}. Name another class in the pod" in answer.message
    assert person.send("GET", f"{PODS}/above-all").code == 404


def test_its_value_cannot_be_written_either(guarded: ControlPlane) -> None:
    alice = Person(guarded, guarded.tokens["alice"])
    answer = alice.send("POST", PODS, new_pod("above-all", priority=1_000_000_000))
    assert answer.code == 403
    assert "the integer value of priority" in answer.message


def test_pods_of_its_namespace_and_of_other_classes_are_as_before(guarded: ControlPlane) -> None:
    admin = Person(guarded, guarded.token)
    own = "/api/v1/namespaces/gangsched-system/pods?dryRun=All"
    template = admin.send("GET", "/apis/apps/v1/namespaces/gangsched-system/deployments/gangsched").body
    spec = template["spec"]["template"]["spec"]
    made = admin.send("POST", own, {"metadata": {"name": "own"}, "spec": spec})
    assert (made.code, made.body["spec"]["priority"]) == (201, 1_000_000_000)
    for name in ("system-cluster-critical", ""):
        more: dict[str, Any] = {"priorityClassName": name} if name else {}
        assert admin.send("POST", f"{PODS}?dryRun=All", new_pod("usual", **more)).code == 201


@pytest.mark.parametrize("name", ["system-cluster-critical", "system-node-critical"])
def test_a_tenant_gets_no_system_class_for_pods_that_gangsched_places(
    guarded: ControlPlane, name: str
) -> None:
    """The API server itself lets anyone use them in any namespace, as the last lines show."""
    alice, admin = Person(guarded, guarded.tokens["alice"]), Person(guarded, guarded.token)
    pod = new_pod("above-all", priorityClassName=name, schedulerName="gangsched")
    for person in (alice, admin):
        answer = person.send("POST", f"{PODS}?dryRun=All", pod)
        assert answer.code == 403
        assert f"the PriorityClass {name} passes the limits of all queues" in answer.message
        assert f"may not use it in {NAMESPACE} for pods that gangsched places" in answer.message
    own = {**pod, "metadata": {"name": "own", "namespace": "kube-system"}}
    assert admin.send("POST", "/api/v1/namespaces/kube-system/pods?dryRun=All", own).code == 201
    others = new_pod("of-another-scheduler", priorityClassName=name)
    made = alice.send("POST", f"{PODS}?dryRun=All", others)
    assert (made.code, made.body["spec"]["priority"] >= 2_000_000_000) == (201, True)


def test_no_user_makes_a_class_of_a_systems_value(guarded: ControlPlane) -> None:
    admin = Person(guarded, guarded.token)
    made = {"metadata": {"name": "mine"}, "value": 2_000_000_000}
    answer = admin.send("POST", "/apis/scheduling.k8s.io/v1/priorityclasses?dryRun=All", made)
    assert answer.code in (403, 422)
    assert "maximum allowed value of a user defined priority is 1000000000" in answer.message
