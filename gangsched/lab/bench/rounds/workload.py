"""What a round consists of: nodes with devices, pods in gangs, and the placement the null binder is given.

Values only. What does not live here: putting them on a server (cluster.py).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from gangsched.errors import ConfigError
from gangsched.model.devices.annotations import INVENTORY_KEY, allocation_annotations
from gangsched.model.objects import Node
from gangsched.model.pod_group import ATTEMPT_KEY, GANG_KEY, RANK_KEY

NAMESPACE = "default"
RESOURCE = "nvidia.com/gpu"
CONTAINER = "trainer"
NODES_PER_RACK = 16
RACKS_PER_ZONE = 16
PODS_PER_NODE = 110
CPUS_PER_NODE = 64
_DEVICE_SPACE = uuid.UUID("6ba7b812-9dad-11d1-80b4-00c04fd430c8")


class Shape(msgspec.Struct, frozen=True):
    """How large a round is; every pod asks for one GPU."""

    n_nodes: int
    n_gangs: int
    gang_size: int
    gpus: int

    @property
    def n_pods(self) -> int:
        """All members of all gangs."""
        return self.n_gangs * self.gang_size

    def check(self) -> None:
        """Raises ConfigError unless all pods fit, so that "every pod bound" can be required."""
        for name, value in zip(self.__struct_fields__, msgspec.structs.astuple(self), strict=True):
            if value < 1:
                raise ConfigError(f"--{name.removeprefix('n_').replace('_', '-')} {value} is less than 1")
        if self.gpus > CPUS_PER_NODE:
            raise ConfigError(f"--gpus {self.gpus}: a pod needs a CPU too, and nodes have {CPUS_PER_NODE}")
        if self.n_pods > self.n_nodes * self.gpus:
            raise ConfigError(
                f"{self.n_pods} pods of one GPU do not fit on {self.n_nodes} nodes of {self.gpus} GPUs"
            )


class PodRef(NamedTuple):
    """A pod of the workload: gang index, rank in the gang."""

    gang: int
    rank: int


def node_name(i: int) -> str:
    """The i-th node's name."""
    return f"node-{i:05d}"


def group_name(prefix: str, gang: int) -> str:
    """The gang's PodGroup; a round's prefix keeps names of different rounds apart."""
    return f"{prefix}-{gang:05d}"


def pod_name(prefix: str, ref: PodRef) -> str:
    """The member's name."""
    return f"{group_name(prefix, ref.gang)}-{ref.rank:03d}"


def device_ids(i: int, gpus: int) -> list[str]:
    """The IDs of the i-th node's GPUs; the same in every run."""
    return [f"GPU-{uuid.uuid5(_DEVICE_SPACE, f'{node_name(i)}/{k}')}" for k in range(gpus)]


def inventory(i: int, gpus: int) -> dict[str, list[dict[str, Any]]]:
    """A node of H100s, all linked by NVLink, half of them on each NUMA node."""
    ids = device_ids(i, gpus)
    return {
        RESOURCE: [
            {
                "id": device_id,
                "health": "Healthy",
                "numa": 0 if 2 * k < gpus else 1,
                "model": "H100",
                "memoryMiB": 81559,
                "links": {peer: "NV18" for peer in ids if peer != device_id},
            }
            for k, device_id in enumerate(ids)
        ]
    }


def node_document(i: int, gpus: int) -> dict[str, Any]:
    """A ready node; kube-apiserver takes the status of a node that is created, as kubelet creates it."""
    offered = {"cpu": str(CPUS_PER_NODE), "memory": "512Gi", "pods": str(PODS_PER_NODE), RESOURCE: str(gpus)}
    rack = i // NODES_PER_RACK
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node_name(i),
            "labels": {
                "kubernetes.io/hostname": node_name(i),
                "topology.kubernetes.io/rack": f"rack-{rack:04d}",
                "topology.kubernetes.io/zone": f"zone-{rack // RACKS_PER_ZONE:03d}",
            },
            "annotations": {INVENTORY_KEY: msgspec.json.encode(inventory(i, gpus)).decode()},
        },
        "status": {
            "allocatable": offered,
            "capacity": offered,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def node(i: int, gpus: int) -> Node:
    """The same as the core receives it from an API server that has stored it."""
    document = node_document(i, gpus)
    document["metadata"] |= {"uid": f"node-uid-{i}", "resourceVersion": str(i + 1)}
    return msgspec.json.decode(msgspec.json.encode(document), type=Node)


def group_document(prefix: str, gang: int, min_count: int, api_version: str) -> dict[str, Any]:
    """The gang's core PodGroup."""
    return {
        "apiVersion": api_version,
        "kind": "PodGroup",
        "metadata": {"name": group_name(prefix, gang), "namespace": NAMESPACE},
        "spec": {"schedulingPolicy": {"gang": {"minCount": min_count}}},
    }


def pod_document(prefix: str, ref: PodRef, scheduler_name: str) -> dict[str, Any]:
    """A member that asks for one GPU, one CPU and 1 GiB; only schedulerName differs between schedulers."""
    amounts = {"cpu": "1", "memory": "1Gi", RESOURCE: "1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": pod_name(prefix, ref), "namespace": NAMESPACE, "labels": {"app": prefix}},
        "spec": {
            "schedulerName": scheduler_name,
            "schedulingGroup": {"podGroupName": group_name(prefix, ref.gang)},
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": CONTAINER,
                    "image": "registry.invalid/trainer:1",
                    "resources": {"requests": amounts, "limits": amounts},
                }
            ],
        },
    }


def members(shape: Shape) -> Iterator[PodRef]:
    """All pods, gang by gang."""
    for gang in range(shape.n_gangs):
        for rank in range(shape.gang_size):
            yield PodRef(gang, rank)


def planned_bindings(shape: Shape, prefix: str, uids: Mapping[str, str]) -> Sequence[dict[str, Any]]:
    """A Binding for every pod, nodes filled one after the other, with the annotations gangsched writes."""
    bindings = []
    ids: list[str] = []
    for n, ref in enumerate(members(shape)):
        node, device = divmod(n, shape.gpus)
        ids = ids if device else device_ids(node, shape.gpus)
        name = pod_name(prefix, ref)
        allocation = {CONTAINER: {RESOURCE: (ids[device],)}}
        annotations = allocation_annotations(allocation) | {
            GANG_KEY: f"{NAMESPACE}/{group_name(prefix, ref.gang)}",
            RANK_KEY: str(ref.rank),
            ATTEMPT_KEY: "1",
        }
        metadata = {"name": name, "namespace": NAMESPACE, "uid": uids[name], "annotations": annotations}
        target = {"kind": "Node", "name": node_name(node)}
        bindings.append({"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target})
    return bindings
