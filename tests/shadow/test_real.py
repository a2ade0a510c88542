"""Beside a real kube-scheduler on a real API server: everything is compared, and nothing is written."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gangsched.command.cli import main
from gangsched.lab.controlplane.assets import Assets
from gangsched.lab.controlplane.daemon import Daemon
from tests.deploy.conftest import Audited
from tests.deploy.rights import used
from tests.support.bodies import pod
from tests.support.processes import until

pytestmark = pytest.mark.real

PODS = "/api/v1/namespaces/default/pods"
STOP_S = 20.0
MAY_ALL, MAY_READ = "may-all", "may-read"
READS = {"get", "list", "watch"}
N_PODS = 12


@pytest.fixture(scope="module")
def plane(assets: Assets, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audited]:
    """One user may do everything, the other one may read."""
    directory = tmp_path_factory.mktemp("shadow")
    users = {MAY_ALL: ["system:masters"], MAY_READ: []}
    with Audited(directory, assets=assets, users=users, unsafe_no_fsync=True) as running:
        running.kubectl("create", "clusterrole", MAY_READ, "--verb=get,list,watch", "--resource=*.*")
        running.kubectl(
            "create", "clusterrolebinding", MAY_READ, f"--clusterrole={MAY_READ}", f"--user={MAY_READ}"
        )
        for i in range(3):
            node: dict[str, Any] = {"metadata": {"name": f"n{i}"}}
            if i == 2:
                node["spec"] = {"taints": [{"key": "t", "effect": "NoSchedule"}]}
            running.request("POST", "/api/v1/nodes", node)
            room = {"cpu": "16", "memory": "64Gi", "pods": "110"}
            running.request(
                "PATCH",
                f"/api/v1/nodes/n{i}/status",
                {"status": {"allocatable": room, "capacity": room}},
                content_type="application/merge-patch+json",
            )
        running.start_kube_scheduler()
        yield running


class Shadowed(Daemon):
    """`gangsched scheduler --shadow` for default-scheduler's pods, with a report in a file."""

    def __init__(self, plane: Audited, user: str, directory: Path) -> None:
        self.report_file = directory / "report.json"
        command = [sys.executable, "-m", "gangsched.command.cli", "scheduler", "--shadow", "--secure-port=0"]
        command += [f"--kubeconfig={plane.kubeconfig_of(user)}", f"--shadow-report={self.report_file}"]
        environment = {**os.environ, "NO_PROXY": "*"}
        self.traces = directory / "traces.jsonl"
        command.append(f"--trace-file={self.traces}")
        super().__init__("gangsched", command, log=directory / "log", env=environment)

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def report(self) -> dict[str, Any]:
        """Asked for now, by signal; what the last answer was while it is on its way."""
        self.process.send_signal(signal.SIGUSR1)
        time.sleep(0.1)
        text = self.report_file.read_text()
        found: dict[str, Any] = json.loads(text) if text else {"pods": []}
        return found


@pytest.mark.parametrize("user", [MAY_ALL, MAY_READ])
def test_beside_kube_scheduler(
    user: str, plane: Audited, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plane.request("POST", PODS, pod("before", cpu="1"))
    until(lambda: _nodes(plane)["before"], "kube-scheduler binds")
    shadow = Shadowed(plane, user, tmp_path)
    try:
        until(lambda: "synced" in shadow.said, "the shadow follows")
        for i in range(N_PODS):
            plane.request("POST", PODS, pod(f"p{i}", cpu="2" if i % 3 else "500m"))
        gang = {
            "labels": {"gangsched.io/pod-group": "train"},
            "annotations": {"gangsched.io/min-members": "3"},
        }
        for i in range(3):
            plane.request("POST", PODS, pod(f"train-{i}", cpu="1", **gang))
        plane.request("POST", PODS, pod("large", cpu="64"))
        names = {"large", *(f"p{i}" for i in range(N_PODS)), *(f"train-{i}" for i in range(3))}

        def compared() -> bool:
            pods = shadow.report()["pods"]
            n_theirs = sum(one["theirs"] is not None for one in pods)
            n_ours = sum(bool(one["ours"] or one["oursSaid"]) for one in pods)
            both_say_why = any(one["oursSaid"] and one["theirsSaid"] for one in pods)
            return len(pods) == n_ours == len(names) and n_theirs == len(names) - 1 and both_say_why

        until(compared, "all pods are compared")
    finally:
        shadow.stop(timeout_s=STOP_S)
    assert shadow.process.returncode == 0, shadow.said
    assert "Traceback" not in shadow.said
    assert "shadow of default-scheduler" in shadow.said
    report = json.loads(shadow.report_file.read_text())
    pods = {one["pod"].partition("/")[2]: one for one in report["pods"]}
    nodes = _nodes(plane)
    assert set(pods) == names, "what was placed before is no case"
    assert {name: one["theirs"] for name, one in pods.items()} == {
        name: nodes[name] or None for name in names
    }
    # Alone pods one after the other: the same decision, or one as good.
    verdicts = {pods[f"p{i}"]["verdict"] for i in range(N_PODS)}
    assert verdicts <= {"same node", "equally good node", "other node"}
    assert pods["large"]["verdict"] == "nobody placed it"
    assert "Insufficient cpu" in pods["large"]["oursSaid"]
    assert "Insufficient cpu" in pods["large"]["theirsSaid"]
    [train] = report["gangs"]
    assert train["name"] == "default/train"
    assert sum(train["theirs"].values()) == 3
    assert main(["trace", "default/p0", "--file", str(shadow.traces)]) == 0
    assert "schedule pod" in capsys.readouterr().out
    needs = used(plane.audit_log, user)
    assert {need.right.verb for need in needs} <= READS
    assert needs
    assert not [need for need in needs if need.code == 403]
    plane.request("DELETE", PODS, {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})


def _nodes(plane: Audited) -> dict[str, str]:
    items = plane.request("GET", PODS)["items"]
    return {one["metadata"]["name"]: one["spec"].get("nodeName", "") for one in items}
