"""top and the dashboard's what if on a real API server, which decides who may ask; and what then happens."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from typing import Any

import pytest

from gangsched.command.cli import main
from gangsched.lab.controlplane.daemon import free_ports
from tests.real.cluster import PODS, Cluster
from tests.real.picture import node_of
from tests.real.process import Scheduler, service_account, write_config

pytestmark = pytest.mark.real

RBAC = "/apis/rbac.authorization.k8s.io/v1"


def reader(cluster: Cluster, name: str, path: str) -> str:
    """The token of an account that may read this path of the port and nothing else."""
    plane = cluster.plane
    plane.request("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": name}})
    rules = [{"nonResourceURLs": [path], "verbs": ["get"]}]
    plane.request("POST", f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": "default"}]
    binding = {"metadata": {"name": name}, "roleRef": role, "subjects": subjects}
    plane.request("POST", f"{RBAC}/clusterrolebindings", binding)
    return str(plane.kubectl("create", "token", name, "--namespace=default")).strip()


def started(cluster: Cluster) -> int:
    """The port of a scheduler that serves."""
    [port] = free_ports(1)
    config = write_config(cluster.directory / "config.yaml")
    account = service_account(cluster.plane, cluster.directory / "account.yaml")
    scheduler = Scheduler(config, account, cluster.directory / "scheduler.log", port=port)
    cluster.schedulers.append(scheduler)
    cluster.eventually(lambda: "serving" in scheduler.said, "the pages are there")
    return port


def test_top_shows_what_the_scheduler_has_done_to_who_may_look(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.nodes(2, gpus=8)
    port = started(cluster)
    cluster.gang("runs", pods=2, gpus=4)
    cluster.whole("runs")
    cluster.gang("large", pods=3, gpus=8)
    cluster.held("large", says="of 3 fit")
    at = ["top", f"--server=https://127.0.0.1:{port}", "--once", "--delay=0.5"]
    assert main([*at, f"--token={reader(cluster, 'looks', '/top')}", "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    devices = told["page"]["devices"]["nvidia.com/gpu"]
    assert devices == {"total": 16, "free": 8, "reserved": 0, "bound": 8, "unhealthy": 0}
    assert (told["page"]["leads"], told["page"]["nodes"], told["page"]["binds"]) == (True, 2, 2)
    assert told["pace"]["sinceStart"]["start"]["n"] == 2
    [row] = told["page"]["queue"]["rows"]
    assert row["group"] == "default/large"
    assert main([*at, f"--token={reader(cluster, 'other', '/queue')}"]) == 1
    assert 'cannot get path "/top"' in capsys.readouterr().err


def asked(port: int, token: str, yaml: str) -> dict[str, Any]:
    """The dashboard's answer. Raises: HTTPError."""
    request = urllib.request.Request(
        f"https://127.0.0.1:{port}/dashboard/whatif",
        json.dumps({"yaml": yaml}).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, context=ssl._create_unverified_context(), timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def test_what_if_says_what_then_happens_and_writes_nothing(cluster: Cluster) -> None:
    cluster.nodes(3, gpus=8)
    port = started(cluster)
    cluster.gang("runs", pods=1, gpus=8)
    cluster.whole("runs")
    before = cluster.plane.request("GET", PODS)["items"]
    token = reader(cluster, "asks", "/dashboard")
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"new-{k}",
                "labels": {"gangsched.io/pod-group": "new"},
                "annotations": {"gangsched.io/min-members": "2"},
            },
            "spec": {
                "schedulerName": "gangsched",
                "containers": [{"name": "m", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 8}}}],
            },
        }
        for k in range(2)
    ]
    (found,) = asked(port, token, "\n---\n".join(map(json.dumps, pods)))["gangs"]
    assert (found["name"], found["starts"]) == ("default/new", "now")
    assert cluster.plane.request("GET", PODS)["items"] == before
    cluster.gang("new", pods=2, gpus=8)
    cluster.whole("new")
    nodes = {pod["metadata"]["name"]: node_of(pod) for pod in cluster.plane.request("GET", PODS)["items"]}
    assert {member["name"]: member["node"] for member in found["members"]} == {
        name: node for name, node in nodes.items() if name.startswith("new-")
    }
    with pytest.raises(urllib.error.HTTPError) as refused:
        asked(port, reader(cluster, "other", "/queue"), "a: 1")
    assert refused.value.code == 403
