"""Decoding, validation and defaults give what a real server answered (cases.py, answers.json)."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from gangsched.api_rules.schema.catalog import builtin
from gangsched.api_rules.schema.decode import decode
from gangsched.api_rules.schema.node import Schema
from gangsched.api_rules.status import StatusError
from gangsched.lab.apiserver.schema.custom import fill_defaults, validate_custom
from gangsched.lab.apiserver.schema.definitions import schema_problems, schema_warnings
from gangsched.lab.apiserver.schema.fields import STRICT, taken_in
from gangsched.lab.apiserver.status import invalid
from gangsched.lab.controlplane.processes import ControlPlane
from tests.apiserver.schema import cases

RECORDED: dict[str, Any] = json.loads(cases.ANSWERS.read_text())


def said_no(text: str) -> None:
    raise AssertionError(f"warned though strict: {text}")


def schema_of(obj: dict[str, Any]) -> Schema:
    group, _, version = obj["apiVersion"].rpartition("/")
    return builtin().builtin(group, version, obj["kind"])


def strictly(schema: Schema, obj: dict[str, Any], body: bytes | None = None) -> dict[str, Any]:
    version = obj["apiVersion"].rpartition("/")[2]
    return taken_in(schema, obj, kind=obj["kind"], version=version, directive=STRICT, warn=said_no, body=body)


@pytest.mark.parametrize("name", cases.BUILTIN)
def test_a_built_in_object_is_refused(name: str) -> None:
    _, obj = cases.BUILTIN[name]
    with pytest.raises(StatusError) as refused:
        strictly(schema_of(obj), obj)
    assert [refused.value.code, refused.value.message] == RECORDED["builtin"][name]


@pytest.mark.parametrize("name", cases.THING)
def test_a_custom_object_is_completed_or_refused(name: str) -> None:
    schema = builtin().custom(copy.deepcopy(cases.THING_SCHEMA))
    obj = cases.THING[name]
    try:
        taken = strictly(schema, obj)
        fill_defaults(schema, taken)
        if problems := validate_custom(schema, taken):
            raise invalid("Thing", "t", problems, group="example.com")
    except StatusError as error:
        answer = [error.code, error.message]
    else:
        answer = [201, taken["spec"]]
    assert answer == RECORDED["things"][name]


@pytest.mark.parametrize("name", cases.SCHEMAS)
def test_a_definition_is_accepted_or_refused(name: str) -> None:
    obj = cases.definition(name)
    problems = schema_problems(obj["spec"]["versions"])
    answer: list[Any] = [201, None]
    if problems:
        group = "apiextensions.k8s.io"
        error = invalid("CustomResourceDefinition", obj["metadata"]["name"], problems, group=group)
        answer = [error.code, error.message]
    assert answer == RECORDED["schemas"][name]


def test_fields_that_stand_twice_are_found_where_they_are() -> None:
    """As kube-apiserver 1.37.1 lists them."""
    body = (
        b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","name":"q"},"spec":{"containers":[{"name":'
        b'"c","image":"i","image":"j"}],"nodeSelector":{"a":"b","a":"c"}}}'
    )
    obj = json.loads(body)
    with pytest.raises(StatusError) as refused:
        strictly(schema_of(obj), obj, body)
    assert refused.value.message == (
        'Pod in version "v1" cannot be handled as a Pod: strict decoding error: '
        'duplicate field "metadata.name", duplicate field "spec.containers[0].image", '
        'duplicate field "spec.nodeSelector.a"'
    )


def test_without_strict_unknown_fields_are_dropped_and_warned_of_or_ignored() -> None:
    _, obj = cases.BUILTIN["unknown fields"]
    for directive, n_warnings in (("Warn", 5), ("", 5), ("Ignore", 0)):
        said: list[str] = []
        taken = taken_in(schema_of(obj), obj, kind="Pod", version="v1", directive=directive, warn=said.append)
        assert len(said) == n_warnings
        assert said[:1] == ['unknown field "metadata.zoo"'] * bool(n_warnings)
        assert taken["spec"] == {
            "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "v", "emptyDir": {}}],
        }


def test_what_is_taken_in_is_canonical() -> None:
    """Each pair is what kube-apiserver 1.37.1 gave back."""
    pairs = {
        "0.5": "500m",
        "1500m": "1500m",
        "1000m": "1",
        "1000": "1k",
        "1024": "1024",
        "1024Mi": "1Gi",
        "1.5Gi": "1536Mi",
        "0.5Ki": "512",
        "1e3": "1e3",
        "1E3": "1E3",
        "12e4": "120e3",
        "100k": "100k",
        "0": "0",
        "+1": "+1",
        "0.1m": "100u",
        "1.0": "1",
    }
    pod = copy.deepcopy(cases.BUILTIN["no quantity"][1])
    for given, kept in pairs.items():
        pod["spec"]["containers"][0]["resources"] = {"limits": {"x/y": given}}
        found = decode(schema_of(pod), pod).obj
        assert found["spec"]["containers"][0]["resources"]["limits"]["x/y"] == kept, given


def test_rules_in_cel_and_unknown_formats_are_accepted_with_a_warning() -> None:
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "x-kubernetes-validations": [{"rule": "self.a"}],
                "properties": {"a": {"type": "string", "format": "zzz"}},
            }
        },
    }
    said = schema_warnings([{"name": "v1", "schema": {"openAPIV3Schema": schema}}])
    assert said == [
        "x-kubernetes-validations: this server accepts CEL rules and does not evaluate them",
        'unrecognized format "zzz"',
    ]


@pytest.mark.real
def test_a_real_server_still_answers_so(control_plane: ControlPlane) -> None:
    """Where this fails after a change of version: `python -m tests.apiserver.schema.cases`."""
    found = cases.answers(control_plane)
    for group, answers in found.items():
        for name, answer in answers.items():
            known = RECORDED[group][name]
            if answer[0] == 422 and answer[1] != known[1]:
                # It lists the problems of several fields in no particular order.
                assert sorted(answer[1]) == sorted(known[1]), name
            else:
                assert answer == known, name


@pytest.mark.real
def test_the_recorded_structure_is_still_that_of_a_real_server(control_plane: ControlPlane) -> None:
    """Where this fails after a change of version: `python -m tests.apiserver.schema.record`."""
    from tests.apiserver.schema.record import structure

    assert structure(control_plane) == builtin().schemas
