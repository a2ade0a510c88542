"""DeviceLedger: which pod holds which device, reserved and bound alike, in one structure (promise 3).

Lives in the cache, which is its only writer; Inventories puts in what nodes list. An ID belongs to a node and
a resource; it is free when the inventory lists it as Healthy and no pod holds or has claimed it. IDs that are
held but no longer listed stay held: a device that comes back under a live pod is not given out twice.

A claim is preemption's: the device stays with its holder until that pod is gone. Then it is free only for the
pod that it was claimed for, whose claims are lifted (`unclaim`) in the turn that places it.

Not known is not free. A pod's devices are known by the annotations of its Binding, or by the report of the
node's agent about what kubelet gave it (core.device_audit). Other schedulers' pods, pods created on their
node, and pods that were bound before the node listed its devices have neither. While such a pod may hold
devices of a list (`may_hold`), or the list gives an ID to two resources, the node counts as one without that
list; with `by_plan` it takes no pod that asks for them, since its device plugin admits none without IDs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from functools import partial

from gangsched.core.cache.devices.column import NO_INVENTORY, DeviceColumn, NodeDevices
from gangsched.core.cache.nodes.table import NodeTable
from gangsched.core.types.cluster_events import Change, ClusterChange
from gangsched.core.types.group import ASSUMED, ON_ITS_WAY, PodInfo
from gangsched.errors import InvariantError, ParseError
from gangsched.model.devices.annotations import DeviceInventory, ids_of, parse_inventory
from gangsched.model.devices.labels import inventory_text, label_room, where_listed
from gangsched.model.devices.links import DeviceTopology
from gangsched.model.objects import Node
from gangsched.model.resources import is_extended

# Columns with arrays at once, 8 bytes a node each: 10 MiB on 5,000 nodes.
_MAX_ARRAYS = 256


class DeviceLedger:
    """Which pod holds which device. Rows are the cache's node rows; `note` is called with every changed row.

    in_labels: IDs are written as labels, so the ledger tracks how many of a node's IDs fit one label.
    by_plan: resources whose device plugin admits no pod without IDs. changes: receives a change for each node
    that begins or ceases to count as one without a list.
    """

    __slots__ = (
        *("_claims", "_doubtful", "_here", "_nodes", "by_plan", "capacity", "changes", "columns"),
        *("_with_arrays", "in_labels", "unread"),
    )

    def __init__(
        self,
        nodes: NodeTable,
        changes: list[ClusterChange],
        *,
        in_labels: bool = False,
        by_plan: frozenset[str] = frozenset(),
    ) -> None:
        self._nodes = nodes
        self.changes = changes
        self.in_labels, self.by_plan = in_labels, by_plan
        self._here: dict[int, dict[str, NodeDevices]] = {}
        """By row: the resources that its node lists."""
        self._doubtful: set[int] = set()  # rows where a pod may hold devices without known IDs, or did
        self.capacity = nodes.capacity
        self.columns: dict[str, DeviceColumn] = {}
        self._with_arrays: list[DeviceColumn] = []
        self._claims: dict[str, dict[tuple[int, str], None]] = {}
        self.unread: set[int] = set()
        """Rows of nodes whose inventory cannot be read: it is no evidence about their devices."""

    def grow(self, capacity: int) -> None:
        """Grows to `capacity` rows."""
        self._drop_arrays()
        self.capacity = capacity

    def make_room_for(self, column: DeviceColumn) -> None:
        """Notes that this column makes its arrays; the others drop theirs if they are too many."""
        if len(self._with_arrays) >= _MAX_ARRAYS:
            self._drop_arrays()
        self._with_arrays.append(column)

    def _drop_arrays(self) -> None:
        for column in self._with_arrays:
            column.drop_arrays()
        self._with_arrays.clear()

    def inventory(self, row: int, resource: str) -> DeviceInventory | None:
        """Returns the node's inventory, from which IDs may be given; None: the node counts as one without."""
        node = self._node(row, resource)
        return None if node is None or node.n_free < 0 else node.inventory

    def listed(self, row: int, resource: str) -> DeviceInventory | None:
        """Returns what the node lists, even if the holders of its devices are unknown."""
        node = self._node(row, resource)
        return node.inventory if node else None

    def free_mask(self, row: int, resource: str) -> int:
        """Bit mask over the inventory's indices: devices that are healthy and not held or claimed."""
        node = self._node(row, resource)
        return node.free if node and node.is_known else 0

    def free_without(
        self, row: int, resource: str, gone: Container[str], lifted: Container[str] = ()
    ) -> int | None:
        """The free_mask of a node with unknown holders if the pods `gone` (UIDs) were gone and the claims of
        pods in `lifted` were lifted; None if IDs could not be given even then, or can be given now."""
        node = self._node(row, resource)
        return None if node is None else node.free_without(gone, lifted)

    def why_unknown(self, row: int, resource: str) -> tuple[Collection[str], str]:
        """(UIDs of pods that may hold devices of it without known IDs, an ID that the node lists under
        another resource too); nothing of either if all holders are known."""
        node = self._node(row, resource)
        if node is None or node.inventory is None:
            return (), ""
        return node.unknown.keys(), node.listed_twice

    def lists(self, row: int) -> Collection[str]:
        """The resources that the node lists."""
        return self._here.get(row, _NOTHING).keys()

    def with_unknown(self, resource: str) -> Iterable[int]:
        """Rows of nodes that list the resource while the holders of its devices are unknown."""
        column = self.columns.get(resource)
        there = column.at.items() if column is not None else ()
        return (row for row, node in there if node.inventory is not None and not node.is_known)

    def set_inventories(
        self, row: int, inventories: Mapping[str, DeviceInventory], there: Iterable[PodInfo] = ()
    ) -> frozenset[str]:
        """Replaces the node's inventories, `there` being its pods; returns the resources with more room."""
        before = {r: column.at[row].n_free for r, column in self.columns.items() if row in column.at}
        twice = listed_twice(inventories.items()) if len(inventories) > 1 else {}
        self._here.pop(row, None)
        gained = set()
        for resource in sorted({*inventories, *before}):
            column = self._column(resource)
            node = column.at.setdefault(row, NodeDevices())
            node.inventory = own = inventories.get(resource)
            node.listed_twice = twice.get(resource, "")
            if own is not None:
                self._here.setdefault(row, {})[resource] = node
                node.by_plan = node.by_plan or resource in self.by_plan
            if own is not None and own.healthy.bit_count() < len(own.ids):
                column.unhealthy[row] = None
            else:
                column.unhealthy.pop(row, None)
            node.recount()
            if self.in_labels:
                room, node.room = node.room, NO_INVENTORY if own is None else label_room(own.ids)
                if node.room > room:
                    gained.add(resource)
        self.recheck_unknown_holders(row, there)
        for resource in {*inventories, *before}:
            found = self._node(row, resource)
            was, now = before.get(resource, NO_INVENTORY), NO_INVENTORY if found is None else found.n_free
            if now > max(was, 0) or now < 0 <= was:
                gained.add(resource)
        return frozenset(gained)

    def set_by_plan(self, row: int, resources: Container[str]) -> None:
        """Records which resources the node's device plugin gives to no pod without IDs."""
        for resource, node in self._here.get(row, _NOTHING).items():
            was, node.by_plan = node.n_free, resource in resources or resource in self.by_plan
            if node.n_free != was:
                self._turned(row, resource, node)

    def recheck_unknown_holders(self, row: int, there: Iterable[PodInfo]) -> None:
        """Checks again which of a node's pods may hold devices without known IDs."""
        self._doubtful.discard(row)
        for node in self._here.get(row, {}).values():
            node.unknown = {}
        if row in self._here:
            self.note_unknown_holders(row, [info for info in there if info.template.asks_for_devices])
        for resource, column in list(self.columns.items()):
            if row in column.at:
                self._publish(resource, column, row, column.at[row])

    def note_unknown_holders(self, row: int, infos: Sequence[PodInfo]) -> None:
        """Notes for some pods of the node whether they may hold devices without known IDs."""
        here = self._here.get(row)
        if here is None:
            return
        for resource, node in here.items():
            assert node.inventory is not None
            was = node.n_free
            for info in infos:
                index, uid = node.inventory.index, info.uid
                offers = partial(self._nodes.has_any, row)
                if may_hold(info, resource, index, listed=here, offers=offers):
                    node.unknown[uid] = None
                    self._doubtful.add(row)
                else:
                    node.unknown.pop(uid, None)
            if node.n_free != was:
                self._turned(row, resource, node)

    def enter(self, row: int, info: PodInfo) -> list[str]:
        """Counts a pod on the node; returns those of its devices that another pod holds too."""
        clashes: list[str] = []
        for resource, ids in info.ids.items():
            clashes += self.hold(row, info.uid, resource, ids)
        if row in self._here and info.template.asks_for_devices:
            self.note_unknown_holders(row, (info,))
        return clashes

    def leave(self, row: int, info: PodInfo) -> None:
        """Counts a pod on the node no longer."""
        for resource, ids in info.ids.items():
            self.release(row, info.uid, resource, ids)
        for resource, node in self._here[row].items() if row in self._doubtful else ():
            if node.unknown.pop(info.uid, False) is None:
                self._turned(row, resource, node)

    def hold(self, row: int, uid: str, resource: str, ids: Iterable[str]) -> list[str]:
        """Records that, by the API, the pod holds these devices; returns those that another pod holds too."""
        column = self._column(resource)
        node = column.at.setdefault(row, NodeDevices())
        clashes = []
        for device_id in ids:
            holders = node.holders(device_id)
            index = node.inventory.index.get(device_id) if node.inventory else None
            if uid in holders:
                continue
            if holders:
                clashes.append(device_id)
            node.hold(device_id, uid)
            if index is not None:
                node.free &= ~(1 << index)
        self._publish(resource, column, row, node)
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
            for device_id in ids:
                bit = 1 << index[device_id] if device_id in index else 0
                if not free & bit:
                    holders = node.holders(device_id)
                    raise InvariantError(
                        f"device {device_id} of {resource} promised to {uid}, held by {holders}"
                    )
                held[device_id] = uid
                free ^= bit
        node.free = free
        self._publish(resource, column, row, node)

    def release(self, row: int, uid: str, resource: str, ids: Iterable[str]) -> bool:
        """Releases the pod's devices; returns whether one became free."""
        column = self._column(resource)
        node = column.at.get(row)
        if node is None:
            return False
        before = node.free
        for device_id in ids:
            if not node.release(device_id, uid) or device_id in node.claimed:
                continue
            index = node.inventory.index.get(device_id) if node.inventory else None
            if node.inventory is not None and index is not None and node.inventory.healthy >> index & 1:
                node.free |= 1 << index
        self._publish(resource, column, row, node)
        return node.free != before

    def claim(self, row: int, uid: str, resource: str, ids: Iterable[str]) -> None:
        """Keeps devices for one pod, whichever pods hold them now: no other pod can get them.

        Claiming twice for one pod changes nothing. Raises: InvariantError (another pod has claimed one).
        """
        column = self._column(resource)
        node = column.at.setdefault(row, NodeDevices())
        for device_id in ids:
            other = node.claimed.setdefault(device_id, uid)
            if other != uid:
                raise InvariantError(f"device {device_id} of {resource} claimed for {uid} and for {other}")
        self._claims.setdefault(uid, {})[row, resource] = None
        node.recount()
        self._publish(resource, column, row, node)

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
            self._publish(resource, column, row, node)
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
        return 0 if node is None else node.freed_by(ids, gone, lifted)

    def promised_unusable(self, row: int, resource: str, ids: Iterable[str]) -> str:
        """Returns the first of these IDs that is gone or unhealthy now; "" when all are usable."""
        node = self._node(row, resource)
        inventory = node.inventory if node else None
        return next((one for one in ids if inventory is None or not inventory.is_healthy(one)), "")

    def holders(self, row: int, resource: str) -> Mapping[str, tuple[str, ...]]:
        """device ID -> UIDs."""
        node = self._node(row, resource)
        return {device_id: node.holders(device_id) for device_id in node.held} if node else {}

    def recount(self, row: int, infos: Collection[PodInfo]) -> None:
        """Rebuilds the row's record of held devices from these pods."""
        for column in self.columns.values():
            node = column.at.get(row)
            if node is not None:
                node.held, node.also_held = {}, {}
        for info in infos:
            for resource, ids in info.ids.items():
                node = self._column(resource).at.setdefault(row, NodeDevices())
                for device_id in dict.fromkeys(ids):
                    node.hold(device_id, info.uid)
        for column in self.columns.values():
            node = column.at.get(row)
            if node is not None:
                node.recount()
        self.recheck_unknown_holders(row, infos)

    def forget_node(self, row: int) -> None:
        """Drops the inventory of a node that is gone, as its row may be reused for another node."""
        self.unread.discard(row)
        self._doubtful.discard(row)
        self._here.pop(row, None)
        for resource, column in list(self.columns.items()):
            column.unhealthy.pop(row, None)
            if row in column.at:
                self._drop(resource, column, row)
        for uid in [uid for uid, places in self._claims.items() if any(at == row for at, _ in places)]:
            left = {place: None for place in self._claims[uid] if place[0] != row}
            if left:
                self._claims[uid] = left
            else:
                del self._claims[uid]

    def _node(self, row: int, resource: str) -> NodeDevices | None:
        column = self.columns.get(resource)
        return column.at.get(row) if column is not None else None

    def _column(self, resource: str) -> DeviceColumn:
        column = self.columns.get(resource)
        if column is None:
            column = self.columns[resource] = DeviceColumn(self)
        return column

    def _publish(self, resource: str, column: DeviceColumn, row: int, node: NodeDevices) -> None:
        self._nodes.note(row)
        column.publish(row, node)
        if node.inventory is None and not node.held and not node.claimed:
            self._drop(resource, column, row)

    def _drop(self, resource: str, column: DeviceColumn, row: int) -> None:
        """Forgets the resource on this node, and altogether if no node has it."""
        del column.at[row]
        column.publish(row, None)
        if not column.at:
            del self.columns[resource]
            if column in self._with_arrays:
                self._with_arrays.remove(column)

    def _turned(self, row: int, resource: str, node: NodeDevices) -> None:
        self._publish(resource, self.columns[resource], row, node)
        self.changes.append(ClusterChange(Change.NODE_DEVICES, row, frozenset((resource,))))


def may_hold(
    info: PodInfo,
    resource: str,
    index: Container[str],
    *,
    listed: Container[str],
    offers: Callable[[str], bool],
) -> bool:
    """Whether the pod may hold devices of `resource`, whose listed IDs are `index`, that are not known.

    It requests more of them than it has listed IDs of: kubelet keeps what a plain init container requested
    beyond its successors until the pod is gone, so the whole request counts. Or a device that it has under
    another resource is listed under this one: it was renamed. Or it requests a resource of the same domain
    that the node has ceased to list and to offer: its devices may go by any name of that domain now. A pod
    whose bind was not sent holds none yet.
    """
    if info.state is ASSUMED and info.bind not in ON_ITS_WAY and not info.pod.spec.node_name:
        return False
    own = info.ids.get(resource, ())
    amount = info.template.requests.get(resource, 0)
    if amount > len(own) and amount > len(ids_of(info.allocation).get(resource, ())):
        return True  # the allocation also has what kubelet has given to another pod since
    if not all(one in index for one in own):
        return True
    for other, ids in info.ids.items():
        if other != resource and any(one in index for one in ids):
            return True
    domain = resource.partition("/")[0]
    return any(
        other != resource
        and other not in listed
        and other.partition("/")[0] == domain
        and is_extended(other)
        and not offers(other)
        for other in (info.template.requests.keys() | info.ids.keys() if info.ids else info.template.requests)
    )


def listed_twice(inventories: Iterable[tuple[str, DeviceInventory]]) -> Mapping[str, str]:
    """Returns, for each of a node's resources that shares an ID with another one, such an ID."""
    first: dict[str, str] = {}
    twice: dict[str, str] = {}
    for resource, inventory in inventories:
        for device_id in inventory.ids:
            other = first.setdefault(device_id, resource)
            if other != resource:
                twice.setdefault(other, device_id)
                twice.setdefault(resource, device_id)
    return twice


class Inventories:
    """Reads what nodes list, in an annotation or in labels, and puts it into the ledger, unless it is only
    counted."""

    def __init__(self, ledger: DeviceLedger, *, invalid: str, counted: frozenset[str]) -> None:
        """invalid: what counts of a node whose inventory is unreadable: "nothing", or its plain numbers.

        counted: resources whose IDs are not assigned.
        """
        self._ledger = ledger
        self._invalid = invalid
        self._counted = counted

    def put(
        self, row: int, node: Node, known: Node | None, there: Collection[PodInfo]
    ) -> tuple[frozenset[str], str]:
        """Takes in what the node lists, `there` being its pods.

        Returns the resources that gained free devices, and what is wrong with the inventory ("" if nothing).
        """
        meta = node.metadata
        text = inventory_text(meta.annotations, meta.labels)
        is_same = known is not None and text == inventory_text(
            known.metadata.annotations, known.metadata.labels
        )
        if known is not None and is_same and not self._offers_unlisted(row, node):
            if text is not None and known.status.allocatable != node.status.allocatable:
                self._ledger.recheck_unknown_holders(row, there)
            return frozenset(), ""
        problem = ""
        inventories: Mapping[str, DeviceInventory] = {}
        self._ledger.unread.discard(row)
        if text is not None:
            try:
                inventories = parse_inventory(text)
            except ParseError as error:
                problem = f"{where_listed(meta.annotations)}: {error.message}"
                self._ledger.unread.add(row)
                if self._invalid == "nothing":
                    # A node with an unreadable inventory must not get gangs that rely on IDs. Extended
                    # resources that it has now, or listed before, stay listed with none free.
                    inventories = {name: _NO_DEVICES for name in node.status.allocatable or () if "/" in name}
                    inventories |= {r: _emptied(i) for r, i in self._listed(row).items()}
        if self._counted:
            inventories = {r: i for r, i in inventories.items() if r not in self._counted}
        return self._ledger.set_inventories(row, inventories, there if known is not None else ()), problem

    def _offers_unlisted(self, row: int, node: Node) -> bool:
        """Whether the node offers what its inventory may be about, which cannot be read: a device plugin has
        registered since."""
        if row not in self._ledger.unread or self._invalid != "nothing":
            return False
        names = (name for name in node.status.allocatable or () if "/" in name and name not in self._counted)
        return any(self._ledger.listed(row, name) is None for name in names)

    def _listed(self, row: int) -> dict[str, DeviceInventory]:
        found = {}
        for resource in self._ledger.columns:
            inventory = self._ledger.listed(row, resource)
            if inventory is not None:
                found[resource] = inventory
        return found


def _emptied(inventory: DeviceInventory) -> DeviceInventory:
    return DeviceInventory(inventory.ids, 0, inventory.topology)


_NOTHING: Mapping[str, NodeDevices] = {}
_NO_DEVICES = DeviceInventory((), 0, DeviceTopology((), ()))
