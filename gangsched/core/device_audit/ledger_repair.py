"""Corrects our records from kubelet's report: which pod has which device, in one step for a whole node.

Called by core.device_audit.drift; the records are the cache's. A device has one holder throughout. A pod that
had it in our records and that kubelet has not admitted yet gets in exchange what the new holder was planned
to have. A pod to which kubelet had given it, by an earlier report, has ended there: it no longer holds the
device, gets nothing in exchange, and keeps its annotation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from gangsched.core.cache.cache import Cache
from gangsched.core.types.group import BOUND, NO_ROW, PodInfo
from gangsched.model.devices.annotations import ids_of
from gangsched.model.devices.report import DeviceReport

Allocation = Mapping[str, Mapping[str, tuple[str, ...]]]


class Corrected(NamedTuple):
    """exchanged: pods with other devices than planned now; lost: (pod, device) without a replacement."""

    exchanged: list[PodInfo]
    lost: list[tuple[PodInfo, str]]


def correct(
    cache: Cache, changed: Sequence[tuple[PodInfo, Allocation]], had_theirs: Collection[str]
) -> Corrected:
    """Makes our records agree with what these pods of one node have.

    had_theirs: UIDs of pods whose devices kubelet has reported before.
    """
    freed: dict[str, list[str]] = {}
    for info, _ in changed:
        for resource, ids in info.ids.items():
            cache.ledger.release(info.row, info.uid, resource, ids)
            freed.setdefault(resource, []).extend(ids)
    taken: dict[str, dict[str, list[str]]] = {}
    for info, allocation in changed:
        info.allocation, info.ids = allocation, ids_of(allocation)
        for resource, ids in info.ids.items():
            for device_id in cache.ledger.hold(info.row, info.uid, resource, ids):
                for uid in cache.ledger.holders(info.row, resource)[device_id]:
                    if uid != info.uid:
                        taken.setdefault(uid, {}).setdefault(resource, []).append(device_id)
    corrected = Corrected([], [])
    for uid, by_resource in taken.items():
        for resource, lost in by_resource.items():
            if uid in had_theirs:
                _let_go(cache, cache.pods[uid], resource, lost)
                continue
            _compensate(cache, cache.pods[uid], resource, lost, freed.get(resource, []), corrected)
    again = [info for info, _ in changed] + [cache.pods[uid] for uid in taken]
    for row in dict.fromkeys(info.row for info in again):
        cache.ledger.note_unknown_holders(row, [info for info in again if info.row == row])
    return corrected


def learn(cache: Cache, on_node: Mapping[str, PodInfo], report: DeviceReport) -> None:
    """Records what kubelet chose for the node's pods that were bound without IDs.

    What is recorded from a Binding stays: of these resources kubelet only counts what such a pod has.
    """
    for one in report.others:
        info = on_node.get(one.uid)
        if info is None or info.state is not BOUND or info.row == NO_ROW:
            continue
        own = set(info.ids)
        unknown = info.template.requests.keys() - own - set(report.resources)
        found = {
            container: {resource: ids for resource, ids in sets.items() if ids and resource in unknown}
            for container, sets in one.containers.items()
        }
        if not any(found.values()):
            continue
        names = dict.fromkeys((*info.allocation, *found))
        info.allocation = {name: {**info.allocation.get(name, {}), **found.get(name, {})} for name in names}
        info.ids = ids_of(info.allocation)
        for resource in sorted(info.ids.keys() - own):
            clashes = cache.ledger.hold(info.row, info.uid, resource, info.ids[resource])
            cache.clashes += [(info.uid, info.node_name, device_id) for device_id in clashes]
        cache.ledger.note_unknown_holders(info.row, (info,))


def _compensate(
    cache: Cache, info: PodInfo, resource: str, lost: list[str], freed: list[str], corrected: Corrected
) -> None:
    cache.ledger.release(info.row, info.uid, resource, lost)
    holders = cache.ledger.holders(info.row, resource)
    unusable = cache.ledger.promised_unusable
    spare = [one for one in freed if one not in holders and not unusable(info.row, resource, (one,))]
    instead: dict[str, str] = {}
    if len(spare) >= len(lost):
        instead = dict(zip(lost, spare, strict=False))
        cache.ledger.hold(info.row, info.uid, resource, instead.values())
        if info not in corrected.exchanged:
            corrected.exchanged.append(info)
    else:
        corrected.lost.extend((info, device_id) for device_id in lost)
    info.allocation = {
        container: {
            name: tuple(instead.get(i, i) for i in ids if name != resource or i not in lost or i in instead)
            for name, ids in sets.items()
        }
        for container, sets in info.allocation.items()
    }
    info.ids = ids_of(info.allocation)


def _let_go(cache: Cache, info: PodInfo, resource: str, lost: list[str]) -> None:
    """Releases the lost devices; the allocation stays, as a record of what the pod had, like its
    annotation."""
    cache.ledger.release(info.row, info.uid, resource, lost)
    info.ids = {
        name: tuple(i for i in ids if name != resource or i not in lost) for name, ids in info.ids.items()
    }
