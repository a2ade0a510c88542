"""A pod's devices by kubelet's report: values, comparisons, and the patch that writes them.

Called by core.device_audit.drift for live pods and core.device_audit.ended_pods for ended ones.
"""

from __future__ import annotations

from collections.abc import Mapping

from gangsched.core.types.group import PodInfo
from gangsched.model.devices.annotations import allocation_annotations, is_device_key
from gangsched.model.devices.labels import allocated_labels, allocation_labels, fits_labels
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
