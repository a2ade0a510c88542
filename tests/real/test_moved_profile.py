"""kube-scheduler's own file, as it writes it itself, and nothing changed but who reads it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gangsched.lab.controlplane.processes import ControlPlane
from tests.real.process import Scheduler
from tests.support.processes import until

pytestmark = pytest.mark.real

PODS = "/api/v1/namespaces/default/pods"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"
FILE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {{kubeconfig: {kubeconfig}}}
profiles:
- schedulerName: default-scheduler
- schedulerName: packing
  pluginConfig:
  - {{name: NodeResourcesFit, args: {{scoringStrategy: {{type: MostAllocated, resources: [{{name: cpu}}]}}}}}}
"""


def test_the_same_file(fresh_cluster: ControlPlane, tmp_path: Path) -> None:
    plane = fresh_cluster
    given, written = tmp_path / "given.yaml", tmp_path / "written.yaml"
    given.write_text(FILE.format(kubeconfig=plane.kubeconfig))
    binary = str(plane.assets.path("kube-scheduler"))
    command = [binary, f"--config={given}", f"--write-config-to={written}", "--secure-port=0"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    for i in range(3):
        plane.request("POST", "/api/v1/nodes", {"metadata": {"name": f"n{i}"}})
        room = {"cpu": "16", "memory": "64Gi", "pods": "110"}
        status = {"status": {"allocatable": room, "capacity": room}}
        content_type = "application/merge-patch+json"
        plane.request("PATCH", f"/api/v1/nodes/n{i}/status", status, content_type=content_type)
    # As its author has it: elected leader, by kube-scheduler's own Lease.
    scheduler = Scheduler(written, plane.kubeconfig, tmp_path / "log")
    try:
        for name in ("default-scheduler", "packing"):
            for i in range(3):
                container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "2"}}}
                spec = {"schedulerName": name, "containers": [container]}
                plane.request("POST", PODS, {"metadata": {"name": f"{name}-{i}"}, "spec": spec})
        until(lambda: all(_nodes(plane)), "all are bound", story=lambda: scheduler.said)
        assert plane.request("GET", LEASE)["spec"]["holderIdentity"]
    finally:
        scheduler.stop_cleanly()
        plane.request("DELETE", LEASE)
    assert "DynamicResources is not there" not in scheduler.said, "its file enables it by name"


def _nodes(plane: ControlPlane) -> list[str]:
    return [pod["spec"].get("nodeName", "") for pod in plane.request("GET", PODS)["items"]]
