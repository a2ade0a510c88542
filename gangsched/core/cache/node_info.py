"""NodeInfo: one node with its pods, as given to plugins that look at nodes one by one.

Made by core.framework.filters.per_node from a ClusterView, which it reads only on demand: most plugins want a
label.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gangsched.core.cache.trial import ClusterView
from gangsched.model.objects import Node, Pod, Taint

_NO_LABELS: Mapping[str, str] = {}


class NodeInfo:
    """One node. Amounts are whole numbers by resource name (cpu in thousandths, memory in bytes)."""

    __slots__ = ("_view", "labels", "name", "node", "pods", "row")

    pods: tuple[Pod, ...]
    """Bound and reserved pods, and those placed earlier in the same cycle: for these the template's pod
    stands for each pod that shares it.
    """

    def __init__(self, view: ClusterView, row: int, node: Node) -> None:
        self._view = view
        self.row = row
        self.node = node
        self.name = node.metadata.name
        self.labels = node.metadata.labels or _NO_LABELS

    def __getattr__(self, name: str) -> Any:
        """Computes `pods` on first use; from then on it is an ordinary attribute."""
        if name != "pods":
            raise AttributeError(f"a NodeInfo has no {name!r}", name=name, obj=self)
        view, row = self._view, self.row
        placed = [one.pod for at, one, count in view.placed if at == row for _ in range(count)]
        self.pods = (*(info.pod for info in view.pods_on(row)), *placed)
        return self.pods

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.node.metadata.annotations or _NO_LABELS

    @property
    def taints(self) -> tuple[Taint, ...]:
        return tuple(self.node.spec.taints or ())

    @property
    def images(self) -> tuple[str, ...]:
        """Names of the container images on the node, as kubelet reports them."""
        return self._view.images_on(self.row)

    @property
    def allocatable(self) -> dict[str, int]:
        return self._amounts(free=False)

    @property
    def free(self) -> dict[str, int]:
        """Free amounts; below 0 where other schedulers overcommit."""
        return self._amounts(free=True)

    @property
    def requested(self) -> dict[str, int]:
        """Used and reserved amounts."""
        free = self.free
        return {name: amount - free[name] for name, amount in self.allocatable.items()}

    def _amounts(self, *, free: bool) -> dict[str, int]:
        view = self._view
        of = view.free if free else view.allocatable
        return {name: int(of(column)[self.row]) for column, name in enumerate(view.table.names)}
