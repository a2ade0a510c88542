"""Whether the cache's state still supports one assumed pod's reservation.

Queries of the cache only; core.groups.attempts.reservations, core.groups.attempts.attempts and
core.binding.pre_bind act on the results.
"""

from __future__ import annotations

from gangsched.core.cache.cache import Cache
from gangsched.core.types.group import PodInfo
from gangsched.core.types.templates.pod_template import device_demands_of
from gangsched.core.why import Why
from gangsched.core.why.released import (
    DeviceGone,
    DeviceTaken,
    NodeGone,
    NodeTooFull,
    Outdated,
    ReservationOutdated,
)
from gangsched.model.objects import Pod

_OVERTAKEN = ReservationOutdated(Outdated.TAKEN)
_OTHER_DEVICES = ReservationOutdated(Outdated.OTHER_DEVICES)
_STATED = ReservationOutdated(Outdated.STATED)
_RESIZED = ReservationOutdated(Outdated.RESIZED)


def reservation_broken(cache: Cache, info: PodInfo) -> Why:
    """Returns why the reserved node or device is unusable now; "" if all is well."""
    row = cache.nodes.row_of.get(info.node_name)
    if row is None:
        return NodeGone(info.node_name)
    for resource, ids in info.ids.items():
        missing = cache.ledger.promised_unusable(row, resource, ids)
        if missing:
            return DeviceGone(missing, resource, info.node_name)
    for column, amount in zip(info.template.columns, info.template.amounts, strict=True):
        if amount and cache.nodes.free[column, row] < 0 and not _is_by_class(cache, info, column):
            return NodeTooFull(info.node_name, cache.table.names[column])
    return ""


def _is_by_class(cache: Cache, info: PodInfo, column: int) -> bool:
    """Whether a device class serves the resource there: its claim says whether it has it."""
    name = cache.table.names[column]
    return name in info.template.by_class and bool(cache.nodes.served_by_class(name)[info.row])


def reservation_taken(cache: Cache, info: PodInfo) -> Why:
    """Returns a sentence on the reserved device that another live pod now holds; "" if none."""
    for resource, ids in info.ids.items():
        holders = cache.ledger.holders(info.row, resource)
        for device_id in ids:
            if len(holders.get(device_id, ())) > 1:
                return DeviceTaken(device_id, resource, info.node_name)
    return ""


def reservation_lost(cache: Cache, info: PodInfo) -> Why:
    """Returns why an unsent reservation should be replaced by a new one; "" if it should not.

    It is broken; or another live pod holds one of its devices, or may hold one, as nothing shows which it
    has; or the node now lists devices and the reservation has none; or a plugin is to serve the pod, whose
    status states a claim by now; or the pod now requests something else.
    Not checked for a bind that may be in flight: that is repeated unchanged.
    """
    broken = reservation_broken(cache, info)
    if broken:
        return broken
    if reservation_taken(cache, info):
        return _OVERTAKEN
    for resource in info.template.device_resources:
        if resource not in info.ids and cache.ledger.inventory(info.row, resource) is not None:
            return _OVERTAKEN
        if resource in info.ids and any(cache.ledger.why_unknown(info.row, resource)):
            return _OVERTAKEN
    if info.pod.status.extended_resource_claim_status is not None and not any(
        cache.nodes.served_by_class(name)[info.row] for name in info.template.by_class
    ):
        return _STATED
    if device_demands_of(info.template.pod) != device_demands_of(info.pod):
        return _OTHER_DEVICES
    return _RESIZED if is_resized(info, info.pod) else ""


def is_resized(info: PodInfo, pod: Pod) -> bool:
    """Whether the pod requests something else than it is counted for."""
    counted, now = info.template.pod.spec, pod.spec
    return (
        counted.containers != now.containers
        or counted.init_containers != now.init_containers
        or counted.resources != now.resources
    )
