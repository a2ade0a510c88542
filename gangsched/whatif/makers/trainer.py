"""Makes the JobSet of a TrainJob from its runtime, as Kubeflow Trainer 2.3 does.

Source: trainer `pkg/runtime/core/trainingruntime.go`, and `pkg/runtime/framework/plugins` (jobset, mpi,
plainml, coscheduling, volcano). Called by unfolding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from gangsched.errors import ConfigError
from gangsched.model.dialects.volcano import GROUP_NAME
from gangsched.model.pod_group import COSCHEDULING_LABEL
from gangsched.reading.strict import nearest
from gangsched.whatif.makers.templates import (
    Json,
    count_in,
    list_in,
    object_in,
    object_of,
    optional_in,
    optional_list_in,
    template_in,
    text_in,
)

GROUP = "trainer.kubeflow.org"
IN_CLUSTER, IN_NAMESPACE = "ClusterTrainingRuntime", "TrainingRuntime"
Runtimes = Mapping[tuple[str, str, str], Json]
"""By kind, namespace ("" for those of the cluster), and name."""
_STEP_KEY = "trainer.kubeflow.org/trainjob-ancestor-step"
_NODE = "node"


def runtime_of(document: Json) -> tuple[str, str, str]:
    """Returns the key of the runtime that a TrainJob names."""
    named = object_in(object_in(document, "spec"), "runtimeRef", "spec.")
    kind = text_in(named, "kind", IN_CLUSTER, "spec.runtimeRef.")
    if kind not in (IN_CLUSTER, IN_NAMESPACE):
        raise ConfigError(
            f"{kind[:80]!r} is neither {IN_CLUSTER} nor {IN_NAMESPACE}", path="spec.runtimeRef.kind"
        )
    namespace = "" if kind == IN_CLUSTER else document["metadata"]["namespace"]
    return kind, namespace, text_in(named, "name", "", "spec.runtimeRef.")


def job(document: Json, runtimes: Runtimes) -> Iterator[Json]:
    """Yields the JobSet, and the PodGroup where the runtime asks for one."""
    key = runtime_of(document)
    if key not in runtimes:
        kind, namespace, name = key
        known = [one for k, where, one in runtimes if (k, where) == (kind, namespace)]
        raise ConfigError(
            f"there is no {kind} {name[:80]!r} in the files or in the cluster{nearest(name, known)}; if it"
            " may not be read there, give its manifest too",
            path="spec.runtimeRef.name",
        )
    spec, name = document["spec"], document["metadata"]["name"]
    runtime = deepcopy(object_in(runtimes[key], "spec", f"{key[0]} {key[2]}: "))
    whole = object_in(runtime, "template", f"{key[0]} {key[2]}: spec.")
    field = f"{key[0]} {key[2]}: spec.template.spec."
    job_set = object_in(whole, "spec", f"{key[0]} {key[2]}: spec.template.")
    for i, patch in enumerate(optional_list_in(spec, "runtimePatches", "spec.")):
        at = f"spec.runtimePatches[{i}]."
        change = optional_in(
            optional_in(patch, "trainingRuntimeSpec", at), "template", f"{at}trainingRuntimeSpec."
        )
        job_set = _merged(job_set, optional_in(change, "spec", f"{at}trainingRuntimeSpec.template."))
    jobs = list_in(job_set, "replicatedJobs", field)
    for i, one in enumerate(jobs):
        at = f"{field}replicatedJobs[{i}]."
        of_job = object_in(object_in(one, "template", at), "spec", f"{at}template.")
        template_in(of_job, "template", f"{at}template.spec.")
        _override(one, of_job["template"], spec)
    _count_nodes(runtime, jobs, spec)
    groups = list(_pod_group(document, runtime, jobs))
    made = object_of(document, "jobset.x-k8s.io/v1alpha2", "JobSet", name, job_set)
    made["metadata"] |= {
        texts: optional_in(optional_in(whole, "metadata", field), texts, field)
        for texts in ("labels", "annotations")
    }
    yield from (*groups, made)


def _override(one: Json, template: Json, spec: Json) -> None:
    """Applies podTemplateOverrides, the form of older versions."""
    for i, override in enumerate(optional_list_in(spec, "podTemplateOverrides", "spec.")):
        at = f"spec.podTemplateOverrides[{i}]."
        if any(target.get("name") == one.get("name") for target in list_in(override, "targetJobs", at)):
            change = {part: optional_in(override, part, at) for part in ("metadata", "spec")}
            template.update(_merged(template, change))


def _count_nodes(runtime: Json, jobs: list[Json], spec: Json) -> None:
    """Writes the number of nodes and their resources into the Jobs that they are for."""
    policy = optional_in(runtime, "mlPolicy", "spec.")
    mpi = optional_in(policy, "mpi", "spec.mlPolicy.")
    is_launcher_node = mpi.get("runLauncherAsNode") is True
    wanted = optional_in(spec, "trainer", "spec.")
    n_nodes = count_in(wanted, "numNodes", 0, "spec.trainer.")
    resources = optional_in(wanted, "resourcesPerNode", "spec.trainer.")
    for one in jobs:
        template = one["template"]
        labels = optional_in(optional_in(template, "metadata"), "labels", "metadata.")
        is_trainer = labels.get(_STEP_KEY) == "trainer"
        n_pods = count_in(template["spec"], "parallelism", 1, "spec.")
        if is_trainer and policy:
            n_pods = count_in(policy, "numNodes", 1, "spec.mlPolicy.")
        if n_nodes and mpi and one.get("name") == _NODE:
            n_pods = max(n_nodes - 1, 1) if is_launcher_node else n_nodes
        elif n_nodes and is_trainer and not mpi:
            n_pods = n_nodes
        template["spec"] |= {"parallelism": n_pods, "completions": n_pods}
        if labels.get(_STEP_KEY):
            one["replicas"] = 1
        if (is_trainer and policy) or (is_launcher_node and one.get("name") == _NODE):
            for container in template["spec"]["template"]["spec"]["containers"]:
                if container.get("name") == _NODE:
                    container["resources"] = _merged(optional_in(container, "resources"), resources)


def _pod_group(document: Json, runtime: Json, jobs: list[Json]) -> Iterator[Json]:
    """Yields the PodGroup by the runtime's podGroupPolicy, and names it in the templates."""
    policy, name = optional_in(runtime, "podGroupPolicy", "spec."), document["metadata"]["name"]
    n_pods = sum(count_in(one, "replicas", 1, "") * one["template"]["spec"]["parallelism"] for one in jobs)
    if policy.get("coscheduling") is not None:
        api_version, texts, key = "scheduling.x-k8s.io/v1alpha1", "labels", COSCHEDULING_LABEL
    elif policy.get("volcano") is not None:
        api_version, texts, key = "scheduling.volcano.sh/v1beta1", "annotations", GROUP_NAME
    else:
        return
    yield object_of(document, api_version, "PodGroup", name, {"minMember": n_pods})
    for one in jobs:
        meta = one["template"]["spec"]["template"]["metadata"]
        meta[texts] = {**(meta.get(texts) or {}), key: name}


def _merged(before: Any, change: Any) -> Any:
    """Merges as a strategic merge patch does, as far as pod templates need it: lists of named objects by
    name, others as a whole."""
    if isinstance(before, dict) and isinstance(change, dict):
        merged = dict(before)
        for key, value in change.items():
            merged[key] = _merged(before.get(key), value)
        return merged
    if _is_named(before) and _is_named(change):
        by_name = {one["name"]: one for one in before}
        for one in change:
            by_name[one["name"]] = _merged(by_name.get(one["name"]), one)
        return list(by_name.values())
    return deepcopy(change)


def _is_named(found: Any) -> bool:
    return isinstance(found, list) and all(
        isinstance(one, dict) and isinstance(one.get("name"), str) for one in found
    )
