"""Attributes of spans and their events, for a gang, its reservation and its members."""

from __future__ import annotations

from gangsched.core.types.group import Group, MemberState, PodInfo
from gangsched.model.resource_claims.objects import ResourceClaim
from gangsched.telemetry import names
from gangsched.telemetry.spans import Attributes


def of_gang(group: Group) -> Attributes:
    """Returns the root's attributes for its gang."""
    attributes: Attributes = {
        names.NAMESPACE: group.key.namespace,
        names.GROUP: str(group.key),
        names.DIALECT: group.key.dialect,
        names.SCHEDULER: group.scheduler_name,
        names.ATTEMPTS: group.attempts,
    }
    if not group.is_gang:
        attributes |= {names.POD_NAME: group.key.name, names.POD_UID: group.key.uid}
        return attributes
    attributes |= {names.MEMBERS: len(group.members), names.MIN_COUNT: group.min_count}
    if group.definition is not None and group.definition.total_count:
        attributes[names.TOTAL_COUNT] = group.definition.total_count
    if group.rank_distance is not None:
        attributes[names.RANK_DISTANCE], attributes[names.RANK_DISTANCE_LEAST] = group.rank_distance
    return attributes


def of_reservation(group: Group) -> Attributes:
    """Returns reserved nodes and devices; long lists are cut, counts are not."""
    nodes: dict[str, None] = {}
    devices: list[str] = []
    n_members = n_devices = 0
    for info in group.in_state(MemberState.ASSUMED):
        n_members += 1
        nodes[info.node_name] = None
        for ids in info.ids.values():
            n_devices += len(ids)
            if len(devices) < names.MAX_LISTED:
                devices += ids
    attributes: Attributes = {names.MEMBERS: n_members, names.N_NODES: len(nodes)}
    if nodes:
        attributes[names.NODES] = tuple(nodes)[: names.MAX_LISTED]
    if devices:
        attributes |= {names.DEVICES: tuple(devices[: names.MAX_LISTED]), names.N_DEVICES: n_devices}
    return attributes


def of_claim(claim: ResourceClaim) -> Attributes:
    """Returns a claim's name and its devices; a long list is cut."""
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    return {
        names.CLAIM: claim.key,
        names.DEVICES: tuple(str(one.id) for one in results[: names.MAX_LISTED]),
    }


def of_member(info: PodInfo, message: str) -> Attributes:
    """Returns an event's attributes for one member; cuts `message`."""
    attributes: Attributes = {
        names.POD_NAME: info.pod.metadata.name,
        names.POD_UID: info.uid,
        names.NODE_NAME: info.node_name or info.pod.spec.node_name,
        names.RANK: info.rank,
    }
    devices = tuple(device_id for ids in info.ids.values() for device_id in ids)
    if devices:
        attributes[names.DEVICES] = devices[: names.MAX_LISTED]
    if message:
        attributes[names.REASON] = message[: names.MAX_TEXT]
    return attributes
