"""Unfolds objects that make other objects, rather than pods, into these: a RayJob into its cluster.

Lives here: their table, and the smaller ones. Called by manifests, which reads what they make as if it stood
in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from gangsched.model.dialects.volcano import GROUP_NAME, TASK_SPEC
from gangsched.whatif.makers import kubeflow, ray, trainer
from gangsched.whatif.makers.templates import (
    Json,
    bounded,
    count_in,
    list_in,
    object_in,
    object_of,
    optional_in,
    pod_of,
    template_in,
    text_in,
)


def _cron_job(document: Json) -> Iterator[Json]:
    template = object_in(object_in(document, "spec"), "jobTemplate", "spec.")
    spec = object_in(template, "spec", "spec.jobTemplate.")
    made = object_of(document, "batch/v1", "Job", f"{document['metadata']['name']}-run", spec)
    made["metadata"] |= {
        texts: optional_in(optional_in(template, "metadata", "spec.jobTemplate."), texts)
        for texts in ("labels", "annotations")
    }
    yield made


def _app_wrapper(document: Json) -> Iterator[Json]:
    for i, one in enumerate(list_in(object_in(document, "spec"), "components", "spec.")):
        made = object_in(one, "template", f"spec.components[{i}].")
        yield made


def _volcano_job(document: Json) -> Iterator[Json]:
    """A PodGroup and pods, as Volcano's job controller makes them. Source: volcano
    `pkg/controllers/job/job_controller_util.go`."""
    spec, name = object_in(document, "spec"), document["metadata"]["name"]
    scheduler = text_in(spec, "schedulerName", "volcano", "spec.")
    pods: list[Json] = []
    least: dict[str, int] = {}
    for i, task in enumerate(list_in(spec, "tasks", "spec.")):
        field = f"spec.tasks[{i}]."
        role = text_in(task, "name", f"default{i}", field)
        template = template_in(task, "template", field)
        n_pods = count_in(task, "replicas", 1, field)
        bounded(len(pods) + n_pods, f"{field}replicas")
        least[role] = count_in(task, "minAvailable", n_pods, field)
        for k in range(n_pods):
            pod: Json = {"apiVersion": "v1", "kind": "Pod"}
            pod |= pod_of(template, f"{name}-{role}-{k}", document)
            pod["spec"]["schedulerName"] = pod["spec"].get("schedulerName") or scheduler
            if spec.get("priorityClassName") and not pod["spec"].get("priorityClassName"):
                pod["spec"]["priorityClassName"] = spec["priorityClassName"]
            pod["metadata"]["annotations"] |= {GROUP_NAME: name, TASK_SPEC: role}
            pods.append(pod)
    group = {"minMember": count_in(spec, "minAvailable", len(pods), "spec."), "minTaskMember": least}
    yield object_of(document, "scheduling.volcano.sh/v1beta1", "PodGroup", name, group)
    yield from pods


def _train_job(runtimes: trainer.Runtimes) -> Callable[[Json], Iterator[Json]]:
    return lambda document: trainer.job(document, runtimes)


def unfolders(runtimes: trainer.Runtimes) -> Mapping[tuple[str, str], Callable[[Json], Iterator[Json]]]:
    """Returns by API group and kind what yields the objects that such an object makes."""
    return {
        ("batch", "CronJob"): _cron_job,
        ("ray.io", "RayJob"): ray.job,
        ("ray.io", "RayService"): ray.service,
        ("ray.io", "RayCronJob"): ray.cron_job,
        (trainer.GROUP, "TrainJob"): _train_job(runtimes),
        ("batch.volcano.sh", "Job"): _volcano_job,
        ("workload.codeflare.dev", "AppWrapper"): _app_wrapper,
        **{(kubeflow.GROUP, kind): kubeflow.job for kind in kubeflow.KINDS},
    }
