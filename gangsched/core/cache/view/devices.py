"""DeviceQueries: device IDs: inventories, which are free, which a pod placed on this view has."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from gangsched.core.cache.devices.ledger import DeviceLedger
from gangsched.core.cache.view.rows import RowQueries, shown
from gangsched.core.types.arrays import BoolArray, IntArray
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.model.devices.annotations import DeviceInventory

Wishes = tuple[tuple[PodTemplate, tuple[int, ...]], ...]
"""(template, the devices of each of its pods as a mask) in the order in which they were placed."""


class DeviceQueries(RowQueries):
    """Devices with IDs. What a device plugin merely counts is in RoomQueries."""

    __slots__ = ()
    _ledger: DeviceLedger

    @property
    def listed(self) -> Collection[str]:
        """The resources for which some node has an inventory."""
        return self._ledger.columns.keys()

    def device_free(self, resource: str) -> IntArray | None:
        """int64[n_rows]: free healthy devices, -1 on nodes without an inventory, or where it is not known who
        has which of it; None: no node has one."""
        column = self._ledger.columns.get(resource)
        return None if column is None else shown(column.free[: self._nodes.n_rows])

    def device_free_on(self, resource: str, row: int) -> int | None:
        """device_free of one node."""
        column = self._ledger.columns.get(resource)
        return None if column is None else column.free.item(row)

    @property
    def in_labels(self) -> bool:
        """Whether assigned IDs are written as labels: then label_room gives a label's capacity."""
        return self._ledger.in_labels

    def has_unhealthy(self, resource: str) -> bool:
        """Whether some node lists an unhealthy device of it."""
        column = self._ledger.columns.get(resource)
        return column is not None and bool(column.unhealthy)

    def label_room(self, resource: str) -> IntArray | None:
        """int64[n_rows]: how many of a node's IDs one label holds, -1 on nodes without an inventory; None:
        labels are not used."""
        column = self._ledger.columns.get(resource)
        return None if column is None or column.room is None else shown(column.room[: self._nodes.n_rows])

    def device_mask(self, row: int, resource: str) -> int:
        """Bit mask of free healthy devices over the inventory's indices."""
        return self._ledger.free_mask(row, resource)

    def device_wishes(self, row: int, resource: str) -> tuple[int, Wishes]:
        """(devices of the pods placed on this view, as a mask; which pod has which)."""
        return 0, ()

    def note_given_up(self, row: int, resource: str) -> None:
        """Records that a search for device sets there exhausted its budget; only a Trial does."""

    def with_unknown(self, resource: str) -> BoolArray:
        """bool[n_rows]: nodes that list the resource, and where the holders of its devices are unknown."""
        found = np.zeros(self._nodes.n_rows, dtype=np.bool_)
        found[list(self._ledger.with_unknown(resource))] = True
        found &= self._nodes.live[: len(found)]  # a deleted node keeps its row while pods are there
        return found

    def inventory(self, row: int, resource: str) -> DeviceInventory | None:
        """Returns what the node lists; None if nothing, or where the holders of its devices are unknown."""
        return self._ledger.inventory(row, resource)
