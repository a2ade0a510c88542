"""Builds the Node objects of a simulated cluster: racks, GPUs and their links, a kubelet's report.

Lives here: `build_nodes` and the faults of the command line, written into those nodes. Not here: a running
kubelet's changes (node_agent.py). Called by the embedded cluster's assembly and tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from gangsched.errors import ConfigError
from gangsched.lab.apiserver.simulated.nodes import node_status, scripts
from gangsched.model.devices.annotations import INVENTORY_KEY, MAX_DEVICES

GPU = "nvidia.com/gpu"
RACK_LABEL = "topology.kubernetes.io/rack"
# One /24 of pod addresses each in 10.0.0.0/8; far above what one process holds.
MAX_NODES = 65_536
_NVSWITCH = 8
"""GPUs behind one NVSwitch, all linked with each other; the first half is on NUMA node 0."""
_MODEL = "NVIDIA H100 80GB HBM3"
_MEMORY_MIB = 81_559
_DEFAULT = node_status.Size()


class Kill(NamedTuple):
    """A node that dies `after_s` simulated seconds after the start."""

    node: str
    after_s: float = 0.0


def build_nodes(
    n: int,
    *,
    gpus: int = 8,
    racks: int = 4,
    cpu: int = _DEFAULT.cpu,
    memory_gib: int = _DEFAULT.memory_gib,
    pods: int = _DEFAULT.pods,
    prefix: str = "node",
    now: datetime | None = None,
) -> list[dict[str, Any]]:
    """Builds n Node objects, divided among the racks in order: the first rack's nodes come first.

    They are ready from the start, so that a cluster without simulated kubelets is schedulable too. Raises:
    ConfigError, which names the invalid option.
    """
    _check(n, gpus=gpus, racks=racks, cpu=cpu, memory_gib=memory_gib, pods=pods)
    width = len(str(max(n - 1, 0)))
    return [
        _node(
            f"{prefix}-{i:0{width}d}",
            i,
            gpus=gpus,
            rack=f"rack-{i * min(racks, n) // n}",
            size=node_status.Size(cpu=cpu, memory_gib=memory_gib, pods=pods, devices={GPU: gpus}),
            now=now,
        )
        for i in range(n)
    ]


def device_id(node: str, k: int) -> str:
    """Returns the k-th GPU's ID, readable on purpose: people type it and search for it."""
    return f"GPU-{node}-{k}"


def inventory(node: str, gpus: int) -> str:
    """The annotation `gangsched.io/devices` of a node with this many GPUs."""
    ids = [device_id(node, k) for k in range(gpus)]
    devices = []
    for k, own in enumerate(ids):
        board = range(k - k % _NVSWITCH, min(k - k % _NVSWITCH + _NVSWITCH, gpus))
        devices.append(
            {
                "id": own,
                "health": "Healthy",
                "numa": 2 * (k % _NVSWITCH) // _NVSWITCH,
                "model": _MODEL,
                "memoryMiB": _MEMORY_MIB,
                "links": {ids[peer]: "NV18" for peer in board if peer != k},
            }
        )
    return msgspec.json.encode({GPU: devices}).decode()


def parse_kill(text: str) -> Kill:
    """Reads `NODE` or `NODE@SECONDS`. Raises: ConfigError."""
    node, at, seconds = text.partition("@")
    try:
        after_s = float(seconds) if at else 0.0
    except ValueError:
        after_s = -1.0
    if not node or not 0 <= after_s < 1e9:
        raise ConfigError(f"--kill {text!r}: expected NODE or NODE@SECONDS, as node-3 or node-3@30")
    return Kill(node, after_s)


def parse_unhealthy(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Reads `NODE=ID[,ID…]`, several times for one node if need be. Raises: ConfigError."""
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        node, _, ids = text.partition("=")
        parts = tuple(part.strip() for part in ids.split(",") if part.strip())
        if not node or not parts:
            raise ConfigError(
                f"--unhealthy {text!r}: expected NODE=ID[,ID…], as node-3={device_id('node-3', 0)}"
            )
        found[node] = found.get(node, ()) + parts
    return found


def make_unhealthy(nodes: Sequence[dict[str, Any]], unhealthy: Mapping[str, Sequence[str]]) -> None:
    """Makes devices of these nodes unhealthy: writes the annotation and their health.

    Raises: ConfigError for a node or an ID that is not among them.
    """
    by_name = {node["metadata"]["name"]: node for node in nodes}
    for name, ids in unhealthy.items():
        node = by_name.get(name)
        if node is None:
            raise ConfigError(f"--unhealthy {name}: {_no_such_node(by_name)}")
        notes = node["metadata"]["annotations"]
        devices = msgspec.json.decode(notes.get(INVENTORY_KEY, "{}"))
        known = {device["id"]: device for of in devices.values() for device in of}
        for each in ids:
            if each not in known:
                some = ", ".join(list(known)[:8]) or "none"
                raise ConfigError(f"--unhealthy {name}={each}: no such device; {name} has {some}")
            known[each]["health"] = "Unhealthy"
        notes[INVENTORY_KEY] = msgspec.json.encode(devices).decode()
        notes[scripts.UNHEALTHY_KEY] = ",".join(ids)
        for resource, of in devices.items():
            healthy = sum(device["health"] == "Healthy" for device in of)
            node["status"]["allocatable"][resource] = str(healthy)


def check_kills(nodes: Sequence[dict[str, Any]], kills: Sequence[Kill]) -> None:
    """Raises: ConfigError for a node that is not among these."""
    by_name = {node["metadata"]["name"]: node for node in nodes}
    for kill in kills:
        if kill.node not in by_name:
            raise ConfigError(f"--kill {kill.node}: {_no_such_node(by_name)}")


def _no_such_node(by_name: Mapping[str, object]) -> str:
    names = list(by_name)
    some = f"{names[0]} to {names[-1]}" if names else "none"
    return f"no such node; there are {some}"


def _node(
    name: str, i: int, *, gpus: int, rack: str, size: node_status.Size, now: datetime | None
) -> dict[str, Any]:
    notes = {INVENTORY_KEY: inventory(name, gpus)} if gpus else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "beta.kubernetes.io/arch": "amd64",
                "beta.kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": f"simulated.{gpus}gpu" if gpus else "simulated.cpu",
                "topology.kubernetes.io/region": "simulated",
                "topology.kubernetes.io/zone": "simulated-a",
                RACK_LABEL: rack,
            },
            "annotations": notes,
        },
        "spec": {"podCIDR": pod_cidr(i), "podCIDRs": [pod_cidr(i)], "providerID": f"simulated://{name}"},
        "status": node_status.fresh(name, node_ip(i), size, now),
    }


def node_ip(i: int) -> str:
    """Returns an address in 172.16.0.0/12, a private range."""
    host = i + 257
    return f"172.{16 + (host >> 16)}.{host >> 8 & 255}.{host & 255}"


def pod_cidr(i: int) -> str:
    return f"10.{i >> 8 & 255}.{i & 255}.0/24"


def _check(n: int, **numbers: int) -> None:
    if not 0 <= n <= MAX_NODES:
        raise ConfigError(f"--nodes {n}: expected 0 to {MAX_NODES}")
    least = {"gpus": 0, "racks": 1, "cpu": 1, "memory_gib": 1, "pods": 1}
    for option, number in numbers.items():
        if number < least[option]:
            raise ConfigError(f"--{option.replace('_', '-')} {number}: expected {least[option]} or more")
    if numbers["gpus"] > MAX_DEVICES:
        raise ConfigError(f"--gpus {numbers['gpus']}: expected at most {MAX_DEVICES}")
