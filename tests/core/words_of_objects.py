"""What a tenant can write in controllers' objects and in PodGroups: each field that is read, with values.

Used by test_tenants_words.py. An object begins as its controller writes it, for two of eight pods; each word
changes one field of it. A field that is read and has no values here fails there.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gangsched.lab.sim.objects import make_pod_group
from gangsched.model.fields import EVERYTHING, paths_of, steps
from gangsched.model.objects import CustomObject
from gangsched.model.owners import OWNER_KINDS
from gangsched.model.pod_group import DIALECTS
from tests import controllers as made

SYSTEM = 2_000_000_000
CRITICAL = "system-cluster-critical"
Meta = Mapping[str, str]
Json = Mapping[str, Any]
NOTHING: Mapping[str, Any] = {}


class Word(NamedTuple):
    """What the tenant writes: on its pods, and as objects beside them.

    members: labels of the first pods; of the others those of the last. references: the pods' owners.
    """

    name: str
    labels: Meta = NOTHING
    annotations: Meta = NOTHING
    spec: Json = NOTHING
    status: Json = NOTHING
    objects: tuple[tuple[str, CustomObject], ...] = ()
    owners: tuple[Json, ...] = ()
    members: tuple[Meta, ...] = ()
    references: tuple[Json, ...] = ()


# -- controllers' objects ------------------------------------------------------------------------------------


def with_value(plain: Json, path: str, value: Any) -> dict[str, Any]:
    """The object with this in the field; of a list its first item."""
    found: dict[str, Any] = copy.deepcopy(dict(plain))
    at: Any = found
    *way, last = [step for step in steps(path) if step != EVERYTHING]
    for step, below in zip(way, [*way[1:], last], strict=True):
        if step == "[]":
            at = at[0]
        else:
            at = at.setdefault(step, [{}] if below == "[]" else {})
    at[last] = value
    return found


def _conditions(**said: str) -> list[Json]:
    return [{"type": type_, "status": status, "reason": "", "message": ""} for type_, status in said.items()]


def _workload() -> Json:
    """One that owns the pods and has its share of the quota, but is not admitted (yet)."""
    plain = with_value(made.workload("o", asked=2, admitted=2), "metadata.ownerReferences", _POD_REFERENCES)
    return with_value(plain, "status.admission.podSetAssignments[].resourceUsage", {"nvidia.com/gpu": "8"})


_POD_REFERENCES = [
    {"apiVersion": "v1", "kind": "Pod", "name": f"p{k}", "uid": f"uid-t-p{k}"} for k in range(8)
]
_PLAIN: Mapping[str, Json] = {
    "Job": made.job("o", parallelism=2, status={}),
    "JobSet": made.job_set("o", {"r": (1, 2)}),
    "LeaderWorkerSet": made.leader_worker_set("o", size=2),
    "RayCluster": made.ray_cluster("o", workers=1, min_workers=1),
    "Workload": _workload(),
    "MPIJob": {
        **made.mpi_job("o"),
        "spec": {"mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 1}}},
    },
}


def _of(pods: list[dict[str, Any]], **more: Any) -> Word:
    """What a controller writes on its pods."""
    metas = [pod["metadata"] for pod in pods]
    references = tuple(metas[0].get("ownerReferences", ()))
    labels = tuple(meta["labels"] for meta in metas)
    return Word("", members=labels, annotations=metas[0]["annotations"], references=references, **more)


_GROUP = make_pod_group("o", namespace="t", spec={"minMember": 2})
_PODS: Mapping[str, Word] = {
    "Job": _of(made.job_pods("o", 2)),
    "JobSet": _of(made.job_set_pods("o", {"r": (1, 2)})),
    "LeaderWorkerSet": _of(made.leader_worker_pods("o", size=2)),
    "RayCluster": _of(made.ray_pods("o", workers=1)),
    "Workload": _of(
        [
            made.pod(
                "o",
                labels={"kueue.x-k8s.io/podset": "main", "kueue.x-k8s.io/managed": "true"},
                annotations={"kueue.x-k8s.io/workload": "o"},
            )
        ]
    ),
    "MPIJob": _of(made.mpi_workers("o", 1), objects=(("coscheduling", _GROUP),)),
}
_NUMBERS = (0, 1, 8, 100_000)
_SCHEDULERS = ("default-scheduler", "gangsched")
_OF_OTHERS = [{"apiVersion": "v1", "kind": "Pod", "name": "h0", "uid": "uid-honest-h0", "controller": True}]
_METADATA: Mapping[str, tuple[Any, ...]] = {
    "metadata.name": ("p0",),
    "metadata.uid": ("uid-honest-h0",),
    "metadata.labels": ({"gangsched.io/queue": "other", "kueue.x-k8s.io/queue-name": "q"},),
    "metadata.annotations": (
        {
            "gangsched.io/queue": "other",
            "gangsched.io/min-members": "1",
            "alpha.jobset.sigs.k8s.io/exclusive-topology": "kubernetes.io/hostname",
            "leaderworkerset.sigs.k8s.io/exclusive-topology": "kubernetes.io/hostname",
            "kueue.x-k8s.io/elastic-job": "true",
        },
    ),
    "metadata.deletionTimestamp": ("2026-01-01T00:00:00Z",),
    "metadata.ownerReferences": (_OF_OTHERS,),
}
# What the API server writes, and what of a template's metadata is read nowhere; name and namespace are the
# object's own.
_NO_WORDS = {"metadata.resourceVersion", "metadata.generation", "metadata.creationTimestamp"}
_NO_WORDS |= {"metadata.namespace"}

OF_OWNERS: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "Job": {
        "spec.parallelism": _NUMBERS,
        "spec.completions": (None, *_NUMBERS),
        "spec.completionMode": ("NonIndexed",),
        "spec.activeDeadlineSeconds": (1, 86_400),
        "spec.template.spec.schedulerName": _SCHEDULERS,
        "status.succeeded": (1, 2),
        "status.failedIndexes": ("0-1",),
        "status.startTime": ("2020-01-01T00:00:00Z",),
    },
    "JobSet": {
        "spec.replicatedJobs[].name": ("w",),
        "spec.replicatedJobs[].replicas": _NUMBERS,
        "spec.replicatedJobs[].template.metadata.annotations": (
            {"alpha.jobset.sigs.k8s.io/exclusive-topology": "kubernetes.io/hostname"},
        ),
        "spec.replicatedJobs[].template.spec.parallelism": _NUMBERS,
        "spec.replicatedJobs[].template.spec.completions": (None, *_NUMBERS),
        "spec.replicatedJobs[].template.spec.completionMode": ("NonIndexed",),
        "spec.replicatedJobs[].template.spec.activeDeadlineSeconds": (1,),
        "spec.replicatedJobs[].template.spec.template.spec.schedulerName": _SCHEDULERS,
        "spec.replicatedJobs[].dependsOn[].name": ("r",),
        "spec.startupPolicy.startupPolicyOrder": ("InOrder", "AnyOrder"),
    },
    "LeaderWorkerSet": {
        "spec.startupPolicy": ("LeaderReady",),
        "spec.replicas": _NUMBERS,
        "spec.leaderWorkerTemplate.size": _NUMBERS,
    },
    "RayCluster": {
        "spec.headGroupSpec.template.spec.schedulerName": _SCHEDULERS,
        "spec.workerGroupSpecs[].groupName": ("w",),
        "spec.workerGroupSpecs[].replicas": _NUMBERS,
        "spec.workerGroupSpecs[].minReplicas": _NUMBERS,
        "spec.workerGroupSpecs[].maxReplicas": (-1, *_NUMBERS),
        "spec.workerGroupSpecs[].numOfHosts": _NUMBERS,
        "spec.workerGroupSpecs[].suspend": (True,),
        "spec.workerGroupSpecs[].template.spec.schedulerName": _SCHEDULERS,
        "spec.enableInTreeAutoscaling": (True,),
    },
    "Workload": {
        "spec.active": (False, True),
        "spec.podSets[].name": ("w",),
        "spec.podSets[].count": _NUMBERS,
        "spec.podSets[].template.spec.schedulerName": _SCHEDULERS,
        "status.conditions": (
            _conditions(QuotaReserved="True"),
            _conditions(Admitted="False"),
            _conditions(Admitted="True", Finished="True"),
            _conditions(Admitted="True", Evicted="True"),
        ),
        "status.admission.podSetAssignments[].name": ("w",),
        "status.admission.podSetAssignments[].count": _NUMBERS,
        "status.admission.podSetAssignments[].resourceUsage": ({"nvidia.com/gpu": "8"},),
        "status.reclaimablePods": ([{"name": "main", "count": 1}], [{"name": "main", "count": 8}]),
    },
    "MPIJob": {
        "spec.launcherCreationPolicy": ("WaitForWorkersReady", "AtStartup"),
        "spec.mpiReplicaSpecs": ({}, {"Worker": {"replicas": 8}}, {"Worker": {"replicas": 0}}),
    },
}


def owner_as_written(kind: str) -> Word:
    """The object as its controller writes it, with pods that say they are of it."""
    named = with_value(with_value(_PLAIN[kind], "metadata.namespace", "t"), "metadata.uid", "uid-o")
    return _PODS[kind]._replace(name=kind, owners=(named,))


def of_owners() -> Iterator[Word]:
    for kind in OF_OWNERS:
        written = owner_as_written(kind)
        yield written
        yield from changed(kind, written)


def changed(kind: str, written: Word, *, status: bool = True) -> Iterator[Word]:
    """The same pods, a field of their object changed; status: also of what its controller alone writes."""
    [plain] = written.owners
    for path, values in {**_METADATA, **OF_OWNERS[kind]}.items():
        if path.startswith("status.") and not status:
            continue
        for value in values:
            item = with_value(plain, path, value)
            yield written._replace(name=f"{kind}: {path}: {value}", owners=(item,))


def owners_fields_without_words() -> list[str]:
    """Those that are read, of every kind."""
    missing = []
    for kind, one in OWNER_KINDS.items():
        stated = (*_METADATA, *OF_OWNERS[kind])
        for path in paths_of(one.wire):
            in_a_template = ".metadata." in path
            has_words = any(path == word or path.startswith((f"{word}.", f"{word}[]")) for word in stated)
            if not (has_words or in_a_template or path in _NO_WORDS):
                missing.append(f"{kind}: {path}")
    return missing


# -- PodGroups -----------------------------------------------------------------------------------------------

NAMES: Mapping[str, Word] = {
    "core": Word("", spec={"scheduling_group": {"podGroupName": "g"}}),
    "coscheduling": Word("", labels={"scheduling.x-k8s.io/pod-group": "g"}),
    "volcano": Word("", annotations={"scheduling.k8s.io/group-name": "g"}),
    "kai": Word("", annotations={"pod-group-name": "g"}),
}
_CLASSES = (CRITICAL, "system-node-critical", "gangsched", "high")
_LEVELS = ("kubernetes.io/hostname",)
OF_DIALECTS: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "core": {
        "spec.schedulingPolicy.basic": ({},),
        "spec.schedulingPolicy.gang.minCount": _NUMBERS,
        "spec.schedulingConstraints.topology[].key": _LEVELS,
        "spec.disruptionMode.single": ({},),
        "spec.disruptionMode.all": ({},),
        "spec.priority": (SYSTEM, -SYSTEM),
        "spec.priorityClassName": _CLASSES,
        "spec.preemptionPolicy": ("PreemptLowerPriority", "Never"),
        "spec.parentCompositePodGroupName": ("p",),
        "spec.resourceClaims[].name": ("c",),
        "spec.resourceClaims[].resourceClaimName": ("c",),
        "spec.resourceClaims[].resourceClaimTemplateName": ("t",),
    },
    "coscheduling": {
        "spec.minMember": _NUMBERS,
        "spec.minResources.**": ({"nvidia.com/gpu": "8"}, {"nvidia.com/gpu": "0"}, {"nvidia.com/gpu": "-8"}),
        "spec.scheduleTimeoutSeconds": (1, 86_400),
    },
    "volcano": {
        "spec.minMember": _NUMBERS,
        "spec.minTaskMember.**": ({"w": 2}, {"w": 8}, {"w": 0}),
        "spec.minResources.**": ({"nvidia.com/gpu": "8"},),
        "spec.priorityClassName": _CLASSES,
        "spec.networkTopology.mode": ("hard", "soft"),
        "spec.networkTopology.highestTierAllowed": (1,),
        "spec.networkTopology.highestTierName": ("rack",),
        "spec.queue": ("honest", "other", "root"),
        "spec.subGroupPolicy": ([{"name": "w", "subGroupSize": 2}],),
    },
    "kai": {
        "spec.minMember": _NUMBERS,
        "spec.minSubGroup": (1,),
        "spec.priorityClassName": _CLASSES,
        "spec.preemptibility": ("non-preemptible", "preemptible"),
        "spec.topologyConstraint.requiredTopologyLevel": _LEVELS,
        "spec.topologyConstraint.preferredTopologyLevel": _LEVELS,
        "spec.subGroups[].name": ("w",),
        "spec.subGroups[].minMember": (0, 2, 8),
        "spec.subGroups[].minSubGroup": (1,),
        "spec.subGroups[].parent": ("w", "nobody"),
        "spec.subGroups[].topologyConstraint.requiredTopologyLevel": _LEVELS,
        "spec.subGroups[].topologyConstraint.preferredTopologyLevel": _LEVELS,
        "spec.queue": ("honest", "other"),
        "spec.markUnschedulable": (False,),
        "spec.schedulingBackoff": (-1,),
        "spec.preemptionDelay": ("0s",),
        "spec.stalenessGracePeriod": ("0s",),
    },
}
_SUBGROUP = {"spec": {"minMember": 2, "subGroups": [{"name": "s", "minMember": 2}]}}


def in_group(dialect: str, name: str, spec: Json, annotations: Meta | None = None) -> Word:
    """A PodGroup, and pods that name it."""
    item = make_pod_group("g", namespace="t", spec=spec, annotations=annotations)
    return NAMES[dialect]._replace(name=f"{dialect}: {name}", objects=((dialect, item),))


def of_dialects() -> Iterator[Word]:
    for dialect, fields in OF_DIALECTS.items():
        for path, values in fields.items():
            plain: Json = {"spec": {"minMember": 2}}
            if dialect == "core":
                plain = {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
            elif "subGroups" in path:
                plain = _SUBGROUP
            for value in values:
                yield in_group(dialect, f"{path}: {value}", with_value(plain, path, value)["spec"])


def dialects_fields_without_words() -> list[str]:
    """Those that are read, of every dialect that has objects."""
    return [
        f"{one.name}: {path}"
        for one in DIALECTS
        if one.kinds
        for path in one.fields.read
        if path not in OF_DIALECTS[one.name]
    ]
