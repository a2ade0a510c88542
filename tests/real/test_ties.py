"""Equally good nodes are used evenly, by the real kube-scheduler and by us."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangsched.lab.controlplane.processes import ControlPlane
from tests.real.process import Scheduler
from tests.support.processes import until

pytestmark = pytest.mark.real

PODS = "/api/v1/namespaces/default/pods"
N_NODES, N_PODS = 4, 60
PATIENCE_S = 60.0
# Of 60 throws of a fair die with four sides: beyond this less than once in a million tests.
LEAST, MOST = 1, 34


def test_ties(fresh_cluster: ControlPlane, tmp_path: Path) -> None:
    plane = fresh_cluster
    for i in range(N_NODES):
        plane.request("POST", "/api/v1/nodes", {"metadata": {"name": f"n{i}"}})
        room = {"cpu": "64", "memory": "512Gi", "pods": "500"}
        status = {"status": {"allocatable": room, "capacity": room}}
        content_type = "application/merge-patch+json"
        plane.request("PATCH", f"/api/v1/nodes/n{i}/status", status, content_type=content_type)
    plugins: dict[str, Any] = {"score": {"disabled": [{"name": "*"}]}}
    plane.start_kube_scheduler(config={"profiles": [_profile("default-scheduler", plugins)]})
    head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    config = tmp_path / "ours.yaml"
    config.write_text(
        yaml.safe_dump(
            head | {"leaderElection": {"leaderElect": False}, "profiles": [_profile("gangsched", plugins)]}
        )
    )
    ours = Scheduler(config, plane.kubeconfig, tmp_path / "ours.log")
    try:
        for i in range(N_PODS):
            for scheduler in ("default-scheduler", "gangsched"):
                spec = {"schedulerName": scheduler, "containers": [{"name": "main", "image": "i"}]}
                metadata = {"name": f"{scheduler}-{i}", "labels": {"by": scheduler}}
                plane.request("POST", PODS, {"metadata": metadata, "spec": spec})
        counts = _counts(plane, ours)
    finally:
        ours.stop_cleanly()
    for scheduler, nodes in counts.items():
        assert len(nodes) == N_NODES, f"{scheduler}: {nodes}"
        assert all(LEAST <= n <= MOST for n in nodes.values()), f"{scheduler}: {nodes}"


def _profile(name: str, plugins: dict[str, Any]) -> dict[str, Any]:
    return {"schedulerName": name, "plugins": plugins}


def _counts(plane: ControlPlane, ours: Scheduler) -> dict[str, Counter[str]]:
    """Pods by node, by scheduler, once all are bound."""

    def bound() -> Any:
        items = plane.request("GET", PODS)["items"]
        return items if all(pod["spec"].get("nodeName") for pod in items) else None

    items = until(bound, "all are bound", timeout_s=PATIENCE_S, story=lambda: ours.said)
    found: dict[str, Counter[str]] = {}
    for pod in items:
        found.setdefault(pod["metadata"]["labels"]["by"], Counter())[pod["spec"]["nodeName"]] += 1
    return found
