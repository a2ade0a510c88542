"""Devices: how many pods find enough healthy, free devices on each node that lists its devices.

Ours; kube-scheduler counts extended resources only (NodeResourcesFit does that here too, so a resource
without an inventory is limited by its count alone). Which IDs are taken is core.allotment's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gangsched.core.framework import (
    EVERYWHERE,
    BoolArray,
    Change,
    ClusterChange,
    CycleState,
    IntArray,
    Rows,
)
from gangsched.core.snapshot import ClusterView
from gangsched.core.template import PodTemplate

# What a node without an inventory takes, as far as this plugin knows.
NO_LIMIT = 2**62


class Devices:
    """Capacity by the free healthy devices of every requested resource that has an inventory."""

    name = "Devices"
    cured_by = Change.NODE_ADDED | Change.NODE_DEVICES | Change.ROOM_FREED

    def capacity(
        self, state: CycleState, template: PodTemplate, view: ClusterView, rows: Rows = EVERYWHERE
    ) -> IntArray | None:
        total: IntArray | None = None
        for _, amount, everywhere in _asked(template, view):
            free = everywhere[rows]
            own: IntArray = free if amount == 1 else free // amount
            own = np.where(free < 0, NO_LIMIT, own)
            total = own if total is None else np.minimum(total, own)
        return total

    def reasons(
        self, state: CycleState, template: PodTemplate, view: ClusterView
    ) -> Sequence[tuple[str, BoolArray]]:
        return [
            (f"Insufficient healthy devices of {resource}", (free >= 0) & (free < amount))
            for resource, amount, free in _asked(template, view)
        ]

    def cures(self, change: ClusterChange, template: PodTemplate | None, view: ClusterView) -> bool:
        if template is None or change.row < 0:
            return True
        if not change.what & Change.NODE_ADDED and change.resources.isdisjoint(template.requests):
            return False
        return all(
            free[change.row] < 0 or free[change.row] >= amount for _, amount, free in _asked(template, view)
        )


def _asked(template: PodTemplate, view: ClusterView) -> Iterator[tuple[str, int, IntArray]]:
    """(resource, amount, free devices by row) of what the template asks for and some node lists."""
    for resource, amount in template.requests.items():
        free = view.device_free(resource)
        if free is not None:
            yield resource, amount, free
