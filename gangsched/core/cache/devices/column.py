"""DeviceColumn: one resource's devices over all nodes, as arrays and node by node: the ledger's data.

Written by core.cache.devices.ledger alone; pages and metrics read it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Protocol

import numpy as np

from gangsched.core.types.arrays import IntArray
from gangsched.model.devices.annotations import DeviceInventory

NO_INVENTORY = -1


class NodeDevices:
    """One resource on one node. held: device ID -> UID of the pod that holds it. also_held: device ID -> UIDs
    of further pods that hold it, which is a fault: so few have any that no list is made for each device.

    claimed: device ID -> UID of the pod that gets it next. unknown: UIDs of pods that may hold some of these
    devices without known IDs. listed_twice: an ID that the node also lists under another resource. room: how
    many of its IDs fit one label.
    """

    __slots__ = (
        "also_held",
        "by_plan",
        "claimed",
        "free",
        "held",
        "inventory",
        "listed_twice",
        "room",
        "unknown",
    )

    def __init__(self) -> None:
        self.inventory: DeviceInventory | None = None
        self.held: dict[str, str] = {}
        self.also_held: dict[str, tuple[str, ...]] = {}
        self.claimed: dict[str, str] = {}
        self.unknown: dict[str, None] = {}
        self.listed_twice = ""
        self.by_plan = False
        self.free = 0
        self.room = NO_INVENTORY

    @property
    def is_known(self) -> bool:
        """Whether each of the listed devices is known to be free, or which pod holds it."""
        return not self.unknown and not self.listed_twice

    @property
    def n_free(self) -> int:
        """How many devices may be given out by ID; NO_INVENTORY: the node counts as one without a list."""
        if self.inventory is None:
            return NO_INVENTORY
        if self.unknown or self.listed_twice:
            # A list of devices of which none is healthy keeps pods away, also those that are only counted.
            return 0 if self.by_plan or not self.inventory.healthy else NO_INVENTORY
        return self.free.bit_count()

    def holders(self, device_id: str) -> tuple[str, ...]:
        """Returns the UIDs of the pods that hold the device, in the order in which they came."""
        first = self.held.get(device_id)
        return () if first is None else (first, *self.also_held.get(device_id, ()))

    def hold(self, device_id: str, uid: str) -> None:
        """Adds the pod to the device's holders."""
        if device_id in self.held:
            self.also_held[device_id] = (*self.also_held.get(device_id, ()), uid)
        else:
            self.held[device_id] = uid

    def release(self, device_id: str, uid: str) -> bool:
        """Removes the pod from the device's holders; returns whether nobody holds it now."""
        if device_id not in self.also_held:
            if self.held.get(device_id, uid) != uid:
                return False
            self.held.pop(device_id, None)
            return True
        self.held[device_id], *further = (one for one in self.holders(device_id) if one != uid)
        if further:
            self.also_held[device_id] = (*further,)
        else:
            del self.also_held[device_id]
        return False

    def freed_by(self, ids: Iterable[str], gone: Container[str], lifted: Container[str]) -> int:
        """Bit mask of those of `ids` that would be free without the pods `gone` and `lifted` claims."""
        if self.inventory is None:
            return 0
        mask = 0
        for device_id in ids:
            index = self.inventory.index.get(device_id)
            if index is None or not all(uid in gone for uid in self.holders(device_id)):
                continue
            if device_id not in self.claimed or self.claimed[device_id] in lifted:
                mask |= 1 << index
        return mask & self.inventory.healthy

    def free_without(self, gone: Container[str], lifted: Container[str]) -> int | None:
        """DeviceLedger.free_without."""
        if self.inventory is None or self.is_known or self.listed_twice:
            return None
        if not all(uid in gone for uid in self.unknown):
            return None
        return self.freed_by(self.inventory.ids, gone, lifted)

    def recount(self) -> None:
        self.free = 0
        if self.inventory is not None:
            taken = 0
            for device_id in (*self.held, *self.claimed):
                index = self.inventory.index.get(device_id)
                if index is not None:
                    taken |= 1 << index
            self.free = self.inventory.healthy & ~taken


class _Ledger(Protocol):
    """What a column asks of the ledger."""

    capacity: int
    in_labels: bool

    def make_room_for(self, column: DeviceColumn) -> None: ...


class DeviceColumn:
    """One resource over all nodes. Shapes: free int64[capacity], a count, -1: no inventory, or one that does
    not count (NodeDevices.n_free); room
    int64[capacity], how many of a node's IDs fit one label, -1: no inventory (None: not needed).

    Annotations name resources by the thousand, and pods request few of them: the arrays are made when they
    are first read, and kept current from then on.
    """

    __slots__ = ("_arrays", "_ledger", "at", "unhealthy")

    def __init__(self, ledger: _Ledger) -> None:
        self._ledger = ledger
        self._arrays: tuple[IntArray, IntArray | None] | None = None
        self.at: dict[int, NodeDevices] = {}
        self.unhealthy: dict[int, None] = {}
        """Rows whose inventory lists a device that is not healthy."""

    @property
    def free(self) -> IntArray:
        return (self._arrays or self._made())[0]

    @property
    def room(self) -> IntArray | None:
        return (self._arrays or self._made())[1]

    def _made(self) -> tuple[IntArray, IntArray | None]:
        ledger = self._ledger
        ledger.make_room_for(self)
        free: IntArray = np.full(ledger.capacity, NO_INVENTORY, dtype=np.int64)
        self._arrays = made = (free, free.copy() if ledger.in_labels else None)
        for row, node in self.at.items():
            self.publish(row, node)
        return made

    def publish(self, row: int, node: NodeDevices | None) -> None:
        """Brings the row of the arrays up to date; None: there is nothing left on it."""
        if self._arrays is None:
            return
        free, room = self._arrays
        if node is None or node.inventory is None:
            n_free = NO_INVENTORY
        else:
            n_free = node.free.bit_count() if not node.unknown and not node.listed_twice else node.n_free
        free[row] = n_free
        if room is not None:
            room[row] = node.room if node is not None and n_free >= 0 else NO_INVENTORY

    def drop_arrays(self) -> None:
        """Forgets the arrays until they are read again."""
        self._arrays = None
