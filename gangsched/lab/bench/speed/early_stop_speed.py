"""Part of `bench --core`: lone pods on 5,000 nodes, with all nodes scored and with the published early stop.

Run by core_speed.
"""

from __future__ import annotations

import time
from statistics import median

import msgspec

from gangsched.config import default_config
from gangsched.core.scheduler import Scheduler
from gangsched.errors import GangschedError
from gangsched.lab.bench.rounds.workload import node
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Pod
from gangsched.plugins import IN_TREE, build_profiles

N_NODES = 5000
_N_PODS = 300
_REQUESTS = {"cpu": "100m", "memory": "128Mi"}


class EarlyStopSpeed(msgspec.Struct):
    """Medians of deciding one pod, microseconds."""

    all_nodes_us: float
    early_stop_us: float


def measure() -> EarlyStopSpeed:
    """Measures in this process."""
    return EarlyStopSpeed(_decide_us({}), _decide_us({"gangsched": 0}))


def _decide_us(nodes_to_score: dict[str, int]) -> float:
    config = default_config(IN_TREE)
    settings = msgspec.structs.replace(config.settings, nodes_to_score=nodes_to_score)
    scheduler = Scheduler(build_profiles(config), settings, node_capacity=N_NODES)
    scheduler.handle([ev.NodeAdded(node(i, 8)) for i in range(N_NODES)], 0.0)
    scheduler.handle([ev.KindSynced(kind) for kind in scheduler.kinds], 0.0)
    lasted = []
    for number in range(_N_PODS):
        scheduler.handle([ev.PodAdded(_pod(number))], 1.0)
        began_s = time.perf_counter()
        effects = scheduler.schedule_next(1.0) or []
        lasted.append(time.perf_counter() - began_s)
        binds = [effect for effect in effects if isinstance(effect, ef.BindPod)]
        if len(binds) != 1:
            raise GangschedError(f"pod {number} was not placed")
        scheduler.handle([ev.BindSucceeded(binds[0].uid, binds[0].attempt)], 1.0)
    return median(lasted) * 1e6


def _pod(number: int) -> Pod:
    container = {"name": "main", "image": "task", "resources": {"requests": _REQUESTS}}
    metadata = {
        "name": f"p{number}",
        "namespace": "default",
        "uid": f"p{number}",
        "resourceVersion": str(number + 1),
    }
    return msgspec.convert(
        {"metadata": metadata, "spec": {"schedulerName": "gangsched", "containers": [container]}}, Pod
    )
