"""`gangsched whatif` on a real API server: it agrees with what then happens, and writes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from gangsched.cli import main
from gangsched.lab.controlplane.processes import ADMIN
from gangsched.model.devices import ALLOCATED_KEY
from tests.deploy.conftest import Audited
from tests.real.process import Scheduler, write_config
from tests.support.processes import until

pytestmark = pytest.mark.real

PODS = "/api/v1/namespaces/default/pods"
MERGE = "application/merge-patch+json"
GPU = "nvidia.com/gpu"
N_JOBS = 12
SEED = 20261123
Json = dict[str, Any]


def add_node(plane: Audited, name: str, gpus: int) -> None:
    devices = {GPU: [{"id": f"GPU-{name}-{k}", "health": "Healthy"} for k in range(gpus)]}
    annotations = {"gangsched.io/devices": json.dumps(devices)}
    plane.request("POST", "/api/v1/nodes", {"metadata": {"name": name, "annotations": annotations}})
    offered = {GPU: str(gpus), "cpu": "64", "memory": "64Gi", "pods": "110"}
    status = {
        "allocatable": offered,
        "capacity": offered,
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
    }
    plane.request("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, content_type=MERGE)


def pods_of(name: str, size: int, gpus: int) -> list[Json]:
    limits = {GPU: str(gpus)}
    spec = {
        "schedulerName": "gangsched",
        "containers": [{"name": "main", "image": "i", "resources": {"limits": limits}}],
    }
    labels, annotations = {"gangsched.io/pod-group": name}, {"gangsched.io/min-members": str(size)}
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-{k}", "labels": labels, "annotations": annotations},
            "spec": spec,
        }
        for k in range(size)
    ]


def ask(plane: Audited, file: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, Json]:
    capsys.readouterr()
    code = main(["whatif", "-f", str(file), "-o", "json", f"--kubeconfig={plane.kubeconfig}", *more])
    return code, json.loads(capsys.readouterr().out)


def test_it_agrees_with_what_then_happens_and_writes_nothing(
    audited: Audited, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = Random(SEED)
    for i in range(4):
        add_node(audited, f"n{i}", rng.choice((4, 8)))
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump_all(pods_of("first", 2, 4)))
    before = len(audited.audit_log.read_text().splitlines())
    assert ask(audited, file, capsys, "--drain=n0", "--add-nodes=2", "--like=n1")[0] == 0
    lines = [json.loads(line) for line in audited.audit_log.read_text().splitlines()[before:]]
    did = {(line["verb"], line["objectRef"]["resource"]) for line in lines if _is_ours(line)}
    assert ("list", "pods") in did
    assert {verb for verb, _ in did} <= {"get", "list"}
    scheduler = Scheduler(
        write_config(tmp_path / "scheduler.yaml"), audited.kubeconfig, tmp_path / "scheduler.log"
    )
    try:
        until(lambda: "synced" in scheduler.said, "the scheduler follows the cluster")
        codes = [_asked_and_submitted(audited, file, capsys, rng, k) for k in range(N_JOBS)]
    finally:
        scheduler.stop_cleanly()
    assert set(codes) == {0, 3}, f"seed {SEED}: some fit and some do not"


def _asked_and_submitted(
    plane: Audited, file: Path, capsys: pytest.CaptureFixture[str], rng: Random, k: int
) -> int:
    pods = pods_of(f"job{k}", rng.randint(2, 5), rng.choice((1, 2, 4, 8)))
    names = [pod["metadata"]["name"] for pod in pods]
    file.write_text(yaml.safe_dump_all(pods))
    code, found = ask(plane, file, capsys)
    (gang,) = found["gangs"]
    assert code == (0 if gang["starts"] == "now" else 3)
    for pod in pods:
        plane.request("POST", PODS, pod)
    if code:
        until(lambda: _are_told(plane, names), f"job {k} of seed {SEED} is refused")
        for name in names:
            plane.request("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})
        return code
    until(lambda: all(map(_node(plane), names)), f"job {k} of seed {SEED} is bound")
    told = {one["name"]: (one["node"], one["devices"][GPU]) for one in gang["members"]}
    assert told == {name: _placed(plane, name) for name in names}, f"job {k} of seed {SEED}"
    return code


def _is_ours(line: Json) -> bool:
    return line["user"]["username"] == ADMIN and "objectRef" in line


def _node(plane: Audited) -> Any:
    return lambda name: plane.request("GET", f"{PODS}/{name}")["spec"].get("nodeName")


def _placed(plane: Audited, name: str) -> tuple[str, list[str]]:
    pod = plane.request("GET", f"{PODS}/{name}")
    ids = json.loads(pod["metadata"]["annotations"][ALLOCATED_KEY])["main"][GPU]
    return pod["spec"]["nodeName"], ids


def _are_told(plane: Audited, names: list[str]) -> bool:
    pods = [plane.request("GET", f"{PODS}/{name}") for name in names]
    return all(
        any(one["type"] == "PodScheduled" for one in pod["status"].get("conditions", [])) for pod in pods
    )
