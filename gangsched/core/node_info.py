"""NodeInfo: one node with what is on it, as plugins that look at nodes one by one are shown it.

Made by core.per_node from a ClusterView, which it reads only when asked: most plugins want a label.
"""

from __future__ import annotations

from collections.abc import Mapping

from gangsched.core.snapshot import ClusterView
from gangsched.model.objects import Node, Taint


class NodeInfo:
    """One node. Amounts are whole numbers by resource name (cpu in thousandths, memory in bytes)."""

    __slots__ = ("_view", "labels", "name", "node", "row")

    def __init__(self, view: ClusterView, row: int, node: Node) -> None:
        self._view = view
        self.row = row
        self.node = node
        self.name = node.metadata.name
        self.labels: Mapping[str, str] = node.metadata.labels or {}

    @property
    def taints(self) -> tuple[Taint, ...]:
        return tuple(self.node.spec.taints or ())

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
