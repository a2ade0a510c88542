"""Which devices of a node the members that come to it get: Reserve's part on a Trial.

Called by core.cycle when it has chosen a node. How many members fit is plugins.devices' answer; which set
of devices is the best-linked one is model.devices'.
"""

from __future__ import annotations

from collections.abc import Sequence

from gangsched.core.snapshot import Trial
from gangsched.core.template import PodTemplate
from gangsched.model.devices import split_among_containers


def reserve_devices(
    trial: Trial, row: int, template: PodTemplate, listed: Sequence[tuple[str, int]], n_pods: int
) -> list[dict[str, dict[str, tuple[str, ...]]]]:
    """Takes the devices of `n_pods` members on one node, each the best-linked set of what is free there.

    `listed` are the requests that some node has an inventory for; a node without one gives counts.
    """
    allocations: list[dict[str, dict[str, tuple[str, ...]]]] = [{} for _ in range(n_pods)]
    for resource, count in listed:
        inventory = trial.inventory(row, resource)
        if inventory is None:
            continue
        demand = template.demand(resource)
        best_set = inventory.topology.best_set
        free = before = trial.device_mask(row, resource)
        for allocation in allocations:
            mask = best_set(free, count)
            free &= ~mask
            for container, ids in split_among_containers(inventory, mask, demand).items():
                allocation.setdefault(container, {})[resource] = ids
        trial.take_devices(row, resource, before & ~free)
    return allocations
