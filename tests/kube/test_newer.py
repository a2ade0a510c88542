"""An API server newer than what is known: new fields of pods are named, and held if they may matter."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from gangsched.doctor.checks import NEWEST as OF_DOCTOR
from gangsched.kube.watch.newer import DOCUMENT, NEWEST, NewerFields, is_scheduling, newer_fields
from gangsched.kube.watch.pod_reader import PodReader
from gangsched.model import effects as ef
from gangsched.model.objects import Pod
from gangsched.process.following import Following
from tests.support.scenario import cluster

CORE = "io.k8s.api.core.v1."
KNOWN = ("spec.containers", "spec.schedulerName")


def ref(name: str) -> dict[str, Any]:
    """As the API server writes it, beside a description."""
    return {"allOf": [{"$ref": f"#/components/schemas/{CORE}{name}"}], "description": "…"}


def document(*, spec: dict[str, Any] | None = None, container: dict[str, Any] | None = None) -> bytes:
    text = {"type": "string"}
    schemas = {
        "PodSpec": {
            "schedulerName": text,
            "containers": {"type": "array", "items": ref("Container")},
            "securityContext": ref("SecurityContext"),
            **(spec or {}),
        },
        "Container": {"name": text, "image": text, "resources": ref("Resources"), **(container or {})},
        "Resources": {"requests": {"type": "object"}, "share": text},
        "SecurityContext": {"of the next version": text},
    }
    named = {f"{CORE}{name}": {"type": "object", "properties": fields} for name, fields in schemas.items()}
    return json.dumps({"openapi": "3.0.0", "components": {"schemas": named}}).encode()


def fields_of(body: bytes) -> tuple[list[str], NewerFields | None]:
    with capture_logs() as logs:
        found = newer_fields(body)
    return [one["field"] for one in logs], found


def pod(**spec: Any) -> bytes:
    spec = {"schedulerName": "gangsched", "containers": [{"name": "main", "image": "x"}], **spec}
    return json.dumps({"metadata": {"name": "p", "namespace": "d", "uid": "u"}, "spec": spec}).encode()


def read(reader: PodReader, body: bytes, how: str) -> Pod:
    if how == "object":
        return reader.object(body)
    line = b'{"type":"ADDED","object":' + body + b"}"
    found = reader.lines(line + b"\n")[0] if how == "lines" else reader.line(line)
    assert isinstance(found.object, Pod)
    return found.object


def test_each_new_field_is_named_and_what_is_below_known_parts_without_effect_is_not() -> None:
    named, found = fields_of(
        document(spec={"gangName": {"type": "string"}, "hostKernel": {"type": "string"}})
    )
    assert named == ["spec.containers[].resources.share", "spec.gangName", "spec.hostKernel"]
    assert found is not None
    assert found.holding == ("spec.containers[].resources.share", "spec.gangName")


def test_a_server_without_new_fields_costs_nothing() -> None:
    body = document().replace(b'"share"', b'"limits"')
    assert fields_of(body) == ([], None)


@pytest.mark.parametrize(
    ("path", "may_matter"),
    [
        ("spec.affinity.rackAffinity", True),
        ("spec.topologySpreadConstraints[].strict", True),
        ("spec.placementPolicy", True),
        ("spec.containers[].resources.share", True),
        ("spec.containers[].lifecycleStage", False),
        ("spec.dnsMode", False),
    ],
)
def test_what_may_decide_about_scheduling_goes_by_place_and_name(path: str, may_matter: bool) -> None:
    assert is_scheduling(path) is may_matter


@pytest.mark.parametrize("how", ["lines", "line", "object"])
def test_a_pod_with_such_a_field_is_held_and_others_are_not(how: str) -> None:
    reader = PodReader()
    reader.newer = NewerFields(("spec.gangName", "spec.containers[].resources.share"))
    assert not read(reader, pod(), how).spec.not_understood
    assert not read(reader, pod(gangName=None), how).spec.not_understood
    shared = [{"name": "a"}, {"name": "b", "resources": {"share": "0.5"}}]
    told = read(reader, pod(containers=shared), how).spec.not_understood
    assert told.startswith(
        "spec.containers[1].resources.share: this version of gangsched does not know the field"
    )
    held = read(reader, pod(gangName={"any": ["thing"]}), how)
    assert held.spec.not_understood.startswith("spec.gangName: ")
    c = cluster(nodes=1).submit(held).run()
    assert not c.all(ef.BindPod)
    assert "spec.gangName: this version of gangsched does not know the field" in c.said("p")


class Client:
    """Answers by path, and counts."""

    def __init__(self, minor: str, body: bytes = b"{}") -> None:
        self.answers = {"/version": json.dumps({"major": "1", "minor": minor}).encode(), DOCUMENT: body}
        self.asked: list[str] = []

    def another(self, *args: Any, **more: Any) -> Client:
        return self

    async def get(self, path: str, *args: Any, **more: Any) -> bytes:
        self.asked.append(path)
        return self.answers[path]


@pytest.mark.parametrize(
    ("minor", "body", "asked", "found"),
    [
        ("37", b"", ["/version"], False),
        ("34+", b"", ["/version"], False),
        ("38", document(spec={"gangName": {}}), ["/version", DOCUMENT], True),
        ("38", b"not JSON", ["/version", DOCUMENT], False),
        ("38", b"{}", ["/version", DOCUMENT], False),
    ],
)
def test_only_a_newer_server_is_asked(minor: str, body: bytes, asked: list[str], found: bool) -> None:
    client: Any = Client(minor, body)
    rng = Random(1)
    following = Following(
        client, lambda events: anyio.sleep(0), rng=rng, watches=(), needed=(), replaced=lambda: None
    )
    anyio.run(following.look_for_newer_fields)
    assert client.asked == asked
    reader = following.reflectors["pods"].kind.reader
    assert reader is not None
    assert (reader.newer is not None) is found


def test_one_number_is_the_newest() -> None:
    assert NEWEST == OF_DOCTOR
