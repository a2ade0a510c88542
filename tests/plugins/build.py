"""Terse clusters and pods for plugin tests; everything goes through core.cache.cache, as in the scheduler.

`nodes(cpu="8", gpu=4)` style keyword arguments become allocatable amounts; pods are counted on a node by
`on=`. Nothing here decides anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from gangsched.core.cache.cache import Cache
from gangsched.core.cache.trial import ClusterView
from gangsched.core.framework.interface import ClusterChange, CycleState
from gangsched.core.types.group import PodInfo
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.kube.watch.decode import objects
from gangsched.model import storage
from gangsched.model.devices.annotations import INVENTORY_KEY
from gangsched.model.objects import Node, Pod, Taint

GPU = "nvidia.com/gpu"
ROOMY = {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "110"}


def node(
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    taints: Iterable[Taint] = (),
    unschedulable: bool = False,
    inventory: Mapping[str, Sequence[str]] | None = None,
    allocatable: Mapping[str, str] | None = None,
) -> Node:
    """A node with plenty of room but for what `allocatable` says; inventory: resource -> healthy IDs.

    An ID that ends in "!" is listed as unhealthy.
    """
    annotations = {}
    if inventory is not None:
        annotations[INVENTORY_KEY] = json.dumps(
            {resource: [_device(one) for one in ids] for resource, ids in inventory.items()}
        )
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "uid": f"uid-{name}",
                "labels": dict(labels or {}),
                "annotations": annotations,
            },
            "spec": {"unschedulable": unschedulable, "taints": msgspec.to_builtins(list(taints)) or None},
            "status": {"allocatable": {**ROOMY, **(allocatable or {})}},
        },
        Node,
    )


def _device(text: str) -> dict[str, str]:
    return {"id": text.rstrip("!"), "health": "Unhealthy" if text.endswith("!") else "Healthy"}


def pod(name: str = "p", *, requests: Mapping[str, str] | None = None, **spec: Any) -> Pod:
    """A pod of one container with `requests`; anything else of its spec in the API's own JSON."""
    containers = [{"name": "main", "resources": {"requests": dict(requests or {})}}]
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
            "spec": {"containers": containers, **spec},
        },
        Pod,
    )


class Cluster:
    """A cache with nodes in it, and one CycleState to call plugins with."""

    def __init__(self, *nodes: Node) -> None:
        self.cache = Cache()
        self.state = CycleState()
        self.changes: list[ClusterChange] = []
        for one in nodes:
            self.put(one)

    @property
    def view(self) -> ClusterView:
        return self.cache.view

    def put(self, one: Node) -> list[ClusterChange]:
        """Adds or updates a node; answers with the changes that the cache tells."""
        changes, problem = self.cache.put_node(one)
        assert not problem, problem
        self.changes += changes
        return changes

    def run(self, one: Pod, on: str) -> PodInfo:
        """Counts a bound pod on a node."""
        info = PodInfo(one, self.cache.template_of(one), one.metadata.uid)
        self.cache.join(info)
        self.cache.place(info, on, {})
        return info

    def template(self, one: Pod | None = None) -> PodTemplate:
        return self.cache.template_of(one or pod())

    def rows(self, names: Iterable[str]) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.array([self.cache.nodes.row_of[name] for name in names], dtype=np.int64)

    def names(self, mask: Any) -> list[str]:
        """Node names where the mask holds; None is everywhere."""
        rows = range(self.view.n_rows) if mask is None else np.flatnonzero(mask)
        return [self.view.name(int(row)) for row in rows if self.view.live[row]]


class Compared(str):
    """Counts how often it is compared with another one."""

    __slots__ = ()
    n = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Compared.n += 1
        return str.__eq__(self, str(other))


class Stored:
    """Objects of other kinds in the cache of a cluster; each write is a newer version."""

    def __init__(self, cluster: Cluster) -> None:
        self._objects = cluster.cache.objects
        self._n = 0

    def put(self, kind: str, name: str, **body: Any) -> None:
        """With the body as the API server writes it, without metadata."""
        self._n += 1
        meta = {"name": name, "namespace": _namespace(kind), "uid": f"uid-{kind}-{name}"}
        raw = msgspec.json.encode({"metadata": {**meta, "resourceVersion": str(self._n)}, **body})
        self._objects.put(kind, objects(kind).decode_object(raw))

    def drop(self, kind: str, name: str) -> None:
        """It is gone, if it was there."""
        self._objects.remove(kind, _namespace(kind), name, f"uid-{kind}-{name}")


def _namespace(kind: str) -> str:
    return "default" if kind in (storage.CLAIMS, storage.CAPACITIES) else ""
