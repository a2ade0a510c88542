"""Racks, blocks, and gangs that have to be in one: what scenarios about topology are built of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.lab.sim.objects import make_node, make_pod, make_pod_group
from gangsched.model.objects import (
    Affinity,
    CustomObject,
    LabelSelector,
    Node,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    SchedulingGroup,
)
from gangsched.model.stated.topology import TOPOLOGY_KEY
from tests.support.scenario import Cluster, with_annotations

RACK, BLOCK, ZONE = "topology.example.com/rack", "topology.example.com/block", "topology.example.com/zone"
HOST = "kubernetes.io/hostname"
ONE_RACK = f"required: {RACK}"


def node(name: str, *, gpus: int = 8, **labels: str) -> Node:
    """A node with `rack=`, `block=`, `zone=` as its labels, and its own name."""
    keys = {"rack": RACK, "block": BLOCK, "zone": ZONE}
    made = make_node(name, gpus=gpus)
    own = {HOST: name, **{keys[key]: value for key, value in labels.items()}}
    return replace(made, metadata=replace(made.metadata, labels=own))


def racks(**sizes: int | Sequence[int]) -> Cluster:
    """racks(a=2, b=(4, 8)): two nodes a0, a1 of eight devices, b0 of four and b1 of eight."""
    c = Cluster(Settings(topology_key=RACK))
    for rack, size in sizes.items():
        for i, gpus in enumerate((8,) * size if isinstance(size, int) else size):
            c.node(node(f"{rack}{i}", gpus=gpus, rack=rack))
    return c


def within(topology: str, pods: list[Pod]) -> list[Pod]:
    return with_annotations(pods, {TOPOLOGY_KEY: topology})


def where(c: Cluster, group: str, key: str = RACK) -> list[str]:
    """The domains that the group's bound pods are in."""
    names = [p.spec.node_name for p in c.pods.values() if p.metadata.name.startswith(f"{group}-")]
    return sorted({(c.nodes[name].metadata.labels or {}).get(key, "none") for name in names if name})


def core_gang(name: str, *, pods: int, keys: Iterable[str] = (RACK,)) -> CustomObject:
    return make_pod_group(
        name,
        spec={
            "schedulingPolicy": {"gang": {"minCount": pods}},
            "schedulingConstraints": {"topology": [{"key": key} for key in keys]},
        },
    )


def core_pods(name: str, *, pods: int, gpus: int, own: Mapping[str, str] | None = None) -> list[Pod]:
    made = [make_pod(f"{name}-{k}", gpus=gpus, annotations=own) for k in range(pods)]
    return [replace(p, spec=replace(p.spec, scheduling_group=SchedulingGroup(name))) for p in made]


def levels(sizes: Mapping[str, Mapping[str, int]]) -> Cluster:
    """Blocks of racks of so many nodes."""
    c = Cluster(Settings(topology_key=RACK))
    for block, inside in sizes.items():
        for rack, n in inside.items():
            for i in range(n):
                c.node(node(f"{rack}-{i}", rack=rack, block=block, zone=block[0]))
    return c


def apart(pods: list[Pod]) -> list[Pod]:
    """No two of them on one node."""
    return _with_rule(pods, Affinity(pod_anti_affinity=_about(HOST)))


def beside(pods: list[Pod]) -> list[Pod]:
    """All of them in one rack, since each wants to be near one of them."""
    return _with_rule(pods, Affinity(pod_affinity=_about(RACK)))


def _about(key: str) -> PodAffinity:
    term = PodAffinityTerm(label_selector=LabelSelector(match_labels={"app": "x"}), topology_key=key)
    return PodAffinity(required_during_scheduling_ignored_during_execution=[term])


def _with_rule(pods: list[Pod], rule: Affinity) -> list[Pod]:
    return [
        replace(
            p,
            metadata=replace(p.metadata, labels={**(p.metadata.labels or {}), "app": "x"}),
            spec=replace(p.spec, affinity=rule),
        )
        for p in pods
    ]


def full(c: Cluster, /, **priorities: int) -> Cluster:
    """A pod of eight devices on every node of these racks, of that priority."""
    for rack, priority in priorities.items():
        for name in [n for n in c.nodes if n.startswith(rack)]:
            pod = make_pod(f"old-{name}", gpus=8, priority=priority, scheduler="other")
            c.submit(replace(pod, spec=replace(pod.spec, node_name=name)))
    return c
