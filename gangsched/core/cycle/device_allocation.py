"""Which devices of a node its new members get: Reserve's part on a Trial.

Called by core.cycle.placing when a node is chosen, and by core.cycle.cycle when all members are placed
(`settle`). plugins.resources.devices counts how many members fit; model.devices.annotations chooses the
best-linked set, or model.devices.sets if there are constraints. Members placed earlier may be given other
devices so that one with constraints finds a set: the Trial knows all their requests, and computes one
assignment for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gangsched.core.cache.trial import Trial
from gangsched.core.cache.view.devices import DeviceQueries, Wishes
from gangsched.core.types.group import PodInfo
from gangsched.core.types.placement import Placement
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.errors import InvariantError
from gangsched.model.devices.annotations import (
    DeviceInventory,
    allocation_annotations,
    split_among_containers,
)
from gangsched.model.devices.constraints import ANY
from gangsched.model.devices.sets import Wish, pack_together, sets_of

Allotted = dict[str, dict[str, tuple[str, ...]]]
"""container -> resource -> IDs."""


def listed_requests(view: DeviceQueries, template: PodTemplate) -> list[tuple[str, int]]:
    """(resource, number) of the template's requests that some node has an inventory for."""
    listed = view.listed
    return [(resource, n) for resource, n in template.requests.items() if resource in listed]


def reserve_devices(
    trial: Trial, row: int, template: PodTemplate, listed: Sequence[tuple[str, int]], n_pods: int
) -> list[Allotted]:
    """Takes the devices of `n_pods` members on one node, for each the best-linked set of what is free there.

    `listed`: see listed_requests; a node without an inventory gives counts.
    """
    allocations: list[Allotted] = []
    for resource, count in listed:
        inventory = trial.inventory(row, resource)
        if inventory is None:
            continue
        if template.constraints and resource in template.constraints:
            masks = _take_constrained(trial, row, inventory, template, resource, n_pods)
        else:
            free = trial.device_mask(row, resource)
            masks = inventory.topology.best_sets(free, count, n_pods)
            trial.take_devices(row, resource, template, masks, free)
        demand = template.demand(resource)
        if len(demand) == 1 and not allocations:  # the usual pod: one container has them all
            container = demand[0][0]
            allocations = [{container: {resource: ids}} for ids in inventory.ids_of_each(masks)]
            continue
        allocations = allocations or [{} for _ in range(n_pods)]
        for mask, allocation in zip(masks, allocations, strict=True):
            _give(allocation, inventory, resource, mask, demand)
    return allocations or [{} for _ in range(n_pods)]


def annotations_of(info: PodInfo) -> dict[str, str]:
    """A pod's device annotations, from our own records."""
    return allocation_annotations(info.allocation, by_container=info.template.by_container)


def n_sets(view: DeviceQueries, row: int, template: PodTemplate, resource: str) -> int:
    """Counts how many more pods find a set that satisfies the constraint, moving earlier pods' sets if need
    be.

    If a search gives up, returns the number found so far, and the view records that.
    """
    inventory = view.inventory(row, resource)
    if inventory is None:
        return 0
    sets, amount = sets_of(inventory.topology, template.constraints[resource]), template.requests[resource]
    free = view.device_mask(row, resource)
    n, exact = sets.most(free, amount)
    mine, wishes = view.device_wishes(row, resource)
    if wishes:
        most = sets.most(free | mine, amount)
        exact = most.exact
        while n < most.n:
            packed, is_sure = _packed(inventory, free | mine, wishes, template, n + 1, resource)
            if packed is None:
                exact = is_sure
                break
            n += 1
    if not exact:
        view.note_given_up(row, resource)
    return n


def settle(trial: Trial, placements: Iterable[Placement]) -> None:
    """Updates the placements of members whose devices were changed after they were placed."""
    for row, resource in trial.repacked:
        inventory = trial.inventory(row, resource)
        if inventory is None:
            continue
        _, wishes = trial.device_wishes(row, resource)
        there: dict[int, list[int]] = {}
        for template, masks in wishes:
            there.setdefault(template.serial, []).extend(masks)
        for placement in placements:
            template = placement.info.template
            if placement.row == row and there.get(template.serial):
                mask = there[template.serial].pop(0)
                _give(placement.allocation, inventory, resource, mask, template.demand(resource))


def _take_constrained(
    trial: Trial, row: int, inventory: DeviceInventory, template: PodTemplate, resource: str, n_pods: int
) -> Sequence[int]:
    sets, amount = sets_of(inventory.topology, template.constraints[resource]), template.requests[resource]
    free = trial.device_mask(row, resource)
    masks = sets.choose(free, amount, n_pods)
    if len(masks) == n_pods:
        trial.take_devices(row, resource, template, masks, free)
        return masks
    mine, wishes = trial.device_wishes(row, resource)
    n_most = n_sets(trial, row, template, resource) if wishes else 0
    # When they were counted, a search that now gives up may have found sets for more pods.
    for n in range(n_pods, n_most + 1):
        packed, _ = _packed(inventory, free | mine, wishes, template, n, resource)
        if packed is not None:
            masks = packed[-1][:n_pods]
            before = [(of, tuple(some)) for (of, _), some in zip(wishes, packed, strict=False)]
            trial.retake_devices(row, resource, (*before, (template, tuple(masks))))
            return masks
    raise InvariantError(f"{n_pods} pods were counted on row {row}, {len(masks)} find {resource}")


def _packed(
    inventory: DeviceInventory, free: int, before: Wishes, template: PodTemplate, n_pods: int, resource: str
) -> tuple[list[list[int]] | None, bool]:
    """(sets of the earlier wishes, then of `n_pods` of this template; None if none found, is that
    certain?)."""
    asked = [
        Wish(sets_of(inventory.topology, of.constraints.get(resource, ANY)), of.requests[resource], n)
        for of, n in (*((of, len(masks)) for of, masks in before), (template, n_pods))
    ]
    return pack_together(free, asked)


def _give(
    allocation: Allotted,
    inventory: DeviceInventory,
    resource: str,
    mask: int,
    demand: tuple[tuple[str, int, bool], ...],
) -> None:
    for container, ids in split_among_containers(inventory, mask, demand).items():
        allocation.setdefault(container, {})[resource] = ids
