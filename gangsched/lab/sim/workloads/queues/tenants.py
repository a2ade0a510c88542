"""Workloads of several namespaces, whose tenants may not learn of one another.

Not here: the judge of what each of them reads (lab.sim.judges.words.tenants). Called by lab.sim.runs.storms.
"""

from __future__ import annotations

from random import Random
from typing import Any

from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.core.scheduler import Scheduler
from gangsched.lab.sim.making import config_with, scheduler_of
from gangsched.lab.sim.workloads.arrivals import Arrival, Workload, preempting_workload
from gangsched.lab.sim.workloads.queues.guaranteed import lending_workload
from gangsched.lab.sim.workloads.volumes import of_tenant, volumes_workload
from gangsched.lab.sim.workloads.walltimes import walltimes_workload
from gangsched.model.objects import ObjectMeta

NAMESPACES = ("d", "da", "d-team")
_KINDS = (walltimes_workload, lending_workload, preempting_workload)
_OURS = """
queueing: {bound: {groups: 2, mode: hard}}
fairness: {halfLife: 20s, compare: [nvidia.com/gpu]}
queues:
- {name: a, share: 2, guaranteed: {nvidia.com/gpu: 4}, namespaces: [d, da, d-team]}
- {name: b, guaranteed: {nvidia.com/gpu: 2}, namespaces: ["d*"]}
- {name: c, namespaces: ["*"]}
"""
_CONFIG = config_with(_OURS)
SETTINGS = _CONFIG.settings


def tenants_workload(seed: int) -> Workload:
    """Returns another storm's workload in which each arrival is of one of three namespaces."""
    rng = Random(f"{seed}-tenants")
    workload = _KINDS[seed % len(_KINDS)](seed)
    return replace(workload, arrivals=tuple(_moved(one, rng.choice(NAMESPACES)) for one in workload.arrivals))


def storing_workload(seed: int) -> Workload:
    """Returns the volumes' workload in three namespaces, with claims of each namespace's own and disruption
    budgets."""
    rng, workload = Random(f"{seed}-storing"), volumes_workload(seed)
    moved = [_moved(one, rng.choice(NAMESPACES)) for one in workload.arrivals]
    arrivals = tuple(replace(one, pods=tuple(map(of_tenant, one.pods))) for one in moved)
    return replace(workload, arrivals=arrivals)


def make_with_tenants(settings: Settings, *plugins: Any) -> Scheduler:
    """Assembles the scheduler as it is live with this configuration."""
    return scheduler_of(_CONFIG, settings, *plugins)


def _moved(arrival: Arrival, namespace: str) -> Arrival:
    pods = tuple(replace(pod, metadata=_in(pod.metadata, namespace)) for pod in arrival.pods)
    group = arrival.group
    if group is not None:
        group = replace(group, metadata=_in(group.metadata, namespace))
    return replace(arrival, pods=pods, group=group)


def _in(meta: ObjectMeta, namespace: str) -> ObjectMeta:
    return replace(meta, namespace=namespace)
