"""What the scheduler does to pods: binding, conditions, eviction."""

from __future__ import annotations

import pytest

from tests.contract.api import CORE, STRATEGIC, Api, Json
from tests.contract.objects import bind, binding, condition, gated
from tests.support.bodies import pod

POLICY = "/apis/policy/v1"
OTHER_UID = "11111111-2222-3333-4444-555555555555"


def test_a_binding_writes_node_and_annotations_at_once(api: Api) -> None:
    made = api.post(api.at("pods"), pod("a", metadata={"annotations": {"mine": "1"}})).ok(201)
    start = made["metadata"]["resourceVersion"]
    added = {"gangsched.io/rank": "0", "mine": "2"}
    said = bind(api, "a", uid=made["metadata"]["uid"], annotations=added)
    assert (said["kind"], said["status"], said["code"]) == ("Status", "Success", 201)
    bound = api.get(api.at("pods", "a")).ok()
    assert bound["spec"]["nodeName"] == "some-node"
    assert bound["metadata"]["annotations"] == added
    assert bound["metadata"]["generation"] == 1
    [scheduled] = bound["status"]["conditions"]
    assert (scheduled["type"], scheduled["status"]) == ("PodScheduled", "True")
    assert scheduled["lastTransitionTime"]
    with api.watch(api.at("pods"), resourceVersion=start) as watch:
        type_, seen = watch.next()
    assert (type_, seen) == ("MODIFIED", bound)


@pytest.mark.since(35)
def test_labels_of_a_binding_are_merged_too(api: Api) -> None:
    api.post(api.at("pods"), pod("a", labels={"mine": "1"})).ok(201)
    key = "main.nvidia.com.allocated-devices.gangsched.io/gpu"
    bind(api, "a", labels={"topology.kubernetes.io/zone": "z", key: "g0.g1"})
    labels = api.get(api.at("pods", "a")).ok()["metadata"]["labels"]
    assert labels == {"mine": "1", "topology.kubernetes.io/zone": "z", key: "g0.g1"}


@pytest.mark.since(35)
def test_a_label_of_a_binding_goes_over_the_pods_own(api: Api) -> None:
    api.post(api.at("pods"), pod("a", labels={"mine": "1", "same": "old"})).ok(201)
    bind(api, "a", labels={"same": "new"})
    assert api.get(api.at("pods", "a")).ok()["metadata"]["labels"] == {"mine": "1", "same": "new"}


def test_a_pod_is_bound_once(api: Api) -> None:
    api.post(api.at("pods"), pod("a")).ok(201)
    bind(api, "a")
    again = binding("a", "another-node")
    said = api.post(api.at("pods", "a", "binding"), again).no(
        409,
        "Conflict",
        'Operation cannot be fulfilled on pods/binding "a": pod a is already assigned to node "some-node"',
    )
    assert said["details"] == {"name": "a", "kind": "pods/binding"}
    api.post(api.at("pods", "a", "binding"), binding("a")).no(
        409,
        "Conflict",
        'Operation cannot be fulfilled on pods/binding "a": pod a is already assigned to node "some-node"',
    )


def test_a_gated_pod_is_not_bound(api: Api) -> None:
    api.post(api.at("pods"), gated("a")).ok(201)
    api.post(api.at("pods", "a", "binding"), binding("a")).no(
        409,
        "Conflict",
        'Operation cannot be fulfilled on pods/binding "a": pod a has non-empty .spec.schedulingGates',
    )


def test_a_pod_that_is_being_deleted_is_not_bound(api: Api) -> None:
    api.post(api.at("pods"), pod("a", metadata={"finalizers": ["a.b/c"]})).ok(201)
    api.delete(api.at("pods", "a")).ok()
    api.post(api.at("pods", "a", "binding"), binding("a")).no(
        409,
        "Conflict",
        'Operation cannot be fulfilled on pods/binding "a": pod a is being deleted, cannot be assigned to a host',
    )


def test_a_binding_may_be_for_one_incarnation_of_the_pod_only(api: Api) -> None:
    made = api.post(api.at("pods"), pod("a")).ok(201)["metadata"]
    api.post(api.at("pods", "a", "binding"), binding("a", uid=OTHER_UID)).no(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on pods "a": StorageError: invalid object, Code: 4, Key: /registry/pods/{api.namespace}/a, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {OTHER_UID}, UID in object meta: {made["uid"]}',
    )
    api.patch(api.at("pods", "a"), {"metadata": {"labels": {"b": "c"}}}).ok()
    answer = api.post(api.at("pods", "a", "binding"), binding("a", resourceVersion=made["resourceVersion"]))
    assert (answer.code, answer.body["reason"]) == (409, "Conflict")
    assert "Precondition failed: ResourceVersion in precondition" in answer.body["message"]
    bind(api, "a", uid=made["uid"])


def test_invalid_bindings_are_refused(api: Api) -> None:
    api.post(api.at("pods", "a", "binding"), binding("a")).no(404, "NotFound", 'pods "a" not found')
    api.post(api.at("pods"), pod("a")).ok(201)
    api.post(api.at("pods", "a", "binding"), binding("b")).no(
        400, "BadRequest", "name in URL does not match name in Binding object"
    )
    nowhere = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": ""}}
    api.post(api.at("pods", "a", "binding"), nowhere).no(500, "", "target.name: Required value")
    wrong = {"metadata": {"name": "a"}, "target": {"kind": "Pod", "name": "b"}}
    api.post(api.at("pods", "a", "binding"), wrong).no(
        500, "", 'target.kind: Unsupported value: "Pod": supported values: "Node", "<empty>"'
    )
    api.get(api.at("pods", "a", "binding")).no(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource"
    )


def test_the_older_path_binds_too(api: Api) -> None:
    api.post(api.at("pods"), pod("a")).ok(201)
    api.post(api.at("bindings"), binding("a")).ok(201)
    assert api.get(api.at("pods", "a")).ok()["spec"]["nodeName"] == "some-node"


def test_a_binding_can_be_tried(api: Api) -> None:
    api.post(api.at("pods"), pod("a")).ok(201)
    api.post(api.at("pods", "a", "binding"), binding("a"), dryRun="All").ok(201)
    assert "nodeName" not in api.get(api.at("pods", "a")).ok()["spec"]


def test_the_reason_why_not_is_a_condition(api: Api) -> None:
    made = api.post(api.at("pods"), pod("a")).ok(201)
    unschedulable = condition(
        "PodScheduled",
        "False",
        reason="Unschedulable",
        message="0/4 nodes",
        lastTransitionTime="2026-01-01T00:00:00Z",
    )
    patch = {"metadata": {"uid": made["metadata"]["uid"]}, "status": {"conditions": [unschedulable]}}
    changed = api.patch(api.at("pods", "a", "status"), patch, STRATEGIC).ok()
    assert changed["status"]["phase"] == "Pending"
    assert changed["status"]["conditions"] == [{**unschedulable, "lastProbeTime": None}]
    # Later it is bound: the same condition, turned around, and no reason is left.
    bind(api, "a")
    [scheduled] = api.get(api.at("pods", "a")).ok()["status"]["conditions"]
    assert {key: scheduled.get(key) for key in ("status", "reason", "message")} == {
        "status": "True",
        "reason": None,
        "message": None,
    }
    patch["metadata"]["uid"] = OTHER_UID
    answer = api.patch(api.at("pods", "a", "status"), patch, STRATEGIC)
    assert (answer.code, answer.body["reason"]) == (422, "Invalid")


def test_a_status_write_leaves_the_spec_and_may_annotate(api: Api) -> None:
    made = api.post(api.at("pods"), pod("a")).ok(201)
    patch = {
        "metadata": {"annotations": {"b": "c"}, "labels": {"d": "e"}},
        "spec": {"schedulerName": "other"},
        "status": {"phase": "Running", "podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.9"}]},
    }
    changed = api.patch(api.at("pods", "a", "status"), patch).ok()
    assert changed["spec"] == made["spec"]
    assert changed["metadata"]["annotations"] == {"b": "c"}
    assert changed["metadata"]["labels"] == {"d": "e"}
    assert changed["status"]["podIPs"] == [{"ip": "10.0.0.9"}]
    # And a write of the object leaves the status.
    changed["status"]["phase"] = "Failed"
    changed["metadata"]["labels"]["d"] = "f"
    after = api.put(api.at("pods", "a"), changed).ok()
    assert after["status"]["phase"] == "Running"
    assert after["metadata"]["labels"] == {"d": "f"}
    assert api.get(api.at("pods", "a", "status")).ok() == after


def eviction(name: str, **options: object) -> Json:
    body: Json = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    return {**body, "deleteOptions": options} if options else body


def test_an_eviction_is_a_deletion(api: Api) -> None:
    made = api.post(api.at("pods"), pod("a")).ok(201)["metadata"]
    path = api.at("pods", "a", "eviction")
    # With another UID it is refused, but only after the ten seconds that the real server tries again for.
    said = api.post(path, eviction("a", preconditions={"uid": made["uid"]})).ok(201)
    assert (said["kind"], said["status"], said["code"]) == ("Status", "Success", 201)
    api.get(api.at("pods", "a")).no(404, "NotFound", 'pods "a" not found')
    api.post(path, eviction("a")).no(404, "NotFound", 'pods "a" not found')


def test_an_eviction_of_a_bound_pod_has_its_grace(api: Api) -> None:
    api.post(api.at("pods"), pod("a", terminationGracePeriodSeconds=7)).ok(201)
    bind(api, "a")
    api.post(api.at("pods", "a", "eviction"), eviction("a")).ok(201)
    meta = api.get(api.at("pods", "a")).ok()["metadata"]
    assert meta["deletionGracePeriodSeconds"] == 7
    api.post(api.at("pods", "a", "eviction"), eviction("a", gracePeriodSeconds=0)).ok(201)
    api.get(api.at("pods", "a")).no(404, "NotFound", 'pods "a" not found')


NO_DELETION = 'DeleteOptions.meta.k8s.io "" is invalid: '


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"propagationPolicy": "Sideways"},
            'propagationPolicy: Unsupported value: "Sideways": supported values: "Foreground", "Background", '
            '"Orphan", "nil"',
        ),
        (
            {"propagationPolicy": "Orphan", "orphanDependents": True},
            'propagationPolicy: Invalid value: "Orphan": orphanDependents and deletionPropagation cannot be '
            "both set",
        ),
        ({"dryRun": ["Some"]}, 'dryRun: Unsupported value: ["Some"]: supported values: "All"'),
    ],
)
def test_an_eviction_that_no_deletion_could_be_is_refused(api: Api, options: Json, message: str) -> None:
    api.post(api.at("pods"), pod("a")).ok(201)
    path = api.at("pods", "a", "eviction")
    api.post(path, eviction("a", **options)).no(422, "Invalid", NO_DELETION + message)
    said = "the namespace of the provided object does not match the namespace sent on the request"
    elsewhere = {"metadata": {"name": "a", "namespace": "elsewhere"}}
    api.post(path, elsewhere).no(400, "BadRequest", said)
    assert "deletionTimestamp" not in api.get(api.at("pods", "a")).ok()["metadata"]


def bound_under_a_budget(api: Api) -> None:
    """The pod `a`, and the budget `b` that is about it."""
    budget = {
        "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
    }
    api.post(api.at("poddisruptionbudgets", group=POLICY), budget).ok(201)
    api.post(api.at("pods"), pod("a", labels={"app": "x"})).ok(201)
    bind(api, "a")


def test_a_disruption_budget_refuses_an_eviction(api: Api) -> None:
    bound_under_a_budget(api)
    running: Json = {"phase": "Running", "conditions": [condition("Ready", "True")]}
    api.patch(api.at("pods", "a", "status"), {"status": running}, STRATEGIC).ok()
    path = api.at("pods", "a", "eviction")
    # Nobody has looked at the budget yet.
    answer = api.post(path, eviction("a"))
    assert (answer.code, answer.body["reason"]) == (429, "TooManyRequests")
    assert answer.body["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    assert answer.body["details"]["causes"][0]["reason"] == "DisruptionBudget"
    seen = {
        "observedGeneration": 1,
        "disruptionsAllowed": 1,
        "currentHealthy": 2,
        "desiredHealthy": 1,
        "expectedPods": 2,
    }
    api.patch(api.at("poddisruptionbudgets", "b", "status", group=POLICY), {"status": seen}).ok()
    api.post(path, eviction("a")).ok(201)
    after = api.get(api.at("poddisruptionbudgets", "b", group=POLICY)).ok()["status"]
    assert after["disruptionsAllowed"] == 0
    assert list(after["disruptedPods"]) == ["a"]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_needs_no_budget(api: Api, phase: str) -> None:
    bound_under_a_budget(api)
    api.patch(api.at("pods", "a", "status"), {"status": {"phase": phase}}).ok()
    api.post(api.at("pods", "a", "eviction"), eviction("a")).ok(201)
    api.get(api.at("pods", "a")).no(404, "NotFound", 'pods "a" not found')


def test_pods_are_listed_everywhere_at_once(api: Api) -> None:
    api.post(api.at("pods"), pod("a", schedulerName=f"s-{api.namespace}")).ok(201)
    found = api.get(f"{CORE}/pods", fieldSelector=f"spec.schedulerName=s-{api.namespace}").ok()["items"]
    assert [each["metadata"]["name"] for each in found] == ["a"]
