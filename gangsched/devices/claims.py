"""Devices of ResourceSlices and who holds them by resource claims, laid over the map of devices; pure.

What there is of them counts as the scheduler counts it (core.resource_claims): newest generations, whole
pools, counters. A pool that several nodes reach has a map of its own. Called by `command`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from gangsched.core.resource_claims.book import ClaimBook
from gangsched.core.resource_claims.devices import ListedDevice, Pool
from gangsched.devices.report import (
    ALLOCATED,
    BLOCKED,
    FREE,
    GONE,
    RESERVED,
    TWICE,
    DeviceRow,
    Holder,
    NodeMap,
    Published,
    bound_since,
    untold,
    with_health,
)
from gangsched.model.devices.unwell import UNHEALTHY, has_unwell, told_by_kubelet
from gangsched.model.objects import Node, Pod
from gangsched.model.pod_group import GANG_KEY
from gangsched.model.resource_claims.objects import (
    CLAIMED_FOR_KEY,
    CLAIMS,
    SLICES,
    TAINT_RULES,
    DeviceId,
    PoolId,
    ResourceClaim,
)


def with_claims(
    maps: Sequence[NodeMap], nodes: Sequence[Node], pods: Iterable[Pod], published: Published
) -> list[NodeMap]:
    """Returns the map with the devices of these nodes' slices, those that are held and not listed too."""
    book = ClaimBook()
    for listed in published.slices:
        book.put(SLICES, listed)
    for claim in published.claims:
        book.put(CLAIMS, claim)
    for rule in published.rules:
        book.put(TAINT_RULES, rule)
    by_uid = {pod.metadata.uid: pod for pod in pods}
    made = {one.name: one for one in maps}
    rows: dict[str, list[DeviceRow]] = {}
    problems: dict[str, list[str]] = {}
    seen: set[DeviceId] = set()
    is_told: set[PoolId] = set()
    for node in nodes:
        for pool in book.offer(node).pools:
            home = _home(book, pool.id, node.metadata.name)
            if pool.problem and pool.id not in is_told:
                is_told.add(pool.id)
                state = "being updated" if pool.is_incomplete else "invalid"
                problems.setdefault(home, []).append(
                    f"resource pool {pool.id} is {state}, and none of its devices is given out:"
                    f" {pool.problem}"
                )
            left = book.holdings.counters_left(pool)
            for device in pool.devices:
                if device.id not in seen:
                    seen.add(device.id)
                    rows.setdefault(home, []).append(_listed(book, device, pool, left, by_uid))
            for device_id in book.held_of(pool.id):
                if device_id not in seen and not pool.problem:
                    seen.add(device_id)
                    row = _row(book, device_id, by_uid, health=GONE)
                    rows.setdefault(home, []).append(row)
    is_asked = {node.metadata.name for node in nodes}
    for pod in by_uid.values():
        if pod.spec.node_name in is_asked and not pod.is_terminal and has_unwell(pod):
            _tell_health(pod, book, rows, problems)
    for name in dict.fromkeys((*rows, *problems)):
        one = made.get(name, NodeMap(name, ()))
        made[name] = replace(
            one,
            devices=(*one.devices, *rows.get(name, ())),
            problems=(*one.problems, *problems.get(name, ())),
        )
    names = {node.metadata.name for node in nodes}
    return sorted(made.values(), key=lambda one: (one.name not in names, len(one.name), one.name))


def _tell_health(
    pod: Pod, book: ClaimBook, rows: Mapping[str, list[DeviceRow]], problems: dict[str, list[str]]
) -> None:
    """Adds what its kubelet says of the devices of the pod's claims."""
    for told in told_by_kubelet(pod, {}, book.claims_of(pod)):
        if not told.claim:
            continue
        found = False
        for devices in rows.values():
            for k, row in enumerate(devices):
                if told.device is not None and told.claim in row.claims and row.id == told.device.name:
                    devices[k], found = with_health(row, told.health), True
        if not found and told.health == UNHEALTHY:
            problems.setdefault(pod.spec.node_name, []).append(untold(pod, told))


def _home(book: ClaimBook, pool_id: PoolId, node_name: str) -> str:
    """The node, where only it reaches the pool; else the pool's own name."""
    return node_name if list(book.pools.nodes_of(pool_id)) == [node_name] else f"pool {pool_id.name}"


def _listed(
    book: ClaimBook,
    device: ListedDevice,
    pool: Pool,
    left: Mapping[tuple[str, str], int],
    pods: Mapping[str, Pod],
) -> DeviceRow:
    taints = [one.key for one in book.cluster.taints(device) if one.keeps_out]
    row = _row(book, device.id, pods, health=f"tainted: {', '.join(taints)}" if taints else "Healthy")
    if row.state == FREE and any(left[name] < amount for name, amount in device.counters):
        return replace(row, state=BLOCKED)
    is_twice = book.holdings.whole.get(device.id, 0) > 1
    return replace(row, state=TWICE) if is_twice else row


def _row(book: ClaimBook, device: DeviceId, pods: Mapping[str, Pod], *, health: str) -> DeviceRow:
    claims = [book.claims[uid] for uid in book.holders(device)]
    users = [holder for claim in claims for holder in _holders(claim, pods)]
    state = FREE
    holders: tuple[Holder, ...] = ()
    reserved_by = ""
    if claims and any(holder.since is not None for holder in users):
        state, holders = ALLOCATED, tuple(users)
    elif claims:
        state = RESERVED
        reserved_by = next((one.gang or one.pod for one in users), f"claim {claims[0].key}")
    return DeviceRow(
        device.driver,
        device.name,
        health,
        state,
        holders,
        reserved_by=reserved_by,
        claims=tuple(claim.key for claim in claims),
    )


def _holders(claim: ResourceClaim, pods: Mapping[str, Pod]) -> Iterator[Holder]:
    """The pods for which it is reserved; `since` of those that are bound."""
    gang = (claim.metadata.annotations or {}).get(CLAIMED_FOR_KEY, "")
    for one in claim.status.reserved_for or ():
        pod = pods.get(one.uid)
        name = f"{claim.metadata.namespace}/{one.name}"
        since: datetime | None = None
        if pod is not None and pod.spec.node_name:
            gang = (pod.metadata.annotations or {}).get(GANG_KEY, "")
            since = bound_since(pod) or claim.metadata.creation_timestamp
        yield Holder(name, one.uid, "", gang, since)
