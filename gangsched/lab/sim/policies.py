"""Workloads whose gangs state what becomes of them when a device fails, or when they are bound in part.

Everything else is drawn as in lab.sim.workloads. Not here: what the statements mean (lab.sim.failed_devices,
lab.sim.partial_binds).
"""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from gangsched.lab.sim.workloads import Arrival, Workload, random_workload
from gangsched.model.objects import ObjectMeta
from gangsched.model.pod_group import ON_DEVICE_FAILURE_KEY, PARTIAL_BIND_KEY

_STATED = {
    ON_DEVICE_FAILURE_KEY: ("", "", "none", "evictMember", "evictGang"),
    PARTIAL_BIND_KEY: ("", "", "complete", "unwind"),
}


def policies_workload(seed: int) -> Workload:
    """As `random_workload`; most arrivals state a policy, on their object if they have one."""
    rng, drawn = Random(f"{seed}-policies"), random_workload(seed)
    return replace(drawn, arrivals=tuple(_stating(rng, arrival) for arrival in drawn.arrivals))


def _stating(rng: Random, arrival: Arrival) -> Arrival:
    stated = {key: text for key, choices in _STATED.items() if (text := rng.choice(choices))}
    if arrival.group is not None:
        group = replace(arrival.group, metadata=_with(arrival.group.metadata, stated))
        return replace(arrival, group=group)
    pods = tuple(replace(pod, metadata=_with(pod.metadata, stated)) for pod in arrival.pods)
    return replace(arrival, pods=pods)


def _with(meta: ObjectMeta, stated: dict[str, str]) -> ObjectMeta:
    return replace(meta, annotations={**(meta.annotations or {}), **stated})
