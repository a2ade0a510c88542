"""MPIJobs (kubeflow.org): their pods name a PodGroup; read here is only whether it can ever be complete."""

from __future__ import annotations

import msgspec

from gangsched.model.objects import ObjectMeta, Pod
from gangsched.model.owners.owner import Owner, OwnerName, Start, named
from gangsched.model.owners.templates import Wire

KIND = "MPIJob"
JOB_KEY = "training.kubeflow.org/job-name"
OPERATOR_KEY = "training.kubeflow.org/operator-name"
OPERATOR = "mpi-operator"


class MPIJobSpec(Wire):
    launcher_creation_policy: str = ""


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
        return Owner(this, job.metadata.uid)
    return Owner(
        this,
        job.metadata.uid,
        start=Start.LEADER_FIRST,
        why="spec.launcherCreationPolicy is WaitForWorkersReady: the launcher comes when the workers run",
        cure="set it to AtStartup, or spec.runPolicy.schedulingPolicy.minAvailable to the number of workers",
    )
