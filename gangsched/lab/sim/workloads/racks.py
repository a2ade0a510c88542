"""Workloads of gangs that require, or prefer, to be in one rack or block, on small clusters of both.

Everything else is drawn as in lab.sim.workloads.arrivals; half of the seeds have a cluster that is too small,
and priorities.
"""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from gangsched.lab.sim.objects import RACK, make_node
from gangsched.lab.sim.workloads.arrivals import Arrival, Workload, preempting_workload, random_workload
from gangsched.lab.sim.world.api import GRACE_KEY
from gangsched.model.objects import CustomObject, Node, Pod
from gangsched.model.stated.topology import TOPOLOGY_KEY

BLOCK = "topology.example.com/block"
_LONG_GRACE = "20"
_TOPOLOGIES = (
    f"required: {RACK}",
    f"required: {RACK}",
    f"required: {BLOCK}",
    f"preferred: {RACK}",
    f"required: {BLOCK}, preferred: {RACK}",
    f"preferred: {BLOCK}, preferred: {RACK}",
    f"required: {BLOCK}, required: {RACK}",
)


def topology_workload(seed: int) -> Workload:
    """Racks of one to three nodes in two blocks, some nodes without a label; most gangs ask for one."""
    rng = Random(f"{seed}-racks")
    drawn = preempting_workload(seed, stubborn=False) if rng.random() < 0.5 else random_workload(seed)
    nodes = tuple(_node(rng, i) for i in range(rng.randint(3, 8)))
    return Workload(nodes, tuple(_asking(rng, arrival) for arrival in drawn.arrivals))


def _node(rng: Random, i: int) -> Node:
    rack = rng.randrange(4)
    made = make_node(f"n{i}", gpus=8, listed=rng.random() < 0.85)
    labels = {RACK: f"r{rack}", BLOCK: f"b{rack // 2}"}
    if rng.random() < 0.15:
        del labels[rng.choice((RACK, BLOCK))]
    return replace(made, metadata=replace(made.metadata, labels=labels))


def _asking(rng: Random, arrival: Arrival) -> Arrival:
    if rng.random() < 0.25:
        return arrival
    if arrival.dialect == "core" and arrival.group is not None and rng.random() < 0.5:
        return replace(arrival, group=_constrained(arrival.group))
    topology = rng.choice(_TOPOLOGIES)
    return replace(arrival, pods=tuple(_annotated(pod, topology) for pod in arrival.pods))


def _constrained(group: CustomObject) -> CustomObject:
    return replace(group, spec={**(group.spec or {}), "schedulingConstraints": {"topology": [{"key": RACK}]}})


def _annotated(pod: Pod, topology: str) -> Pod:
    own = {**(pod.metadata.annotations or {}), TOPOLOGY_KEY: topology}
    if (
        own.get(GRACE_KEY) == _LONG_GRACE
    ):  # with so much lost here it would stay half bound for longer than the limit
        own[GRACE_KEY] = "3"
    return replace(pod, metadata=replace(pod.metadata, annotations=own))
