"""Objects and pods exactly as controllers make them, as the API server's JSON: JobSet 0.12, LeaderWorkerSet
0.10, KubeRay, Kueue 0.19, the Job controller, the MPI operator.

For the core's scenarios `pod_of` decodes such a pod; tests on a real API server create the JSON itself.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from gangsched.lab.sim.objects import GPU, OURS
from gangsched.model.objects import Pod
from gangsched.model.owners import OWNER_KINDS, Owner

Json = dict[str, Any]


def pod(
    name: str,
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    gpus: int = 8,
    scheduler: str = OURS,
    gates: tuple[str, ...] = (),
    owner: Json | None = None,
) -> Json:
    resources = {"requests": {"cpu": "1"}, "limits": {GPU: str(gpus)}} if gpus else {"requests": {"cpu": "1"}}
    metadata: Json = {"name": name, "labels": labels or {}, "annotations": annotations or {}}
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    spec: Json = {
        "schedulerName": scheduler,
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": "busybox", "resources": resources}],
    }
    if gates:
        spec["schedulingGates"] = [{"name": gate} for gate in gates]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def template(scheduler: str = OURS) -> Json:
    containers = [{"name": "main", "image": "busybox"}]
    return {"spec": {"schedulerName": scheduler, "restartPolicy": "Never", "containers": containers}}


def reference(api_version: str, kind: str, name: str, uid: str = "") -> Json:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": name,
        "uid": uid or f"uid-{name}",
        "controller": True,
        "blockOwnerDeletion": True,
    }


# -- batch/v1 ---------------------------------------------------------------------------------------------


def job(
    name: str,
    *,
    parallelism: int,
    completions: int | None = None,
    indexed: bool = True,
    status: Json | None = None,
) -> Json:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "parallelism": parallelism,
            "completions": parallelism if completions is None else completions,
            "completionMode": "Indexed" if indexed else "NonIndexed",
            "template": template(),
        },
        **({} if status is None else {"status": status}),
    }


def job_pods(
    name: str, n: int, *, first: int = 0, indexed: bool = True, uid: str = "", **more: Any
) -> list[Json]:
    own = {"batch.kubernetes.io/job-name": name, "job-name": name}
    made = []
    for k in range(first, first + n):
        index = {"batch.kubernetes.io/job-completion-index": str(k)} if indexed else {}
        labels = {**own, **index, **more.get("labels", {})}
        annotations = {**index, **more.get("annotations", {})}
        rest = {key: value for key, value in more.items() if key not in ("labels", "annotations")}
        owner = reference("batch/v1", "Job", name, uid)
        made.append(pod(f"{name}-{k}", labels=labels, annotations=annotations, owner=owner, **rest))
    return made


# -- jobset.x-k8s.io --------------------------------------------------------------------------------------

J = "jobset.sigs.k8s.io"


def job_set(name: str, roles: dict[str, tuple[int, int]], *, scheduler: str = OURS, **spec: Any) -> Json:
    """roles: name -> (replicas, parallelism)."""
    jobs = [
        {
            "name": role,
            "replicas": replicas,
            "template": {
                "spec": {
                    "parallelism": parallelism,
                    "completions": parallelism,
                    "completionMode": "Indexed",
                    "template": template(scheduler),
                }
            },
        }
        for role, (replicas, parallelism) in roles.items()
    ]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "annotations": spec.pop("annotations", {})},
        "spec": {"replicatedJobs": jobs, "network": {"enableDNSHostnames": True}, **spec},
    }


def job_set_pods(
    name: str, roles: dict[str, tuple[int, int]], *, attempt: int = 0, uid: str = "", **more: Any
) -> list[Json]:
    """All pods of an attempt; their names end in a suffix that the attempt gives, as the server would."""
    made = []
    at = 0
    for role, (replicas, parallelism) in roles.items():
        for k in range(replicas):
            child = f"{name}-{role}-{k}"
            marks = {
                f"{J}/jobset-name": name,
                f"{J}/jobset-uid": uid or f"uid-{name}",
                f"{J}/replicatedjob-name": role,
                f"{J}/replicatedjob-replicas": str(replicas),
                f"{J}/job-index": str(k),
                f"{J}/job-global-index": str(at),
                f"{J}/global-replicas": str(sum(n for n, _ in roles.values())),
                f"{J}/restart-attempt": str(attempt),
            }
            at += 1
            for one in job_pods(child, parallelism, labels=marks, annotations=marks, **more):
                one["metadata"]["name"] += f"-a{attempt}"
                made.append(one)
    return made


# -- leaderworkerset.x-k8s.io -----------------------------------------------------------------------------

L = "leaderworkerset.sigs.k8s.io"


def leader_worker_set(name: str, *, size: int, replicas: int = 1, policy: str = "LeaderCreated") -> Json:
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "startupPolicy": policy,
            "leaderWorkerTemplate": {"size": size, "workerTemplate": template()},
        },
    }


def leader_worker_pods(
    name: str,
    *,
    size: int,
    replica: int = 0,
    workers: range | None = None,
    revision: str = "6f5c",
    **more: Any,
) -> list[Json]:
    """The leader is worker 0; workers: only these."""
    made = []
    for k in range(size) if workers is None else workers:
        labels = {
            f"{L}/name": name,
            f"{L}/group-index": str(replica),
            f"{L}/group-key": "5b0d0f",
            f"{L}/template-revision-hash": revision,
            f"{L}/worker-index": str(k),
        }
        leader = f"{name}-{replica}"
        annotations = {f"{L}/size": str(size), **more.get("annotations", {})}
        owner = reference("apps/v1", "StatefulSet", leader if k else name)
        rest = {key: value for key, value in more.items() if key != "annotations"}
        own = f"{leader}-{k}" if k else leader
        made.append(pod(own, labels=labels, annotations=annotations, owner=owner, **rest))
    return made


# -- ray.io -----------------------------------------------------------------------------------------------


def ray_cluster(
    name: str, *, workers: int, min_workers: int = 0, autoscaling: bool = False, hosts: int = 1
) -> Json:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name},
        "spec": {
            "enableInTreeAutoscaling": autoscaling,
            "headGroupSpec": {"rayStartParams": {}, "template": template()},
            "workerGroupSpecs": [
                {
                    "groupName": "gpus",
                    "replicas": workers,
                    "minReplicas": min_workers,
                    "maxReplicas": 100,
                    "numOfHosts": hosts,
                    "rayStartParams": {},
                    "template": template(),
                }
            ],
        },
    }


def ray_pods(name: str, *, workers: int, first: int = 0, head: bool = True, **more: Any) -> list[Json]:
    owner = reference("ray.io/v1", "RayCluster", name)

    def labels(node_type: str, group: str) -> dict[str, str]:
        return {
            "ray.io/cluster": name,
            "ray.io/node-type": node_type,
            "ray.io/group": group,
            "ray.io/is-ray-node": "yes",
            "app.kubernetes.io/created-by": "kuberay-operator",
        }

    made = [pod(f"{name}-head", labels=labels("head", "headgroup"), owner=owner, **more)] if head else []
    for k in range(first, first + workers):
        made.append(pod(f"{name}-gpus-worker-{k}", labels=labels("worker", "gpus"), owner=owner, **more))
    return made


def ray_submitter(name: str, **more: Any) -> Json:
    labels = {
        "ray.io/originated-from-cr-name": name,
        "ray.io/originated-from-crd": "RayJob",
        "job-name": name,
    }
    return pod(f"{name}-submitter", labels=labels, owner=reference("batch/v1", "Job", name), **more)


# -- kueue.x-k8s.io ---------------------------------------------------------------------------------------

K = "kueue.x-k8s.io"


def kueue_group_pods(
    name: str, n: int, *, total: int | None = None, first: int = 0, serving: bool = False, **more: Any
) -> list[Json]:
    labels = {f"{K}/pod-group-name": name, f"{K}/queue-name": "user", f"{K}/managed": "true"}
    annotations = {f"{K}/pod-group-total-count": str(n if total is None else total)}
    if serving:
        annotations[f"{K}/pod-group-serving"] = "true"
    return [
        pod(f"{name}-{k}", labels=labels, annotations=annotations, **more) for k in range(first, first + n)
    ]


def workload(
    name: str, *, asked: int, admitted: int | None, elastic: bool = False, reclaimable: int = 0
) -> Json:
    made: Json = {
        "apiVersion": f"{K}/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name},
        "spec": {"queueName": "user", "podSets": [{"name": "main", "count": asked, "template": template()}]},
        "status": {},
    }
    if elastic:
        made["metadata"]["annotations"] = {f"{K}/elastic-job": "true"}
    if admitted is not None:
        assignment = {"name": "main", "count": admitted, "flavors": {"cpu": "default"}}
        made["status"] = {"admission": {"clusterQueue": "all", "podSetAssignments": [assignment]}}
    if reclaimable:
        made["status"]["reclaimablePods"] = [{"name": "main", "count": reclaimable}]
    return made


def admitted_pods(job_name: str, workload_name: str, n: int, **more: Any) -> list[Json]:
    """Of a Job without indices: Kueue puts both marks into the template when it starts the Job."""
    marks = {f"{K}/podset": "main"}
    return job_pods(
        job_name, n, indexed=False, labels=marks, annotations={f"{K}/workload": workload_name}, **more
    )


# -- kubeflow.org -----------------------------------------------------------------------------------------


def mpi_job(name: str, *, policy: str = "AtStartup") -> Json:
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name},
        "spec": {"launcherCreationPolicy": policy},
    }


def mpi_workers(name: str, n: int, **more: Any) -> list[Json]:
    labels = {
        "training.kubeflow.org/job-name": name,
        "training.kubeflow.org/operator-name": "mpi-operator",
        "training.kubeflow.org/job-role": "worker",
        "scheduling.x-k8s.io/pod-group": name,
    }
    owner = reference("kubeflow.org/v2beta1", "MPIJob", name)
    return [pod(f"{name}-worker-{k}", labels=labels, owner=owner, **more) for k in range(n)]


def mpi_pods(name: str, workers: int) -> list[Json]:
    """The launcher's Job makes its pod at once; all are named for scheduler-plugins' PodGroup."""
    made = mpi_workers(name, workers)
    launcher = mpi_workers(name, 1)[0]
    launcher["metadata"]["name"] = f"{name}-launcher-x7k2p"
    launcher["metadata"]["labels"] |= {"training.kubeflow.org/job-role": "launcher", "job-name": name}
    launcher["metadata"]["ownerReferences"] = [reference("batch/v1", "Job", f"{name}-launcher")]
    return [launcher, *made]


def crd(kind: str) -> Json:
    """The smallest definition of a kind that keeps what is written."""
    one = OWNER_KINDS[kind]
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    versions = [
        {
            "name": version,
            "served": True,
            "storage": version == one.versions[0],
            "schema": {"openAPIV3Schema": free},
        }
        for version in one.versions
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{one.resource}.{one.group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, of a test"},
        },
        "spec": {
            "group": one.group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": one.resource, "singular": kind.lower()},
            "versions": versions,
        },
    }


# -- decoded ----------------------------------------------------------------------------------------------


def decoded(made: list[Json], *, namespace: str = "d") -> list[Pod]:
    """As the watch would bring them."""
    pods = []
    for one in made:
        meta = {
            **one["metadata"],
            "namespace": namespace,
            "uid": f"uid-{namespace}-{one['metadata']['name']}",
        }
        pods.append(msgspec.json.decode(json.dumps({**one, "metadata": meta}), type=Pod))
    return pods


def owner(made: Json, *, namespace: str = "d") -> Owner:
    """What is read of an object. Raises: msgspec.MsgspecError."""
    kind = OWNER_KINDS[made["kind"]]
    name = made["metadata"]["name"]
    meta = {**made["metadata"], "namespace": namespace, "uid": f"uid-{name}"}
    return kind.read(msgspec.json.decode(json.dumps({**made, "metadata": meta}), type=kind.wire))
