"""The three patches: JSON patch, merge patch, strategic merge patch."""

from __future__ import annotations

import pytest

from tests.contract.api import CORE, JSON, JSON_PATCH, MERGE, STRATEGIC, Api, Json
from tests.contract.objects import condition, config_map, unique
from tests.support.bodies import container, node, pod


def test_a_json_patch_changes_step_by_step(api: Api) -> None:
    api.post(api.at("configmaps"), config_map("a", {"a": "1", "b": "2"})).ok(201)
    steps = [
        {"op": "test", "path": "/data/a", "value": "1"},
        {"op": "add", "path": "/metadata/labels", "value": {"x/y": "z"}},
        {"op": "replace", "path": "/metadata/labels/x~1y", "value": "w"},
        {"op": "move", "from": "/data/b", "path": "/data/c"},
        {"op": "copy", "from": "/data/c", "path": "/data/d"},
        {"op": "remove", "path": "/data/a"},
    ]
    changed = api.patch(api.at("configmaps", "a"), steps, JSON_PATCH).ok()
    assert changed["data"] == {"c": "2", "d": "2"}
    assert changed["metadata"]["labels"] == {"x/y": "w"}


def test_a_json_patch_whose_test_fails_changes_nothing(api: Api) -> None:
    made = api.post(api.at("configmaps"), config_map("a")).ok(201)
    steps = [
        {"op": "replace", "path": "/data/a", "value": "2"},
        {"op": "test", "path": "/data/a", "value": "1"},
    ]
    answer = api.patch(api.at("configmaps", "a"), steps, JSON_PATCH)
    answer.no(422, "Invalid", "the server rejected our request due to an error in our request")
    assert api.get(api.at("configmaps", "a")).ok() == made
    answer = api.patch(api.at("configmaps", "a"), [{"op": "remove", "path": "/data/z"}], JSON_PATCH)
    answer.no(422, "Invalid", "the server rejected our request due to an error in our request")


def test_a_merge_patch_replaces_lists_and_takes_away_by_null(api: Api) -> None:
    api.post(api.at("configmaps"), config_map("a", {"a": "1", "b": "2"})).ok(201)
    changed = api.patch(api.at("configmaps", "a"), {"data": {"a": None, "c": "3"}}, MERGE).ok()
    assert changed["data"] == {"b": "2", "c": "3"}
    name = unique("node")
    api.post(f"{CORE}/nodes", node(name)).ok(201)
    for type_ in ("Ready", "DiskPressure"):
        patch = {"status": {"conditions": [condition(type_, "True")]}}
        status = api.patch(f"{CORE}/nodes/{name}/status", patch, MERGE).ok()["status"]
    assert [each["type"] for each in status["conditions"]] == ["DiskPressure"]


def test_a_strategic_patch_merges_lists_by_their_key(api: Api) -> None:
    name = unique("node")
    api.post(f"{CORE}/nodes", node(name)).ok(201)
    for type_, state in (("Ready", "True"), ("DiskPressure", "False"), ("Ready", "Unknown")):
        patch = {"status": {"conditions": [condition(type_, state)]}}
        status = api.patch(f"{CORE}/nodes/{name}/status", patch, STRATEGIC).ok()["status"]
    assert {each["type"]: each["status"] for each in status["conditions"]} == {
        "Ready": "Unknown",
        "DiskPressure": "False",
    }
    away = {"status": {"conditions": [{"$patch": "delete", "type": "DiskPressure"}]}}
    status = api.patch(f"{CORE}/nodes/{name}/status", away, STRATEGIC).ok()["status"]
    assert [each["type"] for each in status["conditions"]] == ["Ready"]


def test_a_strategic_patch_of_containers(api: Api) -> None:
    two = [container("one"), container("two")]
    api.post(api.at("pods"), pod("a", containers=two)).ok(201)
    patch = {"spec": {"containers": [{"name": "two", "image": "other"}]}}
    changed = api.patch(api.at("pods", "a"), patch, STRATEGIC).ok()
    assert [(each["name"], each["image"]) for each in changed["spec"]["containers"]] == [
        ("one", "busybox"),
        ("two", "other"),
    ]


def test_tolerations_and_finalizers_are_lists_of_their_own_kind(api: Api) -> None:
    api.post(api.at("pods"), pod("a", metadata={"finalizers": ["a.b/c"]})).ok(201)
    patch: Json = {"metadata": {"finalizers": ["d.e/f"]}, "spec": {"tolerations": []}}
    changed = api.patch(api.at("pods", "a"), patch, STRATEGIC).ok()
    # A set of primitives is added to.
    assert sorted(changed["metadata"]["finalizers"]) == ["a.b/c", "d.e/f"]
    away = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a.b/c", "d.e/f"]}}
    changed = api.patch(api.at("pods", "a"), away, STRATEGIC).ok()
    assert "finalizers" not in changed["metadata"]


def test_preconditions_in_a_patch(api: Api) -> None:
    made = api.post(api.at("configmaps"), config_map("a")).ok(201)["metadata"]
    right = {"metadata": {"uid": made["uid"], "resourceVersion": made["resourceVersion"]}, "data": {"a": "2"}}
    api.patch(api.at("configmaps", "a"), right).ok()
    api.patch(api.at("configmaps", "a"), right).no(
        409,
        "Conflict",
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; please apply your changes to the latest version and try again',
    )
    other = "11111111-2222-3333-4444-555555555555"
    api.patch(api.at("configmaps", "a"), {"metadata": {"uid": other}, "data": {"a": "3"}}).no(
        422,
        "Invalid",
        f'ConfigMap "a" is invalid: metadata.uid: Invalid value: "{other}": field is immutable',
    )


def test_a_patch_of_nothing(api: Api) -> None:
    api.patch(api.at("configmaps", "a"), {"data": {}}).no(404, "NotFound", 'configmaps "a" not found')


def test_a_dry_run_patch(api: Api) -> None:
    made = api.post(api.at("configmaps"), config_map("a")).ok(201)
    shown = api.patch(api.at("configmaps", "a"), {"data": {"a": "2"}}, dryRun="All").ok()
    assert shown["data"] == {"a": "2"}
    assert api.get(api.at("configmaps", "a")).ok() == made


@pytest.mark.parametrize(
    ("content_type", "body", "code"),
    [
        (JSON_PATCH, {"data": {}}, 400),
        (JSON_PATCH, [{"op": "fly", "path": "/data"}], 422),
        (MERGE, b"{not json", 400),
        (STRATEGIC, b"[]", 400),
    ],
)
def test_invalid_patches_are_refused(api: Api, content_type: str, body: object, code: int) -> None:
    api.post(api.at("configmaps"), config_map("a")).ok(201)
    answer = api.patch(api.at("configmaps", "a"), body, content_type)
    assert answer.code == code, answer
    assert answer.body["kind"] == "Status"


@pytest.mark.parametrize(
    ("n_copies", "source", "code"),
    [(900, "/data/a", 200), (3200, "/data/a", 422), (16, "/data", 422)],
    ids=["a few", "many", "doubling"],
)
def test_a_json_patch_copies_only_so_much(api: Api, n_copies: int, source: str, code: int) -> None:
    api.post(api.at("configmaps"), config_map("a", {"a": "x" * 1000})).ok(201)
    copies = [{"op": "copy", "from": source, "path": f"/data/a{k}"} for k in range(n_copies)]
    undone = [{"op": "remove", "path": f"/data/a{k}"} for k in range(n_copies)]
    answer = api.patch(api.at("configmaps", "a"), copies + undone, JSON_PATCH)
    assert answer.code == code, answer
    assert api.get(api.at("configmaps", "a")).ok()["data"] == {"a": "x" * 1000}


def test_a_patch_says_what_kind_it_is(api: Api) -> None:
    api.post(api.at("configmaps"), config_map("a")).ok(201)
    api.patch(api.at("configmaps", "a"), {"data": {}}, JSON).no(
        415,
        "UnsupportedMediaType",
        "415: Unsupported Media Type",
    )


def test_fields_that_a_patch_may_not_know(api: Api) -> None:
    api.post(api.at("pods"), pod("a")).ok(201)
    patch = {"spec": {"colour": "red"}}
    warned = api.patch(api.at("pods", "a"), patch)
    assert "colour" not in warned.ok()["spec"]
    assert warned.warnings == ['unknown field "spec.colour"']
    for content_type in (MERGE, STRATEGIC):
        answer = api.patch(api.at("pods", "a"), patch, content_type, fieldValidation="Strict")
        assert (answer.code, answer.body["reason"]) == (422, "Invalid")
        assert 'strict decoding error: unknown field "spec.colour"' in answer.body["message"]
