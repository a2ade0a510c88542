"""Nodes for imported jobs: a number of equal ones, or those of a list, as the published openb trace has it.

The list is CSV with the columns sn, cpu_milli, memory_mib, gpu and, where known, model.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gangsched.errors import ConfigError
from gangsched.lab.bench.queueing.traces.traces import number_reader
from gangsched.lab.bench.rounds.workload import PODS_PER_NODE, RESOURCE, node
from gangsched.model.devices.annotations import INVENTORY_KEY
from gangsched.model.objects import Node, NodeStatus

MAX_NODES = 20_000
_MAX_GPUS = 64
_MAX_LINE = 1000
_NEEDED = ("sn", "cpu_milli", "memory_mib", "gpu")
_HOSTNAME = "kubernetes.io/hostname"
_PRODUCT = "nvidia.com/gpu.product"
_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,61}[a-z0-9])?")
_MODEL = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def equal_nodes(n: int, gpus: int) -> list[Node]:
    """Returns nodes as the bench has them."""
    return [node(i, gpus) for i in range(n)]


def listed_nodes(path: str, refuse: Callable[[ConfigError], None]) -> list[Node]:
    """Returns the nodes of the list; `refuse` gets the error of each bad line, which is left out. Raises:
    ConfigError."""
    try:
        with Path(path).open(encoding="utf-8-sig", errors="replace", newline="") as file:
            names = [name.strip() for name in next(csv.reader([file.readline(_MAX_LINE)]), [])]
            missing = [name for name in _NEEDED if name not in names]
            if missing:
                raise ConfigError(
                    f"line 1 has no column {', '.join(missing)}", path="--node-list", source=path
                )
            found: dict[str, Node] = {}
            number = 1
            while line := file.readline(_MAX_LINE):
                number += 1
                try:
                    one = _node(path, number, names, line, len(found))
                    if one.metadata.name in found:
                        raise ConfigError(f"line {number}: {one.metadata.name} is there already", source=path)
                except ConfigError as error:
                    refuse(error)
                    continue
                found[one.metadata.name] = one
                if len(found) > MAX_NODES:
                    raise ConfigError(f"has more than {MAX_NODES} nodes", path="--node-list", source=path)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", path="--node-list", source=path) from None
    if not found:
        raise ConfigError("has no node", path="--node-list", source=path)
    return list(found.values())


def _node(path: str, number: int, names: list[str], line: str, at: int) -> Node:
    """Makes the node of one line. Raises: ConfigError."""
    if len(line) >= _MAX_LINE and not line.endswith("\n"):
        raise ConfigError(f"line {number} is longer than {_MAX_LINE} characters", source=path)
    fields = dict(zip(names, next(csv.reader([line]), []), strict=False))
    value = number_reader(path, number, lambda name: fields.get(name, ""))
    name, n_gpus = fields.get("sn", "").strip().lower(), int(value("gpu"))
    if _NAME.fullmatch(name) is None:
        raise ConfigError(f"line {number}: field sn: {name[:40]!r} is not a node name", source=path)
    if not 0 <= n_gpus <= _MAX_GPUS:
        raise ConfigError(f"line {number}: field gpu: {n_gpus} is not within 0..{_MAX_GPUS}", source=path)
    amounts: dict[str, str | int | float] = {
        "cpu": f"{max(int(value('cpu_milli')), 0)}m",
        "memory": f"{max(int(value('memory_mib')), 0)}Mi",
        "pods": str(PODS_PER_NODE),
    }
    model = fields.get("model", "").strip()
    like = node(at, n_gpus or 1)
    labels = {**(like.metadata.labels or {}), _HOSTNAME: name}
    annotations = dict(like.metadata.annotations or {})
    if n_gpus:
        amounts[RESOURCE] = str(n_gpus)
        if _MODEL.fullmatch(model):
            labels[_PRODUCT] = model
            annotations[INVENTORY_KEY] = _of_model(annotations[INVENTORY_KEY], model)
    else:
        annotations.clear()
    meta = replace(like.metadata, name=name, labels=labels, annotations=annotations)
    return Node(meta, like.spec, NodeStatus(allocatable=amounts, conditions=like.status.conditions))


def _of_model(inventory: str, model: str) -> str:
    """Changes the model of the bench's devices, which are H100s."""
    found = msgspec.json.decode(inventory)
    for device in found[RESOURCE]:
        device["model"] = model
        del device["memoryMiB"]
    return msgspec.json.encode(found).decode()
