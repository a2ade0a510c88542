"""Three teams with queues on a small cluster: workloads, and a scheduler with these queues.

One queue is guaranteed half of the smallest cluster, one a quarter, one nothing. Not here: storms and their
weather (lab.sim.runs.storms), the checker of guarantees (lab.sim.judges.queueing.guarantees).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

from gangsched.config import Settings
from gangsched.core.scheduler import Scheduler
from gangsched.lab.sim.making import config_with, scheduler_of
from gangsched.lab.sim.objects import GPU, make_node, make_pod
from gangsched.lab.sim.reading.documents import pod_asks
from gangsched.lab.sim.reading.received import STARTED_IN_KEY
from gangsched.lab.sim.workloads.arrivals import Arrival, Edit, Workload
from gangsched.lab.sim.world.actors import CONTROLLED_KEY, RUN_KEY
from gangsched.lab.sim.world.api import GRACE_KEY
from gangsched.model.objects import Pod
from gangsched.model.walltime import WALLTIME_KEY

QUEUE_KEY = "gangsched.io/queue"
GUARANTEED: Mapping[str, int] = {"a": 4, "b": 2, "c": 0}
_OURS = """
queueing: {bound: {groups: 2, mode: hard}}
fairness: {halfLife: 20s, compare: [nvidia.com/gpu]}
queues:
- {name: a, share: 2, guaranteed: {nvidia.com/gpu: 4}, namespaces: [d]}
- {name: b, guaranteed: {nvidia.com/gpu: 2}, order: shortest, namespaces: ["d*"]}
- {name: c, namespaces: ["*"]}
"""
_CONFIG = config_with(_OURS)
SETTINGS = _CONFIG.settings


def make_with_queues(settings: Settings, *plugins: Any) -> Scheduler:
    """Assembles the scheduler as it is live with this configuration, with `plugins` after the profile's
    own."""
    return scheduler_of(_CONFIG, settings, *plugins)


def queue_guarantees_workload(seed: int, *, n_arrivals: int = 36, over_s: float = 45.0) -> Workload:
    """Returns a workload of pods that end by themselves; most state when. Some gangs take the whole cluster.

    Some name another queue later, most of them after they have started.
    """
    rng = Random(f"{seed}-teams")
    n_nodes, gpus = rng.randint(2, 4), 4
    nodes = tuple(make_node(f"n{i}", gpus=gpus, listed=rng.random() < 0.85) for i in range(n_nodes))
    arrivals = []
    for serial in range(n_arrivals):
        run_s = rng.uniform(2.0, 15.0)
        own = {RUN_KEY: f"{run_s:.2f}", QUEUE_KEY: rng.choice("aabbccc")}
        if rng.random() < 0.7:
            own[WALLTIME_KEY] = f"{math.ceil(run_s * 1.2 + 2.0)}s"
        if rng.random() < 0.5:
            own[CONTROLLED_KEY] = "true"
        is_wide = rng.random() < 0.15
        name, n = f"g{serial}", n_nodes if is_wide else rng.choice((1, 1, 2, 3))
        each = gpus if is_wide else rng.choice((1, 1, 2, gpus))
        pods = group_pods(rng, name, n, each, own)
        arrivals.append(Arrival(over_s * serial / n_arrivals * rng.uniform(0.8, 1.2), pods))
    return Workload(nodes, tuple(arrivals), tuple(_edits(arrivals, Random(f"{seed}-other-queues"))))


def group_pods(rng: Random, name: str, n: int, gpus: int, annotations: Mapping[str, str]) -> tuple[Pod, ...]:
    """Makes a gang of n, which now and then may start with fewer; or a lone pod, now and then an important
    one."""
    least = rng.randint(1, n) if rng.random() < 0.2 else n
    return tuple(
        make_pod(
            f"{name}-{k}",
            group=name if n > 1 else "",
            min_members=least if n > 1 else 0,
            gpus=gpus,
            priority=rng.choice((0, 0, 0, 5)) if n == 1 else 0,
            annotations=annotations,
        )
        for k in range(n)
    )


def _edits(arrivals: Sequence[Arrival], rng: Random) -> Iterator[Edit]:
    for one in arrivals:
        if rng.random() < 0.2:
            names = tuple(pod.metadata.name for pod in one.pods)
            yield Edit(one.at_s + rng.uniform(0.5, 10.0), names, QUEUE_KEY, rng.choice("abc"))


def queue_of(pod: Pod, sent: str = "") -> str:
    """Returns the pod's queue; without a name, the one that lists its namespace by name. sent: the queue that
    its bind writes, while that is in flight."""
    own = pod.metadata.annotations or {}
    started = sent or (own.get(STARTED_IN_KEY, "") if pod.spec.node_name else "")
    queue = started if started in GUARANTEED else own.get(QUEUE_KEY, "")
    return queue if queue in GUARANTEED else "a"


def gpus_of(pod: Pod) -> int:
    """The devices that it asks for."""
    return pod_asks(pod.spec).get(GPU, 0)


LENDING_GRACES_S = (0.5, 1, 3, 8)


def lending_workload(seed: int, *, n_arrivals: int = 30, over_s: float = 80.0) -> Workload:
    """Pods of the queue without a guarantee stay long and fill the cluster; pods of other queues keep coming.

    Most arrive after the faults have stopped.
    """
    rng = Random(f"{seed}-lending")
    n_nodes, gpus = 3, 4
    nodes = tuple(make_node(f"n{i}", gpus=gpus, listed=rng.random() < 0.85) for i in range(n_nodes))
    arrivals = []
    for serial in range(n_arrivals):
        queue = rng.choice("aabbccc")
        run_s = rng.uniform(25.0, 60.0) if queue == "c" or rng.random() < 0.4 else rng.uniform(2.0, 20.0)
        own = {RUN_KEY: f"{run_s:.2f}", QUEUE_KEY: queue, GRACE_KEY: str(rng.choice(LENDING_GRACES_S))}
        if rng.random() < 0.5:
            own[CONTROLLED_KEY] = "true"
        name, n, each = f"g{serial}", rng.choice((1, 1, 2, 3)), rng.choice((1, 1, 2, gpus))
        pods = group_pods(rng, name, n, each, own)
        arrivals.append(Arrival(over_s * serial / n_arrivals * rng.uniform(0.8, 1.2), pods))
    return Workload(nodes, tuple(arrivals))
