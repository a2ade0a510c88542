"""Devices: how many pods find enough healthy, free devices on each node with a device inventory.

Which devices: `gangsched.io/device-constraints` on a pod asks for sets on one NUMA node, of linked devices,
of a model, with a minimum of memory; the number of disjoint sets limits how many pods a node takes. Where IDs
are written as labels, the plugin also filters out nodes whose label values are too short for a container's
IDs, whichever devices those are.

Which nodes: `require` in the settings of devices, this plugin's own argument, or the annotation
`gangsched.io/require-device-ids` of a pod or its PodGroup leave out nodes that do not list a resource's
devices, since there the IDs of a pod's devices would be unknown. A node where pods may hold listed devices
and nothing shows which counts as one without that list (core.cache.devices.ledger).

Not in kube-scheduler, which only counts extended resources (NodeResourcesFit does that here too, so a
resource without an inventory is limited by its count alone). core.cycle.device_allocation chooses the IDs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from gangsched.core.cache.view.devices import DeviceQueries
from gangsched.core.cycle.device_allocation import n_sets
from gangsched.core.framework.interface import (
    EVERYWHERE,
    SUCCESS,
    BoolArray,
    Change,
    ClusterChange,
    CycleState,
    IntArray,
    NodeSubset,
    Rows,
    Status,
)
from gangsched.core.types.arrays import NO_LIMIT
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.core.why import Why
from gangsched.core.why.nodes import Insufficient
from gangsched.model.devices.constraints import CONSTRAINTS_KEY, DeviceConstraint
from gangsched.model.devices.labels import bad_key
from gangsched.model.devices.required_ids import ALL_RESOURCES, NONE_REQUIRED
from gangsched.model.devices.sets import sets_of
from gangsched.model.resources import is_extended
from gangsched.plugins.resources.least_asked import least_asked


class Args(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Pods that ask for what is required go only where it is listed. Raises: ValueError."""

    require: Annotated[
        tuple[str, ...],
        Meta(
            description="Resources whose device IDs must be known in this profile; `devices.require` is for"
            " all profiles."
        ),
    ] = ()

    def __post_init__(self) -> None:
        for i, name in enumerate(self.require):
            if not is_extended(name):
                raise ValueError(f"require[{i}]: {name!r} is not an extended resource such as nvidia.com/gpu")


class Devices:
    """Capacity by the free healthy devices of every requested resource that has an inventory."""

    name = "Devices"
    cured_by = Change.NODE_ADDED | Change.NODE_DEVICES | Change.ROOM_FREED

    def __init__(self, args: Args | None = None) -> None:
        self._required = frozenset(args.require) if args is not None else NONE_REQUIRED

    def pre_filter(
        self, state: CycleState, template: PodTemplate, view: DeviceQueries
    ) -> Status | NodeSubset:
        if not template.asks_for_devices:
            return SUCCESS
        required = template.required_ids or self._required
        if template.required_ids and self._required:
            required = template.required_ids | self._required
        group = state.group
        if group is not None and group.definition is not None and group.definition.required_ids:
            required |= group.definition.required_ids
        return _listing(template, required, view) if required else SUCCESS

    def capacity(
        self, state: CycleState, template: PodTemplate, view: DeviceQueries, rows: Rows = EVERYWHERE
    ) -> IntArray | None:
        total: IntArray | None = None
        for _, amount, everywhere in _asked(template, view):
            free = everywhere[rows]
            own: IntArray = free if amount == 1 else free // amount
            own = np.where(free < 0, NO_LIMIT, own)
            total = own if total is None else np.minimum(total, own)
        for resource in template.constraints:
            own = _sets(template, resource, view, rows)
            total = own if total is None else np.minimum(total, own)
        for unfit, _ in _unlabelled(template, view):
            own = np.where(unfit[rows], 0, NO_LIMIT)
            total = own if total is None else np.minimum(total, own)
        return total

    def capacity_on(
        self, state: CycleState, template: PodTemplate, view: DeviceQueries, row: int
    ) -> int | None:
        if template.constraints or view.in_labels:
            total = self.capacity(state, template, view, np.array([row]))
            return None if total is None else total.item()
        least, listed = None, view.listed
        for resource, amount in template.requests.items():
            if resource in listed and (free := view.device_free_on(resource, row)) is not None:
                most = NO_LIMIT if free < 0 else free // amount
                least = most if least is None or most < least else least
        return least

    def together(self, templates: Sequence[PodTemplate], view: DeviceQueries) -> IntArray | None:
        """Bounds by the least request of any of them, for each resource that all of them request."""
        total: IntArray | None = None
        for resource, amount in least_asked([one.requests for one in templates]):
            free = view.device_free(resource) if resource in view.listed else None
            if free is not None:
                own = np.where(free < 0, NO_LIMIT, free // amount)
                total = own if total is None else np.minimum(total, own)
        return total

    def reasons(
        self, state: CycleState, template: PodTemplate, view: DeviceQueries
    ) -> Sequence[tuple[Why, BoolArray]]:
        found: list[tuple[Why, BoolArray]] = []
        for resource, amount, free in _asked(template, view):
            short, unknown = (free >= 0) & (free < amount), view.with_unknown(resource)
            found.append((Insufficient(f"healthy devices of {resource}"), short & ~unknown))
            if (short & unknown).any():
                found.append((_not_known(resource), short & unknown))
        for resource, constraint in template.constraints.items():
            found += _missing(template.requests[resource], resource, constraint, view)
        found += [(reason, unfit) for unfit, reason in _unlabelled(template, view)]
        by_reason: dict[Why, BoolArray] = {}  # two checks may have one reason for a node, which counts once
        for reason, rows in found:
            by_reason[reason] = by_reason[reason] | rows if reason in by_reason else rows
        return [*by_reason.items()]

    def cures(self, change: ClusterChange, template: PodTemplate | None, view: DeviceQueries) -> bool:
        if template is None or change.row < 0:
            return True
        if not change.what & Change.NODE_ADDED and change.resources.isdisjoint(template.requests):
            return False
        capacity = self.capacity(CycleState(), template, view, np.array([change.row]))
        return capacity is None or bool(capacity[0] > 0)


def _listing(template: PodTemplate, required: frozenset[str], view: DeviceQueries) -> Status | NodeSubset:
    """Returns the nodes that list the devices of all requested resources that are required."""
    mask = np.ones(view.n_rows, dtype=np.bool_)
    wanted = [
        one for one in template.requests if one in required or (required >= ALL_RESOURCES and "/" in one)
    ]
    unknown = np.zeros(view.n_rows, dtype=np.bool_)
    for resource in wanted:
        free = view.device_free(resource)
        mask &= free >= 0 if free is not None else False
        unknown |= view.with_unknown(resource)
    if not wanted:
        return SUCCESS
    names = ", ".join(wanted)
    n_unknown, n_out = int((unknown & ~mask).sum()), int((view.live & ~mask).sum())
    if n_unknown and n_unknown == n_out:
        return NodeSubset(mask, _not_known(names))
    beside = f" ({n_unknown} of them list these, and run pods without known IDs)" if n_unknown else ""
    return NodeSubset(mask, f"node(s) did not list their {names}, whose IDs must be known{beside}")


def _not_known(names: str) -> str:
    return f"node(s) where it is not known which of the listed {names} the pods there have"


def _asked(template: PodTemplate, view: DeviceQueries) -> Iterator[tuple[str, int, IntArray]]:
    """Yields (resource, amount, free devices by row) of requested resources with an inventory on some
    node."""
    listed = view.listed
    for resource, amount in template.requests.items():
        if resource in listed and (free := view.device_free(resource)) is not None:
            yield resource, amount, free


def _unlabelled(template: PodTemplate, view: DeviceQueries) -> Iterator[tuple[BoolArray, str]]:
    """Yields nodes where the pod's containers cannot get IDs by label, and why; none when no label is needed.

    Independent of which devices are free: a set that happens to fit today cannot be relied on.
    """
    for resource in template.requests if view.in_labels else ():
        room = view.label_room(resource)
        if room is None:
            continue
        demand = template.demand(resource)
        if why := next((why for container, _, _ in demand if (why := bad_key(resource, container))), ""):
            yield room >= 0, f"node(s) that devices.allocationIn: labels cannot serve: {why}"
            continue
        most = max((count for _, count, _ in demand), default=0)
        unfit = (room >= 0) & (room < most)
        for n in np.unique(room[unfit]).tolist() if unfit.any() else ():
            yield unfit & (room == n), _too_long(resource, most, n)


def _too_long(resource: str, most: int, room: int) -> str:
    if not room:
        return (
            f"node(s) whose IDs of {resource} do not fit a label "
            "(letters, digits, - and _ only, 63 characters)"
        )
    return (
        f"node(s) where a label (63 characters) holds at most {room} IDs of {resource}, "
        f"a container needs {most}"
    )


def _sets(template: PodTemplate, resource: str, view: DeviceQueries, rows: Rows) -> IntArray:
    """Number of pods that find a set that satisfies the constraint; 0 on nodes without an inventory."""
    asked = np.arange(view.n_rows)[rows]
    found = np.zeros(len(asked), dtype=np.int64)
    if view.device_free(resource) is None:
        return found
    for i, row in enumerate(asked.tolist()):
        found[i] = n_sets(view, row, template, resource)
    return found


def _missing(
    amount: int, resource: str, constraint: DeviceConstraint, view: DeviceQueries
) -> list[tuple[str, BoolArray]]:
    unlisted, unlinked, given_up = (np.zeros(view.n_rows, dtype=np.bool_) for _ in range(3))
    unknown = view.with_unknown(resource)
    for row in range(view.n_rows):
        inventory = view.inventory(row, resource)
        if inventory is None or unknown[row]:
            unlisted[row] = inventory is None and not unknown[row]
            continue
        most = sets_of(inventory.topology, constraint).most(view.device_mask(row, resource), amount)
        if most.n == 0:
            (unlinked if most.exact else given_up)[row] = True
    text = f"{amount} free {resource} {constraint.described}"
    return [
        (f"node(s) did not list their {resource}, which {CONSTRAINTS_KEY} needs", unlisted),
        *([(_not_known(resource), unknown)] if unknown.any() else []),
        (f"node(s) without {text}", unlinked),
        (f"node(s) where the search for {text} was given up", given_up),
    ]
