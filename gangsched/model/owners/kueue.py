"""Kueue (kueue.x-k8s.io): groups of plain pods, and the pods of what it has admitted.

Each pod of a group of plain pods states the group's name and size. Pods of a Job, or of another kind that
Kueue suspends and starts, name their Workload; it states the admitted number, which may be less than was
requested. Serving groups are as elastic as a Deployment, and elastic Workloads grow slice by slice: no gangs.
"""

from __future__ import annotations

import msgspec

from gangsched.model.objects import ObjectMeta, Pod
from gangsched.model.owners.job_sets import name_of_attempt
from gangsched.model.owners.owner import (
    Claim,
    Count,
    Owner,
    OwnerName,
    Role,
    Start,
    checked,
    named,
    read_count,
)
from gangsched.model.owners.templates import Template, Wire

KIND = "Workload"
GROUP_DIALECT = "kueue-pod-group"
WORKLOAD_DIALECT = "kueue-workload"
GROUP_KEY = "kueue.x-k8s.io/pod-group-name"
TOTAL_KEY = "kueue.x-k8s.io/pod-group-total-count"
SERVING_KEY = "kueue.x-k8s.io/pod-group-serving"
WORKLOAD_KEY = "kueue.x-k8s.io/workload"
SLICE_KEY = "kueue.x-k8s.io/workload-slice-name"
ELASTIC_KEY = "kueue.x-k8s.io/elastic-job"


class PodSet(Wire):
    name: str = ""
    count: Count | None = None
    template: Template = msgspec.field(default_factory=Template)


class WorkloadSpec(Wire):
    pod_sets: list[PodSet] | None = None


class Assignment(Wire):
    name: str = ""
    count: Count | None = None


class Admission(Wire):
    pod_set_assignments: list[Assignment] | None = None


class WorkloadStatus(Wire):
    admission: Admission | None = None
    # Pods that have succeeded and no longer need room.
    reclaimable_pods: list[Assignment] | None = None


class Workload(Wire):
    metadata: ObjectMeta
    spec: WorkloadSpec = msgspec.field(default_factory=WorkloadSpec)
    status: WorkloadStatus = msgspec.field(default_factory=WorkloadStatus)


def claim(pod: Pod) -> Claim | None:
    labels, annotations = pod.metadata.labels or {}, pod.metadata.annotations or {}
    group = labels.get(GROUP_KEY)
    if group:
        if annotations.get(SERVING_KEY) == "true":
            return None
        count, problem = read_count(annotations.get(TOTAL_KEY), TOTAL_KEY)
        return Claim(GROUP_DIALECT, group, n_pods=count, problem=problem)
    workload = annotations.get(WORKLOAD_KEY)
    if not workload or SLICE_KEY in annotations or annotations.get(ELASTIC_KEY) == "true":
        return None
    owner = OwnerName(KIND, pod.metadata.namespace, workload)
    return Claim(WORKLOAD_DIALECT, name_of_attempt(workload, labels), workload, owner)


def read(workload: Workload) -> Owner:
    meta, admission = workload.metadata, workload.status.admission
    this = named(KIND, meta)
    if (meta.annotations or {}).get(ELASTIC_KEY) == "true":
        return Owner(this, meta.uid, start=Start.NO_GANG)
    if admission is None:
        return Owner(this, meta.uid, waits="is not admitted by Kueue (yet)")
    sets = {one.name: one for one in workload.spec.pod_sets or ()}
    ended = {one.name: one.count or 0 for one in workload.status.reclaimable_pods or ()}
    roles = []
    for assignment in admission.pod_set_assignments or ():
        pod_set = sets.get(assignment.name, PodSet())
        count = pod_set.count if assignment.count is None else assignment.count
        n = count or 0
        n_owed = max(0, min(n, (pod_set.count or n) - ended.get(assignment.name, 0))) if ended else None
        roles.append(Role(assignment.name, n, pod_set.template.spec.scheduler_name, n_owed))
    return checked(Owner(this, meta.uid, tuple(roles)))
