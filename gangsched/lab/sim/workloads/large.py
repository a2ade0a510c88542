"""Workloads that are large in one way: gangs of thousands, and sets of groups that list one another.

Few arrivals, many pods: a seed takes seconds, so only a few seeds are run. Not here: small and mixed clusters
(lab.sim.workloads.arrivals).
"""

from __future__ import annotations

import json
from random import Random

from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.lab.sim.workloads.arrivals import Arrival, Workload, random_workload
from gangsched.lab.sim.world.actors import RUN_KEY
from gangsched.model.pod_group import GROUPS_KEY

_PODS_A_NODE = 110


def large_gang_workload(seed: int) -> Workload:
    """Returns a gang of 1,000 to 2,000 pods, which fits or does not by a node or two, among a few small
    ones."""
    rng = Random(f"{seed}-crowd")
    n = rng.randint(1000, 2000)
    n_nodes = -(-n // _PODS_A_NODE) + rng.choice((-1, 0, 1, 2))
    own = {RUN_KEY: "20"} if rng.random() < 0.5 else {}
    least = n if rng.random() < 0.6 else rng.randint(n // 2, n)
    crowd = tuple(
        make_pod(f"crowd-{k}", group="crowd", min_members=least, gpus=0, cpu="500m", annotations=own)
        for k in range(n)
    )
    few = random_workload(seed, n_arrivals=3, over_s=10.0)
    nodes = (*few.nodes, *(make_node(f"c{i}", gpus=0) for i in range(n_nodes)))
    gap_s = rng.choice((0.0, 0.001))
    return Workload(nodes, (*few.arrivals, Arrival(2.0, crowd, gap_s=gap_s)))


def linked_groups_workload(seed: int) -> Workload:
    """Returns sets of 3 to 90 groups of one pod that list their neighbours: up to 64 start together."""
    rng = Random(f"{seed}-web")
    nodes = tuple(make_node(f"n{i}") for i in range(rng.randint(4, 14)))
    arrivals: list[Arrival] = []
    for web in range(rng.randint(1, 3)):
        k, reach = rng.choice((3, 8, 20, 64, 65, 90)), rng.choice((1, 1, 2, 31))
        is_ring = rng.random() < 0.5
        names = [f"w{web}-{i}" for i in range(k)]
        for i, name in enumerate(names):
            near = range(i - reach, i + reach + 1)
            listed = {names[j % k] for j in near} if is_ring else {names[j] for j in near if 0 <= j < k}
            own = {GROUPS_KEY: json.dumps(sorted(listed)), RUN_KEY: f"{rng.uniform(2.0, 9.0):.2f}"}
            gpus = rng.choice((0, 0, 1))
            pod = make_pod(f"{name}-0", group=name, min_members=1, gpus=gpus, annotations=own)
            arrivals.append(Arrival(rng.uniform(0.5, 12.0), (pod,)))
    return Workload(nodes, tuple(arrivals))
