"""Strategic merge patches; each outcome and refusal is kube-apiserver 1.37.1's, given to the same patch."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from gangsched.api_rules.schema.catalog import builtin
from gangsched.api_rules.status import StatusError
from gangsched.errors import ApiError
from gangsched.lab.apiserver.patching.patched import STRATEGIC_MERGE_PATCH, Patch
from gangsched.lab.apiserver.patching.strategic_lists import DELETE, MARKER, merge_list, without
from gangsched.lab.controlplane.processes import ControlPlane
from tests.apiserver.patching.pods import pod, strategic_patch
from tests.support.compared import Compared

Object = dict[str, Any]
CONFIG_MAP = {
    "kind": "ConfigMap",
    "apiVersion": "v1",
    "metadata": {"name": "cm", "labels": {"x": "y"}, "finalizers": ["a/b", "b/c"]},
    "data": {"a": "1", "b": "2"},
}
N_PODS = 40
PATCHES_A_POD = 4
# What the server fills in: it is the kinds' business, not the patch's.
DEFAULTED = (
    "terminationMessagePath",
    "terminationMessagePolicy",
    "imagePullPolicy",
    "protocol",
    "type",
    "resources",
)


def patched(patch: Any, doc: Object = CONFIG_MAP, *, directive: str = "Strict") -> Object:
    schema = builtin().builtin("", "v1", doc["kind"])
    body = patch if isinstance(patch, bytes) else json.dumps(patch).encode()
    return Patch(body, STRATEGIC_MERGE_PATCH, directive=directive).applied(doc, schema)


@pytest.mark.parametrize(
    ("patch", "data"),
    [
        ({"data": {"a": "9", "c": "3"}}, {"a": "9", "b": "2", "c": "3"}),
        ({"data": {"a": None}}, {"b": "2"}),
        ({"data": None}, None),
        ({"data": {"$patch": "replace", "q": "r"}}, {"q": "r"}),
        ({"data": {"$patch": "delete", "q": "r"}}, None),
        ({"data": {"$retainKeys": ["a", "c"], "c": "3"}}, {"a": "1", "c": "3"}),
        ({"kind": "Other", "apiVersion": "v9"}, {"a": "1", "b": "2"}),
    ],
)
def test_a_map_merges(patch: Object, data: Object | None) -> None:
    found = patched(patch)
    assert found.get("data") == data
    assert (found["kind"], found["apiVersion"]) == ("ConfigMap", "v1")


@pytest.mark.parametrize(
    ("metadata", "finalizers"),
    [
        ({"finalizers": ["c/d"]}, ["c/d", "a/b", "b/c"]),
        ({"$deleteFromPrimitiveList/finalizers": ["a/b"]}, ["b/c"]),
        ({"$setElementOrder/finalizers": ["b/c", "a/b"]}, ["b/c", "a/b"]),
        ({"finalizers": ["c/d"], "$setElementOrder/finalizers": ["b/c", "c/d"]}, ["a/b", "b/c", "c/d"]),
    ],
)
def test_a_list_of_scalars_merges_as_a_set(metadata: Object, finalizers: list[str]) -> None:
    assert patched({"metadata": metadata})["metadata"]["finalizers"] == finalizers


@pytest.mark.parametrize(
    ("patch", "code", "said"),
    [
        (
            {"metadata": {"$patch": "foo"}},
            500,
            "unknown patch type: foo in map: map[$patch:foo]",
        ),
        ({"data": {"$retainKeys": ["a"], "q": "r"}}, 400, "invalid patch format of retainKeys"),
        ({"data": {"$retainKeys": "a"}}, 400, "invalid patch format of retainKeys"),
        (
            {"metadata": {"finalizers": ["a/b"], "$setElementOrder/finalizers": ["b/c"]}},
            500,
            "The order in patch list:\n[a/b]\n doesn't match $setElementOrder list:\n[b/c]\n",
        ),
        (
            {"metadata": {"finalizers": ["a/b"], "$setElementOrder/finalizers": "x"}},
            500,
            "expected a []interface {}, but received a string",
        ),
        (
            {"foo": 1, "data": {"x": "1"}},
            422,
            ' "" is invalid: patch: Invalid value: "map[data:map[x:1] foo:1]": '
            'strict decoding error: unknown field "foo"',
        ),
        (
            {"data": {"x": 1}},
            422,
            ' "" is invalid: patch: Invalid value: "map[data:map[x:1]]": cannot convert int64 to string',
        ),
        (
            {"data": "x"},
            422,
            ' "" is invalid: patch: Invalid value: "map[data:x]": cannot restore map from string',
        ),
        (
            {"metadata": {"generation": "x"}},
            422,
            ' "" is invalid: patch: Invalid value: "map[metadata:map[generation:x]]": '
            "unrecognized type: int64",
        ),
        (
            {"data": {"x": True}},
            422,
            ' "" is invalid: patch: Invalid value: "map[data:map[x:true]]": unrecognized type: string',
        ),
        (
            {"metadata": {"generation": 1.5}},
            422,
            ' "" is invalid: patch: Invalid value: "map[metadata:map[generation:1.5]]": '
            "cannot convert float64 to int64",
        ),
        (
            {"metadata": {"ownerReferences": ["x"]}},
            422,
            ' "" is invalid: patch: Invalid value: "map[metadata:map[ownerReferences:[x]]]": '
            "cannot restore struct from: string",
        ),
        (
            b'{"data":{"a":"1","a":"2"}}',
            422,
            ' "" is invalid: patch: Invalid value: "map[data:map[a:2]]": '
            'strict decoding error: duplicate field "data.a"',
        ),
        ([], 400, "json: cannot unmarshal array into Go value of type map[string]interface {}"),
        (b'{"a":', 400, "invalid JSON patch"),
        (b"", 400, "invalid JSON patch"),
    ],
)
def test_a_patch_is_refused(patch: Any, code: int, said: str) -> None:
    with pytest.raises(StatusError) as refused:
        patched(patch)
    assert (refused.value.code, refused.value.message) == (code, said)


def test_unknown_directives_are_fields_to_be_warned_of() -> None:
    said: list[str] = []
    body = json.dumps({"metadata": {"$foo": ["a/b"]}}).encode()
    patch = Patch(body, STRATEGIC_MERGE_PATCH, warn=said.append)
    found = patch.applied(CONFIG_MAP, builtin().builtin("", "v1", "ConfigMap"))
    assert found == CONFIG_MAP
    assert said == ['unknown field "metadata.$foo"']


@pytest.mark.real
def test_random_patches_of_pod_templates_give_what_the_real_server_gives(
    control_plane: ControlPlane,
) -> None:
    """Containers, env, ports, volumes, tolerations, maps and finalizers, with all directives."""
    path = "/apis/apps/v1/namespaces/default/deployments"
    schema = builtin().builtin("apps", "v1", "Deployment")
    n_applied = 0
    for seed in range(N_PODS):
        rng = Random(seed)
        live = control_plane.request("POST", path, _deployment(pod(rng)))
        try:
            for _ in range(PATCHES_A_POD):
                patch = {"spec": {"template": strategic_patch(rng)}}
                n_applied += _same_answer(control_plane, f"{path}/patched", live, patch, schema)
        finally:
            control_plane.request("DELETE", f"{path}/patched")
    assert n_applied > N_PODS * PATCHES_A_POD / 3


def _same_answer(control_plane: ControlPlane, path: str, live: Object, patch: Object, schema: Any) -> bool:
    """Whether both applied it; where one refuses it, the other must."""
    refused = refused_by_us = 0
    theirs: Object = {}
    ours: Object = {}
    try:
        theirs = control_plane.request(
            "PATCH", f"{path}?dryRun=All&fieldValidation=Strict", patch, content_type=STRATEGIC_MERGE_PATCH
        )
    except ApiError as error:
        refused = error.code
        if "Deployment.apps" in str(error):
            # It did apply; what came of it did not pass the kind's validation.
            return False
    body = json.dumps(patch).encode()
    try:
        ours = Patch(body, STRATEGIC_MERGE_PATCH, directive="Strict").applied(live, schema)
    except StatusError as error:
        refused_by_us = error.code
    assert refused_by_us == refused, patch
    if refused:
        return False
    assert _undefaulted(ours["spec"]["template"]) == _undefaulted(theirs["spec"]["template"]), (patch, live)
    return True


def _deployment(template: Object) -> Object:
    metadata = {key: value for key, value in template["metadata"].items() if key != "name"}
    metadata["labels"] = metadata["labels"] | {"of": "it"}
    return {
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "metadata": {"name": "patched"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"of": "it"}},
            "template": {"metadata": metadata, "spec": template["spec"]},
        },
    }


def _undefaulted(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _undefaulted(each)
            for key, each in value.items()
            if key not in DEFAULTED or (key == "resources" and each)
        }
    return [_undefaulted(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("merge_key", ["name", ""])
def test_long_lists_are_indexed_and_not_searched(merge_key: str) -> None:
    n = 300

    def items(first: int) -> list[Any]:
        texts = [Compared(f"item-{i:04}") for i in range(first, first + n)]
        return [{"name": text} for text in texts] if merge_key else list(texts)

    marks = [item | {MARKER: DELETE} for item in items(0)[::7]] if merge_key else []
    Compared.n_times = 0
    merged = merge_list(items(0), marks + items(n // 2), merge_key, lambda one, two: one | two)
    left = without(merged, items(n // 2))
    assert Compared.n_times < 20 * n
    n_marked = len([mark for mark in marks if mark["name"] < f"item-{n // 2:04}"])
    assert (len(merged), len(left)) == (n + n // 2 - n_marked, n // 2 - n_marked)
