"""Workloads for claims and walltimes: whole-cluster gangs behind pods that state, or misstate, when they
end."""

from __future__ import annotations

import math
from random import Random

from msgspec.structs import replace

from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.lab.sim.workloads.arrivals import Arrival, Edit, Workload
from gangsched.lab.sim.world.actors import CONTROLLED_KEY, RUN_KEY
from gangsched.model.walltime import WALLTIME_KEY


def walltimes_workload(
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


def overtime_workload(seed: int) -> Workload:
    """As walltimes_workload, but three in ten of those that state an end never end; some state a longer time
    later.

    One gang that never ends is recreated whenever it is gone.
    """
    workload, rng = walltimes_workload(seed, longest_s=60.0), Random(f"{seed}-overtime")
    arrivals: list[Arrival] = []
    edits = []
    is_made_again = False
    for one in workload.arrivals:
        own = dict(one.pods[0].metadata.annotations or {})
        if WALLTIME_KEY in own and rng.random() < 0.3:
            del own[RUN_KEY]
            own[WALLTIME_KEY] = f"{rng.randint(1, 20)}s"
            if len(one.pods) > 1 and not is_made_again:
                own[CONTROLLED_KEY], is_made_again = "true", True
        if WALLTIME_KEY in own and rng.random() < 0.5:
            names = tuple(pod.metadata.name for pod in one.pods)
            at_s, text = one.at_s + rng.uniform(5.0, 50.0), f"{rng.randint(40, 120)}s"
            edits.append(Edit(at_s, names, WALLTIME_KEY, text))
        pods = (replace(pod, metadata=replace(pod.metadata, annotations=own)) for pod in one.pods)
        arrivals.append(replace(one, pods=tuple(pods)))
    return Workload(workload.nodes, tuple(arrivals), tuple(edits))
