"""`gangsched explain` on a real API server, which decides who may ask; the answer is the scheduler's."""

from __future__ import annotations

import json
import socket

import pytest

from gangsched.cli import main
from tests.real.cluster import Cluster
from tests.real.process import Scheduler, service_account, write_config

pytestmark = pytest.mark.real

RBAC = "/apis/rbac.authorization.k8s.io/v1"


def reader(cluster: Cluster) -> str:
    """The token of an account that may read explanations and nothing else."""
    plane = cluster.plane
    plane.request("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "reader"}})
    rules = [{"nonResourceURLs": ["/explain/*"], "verbs": ["get"]}]
    plane.request("POST", f"{RBAC}/clusterroles", {"metadata": {"name": "explain"}, "rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "explain"}
    subjects = [{"kind": "ServiceAccount", "name": "reader", "namespace": "default"}]
    binding = {"metadata": {"name": "explain"}, "roleRef": role, "subjects": subjects}
    plane.request("POST", f"{RBAC}/clusterrolebindings", binding)
    return str(plane.kubectl("create", "token", "reader", "--namespace=default")).strip()


def test_a_pending_gang_is_explained_to_who_may_ask(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = write_config(cluster.directory / "config.yaml")
    account = service_account(cluster.plane, cluster.directory / "account.yaml")
    scheduler = Scheduler(config, account, cluster.directory / "scheduler.log", port=port)
    cluster.schedulers.append(scheduler)
    cluster.nodes(2, gpus=8)
    cluster.gang("old", pods=1, gpus=2)
    cluster.whole("old")
    cluster.gang("train", pods=2, gpus=8)
    cluster.held("train", says="Of these, 1 had room until other members of it were placed there.")
    ask = [
        "explain",
        "default/train",
        f"--server=https://127.0.0.1:{port}",
        f"--token={reader(cluster)}",
        "-o",
        "json",
    ]
    cluster.eventually(lambda: main(ask) == 3, "the port serves, and the gang has not started")
    out = capsys.readouterr().out
    [page] = json.loads(out[out.index("[") :])
    told = page["explanation"]
    assert told["answer"].startswith("1 of 2 members fit. Member train-1 needs 8 nvidia.com/gpu on one node")
    assert (told["position"], told["nWaiting"], told["state"]) == (1, 1, "unschedulable")
    assert told["near"][0]["heldBy"] == ["default/old (2 bound)"]
    assert main([*ask[:1], "default/none", *ask[2:]]) == 1
    assert "knows no gang and no pod of its own named default/none" in capsys.readouterr().err
