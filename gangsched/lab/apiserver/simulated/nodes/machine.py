"""One simulated machine: its room, its pod addresses, its actual devices.

Lives here: plain state and arithmetic. Not here: writes to the API (node_agent.py, kubelets.py).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from gangsched.lab.apiserver.simulated.nodes.admission import Room

Inventory = dict[str, list[dict[str, Any]]]

_BLOCK = 253
"""Pod addresses in a /24, which also contains the network, gateway and broadcast addresses."""
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Inventory).decode


class Addresses:
    """Pod IPs of one node: the lowest free one of its /24, then of further ones when that is full."""

    def __init__(self, cidr: str, another: Callable[[], str]) -> None:
        self._blocks = [cidr.rpartition(".")[0]] if cidr else []
        self._another = another
        self._free: list[int] = []
        self._n = 0

    def take(self) -> str:
        number = heapq.heappop(self._free) if self._free else self._n
        if number == self._n:
            self._n += 1
        block, host = divmod(number, _BLOCK)
        while block >= len(self._blocks):
            self._blocks.append(self._another().rpartition(".")[0])
        return f"{self._blocks[block]}.{host + 2}"

    def give_back(self, address: str) -> None:
        block, _, host = address.rpartition(".")
        if block in self._blocks:
            heapq.heappush(self._free, self._blocks.index(block) * _BLOCK + int(host) - 2)


class Machine:
    """A node with a simulated kubelet. `alive` is False while it is killed: nothing on it acts."""

    def __init__(self, name: str, uid: str, addresses: Addresses) -> None:
        self.name = name
        self.uid = uid
        self.ip = ""
        self.alive = True
        self.n_boots = 0
        self.room = Room()
        self.addresses = addresses
        # The annotation as it would be without faults, and as last written. Text, not objects: it is parsed
        # only when a fault begins or ends, and there may be thousands of nodes.
        self.base = ""
        self.written = ""
        self.is_faulty = False

    @property
    def inventory(self) -> Inventory:
        """The machine's devices without the requested faults; a copy."""
        return _decode(self.base or "{}")

    def with_faults(self, unhealthy: Iterable[str], vanished: Iterable[str]) -> Inventory:
        """Returns the inventory to report."""
        sick, gone = set(unhealthy), set(vanished)
        return {
            resource: [
                {**device, "health": "Unhealthy"} if device["id"] in sick else device
                for device in devices
                if device["id"] not in gone
            ]
            for resource, devices in self.inventory.items()
        }


def healthy(inventory: Inventory) -> dict[str, dict[str, bool]]:
    """Resource -> device ID -> whether it is healthy."""
    return {
        resource: {device["id"]: device.get("health", "Healthy") == "Healthy" for device in devices}
        for resource, devices in inventory.items()
    }


def cured(inventory: Inventory, devices: Iterable[str]) -> Inventory:
    """Makes these devices healthy, in place; returns the inventory."""
    ill = set(devices)
    for of in inventory.values():
        for each in of:
            if each["id"] in ill:
                each["health"] = "Healthy"
    return inventory


def encoded(inventory: Inventory) -> str:
    return _encode(inventory).decode()
