"""Kubernetes objects for simulations and scenarios, built without JSON. Times are virtual.

Not here: what the API server does to them (lab.sim.world.api).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from gangsched.model.devices.annotations import INVENTORY_KEY
from gangsched.model.objects import (
    Container,
    CustomObject,
    Node,
    NodeStatus,
    ObjectMeta,
    Pod,
    PodSpec,
    ResourceRequirements,
    SchedulingGate,
)
from gangsched.model.pod_group import GROUP_LABEL, MIN_MEMBERS_KEY

GPU = "nvidia.com/gpu"
RACK = "topology.kubernetes.io/rack"
OURS = "gangsched"
STRANGER = "default-scheduler"
MACHINE_KEY = "sim.example.com/machine"
"""Node label that names the node's entry in MACHINES."""
Key = tuple[str, ...]
"""Of an object in a store: its namespace and name, with the dialect before them for a gang's."""
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def at(now_s: float) -> datetime:
    """Virtual seconds as an API time, which knows whole seconds only."""
    return _at(int(now_s))


@lru_cache(maxsize=4096)
def _at(seconds: int) -> datetime:
    return _EPOCH + timedelta(seconds=seconds)


class Machine(NamedTuple):
    """What is in a node: devices of a model, linked by `inside` within blocks of `block` devices and by
    `across` between blocks; "": unknown."""

    block: int = 2
    inside: str = "NV18"
    across: str = ""
    model: str = ""
    memory_mib: int = 0


USUAL = Machine()
MACHINES = {
    "eight": Machine(8, "NV18", "", "NVIDIA H100 80GB HBM3", 81559),
    "fours": Machine(4, "NV12", "SYS", "NVIDIA A100-SXM4-40GB", 40960),
    "pairs": Machine(2, "PIX", "NODE", "NVIDIA L4", 23034),
}


def inventory(
    node: str,
    n_devices: int,
    *,
    unhealthy: Collection[int] = (),
    mark: str = "",
    resource: str = GPU,
    machine: str = "",
) -> str:
    """Returns the node annotation: n devices in two NUMA halves, linked as in MACHINES[machine], else by
    NVLink in pairs. `mark` tells generations apart."""
    ids = [f"GPU-{node}{mark}-{k}" for k in range(n_devices)]
    made = MACHINES.get(machine, USUAL)
    details = {"model": made.model, "memoryMiB": made.memory_mib} if made.model else {}
    devices = []
    for k, device_id in enumerate(ids):
        paths = [made.inside if k // made.block == j // made.block else made.across for j in range(n_devices)]
        devices.append(
            {
                "id": device_id,
                "health": "Unhealthy" if k in unhealthy else "Healthy",
                "numa": 2 * k // max(n_devices, 1),
                "links": {ids[j]: path for j, path in enumerate(paths) if path and j != k},
                **details,
            }
        )
    return msgspec.json.encode({resource: devices}).decode()


def make_node(
    name: str,
    *,
    uid: str = "",
    gpus: int = 8,
    cpu: int = 64,
    pods: int = 110,
    rack: str = "",
    annotations: Mapping[str, str] | None = None,
    listed: bool = True,
) -> Node:
    """A node; `listed` with its devices in the annotation, otherwise with their number only."""
    own = dict(annotations or {})
    if listed and gpus and INVENTORY_KEY not in own:
        own[INVENTORY_KEY] = inventory(name, gpus)
    return Node(
        metadata=ObjectMeta(
            name=name, uid=uid or f"uid-{name}", labels={RACK: rack} if rack else {}, annotations=own
        ),
        status=NodeStatus(allocatable={"cpu": cpu, "memory": "512Gi", "pods": pods, GPU: gpus}),
    )


def make_pod(
    name: str,
    *,
    uid: str = "",
    namespace: str = "d",
    group: str = "",
    min_members: int = 0,
    gpus: int = 1,
    cpu: str = "1",
    priority: int = 0,
    scheduler: str = OURS,
    gated: bool = False,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    preempts: bool = True,
    now_s: float = 0.0,
) -> Pod:
    """A pod of one container; with `group` and `min_members` a gang's member in our own dialect."""
    own = dict(annotations or {})
    marks = dict(labels or {})
    if group:
        marks[GROUP_LABEL] = group
    if min_members:
        own[MIN_MEMBERS_KEY] = str(min_members)
    asked: dict[str, str | int | float] = {"cpu": cpu, "memory": "1Gi"}
    if gpus:
        asked[GPU] = gpus
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid=uid or f"uid-{namespace}-{name}",
            labels=marks,
            annotations=own,
            creation_timestamp=at(now_s),
        ),
        spec=PodSpec(
            scheduler_name=scheduler,
            priority=priority,
            preemption_policy=None if preempts else "Never",
            scheduling_gates=[SchedulingGate("sim/gate")] if gated else None,
            containers=[Container(name="main", resources=ResourceRequirements(requests=asked))],
        ),
    )


def make_pod_group(
    name: str,
    *,
    uid: str = "",
    namespace: str = "d",
    spec: Mapping[str, Any] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> CustomObject:
    """A PodGroup object, its spec as the dialect writes it."""
    meta = ObjectMeta(
        name=name, namespace=namespace, uid=uid or f"uid-pg-{name}", annotations=dict(annotations or {})
    )
    return CustomObject(metadata=meta, spec=dict(spec or {}))
