"""Which gangs come on the recorded day: drawn from a seed when the day is made, not when it is replayed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from random import Random

import msgspec
from msgspec.structs import replace

from gangsched.lab.sim.objects import GPU, OURS, RACK, make_pod, make_pod_group
from gangsched.lab.sim.world.actors import CONTROLLED_KEY, RUN_KEY
from gangsched.model.dialects import kai, koordinator, lightweight, volcano, yunikorn
from gangsched.model.objects import Container, CustomObject, Pod, ResourceRequirements, SchedulingGroup
from gangsched.model.owners import OwnerName, job_sets, leader_worker_sets
from gangsched.model.owners.owner import Owner, Role
from gangsched.model.pod_group import (
    COSCHEDULING_LABEL,
    GROUPS_KEY,
    TIMEOUT_KEY,
    TOTAL_MEMBERS_KEY,
)
from gangsched.model.stated.topology import TOPOLOGY_KEY
from gangsched.model.walltime import WALLTIME_KEY

BLOCK = "topology.example.com/block"
LICENCE = "example.com/licence"
"""A resource that an extender manages."""
_DAY_S = 86_400.0
_KINDS = {
    "ours": 14,
    "lone": 16,
    "core": 4,
    "coscheduling": 4,
    "volcano": 3,
    "kai": 3,
    "koordinator": 2,
    "lightweight": 2,
    "yunikorn": 2,
    "jobset": 2,
    "lws": 2,
    "few": 3,
    "total": 2,
    "mixed": 3,
    "gated": 2,
    "licensed": 2,
    "together": 2,
}
_WISHES = (
    f"required: {RACK}",
    f"preferred: {RACK}",
    f"required: {BLOCK}",
    f"required: {BLOCK}, preferred: {RACK}",
)


class Coming(msgspec.Struct, frozen=True):
    """One gang: its pods, `gap_s` apart, with the objects that say what they are; gates open after
    `ungate_s`."""

    at_s: float
    pods: tuple[Pod, ...]
    group: CustomObject | None = None
    dialect: str = ""
    owner: Owner | None = None
    gap_s: float = 0.0
    ungate_s: float = 0.0


def day_of_gangs(seed: int, n_gangs: int, *, over_s: float = _DAY_S) -> list[Coming]:
    """More by day than by night: four times as many at the peak."""
    rng = Random(f"{seed}-day")
    coming: list[Coming] = []
    while len(coming) < n_gangs:
        at_s = rng.uniform(0.0, over_s)
        if rng.random() < 0.625 - 0.375 * math.cos(2 * math.pi * at_s / over_s):
            coming += _one(rng, len(coming), at_s)
    return sorted(coming[:n_gangs], key=lambda one: one.at_s)


def line_of_gangs(seed: int, n_gangs: int, *, over_s: float) -> list[Coming]:
    """For queues and claims: of three teams, with walltimes, some of the whole cluster."""
    rng = Random(f"{seed}-line")
    coming = []
    for serial in range(n_gangs):
        is_wide = rng.random() < 0.12
        n, gpus = (8, 8) if is_wide else (rng.choice((1, 1, 2, 4)), rng.choice((1, 2, 4, 8)))
        run_s, luck = rng.lognormvariate(5.2, 0.7), rng.random()
        own = {RUN_KEY: f"{run_s:.0f}"}
        if luck < 0.8:
            own[WALLTIME_KEY] = f"{math.ceil(run_s * 1.3) if luck < 0.6 else 60}s"
        pods = _pods(f"q{serial}", n, n, gpus=gpus, own=own, namespace=rng.choice(("nlp", "nlp", "cv", "x")))
        coming.append(Coming(over_s * serial / n_gangs * rng.uniform(0.9, 1.1), pods))
    return sorted(coming, key=lambda one: one.at_s)


def _one(rng: Random, serial: int, at_s: float) -> list[Coming]:
    """A job of one kind; sets that start together are several."""
    kind = rng.choices(list(_KINDS), list(_KINDS.values()))[0]
    name, n, gpus = f"g{serial}", rng.choice((2, 2, 2, 2, 2, 2, 3, 3, 4, 8)), rng.choice((0, 1, 2, 4, 8, 8))
    own = {RUN_KEY: f"{rng.lognormvariate(6.1, 1.0):.0f}"}
    if rng.random() < 0.3:
        own[CONTROLLED_KEY] = "true"
    priority = rng.choice((0, 0, 0, 0, 0, 0, 0, 5, 5, 10))
    if n > 1 and kind not in ("lone", "together", "licensed") and rng.random() < 0.2:
        own[TOPOLOGY_KEY] = rng.choice(_WISHES)
    gap_s = rng.choice((0.0, 0.0, 0.0, 0.05, 1.0))
    if kind == "lone":
        return [Coming(at_s, (make_pod(name, gpus=gpus, priority=priority, annotations=own),))]
    if kind == "together":
        names = [f"{name}-{k}" for k in range(rng.randint(2, 3))]
        own |= {GROUPS_KEY: msgspec.json.encode(names).decode()}
        return [Coming(at_s + 2.0 * k, _pods(one, 2, 2, gpus=gpus, own=own)) for k, one in enumerate(names)]
    pods, made = _stated(rng, kind, name, n, gpus, priority, own)
    return [replace(made, at_s=at_s, pods=pods, gap_s=gap_s, ungate_s=rng.uniform(1.0, 60.0))]


def _stated(
    rng: Random, kind: str, name: str, n: int, gpus: int, priority: int, own: Mapping[str, str]
) -> tuple[tuple[Pod, ...], Coming]:
    """The pods, and a Coming with what stands beside them."""
    nothing = Coming(0.0, ())
    if kind in _BY_MARKS:
        labels, annotations = _BY_MARKS[kind](name, n)
        marked = {**own, **annotations}
        return _members(name, n, gpus=gpus, priority=priority, own=marked, labels=labels), nothing
    if kind in ("core", "coscheduling", "volcano", "kai"):
        return _with_object(kind, name, n, gpus, priority, own)
    if kind in ("jobset", "lws"):
        return _of_controller(kind, name, n, gpus, priority, own)
    more = {TOTAL_MEMBERS_KEY: str(n), TIMEOUT_KEY: f"{rng.randint(5, 60)}s"} if kind == "total" else {}
    few = kind in ("few", "total")
    pods = _pods(
        name,
        n,
        rng.randint(1, n) if few else n,
        gpus=gpus,
        own={**own, **more},
        priority=priority,
        gated=kind == "gated",
    )
    if kind == "mixed":
        other = make_pod("x", gpus=rng.choice((0, 1)), cpu="6").spec.containers
        pods = (replace(pods[0], spec=replace(pods[0].spec, containers=other)), *pods[1:])
    if kind == "licensed":
        asked: dict[str, str | int | float] = {"cpu": "2", GPU: 1, LICENCE: 1}
        containers = [Container(name="main", resources=ResourceRequirements(requests=asked))]
        pods = tuple(replace(pod, spec=replace(pod.spec, containers=containers)) for pod in pods)
    return pods, nothing


_BY_MARKS: dict[str, Callable[[str, int], tuple[dict[str, str], dict[str, str]]]] = {
    "koordinator": lambda name, n: ({}, {koordinator.NAME: name, koordinator.MIN: str(n)}),
    "lightweight": lambda name, n: ({lightweight.NAME: name, lightweight.MIN: str(n)}, {}),
    "yunikorn": lambda name, n: (
        {yunikorn.APP_ID: name},
        {
            yunikorn.TASK_GROUP_NAME: "w",
            yunikorn.TASK_GROUPS: msgspec.json.encode([{"name": "w", "minMember": n}]).decode(),
        },
    ),
}


def _with_object(
    kind: str, name: str, n: int, gpus: int, priority: int, own: Mapping[str, str]
) -> tuple[tuple[Pod, ...], Coming]:
    """Gangs that a PodGroup object states."""
    spec = {"schedulingPolicy": {"gang": {"minCount": n}}} if kind == "core" else {"minMember": n}
    labels = {COSCHEDULING_LABEL: name} if kind == "coscheduling" else {}
    named = {"volcano": volcano.GROUP_NAME, "kai": kai.POD_GROUP_NAME}
    marked = {**own, named[kind]: name} if kind in named else own
    pods = _members(name, n, gpus=gpus, priority=priority, own=marked, labels=labels)
    if kind == "core":
        pods = tuple(
            replace(pod, spec=replace(pod.spec, scheduling_group=SchedulingGroup(name))) for pod in pods
        )
    wish = {key: text for key, text in own.items() if key == TOPOLOGY_KEY}
    item = make_pod_group(name, uid=f"uid-{kind}-{name}", spec=spec, annotations=wish)
    return pods, Coming(0.0, (), item, kind)


def _of_controller(
    kind: str, name: str, n: int, gpus: int, priority: int, own: Mapping[str, str]
) -> tuple[tuple[Pod, ...], Coming]:
    """Gangs that no pod names."""
    if kind == "jobset":
        labels = {job_sets.NAME_KEY: name, job_sets.UID_KEY: f"uid-js-{name}", job_sets.ROLE_KEY: "w"}
        owner = Owner(OwnerName(job_sets.KIND, "d", name), f"uid-js-{name}", (Role("w", n, OURS),))
        pods = _members(name, n, gpus=gpus, priority=priority, own=own, labels=labels)
        return pods, Coming(0.0, (), owner=owner)
    labels = {
        leader_worker_sets.NAME_KEY: name,
        leader_worker_sets.REPLICA_KEY: "0",
    }
    sized = {**own, leader_worker_sets.SIZE_KEY: str(n)}
    pods = tuple(
        replace(pod, metadata=replace(pod.metadata, labels={**labels, leader_worker_sets.WORKER_KEY: str(k)}))
        for k, pod in enumerate(_members(name, n, gpus=gpus, priority=priority, own=sized, labels={}))
    )
    return pods, Coming(0.0, ())


def _pods(
    name: str,
    n: int,
    min_members: int,
    *,
    gpus: int,
    own: Mapping[str, str],
    priority: int = 0,
    gated: bool = False,
    namespace: str = "d",
) -> tuple[Pod, ...]:
    """In our own dialect; one alone is no gang."""
    return tuple(
        make_pod(
            f"{name}-{k}" if n > 1 else name,
            namespace=namespace,
            group=name if n > 1 else "",
            min_members=min_members if n > 1 else 0,
            gpus=gpus,
            priority=priority,
            gated=gated,
            annotations=own,
        )
        for k in range(n)
    )


def _members(
    name: str, n: int, *, gpus: int, priority: int, own: Mapping[str, str], labels: Mapping[str, str]
) -> tuple[Pod, ...]:
    return tuple(
        make_pod(f"{name}-{k}", gpus=gpus, priority=priority, annotations=own, labels=labels)
        for k in range(n)
    )
