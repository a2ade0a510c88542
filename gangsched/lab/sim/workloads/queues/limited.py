"""Queues with limits on a small cluster: a workload, and a scheduler with these queues.

Two queues share a limit, one of them has a smaller one of its own too, and a third has none. Wide gangs that
need all of a limit arrive behind streams of small pods that fit below it. Not here: storms and their weather
(lab.sim.runs.storms), the checker of limits (lab.sim.judges.queueing.limits).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import Random

from gangsched.config import Settings
from gangsched.core.scheduler import Scheduler
from gangsched.lab.sim.making import config_with, scheduler_of
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.lab.sim.workloads.arrivals import Arrival, Workload
from gangsched.lab.sim.workloads.queues.guaranteed import QUEUE_KEY
from gangsched.lab.sim.world.actors import CONTROLLED_KEY, RUN_KEY
from gangsched.model.walltime import WALLTIME_KEY

LIMITS: Mapping[str, int] = {"ab": 6, "a": 4}
"""Limits on devices, by queue."""
PATHS: Mapping[str, tuple[str, ...]] = {"a": ("ab", "a"), "b": ("ab",), "c": ()}
"""By queue: the limited queues that its pods count for."""
_OURS = """
queueing: {bound: {groups: 2, mode: hard}}
fairness: {halfLife: 20s, compare: [nvidia.com/gpu]}
queues:
- name: ab
  limit: {nvidia.com/gpu: 6}
  queues:
  - {name: a, limit: {nvidia.com/gpu: 4}, namespaces: [d]}
  - {name: b, namespaces: ["d*"]}
- {name: c, namespaces: ["*"]}
"""
_CONFIG = config_with(_OURS)
SETTINGS = _CONFIG.settings


def make_with_limits(settings: Settings) -> Scheduler:
    """Assembles the scheduler as it is live with this configuration."""
    return scheduler_of(_CONFIG, settings)


def queue_limits_workload(seed: int, *, n_arrivals: int = 32, over_s: float = 30.0) -> Workload:
    """Returns a workload in which every pod ends by itself, and most state when."""
    rng = Random(f"{seed}-capped")
    gpus = 4
    nodes = tuple(make_node(f"n{i}", gpus=gpus, listed=rng.random() < 0.85) for i in range(rng.randint(3, 5)))
    arrivals = []
    for serial in range(n_arrivals):
        run_s, queue = rng.uniform(2.0, 12.0), rng.choice("aaabbbc")
        own = {RUN_KEY: f"{run_s:.2f}", QUEUE_KEY: queue}
        if rng.random() < 0.7:
            own[WALLTIME_KEY] = f"{math.ceil(run_s * 1.2 + 2.0)}s"
        if rng.random() < 0.3:
            own[CONTROLLED_KEY] = "true"
        name, luck = f"g{serial}", rng.random()
        n, each = rng.choice(((1, 1), (1, 1), (1, 2), (2, 1), (3, 1)))
        if luck < 0.15:  # as much as its narrowest limit
            n, each = {"a": (2, 2), "b": (3, 2), "c": (2, 4)}[queue]
        elif luck < 0.18:  # more than that: it never starts
            n, each = 4, 2
        pods = tuple(
            make_pod(
                f"{name}-{k}",
                group=name if n > 1 else "",
                min_members=n if n > 1 else 0,
                gpus=each,
                annotations=own,
            )
            for k in range(n)
        )
        arrivals.append(Arrival(over_s * serial / n_arrivals * rng.uniform(0.8, 1.2), pods))
    return Workload(nodes, tuple(arrivals))
