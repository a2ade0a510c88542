"""Workloads: clusters and what is submitted to them, drawn from a seed.

A workload is a list of arrivals in time, so that a failing one can be cut to its shortest failing prefix.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from gangsched.kube.watch import decode, unparsed
from gangsched.lab.sim.objects import OURS, STRANGER, make_node, make_pod, make_pod_group
from gangsched.lab.sim.timeline import Timeline
from gangsched.lab.sim.workloads.hostile import hostile_node, hostile_pod
from gangsched.lab.sim.world.actors import CONTROLLED_KEY, RUN_KEY
from gangsched.lab.sim.world.api import GRACE_KEY, SimApi
from gangsched.model.objects import CustomObject, Node, ObjectMeta, Pod, SchedulingGroup
from gangsched.model.pod_group import (
    ALL,
    COSCHEDULING_LABEL,
    DISRUPTION_KEY,
    GROUPS_KEY,
    ON_DEVICE_FAILURE_KEY,
    PARTIAL_BIND_KEY,
    SINGLE,
    TIMEOUT_KEY,
    TOTAL_MEMBERS_KEY,
)


class Happening(Protocol):
    """Something that happens at a time."""

    @property
    def at_s(self) -> float: ...

    def happen(self, api: SimApi, timeline: Timeline) -> None:
        """Makes it so."""


class Arrival(msgspec.Struct, frozen=True):
    """Pods (and their group's object) that arrive one after the other, `gap_s` apart."""

    at_s: float
    pods: tuple[Pod, ...]
    group: CustomObject | None = None
    dialect: str = ""
    gap_s: float = 0.0
    ungate_s: float = 0.0

    def happen(self, api: SimApi, timeline: Timeline) -> None:
        for k, pod in enumerate(self.pods):
            timeline.after(k * self.gap_s, partial(_create, api, pod))
            if pod.spec.scheduling_gates:
                timeline.after(k * self.gap_s + self.ungate_s, partial(_ungate, api, pod))
        if self.group is not None:
            api.put_group(self.dialect, self.group)


class Intrusion(msgspec.Struct, frozen=True):
    """An object of lab.sim.workloads.hostile that arrives at a time, is read as the watch reads it, and is
    deleted after a while."""

    at_s: float
    document: dict[str, Any]
    stays_s: float = 1e9

    def happen(self, api: SimApi, timeline: Timeline) -> None:
        kind = decode.nodes() if self.document["kind"] == "Node" else decode.pods()
        raw = json.dumps(self.document).encode("utf-8", "replace")
        try:
            item = kind.decode_object(raw)
        except msgspec.MsgspecError as error:  # which reports no pod
            api.refuse(unparsed.refused(kind.kind, raw, error))
            return
        meta = replace(item.metadata, uid=f"uid-{item.metadata.name}", creation_timestamp=api.wall_time())
        item = replace(item, metadata=meta)
        if isinstance(item, Node):
            api.put_node(item)
            timeline.after(self.stays_s, partial(api.delete_node, meta.name))
        else:
            api.create_pod(item)
            timeline.after(self.stays_s, partial(api.delete_pod, item))


class Edit(msgspec.Struct, frozen=True):
    """Gives pods that exist at a time another text in an annotation."""

    at_s: float
    names: tuple[str, ...]
    key: str
    text: str

    def happen(self, api: SimApi, timeline: Timeline) -> None:
        for name in self.names:
            pod = api.pods.get(("d", name))
            if pod is not None and not pod.is_terminal:
                own = {**(pod.metadata.annotations or {}), self.key: self.text}
                api.update_pod(pod, metadata=replace(pod.metadata, annotations=own))


class Workload(msgspec.Struct, frozen=True):
    """A cluster and its arrivals."""

    nodes: tuple[Node, ...]
    arrivals: tuple[Arrival, ...]
    intrusions: tuple[Happening, ...] = ()

    def prefix(self, n: int) -> Workload:
        """The first n arrivals only."""
        return replace(self, arrivals=self.arrivals[:n])

    def begin(self, api: SimApi, timeline: Timeline) -> None:
        """Makes the nodes, and lets the arrivals come in their time."""
        named = dict.fromkeys(f"podgroups.{one.dialect}" for one in self.arrivals if one.dialect)
        api.serve_groups(kind for kind in named if kind not in api.streams)
        for node in self.nodes:
            api.put_node(node)
        for arrival in self.everything:
            timeline.at(arrival.at_s, partial(arrival.happen, api, timeline))

    @property
    def everything(self) -> tuple[Happening, ...]:
        """All arrivals."""
        return (*self.arrivals, *self.intrusions)

    def without(self, one: Happening) -> Workload:
        """Returns the workload without one of them."""
        arrivals = tuple(other for other in self.arrivals if other is not one)
        intrusions = tuple(other for other in self.intrusions if other is not one)
        return replace(self, arrivals=arrivals, intrusions=intrusions)


def _create(api: SimApi, pod: Pod) -> None:
    stamped = replace(pod.metadata, creation_timestamp=api.wall_time())
    api.create_pod(replace(pod, metadata=stamped))


def _ungate(api: SimApi, pod: Pod) -> None:
    now = api.pods.get((pod.metadata.namespace, pod.metadata.name))
    if now is not None and now.spec.scheduling_gates:
        api.update_pod(now, spec=replace(now.spec, scheduling_gates=None))


def random_workload(seed: int, *, n_arrivals: int = 12, over_s: float = 20.0) -> Workload:
    """A small cluster, mostly full, of gangs of all kinds."""
    rng, words = Random(f"{seed}-workload"), Random(f"{seed}-words")
    nodes = tuple(
        make_node(f"n{i}", gpus=8, rack=f"r{i // 2}", listed=rng.random() < 0.85)
        for i in range(rng.randint(2, 6))
    )
    arrivals: list[Arrival] = []
    while len(arrivals) < n_arrivals:
        at_s = over_s * len(arrivals) / n_arrivals * rng.uniform(0.8, 1.2)
        serial = len(arrivals)
        arrivals += _together(rng, words, serial, at_s) if rng.random() < 0.2 else [_one(rng, serial, at_s)]
    return Workload(nodes, tuple(arrivals))


def hostile_workload(seed: int) -> Workload:
    """Returns random_workload with hostile objects among it: pods of ours, of other schedulers, and nodes."""
    workload, rng = random_workload(seed), Random(f"{seed}-hostile")
    names = [node.metadata.name for node in workload.nodes]
    intrusions: list[Intrusion] = []
    for k in range(rng.randint(2, 8)):
        at_s, stays_s = rng.uniform(0.0, 35.0), rng.choice((1e9, rng.uniform(0.5, 10.0)))
        drawn = rng.random()
        if drawn < 0.5:
            document = hostile_pod(rng, f"hostile-{k}", scheduler=OURS)
        elif (
            drawn < 0.8
        ):  # by another scheduler, which checks nothing; it is deleted later, or nothing would fit
            document = hostile_pod(rng, f"hostile-{k}", scheduler=STRANGER, node=rng.choice(names))
            stays_s = rng.uniform(0.5, 10.0)
        else:
            document = hostile_node(rng, f"hostile-{k}")
        intrusions.append(Intrusion(at_s, document, stays_s))
    return replace(workload, intrusions=tuple(intrusions))


def preempting_workload(
    seed: int, *, stubborn: bool = True, n_arrivals: int = 14, over_s: float = 40.0
) -> Workload:
    """A cluster too small for its arrivals, which have four priorities and rarely end by themselves: late
    ones must take the room of others. With `stubborn` some pods take longer to terminate than any gang waits.
    """
    rng = Random(f"{seed}-preempting")
    nodes = tuple(
        make_node(f"n{i}", gpus=8, rack=f"r{i // 2}", listed=rng.random() < 0.85)
        for i in range(rng.randint(2, 4))
    )
    arrivals = []
    for serial in range(n_arrivals):
        at_s = over_s * serial / n_arrivals * rng.uniform(0.8, 1.2)
        name, gpus = f"g{serial}", rng.choice((1, 2, 4, 4, 8))
        n = 1 if gpus == 8 and rng.random() < 0.5 else rng.randint(1, 4)
        own = {CONTROLLED_KEY: "true"} if rng.random() < 0.5 else {}
        own[GRACE_KEY] = rng.choice(("0.5", "0.5", "3", "20"))
        if stubborn and not own.get(CONTROLLED_KEY) and rng.random() < 0.15:
            own[GRACE_KEY] = "100"
        if rng.random() < 0.2:
            own[RUN_KEY] = f"{rng.uniform(5.0, 40.0):.2f}"
        if rng.random() < 0.3:
            own[DISRUPTION_KEY] = rng.choice((SINGLE, ALL))
        priority = rng.choice((0, 0, 1, 5, 10))
        min_members = n if rng.random() < 0.6 else rng.randint(1, n)
        arrivals.append(Arrival(at_s, _ours(name, n, min_members, gpus, priority, own)))
    return Workload(nodes, tuple(arrivals))


def _one(rng: Random, serial: int, at_s: float) -> Arrival:
    kind = rng.choices(("gang", "lone", "total", "core", "coscheduling", "mixed"), (8, 3, 2, 2, 2, 3))[0]
    name, n, gpus = f"g{serial}", rng.randint(2, 6), rng.choice((0, 1, 2, 2, 4, 8))
    priority = rng.choice((0, 0, 0, 10))
    own = _habits(rng)
    gap_s = rng.choice((0.0, 0.0, 0.01, 0.3))
    if kind == "lone":
        return Arrival(at_s, (make_pod(name, gpus=gpus, priority=priority, annotations=own),))
    if kind in ("core", "coscheduling"):
        pods = _members(name, n, gpus=gpus, priority=priority, own=own)
        return _with_object(kind, name, pods, at_s, gap_s=gap_s)
    if kind == "total":
        own |= {TOTAL_MEMBERS_KEY: str(n), TIMEOUT_KEY: f"{rng.randint(2, 20)}s"}
        return Arrival(at_s, _ours(name, n, rng.randint(1, n), gpus, priority, own), gap_s=gap_s)
    gated = rng.random() < 0.15
    min_members = n if rng.random() < 0.7 else rng.randint(1, n)
    pods = _ours(name, n, min_members, gpus, priority, own, gated=gated)
    if kind == "mixed":
        other = make_pod("x", gpus=rng.choice((0, 1, 2, 4)), cpu="3").spec.containers
        pods = (*pods[1:], replace(pods[0], spec=replace(pods[0].spec, containers=other)))
    return Arrival(at_s, pods, gap_s=gap_s, ungate_s=rng.uniform(0.1, 5.0))


def _together(rng: Random, words: Random, serial: int, at_s: float) -> list[Arrival]:
    """Two to four groups that start together: each names all, or its neighbours in a chain or a ring.

    In some sets each group is stated in a dialect of its own; others exist twice, under the same names in two
    dialects.
    """
    k = rng.randint(2, 4)
    names = [f"g{serial}-{i}" for i in range(k)]
    shape = rng.choice(("all", "chain", "ring"))
    stated = words.choices(("alike", "mixed", "twice"), (10, 6, 3))[0]
    arrivals = []
    for i, name in enumerate(names):
        near = {(i - 1) % k, (i + 1) % k} if shape == "ring" else {j for j in (i - 1, i + 1) if 0 <= j < k}
        listed = names if shape == "all" else [names[j] for j in sorted(near | {i})]
        listing = {GROUPS_KEY: msgspec.json.encode(listed).decode()}
        own, n, gpus = _habits(rng), rng.randint(1, 3), rng.choice((1, 2, 4))
        late_s = rng.uniform(0.0, 6.0)
        dialect = words.choice(("", "core", "coscheduling")) if stated == "mixed" else ""
        if dialect:
            pods = _members(name, n, gpus=gpus, priority=0, own=own)
            arrivals.append(_with_object(dialect, name, pods, at_s + late_s, annotations=listing))
        else:
            arrivals.append(Arrival(at_s + late_s, _ours(name, n, n, gpus, 0, own | listing)))
        if stated == "twice":
            pods = _members(f"{name}-too", n, gpus=gpus, priority=0, own=own)
            late_s = words.uniform(0.0, 6.0)
            arrivals.append(_with_object("core", name, pods, at_s + late_s, annotations=listing))
    return arrivals


def _with_object(
    dialect: str,
    name: str,
    pods: Sequence[Pod],
    at_s: float,
    *,
    annotations: Mapping[str, str] | None = None,
    gap_s: float = 0.0,
) -> Arrival:
    """A gang of all these pods, described by an object in the dialect."""
    spec: dict[str, Any] = {"minMember": len(pods)}
    if dialect == "core":
        spec = {"schedulingPolicy": {"gang": {"minCount": len(pods)}}}
        members = [replace(p, spec=replace(p.spec, scheduling_group=SchedulingGroup(name))) for p in pods]
    else:
        label = {COSCHEDULING_LABEL: name}
        members = [replace(p, metadata=replace(p.metadata, labels=label)) for p in pods]
    item = make_pod_group(name, spec=spec, annotations=annotations)
    return Arrival(at_s, tuple(members), item, dialect, gap_s)


def _habits(rng: Random) -> dict[str, str]:
    """Draws annotations: nearly every lost pod is replaced, and about half of the pods end by themselves."""
    own = {CONTROLLED_KEY: "true"} if rng.random() < 0.8 else {}
    if rng.random() < 0.6:
        own[RUN_KEY] = f"{rng.uniform(1.0, 25.0):.2f}"
    return own


def _ours(
    name: str,
    n: int,
    min_members: int,
    gpus: int,
    priority: int,
    own: Mapping[str, str],
    *,
    gated: bool = False,
) -> tuple[Pod, ...]:
    return tuple(
        make_pod(
            f"{name}-{k}",
            group=name,
            min_members=min_members,
            gpus=gpus,
            priority=priority,
            gated=gated,
            annotations=own,
        )
        for k in range(n)
    )


def _members(name: str, n: int, *, gpus: int, priority: int, own: Mapping[str, str]) -> tuple[Pod, ...]:
    return tuple(make_pod(f"{name}-{k}", gpus=gpus, priority=priority, annotations=own) for k in range(n))


_STATED = {
    ON_DEVICE_FAILURE_KEY: ("", "", "none", "evictMember", "evictGang"),
    PARTIAL_BIND_KEY: ("", "", "complete", "unwind"),
}


def policies_workload(seed: int) -> Workload:
    """As `random_workload`; most arrivals state a policy, on their object if they have one."""
    rng, drawn = Random(f"{seed}-policies"), random_workload(seed)
    return replace(drawn, arrivals=tuple(_stating(rng, arrival) for arrival in drawn.arrivals))


def _stating(rng: Random, arrival: Arrival) -> Arrival:
    stated = {key: text for key, choices in _STATED.items() if (text := rng.choice(choices))}
    if arrival.group is not None:
        group = replace(arrival.group, metadata=_with(arrival.group.metadata, stated))
        return replace(arrival, group=group)
    pods = tuple(replace(pod, metadata=_with(pod.metadata, stated)) for pod in arrival.pods)
    return replace(arrival, pods=pods)


def _with(meta: ObjectMeta, stated: dict[str, str]) -> ObjectMeta:
    return replace(meta, annotations={**(meta.annotations or {}), **stated})
