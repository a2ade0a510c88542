"""A pod's devices by kubelet's report: values, comparisons, the patch that writes them to the pod, and how
our records follow, in one step for a whole node.

The records are the cache's. A device has one holder throughout. A pod that had it in our records and that
kubelet has not admitted yet gets in exchange what the new holder was planned to have. A pod to which kubelet
had given it, by an earlier report, has ended there: it no longer holds the device, gets nothing in exchange,
and keeps its annotation. Called by core.device_audit.drift.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from gangsched.core.cache.cache import Cache
from gangsched.core.types.group import BOUND, NO_ROW, PodInfo
from gangsched.model.devices.annotations import allocation_annotations, ids_of, is_device_key
from gangsched.model.devices.labels import allocated_labels, allocation_labels, fits_labels
from gangsched.model.devices.report import DeviceReport
from gangsched.model.effects import PatchPod
from gangsched.model.objects import Pod

Allocation = Mapping[str, Mapping[str, tuple[str, ...]]]
"""container -> resource -> device IDs."""


def as_reported(pod: Pod, planned: Allocation, given: Allocation, resources: tuple[str, ...]) -> Allocation:
    """Returns the pod's devices: as reported for the report's resources, as planned for others.

    A container that is not listed is either not started yet, or a plain init container, which kubelet never
    lists. The former keeps planned devices that no other container of the pod has got; for the rest it gets
    what those containers were planned to have. The latter uses devices of the running containers.
    """
    truth: dict[str, dict[str, tuple[str, ...]]] = {}
    has: dict[str, list[str]] = {}
    for container, sets in given.items():
        for resource, ids in sets.items():
            if resource in resources and ids:
                truth.setdefault(container, {})[resource] = ids
                has.setdefault(resource, []).extend(ids)
    first = {c.name for c in pod.spec.init_containers or () if c.restart_policy != "Always"}
    unlisted = [container for container in planned if container not in given]
    spare: dict[str, list[str]] = {}
    for container in given:
        for resource, ids in planned.get(container, {}).items():
            spare.setdefault(resource, []).extend(i for i in ids if i not in has.get(resource, ()))
    for container in (*(c for c in unlisted if c not in first), *(c for c in unlisted if c in first)):
        for resource, ids in planned[container].items():
            own = ids
            if resource in resources and container in first:
                pool = has.get(resource, [])
                own = ids if set(ids) <= set(pool) else tuple(pool[: len(ids)])
            elif resource in resources:
                others, instead = has.get(resource, []), iter(spare.get(resource, []))
                own = tuple(got for i in ids if (got := next(instead, "") if i in others else i))
                has.setdefault(resource, []).extend(own)
            truth.setdefault(container, {})[resource] = own
    for container in given:
        for resource, ids in planned.get(container, {}).items():
            if resource not in resources:
                truth.setdefault(container, {})[resource] = ids
    return truth


def in_order(allocation: Allocation) -> dict[str, dict[str, list[str]]]:
    """Returns the allocation in a fixed order, for comparison."""
    return {c: {r: sorted(ids) for r, ids in sets.items()} for c, sets in allocation.items() if sets}


def devices_text(allocation: Allocation) -> str:
    """Returns text for people: "main: nvidia.com/gpu GPU-1, GPU-2"."""
    said = [
        f"{container}: {resource} {', '.join(ids)}"
        for container, sets in allocation.items()
        for resource, ids in sets.items()
    ]
    return "; ".join(said) or "nothing"


def listing_patch(info: PodInfo, allocation: Allocation, *, in_labels: bool) -> PatchPod:
    """Returns the patch after which the pod lists exactly these devices."""
    meta = info.pod.metadata
    notes: dict[str, str | None] = {key: None for key in sorted(meta.annotations or {}) if is_device_key(key)}
    labels: dict[str, str | None] = dict.fromkeys(sorted(allocated_labels(meta.labels)))
    if in_labels and fits_labels(allocation):
        labels |= allocation_labels(allocation)
    else:
        notes |= allocation_annotations(allocation, by_container=info.template.by_container)
    cause_id = info.group.cause_id if info.group else ""
    return PatchPod(info.uid, meta.namespace, meta.name, meta.resource_version, notes, cause_id, labels)


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
