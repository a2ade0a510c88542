"""Workloads of gangs in other systems' dialects, with roles, and of pods with constraints on their devices.

Everything else is drawn as in lab.sim.workloads.arrivals. Lives here: the dialects of Volcano, KAI,
Koordinator and YuniKorn, and the lightweight one; nodes of three makes. Not here: what they mean
(lab.sim.reading.roles, lab.sim.reading.documents, lab.sim.judges.places.asked_devices).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from random import Random
from typing import Any

from msgspec.structs import replace

from gangsched.lab.sim.objects import GPU, MACHINE_KEY, MACHINES, inventory, make_pod_group
from gangsched.lab.sim.workloads.arrivals import Arrival, Workload, random_workload
from gangsched.model.devices.annotations import INVENTORY_KEY
from gangsched.model.devices.constraints import CONSTRAINTS_KEY
from gangsched.model.devices.required_ids import REQUIRE_IDS_KEY
from gangsched.model.dialects import kai, koordinator, lightweight, volcano, yunikorn
from gangsched.model.objects import Node, Pod
from gangsched.model.pod_group import GROUP_LABEL, GROUPS_KEY, MIN_MEMBERS_KEY, TIMEOUT_KEY, TOTAL_MEMBERS_KEY

_ROLES = ("driver", "worker")
_OURS = frozenset((MIN_MEMBERS_KEY, TOTAL_MEMBERS_KEY, TIMEOUT_KEY, GROUPS_KEY))
_ASKED: tuple[Mapping[str, Any], ...] = (
    *({"sameNUMA": True}, {"linked": True}, {"linked": "NV4", "sameNUMA": True}, {"linked": "NODE"}),
    *({"model": ["H100", "A100"]}, {"model": "a100-sxm4", "minMemory": "39Gi"}, {"minMemory": "20Gi"}),
)


def dialects_workload(seed: int) -> Workload:
    """Nodes of several makes, some without a list; most gangs in one of the other systems' dialects."""
    rng = Random(f"{seed}-wordings")
    drawn = random_workload(seed)
    nodes = tuple(_made(rng, node) for node in drawn.nodes)
    return Workload(nodes, tuple(_in_dialect(rng, arrival) for arrival in drawn.arrivals))


def _made(rng: Random, node: Node) -> Node:
    meta = node.metadata
    machine = rng.choice(("", *MACHINES, *MACHINES))
    own = dict(meta.annotations or {})
    if INVENTORY_KEY in own:
        own[INVENTORY_KEY] = inventory(meta.name, 8, machine=machine)
    labels = {**(meta.labels or {}), MACHINE_KEY: machine}
    return replace(node, metadata=replace(meta, annotations=own, labels=labels))


def _in_dialect(rng: Random, arrival: Arrival) -> Arrival:
    asked = {}
    if rng.random() < 0.5:
        asked[CONSTRAINTS_KEY] = json.dumps({GPU: rng.choice(_ASKED)})
    if rng.random() < 0.2:
        asked[REQUIRE_IDS_KEY] = rng.choice(("true", GPU))
    if asked:
        arrival = replace(arrival, pods=tuple(_marked(pod, annotations=asked) for pod in arrival.pods))
    labels = arrival.pods[0].metadata.labels or {}
    if GROUP_LABEL not in labels or rng.random() < 0.2:
        return arrival  # alone, or in words that lab.sim.workloads.arrivals has
    word = rng.choice((_volcano, _kai, _koordinator, _yunikorn, _lightweight))
    return word(rng, labels[GROUP_LABEL], replace(arrival, pods=tuple(_unnamed(p) for p in arrival.pods)))


def _volcano(rng: Random, name: str, arrival: Arrival) -> Arrival:
    members, minima = _cast(rng, arrival, volcano.TASK_SPEC)
    needed = sum(minima.values())
    spec: dict[str, Any] = {"minMember": rng.randint(needed, len(members)), "minTaskMember": minima}
    if rng.random() < 0.3:
        spec = {"minMember": rng.randint(1, len(members))}
    item = make_pod_group(name, spec=spec)
    pods = tuple(_marked(pod, annotations={volcano.GROUP_NAME: name}) for pod in members)
    return replace(arrival, pods=pods, group=item, dialect="volcano")


def _kai(rng: Random, name: str, arrival: Arrival) -> Arrival:
    members, minima = _cast(rng, arrival, kai.SUBGROUP, as_label=True)
    listed: list[dict[str, Any]] = [{"name": role, "minMember": n} for role, n in minima.items()]
    if rng.random() < 0.5:  # below another, whose own number does not count
        listed = [{**one, "parent": "all"} for one in listed] + [{"name": "all", "minMember": 1}]
    item = make_pod_group(name, spec={"minMember": 1, "subGroups": listed})
    pods = tuple(_marked(pod, annotations={kai.POD_GROUP_NAME: name}) for pod in members)
    return replace(arrival, pods=pods, group=item, dialect="kai")


def _yunikorn(rng: Random, name: str, arrival: Arrival) -> Arrival:
    members, minima = _cast(rng, arrival, yunikorn.TASK_GROUP_NAME)
    groups = json.dumps([{"name": role, "minMember": n} for role, n in minima.items()])
    own = {yunikorn.APP_ID: name, yunikorn.TASK_GROUPS: groups}
    return replace(arrival, pods=tuple(_marked(pod, annotations=own) for pod in members))


def _koordinator(rng: Random, name: str, arrival: Arrival) -> Arrival:
    own = {koordinator.NAME: name, koordinator.MIN: str(rng.randint(1, len(arrival.pods)))}
    return replace(arrival, pods=tuple(_marked(pod, annotations=own) for pod in arrival.pods))


def _lightweight(rng: Random, name: str, arrival: Arrival) -> Arrival:
    own = {lightweight.NAME: name, lightweight.MIN: str(rng.randint(1, len(arrival.pods)))}
    return replace(arrival, pods=tuple(_marked(pod, labels=own) for pod in arrival.pods))


def _cast(
    rng: Random, arrival: Arrival, key: str, *, as_label: bool = False
) -> tuple[list[Pod], dict[str, int]]:
    """The pods with a role each, and how many of each role are needed."""
    roles = [rng.choice(_ROLES) for _ in arrival.pods]
    minima = {role: rng.randint(1, roles.count(role)) for role in dict.fromkeys(roles)}
    marks = "labels" if as_label else "annotations"
    pods = [_marked(pod, **{marks: {key: role}}) for pod, role in zip(arrival.pods, roles, strict=True)]
    return pods, minima


def _marked(
    pod: Pod, *, annotations: Mapping[str, str] | None = None, labels: Mapping[str, str] | None = None
) -> Pod:
    meta = pod.metadata
    own = {**(meta.annotations or {}), **(annotations or {})}
    return replace(
        pod, metadata=replace(meta, annotations=own, labels={**(meta.labels or {}), **(labels or {})})
    )


def _unnamed(pod: Pod) -> Pod:
    """Returns the pod without what our own dialect states of its gang."""
    meta = pod.metadata
    own = {key: text for key, text in (meta.annotations or {}).items() if key not in _OURS}
    labels = {key: text for key, text in (meta.labels or {}).items() if key != GROUP_LABEL}
    return replace(pod, metadata=replace(meta, annotations=own, labels=labels))
