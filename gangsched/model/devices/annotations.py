"""Devices of a node: the inventory in its annotation, and the pod's annotation with its allocation.

Formats: wire.md of the project's design notes, key `gangsched.io/devices` on nodes and
`gangsched.io/allocated-devices` on pods. How devices are linked is in model.devices.links. Which pod holds
which device now is state and lives in core.cache.devices.ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from gangsched.errors import ParseError
from gangsched.model.devices.links import MAX_LINKED, DeviceTopology, Wiring, topology_of
from gangsched.model.objects import Container, PodSpec
from gangsched.model.resources import container_requests, is_extended
from gangsched.model.text import bounded
from gangsched.model.text.names import is_subdomain

INVENTORY_KEY = "gangsched.io/devices"
ALLOCATED_KEY = "gangsched.io/allocated-devices"
VISIBLE_KEY = "gangsched.io/visible-devices"
VISIBLE_BY_CONTAINER = "visible-devices.gangsched.io"
"""The end of the prefix of keys that list what one container sees of one resource (`visible_key`)."""

# kubelet refuses longer device IDs: its checkpoint and its gRPC API have this limit.
MAX_ID_LENGTH = 63
MAX_DEVICES = 4096
MAX_LISTED_RESOURCES = 64
"""Of a node's inventory, and of a pod's allocation: a node offers a handful, MIG a dozen profiles."""
# Each pair of linked devices has a weight: 2 MiB for one node's annotation of a quarter of a megabyte.
_MAX_PAIRS = 4 * MAX_LINKED**2
# Limit on the sets whose masks a node's inventory caches.
_MAX_MASKS = 16
Allocation = Mapping[str, Mapping[str, tuple[str, ...]]]
"""container name -> resource name -> device IDs."""


class Device(msgspec.Struct, rename="camel", gc=False, frozen=True):
    """One device as listed in an inventory; unknown properties have their default.

    links: ID of a device of the same resource -> the kind of path to it, as `nvidia-smi topo -m` names it.
    """

    id: str
    health: str = "Healthy"
    numa: int = -1
    model: str = ""
    memory_mib: int = msgspec.field(default=0, name="memoryMiB")
    links: dict[str, str] | None = None


class DeviceInventory:
    """The devices of one resource on one node, in the order the node lists them; immutable.

    `healthy` is a bit mask by index: an unhealthy device stays listed, and is never given out.
    """

    __slots__ = ("_masks", "healthy", "ids", "index", "topology")

    def __init__(self, ids: tuple[str, ...], healthy: int, topology: DeviceTopology) -> None:
        self.ids = ids
        self.index = {device_id: i for i, device_id in enumerate(ids)}
        self.healthy = healthy
        self.topology = topology
        self._masks: dict[tuple[str, ...], int] = {}

    def is_healthy(self, device_id: str) -> bool:
        """Whether the device is listed, and healthy."""
        index = self.index.get(device_id)
        return index is not None and bool(self.healthy >> index & 1)

    def mask_of(self, ids: tuple[str, ...]) -> int:
        """Returns the bit mask of the IDs that are listed; caches a few."""
        mask = self._masks.get(ids)
        if mask is None:
            if len(self._masks) >= _MAX_MASKS:
                self._masks.clear()
            listed = [self.index[one] for one in dict.fromkeys(ids) if one in self.index]
            mask = self._masks[ids] = sum(1 << index for index in listed)
        return mask

    def ids_of(self, mask: int) -> tuple[str, ...]:
        """Returns the IDs of a bit mask, in index order."""
        return self.ids_of_each((mask,))[0]

    def ids_of_each(self, masks: Iterable[int]) -> list[tuple[str, ...]]:
        """Returns the IDs of each bit mask, in index order."""
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

    Raises: ParseError (not JSON, duplicate or overlong IDs, a resource that has no devices such as cpu, too
    many resources or devices).
    """
    inventories, n_pairs = {}, 0
    for resource, devices in _decoded(text).items():
        n_pairs += len(devices) ** 2 if len(devices) <= MAX_LINKED else 0
        inventories[resource] = _inventory(resource, devices, is_linked=n_pairs <= _MAX_PAIRS)
    return inventories


def parse_devices(text: str) -> dict[str, list[Device]]:
    """Reads the same annotation as written, each device with all its properties. Raises: ParseError."""
    listed = _decoded(text)
    for resource, devices in listed.items():
        _inventory(resource, devices)
    return listed


def inventory_annotation(listed: Mapping[str, Iterable[Device]]) -> str:
    """Returns the value of `gangsched.io/devices`; `parse_devices` restores the same devices in order."""
    return _encode(
        {resource: [_said(device) for device in devices] for resource, devices in listed.items()}
    ).decode()


def _said(device: Device) -> dict[str, object]:
    """Returns a device's known properties; its health is always included."""
    fields: dict[str, object] = {"id": device.id, "health": device.health}
    if device.numa >= 0:
        fields["numa"] = device.numa
    if device.model:
        fields["model"] = device.model
    if device.memory_mib:
        fields["memoryMiB"] = device.memory_mib
    if device.links:
        fields["links"] = device.links
    return fields


def _decoded(text: str) -> dict[str, list[Device]]:
    try:
        listed = _decode_inventory(text)
    except msgspec.MsgspecError as error:
        raise ParseError(f"is not a device inventory: {error}", field=INVENTORY_KEY) from None
    if len(listed) > MAX_LISTED_RESOURCES:
        raise ParseError(
            f"lists {len(listed)} resources, at most {MAX_LISTED_RESOURCES}", field=INVENTORY_KEY
        )
    return listed


def _inventory(resource: str, devices: list[Device], *, is_linked: bool = True) -> DeviceInventory:
    """is_linked: False: links and NUMA nodes are not read."""
    if not is_extended(resource):
        raise ParseError(
            f"{resource[:80]!r} is not an extended resource such as nvidia.com/gpu", field=INVENTORY_KEY
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
    return DeviceInventory(tuple(index), healthy, topology_of(_wiring(devices, index, is_linked)))


def _wiring(devices: list[Device], index: Mapping[str, int], is_linked: bool) -> Wiring:
    place = index.get
    if not is_linked:
        return tuple([(-1, (), device.model, device.memory_mib) for device in devices])
    return tuple(
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


def parse_allocation(text: str) -> dict[str, dict[str, tuple[str, ...]]]:
    """Reads a pod's `gangsched.io/allocated-devices`. Raises: ParseError, also if it has more resources or
    IDs than a node lists."""
    try:
        allocation = _decode_allocation(text)
    except msgspec.MsgspecError as error:
        raise ParseError(
            f'is not an allocation: {error}; expected {{"container":{{"resource":["id"]}}}}',
            field=ALLOCATED_KEY,
        ) from None
    n_resources = len({resource for sets in allocation.values() for resource in sets})
    if n_resources > MAX_LISTED_RESOURCES:
        raise ParseError(
            f"has devices of {n_resources} resources, at most {MAX_LISTED_RESOURCES}", field=ALLOCATED_KEY
        )
    n_ids = len({one for sets in allocation.values() for ids in sets.values() for one in ids})
    if n_ids > MAX_DEVICES:
        raise ParseError(f"has {n_ids} devices, at most {MAX_DEVICES}", field=ALLOCATED_KEY)
    return allocation


def ids_of(allocation: Allocation) -> Mapping[str, tuple[str, ...]]:
    """Returns resource -> the IDs of all containers, each once."""
    if len(allocation) == 1:  # usually one container has devices
        for sets in allocation.values():
            return sets
    merged: dict[str, dict[str, None]] = {}
    for sets in allocation.values():
        for resource, ids in sets.items():
            merged.setdefault(resource, {}).update(dict.fromkeys(ids))
    return {resource: tuple(ids) for resource, ids in merged.items()}


def visible_key(resource: str, container: str) -> str:
    """Returns the annotation key for one container's IDs of one resource, for an env `fieldRef`.

    nvidia.com/gpu of the container trainer: `gpu.nvidia.com.visible-devices.gangsched.io/trainer`; "" if the
    resource's name cannot be part of a key.
    """
    domain, _, name = resource.partition("/")
    prefix = f"{name}.{domain}.{VISIBLE_BY_CONTAINER}"
    return f"{prefix}/{container}" if is_subdomain(prefix) else ""


def is_device_key(key: str) -> bool:
    """Whether this annotation of a pod lists its devices."""
    return key in (ALLOCATED_KEY, VISIBLE_KEY) or key.partition("/")[0].endswith("." + VISIBLE_BY_CONTAINER)


def allocation_annotations(allocation: Allocation, by_container: bool = False) -> dict[str, str]:
    """Returns the annotations that carry an allocation in the Binding; empty for an empty allocation.

    by_container: also list what each container sees of each resource; with one container and one resource
    that is what the pod sees.
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
    """Returns the pod's requests for `resource`: (container, count, runs) in the pod's order.

    `runs` is False for a plain init container: it ends before the main containers start and kubelet's device
    manager reuses its devices for them, so it draws from the same set.
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
    """Divides a pod's set among its containers; the largest demand gets the best-linked part first."""
    if len(demand) == 1:
        return {demand[0][0]: inventory.ids_of(mask)}
    shares: dict[str, int] = {}
    left = mask
    for name, count, _ in sorted((one for one in demand if one[2]), key=lambda one: -one[1]):
        shares[name] = inventory.topology.best_set(left, count)
        left &= ~shares[name]
    pool = mask
    for name, count, runs in demand:
        if runs:
            pool &= ~shares[name]  # a sidecar runs beside the init containers after it
        else:
            shares[name] = inventory.topology.best_set(pool, count)
    return {name: inventory.ids_of(shares[name]) for name, _, _ in demand}
