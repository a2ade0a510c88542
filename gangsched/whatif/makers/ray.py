"""Makes the pods of RayClusters, and the objects of RayJobs, RayServices and RayCronJobs, as KubeRay does.

Source: KubeRay 1.5, `ray-operator/controllers/ray`: common/pod.go (labels, the autoscaler's container),
common/job.go (the submitter), utils/util.go (the number of workers).
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

from gangsched.errors import ConfigError
from gangsched.model.owners import ray
from gangsched.whatif.makers.templates import (
    Json,
    bounded,
    count_in,
    object_in,
    object_of,
    optional_in,
    optional_list_in,
    pod_of,
    template_in,
    text_in,
)

VERSION = "ray.io/v1"
_AUTOSCALER = {"cpu": "500m", "memory": "512Mi"}
_SUBMITTER = {"requests": {"cpu": "500m", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
_MODES = ("K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode")


def cluster(document: Json) -> Iterator[Json]:
    """Yields the head, then the workers of each group."""
    spec, name = object_in(document, "spec"), document["metadata"]["name"]
    template = template_in(object_in(spec, "headGroupSpec", "spec."), "template", "spec.headGroupSpec.")
    head = pod_of(template, f"{name}-head", document)
    if spec.get("enableInTreeAutoscaling"):
        head["spec"]["containers"].append({"name": "autoscaler", "resources": _autoscaler(spec)})
    yield _labelled(head, name, "head", ray.HEAD)
    for i, group in enumerate(optional_list_in(spec, "workerGroupSpecs", "spec.")):
        field = f"spec.workerGroupSpecs[{i}]."
        group_name = text_in(group, "groupName", str(i), field)
        template = template_in(group, "template", field)
        for k in range(bounded(_n_workers(group, field), f"{field}replicas")):
            worker = pod_of(template, f"{name}-{group_name}-worker-{k}", document)
            yield _labelled(worker, name, "worker", group_name)


def job(document: Json) -> Iterator[Json]:
    """Yields the cluster of a RayJob, and the Job that submits to it."""
    spec, name = object_in(document, "spec"), document["metadata"]["name"]
    mode = text_in(spec, "submissionMode", _MODES[0], "spec.")
    if mode not in _MODES:
        raise ConfigError(f"{mode[:80]!r} is none of {', '.join(_MODES)}", path="spec.submissionMode")
    if not spec.get("clusterSelector"):
        of_cluster = object_in(spec, "rayClusterSpec", "spec.")
        if mode == "SidecarMode":
            of_cluster = deepcopy(of_cluster)
            head = object_in(of_cluster, "headGroupSpec", "spec.rayClusterSpec.")
            field = "spec.rayClusterSpec.headGroupSpec."
            template = template_in(head, "template", field)
            template["spec"]["containers"].append({"name": "ray-job-submitter", "resources": _SUBMITTER})
        yield object_of(document, VERSION, ray.KIND, f"{name}-cluster", of_cluster)
    if mode == "K8sJobMode":
        template = {"spec": {"containers": [{"name": "ray-job-submitter", "resources": _SUBMITTER}]}}
        if spec.get("submitterPodTemplate") is not None:
            template = object_in(spec, "submitterPodTemplate", "spec.")
        yield object_of(document, "batch/v1", "Job", name, {"template": template})


def service(document: Json) -> Iterator[Json]:
    """Yields the cluster of a RayService."""
    spec = object_in(object_in(document, "spec"), "rayClusterConfig", "spec.")
    yield object_of(document, VERSION, ray.KIND, f"{document['metadata']['name']}-cluster", spec)


def cron_job(document: Json) -> Iterator[Json]:
    """Yields one run of a RayCronJob."""
    spec = object_in(object_in(document, "spec"), "jobTemplate", "spec.")
    yield object_of(document, VERSION, "RayJob", f"{document['metadata']['name']}-run", spec)


def _labelled(pod: Json, name: str, node_type: str, group: str) -> Json:
    pod["metadata"]["labels"] |= {
        ray.CLUSTER_KEY: name,
        ray.NODE_TYPE_KEY: node_type,
        ray.GROUP_KEY: group,
    }
    return pod


def _autoscaler(spec: Json) -> Json:
    stated = optional_in(
        optional_in(spec, "autoscalerOptions", "spec."), "resources", "spec.autoscalerOptions."
    )
    return stated or {"requests": dict(_AUTOSCALER), "limits": dict(_AUTOSCALER)}


def _n_workers(group: Json, field: str) -> int:
    if group.get("suspend") is True:
        return 0
    least = count_in(group, "minReplicas", 0, field)
    replicas = max(count_in(group, "replicas", least, field), least)
    most = count_in(group, "maxReplicas", replicas, field)
    return min(replicas, max(most, least)) * count_in(group, "numOfHosts", 1, field)
