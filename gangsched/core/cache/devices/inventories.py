"""Inventories: puts a node's annotation or labels into the device ledger. Called by core.cache.cache."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gangsched.core.cache.devices.ledger import DeviceLedger
from gangsched.core.types.group import PodInfo
from gangsched.errors import ParseError
from gangsched.model.devices.annotations import DeviceInventory, parse_inventory
from gangsched.model.devices.labels import inventory_text, where_listed
from gangsched.model.devices.links import DeviceTopology
from gangsched.model.objects import Node

_NO_DEVICES = DeviceInventory((), 0, DeviceTopology((), ()))


class Inventories:
    """Reads what nodes list, unless it is only counted."""

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
        if known is not None and inventory_text(known.metadata.annotations, known.metadata.labels) == text:
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

    def _listed(self, row: int) -> dict[str, DeviceInventory]:
        found = {}
        for resource in self._ledger.columns:
            inventory = self._ledger.listed(row, resource)
            if inventory is not None:
                found[resource] = inventory
        return found


def _emptied(inventory: DeviceInventory) -> DeviceInventory:
    return DeviceInventory(inventory.ids, 0, inventory.topology)
