"""A Job's pods: built from its template, and read as the Job controller reads them. Pure functions.

Source: kubernetes pkg/controller/job (job_controller.go, indexed_job_utils.go), read in v1.37.
"""

from __future__ import annotations

from copy import deepcopy

from gangsched.lab.apiserver.simulated.view import PodView
from gangsched.lab.apiserver.strategy import Object

TRACKING = "batch.kubernetes.io/job-tracking"
INDEX_KEY = "batch.kubernetes.io/job-completion-index"
_INDEX_ENV = "JOB_COMPLETION_INDEX"
# Generated names add five characters and have at most 63.
_MAX_GENERATED = 58


def build(job: Object, index: int | None) -> Object:
    """The next pod of a Job, or of one of its indexes."""
    meta, template = job["metadata"], deepcopy(job["spec"]["template"])
    template_meta = template.get("metadata") or {}
    labels = dict(template_meta.get("labels") or {})
    for prefix in ("batch.kubernetes.io/", ""):
        labels.setdefault(f"{prefix}controller-uid", meta["uid"])
        labels.setdefault(f"{prefix}job-name", meta["name"])
    pod_annotations = dict(template_meta.get("annotations") or {})
    spec = template["spec"]
    suffix = "-"
    if index is not None:
        labels[INDEX_KEY] = pod_annotations[INDEX_KEY] = str(index)
        spec["hostname"] = f"{meta['name']}-{index}"
        suffix = f"-{index}-"
        for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
            _add_index_variable(container)
    pod: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": meta["name"][: _MAX_GENERATED - len(suffix)] + suffix,
            "labels": labels,
            "finalizers": [*(template_meta.get("finalizers") or ()), TRACKING],
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": meta["name"],
                    "uid": meta["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": spec,
    }
    if pod_annotations:
        pod["metadata"]["annotations"] = pod_annotations
    return pod


def index_of(pod: PodView, completions: int) -> int | None:
    """The pod's completion index, if it has a valid one."""
    text = (pod.metadata.annotations or {}).get(INDEX_KEY, "")
    return int(text) if text.isascii() and text.isdecimal() and int(text) < completions else None


def is_tracked(pod: PodView) -> bool:
    """Whether it is not yet counted."""
    return TRACKING in pod.metadata.finalizers


def has_failed(pod: PodView, *, only_when_failed: bool) -> bool:
    """Whether it failed; deleted pods count at once, unless the Job replaces only pods that reached Failed.

    A pod that was never bound cannot reach Failed: it counts when it is deleted.
    """
    if pod.is_terminal:
        return pod.phase == "Failed"
    return pod.is_deleted and (not only_when_failed or not pod.node)


def removal_order(pod: PodView) -> tuple[bool, bool, bool]:
    """Sorts active pods for deletion: unbound first, then not running, then not ready."""
    return (bool(pod.node), pod.phase == "Running", pod.is_ready)


def _add_index_variable(container: Object) -> None:
    variables = container.setdefault("env", [])
    if not any(each.get("name") == _INDEX_ENV for each in variables):
        source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX_KEY}']"}}
        variables.append({"name": _INDEX_ENV, "valueFrom": source})
