"""Deleting: at once, with grace, with finalizers, under preconditions, whole collections."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.api import CORE, Answer, Api
from tests.contract.objects import bind, config_map, unique
from tests.support.bodies import node, pod

NOW = {"gracePeriodSeconds": 0}


def test_what_is_gone_at_once_is_answered_with_a_status(api: Api) -> None:
    made = api.post(api.at("configmaps"), config_map("a")).ok(201)
    said = api.delete(api.at("configmaps", "a")).ok()
    assert (said["kind"], said["status"]) == ("Status", "Success")
    assert said["details"] == {"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]}
    api.delete(api.at("configmaps", "a")).no(404, "NotFound", 'configmaps "a" not found')


def test_a_pod_without_a_node_goes_at_once(api: Api) -> None:
    api.post(api.at("pods"), pod("a")).ok(201)
    gone = api.delete(api.at("pods", "a")).ok()
    assert (gone["kind"], gone["metadata"]["name"]) == ("Pod", "a")
    api.get(api.at("pods", "a")).no(404, "NotFound", 'pods "a" not found')


def bound(api: Api, name: str, **spec: Any) -> None:
    api.post(api.at("pods"), pod(name, **spec)).ok(201)
    bind(api, name)


def test_a_bound_pod_waits_for_its_kubelet(api: Api) -> None:
    bound(api, "a", terminationGracePeriodSeconds=40)
    marked = api.delete(api.at("pods", "a")).ok()["metadata"]
    assert marked["deletionGracePeriodSeconds"] == 40
    assert marked["deletionTimestamp"] > marked["creationTimestamp"]
    assert marked["generation"] == 2
    # Again, and with a longer grace: nothing changes.
    again = api.delete(api.at("pods", "a"), {"gracePeriodSeconds": 90}).ok()["metadata"]
    assert again["deletionTimestamp"] == marked["deletionTimestamp"]
    shorter = api.delete(api.at("pods", "a"), {"gracePeriodSeconds": 5}).ok()["metadata"]
    assert shorter["deletionGracePeriodSeconds"] == 5
    assert shorter["deletionTimestamp"] < marked["deletionTimestamp"]
    # The kubelet's word.
    api.delete(api.at("pods", "a"), NOW).ok()
    api.get(api.at("pods", "a")).no(404, "NotFound", 'pods "a" not found')


def test_the_grace_period_can_be_given_in_the_query(api: Api) -> None:
    bound(api, "a")
    assert api.delete(api.at("pods", "a")).ok()["metadata"]["deletionGracePeriodSeconds"] == 30
    bound(api, "b")
    api.delete(api.at("pods", "b"), gracePeriodSeconds=0).ok()
    api.get(api.at("pods", "b")).no(404, "NotFound", 'pods "b" not found')


def test_a_pod_that_has_ended_has_no_grace(api: Api) -> None:
    bound(api, "a")
    api.patch(api.at("pods", "a", "status"), {"status": {"phase": "Succeeded"}}).ok()
    api.delete(api.at("pods", "a")).ok()
    api.get(api.at("pods", "a")).no(404, "NotFound", 'pods "a" not found')


def test_finalizers_hold_an_object(api: Api) -> None:
    api.post(api.at("configmaps"), config_map("a", finalizers=["example.com/hold"])).ok(201)
    marked = api.delete(api.at("configmaps", "a")).ok()["metadata"]
    assert marked["deletionGracePeriodSeconds"] == 0
    assert marked["deletionTimestamp"]
    assert marked["finalizers"] == ["example.com/hold"]
    answer = api.patch(api.at("configmaps", "a"), {"metadata": {"finalizers": ["a.b/c", "example.com/hold"]}})
    answer.no(
        422,
        "Invalid",
        'ConfigMap "a" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is '
        'being deleted, found new finalizers []string{"a.b/c"}',
    )
    api.patch(api.at("configmaps", "a"), {"metadata": {"finalizers": None}}).ok()
    api.get(api.at("configmaps", "a")).no(404, "NotFound", 'configmaps "a" not found')


def test_propagation_is_a_finalizer(api: Api) -> None:
    for policy, finalizer in (("Foreground", "foregroundDeletion"), ("Orphan", "orphan")):
        name = policy.lower()
        api.post(api.at("configmaps"), config_map(name)).ok(201)
        marked = api.delete(api.at("configmaps", name), {"propagationPolicy": policy}).ok()["metadata"]
        assert marked["finalizers"] == [finalizer]
        api.patch(api.at("configmaps", name), {"metadata": {"finalizers": None}}).ok()
    answer = api.delete(api.at("configmaps", "a"), {"propagationPolicy": "Never"})
    assert (answer.code, answer.body["reason"]) == (422, "Invalid")
    assert answer.body["message"] == (
        'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "Never": '
        'supported values: "Foreground", "Background", "Orphan", "nil"'
    )


@pytest.mark.parametrize("plural", ["configmaps", "pods"])
def test_propagation_may_change_while_finalizers_hold_the_object(api: Api, plural: str) -> None:
    body = (pod if plural == "pods" else config_map)("a")
    api.post(api.at(plural), body).ok(201)

    def finalizers(answer: Answer) -> object:
        return answer.ok()["metadata"]["finalizers"]

    path = api.at(plural, "a")
    assert finalizers(api.delete(path, {"propagationPolicy": "Foreground"})) == ["foregroundDeletion"]
    # Nothing is asked for: nothing changes.
    marked = api.get(path).ok()["metadata"]["resourceVersion"]
    assert api.delete(path).ok()["metadata"]["resourceVersion"] == marked
    assert finalizers(api.delete(path, {"propagationPolicy": "Orphan"})) == ["orphan"]
    assert finalizers(api.get(path)) == ["orphan"]
    api.delete(path, {"propagationPolicy": "Background"}).ok()
    assert api.get(path).code == 404


def test_preconditions(api: Api) -> None:
    made = api.post(api.at("configmaps"), config_map("a")).ok(201)["metadata"]
    other = "11111111-2222-3333-4444-555555555555"
    api.delete(api.at("configmaps", "a"), {"preconditions": {"uid": other}}).no(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on ConfigMap "a": the UID in the precondition ({other}) does not match '
        f"the UID in record ({made['uid']}). The object might have been deleted and then recreated",
    )
    api.delete(api.at("configmaps", "a"), {"preconditions": {"resourceVersion": "1"}}).no(
        409,
        "Conflict",
        'Operation cannot be fulfilled on ConfigMap "a": the ResourceVersion in the precondition (1) does not '
        f"match the ResourceVersion in record ({made['resourceVersion']}). The object might have been modified",
    )
    api.delete(api.at("configmaps", "a"), {"preconditions": {"uid": made["uid"]}}).ok()


def test_a_dry_run_deletes_nothing(api: Api) -> None:
    api.post(api.at("configmaps"), config_map("a")).ok(201)
    api.delete(api.at("configmaps", "a"), {"dryRun": ["All"]}).ok()
    api.delete(api.at("configmaps", "a"), dryRun="All").ok()
    api.get(api.at("configmaps", "a")).ok()


def test_a_collection_is_deleted_by_selector(api: Api) -> None:
    for name, color in (("a", "red"), ("b", "blue"), ("c", "red")):
        api.post(api.at("configmaps"), config_map(name, labels={"color": color})).ok(201)
    deleted = api.delete(api.at("configmaps"), labelSelector="color=red").ok()
    assert deleted["kind"] == "ConfigMapList"
    assert [each["metadata"]["name"] for each in deleted["items"]] == ["a", "c"]
    assert [each["metadata"]["name"] for each in api.get(api.at("configmaps")).ok()["items"]] == ["b"]
    # As the scheduler's users' tools do: all pods, at once.
    bound(api, "p")
    api.delete(api.at("pods"), NOW).ok()
    assert api.get(api.at("pods")).ok()["items"] == []


def test_nodes_go_at_once(api: Api) -> None:
    name = unique("node")
    api.post(f"{CORE}/nodes", node(name)).ok(201)
    said = api.delete(f"{CORE}/nodes/{name}").ok()
    assert (said["kind"], said["status"]) == ("Status", "Success")
