"""NodeInfo: one node with what is on it, as plugins that look at nodes one by one are shown it.

Made by core.framework.per_node from a ClusterView, which it reads only when asked: most plugins want a label.
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
    """Bound, promised, and placed before this one in the same cycle: of those a template's pod stands for
    each that shares it."""

    def __init__(self, view: ClusterView, row: int, node: Node) -> None:
        self._view = view
        self.row = row
        self.node = node
        self.name = node.metadata.name
        self.labels = node.metadata.labels or _NO_LABELS

    def __getattr__(self, name: str) -> Any:
        """`pods`, on the first ask; from then on they are an attribute like the others and as cheap."""
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
        """Names of the container images that are on the node, as kubelet reports them."""
        return self._view.images_on(self.row)

    @property
    def allocatable(self) -> dict[str, int]:
        return self._amounts(free=False)

    @property
    def free(self) -> dict[str, int]:
        """What is left; below 0 where others overcommit."""
        return self._amounts(free=True)

    @property
    def requested(self) -> dict[str, int]:
        """What pods use or are promised."""
        free = self.free
        return {name: amount - free[name] for name, amount in self.allocatable.items()}

    def _amounts(self, *, free: bool) -> dict[str, int]:
        view = self._view
        of = view.free if free else view.allocatable
        return {name: int(of(column)[self.row]) for column, name in enumerate(view.table.names)}
