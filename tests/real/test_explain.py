"""`gangsched explain` on a real API server, which decides who may ask; the answer is the scheduler's."""

from __future__ import annotations

import json
import socket

import pytest

from gangsched.command.cli import main
from tests.real.answers import printed
from tests.real.cluster import DIALECTS, PODS, Cluster
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
    cluster.held("train", says="Of these, 1 had room until its other members were placed there.")
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
    kubeconfig = f"--kubeconfig={cluster.plane.kubeconfig}"
    assert main(["explain", "default/train", ask[2], "--token=made-up", kubeconfig]) == 3
    told = " ".join(capsys.readouterr().out.split())
    assert told.startswith("default/train: 1 of 2 members fit. Member train-1 needs 8 nvidia.com/gpu on one")
    assert "Unauthorized: the API server does not accept the token" in told
    assert "Start a scheduler" not in told
    assert main([*ask[:1], "default/none", *ask[2:]]) == 1
    assert "knows no gang and no pod of its own named default/none" in capsys.readouterr().err


def test_gangs_of_every_dialect_are_listed(cluster: Cluster) -> None:
    """By `gangsched gangs`, whether there is a PodGroup for kubectl to show or none."""
    cluster.nodes(1)
    cluster.schedule()
    for dialect in DIALECTS:
        cluster.gang(dialect, pods=2, gpus=1, dialect=dialect)
    cluster.whole(*DIALECTS)
    cluster.gang("wants", pods=2, gpus=8)
    cluster.held("wants", says="Insufficient nvidia.com/gpu")
    out, code = printed(["gangs", "-o", "json", f"--kubeconfig={cluster.plane.kubeconfig}"])
    rows = {row["gang"]: row for row in json.loads(out)}
    assert code == 0
    assert rows.keys() == {f"default/{name}" for name in (*DIALECTS, "wants")}
    started = [rows[f"default/{dialect}"] for dialect in DIALECTS]
    assert [(row["state"], row["needed"], row["bound"], row["nodes"]) for row in started] == [
        ("bound", 2, 2, ["n0"])
    ] * len(DIALECTS)
    assert (rows["default/wants"]["state"], rows["default/wants"]["bound"]) == ("pending", 0)
    assert "Insufficient nvidia.com/gpu" in rows["default/wants"]["why"]


def test_without_a_scheduler_the_api_server_is_enough(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same core says the same, and nothing is written."""
    plane = cluster.plane

    def explained(name: str) -> tuple[int, str]:
        code = main(["explain", name, "--server=https://127.0.0.1:1", f"--kubeconfig={plane.kubeconfig}"])
        out = capsys.readouterr()
        return code, " ".join((out.out + out.err).split())

    cluster.nodes(2, gpus=8)
    cluster.pod("old-0", gpus=2, scheduler="default-scheduler")
    cluster.bind_by_hand("old-0", "n0")
    cluster.gang("train", pods=2, gpus=8)
    cluster.pod("lost", scheduler="gangshed")
    before = {pod["metadata"]["name"]: pod for pod in plane.request("GET", PODS)["items"]}
    code, told = explained("default/train")
    assert code == 3
    answer = "1 of 2 members fit. Member train-1 needs 8 nvidia.com/gpu on one node"
    assert told.startswith(f"default/train: {answer}")
    assert "No scheduler explains it: no scheduler answers at https://127.0.0.1:1:" in told
    assert "n0 nvidia.com/gpu 8 6 default/old-0" in told
    code, told = explained("default/lost")
    assert code == 1
    assert "the pods of default/lost name the scheduler 'gangshed'; did you mean gangsched? This" in told
    code, told = explained("default/train-0")
    assert code == 3
    assert f"default/train: {answer}" in told
    assert "gangsched: note: default/train-0 is of the gang default/train" in told
    code, told = explained("default/none")
    assert (code, "there is no gang, no pod and no controller default/none" in told) == (1, True)
    assert {pod["metadata"]["name"]: pod for pod in plane.request("GET", PODS)["items"]} == before
    cluster.schedule()
    cluster.held("train", says="Of these, 1 had room until its other members were placed there.")
