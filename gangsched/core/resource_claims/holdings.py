"""Holdings: which devices are given out, in part or as a whole, and what is left of pools' counters."""

from __future__ import annotations

from collections.abc import Mapping

from gangsched.core.resource_claims.devices import CounterName, ListedDevice, Pool
from gangsched.errors import ParseError
from gangsched.model.resource_claims.amounts import billionths
from gangsched.model.resource_claims.objects import AllocatedDevice, Allocation, DeviceId, PoolId

_NONE: Mapping[str, int] = {}


class Shares:
    """What is given out of one device that several claims may have a share of, in billionths."""

    __slots__ = ("amounts", "n")

    def __init__(self) -> None:
        self.n = 0
        self.amounts: dict[str, int] = {}

    def copy(self) -> Shares:
        """Returns a copy."""
        found = Shares()
        found.n, found.amounts = self.n, dict(self.amounts)
        return found

    def add(self, amounts: Mapping[str, int], n: int = 1) -> None:
        """Adds a share; with n = -1 takes it back."""
        self.n += n
        for name, amount in amounts.items():
            self.amounts[name] = self.amounts.get(name, 0) + n * amount


class Holdings:
    """What is given out. whole: by device, how many have it as a whole: more than one is a fault."""

    __slots__ = ("shared", "whole")

    def __init__(self) -> None:
        self.whole: dict[DeviceId, int] = {}
        self.shared: dict[DeviceId, Shares] = {}

    def add(self, allocation: Allocation, n: int = 1) -> None:
        """Counts what a claim has been given; with n = -1 counts it no longer.

        Admin access takes nothing away from others. A share whose amounts cannot be read counts as the whole
        device.
        """
        for one in allocation.devices.results:
            if one.admin_access:
                continue
            amounts = None if one.share_id is None else _amounts(one)
            if amounts is None:
                self.hold(one.id, n)
            else:
                self.share(one.id, amounts, n)

    def copy(self) -> Holdings:
        """Returns a copy to take away from."""
        found = Holdings()
        found.whole = dict(self.whole)
        found.shared = {device: one.copy() for device, one in self.shared.items()}
        return found

    def hold(self, device: DeviceId, n: int = 1) -> None:
        """Counts a holder of the whole device."""
        left = self.whole.get(device, 0) + n
        if left > 0:
            self.whole[device] = left
        else:
            self.whole.pop(device, None)

    def share(self, device: DeviceId, amounts: Mapping[str, int], n: int = 1) -> None:
        """Counts a share of the device."""
        shares = self.shared.get(device)
        if shares is None:
            shares = self.shared[device] = Shares()
        shares.add(amounts, n)
        if shares.n <= 0:
            del self.shared[device]

    def given(self, device: DeviceId) -> Mapping[str, int]:
        """Returns how much is given out of the device's capacities, in shares."""
        shares = self.shared.get(device)
        return _NONE if shares is None else shares.amounts

    def has(self, device: DeviceId) -> bool:
        """Whether somebody has the device, or a share of it."""
        return device in self.whole or device in self.shared

    def counters_left(self, pool: Pool) -> dict[CounterName, int]:
        """Returns what the pool's devices that are given out leave of its counters; below 0: too much is."""
        left = dict(pool.counters)
        for device in pool.consumers:
            if self.has(device.id):
                for name, amount in device.counters:
                    left[name] -= amount
        return left


def _amounts(one: AllocatedDevice) -> dict[str, int] | None:
    try:
        return {name: billionths(text) for name, text in (one.consumed_capacity or {}).items()}
    except ParseError:
        return None


class Tried(Holdings):
    """What a search has chosen so far. counters: what that consumes of each pool's."""

    __slots__ = ("counters",)

    def __init__(self) -> None:
        super().__init__()
        self.counters: dict[PoolId, dict[CounterName, int]] = {}

    def consume(self, device: ListedDevice, n: int = 1) -> None:
        """Counts what the device consumes of its pool's counters; with n = -1 no longer."""
        used = self.counters.setdefault(PoolId(*device.id[:2]), {})
        for name, amount in device.counters:
            used[name] = used.get(name, 0) + n * amount
