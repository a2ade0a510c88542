"""Controllers whose pods form a gang without a PodGroup that states it: one file each, and their table.

Lives here: which of a controller's pods belong together, read from the pod (a Claim) and from the
controller's object (an Owner); only the fields that state it. Not here: the gangs made from them
(core.groups.owners), PodGroups of any kind (model.pod_group). Any user may write these objects: numbers are
bounded when decoded, and an object that does not decode affects only its own pods.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gangsched.model.dialects.dialect import GroupKey
from gangsched.model.objects import Pod
from gangsched.model.owners import job_sets, jobs, kueue, leader_worker_sets, mpi_jobs, ray, replicas
from gangsched.model.owners.owner import Claim, Owner, OwnerName, Role, Start

INFER_LABEL = "gangsched.io/infer-gangs"
"""On a Namespace: what to infer there instead of the profile's setting; names joined by dots."""


class OwnerKind(NamedTuple):
    """A kind of object that states how many pods a gang has. wire: the decoded form; read: turns it into an
    Owner.
    """

    kind: str
    group: str
    resource: str
    versions: tuple[str, ...]
    wire: type[Any]
    read: Callable[[Any], Owner]

    @property
    def followed_as(self) -> str:
        """The kind's name among the watched kinds."""
        return f"owners.{self.kind}"


OWNER_KINDS = {
    one.kind: one
    for one in (
        OwnerKind("Job", "batch", "jobs", ("v1",), jobs.Job, jobs.read),
        OwnerKind("JobSet", "jobset.x-k8s.io", "jobsets", ("v1alpha2",), job_sets.JobSet, job_sets.read),
        OwnerKind(
            "LeaderWorkerSet",
            "leaderworkerset.x-k8s.io",
            "leaderworkersets",
            ("v1",),
            leader_worker_sets.LeaderWorkerSet,
            leader_worker_sets.read,
        ),
        OwnerKind("RayCluster", "ray.io", "rayclusters", ("v1",), ray.RayCluster, ray.read),
        OwnerKind(
            "Workload", "kueue.x-k8s.io", "workloads", ("v1beta2", "v1beta1"), kueue.Workload, kueue.read
        ),
        OwnerKind("MPIJob", "kubeflow.org", "mpijobs", ("v2beta1",), mpi_jobs.MPIJob, mpi_jobs.read),
    )
}


READ_KINDS = OWNER_KINDS | {
    kind: OwnerKind(kind, "apps", resource, ("v1",), replicas.Replicas, replicas.read)
    for kind, resource in replicas.KINDS.items()
}
"""With those that only commands read, to explain why a gang stays incomplete."""
COUNTED_BY = {
    "Job": "parallelism, completions",
    "JobSet": "replicas x parallelism",
    "LeaderWorkerSet": "replicas x size",
    "RayCluster": "replicas",
    "MPIJob": "replicas",
    **dict.fromkeys(replicas.KINDS, "replicas"),
}
"""The fields that state Owner.at_once, by kind."""


class Inferred(NamedTuple):
    """One value of inferGangs: the objects to read, and how to recognize a pod."""

    owner_kind: str
    claim: Callable[[Pod], Claim | None]


INFERRED = {
    "LeaderWorkerSet": Inferred("LeaderWorkerSet", leader_worker_sets.claim),
    "JobSet": Inferred("JobSet", job_sets.claim),
    "RayCluster": Inferred("RayCluster", ray.claim),
    "Kueue": Inferred("Workload", kueue.claim),
    "Job": Inferred("Job", jobs.claim),
}
"""By the name in inferGangs. If several recognize a pod, the first one wins; those that know more about the
order in which pods are created come first.
"""
DEFAULT_INFERRED = ("LeaderWorkerSet", "JobSet", "RayCluster", "Kueue")
ORDERED = tuple(INFERRED)

TELLING_LABELS = (
    *(leader_worker_sets.NAME_KEY, leader_worker_sets.REPLICA_KEY, leader_worker_sets.WORKER_KEY),
    leader_worker_sets.REVISION_KEY,
    *(job_sets.NAME_KEY, job_sets.UID_KEY, job_sets.ROLE_KEY, job_sets.ATTEMPT_KEY),
    *(ray.CLUSTER_KEY, ray.NODE_TYPE_KEY, ray.GROUP_KEY),
    *(kueue.GROUP_KEY, kueue.POD_SET_KEY, mpi_jobs.JOB_KEY),
)
"""Labels and annotations by which a pod names its controller, and its place among the controller's pods."""
TELLING_ANNOTATIONS = (
    *(leader_worker_sets.SIZE_KEY, leader_worker_sets.EXCLUSIVE_KEY),
    *(kueue.TOTAL_KEY, kueue.SERVING_KEY, kueue.WORKLOAD_KEY, kueue.SLICE_KEY, kueue.ELASTIC_KEY),
    jobs.INDEX_KEY,
)
_LABELS, _ANNOTATIONS = frozenset(TELLING_LABELS), frozenset(TELLING_ANNOTATIONS)


def claim_of(pod: Pod, inferred: tuple[str, ...]) -> Claim | None:
    """Returns the pod's gang according to one of these controllers. inferred: in the order of ORDERED."""
    if not is_marked(pod):
        return None
    for name in inferred:
        found = INFERRED[name].claim(pod)
        if found is not None:
            return found
    return None


def owners_of(pod: Pod) -> tuple[OwnerName, ...]:
    """Returns the objects that may explain why the gang's pods cannot all exist at once."""
    if not is_marked(pod):
        return ()
    claims = (job_sets.claim(pod), leader_worker_sets.claim(pod))
    found = [claim.owner for claim in claims if claim is not None and claim.owner is not None]
    mpi_job = mpi_jobs.owner_of(pod)
    return (*found, mpi_job) if mpi_job is not None else tuple(found)


def lineage(key: GroupKey) -> str:
    """Returns a name that a gang shares only with the one that its controller later makes in its place."""
    if key.dialect in (job_sets.DIALECT, kueue.WORKLOAD_DIALECT):
        return f"{key.dialect} {key.namespace}/{job_sets.name_of_all(key.name)} {key.uid}"
    return f"{key.dialect} {key}"


def kinds_read(inferred: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the kinds to watch, as in Kind.name, to infer these."""
    if not inferred:
        return ()
    kinds = [INFERRED[name].owner_kind for name in ORDERED if name in inferred]
    return ("namespaces", *(OWNER_KINDS[kind].followed_as for kind in (*kinds, mpi_jobs.KIND)))


def is_marked(pod: Pod) -> bool:
    """Whether a pod may belong to one of these controllers; called for every pod that names no group."""
    labels, annotations = pod.metadata.labels, pod.metadata.annotations
    return bool(
        (labels and not _LABELS.isdisjoint(labels))
        or (annotations and not _ANNOTATIONS.isdisjoint(annotations))
    )


__all__ = [
    "COUNTED_BY",
    "DEFAULT_INFERRED",
    "INFERRED",
    "INFER_LABEL",
    "ORDERED",
    "OWNER_KINDS",
    "READ_KINDS",
    "TELLING_ANNOTATIONS",
    "TELLING_LABELS",
    "Claim",
    "Owner",
    "OwnerKind",
    "OwnerName",
    "Role",
    "Start",
    "claim_of",
    "is_marked",
    "kinds_read",
    "lineage",
    "owners_of",
]
