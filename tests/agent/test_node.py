"""The Node's bytes: what is read of them, what is sent. The server's side of it is in test_real."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gangsched.agent.node import (
    annotation_bytes,
    manager_name,
    node_patch,
    node_path,
    read_node,
)
from gangsched.errors import ApiError

KEY = "gangsched.io/devices"


def node(annotations: dict[str, str] | None, *managers: dict[str, Any]) -> bytes:
    metadata = {"uid": "u", "resourceVersion": "7", "annotations": annotations, "managedFields": managers}
    return json.dumps({"metadata": metadata}, separators=(",", ":")).encode()


def manager(name: str, key: str) -> dict[str, Any]:
    fields: dict[str, Any] = {"f:metadata": {"f:annotations": {f"f:{key}": {}}}}
    return {"manager": name, "operation": "Update", "time": "2026-01-02T03:04:05Z", "fieldsV1": fields}


def test_a_node_is_read_with_who_wrote_its_inventory_and_all_its_annotations() -> None:
    text = node({KEY: "{}", "é": "üü"}, manager("kubelet", "other"), manager("kubectl-annotate", KEY))
    seen = read_node(text)
    assert (seen.uid, seen.resource_version, seen.value) == ("u", "7", "{}")
    assert seen.writer == "'kubectl-annotate' at 2026-01-02T03:04:05Z"
    assert annotation_bytes(seen.annotations) == len("é".encode()) + len("üü".encode()) + len(KEY) + 2


def test_a_node_without_annotations_has_no_inventory() -> None:
    seen = read_node(node(None))
    assert (seen.value, seen.annotations, seen.writer) == (None, {}, "")


def test_an_answer_that_is_no_node_is_an_error() -> None:
    with pytest.raises(ApiError, match="not readable"):
        read_node(b"<html>")


def test_the_patch_is_of_this_very_node_as_it_was_read() -> None:
    assert json.loads(node_patch("u", "7", {KEY: "{}"})) == {
        "metadata": {"uid": "u", "resourceVersion": "7", "annotations": {KEY: "{}"}}
    }


def test_the_writer_has_a_name_that_the_server_takes() -> None:
    assert node_path("n1", manager="a b") == "/api/v1/nodes/n1?fieldManager=a+b"
    assert manager_name("host_1\n") == "gangsched-agent_host_1"
    assert len(manager_name("x" * 300)) == 128
