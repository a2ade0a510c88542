"""ClusterView, what plugins and the cycle read, and Trial, its copy where Reserve acts.

A Trial copies a resource's column the first time it writes to it and never touches the cache; dropping it
is the undo. Sizes: one column of 5,000 nodes is 40 kB, a few microseconds to copy.
"""

from __future__ import annotations

from collections.abc import Mapping

from gangsched.core.devices import DeviceLedger
from gangsched.core.framework import BoolArray, IntArray
from gangsched.core.nodes import CodeArray, LabelColumn, NodeTable
from gangsched.core.template import HostPort, PodTemplate
from gangsched.model.devices import DeviceInventory
from gangsched.model.objects import Node, Taint
from gangsched.model.resources import ResourceTable


class ClusterView:
    """Read-only view over all node rows. Rows that are no node have live False and no room."""

    __slots__ = ("_ledger", "_nodes")

    def __init__(self, nodes: NodeTable, ledger: DeviceLedger) -> None:
        self._nodes = nodes
        self._ledger = ledger

    @property
    def n_rows(self) -> int:
        return self._nodes.n_rows

    @property
    def n_nodes(self) -> int:
        """Rows that are nodes."""
        return self._nodes.n_live

    @property
    def table(self) -> ResourceTable:
        return self._nodes.table

    @property
    def live(self) -> BoolArray:
        return self._nodes.live[: self._nodes.n_rows]

    @property
    def unschedulable(self) -> BoolArray:
        return self._nodes.unschedulable[: self._nodes.n_rows]

    @property
    def taint_class(self) -> CodeArray:
        """int32[n_rows], an index into taint_classes."""
        return self._nodes.taint_class[: self._nodes.n_rows]

    @property
    def taint_classes(self) -> Mapping[tuple[Taint, ...], int]:
        """Every distinct list of taints that a node has had, with its code."""
        return self._nodes.taint_classes

    @property
    def static_revision(self) -> int:
        """Moves whenever a node appears, goes, or changes labels, taints or spec.unschedulable."""
        return self._nodes.static_revision

    def name(self, row: int) -> str:
        return self._nodes.names[row]

    def node(self, row: int) -> Node | None:
        return self._nodes.nodes[row]

    def row_of(self, name: str) -> int | None:
        return self._nodes.row_of.get(name)

    def label(self, key: str) -> tuple[CodeArray, Mapping[str, int]]:
        """One label over all nodes: (int32[n_rows] codes, -1 where absent; value -> code)."""
        column: LabelColumn = self._nodes.label_column(key)
        return column.codes[: self._nodes.n_rows], column.values

    def allocatable(self, column: int) -> IntArray:
        """int64[n_rows] of one resource column."""
        return self._nodes.allocatable[column, : self._nodes.n_rows]

    def free(self, column: int) -> IntArray:
        """int64[n_rows]: allocatable less what pods use or are promised; below 0 where others overcommit."""
        return self._nodes.free[column, : self._nodes.n_rows]

    def device_free(self, resource: str) -> IntArray | None:
        """int64[n_rows]: free healthy devices, -1 where the node has no inventory; None: nobody has one."""
        column = self._ledger.columns.get(resource)
        return None if column is None else column.free[: self._nodes.n_rows]

    def device_mask(self, row: int, resource: str) -> int:
        """Bit mask of free healthy devices over the inventory's indices."""
        return self._ledger.free_mask(row, resource)

    def inventory(self, row: int, resource: str) -> DeviceInventory | None:
        return self._ledger.inventory(row, resource)

    def ports(self) -> Mapping[int, Mapping[HostPort, int]]:
        """row -> host ports taken there and by how many pods; rows without any are absent."""
        return self._nodes.ports


class Trial(ClusterView):
    """A copy to place pods on, thrown away or made real by the cache (assume)."""

    __slots__ = ("_device_free", "_free", "_masks", "_ports")

    def __init__(self, view: ClusterView) -> None:
        super().__init__(view._nodes, view._ledger)
        self._free: dict[int, IntArray] = {}
        self._device_free: dict[str, IntArray] = {}
        self._masks: dict[tuple[int, str], int] = {}
        self._ports: dict[int, dict[HostPort, int]] | None = None

    def fork(self) -> Trial:
        """A second trial that starts from this one; neither sees what the other does from now on."""
        other = Trial(self)
        other._free = {column: own.copy() for column, own in self._free.items()}
        other._device_free = {resource: own.copy() for resource, own in self._device_free.items()}
        other._masks = dict(self._masks)
        if self._ports is not None:
            other._ports = {row: dict(taken) for row, taken in self._ports.items()}
        return other

    def free(self, column: int) -> IntArray:
        found = self._free.get(column)
        return super().free(column) if found is None else found

    def device_free(self, resource: str) -> IntArray | None:
        found = self._device_free.get(resource)
        return super().device_free(resource) if found is None else found

    def device_mask(self, row: int, resource: str) -> int:
        found = self._masks.get((row, resource))
        return super().device_mask(row, resource) if found is None else found

    def ports(self) -> Mapping[int, Mapping[HostPort, int]]:
        return super().ports() if self._ports is None else self._ports

    def place(self, row: int, template: PodTemplate, count: int = 1) -> None:
        """Takes room and ports for `count` pods of one template; devices are taken by take_devices."""
        for column, amount in zip(template.columns, template.amounts, strict=True):
            mine = self._free.get(column)
            if mine is None:
                mine = self._free[column] = super().free(column).copy()
            mine[row] -= amount * count
        if template.host_ports:
            if self._ports is None:
                self._ports = {r: dict(taken) for r, taken in super().ports().items()}
            at = self._ports.setdefault(row, {})
            for port in template.host_ports:
                at[port] = at.get(port, 0) + count

    def take_devices(self, row: int, resource: str, mask: int) -> None:
        """Marks devices as taken; the caller has checked that they are free."""
        self._masks[row, resource] = self.device_mask(row, resource) & ~mask
        mine = self._device_free.get(resource)
        if mine is None:
            shared = super().device_free(resource)
            if shared is None:
                return
            mine = self._device_free[resource] = shared.copy()
        mine[row] -= mask.bit_count()
