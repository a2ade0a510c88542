"""Commands of somebody who may read one namespace, and neither nodes nor other namespaces."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from gangsched.command.cli import main
from tests.real.cluster import Cluster
from tests.real.picture import GPU

pytestmark = pytest.mark.real

TEAM = "team-a"
# What the controllers of a cluster put into the ClusterRole `view`.
VIEW = "system:aggregate-to-view"


@pytest.fixture
def member(cluster: Cluster, tmp_path: Path) -> Path:
    """The kubeconfig of an account that may view its own namespace; it stays, as no controller ends it."""
    plane = cluster.plane
    if TEAM not in plane.kubectl("get", "namespaces", "-o", "name"):
        plane.kubectl("create", "namespace", TEAM)
        plane.kubectl("-n", TEAM, "create", "serviceaccount", "dev")
        grant = ("create", "rolebinding", "viewers", f"--clusterrole={VIEW}", f"--serviceaccount={TEAM}:dev")
        plane.kubectl("-n", TEAM, *grant)
    token = plane.kubectl("-n", TEAM, "create", "token", "dev").strip()
    admin = yaml.safe_load(plane.kubeconfig.read_text())
    admin["users"] = [{"name": "dev", "user": {"token": token}}]
    admin["contexts"] = [{"name": "here", "context": {"cluster": "here", "user": "dev"}}]
    path = tmp_path / "dev.yaml"
    path.write_text(yaml.safe_dump(admin))
    return path


def job(name: str, *, gpus: int = 8, least: int = 2, **metadata: object) -> str:
    template = {
        "metadata": {
            "labels": {"gangsched.io/pod-group": name},
            "annotations": {"gangsched.io/min-members": str(least)},
        },
        "spec": {
            "schedulerName": "gangsched",
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "i", "resources": {"limits": {GPU: gpus}}}],
        },
    }
    spec = {"completions": 2, "parallelism": 2, "template": template}
    made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, **metadata}, "spec": spec}
    return yaml.safe_dump(made)


def pods_of(cluster: Cluster, manifest: str, n: int) -> None:
    """As a Job's controller would make them."""
    made = yaml.safe_load(manifest)
    template, name = made["spec"]["template"], made["metadata"]["name"]
    for k in range(n):
        pod = {"metadata": {**template["metadata"], "name": f"{name}-{k}"}, "spec": template["spec"]}
        cluster.plane.request("POST", f"/api/v1/namespaces/{TEAM}/pods", pod)


def test_who_may_view_one_namespace_is_answered_about_it(
    cluster: Cluster, member: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.nodes(1)
    pods_of(cluster, job("whole"), 2)
    pods_of(cluster, job("short", least=3), 2)
    own = ("-n", TEAM, "--kubeconfig", str(member))
    nowhere = ("--server", "https://127.0.0.1:1")

    assert main(["gangs", *own, "-o", "json"]) == 0
    rows = {row["gang"]: row for row in json.loads(capsys.readouterr().out)}
    assert {name: (row["existing"], row["needed"]) for name, row in rows.items()} == {
        f"{TEAM}/whole": (2, 2),
        f"{TEAM}/short": (2, 3),
    }

    assert main(["explain", "short", *own, *nowhere]) == 3
    assert "2 of 3 members exist" in " ".join(capsys.readouterr().out.split()), "this is known without nodes"

    assert main(["explain", "whole", *own, *nowhere]) == 3
    said = " ".join(capsys.readouterr().out.split())
    assert "Whether there is room for it is not known: pods and nodes of the whole cluster may not be" in said
    assert 'cannot list resource "nodes"' in said
    assert "kubectl create clusterrole node-reader --verb=list --resource=nodes" in said

    file = tmp_path / "job.yaml"
    file.write_text(job("new"))
    assert main(["whatif", "-f", str(file), *own]) == 3
    said = " ".join(capsys.readouterr().out.split())
    assert f"{TEAM}/new would not start now: It is complete and waits. Whether there is room" in said
    assert "would start now" not in said


def test_who_may_view_no_namespace_is_told_which_right_is_missing_and_what_gives_it(
    cluster: Cluster, member: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gangs", "-A", "--kubeconfig", str(member)]) == 1
    said = capsys.readouterr().err
    assert 'cannot list resource "pods"' in said
    assert "kubectl -n NAMESPACE create rolebinding viewers --clusterrole=view --user=USER" in said
    assert "who has it there alone asks with -n NAMESPACE" in said
    assert main(["gangs", "-n", "default", "--kubeconfig", str(member)]) == 1
    said = capsys.readouterr().err
    assert 'in the namespace "default"' in said
    assert "kubectl -n default create rolebinding viewers --clusterrole=view --user=USER" in said
