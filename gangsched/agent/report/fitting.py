"""Which of the annotations to write fit the Node: pure. Called by `reporter`.

A part that does not fit must not block the rest: otherwise a sick device would be allocated for as long as
the list, or a note beside it, is too long.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gangsched.agent.node import MAX_ANNOTATION_BYTES, annotation_bytes
from gangsched.agent.report.inventory import Listed, unhealthy
from gangsched.model.devices.annotations import INVENTORY_KEY, inventory_annotation

Annotations = Mapping[str, str | None]


def fits(changed: Annotations, on_node: Mapping[str, str]) -> bool:
    """Whether the Node may have these besides its other annotations."""
    return annotation_bytes({**on_node, **changed}) <= MAX_ANNOTATION_BYTES


def most(changed: Annotations, on_node: Mapping[str, str], listed: Listed) -> Annotations:
    """Returns the first of these that fits: the inventory without notes; the Node's list with current health
    (`listed`), with or without the notes; the notes; nothing.
    """
    inventory = {key: text for key, text in changed.items() if key == INVENTORY_KEY}
    notes = {key: text for key, text in changed.items() if key != INVENTORY_KEY}
    tried: list[Annotations] = [inventory]
    if inventory and INVENTORY_KEY in on_node:
        health = {INVENTORY_KEY: inventory_annotation({of: there.values() for of, there in listed.items()})}
        tried += [{**health, **notes}, health]
    for some in (*tried, notes):
        if fits(some, on_node):
            return {key: text for key, text in some.items() if on_node.get(key) != text}
    return {}


def with_health(listed: Listed, found: Listed) -> Listed:
    """Returns the same devices and properties with current health; a device not found is unhealthy."""
    return {
        resource: {
            device.id: msgspec.structs.replace(device, health=now.health)
            if (now := found.get(resource, {}).get(device.id))
            else unhealthy(device)
            for device in devices.values()
        }
        for resource, devices in listed.items()
    }
