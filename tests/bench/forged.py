"""Forged watch logs: a correct run, for tests to spoil in one place."""

from __future__ import annotations

from typing import Any

import msgspec

from gangsched.lab.bench.rounds.checks import Findings, check
from gangsched.lab.bench.rounds.watch_log import Seen
from gangsched.lab.bench.rounds.workload import (
    RESOURCE,
    Shape,
    inventory,
    members,
    node_name,
    planned_bindings,
    pod_document,
    pod_name,
)
from gangsched.model.devices.annotations import DeviceInventory, parse_inventory
from gangsched.model.objects import Pod

SHAPE = Shape(n_nodes=3, n_gangs=3, gang_size=4, gpus=4)
Document = dict[str, Any]


def inventories() -> dict[str, DeviceInventory]:
    """What the nodes of SHAPE offer."""
    return {
        node_name(i): parse_inventory(msgspec.json.encode(inventory(i, SHAPE.gpus)).decode())[RESOURCE]
        for i in range(SHAPE.n_nodes)
    }


def bound_pods() -> list[Document]:
    """All pods as they are once the plan has been carried out."""
    names = [pod_name("t", ref) for ref in members(SHAPE)]
    bindings = planned_bindings(SHAPE, "t", {name: f"uid-{name}" for name in names})
    documents = []
    for ref, binding in zip(members(SHAPE), bindings, strict=True):
        document = pod_document("t", ref, "gangsched")
        document["metadata"] |= {
            "uid": binding["metadata"]["uid"],
            "annotations": dict(binding["metadata"]["annotations"]),
        }
        document["spec"]["nodeName"] = binding["target"]["name"]
        documents.append(document)
    return documents


def unbound(document: Document) -> Document:
    """The same pod before its binding."""
    spec = {key: value for key, value in document["spec"].items() if key != "nodeName"}
    metadata = {key: value for key, value in document["metadata"].items() if key != "annotations"}
    return document | {"spec": spec, "metadata": metadata}


def examine(final: list[Document], log: list[Document] | None = None) -> Findings:
    """The checker's word; the log is the final pods, a millisecond apart, unless another is given."""
    lines = final if log is None else log
    return check(
        [Seen(n * 1_000_000, "MODIFIED", _pod(document)) for n, document in enumerate(lines)],
        [_pod(document) for document in final],
        gang_size=SHAPE.gang_size,
        gpus=SHAPE.gpus,
        inventories=inventories(),
        gang_by_gang=True,
    )


def _pod(document: Document) -> Pod:
    return msgspec.convert(document, Pod)
