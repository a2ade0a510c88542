"""Gangs in every shape that gangsched reads: the pods, the object where there is one, the CRD behind it.

A shape is a system's way to write a gang: a dialect, which names the group, or a controller's pods, which do
not. Pods of controllers are tests.controllers'; what is asked of each shape is in test_shapes.py, and
docs/controllers.md has the table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests import controllers as made
from tests.controllers import Json, pod
from tests.real.cluster import CORE_GROUPS, COSCHEDULING_GROUPS, words
from tests.real.controllers import collection

SIZE = 3
"""Pods of a gang; each of them fills a node."""


class Shape(NamedTuple):
    """How a gang of SIZE pods named g is written of which `least` start together.

    objects: what is created before its pods, by collection. crds: made first. status: the path of the object
    whose status tells of the gang, "" where the gang has none. scheduler: a name that its controller writes
    into its pods whatever their user says.
    """

    pods: Callable[[int], list[Json]]
    objects: Callable[[int], Sequence[tuple[str, Json]]] = lambda least: ()
    crds: tuple[Json, ...] = ()
    status: str = ""
    scheduler: str = ""


def group_crd(group: str, version: str, *, has_status: bool) -> Json:
    """A PodGroup as its project defines it, as far as matters here: with or without a status subresource."""
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    one = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": free}}
    if has_status:
        one["subresources"] = {"status": {}}
    unapproved = {"api-approved.kubernetes.io": "unapproved, of a test"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"podgroups.{group}", "annotations": unapproved},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup"},
            "versions": [one],
        },
    }


def groups_at(api_version: str) -> str:
    return f"/apis/{api_version}/namespaces/default/podgroups"


def pods_of(
    *, labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None, **spec: object
) -> list[Json]:
    """The pods of a dialect: all alike."""
    found = [pod(f"g-{k}", labels=labels, annotations=annotations) for k in range(SIZE)]
    for one in found:
        one["spec"] |= spec
    return found


def dialect(name: str) -> Callable[[int], list[Json]]:
    """Of those that tests.real.cluster speaks too."""

    def pods(least: int) -> list[Json]:
        labels, annotations = words(name, "g", least)
        spec = {"schedulingGroup": {"podGroupName": "g"}} if name == "core" else {}
        return pods_of(labels=labels, annotations=annotations, **spec)

    return pods


def pod_group(api_version: str, **more: object) -> Callable[[int], list[tuple[str, Json]]]:
    def objects(least: int) -> list[tuple[str, Json]]:
        kind = {"apiVersion": api_version, "kind": "PodGroup", "metadata": {"name": "g"}}
        return [(groups_at(api_version), {**kind, "spec": {"minMember": least, **more}})]

    return objects


def group_of_plugins(pods: list[Json], scheduler: str = "") -> list[Json]:
    """A controller's pods as it labels them for scheduler-plugins."""
    for one in pods:
        one["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = "g"
        one["spec"] |= {"schedulerName": scheduler} if scheduler else {}
    return pods


def core_group(least: int) -> list[tuple[str, Json]]:
    spec = {"schedulingPolicy": {"gang": {"minCount": least}}}
    return [(CORE_GROUPS, {"metadata": {"name": "g"}, "spec": spec})]


def told(pods: list[Json], least: int) -> list[Json]:
    """Pods of a controller that are told to start with fewer than all."""
    if least < len(pods):
        for one in pods:
            one["metadata"]["annotations"]["gangsched.io/min-members"] = str(least)
    return pods


def owner(kind: str, body: Callable[[int], Json]) -> Callable[[int], list[tuple[str, Json]]]:
    return lambda least: [(collection(kind), body(least))]


VOLCANO, KAI, KOORDINATOR = (
    "scheduling.volcano.sh/v1beta1",
    "scheduling.run.ai/v2alpha2",
    "scheduling.sigs.k8s.io/v1alpha1",
)
GANG = "gang.scheduling.koordinator.sh"
PLUGINS = "scheduling.x-k8s.io/v1alpha1"
PLUGINS_SCHEDULER = "scheduler-plugins-scheduler"
_TRAIN_JOB = {"node": (1, SIZE)}

DIALECTS: dict[str, Shape] = {
    "gangsched": Shape(dialect("ours")),
    "core PodGroup": Shape(dialect("core"), core_group, status=f"{CORE_GROUPS}/g"),
    "Coscheduling": Shape(
        dialect("coscheduling"),
        pod_group(PLUGINS),
        status=f"{COSCHEDULING_GROUPS}/g",
    ),
    "Coscheduling, lightweight": Shape(dialect("lightweight")),
    "Volcano": Shape(
        lambda least: pods_of(annotations={"scheduling.k8s.io/group-name": "g"}),
        pod_group(VOLCANO, queue="default"),
        (group_crd("scheduling.volcano.sh", "v1beta1", has_status=False),),
        f"{groups_at(VOLCANO)}/g",
    ),
    "KAI": Shape(
        lambda least: pods_of(annotations={"pod-group-name": "g"}, labels={"kai.scheduler/queue": "q"}),
        pod_group(KAI, queue="q"),
        (group_crd("scheduling.run.ai", "v2alpha2", has_status=True),),
        f"{groups_at(KAI)}/g",
    ),
    "Koordinator": Shape(
        lambda least: pods_of(annotations={f"{GANG}/name": "g", f"{GANG}/min-available": str(least)}),
    ),
    "Koordinator's PodGroup": Shape(
        lambda least: pods_of(labels={"pod-group.scheduling.sigs.k8s.io": "g"}),
        pod_group(KOORDINATOR),
        (group_crd("scheduling.sigs.k8s.io", "v1alpha1", has_status=False),),
        f"{groups_at(KOORDINATOR)}/g",
    ),
    "YuniKorn": Shape(
        lambda least: pods_of(
            labels={"applicationId": "g"},
            annotations={
                "yunikorn.apache.org/task-group-name": "workers",
                "yunikorn.apache.org/task-groups": json.dumps([{"name": "workers", "minMember": least}]),
            },
        ),
    ),
}

OPERATORS: dict[str, Shape] = {
    "Trainer, coscheduling": Shape(
        lambda least: group_of_plugins(made.job_set_pods("g", _TRAIN_JOB)),
        lambda least: [
            (collection("JobSet"), made.job_set("g", _TRAIN_JOB)),
            *pod_group(PLUGINS, scheduleTimeoutSeconds=60)(least),
        ],
        (made.crd("JobSet"),),
        f"{COSCHEDULING_GROUPS}/g",
    ),
    "MPI operator, scheduler-plugins": Shape(
        lambda least: made.mpi_pods("g", SIZE - 1),
        lambda least: [
            (collection("MPIJob"), made.mpi_job("g")),
            *pod_group(PLUGINS, scheduleTimeoutSeconds=0, minResources={"cpu": str(least)})(least),
        ],
        (made.crd("MPIJob"),),
        f"{COSCHEDULING_GROUPS}/g",
    ),
    "KubeRay, scheduler-plugins": Shape(
        lambda least: group_of_plugins(made.ray_pods("g", workers=SIZE - 1), PLUGINS_SCHEDULER),
        lambda least: [
            (collection("RayCluster"), made.ray_cluster("g", workers=SIZE - 1)),
            *pod_group(PLUGINS, minResources={"cpu": str(SIZE)})(least),
        ],
        (made.crd("RayCluster"),),
        f"{COSCHEDULING_GROUPS}/g",
        PLUGINS_SCHEDULER,
    ),
}
"""Controllers whose pods name a PodGroup that they make."""

_ROLES = {"driver": (1, 1), "workers": (1, SIZE - 1)}

CONTROLLERS: dict[str, Shape] = {
    "JobSet": Shape(
        lambda least: told(made.job_set_pods("g", _ROLES), least),
        owner("JobSet", lambda least: made.job_set("g", _ROLES)),
        (made.crd("JobSet"),),
    ),
    "LeaderWorkerSet": Shape(
        lambda least: told(made.leader_worker_pods("g", size=SIZE), least),
        owner("LeaderWorkerSet", lambda least: made.leader_worker_set("g", size=SIZE)),
        (made.crd("LeaderWorkerSet"),),
    ),
    "RayCluster": Shape(
        lambda least: made.ray_pods("g", workers=SIZE - 1),
        owner(
            "RayCluster",
            lambda least: made.ray_cluster("g", workers=SIZE - 1, min_workers=least - 1, autoscaling=True),
        ),
        (made.crd("RayCluster"),),
    ),
    "Kueue pod group": Shape(lambda least: told(made.kueue_group_pods("g", SIZE), least)),
    "Kueue Workload": Shape(
        lambda least: told(made.admitted_pods("g", "job-g", SIZE), least),
        owner("Workload", lambda least: made.workload("job-g", asked=SIZE, admitted=SIZE)),
        (made.crd("Workload"),),
    ),
    "Job": Shape(
        lambda least: told(made.job_pods("g", SIZE), least),
        owner("Job", lambda least: made.job("g", parallelism=SIZE)),
    ),
}

NAMED = {**DIALECTS, **OPERATORS}
SHAPES = {**NAMED, **CONTROLLERS}
