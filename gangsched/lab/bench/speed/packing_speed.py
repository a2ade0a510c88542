"""Part of `bench --core`: the cost of letting scores steer gangs: packing by weight, and pods' preferences.

Decisions on gangs of 8 on 5,000 nodes, one after the other until some hundred are placed, beside those on the
same gangs that are packed first and prefer nothing. With kube-scheduler's default plugins; with LoadAware on
nodes that all report other loads; and with pods that request bandwidth of links in various use. A process of
its own, run by core_speed: `python -m gangsched.lab.bench.speed.packing_speed NODES GANGS ROUNDS`, which
prints JSON.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import msgspec
from rich.table import Table

from gangsched.config import default_config
from gangsched.core.framework.profile import Profile
from gangsched.core.scheduler import Scheduler
from gangsched.errors import GangschedError
from gangsched.lab.bench.figures import spread
from gangsched.lab.bench.rounds.workload import NAMESPACE, RESOURCE, node
from gangsched.lab.bench.speed.load_speed import measured_node
from gangsched.lab.bench.tables import of_spread
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Pod
from gangsched.model.pod_group import GROUP_LABEL, MIN_MEMBERS_KEY
from gangsched.model.stated.bandwidth import REQUIRED_KEY
from gangsched.model.stated.packing_weight import PACKING_WEIGHT_KEY
from gangsched.plugins import IN_TREE, build_profiles
from gangsched.plugins.resources.load_aware import LoadAware

N_NODES = 5000
SIZE = 8
PLAIN, MEASURED, PROMISED = "default plugins", "LoadAware, weight 5", "pods request bandwidth"
_RACK = "topology.kubernetes.io/rack"


class Kind(msgspec.Struct, frozen=True):
    """A kind of gangs: devices a member, and their other settings; None: packed first, as without the
    setting."""

    gpus: int
    weight: int | None = None
    prefers: bool = False

    @property
    def name(self) -> str:
        """For the table."""
        if self.prefers:
            return "preferred node affinity"
        return "packed first" if self.weight is None else f"packing of weight {self.weight}"


class PackingCost(msgspec.Struct):
    """Microseconds a gang, a value a round."""

    plugins: str
    kind: Kind
    decide_us: list[float]


def ratio(cost: PackingCost, costs: Sequence[PackingCost]) -> float:
    """Its median divided by that of the same gangs, packed first."""
    plain = next(
        one for one in costs if one.plugins == cost.plugins and one.kind == Kind(gpus=cost.kind.gpus)
    )
    return median(cost.decide_us) / median(plain.decide_us)


def table(costs: Sequence[PackingCost]) -> Table:
    """Makes the table, with a row per kind."""
    title = f"gangs of {SIZE} on {N_NODES:,} nodes: CPU of a decision, us, by that of packing first"
    found = Table(title=title, title_justify="left")
    for column in ("scores", "GPUs a member", "", "median (min..max)", "ratio"):
        found.add_column(column, justify="left" if column in ("scores", "") else "right")
    for cost in costs:
        kind, own = cost.kind, spread(cost.decide_us)
        found.add_row(cost.plugins, str(kind.gpus), kind.name, of_spread(own), f"{ratio(cost, costs):.2f}")
    return found


_KINDS = tuple(
    kind
    for gpus in (1, 4, 8)
    for kind in (
        Kind(gpus),
        *(Kind(gpus, weight) for weight in (1, 5, 20)),
        Kind(gpus, prefers=True),
    )
)


def measure(n_nodes: int, n_gangs: int, n_rounds: int) -> list[PackingCost]:
    """Measures in this process."""
    costs: list[PackingCost] = []
    for plugins in (PLAIN, MEASURED, PROMISED):
        scheduler = _loaded(n_nodes, plugins)
        mine = [PackingCost(plugins, kind, []) for kind in _KINDS]
        for number in range(n_rounds + 1):
            for i, cost in enumerate(mine):
                own = _decide_us(scheduler, cost, f"r{number}-{i}", n_gangs)
                if number:  # the first one warms up
                    cost.decide_us.append(own)
        costs += mine
    return costs


def _loaded(n_nodes: int, plugins: str) -> Scheduler:
    config = default_config(IN_TREE)
    profiles = build_profiles(config)
    if plugins == MEASURED:
        profiles = {name: _with_load(profile) for name, profile in profiles.items()}
    scheduler = Scheduler(profiles, config.settings, node_capacity=n_nodes)
    nodes = [node(i, 8) if plugins == PLAIN else measured_node(i) for i in range(n_nodes)]
    scheduler.handle([ev.NodeAdded(one) for one in nodes], 0.0)
    scheduler.handle([ev.KindSynced(kind) for kind in scheduler.kinds], 0.0)
    return scheduler


def _with_load(profile: Profile) -> Profile:
    scores = (*profile.points.scores, (LoadAware(), 5.0))
    return Profile(profile.scheduler_name, msgspec.structs.replace(profile.points, scores=scores))


def _decide_us(scheduler: Scheduler, cost: PackingCost, prefix: str, n_gangs: int) -> float:
    gangs = [[_pod(f"{prefix}-{gang}", rank, cost) for rank in range(SIZE)] for gang in range(n_gangs)]
    for gang in gangs:
        scheduler.handle([ev.PodAdded(pod) for pod in gang], 1.0)
    gc.collect()
    effects: list[ef.Effect] = []
    # Of this process alone: the machine has other work.
    began_s = time.process_time()
    while (answer := scheduler.schedule_next(1.0)) is not None:
        effects += answer
    lasted_s = time.process_time() - began_s
    binds = [effect for effect in effects if isinstance(effect, ef.BindPod)]
    if len(binds) != n_gangs * SIZE:
        raise GangschedError(f"{len(binds)} of {n_gangs * SIZE} pods were placed")
    scheduler.handle([ev.BindSucceeded(bind.uid, bind.attempt) for bind in binds], 1.0)
    scheduler.handle([ev.PodDeleted(pod) for gang in gangs for pod in gang], 1.0)
    return lasted_s * 1e6 / n_gangs


def _pod(group: str, rank: int, cost: PackingCost) -> Pod:
    kind, annotations = cost.kind, {MIN_MEMBERS_KEY: str(SIZE)}
    if cost.plugins == PROMISED:
        annotations[REQUIRED_KEY] = "10MB/s"
    if kind.weight is not None:
        annotations[PACKING_WEIGHT_KEY] = str(kind.weight)
    amounts = {"cpu": "1", "memory": "1Gi", RESOURCE: str(kind.gpus)}
    spec: dict[str, Any] = {
        "schedulerName": "gangsched",
        "containers": [{"name": "main", "resources": {"requests": amounts}}],
    }
    if kind.prefers:
        rule = {"matchExpressions": [{"key": _RACK, "operator": "In", "values": _preferred_racks()}]}
        terms = [{"weight": 100, "preference": rule}]
        spec["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
    name = f"{group}-{rank}"
    metadata = {
        "name": name,
        "namespace": NAMESPACE,
        "uid": name,
        "resourceVersion": "1",
        "labels": {GROUP_LABEL: group},
        "annotations": annotations,
    }
    return msgspec.convert({"metadata": metadata, "spec": spec}, Pod)


def _preferred_racks() -> list[str]:
    """The racks of odd number: half of the cluster."""
    return [f"rack-{number:04d}" for number in range(1, 400, 2)]


def main(arguments: Sequence[str]) -> int:
    """The process."""
    n_nodes, n_gangs, n_rounds = (int(value) for value in arguments)
    sys.stdout.buffer.write(msgspec.json.encode(measure(n_nodes, n_gangs, n_rounds)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
