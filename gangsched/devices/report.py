"""The map of devices: nodes' lists, claims in pods' annotations or labels, kubelet's reports; pure.

Made from Nodes and Pods as the API server has them, so it needs no scheduler; what one has reserved and not
yet bound is laid over it (reserved). Called by `command`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from gangsched.errors import ParseError
from gangsched.model.devices.annotations import Device, parse_allocation, parse_devices
from gangsched.model.devices.labels import allocation_text, inventory_text, where_listed
from gangsched.model.devices.report import DEVICE_REPORT_KEY, DeviceReport, parse_report
from gangsched.model.devices.unwell import UNHEALTHY, Told, has_unwell, told_by_kubelet
from gangsched.model.objects import Node, Pod
from gangsched.model.pod_group import GANG_KEY
from gangsched.model.resource_claims.objects import DeviceTaintRule, ResourceClaim, ResourceSlice
from gangsched.model.resources import is_extended, pod_requests

FREE, PLANNED, CONFIRMED, MISMATCH, TWICE = "free", "planned", "confirmed", "mismatch", "claimed twice"
GONE = "not listed"
RESERVED = "reserved"
"""A scheduler has it for a gang that is not bound."""
ALLOCATED, BLOCKED = "allocated", "blocked"
"""Of devices by claims: a claim of a bound pod has it; what it needs of its pool's counters is in use."""


HEALTHY = "Healthy"
NOT_KNOWN = "Unknown (kubelet)"
"""Of devices that are well by all other words."""


class Published(NamedTuple):
    """What the API server lists of devices and claims."""

    slices: Sequence[ResourceSlice] = ()
    claims: Sequence[ResourceClaim] = ()
    rules: Sequence[DeviceTaintRule] = ()


class Holder(msgspec.Struct, rename="camel", frozen=True):
    """pod: namespace/name. since: when it was bound; None if the API does not show it."""

    pod: str
    uid: str
    container: str
    gang: str = ""
    since: datetime | None = None


class DeviceRow(msgspec.Struct, rename="camel", frozen=True):
    """state: free; planned: in a pod's annotation or label; confirmed: kubelet agrees; mismatch: they differ;
    claimed twice: two pods name it; reserved: for a gang that is not bound; allocated, blocked: see there.
    kubelet: the pod that has it by the node's report. reserved_until: None where no time ends it. claims:
    namespace/name of the resource claims that have it.
    """

    resource: str
    id: str
    health: str
    state: str
    holders: tuple[Holder, ...] = ()
    kubelet: str = ""
    model: str = ""
    memory_mib: int = 0
    numa: int = -1
    reserved_by: str = ""
    reserved_until: datetime | None = None
    claims: tuple[str, ...] = ()


class Promise(msgspec.Struct, rename="camel", frozen=True):
    """Room reserved on a node, devices unnamed. is_taken: False while pods there have to go first."""

    group: str
    resource: str
    amount: int
    is_taken: bool = True
    until: datetime | None = None


class NodeMap(msgspec.Struct, rename="camel", frozen=True):
    """without_ids: pods that request a listed resource but whose devices are unknown. no_ids: the listed
    resources of which no IDs are given for that."""

    name: str
    devices: tuple[DeviceRow, ...]
    without_ids: tuple[str, ...] = ()
    no_ids: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    promised: tuple[Promise, ...] = ()


class Refused(NamedTuple):
    """A pod or a node that could not be read, or that the scheduler has refused. name: namespace/name."""

    kind: str
    name: str
    uid: str
    node: str
    why: str


class _Claim(NamedTuple):
    resource: str
    device_id: str
    holder: Holder


def make_map(nodes: Iterable[Node], pods: Iterable[Pod], refused: Iterable[Refused] = ()) -> list[NodeMap]:
    """One map for each node that lists devices, has pods that claim some, or refused objects; by name."""
    on_node: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.spec.node_name and not pod.is_terminal:
            on_node.setdefault(pod.spec.node_name, []).append(pod)
    problems: dict[str, list[str]] = {}
    for one in refused:
        what = f"pod {one.name}" if one.kind == "Pod" else "the node"
        problems.setdefault(one.node, []).append(f"{what} is left out: {one.why}")
    made = [
        _node_map(node, on_node.get(node.metadata.name, []), problems.pop(node.metadata.name, []))
        for node in nodes
    ]
    made += [NodeMap(name, (), problems=tuple(texts)) for name, texts in problems.items()]
    return sorted((one for one in made if one.devices or one.problems), key=lambda one: _natural(one.name))


def _node_map(node: Node, pods: list[Pod], problems: list[str]) -> NodeMap:
    annotations = node.metadata.annotations or {}
    listed: dict[str, list[Device]] = {}
    report = DeviceReport()
    try:
        text = inventory_text(annotations, node.metadata.labels)
        listed = {} if text is None else parse_devices(text)
    except ParseError as error:
        problems.append(f"{where_listed(annotations)}: {error.message}")
    try:
        report = parse_report(annotations[DEVICE_REPORT_KEY]) if DEVICE_REPORT_KEY in annotations else report
    except ParseError as error:
        problems.append(str(error))
    claims: dict[tuple[str, str], list[Holder]] = {}
    for pod in pods:
        try:
            for claim in _claims(pod):
                claims.setdefault((claim.resource, claim.device_id), []).append(claim.holder)
        except ParseError as error:
            problems.append(f"pod {pod.key}: {error}")
    given = {
        (resource, device_id): (one.uid, f"{one.namespace}/{one.name}")
        for one in (*report.pods, *report.others)
        for sets in one.containers.values()
        for resource, ids in sets.items()
        for device_id in ids
    }
    rows = [
        _row(resource, device, claims.pop((resource, device.id), []), given, report)
        for resource, devices in sorted(listed.items())
        for device in devices
    ]
    for (resource, device_id), holders in sorted(claims.items()):
        rows.append(_row(resource, Device(device_id, health=GONE), holders, given, report))
    known = {uid for uid, _ in given.values()}
    silent = {
        pod.key: asked
        for pod in pods
        if pod.metadata.uid not in known and (asked := _asked_without_ids(pod, listed))
    }
    hidden = {name for asked in silent.values() for name in asked}
    hidden |= {resource for resource, device_id in claims if resource in listed}
    rows = _as_told(rows, pods, problems)
    first: dict[str, str] = {}
    for resource, devices in listed.items():
        for device in devices:
            other = first.setdefault(device.id, resource)
            if other != resource:
                hidden |= {other, resource}
                problems.append(f"{device.id} is listed under {other} and {resource}")
    return NodeMap(
        node.metadata.name, tuple(rows), tuple(sorted(silent)), tuple(sorted(hidden)), tuple(problems)
    )


def _row(
    resource: str,
    device: Device,
    holders: list[Holder],
    given: dict[tuple[str, str], tuple[str, str]],
    report: DeviceReport,
) -> DeviceRow:
    uid, name = given.get((resource, device.id), ("", ""))
    uids = {holder.uid for holder in holders}
    if len(uids) > 1:
        state = TWICE
    elif uid:
        is_unplanned = not uids and any(one.uid == uid for one in report.others)
        state = CONFIRMED if uids == {uid} or is_unplanned else MISMATCH
    elif holders:
        # kubelet has not reported the pod yet, or has given it others.
        is_known = resource in report.resources and any(one.uid in uids for one in report.pods)
        state = MISMATCH if is_known else PLANNED
    else:
        state = FREE
    return DeviceRow(
        resource,
        device.id,
        device.health,
        state,
        tuple(holders),
        name,
        device.model,
        device.memory_mib,
        device.numa,
    )


def _as_told(rows: list[DeviceRow], pods: list[Pod], problems: list[str]) -> list[DeviceRow]:
    """The rows with the health that kubelets state of devices under pods; of those without a row too."""
    at = {(one.resource, one.id): k for k, one in enumerate(rows)}
    for pod in pods:
        ids: dict[str, list[str]] = {}
        if has_unwell(pod):
            for one in rows:
                if one.kubelet == pod.key or any(each.uid == pod.metadata.uid for each in one.holders):
                    ids.setdefault(one.resource, []).append(one.id)
        for told in told_by_kubelet(pod, ids, {}):
            k = at.get((told.resource, told.id))
            if k is not None:
                rows[k] = with_health(rows[k], told.health)
            elif told.health == UNHEALTHY:
                problems.append(untold(pod, told))
    return rows


def with_health(row: DeviceRow, health: str) -> DeviceRow:
    """The device with what a kubelet says of it."""
    said = f"{health} (kubelet)"
    if row.health in (HEALTHY, NOT_KNOWN):
        return replace(row, health=said)
    is_new = health == UNHEALTHY and said not in row.health  # others may share the device
    return replace(row, health=f"{row.health}; {said}") if is_new else row


def untold(pod: Pod, told: Told) -> str:
    """What a kubelet says of a device that is not in the map, for people."""
    return f"pod {pod.key}: {told.id} of {told.of} is {told.health}, says its kubelet"


def is_sick(row: DeviceRow) -> bool:
    """Whether anything says that the device is not healthy."""
    return row.health not in (HEALTHY, NOT_KNOWN)


def _claims(pod: Pod) -> Iterator[_Claim]:
    """Yields each device once for a pod, since its plain init containers may share devices. Raises:
    ParseError."""
    annotations = pod.metadata.annotations or {}
    text = allocation_text(annotations, pod.metadata.labels)
    if text is None:
        return
    since = bound_since(pod)
    containers: dict[tuple[str, str], list[str]] = {}
    for container, sets in parse_allocation(text).items():
        for resource, ids in sets.items():
            for device_id in ids:
                containers.setdefault((resource, device_id), []).append(container)
    for (resource, device_id), names in containers.items():
        holder = Holder(pod.key, pod.metadata.uid, ", ".join(names), annotations.get(GANG_KEY, ""), since)
        yield _Claim(resource, device_id, holder)


def bound_since(pod: Pod) -> datetime | None:
    """When the pod was bound; None if the API does not show it."""
    return next((c.last_transition_time for c in pod.status.conditions or () if _says_bound(c)), None)


def _says_bound(condition: object) -> bool:
    return getattr(condition, "type", "") == "PodScheduled" and getattr(condition, "status", "") == "True"


def _asked_without_ids(pod: Pod, listed: dict[str, list[Device]]) -> list[str]:
    """The listed resources that the pod requests while its annotations or labels name no devices."""
    if allocation_text(pod.metadata.annotations, pod.metadata.labels) is not None:
        return []
    try:
        asked = pod_requests(pod.spec)
    except ParseError:
        return []
    return [name for name in asked if is_extended(name) and name in listed]


def _natural(name: str) -> tuple[int, str]:
    return len(name), name
