"""Devices of a node: the inventory in its annotation, the best set to take from it, the pod's annotation.

Formats: wire.md of the project's design notes, key `gangsched.io/devices` on nodes and
`gangsched.io/allocated-devices` on pods. Who holds what now is state and lives in core.cache.device_ledger.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping
from itertools import combinations
from math import comb
from typing import Any

import msgspec

from gangsched.errors import ParseError
from gangsched.model import bounded
from gangsched.model.objects import Container, PodSpec
from gangsched.model.resources import container_requests, is_extended

INVENTORY_KEY = "gangsched.io/devices"
ALLOCATED_KEY = "gangsched.io/allocated-devices"
VISIBLE_KEY = "gangsched.io/visible-devices"
VISIBLE_BY_CONTAINER = "visible-devices.gangsched.io"
"""The end of the prefix of keys that list what one container sees of one resource (`visible_key`)."""

# Source for the order: the legend of `nvidia-smi topo -m`, from the farthest path to the nearest.
_LINK_WEIGHT = {"SYS": 1, "NODE": 5, "PHB": 10, "PXB": 15, "PIX": 20}
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NVLINK = re.compile(r"NV(\d{1,3})")
_NVLINK_BASE_WEIGHT = 100
_SAME_NUMA_WEIGHT = 5
LINK_KINDS = tuple(reversed(_LINK_WEIGHT))
"""Paths without NVLink, the nearest first."""
# kubelet refuses longer device IDs: they travel in its checkpoint and its gRPC API with this limit.
MAX_ID_LENGTH = 63
MAX_DEVICES = 4096
# Every pair of linked devices has a weight: 4,096 would take six seconds and 130 MiB for one node.
MAX_LINKED = 256
# Pairs of all cached topologies together, some tens of MiB.
_MAX_PAIRS = 4 * 2**20
# Above this many candidate sets a greedy search replaces the exact one; 8 devices never reach it.
_EXACT_SETS = 5000
# Bounds memory; refilled in microseconds a set.
_MAX_REMEMBERED = 20_000

Allocation = Mapping[str, Mapping[str, tuple[str, ...]]]
"""container name -> resource name -> device IDs."""


class Device(msgspec.Struct, rename="camel", gc=False, frozen=True):
    """One device as an inventory lists it; unknown properties have their default.

    links: ID of a device of the same resource -> the kind of path to it, as `nvidia-smi topo -m` names it.
    """

    id: str
    health: str = "Healthy"
    numa: int = -1
    model: str = ""
    memory_mib: int = msgspec.field(default=0, name="memoryMiB")
    links: dict[str, str] | None = None


class DeviceTopology:
    """How n devices are linked, by index; nodes of one type share one, so that choices can be cached.

    Shapes: weight int[n][n], symmetric, larger is nearer; numa int[n], -1 unknown; models and memory_mib of
    length n, "" and 0 unknown. kept: results that others have computed from this (model.device_sets).
    is_flat: all weights are 0, since no links are known or there are more devices than MAX_LINKED.
    """

    __slots__ = ("_best", "_best_of", "is_flat", "kept", "memory_mib", "models", "numa", "weight")

    def __init__(
        self,
        weight: tuple[tuple[int, ...], ...],
        numa: tuple[int, ...],
        models: tuple[str, ...] = (),
        memory_mib: tuple[int, ...] = (),
    ) -> None:
        self.weight = weight
        self.is_flat = not any(map(any, dict.fromkeys(weight)))
        self.numa = numa
        self.models = models or ("",) * len(numa)
        self.memory_mib = memory_mib or (0,) * len(numa)
        self._best: dict[tuple[int, int], int] = {}
        self._best_of: dict[tuple[int, int, int], tuple[int, ...]] = {}
        self.kept: dict[Hashable, Any] = {}

    def best_set(self, free: int, count: int) -> int:
        """The `count` devices of the bit mask `free` to take, as a bit mask.

        Best linked first, then on the fewest NUMA nodes, then leaving the best-linked rest, then the lowest
        indices. Exact up to 5,000 candidate sets, greedy beyond. Raises: ValueError when fewer than `count`
        are free (the caller has checked).
        """
        found = self._best.get((free, count))
        if found is None:
            found = self._search(free, count)
            if len(self._best) > _MAX_REMEMBERED:
                self._best.clear()
            self._best[free, count] = found
        return found

    def best_sets(self, free: int, count: int, n: int) -> tuple[int, ...]:
        """`best_set` n times, each from what the previous ones have left."""
        found = self._best_of.get((free, count, n))
        if found is None:
            sets, left = [], free
            for _ in range(n):
                sets.append(self.best_set(left, count))
                left ^= sets[-1]
            found = tuple(sets)
            if len(self._best_of) > _MAX_REMEMBERED:
                self._best_of.clear()
            self._best_of[free, count, n] = found
        return found

    def _search(self, free: int, count: int) -> int:
        indices = [i for i in range(len(self.numa)) if free >> i & 1]
        if count > len(indices):
            raise ValueError(f"{count} devices asked for, {len(indices)} free")
        chosen: tuple[int, ...]
        if comb(len(indices), count) <= _EXACT_SETS:
            chosen = max(combinations(indices, count), key=lambda s: self.quality(s, indices))
        elif self.is_flat:
            chosen = self._on_fewest_numa_nodes(indices, count)
        else:
            chosen = self._greedy(indices, count)
        return sum(1 << i for i in chosen)

    def _on_fewest_numa_nodes(self, indices: list[int], count: int) -> tuple[int, ...]:
        """`quality` if nothing is linked: one NUMA node with room for all, else the largest first."""
        homes: dict[int, list[int]] = {}
        for i in indices:
            homes.setdefault(self.numa[i], []).append(i)
        for home in homes.values():
            if len(home) >= count:
                return tuple(home[:count])
        largest = sorted(homes.values(), key=lambda home: (-len(home), home[0]))
        return tuple(sorted([i for home in largest for i in home][:count]))

    def quality(self, chosen: Iterable[int], free: list[int]) -> tuple[int, int, int, tuple[int, ...]]:
        """The key that `best_set` maximizes, by index."""
        taken = tuple(chosen)
        rest = [i for i in free if i not in taken]
        span = len({self.numa[i] for i in taken})
        return (self._inside(taken), -span, self._inside(rest), tuple(-i for i in taken))

    def _inside(self, chosen: Iterable[int]) -> int:
        members = list(chosen)
        return sum(self.weight[a][b] for k, a in enumerate(members) for b in members[k + 1 :])

    def _greedy(self, indices: list[int], count: int) -> tuple[int, ...]:
        degree = {i: sum(self.weight[i][j] for j in indices) for i in indices}
        chosen = [max(indices, key=lambda i: (degree[i], -i))]
        pull = {i: self.weight[i][chosen[0]] for i in indices if i != chosen[0]}
        while len(chosen) < count:
            nearest = max(pull, key=lambda i: (pull[i], -i))
            del pull[nearest]
            chosen.append(nearest)
            for i in pull:
                pull[i] += self.weight[i][nearest]
        return tuple(sorted(chosen))


_Wiring = tuple[tuple[int, tuple[tuple[int, str], ...], str, int], ...]
_topologies: dict[_Wiring, DeviceTopology] = {}


class DeviceInventory:
    """The devices of one resource on one node, in the order the node lists them; immutable.

    `healthy` is a bit mask by index: an unhealthy device stays listed, and is never given out.
    """

    __slots__ = ("healthy", "ids", "index", "topology")

    def __init__(self, ids: tuple[str, ...], healthy: int, topology: DeviceTopology) -> None:
        self.ids = ids
        self.index = {device_id: i for i, device_id in enumerate(ids)}
        self.healthy = healthy
        self.topology = topology

    def ids_of(self, mask: int) -> tuple[str, ...]:
        """The IDs of a bit mask, in index order."""
        return self.ids_of_each((mask,))[0]

    def ids_of_each(self, masks: Iterable[int]) -> list[tuple[str, ...]]:
        """The IDs of each bit mask, in index order."""
        ids = self.ids
        return [
            (ids[mask.bit_length() - 1],)
            if mask and mask & (mask - 1) == 0  # one device, the usual pod
            else tuple([device_id for i, device_id in enumerate(ids) if mask >> i & 1])
            for mask in masks
        ]


_decode_inventory = bounded.decoder(dict[str, list[Device]])
_encode = msgspec.json.Encoder().encode
_decode_allocation = bounded.decoder(dict[str, dict[str, tuple[str, ...]]])


def parse_inventory(text: str) -> dict[str, DeviceInventory]:
    """Reads a node's `gangsched.io/devices`.

    Raises: ParseError (not JSON, duplicate or overlong IDs, a resource that has no devices such as cpu).
    """
    return {resource: _inventory(resource, devices) for resource, devices in _decoded(text).items()}


def parse_devices(text: str) -> dict[str, list[Device]]:
    """The same annotation as written, each device with all its properties. Raises: ParseError."""
    listed = _decoded(text)
    for resource, devices in listed.items():
        _inventory(resource, devices)
    return listed


def inventory_annotation(listed: Mapping[str, Iterable[Device]]) -> str:
    """The value of `gangsched.io/devices`; `parse_devices` of it gives the same devices in the same order."""
    return _encode(
        {resource: [_said(device) for device in devices] for resource, devices in listed.items()}
    ).decode()


def _said(device: Device) -> dict[str, object]:
    """A device without unknown properties; its health is always included."""
    said: dict[str, object] = {"id": device.id, "health": device.health}
    if device.numa >= 0:
        said["numa"] = device.numa
    if device.model:
        said["model"] = device.model
    if device.memory_mib:
        said["memoryMiB"] = device.memory_mib
    if device.links:
        said["links"] = device.links
    return said


def _decoded(text: str) -> dict[str, list[Device]]:
    try:
        return _decode_inventory(text)
    except msgspec.MsgspecError as error:
        raise ParseError(f"is not a device inventory: {error}", field=INVENTORY_KEY) from None


def _inventory(resource: str, devices: list[Device]) -> DeviceInventory:
    if not is_extended(resource):
        raise ParseError(
            f"{resource[:80]!r} is not an extended resource, as nvidia.com/gpu is", field=INVENTORY_KEY
        )
    if len(devices) > MAX_DEVICES:
        raise ParseError(
            f"{resource} lists {len(devices)} devices, at most {MAX_DEVICES}", field=INVENTORY_KEY
        )
    index: dict[str, int] = {}
    healthy = 0
    for i, device in enumerate(devices):
        if not device.id or len(device.id) > MAX_ID_LENGTH:
            raise ParseError(
                f"{resource} has the ID {device.id[:80]!r}; an ID has 1 to {MAX_ID_LENGTH} characters",
                field=INVENTORY_KEY,
            )
        if device.id in index:
            raise ParseError(
                f"{resource} lists the ID {device.id!r} twice; each device needs its own", field=INVENTORY_KEY
            )
        index[device.id] = i
        if device.health == "Healthy":
            healthy |= 1 << i
    return DeviceInventory(tuple(index), healthy, _topology(devices, index))


def _topology(devices: list[Device], index: Mapping[str, int]) -> DeviceTopology:
    """Nodes of one type have the same wiring except for IDs; its topology is computed once for all."""
    place = index.get
    wiring: _Wiring = tuple(
        [
            (
                device.numa,
                tuple([(place(peer, -1), kind) for peer, kind in (device.links or {}).items()]),
                device.model,
                device.memory_mib,
            )
            for device in devices
        ]
    )
    found = _topologies.get(wiring)
    if found is None:
        # A cluster has a handful of node types; forged ones must not accumulate.
        if sum(map(_n_pairs, _topologies)) > _MAX_PAIRS or len(_topologies) > 10_000:
            _topologies.clear()
        found = _topologies[wiring] = DeviceTopology(
            _weights(wiring),
            tuple(device.numa for device in devices),
            tuple(device.model for device in devices),
            tuple(device.memory_mib for device in devices),
        )
    return found


def _n_pairs(wiring: _Wiring) -> int:
    return len(wiring) ** 2 if len(wiring) <= MAX_LINKED else len(wiring)


def _weights(wiring: _Wiring) -> tuple[tuple[int, ...], ...]:
    if len(wiring) > MAX_LINKED:
        return ((0,) * len(wiring),) * len(wiring)
    numa = [one[0] for one in wiring]
    weight = [[_SAME_NUMA_WEIGHT if a == b and a >= 0 else 0 for b in numa] for a in numa]
    for i, (_, links, _, _) in enumerate(wiring):
        for j, kind in links:
            if j >= 0:
                weight[i][j] = weight[j][i] = max(weight[i][j], weight[j][i], link_weight(kind))
    for i in range(len(wiring)):
        weight[i][i] = 0
    return tuple(map(tuple, weight))


def link_weight(kind: str) -> int:
    """How near two devices are: NV18 above NV4 above PIX above SYS; an unknown name counts as SYS."""
    match = _NVLINK.fullmatch(kind)
    if match:
        return _NVLINK_BASE_WEIGHT + int(match.group(1))
    return _LINK_WEIGHT.get(kind, _LINK_WEIGHT["SYS"])


def is_link_kind(kind: str) -> bool:
    """Whether `nvidia-smi topo -m` has such a name."""
    return kind in _LINK_WEIGHT or _NVLINK.fullmatch(kind) is not None


def parse_allocation(text: str) -> dict[str, dict[str, tuple[str, ...]]]:
    """Reads a pod's `gangsched.io/allocated-devices`. Raises: ParseError."""
    try:
        return _decode_allocation(text)
    except msgspec.MsgspecError as error:
        raise ParseError(
            f'is not an allocation: {error}; expected {{"container":{{"resource":["id"]}}}}',
            field=ALLOCATED_KEY,
        ) from None


def visible_key(resource: str, container: str) -> str:
    """The annotation with the IDs that one container has of one resource, for an env `fieldRef`.

    nvidia.com/gpu of the container trainer: `gpu.nvidia.com.visible-devices.gangsched.io/trainer`; "" where
    the resource's name cannot be a part of such a key.
    """
    domain, _, name = resource.partition("/")
    prefix = f"{name}.{domain}.{VISIBLE_BY_CONTAINER}"
    return f"{prefix}/{container}" if _SUBDOMAIN.fullmatch(prefix) and len(prefix) <= 253 else ""


def is_device_key(key: str) -> bool:
    """Whether this annotation of a pod lists its devices."""
    return key in (ALLOCATED_KEY, VISIBLE_KEY) or key.partition("/")[0].endswith("." + VISIBLE_BY_CONTAINER)


def allocation_annotations(allocation: Allocation, by_container: bool = False) -> dict[str, str]:
    """The annotations that carry an allocation in the Binding; empty for an empty allocation.

    by_container: also what each container sees of each resource, which for one container with one resource is
    what the pod sees.
    """
    if len(allocation) == 1 and not by_container:  # usually one container has devices
        for sets in allocation.values():
            for ids in sets.values():
                return {ALLOCATED_KEY: _encode(allocation).decode(), VISIBLE_KEY: ",".join(ids)}
    if not allocation:
        return {}
    if by_container:
        return allocation_annotations(allocation) | {
            key: ",".join(ids)
            for container, sets in allocation.items()
            for resource, ids in sets.items()
            if (key := visible_key(resource, container))
        }
    sets = next(iter(allocation.values()))
    first = next(iter(sets))
    visible: dict[str, None] = {}
    for sets in allocation.values():
        visible.update(dict.fromkeys(sets.get(first, ())))
    return {ALLOCATED_KEY: _encode(allocation).decode(), VISIBLE_KEY: ",".join(visible)}


def device_demand(spec: PodSpec, resource: str) -> tuple[tuple[str, int, bool], ...]:
    """The pod's requests for `resource`: (container, count, runs) in the pod's order.

    `runs` is False for a plain init container: it ends before the others start, and kubelet passes its
    devices on to them (its device manager reuses them), so it draws from the same set.
    """
    demand: list[tuple[str, int, bool]] = []
    for container, runs in _phases(spec):
        count = container_requests(container).get(resource, 0)
        if count:
            demand.append((container.name, count, runs))
    return tuple(demand)


def _phases(spec: PodSpec) -> Iterable[tuple[Container, bool]]:
    for container in spec.init_containers or ():
        yield container, container.restart_policy == "Always"
    for container in spec.containers:
        yield container, True


def split_among_containers(
    inventory: DeviceInventory, mask: int, demand: tuple[tuple[str, int, bool], ...]
) -> dict[str, tuple[str, ...]]:
    """Divides a pod's set among its containers, the largest demand choosing the best-linked part first."""
    if len(demand) == 1:
        return {demand[0][0]: inventory.ids_of(mask)}
    shares: dict[str, tuple[str, ...]] = {}
    left = mask
    for name, count, runs in sorted(demand, key=lambda d: (not d[2], -d[1])):
        pool = left if runs else mask
        share = inventory.topology.best_set(pool, count)
        shares[name] = inventory.ids_of(share)
        if runs:
            left &= ~share
    return {name: shares[name] for name, _, _ in demand}
