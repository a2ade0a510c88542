"""Merges the sources' reports and the devices still held into one list. Pure.

| a device | is listed | with the health |
|---|---|---|
| in one place | yes | as reported there |
| in two places | once, as described by the first; both are reported as a problem | the worse of the two |
| in no place now, and a source was never read | yes | its last; Unhealthy if silence means sickness there |
| in no place now, and a live pod holds it or holders are not known yet | yes | Unhealthy |
| in no place now, otherwise | no | |

A resource that was listed stays listed, if need be without devices: a node that lists it without devices has
none to allocate, while a node that does not list it is scheduled by count. Called by `reporter` and
`command`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from gangsched.agent.report.reports import Report
from gangsched.model.devices.annotations import MAX_DEVICES, Device
from gangsched.model.devices.labels import bad_key, inventory_problem

HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"

Listed = dict[str, dict[str, Device]]
"""resource -> device ID -> device, in the order in which it is written."""


class Merged(NamedTuple):
    """problems: one sentence each."""

    listed: Listed
    problems: tuple[str, ...]


def merge(reports: Iterable[Report]) -> Merged:
    """Merge the sources' reports, in order."""
    listed: Listed = {}
    place_of: dict[tuple[str, str], str] = {}
    problems: list[str] = []
    for place in (place for report in reports for place in report.places):
        for resource, devices in place.listed.items():
            there = listed.setdefault(resource, {})
            if len(there) + len(devices) > MAX_DEVICES:
                problems.append(
                    f"{place.name}: {resource} would have {len(there) + len(devices)} devices, at most"
                    f" {MAX_DEVICES} are listed; those of this place are left out"
                )
                continue
            for device in devices:
                first = place_of.setdefault((resource, device.id), place.name)
                if device.id not in there:
                    there[device.id] = device
                    continue
                problems.append(
                    f"{resource} {device.id} is listed by {first} and by {place.name}: list it in one of"
                    f" them; the entry of {first} counts, and it is unhealthy if either says so"
                )
                if device.health != HEALTHY:
                    there[device.id] = unhealthy(there[device.id])
    return Merged(listed, tuple(problems))


def with_the_vanished(
    found: Listed,
    known: Listed,
    *,
    last: Listed,
    is_held: Callable[[str, str], bool],
    whole: bool = True,
    sick: bool = False,
) -> Listed:
    """Returns `found`, followed by vanished devices that must stay listed (see the table).

    known: every device ever listed; last: those listed now. whole: every source was read; sick: an unread
    source is one that falls silent when its devices fail.
    """
    result = {resource: dict(devices) for resource, devices in found.items()}
    for resource, devices in known.items():
        there, listed_now = result.setdefault(resource, {}), last.get(resource, {})
        for device_id, device in devices.items():
            if device_id in there or len(there) >= MAX_DEVICES:
                continue
            if not whole and device_id in listed_now:
                there[device_id] = unhealthy(device) if sick else listed_now[device_id]
            elif is_held(resource, device_id):
                there[device_id] = unhealthy(device)
    return result


class Carried(NamedTuple):
    """listed: the list to write as labels, None to change nothing; problems: what labels cannot express."""

    listed: Listed | None
    problems: tuple[str, ...]


def as_labels_can(found: Listed, on_node: Listed) -> Carried:
    """Returns the part of `found` that labels can express. A resource whose IDs do not fit stays as the node
    lists it now, with current health. If the node does not list it, it is listed without devices: none to
    allocate.

    If the node's current list does not fit either (it is an older annotation), nothing is changed.
    """
    listed: Listed = {}
    problems: list[str] = []
    for resource, there in found.items():
        problem = inventory_problem(resource, tuple(there))
        if not problem:
            listed[resource] = there
            continue
        problems.append(problem)
        if bad_key(resource):
            continue
        kept = on_node.get(resource, {})
        listed[resource] = {one: there.get(one) or unhealthy(device) for one, device in kept.items()}
        if inventory_problem(resource, tuple(kept)):
            return Carried(None, tuple(problems))
    return Carried(listed, tuple(problems))


def unhealthy(device: Device) -> Device:
    """Returns the same device as unhealthy, so that it is not allocated."""
    return device if device.health == UNHEALTHY else msgspec.structs.replace(device, health=UNHEALTHY)


def changes(before: Listed, after: Listed) -> list[str]:
    """Returns the differences for people: `nvidia.com/gpu GPU-1 Unhealthy`, in the order of the lists."""
    texts: list[str] = []
    for resource, devices in after.items():
        old = before.get(resource, {})
        for device in devices.values():
            known = old.get(device.id)
            if known is None:
                texts.append(f"{resource} {device.id} new, {device.health}")
            elif known.health != device.health:
                texts.append(f"{resource} {device.id} {device.health}")
            elif known != device:
                texts.append(f"{resource} {device.id} described differently")
    for resource, devices in before.items():
        there = after.get(resource, {})
        texts += [f"{resource} {device} gone" for device in devices if device not in there]
    return texts


def by_id(listed: Mapping[str, Iterable[Device]]) -> Listed:
    """Returns the model's lists, keyed by device ID."""
    return {resource: {device.id: device for device in devices} for resource, devices in listed.items()}
