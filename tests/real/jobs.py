"""Jobs under Kubernetes' own controller: a control plane with its gates on, and a cluster to submit them to.

Lives here: what makes Jobs, plays the kubelet for their pods and tidies up after them. Not here: nodes, pods
and what became of them (cluster.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gangsched.errors import ConfigError
from gangsched.lab.controlplane.assets import Assets
from gangsched.lab.controlplane.build import REQUIRE_VARIABLE
from gangsched.lab.controlplane.processes import GANG_GATE, JOB_GATES, ControlPlane
from tests.conftest import wipe
from tests.real.cluster import CORE_GROUPS, MERGE, PODS, Cluster, checking
from tests.real.picture import GPU, OURS, Json, is_live

JOBS = "/apis/batch/v1/namespaces/default/jobs"
WORKLOADS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/workloads"
NAME_LABEL = "batch.kubernetes.io/job-name"


class JobCluster(Cluster):
    """A cluster whose control plane runs the Job controller; a Job's name is the name of its gang."""

    def job(
        self,
        name: str,
        *,
        pods: int,
        gpus: int = 8,
        scheduling: Json | None = None,
        template: Json | None = None,
        priority: str = "",
        **spec: Any,
    ) -> Json:
        """Submits an Indexed Job; `scheduling` is its `spec.scheduling`, `template` the pods' metadata.

        priority: the name of its pods' class.
        """
        container = {"name": "main", "image": "busybox", "resources": {"limits": {GPU: str(gpus)}}}
        body: Json = {
            "completions": pods,
            "parallelism": pods,
            "completionMode": "Indexed",
            "template": {
                "metadata": template or {},
                "spec": {
                    "schedulerName": OURS,
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 0,
                    "containers": [container],
                    **({"priorityClassName": priority} if priority else {}),
                },
            },
            **({"scheduling": scheduling} if scheduling is not None else {}),
            **spec,
        }
        return self.submit({"metadata": {"name": name}, "spec": body}, gang=scheduling is not None)

    def submit(self, job: Mapping[str, Any], *, gang: bool = True) -> Json:
        """Submits a whole document; as a `gang` it must not be half bound when the test ends."""
        if gang:
            self.gangs[job["metadata"]["name"]] = job["spec"]["parallelism"]
        made: Json = self.plane.request("POST", JOBS, job)
        return made

    def members(self, name: str) -> list[Json]:
        """The Job's pods by name, without those that have ended, which it keeps; else as without Jobs."""
        pods = [pod for _, pod in sorted(self.picture.pods.items()) if is_live(pod)]
        of_job = [pod for pod in pods if pod["metadata"].get("labels", {}).get(NAME_LABEL) == name]
        return of_job or super().members(name)

    def ends(self, pod: Json, phase: str) -> None:
        """What the kubelet would write when the pod's containers have ended."""
        name = pod["metadata"]["name"]
        self.plane.request("PATCH", f"{PODS}/{name}/status", {"status": {"phase": phase}}, content_type=MERGE)
        pods = self.picture.pods
        self.picture.until(lambda: name not in pods or not is_live(pods[name]), f"{name} is {phase}")

    def suspend(self, name: str) -> None:
        """Its controller deletes the pods that have not ended; they are gone when this returns."""
        self._suspend(name, is_suspended=True)
        self.picture.until(lambda: not self.members(name), f"the pods of {name} are gone")

    def resume(self, name: str) -> None:
        self._suspend(name, is_suspended=False)

    def _suspend(self, name: str, *, is_suspended: bool) -> None:
        body = {"spec": {"suspend": is_suspended}}
        self.plane.request("PATCH", f"{JOBS}/{name}", body, content_type=MERGE)

    def delete_job(self, name: str) -> None:
        """The Job, then its pods: no garbage collector runs here."""
        self.plane.request("DELETE", f"{JOBS}/{name}", {"propagationPolicy": "Background"})
        for pod in self.members(name):
            self.plane.request("DELETE", f"{PODS}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
        self.picture.until(lambda: not self.members(name), f"the pods of {name} are gone")
        del self.gangs[name]

    def group_of(self, name: str) -> Json:
        """The PodGroup that the controller made for this Job."""
        [pod] = self.members(name)[:1]
        group = pod["spec"]["schedulingGroup"]["podGroupName"]
        found: Json = self.plane.request("GET", f"{CORE_GROUPS}/{group}")
        return found


@contextmanager
def job_control_plane(assets: Assets) -> Iterator[ControlPlane]:
    """A control plane with the Job controller, and with the gates of `spec.scheduling` on both sides.

    Skips the test where KUBEBUILDER_ASSETS names a folder without a controller manager.
    """
    try:
        assets.path("kube-controller-manager")
    except ConfigError as error:
        if os.environ.get(REQUIRE_VARIABLE) == "1":
            pytest.fail(f"{REQUIRE_VARIABLE}=1, but: {error}", pytrace=False)
        pytest.skip(f"no real Job controller: {error}")
    with ControlPlane(assets=assets, apiserver_flags=[JOB_GATES], unsafe_no_fsync=True) as plane:
        names = ("job-controller", "serviceaccount-controller")
        plane.start_controllers(*names, flags=[GANG_GATE, JOB_GATES])
        yield plane


@contextmanager
def checked_jobs(plane: ControlPlane, directory: Path) -> Iterator[JobCluster]:
    """An empty cluster on it; what must always hold is checked when the test has passed."""
    try:
        with checking(JobCluster(plane, directory)) as made:
            yield made
    finally:
        # The Jobs first: their controller makes the pods again for as long as there is one.
        for collection in (JOBS, WORKLOADS):
            plane.request("DELETE", collection, {"propagationPolicy": "Background"})
        wipe(plane)
