"""Server-side apply: outcomes, owners and refusals are kube-apiserver 1.37.1's, given the same requests."""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any

import pytest

from gangsched.api_rules.schema.catalog import builtin
from gangsched.api_rules.schema.node import Schema
from gangsched.api_rules.status import StatusError
from gangsched.errors import ApiError
from gangsched.lab.apiserver.patching.apply import LAST_APPLIED, apply
from gangsched.lab.apiserver.patching.fieldsets import from_fields_v1, shown, to_fields_v1
from gangsched.lab.apiserver.patching.managed import track
from gangsched.lab.controlplane.processes import ControlPlane
from tests.apiserver.patching import applies

Object = dict[str, Any]
NOW = "2026-01-02T03:04:05Z"
LATER = "2026-01-02T03:05:06Z"
CONFIG_MAP: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ssa"}}
POD_HEAD: Object = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}


def schema_of(kind: str) -> Schema:
    group = {"Deployment": "apps"}.get(kind, "")
    return builtin().builtin(group, "v1", kind)


def applied(
    live: Object | None, config: Object, *, manager: str = "one", force: bool = False, now: str = NOW
) -> Object:
    return apply(live, config, schema_of(config["kind"]), manager=manager, force=force, now=now)


def owners(obj: Object) -> dict[str, list[str]]:
    """Manager -> the fields that are its own."""
    return {
        entry["manager"]: sorted(map(shown, from_fields_v1(entry["fieldsV1"])))
        for entry in obj["metadata"].get("managedFields", ())
    }


def with_data(**data: str) -> Object:
    return CONFIG_MAP | {"data": data}


def test_what_is_applied_first_is_created_and_owned() -> None:
    found = applied(None, with_data(a="1"))
    assert found["data"] == {"a": "1"}
    assert found["metadata"]["managedFields"] == [
        {
            "manager": "one",
            "operation": "Apply",
            "apiVersion": "v1",
            "time": NOW,
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:a": {}}},
        }
    ]


def test_what_is_applied_no_more_goes_unless_another_applies_it() -> None:
    live = applied(None, with_data(a="1", b="2"))
    live = applied(live, with_data(b="2", c="3"), manager="two")
    assert owners(live) == {"one": [".data.a", ".data.b"], "two": [".data.b", ".data.c"]}
    found = applied(live, with_data(), now=LATER)
    assert found["data"] == {"b": "2", "c": "3"}
    assert owners(found) == {"one": [".data"], "two": [".data.b", ".data.c"]}


def test_applying_the_same_again_changes_nothing_at_all() -> None:
    live = applied(None, with_data(a="1"))
    assert applied(live, with_data(a="1"), now=LATER) == live


def test_another_managers_field_is_a_conflict_until_it_is_forced() -> None:
    live = applied(None, with_data(a="1", b="1"))
    with pytest.raises(StatusError) as refused:
        applied(live, with_data(a="2"), manager="two")
    assert (refused.value.code, refused.value.reason) == (409, "Conflict")
    assert refused.value.message == 'Apply failed with 1 conflict: conflict with "one": .data.a'
    assert refused.value.details()["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.a"}
    ]
    with pytest.raises(StatusError) as refused:
        applied(live, with_data(a="2", b="2"), manager="two")
    assert refused.value.message == (
        'Apply failed with 2 conflicts: conflicts with "one":\n- .data.a\n- .data.b'
    )
    found = applied(live, with_data(a="2"), manager="two", force=True)
    assert found["data"] == {"a": "2", "b": "1"}
    assert owners(found) == {"one": [".data.b"], "two": [".data.a"]}


def test_an_update_takes_what_it_changes() -> None:
    live = applied(None, with_data(a="1", b="1"))
    new = copy.deepcopy(live) | {"data": {"a": "9", "c": "3"}}
    track(live, new, schema_of("ConfigMap"), manager="editor", now=LATER, has_status=False)
    assert owners(new) == {"editor": [".data.a", ".data.c"]}
    with pytest.raises(StatusError) as refused:
        applied(new, with_data(a="1"))
    assert refused.value.message == ('Apply failed with 1 conflict: conflict with "editor" using v1: .data.a')


def test_an_object_that_nobody_applied_yet_belongs_to_whoever_was_before() -> None:
    live = with_data(a="1")
    assert "managedFields" not in live["metadata"]
    with pytest.raises(StatusError) as refused:
        applied(live, with_data(a="2"))
    assert 'conflict with "before-first-apply" using v1: .data.a' in refused.value.message
    untracked = with_data(a="3")
    track(live, untracked, schema_of("ConfigMap"), manager="editor", now=NOW)
    assert "managedFields" not in untracked["metadata"]


def test_kubectl_takes_over_what_it_applied_itself_before() -> None:
    last = json.dumps(with_data(a="1"))
    live = with_data(a="1", b="1")
    live["metadata"] = {"name": "ssa", "annotations": {LAST_APPLIED: last}}
    track(None, live, schema_of("ConfigMap"), manager="kubectl-client-side-apply", now=NOW, starts=True)
    found = applied(live, with_data(a="2"), manager="kubectl", now=LATER)
    assert found["data"] == {"a": "2", "b": "1"}
    assert json.loads(found["metadata"]["annotations"][LAST_APPLIED])["data"] == {"a": "2"}
    with pytest.raises(StatusError):
        applied(live, with_data(b="2"), manager="kubectl")


def test_items_of_keyed_lists_are_owned_one_by_one() -> None:
    pod = POD_HEAD | {"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80}]}]}}
    found = applied(None, pod)
    assert owners(found)["one"] == [
        '.spec.containers[name="c"]',
        '.spec.containers[name="c"].name',
        '.spec.containers[name="c"].ports[containerPort=80,protocol="TCP"]',
        '.spec.containers[name="c"].ports[containerPort=80,protocol="TCP"].containerPort',
    ]


@pytest.mark.parametrize(
    ("config", "code", "said"),
    [
        ({"foo": 1}, 500, f"{'(/ssa; /v1, Kind=ConfigMap)'}: .foo: field not declared in schema"),
        (
            {"metadata": {"name": "ssa", "zoo": 1}},
            500,
            "(/ssa; /v1, Kind=ConfigMap): .metadata.zoo: field not declared in schema",
        ),
        (
            {"data": {"a": 1}},
            500,
            "(/ssa; /v1, Kind=ConfigMap): .data.a: expected string, got &value.valueUnstructured{Value:1}",
        ),
        ({"data": "x"}, 500, "(/ssa; /v1, Kind=ConfigMap): .data: expected map, got &{x}"),
        (
            {"metadata": {"name": "ssa", "finalizers": ["a/b", "a/b"]}},
            500,
            '(/ssa; /v1, Kind=ConfigMap): .metadata.finalizers: duplicate entries for key [="a/b"]',
        ),
        (
            POD_HEAD | {"spec": {"containers": [{"name": "c"}, {"name": "c"}]}},
            500,
            '(/p; /v1, Kind=Pod): .spec.containers: duplicate entries for key [name="c"]',
        ),
        (
            {"metadata": {"name": "ssa", "managedFields": [{}]}},
            400,
            "metadata.managedFields must be nil",
        ),
    ],
)
def test_a_configuration_is_refused(config: Object, code: int, said: str) -> None:
    with pytest.raises(StatusError) as refused:
        applied(None, CONFIG_MAP | config)
    prefix = "failed to create typed patch object " if code == 500 else ""
    assert (refused.value.code, refused.value.message) == (code, prefix + said)


def test_fields_are_written_as_they_are_read() -> None:
    tree = {
        "f:metadata": {"f:finalizers": {".": {}, 'v:"a/b"': {}}},
        "f:spec": {"f:containers": {'k:{"name":"c"}': {".": {}, "f:image": {}}}},
    }
    assert to_fields_v1(from_fields_v1(tree)) == tree


def test_a_custom_kind_merges_lists_as_its_definition_says() -> None:
    """As a definition with a set, a keyed list and a list without a type behaves on the real server."""
    keyed = {
        "type": "array",
        "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}},
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"],
    }
    texts = {"type": "array", "items": {"type": "string"}}
    properties = {"keyed": keyed, "set": texts | {"x-kubernetes-list-type": "set"}, "whole": texts}
    spec = {"type": "object", "properties": properties}
    schema = builtin().custom({"type": "object", "properties": {"spec": spec}})
    head = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}}
    live = None
    for manager, given in (
        ("one", {"keyed": [{"k": "a", "v": 1}], "set": ["x"]}),
        ("two", {"keyed": [{"k": "b", "v": 2}], "set": ["y"], "whole": ["z"]}),
        ("one", {"keyed": [{"k": "a", "v": 3}], "set": ["x", "w"]}),
    ):
        live = apply(live, head | {"spec": given}, schema, manager=manager, force=False, now=NOW)
    assert live is not None
    assert sorted(live["spec"]["keyed"], key=lambda item: str(item["k"])) == [
        {"k": "a", "v": 3},
        {"k": "b", "v": 2},
    ]
    assert sorted(live["spec"]["set"]) == ["w", "x", "y"]
    assert live["spec"]["whole"] == ["z"]
    assert '.spec.set[="w"]' in owners(live)["one"]
    assert ".spec.whole" in owners(live)["two"]


N_STEPS = 8
# What the server fills in, which is the kinds' business, and what it counts.
FILLED_IN = (
    "terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy", "protocol", "uid",
    "resourceVersion", "generation", "creationTimestamp", "status", "managedFields", "replicas",
    "progressDeadlineSeconds", "revisionHistoryLimit", "strategy", "dnsPolicy", "restartPolicy",
    "schedulerName", "terminationGracePeriodSeconds", "namespace",
)  # fmt: skip


@pytest.mark.real
@pytest.mark.parametrize(
    ("kind", "path", "n_objects"),
    [
        ("ConfigMap", "/api/v1/namespaces/default/configmaps", 12),
        ("Deployment", "/apis/apps/v1/namespaces/default/deployments", 12),
    ],
)
def test_random_applies_and_updates_have_the_owners_that_the_real_server_gives_them(
    control_plane: ControlPlane, kind: str, path: str, n_objects: int
) -> None:
    """Three managers in turn, with and without force, with updates in between."""
    n_conflicts = n_written = 0
    for seed in range(n_objects):
        rng = Random(seed)
        live: Object | None = None
        try:
            for _ in range(N_STEPS):
                answer = _step(control_plane, path, kind, rng, live)
                if answer is None:
                    n_conflicts += 1
                else:
                    live = answer
                    n_written += 1
        finally:
            if live is not None:
                patch = {"metadata": {"finalizers": None}}
                where = f"{path}/applied"
                control_plane.request("PATCH", where, patch, content_type="application/merge-patch+json")
                control_plane.request("DELETE", where)
    assert n_conflicts > n_objects / 4
    assert n_written > n_objects


def _step(
    control_plane: ControlPlane, path: str, kind: str, rng: Random, live: Object | None
) -> Object | None:
    """One request to both; the object as the real server then has it, None where both refused it."""
    config = applies.config_map(rng) if kind == "ConfigMap" else applies.deployment(rng)
    manager, force = rng.choice(applies.MANAGERS), rng.random() < 0.4
    schema = schema_of(kind)
    updates = live is not None and rng.random() < 0.25
    has_status = kind == "Deployment"
    url = f"{path}/applied?fieldManager={manager}"
    try:
        if updates:
            theirs: Object = control_plane.request("PUT", url, config)
        else:
            url += f"&force={'true' if force else 'false'}"
            theirs = control_plane.request("PATCH", url, config, content_type="application/apply-patch+yaml")
    except ApiError as error:
        if error.code != 409:
            raise
        said = json.loads(str(error)[str(error).index("{") :])["message"]
        with pytest.raises(StatusError) as refused:
            applied_as(live, config, schema, manager, force, has_status)
        assert sorted(refused.value.message.splitlines()) == sorted(said.splitlines())
        return None
    if updates:
        ours = copy.deepcopy(theirs)
        ours["metadata"].pop("managedFields", None)
        track(live, ours, schema, manager=manager, now=NOW, has_status=has_status)
    else:
        ours = applied_as(live, config, schema, manager, force, has_status)
        assert _bare(ours) == _bare(theirs), (config, live)
    assert _entries(ours) == _entries(theirs), (config, live)
    return theirs


def applied_as(
    live: Object | None, config: Object, schema: Schema, manager: str, force: bool, has_status: bool
) -> Object:
    config = copy.deepcopy(config)
    return apply(live, config, schema, manager=manager, force=force, now=NOW, has_status=has_status)


def _entries(obj: Object) -> list[str]:
    entries = obj["metadata"].get("managedFields", ())
    return sorted(
        json.dumps({key: value for key, value in each.items() if key != "time"}, sort_keys=True)
        for each in entries
    )


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        shown_ = {key: _bare(each) for key, each in value.items() if key not in FILLED_IN}
        return {key: each for key, each in shown_.items() if each not in (None, {}, [])}
    return [_bare(each) for each in value] if isinstance(value, list) else value
