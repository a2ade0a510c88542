"""kubelet's accounting of devices, as pkg/kubelet/cm/devicemanager/manager.go (v1.37.1) does it, without I/O.

Lives here: who has what, which devices a container is given (reused, aligned, preferred, or whichever come
first in the order of a Go map), the checkpoint. Not here: pods and their admission (`kubelet`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random

Preferred = Callable[[set[str], set[str], int], Awaitable[set[str]]]
"""available, must include, size -> what the plugin prefers."""

Held = dict[str, dict[str, dict[str, frozenset[str]]]]
"""pod UID -> container -> resource -> devices."""


class NoDevices(Exception):
    """The admission fails: UnexpectedAdmissionError, final for that pod."""


class DeviceManager:
    """healthy: by resource, the NUMA node of each device (-1: not told). aligns: a TopologyManager is on."""

    def __init__(self, rng: Random, *, aligns: bool = False) -> None:
        self.rng = rng
        self.aligns = aligns
        self.healthy: dict[str, dict[str, int]] = {}
        self.held: Held = {}
        self.checkpoint: Held = {}

    def in_use(self, resource: str) -> set[str]:
        return {
            device
            for containers in self.held.values()
            for sets in containers.values()
            for device in sets.get(resource, ())
        }

    def forget(self, uid: str) -> None:
        """The pod is not active any more (UpdateAllocatedDevices)."""
        self.held.pop(uid, None)
        self.checkpoint.pop(uid, None)

    def record(self, uid: str, container: str, resource: str, ids: set[str]) -> None:
        """podDevices.insert: after the plugin's Allocate."""
        self.held.setdefault(uid, {}).setdefault(container, {})[resource] = frozenset(ids)

    def write_checkpoint(self) -> None:
        self.checkpoint = {
            uid: {container: dict(sets) for container, sets in containers.items()}
            for uid, containers in self.held.items()
        }

    def restart(self) -> None:
        """What was not written is lost; devices come back when plugins register again."""
        self.held = self.checkpoint
        self.checkpoint = {}
        self.write_checkpoint()
        self.healthy = {}

    async def choose(
        self, uid: str, container: str, resource: str, n: int, reusable: set[str], preferred: Preferred
    ) -> set[str] | None:
        """devicesToAllocate: the devices to ask the plugin for; None where the container has its own."""
        if resource in self.held.get(uid, {}).get(container, {}):
            return None
        if resource not in self.healthy:
            raise NoDevices(f"cannot allocate unregistered device {resource}")
        if not self.healthy[resource]:
            raise NoDevices(f"no healthy devices present of {resource}")
        taken: set[str] = set()

        def take(devices: set[str]) -> bool:
            for device in self._any_order(devices - taken):
                if len(taken) == n:
                    break
                taken.add(device)
            return len(taken) == n

        if take(reusable):
            return taken
        free = set(self.healthy[resource]) - self.in_use(resource) - taken
        if len(free) < n - len(taken):
            raise NoDevices(f"requested number of devices unavailable for {resource}: {n} of {len(free)}")
        aligned = self._aligned(resource, free, n)
        if n - len(taken) < len(aligned):
            wish = await preferred(aligned | taken, set(taken), n)
            if take(wish & aligned) or take(aligned):
                return taken
        # All of the aligned ones, and nobody is asked, where they are just enough or too few.
        if take(aligned):
            return taken
        wish = await preferred(free | taken, set(taken), n)
        if take(wish & free) or take(free):
            return taken
        raise AssertionError("allocated less than required")

    def _aligned(self, resource: str, free: set[str], n: int) -> set[str]:
        """filterByAffinity with the narrowest hint that has room, the lowest NUMA node first."""
        numa_of = self.healthy[resource]
        if not self.aligns or all(numa < 0 for numa in numa_of.values()):
            return set()
        for numa in sorted(set(numa_of.values())):
            there = {device for device in free if numa_of[device] == numa}
            if len(there) >= n:
                return there
        return set()

    def _any_order(self, devices: set[str]) -> list[str]:
        ordered = sorted(devices)
        self.rng.shuffle(ordered)
        return ordered
