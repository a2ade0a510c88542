"""JSON and merge patches; each outcome and refusal is kube-apiserver 1.37.1's, given to the same patch."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gangsched.api_rules.schema.catalog import builtin
from gangsched.api_rules.status import StatusError
from gangsched.lab.apiserver.patching.json_patch import json_patch, merge_patch
from gangsched.lab.apiserver.patching.patched import JSON_PATCH, MERGE_PATCH, Patch

Object = dict[str, Any]
DOC: Object = {
    "kind": "ConfigMap",
    "apiVersion": "v1",
    "metadata": {"name": "cm", "labels": {"x": "y"}, "finalizers": ["a/b", "b/c"]},
    "data": {"a": "1", "b": "2"},
}
BAD = "error decoding patch: json: cannot unmarshal "
REJECTED = "the server rejected our request due to an error in our request"
SHOWN = (
    '{\\"kind\\":\\"ConfigMap\\",\\"apiVersion\\":\\"v1\\",\\"metadata\\":{\\"name\\":\\"cm\\",\\"labels\\":'
    '{\\"x\\":\\"y\\"},\\"finalizers\\":[\\"a/b\\",\\"b/c\\"]},\\"data\\":{\\"a\\":\\"1\\",\\"b\\":\\"2\\"'
)


def patched(patch: Any, content_type: str, *, directive: str = "") -> Object:
    body = patch if isinstance(patch, bytes) else json.dumps(patch).encode()
    schema = builtin().builtin("", "v1", "ConfigMap")
    return Patch(body, content_type, directive=directive).applied(DOC, schema)


@pytest.mark.parametrize(
    ("operation", "doc"),
    [
        ({"op": "add", "path": "/b", "value": 2}, {"a": [1, 2], "b": 2}),
        ({"op": "add", "path": "/a/0", "value": 0}, {"a": [0, 1, 2]}),
        ({"op": "add", "path": "/a/-", "value": 3}, {"a": [1, 2, 3]}),
        ({"op": "add", "path": "/a/-1", "value": 3}, {"a": [1, 2, 3]}),
        ({"op": "remove", "path": "/a/0"}, {"a": [2]}),
        ({"op": "replace", "path": "/a/1", "value": 9}, {"a": [1, 9]}),
        ({"op": "replace", "path": "/new", "value": 9}, {"a": [1, 2], "new": 9}),
        ({"op": "move", "from": "/a", "path": "/b"}, {"b": [1, 2]}),
        ({"op": "copy", "from": "/a/0", "path": "/b"}, {"a": [1, 2], "b": 1}),
        ({"op": "copy", "from": "/none", "path": "/b"}, {"a": [1, 2], "b": None}),
        ({"op": "test", "path": "/a", "value": [1, 2]}, {"a": [1, 2]}),
        ({"op": "test", "path": "/none", "value": None}, {"a": [1, 2]}),
        ({"op": "add", "path": "/x~1y~0z", "value": 1}, {"a": [1, 2], "x/y~z": 1}),
        ({"op": "replace", "path": "", "value": {"q": 1}}, {"q": 1}),
    ],
)
def test_an_operation_applies(operation: Object, doc: Object) -> None:
    before = {"a": [1, 2]}
    assert json_patch(before, [operation]) == doc
    assert before == {"a": [1, 2]}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/data/a", "value": "9"},
        {"op": "test", "path": "/data/zz", "value": "9"},
        {"op": "remove", "path": "/data/zz"},
        {"op": "remove", "path": "/foo/zz"},
        {"op": "replace", "path": "/foo/zz", "value": "x"},
        {"op": "add", "path": "/foo/zz", "value": "x"},
        {"op": "add", "path": "/metadata/finalizers/9", "value": "x/y"},
        {"op": "add", "path": "/metadata/finalizers/x", "value": "x/y"},
        {"op": "foo", "path": "/data/zz"},
        {"path": "/data/zz"},
        {"op": "add", "value": 1},
        {"op": "add", "path": "data", "value": "x"},
        {"op": "move", "from": "/data/q", "path": "/data/r"},
        {"op": "move", "path": "/data/r"},
    ],
)
def test_an_operation_that_does_not_apply_is_refused_without_a_reason(operation: Object) -> None:
    with pytest.raises(StatusError) as refused:
        patched([operation], JSON_PATCH)
    assert (refused.value.code, refused.value.reason, refused.value.message) == (422, "Invalid", REJECTED)


@pytest.mark.parametrize(
    ("patch", "content_type", "code", "said"),
    [
        (
            {"op": "add"},
            JSON_PATCH,
            400,
            f"{BAD}object into Go value of type []handlers.jsonPatchOp",
        ),
        (
            [1],
            JSON_PATCH,
            400,
            f"{BAD}number into Go value of type handlers.jsonPatchOp",
        ),
        (b"{{", JSON_PATCH, 400, "invalid JSON patch"),
        (
            [{"op": "test", "path": "/data/a", "value": "1"}] * 10_001,
            JSON_PATCH,
            413,
            "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001",
        ),
        (
            [],
            MERGE_PATCH,
            400,
            f"{BAD}array into Go value of type map[string]interface {{}}",
        ),
        (
            {"foo": 1},
            MERGE_PATCH,
            422,
            f' "" is invalid: patch: Invalid value: "{SHOWN}}},\\"foo\\":1}}": '
            'strict decoding error: unknown field "foo"',
        ),
        (
            {"data": {"x": 1}},
            MERGE_PATCH,
            422,
            f' "" is invalid: patch: Invalid value: "{SHOWN},\\"x\\":1}}}}": '
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        (
            [{"op": "add", "path": "/data/x", "value": 1}],
            JSON_PATCH,
            422,
            f' "" is invalid: patch: Invalid value: "{SHOWN},\\"x\\":1}}}}": '
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        (
            [{"op": "test", "path": "/data/a", "value": "1", "zzz": 1}],
            JSON_PATCH,
            422,
            f' "" is invalid: patch: Invalid value: "{SHOWN}}}}}": '
            'strict decoding error: json patch unknown field "[0].zzz"',
        ),
    ],
)
def test_a_patch_is_refused(patch: Any, content_type: str, code: int, said: str) -> None:
    with pytest.raises(StatusError) as refused:
        patched(patch, content_type, directive="Strict")
    assert (refused.value.code, refused.value.message) == (code, said)


def test_a_kind_does_not_change() -> None:
    with pytest.raises(StatusError) as refused:
        patched({"kind": "Foo"}, MERGE_PATCH)
    assert 'no kind "Foo" is registered for version "v1" in scheme "pkg/runtime/scheme.go:111"' in (
        refused.value.message
    )


def test_fields_that_are_unknown_are_dropped_with_a_warning_unless_strict() -> None:
    said: list[str] = []
    patch = Patch(b'{"foo":1}', MERGE_PATCH, warn=said.append)
    assert patch.applied(DOC, builtin().builtin("", "v1", "ConfigMap")) == DOC
    assert said == ['unknown field "foo"']


@pytest.mark.parametrize(
    ("doc", "patch", "merged"),
    [
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": None, "d": 3}}, {"a": {"c": 2, "d": 3}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": 1}, {"b": {"c": None, "d": 1}}, {"a": 1, "b": {"d": 1}}),
        ({"a": 1}, {"a": {"c": None}}, {"a": {}}),
    ],
)
def test_a_merge_patch_merges(doc: Object, patch: Object, merged: Object) -> None:
    assert merge_patch(doc, patch) == merged
