"""Whether a pod may hold devices of a node's list without anything that shows which.

A pod's devices are known by the annotations of its Binding, or by the report of the node's agent about what
kubelet gave it (core.device_audit). Other schedulers' pods, pods created on their node, and pods that were
bound before the node listed its devices have neither. Called by core.cache.devices.ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping

from gangsched.core.types.group import ASSUMED, ON_ITS_WAY, PodInfo
from gangsched.model.devices.annotations import DeviceInventory, ids_of
from gangsched.model.resources import is_extended


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
