"""Controllers' objects that nothing acts on: pods are made by the test, and so is what they were told."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.real.cluster import EVENTS, Cluster
from tests.real.picture import Json

JOBS = "/apis/batch/v1/namespaces/default/jobs"


def make_owner(cluster: Cluster, name: str) -> Json:
    """A suspended Job; answers with the reference that makes it a pod's controller."""
    containers = [{"name": "main", "image": "busybox"}]
    template = {"spec": {"restartPolicy": "Never", "containers": containers}}
    body = {"metadata": {"name": name}, "spec": {"suspend": True, "template": template}}
    made = cluster.plane.request("POST", JOBS, body)
    uid = made["metadata"]["uid"]
    return {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}


def refuse(cluster: Cluster, owner: Json, note: str) -> None:
    """The Event that the Job controller writes when a pod of it is refused."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    regarding = {"apiVersion": "batch/v1", "kind": "Job", "name": owner["name"], "uid": owner["uid"]}
    event = {
        "metadata": {"name": f"{owner['name']}.refused"},
        "regarding": {**regarding, "namespace": "default"},
        "eventTime": now,
        "type": "Warning",
        "reason": "FailedCreate",
        "action": "Create",
        "note": note,
        "reportingController": "job-controller",
        "reportingInstance": "job-controller",
    }
    cluster.plane.request("POST", EVENTS, event)
