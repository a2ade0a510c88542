"""Kueue (kueue.x-k8s.io): groups of plain pods, and the pods of what it has admitted.

Each pod of a group of plain pods states the group's name and size. Pods of a Job, or of another kind that
Kueue suspends and starts, name their Workload; it states the admitted number, which may be less than was
requested. Serving groups are as elastic as a Deployment, and elastic Workloads grow slice by slice: no gangs.
"""

from __future__ import annotations

import msgspec

from gangsched.model.objects import Condition, ObjectMeta, Pod
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
from gangsched.model.resources import readable_quantities

KIND = "Workload"
GROUP_DIALECT = "kueue-pod-group"
WORKLOAD_DIALECT = "kueue-workload"
GROUP_KEY = "kueue.x-k8s.io/pod-group-name"
TOTAL_KEY = "kueue.x-k8s.io/pod-group-total-count"
SERVING_KEY = "kueue.x-k8s.io/pod-group-serving"
WORKLOAD_KEY = "kueue.x-k8s.io/workload"
SLICE_KEY = "kueue.x-k8s.io/workload-slice-name"
POD_SET_KEY = "kueue.x-k8s.io/podset"
ELASTIC_KEY = "kueue.x-k8s.io/elastic-job"


class PodSet(Wire):
    name: str = ""
    count: Count | None = None
    template: Template = msgspec.field(default_factory=Template)


class WorkloadSpec(Wire):
    active: bool | None = None
    pod_sets: list[PodSet] | None = None


class Assignment(Wire):
    name: str = ""
    count: Count | None = None
    resource_usage: dict[str, str | int | float] | None = None


class Admission(Wire):
    pod_set_assignments: list[Assignment] | None = None


class WorkloadStatus(Wire):
    conditions: list[Condition] | None = None
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
    owns = tuple(one.uid for one in meta.owner_references or () if one.uid)
    if (meta.annotations or {}).get(ELASTIC_KEY) == "true":
        return Owner(this, meta.uid, start=Start.NO_GANG, admitted=_admitted(workload), owns=owns)
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
    return checked(Owner(this, meta.uid, tuple(roles), admitted=_admitted(workload), owns=owns))


def _admitted(workload: Workload) -> dict[str, int]:
    """Returns what Kueue has admitted of a Workload and still counts in its own quotas.

    Read from the status alone, which Kueue's roles let no user write. It keeps `admission` and Admitted in a
    Workload that has finished, and in one that is being evicted.
    Source: kubernetes-sigs/kueue, pkg/workload (IsAdmitted, IsFinished, IsActive; reclaimable pods).
    """
    status = workload.status
    is_so = {one.type: one.status == "True" for one in status.conditions or ()}
    is_over = is_so.get("Finished") or is_so.get("Evicted") or workload.spec.active is False
    if not is_so.get("Admitted") or is_over or workload.metadata.deletion_timestamp is not None:
        return {}
    ended = {one.name: one.count or 0 for one in status.reclaimable_pods or ()}
    found: dict[str, int] = {}
    assignments = () if status.admission is None else status.admission.pod_set_assignments or ()
    for one in assignments:
        usage, _ = readable_quantities(one.resource_usage)
        n, n_ended = one.count or 0, ended.get(one.name, 0)
        for resource, amount in usage.items():
            if n_ended:
                amount = amount * max(0, n - n_ended) // n if n else 0
            if amount > 0:
                found[resource] = found.get(resource, 0) + amount
    return found
