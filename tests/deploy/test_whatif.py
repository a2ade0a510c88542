"""`gangsched whatif` on a real API server: it agrees with what then happens, and writes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from gangsched.command.cli import main
from gangsched.config import Settings
from gangsched.errors import ApiError
from gangsched.lab.controlplane.processes import ADMIN
from gangsched.lab.sim.making import make_scheduler
from gangsched.model.devices.annotations import ALLOCATED_KEY
from gangsched.whatif.admission import Limits
from gangsched.whatif.cluster import Cluster, read_class
from gangsched.whatif.files import read_documents
from gangsched.whatif.manifests import kinds_of, read_manifests
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


def test_it_admits_the_pods_that_the_api_server_admits_with_what_it_sets(
    audited: Audited, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Quotas, ranges and classes: the pods of one file, asked about and then created one after the other."""
    plane, space = audited, "/api/v1/namespaces/limited"
    add_node(plane, "limited-n0", 64)
    plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": "limited"}})
    usual = {"metadata": {"name": "usual"}, "value": 70, "globalDefault": True, "preemptionPolicy": "Never"}
    plane.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", usual)
    item = {"type": "Container", "max": {"cpu": "8"}, "default": {"cpu": "2"}}
    item["defaultRequest"] = {"memory": "1Gi"}
    plane.request("POST", f"{space}/limitranges", {"metadata": {"name": "l"}, "spec": {"limits": [item]}})
    hard = {f"requests.{GPU}": "10", "requests.memory": "64Gi", "pods": "6"}
    usage = {f"requests.{GPU}": "2", "requests.memory": "0", "pods": "1"}
    quota = {"metadata": {"name": "q"}, "spec": {"hard": hard}}
    plane.request("POST", f"{space}/resourcequotas", quota)
    status = {"status": {"hard": hard, "used": usage}}  # as the controller that does not run here would
    plane.request("PATCH", f"{space}/resourcequotas/q/status", status, content_type=MERGE)
    rng = Random(SEED)
    pods: list[Json] = []
    for k in range(12):
        limits = {GPU: str(rng.choice((1, 2, 4))), "cpu": str(rng.choice((1, 4, 9)))}
        resources = {"limits": limits if rng.random() < 0.7 else {GPU: limits[GPU]}}
        spec = {
            "schedulerName": "gangsched",
            "containers": [{"name": "main", "image": "i", "resources": resources}],
        }
        pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{k}"}, "spec": spec})
    file = tmp_path / "pods.yaml"
    file.write_text(yaml.safe_dump_all(pods))
    _, found = ask(plane, file, capsys, "-n", "limited")
    told = {pod for one in found["gangs"] if one["starts"] == "unread" for pod in one["unplaced"]}
    refused = {pod["metadata"]["name"] for pod in pods if not _is_created(plane, space, pod)}
    assert told == refused, f"seed {SEED}"
    assert 0 < len(refused) < len(pods)
    documents = read_documents([("pods.yaml", file.read_text())])
    scheduler = make_scheduler(Settings())
    ranges = {("limited", "l"): {"spec": {"limits": [item]}}}
    cluster = Cluster(classes={"usual": read_class(usual)}, limits=Limits(ranges, {}))
    for pod in read_manifests(documents, kinds_of(scheduler), cluster, namespace="limited").pods:
        if pod.metadata.name not in refused:
            there = plane.request("GET", f"{space}/pods/{pod.metadata.name}")["spec"]
            assert pod.spec.priority == there["priority"]
            assert pod.spec.preemption_policy == there["preemptionPolicy"]
            (container,) = pod.spec.containers
            assert container.resources is not None
            assert {k: str(v) for k, v in (container.resources.requests or {}).items()} == (
                there["containers"][0]["resources"]["requests"]
            )
    plane.request("DELETE", "/apis/scheduling.k8s.io/v1/priorityclasses/usual")


def _is_created(plane: Audited, space: str, pod: Json) -> bool:
    try:
        plane.request("POST", f"{space}/pods", pod)
    except ApiError as error:
        if error.code != 403:
            raise
        return False
    return True
