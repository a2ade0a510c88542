"""batch/v1 Jobs: an Indexed one's pods are one gang, min(parallelism, completions) of them at a time.

A Job without indices is a queue of work whose workers do not know each other, and is none.
"""

from __future__ import annotations

import msgspec

from gangsched.model.objects import ObjectMeta, Pod
from gangsched.model.owners.owner import Claim, Owner, OwnerName, Role, Start, named
from gangsched.model.owners.templates import JobSpec, Wire

KIND = "Job"
DIALECT = "job"
INDEX_KEY = "batch.kubernetes.io/job-completion-index"


class Job(Wire):
    metadata: ObjectMeta
    spec: JobSpec = msgspec.field(default_factory=JobSpec)


def claim(pod: Pod) -> Claim | None:
    """Only of pods that have an index."""
    meta = pod.metadata
    if INDEX_KEY not in (meta.annotations or ()):
        return None
    for reference in meta.owner_references or ():
        if reference.controller and reference.kind == KIND and reference.api_version.startswith("batch/"):
            owner = OwnerName(KIND, meta.namespace, reference.name)
            return Claim(DIALECT, reference.name, reference.uid, owner)
    return None


def read(job: Job) -> Owner:
    spec = job.spec
    role = Role("", spec.n_at_once, spec.template.spec.scheduler_name)
    start = Start.AT_ONCE if spec.completion_mode == "Indexed" else Start.NO_GANG
    return Owner(named(KIND, job.metadata), job.metadata.uid, (role,), start)
