"""A workload for claims: whole-cluster gangs behind a stream of pods that say when they end, or lie."""

from __future__ import annotations

import math
from random import Random

from gangsched.model.objects import Pod
from gangsched.model.walltime import WALLTIME_KEY
from gangsched.sim.actors import RUN_KEY
from gangsched.sim.objects import make_node, make_pod
from gangsched.sim.workloads import Arrival, Workload


def limited_workload(
    seed: int, *, n_arrivals: int = 36, over_s: float = 40.0, longest_s: float = 12.0
) -> Workload:
    """Every pod ends by itself: of ten six state when, two state too little, and two state nothing."""
    rng = Random(f"{seed}-limited")
    n_nodes, gpus = rng.randint(2, 4), 4
    nodes = tuple(make_node(f"n{i}", gpus=gpus, listed=rng.random() < 0.85) for i in range(n_nodes))
    arrivals = []
    for serial in range(n_arrivals):
        is_wide = rng.random() < 0.2
        run_s, luck = rng.uniform(2.0, longest_s), rng.random()
        own = {RUN_KEY: f"{run_s:.2f}"}
        if luck < 0.8:
            own[WALLTIME_KEY] = f"{math.ceil(run_s * 1.2 + 2.0) if luck < 0.6 else 1}s"
        name, n = f"g{serial}", n_nodes if is_wide else rng.choice((1, 1, 2))
        pods = tuple(
            make_pod(
                f"{name}-{k}",
                group=name if n > 1 else "",
                min_members=n if n > 1 else 0,
                gpus=gpus if is_wide else rng.randint(1, gpus),
                priority=rng.choice((0,) * 9 + (5,)) if k == 0 and n == 1 else 0,
                annotations=own,
            )
            for k in range(n)
        )
        arrivals.append(Arrival(over_s * serial / n_arrivals * rng.uniform(0.8, 1.2), pods))
    return Workload(nodes, tuple(arrivals))


def stated_s(pod: Pod) -> float:
    """What a pod of this workload states; inf: nothing."""
    text = (pod.metadata.annotations or {}).get(WALLTIME_KEY, "")
    return float(text.removesuffix("s")) if text.endswith("s") and text[:-1].isdecimal() else math.inf
