"""Server-side apply: who owns which field, conflicts, and what is taken away when it is no longer said."""

from __future__ import annotations

from tests.contract.api import Api, Json
from tests.contract.objects import causes, config_map
from tests.support.bodies import container, pod

CONFIG: Json = {"apiVersion": "v1", "kind": "ConfigMap"}


def config(data: dict[str, str], **metadata: object) -> Json:
    return {**CONFIG, "metadata": {"name": "a", **metadata}, "data": data}


def managers(obj: Json) -> dict[str, str]:
    return {each["manager"]: each["operation"] for each in obj["metadata"]["managedFields"]}


def test_apply_creates_and_then_changes(api: Api) -> None:
    path = api.at("configmaps", "a")
    made = api.apply(path, config({"a": "1", "b": "1"})).ok(201)
    assert made["data"] == {"a": "1", "b": "1"}
    [entry] = made["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"], entry["apiVersion"]) == ("tester", "Apply", "v1")
    assert entry["fieldsV1"] == {"f:data": {"f:a": {}, "f:b": {}}}
    changed = api.apply(path, config({"a": "2"})).ok()
    # What is no longer said is taken away.
    assert changed["data"] == {"a": "2"}
    assert changed["metadata"]["managedFields"][0]["fieldsV1"] == {"f:data": {"f:a": {}}}


def test_the_same_again_is_no_write(api: Api) -> None:
    path = api.at("configmaps", "a")
    made = api.apply(path, config({"a": "1"})).ok(201)
    assert api.apply(path, config({"a": "1"})).ok()["metadata"] == made["metadata"]


def test_two_managers_own_different_fields(api: Api) -> None:
    path = api.at("configmaps", "a")
    api.apply(path, config({"a": "1"})).ok(201)
    both = api.apply(path, config({"b": "1"}), manager="other").ok()
    assert both["data"] == {"a": "1", "b": "1"}
    assert managers(both) == {"tester": "Apply", "other": "Apply"}
    left = api.apply(path, {**CONFIG, "metadata": {"name": "a"}}, manager="other").ok()
    assert left["data"] == {"a": "1"}


def test_a_field_of_another_manager_is_a_conflict(api: Api) -> None:
    path = api.at("configmaps", "a")
    api.apply(path, config({"a": "1"})).ok(201)
    said = api.apply(path, config({"a": "2"}), manager="other").no(
        409,
        "Conflict",
        'Apply failed with 1 conflict: conflict with "tester": .data.a',
    )
    assert causes(said) == [("FieldManagerConflict", ".data.a", 'conflict with "tester"')]
    forced = api.apply(path, config({"a": "2"}), manager="other", force="true").ok()
    assert forced["data"] == {"a": "2"}
    assert managers(forced) == {"other": "Apply"}
    # Both say the same: it is both of theirs.
    shared = api.apply(path, config({"a": "2"})).ok()
    assert managers(shared) == {"other": "Apply", "tester": "Apply"}


def test_what_was_written_without_apply_is_somebody_s_too(api: Api) -> None:
    api.post(api.at("configmaps"), config_map("a"), fieldManager="creator").ok(201)
    answer = api.apply(api.at("configmaps", "a"), config({"a": "2"}))
    assert answer.code == 409
    assert answer.body["message"].startswith('Apply failed with 1 conflict: conflict with "creator" using v1')
    same = api.apply(api.at("configmaps", "a"), config({"a": "1"})).ok()
    assert managers(same) == {"creator": "Update", "tester": "Apply"}


def test_lists_by_key_are_owned_item_by_item(api: Api) -> None:
    sent = {"apiVersion": "v1", "kind": "Pod", **pod("a", containers=[container(), container("side")])}
    made = api.apply(api.at("pods", "a"), sent).ok(201)
    owned = made["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:containers"]
    assert set(owned) == {'k:{"name":"main"}', 'k:{"name":"side"}'}
    assert owned['k:{"name":"side"}'] == {".": {}, "f:image": {}, "f:name": {}}


def test_what_apply_needs(api: Api) -> None:
    path = api.at("configmaps", "a")
    answer = api.send("PATCH", path, config({"a": "1"}), content_type="application/apply-patch+yaml")
    answer.no(
        422,
        "Invalid",
        'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch',
    )
    api.apply(path, config({"a": "1"}, name="b")).no(
        400, "BadRequest", "the name of the object (b) does not match the name on the URL (a)"
    )
    answer = api.apply(path, {"metadata": {"name": "a"}, "data": {}})
    assert (answer.code, answer.body["reason"]) == (400, "BadRequest")
    answer = api.apply(path, config({"a": "1"}, managedFields=[{"manager": "x"}]))
    answer.no(400, "BadRequest", "metadata.managedFields must be nil")


def test_unknown_fields_cannot_be_applied(api: Api) -> None:
    sent = {"apiVersion": "v1", "kind": "Pod", **pod("a", colour="red")}
    answer = api.apply(api.at("pods", "a"), sent)
    assert answer.code == 500
    assert answer.body["message"].endswith(".spec.colour: field not declared in schema")


def test_yaml_can_be_applied_and_tried(api: Api) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  b: '1'\n"
    shown = api.apply(api.at("configmaps", "a"), body, dryRun="All").ok(201)
    assert shown["data"] == {"b": "1"}
    api.get(api.at("configmaps", "a")).no(404, "NotFound", 'configmaps "a" not found')


def test_status_is_applied_below_the_object(api: Api) -> None:
    api.post(api.at("pods"), pod("a")).ok(201)
    sent = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a"},
        "status": {"conditions": [{"type": "example.com/x", "status": "True"}]},
    }
    changed = api.apply(api.at("pods", "a", "status"), sent).ok()
    assert "example.com/x" in [each["type"] for each in changed["status"]["conditions"]]
    mine = [each for each in changed["metadata"]["managedFields"] if each["manager"] == "tester"]
    assert [each["subresource"] for each in mine] == ["status"]
