"""DeviceLedger: which pod holds which device, reserved and bound alike, in one structure (promise 3).

Lives in the cache, which is its only writer. An ID belongs to a node and a resource; it is free when the
inventory lists it as Healthy and no pod holds or has claimed it. IDs that are held but no longer listed stay
held: a device that comes back under a live pod is not given out twice.

A claim is preemption's: the device stays with its holder until that pod is gone. Then it is free only for the
pod that it was claimed for, whose claims are lifted (`unclaim`) in the turn that places it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping

import numpy as np

from gangsched.core.types.arrays import IntArray
from gangsched.core.types.group import PodInfo
from gangsched.errors import InvariantError
from gangsched.model.device_labels import label_room
from gangsched.model.devices import DeviceInventory

NO_INVENTORY = -1


class _NodeDevices:
    """One resource on one node. held: device ID -> UIDs of the pods that hold it (more than one: a fault).

    claimed: device ID -> UID of the pod that gets it next.
    """

    __slots__ = ("claimed", "free", "held", "inventory")

    def __init__(self) -> None:
        self.inventory: DeviceInventory | None = None
        self.held: dict[str, tuple[str, ...]] = {}
        self.claimed: dict[str, str] = {}
        self.free = 0

    def recount(self) -> None:
        self.free = 0
        if self.inventory is not None:
            taken = 0
            for device_id in (*self.held, *self.claimed):
                index = self.inventory.index.get(device_id)
                if index is not None:
                    taken |= 1 << index
            self.free = self.inventory.healthy & ~taken


class DeviceColumn:
    """One resource over all nodes. Shapes: free int64[capacity], a count, -1: no inventory; room
    int64[capacity], how many of a node's IDs fit one label, -1: no inventory (None: not needed).
    """

    __slots__ = ("at", "free", "room", "unhealthy")

    def __init__(self, capacity: int, *, in_labels: bool = False) -> None:
        self.free: IntArray = np.full(capacity, NO_INVENTORY, dtype=np.int64)
        self.room: IntArray | None = self.free.copy() if in_labels else None
        self.at: dict[int, _NodeDevices] = {}
        self.unhealthy: dict[int, None] = {}
        """Rows whose inventory lists a device that is not healthy."""


class DeviceLedger:
    """Which pod holds which device. Rows are the cache's node rows; `note` is called with every changed row.

    in_labels: IDs are written as labels, so the ledger tracks how many of a node's IDs fit one label.
    """

    __slots__ = ("_claims", "_note", "capacity", "columns", "in_labels", "unread")

    def __init__(self, capacity: int, note: Callable[[int], None], *, in_labels: bool = False) -> None:
        self._note = note
        self.in_labels = in_labels
        self.capacity = capacity
        self.columns: dict[str, DeviceColumn] = {}
        self._claims: dict[str, dict[tuple[int, str], None]] = {}
        self.unread: set[int] = set()
        """Rows of nodes whose inventory cannot be read: it is no evidence about their devices."""

    def grow(self, capacity: int) -> None:
        """Grows to `capacity` rows."""
        for column in self.columns.values():
            column.free = _grown(column.free, capacity)
            if column.room is not None:
                column.room = _grown(column.room, capacity)
        self.capacity = capacity

    def inventory(self, row: int, resource: str) -> DeviceInventory | None:
        """Returns the node's inventory."""
        node = self._node(row, resource)
        return node.inventory if node else None

    def free_mask(self, row: int, resource: str) -> int:
        """Bit mask over the inventory's indices: devices that are healthy and not held or claimed."""
        node = self._node(row, resource)
        return node.free if node else 0

    def listed_on(self, row: int, resource: str) -> tuple[DeviceInventory, int] | None:
        """Returns the node's inventory and its free_mask; None if it has no inventory."""
        column = self.columns.get(resource)
        node = column.at.get(row) if column is not None else None
        return None if node is None or node.inventory is None else (node.inventory, node.free)

    def set_inventories(self, row: int, inventories: Mapping[str, DeviceInventory]) -> frozenset[str]:
        """Replaces the node's inventories; returns the resources with more free devices now."""
        gained = set()
        for resource in sorted({*inventories, *(r for r, c in self.columns.items() if row in c.at)}):
            column = self._column(resource)
            node = column.at.setdefault(row, _NodeDevices())
            before, was_listed = node.free.bit_count(), node.inventory is not None
            node.inventory = own = inventories.get(resource)
            if own is not None and own.healthy.bit_count() < len(own.ids):
                column.unhealthy[row] = None
            else:
                column.unhealthy.pop(row, None)
            node.recount()
            self._publish(column, row, node)
            if node.free.bit_count() > before or (was_listed and node.inventory is None):
                gained.add(resource)
            if column.room is not None:
                room = NO_INVENTORY if node.inventory is None else label_room(node.inventory.ids)
                if room > column.room[row]:
                    gained.add(resource)
                column.room[row] = room
        return frozenset(gained)

    def hold(self, row: int, uid: str, resource: str, ids: Iterable[str]) -> list[str]:
        """Records that, by the API, the pod holds these devices; returns those that another pod holds too."""
        column = self._column(resource)
        node = column.at.setdefault(row, _NodeDevices())
        clashes = []
        for device_id in ids:
            holders = node.held.get(device_id, ())
            index = node.inventory.index.get(device_id) if node.inventory else None
            if uid in holders:
                continue
            if holders:
                clashes.append(device_id)
            node.held[device_id] = (*holders, uid)
            if index is not None:
                node.free &= ~(1 << index)
        self._publish(column, row, node)
        return clashes

    def promise(self, row: int, resource: str, pods: Iterable[tuple[str, tuple[str, ...]]]) -> None:
        """Reserves devices for one cycle, (UID, IDs) each; checked before, so a conflict is our bug.

        Raises: InvariantError (taken, unknown or unhealthy).
        """
        column = self._column(resource)
        node = column.at.get(row)
        if node is None or node.inventory is None:
            raise InvariantError(f"devices of {resource} promised on row {row}, which has no inventory")
        index, held, free = node.inventory.index, node.held, node.free
        for uid, ids in pods:
            holder = (uid,)
            for device_id in ids:
                bit = 1 << index[device_id] if device_id in index else 0
                if not free & bit:
                    holders = held.get(device_id, ())
                    raise InvariantError(
                        f"device {device_id} of {resource} promised to {uid}, held by {holders}"
                    )
                held[device_id] = holder
                free ^= bit
        node.free = free
        self._publish(column, row, node)

    def release(self, row: int, uid: str, resource: str, ids: Iterable[str]) -> bool:
        """Releases the pod's devices; returns whether one became free."""
        column = self._column(resource)
        node = column.at.get(row)
        if node is None:
            return False
        before = node.free
        for device_id in ids:
            holders = node.held.get(device_id, ())
            if holders != (uid,) and (others := tuple(holder for holder in holders if holder != uid)):
                node.held[device_id] = others
                continue
            node.held.pop(device_id, None)
            if device_id in node.claimed:
                continue
            index = node.inventory.index.get(device_id) if node.inventory else None
            if node.inventory is not None and index is not None and node.inventory.healthy >> index & 1:
                node.free |= 1 << index
        self._publish(column, row, node)
        return node.free != before

    def claim(self, row: int, uid: str, resource: str, ids: Iterable[str]) -> None:
        """Keeps devices for one pod, whichever pods hold them now: no other pod can get them.

        Claiming twice for one pod changes nothing. Raises: InvariantError (another pod has claimed one).
        """
        column = self._column(resource)
        node = column.at.setdefault(row, _NodeDevices())
        for device_id in ids:
            other = node.claimed.setdefault(device_id, uid)
            if other != uid:
                raise InvariantError(f"device {device_id} of {resource} claimed for {uid} and for {other}")
        self._claims.setdefault(uid, {})[row, resource] = None
        node.recount()
        self._publish(column, row, node)

    def unclaim(self, uid: str) -> list[tuple[int, str]]:
        """Lifts the pod's claims; returns (row, resource) where that freed devices."""
        gained = []
        for row, resource in self._claims.pop(uid, ()):
            column = self._column(resource)
            node = column.at.get(row)
            if node is None:
                continue
            before = node.free
            node.claimed = {device_id: by for device_id, by in node.claimed.items() if by != uid}
            node.recount()
            self._publish(column, row, node)
            if node.free != before:
                gained.append((row, resource))
        return gained

    def claims(self, uid: str) -> list[tuple[int, str, tuple[str, ...]]]:
        """Returns the pod's claims: (row, resource, IDs)."""
        found = []
        for row, resource in self._claims.get(uid, ()):
            node = self._node(row, resource)
            if node is not None:
                found.append((row, resource, tuple(d for d, by in node.claimed.items() if by == uid)))
        return found

    @property
    def claimants(self) -> Collection[str]:
        """UIDs of pods with claimed devices."""
        return self._claims.keys()

    def freed_by(
        self, row: int, resource: str, ids: Iterable[str], gone: Container[str], lifted: Container[str] = ()
    ) -> int:
        """Bit mask of those of `ids` that would be free if the pods `gone` (UIDs) were gone and the claims of
        pods in `lifted` were lifted."""
        node = self._node(row, resource)
        if node is None or node.inventory is None:
            return 0
        mask = 0
        for device_id in ids:
            index = node.inventory.index.get(device_id)
            holders = node.held.get(device_id, ())
            if index is None or not all(uid in gone for uid in holders):
                continue
            if device_id not in node.claimed or node.claimed[device_id] in lifted:
                mask |= 1 << index
        return mask & node.inventory.healthy

    def promised_unusable(self, row: int, resource: str, ids: Iterable[str]) -> str:
        """Returns the first of these IDs that is gone or unhealthy now; "" when all are usable."""
        node = self._node(row, resource)
        inventory = node.inventory if node else None
        for device_id in ids:
            index = inventory.index.get(device_id) if inventory else None
            if inventory is None or index is None or not inventory.healthy >> index & 1:
                return device_id
        return ""

    def holders(self, row: int, resource: str) -> Mapping[str, tuple[str, ...]]:
        """device ID -> UIDs."""
        node = self._node(row, resource)
        return node.held if node else {}

    def recount(self, row: int, infos: Iterable[PodInfo]) -> None:
        """Rebuilds the row's record of held devices from these pods."""
        for column in self.columns.values():
            node = column.at.get(row)
            if node is not None:
                node.held = {}
        for info in infos:
            for resource, ids in info.ids.items():
                node = self._column(resource).at.setdefault(row, _NodeDevices())
                for device_id in dict.fromkeys(ids):
                    node.held[device_id] = (*node.held.get(device_id, ()), info.uid)
        for column in self.columns.values():
            node = column.at.get(row)
            if node is not None:
                node.recount()
                self._publish(column, row, node)

    def forget_node(self, row: int) -> None:
        """Drops the inventory of a node that is gone, as its row may be reused for another node."""
        self.unread.discard(row)
        for column in self.columns.values():
            column.unhealthy.pop(row, None)
            if column.at.pop(row, None) is not None:
                column.free[row] = NO_INVENTORY
                if column.room is not None:
                    column.room[row] = NO_INVENTORY
        for uid in [uid for uid, places in self._claims.items() if any(at == row for at, _ in places)]:
            left = {place: None for place in self._claims[uid] if place[0] != row}
            if left:
                self._claims[uid] = left
            else:
                del self._claims[uid]

    def _node(self, row: int, resource: str) -> _NodeDevices | None:
        column = self.columns.get(resource)
        return column.at.get(row) if column is not None else None

    def _column(self, resource: str) -> DeviceColumn:
        column = self.columns.get(resource)
        if column is None:
            column = self.columns[resource] = DeviceColumn(self.capacity, in_labels=self.in_labels)
        return column

    def _publish(self, column: DeviceColumn, row: int, node: _NodeDevices) -> None:
        self._note(row)
        column.free[row] = NO_INVENTORY if node.inventory is None else node.free.bit_count()


def _grown(array: IntArray, capacity: int) -> IntArray:
    bigger = np.full(capacity, NO_INVENTORY, dtype=np.int64)
    bigger[: len(array)] = array
    return bigger
