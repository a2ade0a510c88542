"""Part of `bench --core`: how long one search for victims lasts on 5,000 full nodes.

No victim goes: the pods that need room are deleted again before that. Run by core_speed.
"""

from __future__ import annotations

import time
from random import Random
from statistics import median
from typing import Any

import msgspec

from gangsched.config import default_config
from gangsched.core.scheduler import Scheduler
from gangsched.errors import GangschedError
from gangsched.lab.bench.rounds.workload import node, node_name
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Pod
from gangsched.model.pod_group import GROUP_LABEL, MIN_MEMBERS_KEY
from gangsched.plugins import IN_TREE, build_profiles

N_NODES = 5000
N_MEMBERS = 8
_GPUS = 8
_N_ROUNDS = 5
_GPU = "nvidia.com/gpu"
_RACK = "topology.kubernetes.io/rack"
_APP = {"app": "asks"}
_PREEMPTED = "Preempted"
_ONE_A_RACK = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": _RACK, "labelSelector": {"matchLabels": _APP}}
        ]
    }
}


class VictimsSpeed(msgspec.Struct):
    """Milliseconds of the whole turn: medians of each case."""

    lone_ms: float
    gang_ms: float
    one_a_rack_ms: float

    @property
    def longest_ms(self) -> float:
        return max(self.lone_ms, self.gang_ms, self.one_a_rack_ms)


def measure(n_nodes: int = N_NODES) -> VictimsSpeed:
    """Measures in this process."""
    scheduler = _full(n_nodes)
    whole = {_GPU: str(_GPUS)}
    return VictimsSpeed(
        _turn_ms(scheduler, "lone", 1, {_GPU: "2"}),
        _turn_ms(scheduler, "gang", N_MEMBERS, whole),
        _turn_ms(scheduler, "racks", N_MEMBERS, whole, affinity=_ONE_A_RACK),
    )


def _full(n_nodes: int) -> Scheduler:
    config = default_config(IN_TREE)
    scheduler = Scheduler(build_profiles(config), config.settings, node_capacity=n_nodes)
    scheduler.handle([ev.NodeAdded(node(i, _GPUS)) for i in range(n_nodes)], 0.0)
    rng = Random(1)
    for i in range(n_nodes):
        pods = [
            _pod(f"v{i}-{k}", {_GPU: "1"}, priority=rng.choice((0, 1, 2, 5)), nodeName=node_name(i))
            for k in range(_GPUS)
        ]
        scheduler.handle([ev.PodAdded(pod) for pod in pods], 0.0)
    scheduler.handle([ev.KindSynced(kind) for kind in scheduler.kinds], 0.0)
    return scheduler


def _turn_ms(scheduler: Scheduler, name: str, n_pods: int, requests: dict[str, str], **spec: Any) -> float:
    lasted = []
    for number in range(_N_ROUNDS + 1):
        group = f"{name}{number}"
        metadata: dict[str, Any] = {"labels": dict(_APP)}
        if n_pods > 1:
            metadata["labels"][GROUP_LABEL] = group
            metadata["annotations"] = {MIN_MEMBERS_KEY: str(n_pods)}
        pods = [_pod(f"{group}-{k}", requests, 100, metadata, **spec) for k in range(n_pods)]
        scheduler.handle([ev.PodAdded(pod) for pod in pods], 1.0)
        began_s = time.perf_counter()
        effects = scheduler.schedule_next(1.0) or []
        lasted.append((time.perf_counter() - began_s) * 1000)
        # The same victims may be chosen each time, and are not asked to go again within seconds.
        if not any(isinstance(effect, ef.RecordEvent) and effect.reason == _PREEMPTED for effect in effects):
            raise GangschedError(f"nobody goes for {group}")
        scheduler.handle([ev.PodDeleted(pod) for pod in pods], 1.0)
    return median(lasted[1:])


def _pod(
    name: str,
    requests: dict[str, str],
    priority: int,
    metadata: dict[str, Any] | None = None,
    **spec: Any,
) -> Pod:
    resources = {"requests": {"cpu": "100m", "memory": "128Mi", **requests}}
    own = {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1", **(metadata or {})}
    container = {"name": "main", "image": "task", "resources": resources}
    scheduler = "gangsched" if "nodeName" not in spec else "another"
    whole = {"schedulerName": scheduler, "priority": priority, "containers": [container], **spec}
    return msgspec.convert({"metadata": own, "spec": whole}, Pod)
