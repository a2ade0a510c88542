"""Whether what the cache holds for one assumed pod is still what it was promised.

Questions to the cache, and no more: what follows from an answer is core.groups.reservations',
core.groups.attempts' and core.binding.pre_bind's.
"""

from __future__ import annotations

from gangsched.core.cache.cache import Cache
from gangsched.core.types.group import PodInfo

OVERTAKEN = "another scheduler's pod has landed on what was held"


def reservation_broken(cache: Cache, info: PodInfo) -> str:
    """Why the node or a device promised to the pod will not do any more; "" when all is well."""
    row = cache.nodes.row_of.get(info.node_name)
    if row is None:
        return f"node {info.node_name} is gone"
    for resource, ids in info.ids.items():
        missing = cache.ledger.promised_unusable(row, resource, ids)
        if missing:
            return f"device {missing} of {resource} on {info.node_name} is gone or unhealthy"
    for column, amount in zip(info.template.columns, info.template.amounts, strict=True):
        if amount and cache.nodes.free[column, row] < 0:
            return f"node {info.node_name} has too little {cache.table.names[column]} by now"
    return ""


def reservation_taken(cache: Cache, info: PodInfo) -> str:
    """Which device promised to the pod another live pod has come to hold; "" when none."""
    for resource, ids in info.ids.items():
        holders = cache.ledger.holders(info.row, resource)
        for device_id in ids:
            if len(holders.get(device_id, ())) > 1:
                return f"device {device_id} of {resource} on {info.node_name} is held by another pod by now"
    return ""


def reservation_lost(cache: Cache, info: PodInfo) -> str:
    """Why a promise of which nothing was sent is worth less by now than a new one; "" when it is not.

    Broken; or another live pod has come to hold one of its devices; or the node has come to list devices and
    the promise names none. Not asked for a bind that may be on its way: that is repeated as it is.
    """
    broken = reservation_broken(cache, info)
    if broken:
        return broken
    if reservation_taken(cache, info):
        return OVERTAKEN
    for resource in info.template.requests:
        if resource not in info.ids and cache.ledger.inventory(info.row, resource) is not None:
            return OVERTAKEN
    return ""
