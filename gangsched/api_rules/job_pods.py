"""A Job's pods as the Job controller builds them from its template. Pure.

Source: kubernetes pkg/controller/job (job_controller.go, indexed_job_utils.go), read in v1.37.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

Object = dict[str, Any]

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


def _add_index_variable(container: Object) -> None:
    variables = container.setdefault("env", [])
    if not any(each.get("name") == _INDEX_ENV for each in variables):
        source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX_KEY}']"}}
        variables.append({"name": _INDEX_ENV, "valueFrom": source})
