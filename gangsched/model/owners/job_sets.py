"""JobSets (jobset.x-k8s.io): all Jobs of one attempt are one gang, replicas x parallelism over all of them.

Only the JobSet states the number of pods. A restart recreates them all under a higher restart-attempt, which
is part of the gang's name: pods of an old attempt do not belong to the new gang. If Jobs are created one
replicatedJob after the other, each replicatedJob is a gang. With exclusive topology there is no gang: the API
server refuses a Job's other pods until the first has a node.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from gangsched.model.objects import ObjectMeta, Pod
from gangsched.model.owners.owner import Claim, Count, Owner, OwnerName, Role, Start, checked, named
from gangsched.model.owners.templates import JobTemplate, Wire

KIND = "JobSet"
DIALECT = "jobset"
NAME_KEY = "jobset.sigs.k8s.io/jobset-name"
UID_KEY = "jobset.sigs.k8s.io/jobset-uid"
ROLE_KEY = "jobset.sigs.k8s.io/replicatedjob-name"
ATTEMPT_KEY = "jobset.sigs.k8s.io/restart-attempt"
EXCLUSIVE_KEY = "alpha.jobset.sigs.k8s.io/exclusive-topology"
BY_NODE_LABEL_KEY = "alpha.jobset.sigs.k8s.io/node-selector"
_RESTARTED = re.compile(r"-restart-\d+")


class DependsOn(Wire):
    name: str = ""


class ReplicatedJob(Wire):
    name: str = ""
    replicas: Count | None = None
    template: JobTemplate = msgspec.field(default_factory=JobTemplate)
    depends_on: list[DependsOn] | None = None


class StartupPolicy(Wire):
    startup_policy_order: str = ""


class JobSetSpec(Wire):
    replicated_jobs: list[ReplicatedJob] | None = None
    startup_policy: StartupPolicy | None = None


class JobSet(Wire):
    metadata: ObjectMeta
    spec: JobSetSpec = msgspec.field(default_factory=JobSetSpec)


def name_of_attempt(name: str, labels: Mapping[str, str]) -> str:
    """Returns the name of the attempt's gang to which a pod with these labels belongs."""
    attempt = labels.get(ATTEMPT_KEY, "0")
    return name if attempt == "0" else f"{name}-restart-{attempt}"


def name_of_all(name: str) -> str:
    """Returns the part that the names of all attempts' gangs share."""
    return _RESTARTED.sub("", name)


def claim(pod: Pod) -> Claim | None:
    meta, labels = pod.metadata, pod.metadata.labels or {}
    name = labels.get(NAME_KEY)
    if not name:
        return None
    return Claim(
        DIALECT,
        name_of_attempt(name, labels),
        labels.get(UID_KEY, name),
        OwnerName(KIND, meta.namespace, name),
        role=labels.get(ROLE_KEY, ""),
    )


def read(job_set: JobSet) -> Owner:
    spec = job_set.spec
    jobs = spec.replicated_jobs or []
    roles = tuple(
        Role(
            job.name,
            (1 if job.replicas is None else job.replicas) * job.template.spec.n_at_once,
            job.template.spec.template.spec.scheduler_name,
        )
        for job in jobs
    )
    start, why, cure = Start.AT_ONCE, "", ""
    if spec.startup_policy is not None and spec.startup_policy.startup_policy_order == "InOrder":
        start = Start.ROLE_BY_ROLE
        why = "spec.startupPolicy is InOrder: later Jobs exist only when earlier ones are ready"
        cure = "take startupPolicy out to have all of it start together"
    elif any(job.depends_on for job in jobs):
        start = Start.ROLE_BY_ROLE
        why = "spec.replicatedJobs[].dependsOn: Jobs exist only when those they depend on are ready"
        cure = "take dependsOn out to have all of it start together"
    if any(_is_exclusive(meta) for meta in (job_set.metadata, *(job.template.metadata for job in jobs))):
        start = Start.NO_GANG
        why = f"annotation {EXCLUSIVE_KEY}: a Job's other pods exist only when its first one has a node"
        cure = f"use {BY_NODE_LABEL_KEY}, or gangsched.io/topology, in its place"
    owner = Owner(
        named(KIND, job_set.metadata),
        job_set.metadata.uid,
        roles,
        start,
        why,
        cure,
        at_once=sum(role.count for role in roles),
    )
    return checked(owner)


def _is_exclusive(meta: ObjectMeta) -> bool:
    annotations = meta.annotations or {}
    return EXCLUSIVE_KEY in annotations and BY_NODE_LABEL_KEY not in annotations
