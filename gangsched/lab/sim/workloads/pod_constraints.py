"""Workloads of pods with constraints on their node and neighbours, on nodes whose labels and taints change.

Selectors, node affinity, tolerations, affinity and anti-affinity, topology spread, host ports: each gang of a
kind, or only some of its members. Everything else is drawn as in lab.sim.workloads.arrivals; half of the
seeds have a cluster that is too small, and priorities. Not here: what the constraints mean
(lab.sim.judges.places.pod_constraints).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from gangsched.lab.sim.objects import STRANGER, make_pod
from gangsched.lab.sim.timeline import Timeline
from gangsched.lab.sim.workloads.arrivals import Arrival, Workload, preempting_workload, random_workload
from gangsched.lab.sim.world.api import SimApi
from gangsched.model.objects import ContainerPort, Node, Pod, PodSpec, Taint

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
_DISK, _SLOTS, _APP, _TEAM = "disk", "slots", "app", "team"
_APPS = ("a", "b", "c")
_EFFECTS = ("NoSchedule", "NoSchedule", "PreferNoSchedule", "NoExecute")
_TAINT_KEY = "dedicated"
_PORTS = (8080, 8080, 9090)
Constraints = dict[str, Any]
"""Fields of a pod's spec, as JSON."""


class NodeEdit(msgspec.Struct, frozen=True):
    """Changes a node's labels at a time, and sets its taints; None: the label goes, or the taints stay."""

    at_s: float
    name: str
    labels: dict[str, str | None]
    taints: tuple[Taint, ...] | None = None

    def happen(self, api: SimApi, timeline: Timeline) -> None:
        node = api.nodes.get(self.name)
        if node is None:
            return
        merged = {**(node.metadata.labels or {}), **self.labels}
        labels = {key: text for key, text in merged.items() if text is not None}
        spec = node.spec if self.taints is None else replace(node.spec, taints=list(self.taints))
        api.put_node(replace(node, metadata=replace(node.metadata, labels=labels), spec=spec))


class Neighbour(msgspec.Struct, frozen=True):
    """Another scheduler's pod, which lands on a node, and leaves it later."""

    at_s: float
    pod: Pod
    stays_s: float

    def happen(self, api: SimApi, timeline: Timeline) -> None:
        meta = replace(self.pod.metadata, creation_timestamp=api.wall_time())
        pod = replace(self.pod, metadata=meta)
        api.create_pod(pod)
        timeline.after(self.stays_s, partial(api.delete_pod, pod))


def constrained_workload(seed: int) -> Workload:
    """Nodes in up to three zones, some tainted or without labels, and pods of which most have constraints."""
    rng = Random(f"{seed}-choosy")
    drawn = preempting_workload(seed, stubborn=False) if rng.random() < 0.5 else random_workload(seed)
    nodes = tuple(_node(rng, node) for node in drawn.nodes)
    arrivals = tuple(_constrained(rng, arrival) for arrival in drawn.arrivals)
    changes = [_change(rng, nodes) for _ in range(rng.randint(0, 10))]
    neighbours = [_neighbour(rng, nodes, k) for k in range(rng.randint(0, 5))]
    return Workload(nodes, arrivals, (*drawn.intrusions, *changes, *neighbours))


# -- nodes -----------------------------------------------------------------------------------------------


def _node(rng: Random, node: Node) -> Node:
    meta = node.metadata
    labels: dict[str, str] = {**(meta.labels or {}), HOSTNAME: meta.name}
    labels |= {key: text for key, text in _labels(rng).items() if text is not None}
    spec = replace(node.spec, taints=list(_taints(rng)) if rng.random() < 0.25 else None)
    return replace(node, metadata=replace(meta, labels=labels), spec=spec)


def _labels(rng: Random) -> dict[str, str | None]:
    return {
        ZONE: rng.choice(("z0", "z0", "z1", "z1", "z2", None)),
        _DISK: rng.choice(("ssd", "ssd", "hdd", None)),
        _SLOTS: rng.choice(("2", "4", "16", "many", None)),
    }


def _taints(rng: Random) -> tuple[Taint, ...]:
    return (Taint(_TAINT_KEY, rng.choice(("x", "y")), rng.choice(_EFFECTS)),)


def _change(rng: Random, nodes: tuple[Node, ...]) -> NodeEdit:
    at_s, name = rng.uniform(0.0, 38.0), rng.choice(nodes).metadata.name
    kind = rng.random()
    if kind < 0.3:
        return NodeEdit(at_s, name, {}, _taints(rng) if rng.random() < 0.5 else ())
    drawn = _labels(rng)
    key = rng.choice((ZONE, _DISK, _SLOTS))
    return NodeEdit(at_s, name, {key: drawn[key]})


def _neighbour(rng: Random, nodes: tuple[Node, ...], k: int) -> Neighbour:
    pod = make_pod(f"neighbour-{k}", gpus=0, scheduler=STRANGER, labels={_APP: rng.choice(_APPS)})
    constraints = rng.choice((_nothing, _nothing, _away, _port))(rng, f"neighbour-{k}")
    spec = replace(_with(pod, constraints).spec, node_name=rng.choice(nodes).metadata.name)
    return Neighbour(rng.uniform(0.0, 30.0), replace(pod, spec=spec), rng.uniform(2.0, 25.0))


# -- pods ------------------------------------------------------------------------------------------------


def _constrained(rng: Random, arrival: Arrival) -> Arrival:
    """All members of an app; each, or only the first few, with one or two constraints."""
    first = arrival.pods[0].metadata.name
    name = first.rpartition("-")[0] or first
    labels = {_APP: rng.choice(_APPS), _TEAM: name}
    constraints: Constraints = {}
    for kind in rng.sample(_KINDS, rng.choice((0, 1, 1, 1, 2))):
        constraints = _merged(constraints, kind(rng, name))
    n = (
        len(arrival.pods)
        if rng.random() < 0.75 or _SPREAD in constraints
        else rng.randint(1, len(arrival.pods))
    )
    pods = [_labelled(pod, labels) for pod in arrival.pods]
    return replace(
        arrival, pods=tuple(_with(pod, constraints) if k < n else pod for k, pod in enumerate(pods))
    )


def _labelled(pod: Pod, labels: dict[str, str]) -> Pod:
    return replace(pod, metadata=replace(pod.metadata, labels={**(pod.metadata.labels or {}), **labels}))


def _with(pod: Pod, constraints: Constraints) -> Pod:
    fields = dict(constraints)
    port = fields.pop("port", None)
    read = msgspec.convert(fields, PodSpec)
    spec = replace(
        pod.spec,
        node_selector=read.node_selector,
        affinity=read.affinity,
        tolerations=read.tolerations,
        topology_spread_constraints=read.topology_spread_constraints,
    )
    if port is not None:
        ports = [msgspec.convert(port, ContainerPort)]
        spec = replace(spec, containers=[replace(one, ports=ports) for one in spec.containers])
    return replace(pod, spec=spec)


def _merged(constraints: Constraints, more: Constraints) -> Constraints:
    both = {**constraints, **more}
    if _AFFINITY in constraints and _AFFINITY in more:
        both[_AFFINITY] = {**constraints[_AFFINITY], **more[_AFFINITY]}
    return both


_AFFINITY, _SPREAD = "affinity", "topologySpreadConstraints"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def _nothing(rng: Random, name: str) -> Constraints:
    return {}


def _selector(rng: Random, name: str) -> Constraints:
    return {"nodeSelector": rng.choice(({_DISK: "ssd"}, {_DISK: "hdd"}, {ZONE: "z0"}))}


def _node_affinity(rng: Random, name: str) -> Constraints:
    asked = rng.choice(
        (
            [{"key": ZONE, "operator": "In", "values": ["z0", "z1"]}],
            [{"key": _DISK, "operator": "NotIn", "values": ["hdd"]}],
            [{"key": ZONE, "operator": "Exists"}],
            [{"key": _DISK, "operator": "DoesNotExist"}],
            [{"key": _SLOTS, "operator": "Gt", "values": ["3"]}],
            [{"key": _SLOTS, "operator": "Lt", "values": ["5"]}, {"key": _DISK, "operator": "Exists"}],
        )
    )
    terms: list[Constraints] = [{"matchExpressions": asked}]
    if rng.random() < 0.3:
        other = {"key": "metadata.name", "operator": rng.choice(("In", "NotIn")), "values": ["n1"]}
        terms.append({"matchFields": [other]})
    return {_AFFINITY: {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": terms}}}}


def _tolerant(rng: Random, name: str) -> Constraints:
    one = rng.choice(
        (
            {"key": _TAINT_KEY, "operator": "Equal", "value": "x", "effect": "NoSchedule"},
            {"key": _TAINT_KEY, "operator": "Exists"},
            {"key": _TAINT_KEY, "operator": "Equal", "value": "y"},
            {"operator": "Exists", "effect": "NoSchedule"},
            {"operator": "Exists"},
        )
    )
    return {"tolerations": [one]}


def _term(rng: Random, labels: dict[str, str]) -> Constraints:
    selector: Constraints = {"matchLabels": labels}
    if rng.random() < 0.2:
        (key, value), *_ = labels.items()
        selector = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    return {"topologyKey": rng.choice((HOSTNAME, ZONE, ZONE)), "labelSelector": selector}


def _about(rng: Random, name: str) -> dict[str, str]:
    """Returns the labels that a term selects: those of its own gang, or of an app."""
    return {_TEAM: name} if rng.random() < 0.5 else {_APP: rng.choice(_APPS)}


def _near(rng: Random, name: str) -> Constraints:
    terms = [_term(rng, _about(rng, name)) for _ in range(rng.choice((1, 1, 1, 2)))]
    return {_AFFINITY: {"podAffinity": {_REQUIRED: terms}}}


def _away(rng: Random, name: str) -> Constraints:
    terms = [_term(rng, _about(rng, name)) for _ in range(rng.choice((1, 1, 2)))]
    return {_AFFINITY: {"podAntiAffinity": {_REQUIRED: terms}}}


def _rather(rng: Random, name: str) -> Constraints:
    weighed = [{"weight": rng.randint(1, 100), "podAffinityTerm": _term(rng, _about(rng, name))}]
    return {_AFFINITY: {rng.choice(("podAffinity", "podAntiAffinity")): {_PREFERRED: weighed}}}


def _spread(rng: Random, name: str) -> Constraints:
    """Over the members of its own gang, all of which say the same."""
    found = []
    for key in rng.sample((HOSTNAME, ZONE), rng.choice((1, 1, 2))):
        one: Constraints = {
            "maxSkew": rng.choice((1, 1, 2)),
            "topologyKey": key,
            "whenUnsatisfiable": rng.choice(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")),
            "labelSelector": {"matchLabels": {_TEAM: name}},
        }
        if one["whenUnsatisfiable"] == "DoNotSchedule" and rng.random() < 0.3:
            one["minDomains"] = rng.randint(1, 3)
        if rng.random() < 0.3:
            one["nodeTaintsPolicy"] = rng.choice(("Honor", "Ignore"))
        if rng.random() < 0.3:
            one["nodeAffinityPolicy"] = rng.choice(("Honor", "Ignore"))
        if rng.random() < 0.3:
            one["matchLabelKeys"] = [_APP]
        found.append(one)
    return {_SPREAD: found}


def _port(rng: Random, name: str) -> Constraints:
    port: Constraints = {"containerPort": 80, "hostPort": rng.choice(_PORTS)}
    if rng.random() < 0.3:
        port["protocol"] = "UDP"
    if rng.random() < 0.3:
        port["hostIP"] = rng.choice(("10.0.0.1", "10.0.0.2", "0.0.0.0"))
    return {"port": port}


_KINDS: tuple[Callable[[Random, str], Constraints], ...] = (
    *(_selector, _node_affinity, _tolerant, _near, _away, _rather, _spread, _spread, _port),
)
