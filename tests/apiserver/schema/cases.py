"""Objects that are wrong in one way each, and what a real server answered.

`python -m tests.apiserver.schema.cases` sends them to a real control plane as dry runs and writes
answers.json. Used by test_answers.py.
"""

from __future__ import annotations

import copy
import json
import time
from pathlib import Path
from typing import Any

from gangsched.errors import ApiError
from gangsched.lab.controlplane.processes import ControlPlane

Object = dict[str, Any]
ANSWERS = Path(__file__).with_name("answers.json")
CORE = "/api/v1/namespaces/default"
PODS, SECRETS = f"{CORE}/pods", f"{CORE}/secrets"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/example.com/v1/namespaces/default/things"

THING_SCHEMA: Object = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["n"],
            "properties": {
                "n": {"type": "integer", "minimum": 1, "maximum": 10, "format": "int32"},
                "s": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5, "minLength": 2},
                "e": {"type": "string", "enum": ["A", "B"]},
                "l": {
                    "type": "array",
                    "items": {"type": "string"},
                    "maxItems": 3,
                    "minItems": 1,
                    "x-kubernetes-list-type": "set",
                },
                "m": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["k"],
                        "properties": {"k": {"type": "string"}, "v": {"type": "integer"}},
                    },
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["k"],
                },
                "map": {
                    "type": "object",
                    "additionalProperties": {"type": "integer"},
                    "maxProperties": 2,
                    "minProperties": 1,
                },
                "q": {
                    "anyOf": [{"type": "integer"}, {"type": "string"}],
                    "x-kubernetes-int-or-string": True,
                    "pattern": "^[0-9]+$",
                },
                "d": {"type": "string", "default": "dd"},
                "o": {
                    "type": "object",
                    "default": {},
                    "properties": {"x": {"type": "integer", "default": 5}},
                },
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "nul": {"type": "string", "nullable": True},
                "b": {"type": "boolean"},
                "num": {"type": "number", "multipleOf": 0.5},
                "xmin": {"type": "integer", "minimum": 1, "exclusiveMinimum": True},
                "dt": {"type": "string", "format": "date-time"},
                "one": {
                    "type": "object",
                    "properties": {"a": {"type": "string"}, "c": {"type": "string"}},
                    "oneOf": [{"required": ["a"]}, {"required": ["c"]}],
                },
                "nt": {"type": "string", "not": {"enum": ["zz"]}},
            },
        },
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
    },
}


def crd(schema: Object, plural: str = "things", kind: str = "Thing") -> Object:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"plural": plural, "kind": kind},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                }
            ],
        },
    }


def _pod(**spec: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }


def _container(**fields: Any) -> Object:
    return _pod(containers=[{"name": "c", "image": "i", **fields}])


def _with(obj: Object, path: str, value: Any) -> Object:
    obj = copy.deepcopy(obj)
    *parents, last = path.split(".")
    inner = obj
    for key in parents:
        inner = inner.setdefault(key, {})
    inner[last] = value
    return obj


def _lease(**spec: Any) -> Object:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "l"},
        "spec": spec,
    }


_EVERYWHERE = _with(_with(_container(bar={"x": 1}), "metadata.zoo", 2), "spec.foo", 1)

BUILTIN: dict[str, tuple[str, Object]] = {
    "unknown fields": (
        PODS,
        _with(_with(_EVERYWHERE, "spec.volumes", [{"name": "v", "emptyDir": {"q": 1}}]), "top", 1),
    ),
    "string for int64": (PODS, _pod(activeDeadlineSeconds="x")),
    "number for string": (PODS, _pod(nodeName=5)),
    "string for bool": (PODS, _pod(hostNetwork="yes")),
    "object for list": (PODS, _pod(containers={})),
    "array for struct": (PODS, _pod(affinity=[])),
    "string for struct": (PODS, _pod(affinity="x")),
    "number for an enum": (PODS, _pod(restartPolicy=3)),
    "number in a map": (PODS, _pod(nodeSelector={"a": 1})),
    "list for map": (PODS, _pod(nodeSelector=[1])),
    "fraction for int64": (PODS, _pod(activeDeadlineSeconds=1.5)),
    "too large for int32": (PODS, _pod(priority=1 << 40)),
    "wrong below a list": (PODS, _pod(containers=[{"name": 1}])),
    "wrong two lists down": (PODS, _container(ports=[{"containerPort": "80"}])),
    "string for an item": (PODS, _pod(containers=["x"])),
    "number for an item": (PODS, _container(ports=[5])),
    "number in a list of strings": (PODS, _container(command=[1])),
    "no quantity": (PODS, _container(resources={"limits": {"cpu": "abc"}})),
    "bool for quantity": (PODS, _container(resources={"limits": {"cpu": True}})),
    "list for a named map": (PODS, _container(resources={"limits": []})),
    "bool for int-or-string": (PODS, _container(livenessProbe={"httpGet": {"port": True}})),
    "fraction for int-or-string": (PODS, _container(livenessProbe={"httpGet": {"port": 1.5}})),
    "embedded struct": (PODS, _container(envFrom=[{"configMapRef": {"name": 5}}])),
    "number for a label": (PODS, _with(_pod(), "metadata.labels", {"a": 1})),
    "list for labels": (PODS, _with(_pod(), "metadata.labels", ["a"])),
    "no time": (PODS, _with(_pod(), "metadata.creationTimestamp", "xx")),
    "half a time": (PODS, _with(_pod(), "metadata.creationTimestamp", "2026-01-02T03")),
    "number for time": (PODS, _with(_pod(), "metadata.creationTimestamp", 5)),
    "list for spec": (PODS, _pod() | {"spec": []}),
    "no base64": (
        SECRETS,
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "!!"}},
    ),
    "cut base64": (
        SECRETS,
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "YWJjZ"}},
    ),
    "number for bytes": (
        SECRETS,
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": 5}},
    ),
    "a pod in a job": (
        JOBS,
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "j"},
            "spec": {"template": {"spec": {"containers": [{"name": 5}]}}},
        },
    ),
    "no micro time": (LEASES, _lease(renewTime="x")),
    "a time without its decimals": (LEASES, _lease(renewTime="2026-01-02T03:04:05Z")),
    "number for micro time": (LEASES, _lease(renewTime=5)),
}


def _thing(**spec: Any) -> Object:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Thing",
        "metadata": {"name": "t"},
        "spec": {"n": 1, **spec},
    }


SPECS: tuple[Object, ...] = (
    {"n": "x"}, {"n": 1.5}, {"n": 2.0}, {"n": 0}, {"n": 11}, {"n": 1 << 40}, {"n": True},
    {"n": None}, {"n": {}}, {"n": []}, {"s": "AB"}, {"s": "abcdefg"}, {"s": "a"}, {"s": 5},
    {"s": None}, {"e": "C"}, {"e": 1}, {"l": "x"}, {"l": [1]}, {"l": ["a", "b", "c", "d"]},
    {"l": []}, {"l": ["a", "a"]}, {"l": [5, 5]}, {"m": [{"k": "a"}, {"k": "a"}]},
    {"m": [{"v": 1}]}, {"m": [{"k": 1}]}, {"m": [None]}, {"map": {"a": "x"}},
    {"map": {"a": 1, "b": 2, "c": 3}}, {"map": {}}, {"map": []}, {"q": True}, {"q": "x"},
    {"q": 1.5}, {"q": "5"}, {"free": {"x": None}}, {"free": "x"}, {"nul": None}, {"nul": 5},
    {"b": "x"}, {"num": 0.3}, {"num": "x"}, {"xmin": 1}, {"dt": "x"}, {"dt": 5}, {"one": {}},
    {"one": {"a": "x", "c": "y"}}, {"one": {"a": 5}}, {"nt": "zz"}, {"d": None}, {"o": {}},
    {"o": None},
)  # fmt: skip

THING: dict[str, Object] = {
    "unknown fields": _with(
        _with(_with(_thing(foo=1), "metadata.zoo", 1), "status.x", 1), "top", {"of": "it"}
    ),
    "number for a label": _with(_thing(), "metadata.labels", {"a": 1}),
    "number for a name": _with(_thing(), "metadata.name", 5),
    "string for finalizers": _with(_thing(), "metadata.finalizers", "x"),
    "no spec": {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}},
    "string for spec": _thing() | {"spec": "x"},
    "missing beside wrong": _thing() | {"spec": {"s": 5}},
    **{f"spec {json.dumps(spec)}": _thing(**spec) for spec in SPECS},
}


def _field(**field: Any) -> Object:
    spec = {"type": "object", "properties": {"a": field}}
    return {"type": "object", "properties": {"spec": spec}}


def _root(**properties: Any) -> Object:
    return {"type": "object", "properties": properties}


_KEYED = {"type": "array", "items": {"type": "object", "properties": {"k": {"type": "string"}}}}
SCHEMAS: dict[str, Object | None] = {
    "fine": _field(type="string"),
    "no type": _field(),
    "no such type": _field(type="foo"),
    "array without items": _field(type="array"),
    "object without properties": _field(type="object"),
    "reference": _field(**{"$ref": "#/x"}),
    "several item schemas": _field(type="array", items=[{"type": "string"}]),
    "no such list type": _field(type="array", items={"type": "string"}, **{"x-kubernetes-list-type": "foo"}),
    "map without keys": _field(**_KEYED, **{"x-kubernetes-list-type": "map"}),
    "map with an optional key": _field(
        **_KEYED, **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}
    ),
    "map with another key": _field(
        **_KEYED, **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["z"]}
    ),
    "root is a string": {"type": "string"},
    "root without type": {"properties": {}},
    "metadata's labels": _root(metadata={"type": "object", "properties": {"labels": {"type": "object"}}}),
    "metadata's name": _root(
        metadata={"type": "object", "properties": {"name": {"type": "string", "pattern": "^a"}}}
    ),
    "apiVersion an object": _root(apiVersion={"type": "object"}),
    "no schema": None,
    "unknown format": _field(type="string", format="zzz"),
    "int-or-string": _field(**{"x-kubernetes-int-or-string": True}),
}


def definition(name: str) -> Object:
    """The CRD with one of SCHEMAS."""
    schema = SCHEMAS[name]
    found = crd(schema or {}, "others", "Other")
    if schema is None:
        del found["spec"]["versions"][0]["schema"]
    return found


def answers(control_plane: ControlPlane) -> Object:
    """Name -> [code, the message or what the object's spec became], by group of cases."""
    control_plane.request("POST", CRDS, crd(THING_SCHEMA))
    deadline_s = time.monotonic() + 30
    while time.monotonic() < deadline_s:
        try:
            control_plane.request("GET", THINGS)
            break
        except ApiError:
            time.sleep(0.1)
    try:
        return {
            "builtin": {name: _answer(control_plane, path, obj) for name, (path, obj) in BUILTIN.items()},
            "things": {name: _answer(control_plane, THINGS, obj) for name, obj in THING.items()},
            "schemas": {name: _answer(control_plane, CRDS, definition(name), spec=False) for name in SCHEMAS},
        }
    finally:
        control_plane.request("DELETE", f"{CRDS}/things.example.com")


def _answer(control_plane: ControlPlane, path: str, obj: Object, *, spec: bool = True) -> list[Any]:
    try:
        found = control_plane.request("POST", f"{path}?dryRun=All&fieldValidation=Strict", obj)
    except ApiError as error:
        return [error.code, json.loads(str(error)[str(error).index("{") :])["message"]]
    return [201, found.get("spec") if spec else None]


def main() -> None:
    with ControlPlane(unsafe_no_fsync=True) as control_plane:
        found = {"source": "kube-apiserver " + control_plane.request("GET", "/version")["gitVersion"]}
        found |= answers(control_plane)
    ANSWERS.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{ANSWERS.name}: {sum(map(len, found.values()))} answers")


if __name__ == "__main__":
    main()
