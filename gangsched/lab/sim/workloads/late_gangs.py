"""Workloads of gangs that hold room and wait: for groups and members that come late or never, and for victims
that take longer to go than any gang waits.

Beside them, pods and gangs that could use the room which is held. Not here: how long it may be held
(lab.sim.judges.gangs.waits).
"""

from __future__ import annotations

import json
from random import Random

from msgspec.structs import replace

from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.lab.sim.workloads.arrivals import Arrival, Workload
from gangsched.lab.sim.world.actors import CONTROLLED_KEY, RUN_KEY
from gangsched.lab.sim.world.api import GRACE_KEY
from gangsched.model.objects import Pod
from gangsched.model.pod_group import GROUPS_KEY, TIMEOUT_KEY, TOTAL_MEMBERS_KEY

_N_ARRIVALS = 14
_OVER_S = 40.0


def late_workload(seed: int) -> Workload:
    """A small cluster, too small for all that come."""
    rng = Random(f"{seed}-late")
    n_nodes = rng.randint(2, 4)
    nodes = tuple(make_node(f"n{i}", gpus=8, listed=rng.random() < 0.85) for i in range(n_nodes))
    arrivals: list[Arrival] = []
    while len(arrivals) < _N_ARRIVALS:
        at_s = _OVER_S * len(arrivals) / _N_ARRIVALS * rng.uniform(0.8, 1.2)
        kind = rng.choices((_set, _total, _plain), (3, 3, 5))[0]
        arrivals += kind(rng, f"g{len(arrivals)}", at_s)
    return Workload(nodes, tuple(arrivals))


def _set(rng: Random, name: str, at_s: float) -> list[Arrival]:
    """Two or three groups that start together; the first one comes in time."""
    names = [f"{name}-{i}" for i in range(rng.randint(2, 3))]
    listing = {GROUPS_KEY: json.dumps(names)}
    found = [_gang(rng, names[0], at_s, listing)]
    for one in names[1:]:
        late_s = rng.choice((0.0, rng.uniform(0.0, 8.0), rng.uniform(8.0, 30.0)))
        if rng.random() < 0.9:
            found.append(_gang(rng, one, at_s + late_s, listing))
    return found


def _total(rng: Random, name: str, at_s: float) -> list[Arrival]:
    """A gang that waits for all of its members, of which some come late, one after the other, or never."""
    n = rng.randint(3, 6)
    n_needed = rng.randint(1, n - 1)
    whole = _gang(rng, name, at_s, {TOTAL_MEMBERS_KEY: str(n)}, n=n, n_needed=n_needed, gpus=(1, 1, 2))
    n_first = rng.randint(n_needed, n)
    first, rest = whole.pods[:n_first], whole.pods[n_first:]
    if not rest or rng.random() < 0.15:
        return [replace(whole, pods=first)]
    late_s = rng.choice((rng.uniform(0.5, 6.0), rng.uniform(6.0, 25.0)))
    late = replace(whole, at_s=at_s + late_s, pods=rest, gap_s=rng.choice((0.0, 1.0, 4.0)))
    return [replace(whole, pods=first), late]


def _plain(rng: Random, name: str, at_s: float) -> list[Arrival]:
    """A gang or a pod that waits for no other."""
    n = rng.choice((1, 1, 2, 4))
    return [_gang(rng, name, at_s, {}, n=n, n_needed=n, alone=n == 1)]


def _gang(
    rng: Random,
    name: str,
    at_s: float,
    own: dict[str, str],
    *,
    n: int = 2,
    n_needed: int = 2,
    alone: bool = False,
    gpus: tuple[int, ...] = (1, 2, 4, 8),
) -> Arrival:
    stated = dict(own)
    if rng.random() < 0.7:
        stated[TIMEOUT_KEY] = f"{rng.randint(2, 12)}s"
    if rng.random() < 0.5:
        stated[RUN_KEY] = f"{rng.uniform(2.0, 25.0):.2f}"
    stated[GRACE_KEY] = rng.choice(("0.5", "3", "20", "60"))
    # A pod that takes longer to go than any gang waits, and is replaced, is evicted in vain again and again.
    if float(stated[GRACE_KEY]) < 1.0 or rng.random() < 0.2:
        stated[GRACE_KEY], stated[CONTROLLED_KEY] = "0.5", "true"
    n_gpus, priority = rng.choice(gpus), rng.choice((0, 0, 0, 5, 10))
    grace_s = rng.choice((None, 1, 5))
    pods = []
    for k in range(n):
        group, least = ("", 0) if alone else (name, n_needed)
        made = make_pod(
            f"{name}-{k}", group=group, min_members=least, gpus=n_gpus, priority=priority, annotations=stated
        )
        pods.append(_with_grace(made, grace_s))
    return Arrival(at_s, tuple(pods))


def _with_grace(pod: Pod, grace_s: int | None) -> Pod:
    return replace(pod, spec=replace(pod.spec, termination_grace_period_seconds=grace_s))
