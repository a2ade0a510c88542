"""batch/v1 Jobs: the pods of an Indexed Job are one gang, min(parallelism, completions) at a time.

An index that has succeeded, or failed for good, gets no more pods. A Job without indices is a work queue
whose workers are independent, so it is no gang.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from gangsched.model.objects import ObjectMeta, Pod
from gangsched.model.owners.owner import Claim, Count, Owner, OwnerName, Role, Start, named
from gangsched.model.owners.templates import JobSpec, Wire

KIND = "Job"
DIALECT = "job"
INDEX_KEY = "batch.kubernetes.io/job-completion-index"


# A longer number is no index.
_MAX_DIGITS = 10


class JobStatus(Wire):
    succeeded: Count | None = None
    failed_indexes: str | None = None
    start_time: datetime | None = None


class Job(Wire):
    metadata: ObjectMeta
    spec: JobSpec = msgspec.field(default_factory=JobSpec)
    status: JobStatus = msgspec.field(default_factory=JobStatus)


def claim(pod: Pod) -> Claim | None:
    """Returns a Claim only for pods that have an index."""
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
    n_owed = None
    if spec.completions is not None:
        n_over = (job.status.succeeded or 0) + _n_of(job.status.failed_indexes or "")
        n_owed = max(0, min(spec.n_at_once, spec.completions - n_over))
    role = Role("", spec.n_at_once, spec.template.spec.scheduler_name, n_owed)
    start = Start.AT_ONCE if spec.completion_mode == "Indexed" else Start.NO_GANG
    began = job.status.start_time
    return Owner(
        named(KIND, job.metadata),
        job.metadata.uid,
        (role,),
        start,
        deadline_s=None if began is None else spec.active_deadline_seconds,
        began_at=0.0 if began is None else began.timestamp(),
        at_once=spec.n_at_once,
    )


def _n_of(indexes: str) -> int:
    """Counts the indices in the Job controller's "1,3-5"; ignores anything else."""
    n = 0
    for part in indexes.split(",") if indexes else ():
        first, _, last = part.partition("-")
        ends = (first, last or first)
        if all(end.isdecimal() and end.isascii() and len(end) <= _MAX_DIGITS for end in ends):
            n += max(0, int(ends[1]) - int(ends[0]) + 1)
    return n
