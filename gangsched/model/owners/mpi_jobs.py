"""MPIJobs (kubeflow.org): their pods name a PodGroup; read here is only whether it can ever be complete."""

from __future__ import annotations

import msgspec

from gangsched.model.objects import ObjectMeta, Pod
from gangsched.model.owners.owner import Count, Owner, OwnerName, Start, named
from gangsched.model.owners.templates import Wire

KIND = "MPIJob"
JOB_KEY = "training.kubeflow.org/job-name"
OPERATOR_KEY = "training.kubeflow.org/operator-name"
OPERATOR = "mpi-operator"


class ReplicaSpec(Wire):
    replicas: Count | None = None


class MPIJobSpec(Wire):
    launcher_creation_policy: str = ""
    mpi_replica_specs: dict[str, ReplicaSpec] | None = None

    @property
    def n_at_once(self) -> int | None:
        """Returns how many pods its launcher and its workers are."""
        specs = (self.mpi_replica_specs or {}).values()
        return sum(1 if one.replicas is None else one.replicas for one in specs) if specs else None


class MPIJob(Wire):
    metadata: ObjectMeta
    spec: MPIJobSpec = msgspec.field(default_factory=MPIJobSpec)


def owner_of(pod: Pod) -> OwnerName | None:
    """Returns the MPIJob of a worker or launcher pod."""
    labels = pod.metadata.labels or {}
    name = labels.get(JOB_KEY)
    if not name or labels.get(OPERATOR_KEY) != OPERATOR:
        return None
    return OwnerName(KIND, pod.metadata.namespace, name)


def read(job: MPIJob) -> Owner:
    this = named(KIND, job.metadata)
    if job.spec.launcher_creation_policy != "WaitForWorkersReady":
        return Owner(this, job.metadata.uid, at_once=job.spec.n_at_once)
    return Owner(
        this,
        job.metadata.uid,
        start=Start.LEADER_FIRST,
        why="spec.launcherCreationPolicy is WaitForWorkersReady: the launcher comes when the workers run",
        cure="set it to AtStartup, or spec.runPolicy.schedulingPolicy.minAvailable to the number of workers",
        at_once=job.spec.n_at_once,
    )
