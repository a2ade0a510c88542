"""Hostile objects that state gangs: controllers' objects, PodGroups of every dialect, any field of them odd.

Each begins as its controller writes it (tests.controllers) or as its project's CRD has it; then some of its
fields hold what nobody means: numbers beyond all bounds, other types, nothing, lists of a megabyte, depth.
`pods_of` are pods that say they are its. Nothing here knows what the scheduler makes of them.

    owners = HostileOwners(Random(7))
    thing = owners.draw("h0", 55_000)       # Thing(sort="RayCluster, odd", kind="RayCluster", body={…})
    pods = owners.pods_of(thing)            # two or three of its pods, as the API server's JSON

`LONG` has one for each of their lists and maps whose length may cost work, as tests.hostile.heavy of pods.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, NamedTuple

from gangsched.model.owners import OWNER_KINDS
from gangsched.model.pod_group import DIALECTS
from tests import controllers as made
from tests.hostile.garbage import GPU, Garbage, Json
from tests.hostile.things import Thing

# -- as they are written -------------------------------------------------------------------------------------

_ROLES = {"driver": (1, 1), "workers": (2, 2)}
OWNERS: Mapping[str, Callable[[str], Json]] = {
    "Job": lambda name: made.job(name, parallelism=3, status={"succeeded": 1, "failedIndexes": "1,3-5"}),
    "JobSet": lambda name: made.job_set(name, _ROLES, startupPolicy={"startupPolicyOrder": "AnyOrder"}),
    "LeaderWorkerSet": lambda name: made.leader_worker_set(name, size=3, replicas=2),
    "RayCluster": lambda name: made.ray_cluster(name, workers=2, min_workers=1, autoscaling=True, hosts=2),
    "Workload": lambda name: made.workload(name, asked=3, admitted=3, elastic=True, reclaimable=1),
    "MPIJob": lambda name: _mpi_job(name),
}
"""By the kind's name in gangsched.model.owners."""
GROUP_KINDS: Mapping[str, tuple[str, str]] = {
    f"PodGroup of {kind.api_group}": (kind.api_group, kind.versions[0])
    for dialect in DIALECTS
    for kind in dialect.kinds
}
"""Every API group whose PodGroups are read, with the version that is served first."""
_SPECS: Mapping[str, Json] = {
    "scheduling.k8s.io": {
        "schedulingPolicy": {"gang": {"minCount": 2}},
        "schedulingConstraints": {"topology": [{"key": "topology.kubernetes.io/zone"}]},
        "disruptionMode": {"all": {}},
        "priorityClassName": "",
    },
    "scheduling.x-k8s.io": {
        "minMember": 2,
        "minResources": {"cpu": "2", GPU: "1"},
        "scheduleTimeoutSeconds": 10,
    },
    "scheduling.sigs.k8s.io": {"minMember": 2, "scheduleTimeoutSeconds": 10},
    "scheduling.volcano.sh": {
        "minMember": 2,
        "minTaskMember": {"w": 1, "m": 1},
        "queue": "q",
        "priorityClassName": "system-cluster-critical",
        "minResources": {"cpu": "2"},
        "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
        "subGroupPolicy": [{"name": "w", "subGroupSize": 2}],
    },
    "scheduling.run.ai": {
        "minMember": 2,
        "queue": "q",
        "priorityClassName": "system-node-critical",
        "preemptibility": "non-preemptible",
        "subGroups": [{"name": "w", "minMember": 1}, {"name": "m", "minMember": 1, "parent": "w"}],
        "topologyConstraint": {"requiredTopologyLevel": "topology.kubernetes.io/zone", "topology": "t"},
    },
}
_STATUSES: tuple[Json, ...] = (
    {},
    {"phase": "Running", "running": 10**9, "occupiedBy": "x"},
    {
        "conditions": [
            {
                "type": "gangsched.io/StartPromised",
                "status": "True",
                "reason": "Claimed",
                "message": "n0",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ]
    },
    {"conditions": [{"type": f"c{i}", "status": "True", "message": "x" * 1_000} for i in range(500)]},
)


def _mpi_job(name: str) -> Json:
    body = made.mpi_job(name)
    replicas = {"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}}
    body["spec"] |= {"mpiReplicaSpecs": {role: {**n, "template": {}} for role, n in replicas.items()}}
    return body


def _marked(key: str, annotated: bool = False) -> Callable[[str], list[Json]]:
    def pods(name: str) -> list[Json]:
        found = [made.pod(f"{name}-{k}", gpus=0) for k in range(2)]
        for one in found:
            one["metadata"]["annotations" if annotated else "labels"][key] = name
        return found

    return pods


def _core_pods(name: str) -> list[Json]:
    found = [made.pod(f"{name}-{k}", gpus=0) for k in range(2)]
    for one in found:
        one["spec"]["schedulingGroup"] = {"podGroupName": name}
    return found


_PODS: Mapping[str, Callable[[str], list[Json]]] = {
    "Job": lambda name: made.job_pods(name, 3, gpus=0),
    "JobSet": lambda name: made.job_set_pods(name, {"workers": (1, 3)}, gpus=0),
    "LeaderWorkerSet": lambda name: made.leader_worker_pods(name, size=3, gpus=0),
    "RayCluster": lambda name: made.ray_pods(name, workers=2, gpus=0),
    "Workload": lambda name: made.admitted_pods(f"{name}-job", name, 3, gpus=0),
    "MPIJob": lambda name: made.mpi_workers(name, 2, gpus=0),
    "PodGroup of scheduling.k8s.io": _core_pods,
    "PodGroup of scheduling.x-k8s.io": _marked("scheduling.x-k8s.io/pod-group"),
    "PodGroup of scheduling.sigs.k8s.io": _marked("pod-group.scheduling.sigs.k8s.io"),
    "PodGroup of scheduling.volcano.sh": _marked("scheduling.k8s.io/group-name", annotated=True),
    "PodGroup of scheduling.run.ai": _marked("pod-group-name", annotated=True),
}
KINDS = tuple(_PODS)

# -- and made odd --------------------------------------------------------------------------------------------

_ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2, 50, 10**5, 10**5 + 1, 2**31 - 1, 2**31, 2**63 - 1, 1.5, 1e308),
    *(
        "",
        "x",
        "gangsched",
        "InOrder",
        "LeaderReady",
        "NonIndexed",
        "x" * 60_000,
        [],
        {},
        [None],
        {"a": None},
    ),
)
_DEPTHS = (60, 300)
_NAMES = ("name", "groupName", "type", "key")


class HostileOwners(Garbage):
    """Draws them."""

    def draw(self, name: str, n_bytes: int = 55_000) -> Thing:
        """One of any kind; up to so long."""
        return self.of_kind(self.rng.choice(KINDS), name, n_bytes)

    def of_kind(self, kind: str, name: str, n_bytes: int = 55_000) -> Thing:
        """As draw, of this kind."""
        rng = self.rng
        body = self.plain(kind, name)
        if (how := rng.random()) < 0.2:
            return Thing(f"{kind}, as it should be", kind, body)
        for _ in range(rng.choice((1, 1, 2, 4))):
            self._spoil(body, n_bytes if how > 0.8 else 0)
        return Thing(f"{kind}, {'long' if how > 0.8 else 'odd'}", kind, body)

    def plain(self, kind: str, name: str) -> Json:
        """The object with nothing odd about it."""
        if kind in OWNERS:
            return copy.deepcopy(OWNERS[kind](name))
        group, version = GROUP_KINDS[kind]
        body: Json = {
            "apiVersion": f"{group}/{version}",
            "kind": "PodGroup",
            "metadata": {"name": name, "annotations": {}},
            "spec": copy.deepcopy(_SPECS[group]),
        }
        if (status := self.rng.choice(_STATUSES)) and self.rng.random() < 0.3:
            body["status"] = copy.deepcopy(status)
        return body

    def pods_of(self, thing: Thing) -> list[Json]:
        """Pods that say they are of this object, some with a wrong word for it."""
        rng = self.rng
        pods = _PODS[thing.kind](thing.name)
        for pod in pods:
            meta = pod["metadata"]
            if rng.random() < 0.2 and meta["labels"]:
                meta["labels"][rng.choice([*meta["labels"]])] = self.word()
            if rng.random() < 0.2 and meta["annotations"]:
                meta["annotations"][rng.choice([*meta["annotations"]])] = self.text()
            if rng.random() < 0.2:
                meta["annotations"]["gangsched.io/min-members"] = rng.choice(("1", "0", "-1", "100000", ""))
        return pods

    def _spoil(self, body: Json, n_bytes: int) -> None:
        """One field of its spec or status, at any depth, or the whole of them."""
        rng = self.rng
        holder, key = rng.choice([*_places(body, ("spec", "status"))])
        if not n_bytes:
            odd = rng.choice((*_ODD, self.word(), self.quantity(), "deep"))
            holder[key] = _deep(rng.choice(_DEPTHS)) if odd == "deep" else copy.deepcopy(odd)
            return
        holder, key = rng.choice([one for one in _places(body, ("spec", "status")) if _is_long(*one)])
        _lengthen(holder, key, n_bytes)


def _is_long(holder: Any, key: Any) -> bool:
    return isinstance(holder[key], list | dict)


def _lengthen(holder: Any, key: Any, n_bytes: int) -> None:
    """As many items as fit, all like the first; names are made different."""
    value = holder[key]
    if isinstance(value, list) and value:
        first = value[0]
        holder[key] = [copy.deepcopy(first) for _ in range(n_bytes // (len(json.dumps(first)) + 8))]
        for i, one in enumerate(holder[key]):
            if isinstance(one, dict):
                one |= {name: f"{one[name]}{i}" for name in _NAMES if isinstance(one.get(name), str)}
    elif isinstance(value, dict):
        first = next(iter(value.values()), 1)
        item = first if isinstance(first, dict) else 1
        n = n_bytes // (len(json.dumps(item)) + 19)
        value |= {f"k{i}.e.io/x": copy.deepcopy(item) for i in range(n)}
    elif isinstance(value, str):
        holder[key] = ",".join(str(2 * i) for i in range(n_bytes // 7))


def _places(body: Json, roots: tuple[str, ...]) -> list[tuple[Any, Any]]:
    """Where there is a value: what holds it, and its key or index there."""
    found: list[tuple[Any, Any]] = []
    left: list[tuple[Any, Any]] = [(body, root) for root in roots if root in body]
    while left:
        holder, key = left.pop()
        found.append((holder, key))
        value = holder[key]
        if isinstance(value, dict):
            left += [(value, one) for one in value]
        elif isinstance(value, list) and len(value) < 100:
            left += [(value, i) for i in range(len(value))]
    return found


def _deep(n: int) -> Json:
    tree: Json = {}
    for _ in range(n):
        tree = {"a": tree}
    return tree


class Long(NamedTuple):
    """A kind of KINDS, and the path of what is long in it."""

    kind: str
    path: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.path}"

    def make(self, name: str, n_bytes: int) -> Json:
        """The object."""
        body = HostileOwners(Random(0)).plain(self.kind, name)
        *way, last = [int(step) if step.isdecimal() else step for step in self.path.split(".")]
        at: Any = body
        for step in way:
            at = at[step]
        _lengthen(at, last, n_bytes)
        return body


LONG: tuple[Long, ...] = (
    *(Long("Job", path) for path in ("status.failedIndexes", "spec.template")),
    *(Long("JobSet", path) for path in ("spec.replicatedJobs", "spec.replicatedJobs.0.template")),
    Long("LeaderWorkerSet", "spec.leaderWorkerTemplate"),
    *(
        Long("RayCluster", path)
        for path in ("spec.workerGroupSpecs", "spec.workerGroupSpecs.0.rayStartParams")
    ),
    *(Long("Workload", path) for path in ("spec.podSets", "status.admission.podSetAssignments")),
    *(Long("Workload", path) for path in ("status.reclaimablePods", "status.admission.podSetAssignments.0")),
    Long("MPIJob", "spec.mpiReplicaSpecs"),
    *(
        Long(kind, f"spec.{field}")
        for kind, (group, _) in GROUP_KINDS.items()
        for field, value in _SPECS[group].items()
        if isinstance(value, list | dict)
    ),
    *(Long(kind, "spec") for kind in GROUP_KINDS),
    Long("PodGroup of scheduling.k8s.io", "spec.schedulingConstraints.topology"),
)


def collection(kind: str, namespace: str) -> str:
    """Where objects of one of KINDS are."""
    if kind in OWNER_KINDS:
        one = OWNER_KINDS[kind]
        return f"/apis/{one.group}/{one.versions[0]}/namespaces/{namespace}/{one.resource}"
    group, version = GROUP_KINDS[kind]
    return f"/apis/{group}/{version}/namespaces/{namespace}/podgroups"


def definitions() -> list[Json]:
    """The CRDs of those kinds that are neither built in nor in deploy/."""
    from tests.real.shapes import group_crd

    there = ("scheduling.k8s.io", "scheduling.x-k8s.io")
    groups = [
        group_crd(group, version, has_status=group == "scheduling.run.ai")
        for group, version in GROUP_KINDS.values()
        if group not in there
    ]
    return [*groups, *(made.crd(kind) for kind in OWNERS if kind != "Job")]


assert {*OWNERS} == {*OWNER_KINDS}
assert {*KINDS} == {*OWNERS, *GROUP_KINDS}
