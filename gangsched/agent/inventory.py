"""One list of devices out of what the sources found and what is still held. Pure.

| a device | is listed | with the health |
|---|---|---|
| in one place | yes | that it has there |
| in two places | once, as the first place in order describes it; said, naming both | the worse of the two |
| in no place any more, a source was never read | yes | that it had; Unhealthy if silence is sickness there |
| in no place any more, a live pod holds it, or nobody knows yet who does | yes | Unhealthy |
| in no place any more otherwise | no | |

A resource that was listed stays listed, if need be without devices: a node that lists none of it is one with
nothing to give, a node that does not mention it is scheduled by count. Called by `reporter` and `command`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from gangsched.agent.reports import Report
from gangsched.model.device_labels import bad_key, inventory_problem
from gangsched.model.devices import MAX_DEVICES, Device

HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"

Listed = dict[str, dict[str, Device]]
"""resource -> device ID -> device, in the order in which it is written."""


class Merged(NamedTuple):
    """problems: one sentence each."""

    listed: Listed
    problems: tuple[str, ...]


def merge(reports: Iterable[Report]) -> Merged:
    """What the sources found, in their order."""
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
                    f" them; what {first} says of it counts, and it is unhealthy if either says so"
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
    """`found` and, behind it, what must not be forgotten yet (see the table).

    known: every device that was ever listed; last: those that are listed now. whole: every source was read;
    sick: one that was not is known to fall silent when its devices fail.
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
    """listed: what labels say, None where nothing is to be changed; problems: what they cannot say."""

    listed: Listed | None
    problems: tuple[str, ...]


def as_labels_can(found: Listed, on_node: Listed) -> Carried:
    """What of `found` labels can say. A resource whose IDs do not fit stays as the node lists it now, with
    the health of today; one that the node does not list is listed without devices: it has nothing to give.

    Where what the node lists does not fit either (it is in the annotation, from before) nothing is changed.
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
    """The same device, not to be handed out."""
    return device if device.health == UNHEALTHY else msgspec.structs.replace(device, health=UNHEALTHY)


def changes(before: Listed, after: Listed) -> list[str]:
    """What is different, for people: `nvidia.com/gpu GPU-1 Unhealthy`, in the order of the lists."""
    said: list[str] = []
    for resource, devices in after.items():
        old = before.get(resource, {})
        for device in devices.values():
            known = old.get(device.id)
            if known is None:
                said.append(f"{resource} {device.id} new, {device.health}")
            elif known.health != device.health:
                said.append(f"{resource} {device.id} {device.health}")
            elif known != device:
                said.append(f"{resource} {device.id} described differently")
    for resource, devices in before.items():
        there = after.get(resource, {})
        said += [f"{resource} {device} gone" for device in devices if device not in there]
    return said


def by_id(listed: Mapping[str, Iterable[Device]]) -> Listed:
    """The model's lists, keyed."""
    return {resource: {device.id: device for device in devices} for resource, devices in listed.items()}
