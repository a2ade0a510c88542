"""Devices that pods have by resource claims, laid over the views that the demo shows.

Of nodes and of groups alike, under the name of their driver, as if they were listed. Called by
gangsched.lab.demo.stage, several times a second.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from gangsched.core.explaining.claim_views import RESERVED, TAINTED, device_states
from gangsched.core.explaining.reports import (
    DeviceView,
    GroupView,
    Holding,
    NodeView,
    view_groups,
    view_nodes,
)
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import Group
from gangsched.model.text.printable import clean


def views(scheduler: Scheduler) -> tuple[Sequence[GroupView], Sequence[NodeView]]:
    """Returns all groups and nodes as they are now."""
    groups = [
        _with_claims(scheduler, scheduler.shared.groups[view.key], view) for view in view_groups(scheduler)
    ]
    return groups, [_with_pools(scheduler, node) for node in view_nodes(scheduler)]


def _with_claims(scheduler: Scheduler, group: Group, view: GroupView) -> GroupView:
    found: dict[str, dict[str, dict[str, None]]] = {}
    for info in group.members.values():
        if not info.node_name or not info.pod.spec.resource_claims:
            continue
        for claim in scheduler.shared.cache.claims.claims_of(info.pod).values():
            allocation = scheduler.shared.cache.claims.allocation(claim.metadata.uid)
            for one in allocation.devices.results if allocation is not None else ():
                by_driver = found.setdefault(clean(info.node_name), {})
                by_driver.setdefault(clean(one.driver), {})[clean(one.device)] = None
    if not found:
        return view
    return replace(view, holds=tuple(_more(one, found.get(one.node, {})) for one in view.holds))


def _more(holding: Holding, found: dict[str, dict[str, None]]) -> Holding:
    ids = {driver: tuple(names) for driver, names in found.items()}
    if holding.n_bound:
        return replace(holding, bound_ids={**holding.bound_ids, **ids})
    return replace(holding, reserved_ids={**holding.reserved_ids, **ids})


def _with_pools(scheduler: Scheduler, node: NodeView) -> NodeView:
    cache = scheduler.shared.cache
    found: dict[str, tuple[DeviceView, ...]] = {}
    for pool in cache.claims.pools.own_at(node.name):
        devices = tuple(
            DeviceView(
                id=clean(device.id.name),
                healthy=state.kind != TAINTED,
                pods=(clean(state.user.pod.key),) if state.user is not None else (),
                group=clean(str(state.user.group.key)) if state.user is not None and state.user.group else "",
                reserved=state.kind == RESERVED,
            )
            for device, state in device_states(cache.claims, cache.pods, pool)
        )
        driver = clean(pool.id.driver)
        found[driver] = (*found.get(driver, ()), *devices)
    return replace(node, devices={**node.devices, **found}) if found else node
