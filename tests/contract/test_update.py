"""Replacing an object: resource versions, generations, what cannot change."""

from __future__ import annotations

import pytest

from tests.contract.api import Api, Json
from tests.contract.objects import config_map, gated, unique
from tests.support.bodies import pod

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def test_an_update_needs_the_latest_version(api: Api) -> None:
    made = api.post(api.at("configmaps"), config_map("a")).ok(201)
    second = api.put(api.at("configmaps", "a"), {**made, "data": {"a": "2"}}).ok()
    assert int(second["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
    said = api.put(api.at("configmaps", "a"), {**made, "data": {"a": "3"}}).no(
        409, "Conflict", f'Operation cannot be fulfilled on configmaps "a": {MODIFIED}'
    )
    assert said["details"] == {"name": "a", "kind": "configmaps"}
    assert api.get(api.at("configmaps", "a")).ok()["data"] == {"a": "2"}


def test_an_update_without_a_version_takes_what_is_there(api: Api) -> None:
    made = api.post(api.at("configmaps"), config_map("a")).ok(201)
    changed = api.put(api.at("configmaps", "a"), config_map("a", {"b": "2"})).ok()
    assert changed["data"] == {"b": "2"}
    assert changed["metadata"]["uid"] == made["metadata"]["uid"]
    assert changed["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]


def test_an_update_that_changes_nothing_is_no_write(api: Api) -> None:
    made = api.post(api.at("configmaps"), config_map("a")).ok(201)
    assert api.put(api.at("configmaps", "a"), made).ok() == made


def test_an_update_of_nothing(api: Api) -> None:
    api.put(api.at("configmaps", "a"), config_map("a")).no(404, "NotFound", 'configmaps "a" not found')
    api.put(api.at("configmaps", "a"), config_map("b")).no(
        400, "BadRequest", "the name of the object (b) does not match the name on the URL (a)"
    )


def test_an_update_with_another_uid_is_for_another_object(api: Api) -> None:
    made = api.post(api.at("configmaps"), config_map("a")).ok(201)
    other = "11111111-2222-3333-4444-555555555555"
    answer = api.put(api.at("configmaps", "a"), config_map("a", uid=other))
    key = f"/registry/configmaps/{api.namespace}/a"
    answer.no(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on configmaps "a": StorageError: invalid object, Code: 4, Key: {key}, '
        f"ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {other}, "
        f"UID in object meta: {made['metadata']['uid']}",
    )


def test_some_kinds_are_made_by_an_update(api: Api) -> None:
    path = api.at("leases", "a", group="/apis/coordination.k8s.io/v1")
    made = api.put(path, {"metadata": {"name": "a"}, "spec": {"holderIdentity": "me"}}).ok(201)
    assert made["spec"] == {"holderIdentity": "me"}


@pytest.mark.parametrize(
    ("plural", "body", "change"),
    [
        ("pods", gated("a"), {"activeDeadlineSeconds": 9}),
        ("services", {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 1}]}}, None),
    ],
)
def test_the_generation_counts_changes_of_the_spec(
    api: Api, plural: str, body: Json, change: Json | None
) -> None:
    made = api.post(api.at(plural), body).ok(201)
    if change is None:
        assert "generation" not in made["metadata"]
        return
    assert made["metadata"]["generation"] == 1
    labelled = api.patch(api.at(plural, "a"), {"metadata": {"labels": {"b": "c"}}}).ok()
    assert labelled["metadata"]["generation"] == 1
    changed = api.patch(api.at(plural, "a"), {"spec": change}).ok()
    assert changed["metadata"]["generation"] == 2
    status = api.patch(api.at(plural, "a", "status"), {"status": {"message": "x"}}).ok()
    assert status["metadata"]["generation"] == 2


def test_a_pod_s_spec_is_fixed(api: Api) -> None:
    made = api.post(api.at("pods"), pod("a")).ok(201)
    made["spec"]["containers"][0]["env"] = [{"name": "A", "value": "1"}]
    answer = api.put(api.at("pods", "a"), made)
    assert (answer.code, answer.body["reason"]) == (422, "Invalid")
    assert answer.body["message"].startswith(
        'Pod "a" is invalid: spec: Forbidden: pod updates may not change fields other than '
        "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
        "`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` "
        "(allow it to be set to 1 if it was previously negative)"
    )
    image = api.patch(api.at("pods", "a"), {"spec": {"activeDeadlineSeconds": 30}}).ok()
    assert image["spec"]["activeDeadlineSeconds"] == 30
    answer = api.patch(api.at("pods", "a"), {"spec": {"schedulerName": "other"}})
    assert (answer.code, answer.body["reason"]) == (422, "Invalid")


def test_scheduling_gates_are_only_taken_away(api: Api) -> None:
    api.post(api.at("pods"), gated("a")).ok(201)
    answer = api.patch(
        api.at("pods", "a"),
        {"spec": {"schedulingGates": [{"name": "example.com/wait"}, {"name": "example.com/more"}]}},
    )
    answer.no(
        422,
        "Invalid",
        'Pod "a" is invalid: spec.schedulingGates[1].name: Forbidden: only deletion is allowed, but found new scheduling '
        "gate 'example.com/more'",
    )
    opened = api.patch(api.at("pods", "a"), {"spec": {"schedulingGates": []}}).ok()
    assert "schedulingGates" not in opened["spec"]


def test_metadata_that_the_server_keeps(api: Api) -> None:
    made = api.post(api.at("configmaps"), config_map("a")).ok(201)
    answer = api.put(api.at("configmaps", "a"), config_map("a", generation=9, creationTimestamp=None)).ok()
    assert answer["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]
    marked = config_map("a", deletionTimestamp="2001-01-01T00:00:00Z")
    api.put(api.at("configmaps", "a"), marked).no(
        422,
        "Invalid",
        'ConfigMap "a" is invalid: metadata.deletionTimestamp: Invalid value: "2001-01-01T00:00:00Z": '
        "field is immutable",
    )
    api.patch(api.at("configmaps", "a"), {"metadata": {"name": "b"}}).no(
        400, "BadRequest", "the name of the object (b) does not match the name on the URL (a)"
    )


def test_a_priority_class_keeps_its_value(api: Api) -> None:
    name = unique("pc")
    group = "/apis/scheduling.k8s.io/v1/priorityclasses"
    api.post(group, {"metadata": {"name": name}, "value": 7}).ok(201)
    answer = api.patch(f"{group}/{name}", {"value": 8})
    answer.no(
        422,
        "Invalid",
        f'PriorityClass.scheduling.k8s.io "{name}" is invalid: value: Forbidden: may not be changed in an update.',
    )


def test_no_object_is_larger_than_etcd_takes(api: Api) -> None:
    def image(n_bytes: int) -> Json:
        return {"containerStatuses": [{"name": "main", "image": "i" * n_bytes}]}

    made = api.post(api.at("pods"), pod("a")).ok(201)
    path = api.at("pods", "a", "status")
    # Bit by bit, each a request that is small enough.
    api.patch(path, {"status": {"message": "m" * 700_000}}).ok()
    before = api.patch(path, {"status": {"reason": "r" * 700_000}}).ok()["metadata"]
    assert int(before["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
    api.patch(path, {"status": image(300_000)}).no(500, "", "etcdserver: request is too large")
    assert api.get(api.at("pods", "a")).ok()["metadata"]["resourceVersion"] == before["resourceVersion"]
    api.delete(api.at("pods", "a")).ok()
