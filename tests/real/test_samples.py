"""What is shipped as YAML is taken by a real server, strictly, and does what it says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangsched.errors import ApiError
from gangsched.lab.controlplane.processes import ControlPlane, KubectlFailed
from gangsched.model.pod_group import GANG_KEY
from tests.real.claimed import ClaimCluster
from tests.real.cluster import CRD, PODS, REPO, Cluster
from tests.real.picture import GPU

pytestmark = pytest.mark.real

SAMPLES = sorted((REPO / "config" / "samples").glob("*.yaml"))
BY_CLAIMS = REPO / "config" / "samples" / "gang-claims.yaml"
CLAIMED_NODES = BY_CLAIMS.parent / "demo" / "claims-nodes.yaml"


@pytest.fixture
def applied(cluster: Cluster, sample: Path) -> Iterator[list[dict[str, Any]]]:
    cluster.plane.kubectl("apply", "--validate=strict", "-f", str(sample))
    yield list(yaml.safe_load_all(sample.read_text()))
    cluster.plane.kubectl("delete", "--wait=false", "--ignore-not-found", "-f", str(sample))


@pytest.mark.parametrize("sample", [one for one in SAMPLES if one != BY_CLAIMS], ids=lambda path: path.stem)
def test_sample_is_accepted_and_bound(cluster: Cluster, applied: list[dict[str, Any]]) -> None:
    cluster.nodes(5)
    cluster.schedule()
    all_bound(cluster, applied)


def test_the_sample_with_claims_gets_the_model_that_it_selects(claim_cluster: ClaimCluster) -> None:
    c = claim_cluster
    for name in ("node-16", "node-17"):
        c.node(name, [])
    c.plane.kubectl("apply", "--validate=strict", "-f", str(CLAIMED_NODES))
    c.schedule()
    c.plane.kubectl("apply", "--validate=strict", "-f", str(BY_CLAIMS))
    all_bound(c, list(yaml.safe_load_all(BY_CLAIMS.read_text())))
    c.plane.kubectl("delete", "--wait=false", "job", "rollout")
    given = {one for k in range(4) for one in c.devices_of(f"rollout-{k}")}
    assert {(driver, pool) for driver, pool, _ in given} == {("gpu.nvidia.com", "node-16")}
    assert len(given) == 4


def all_bound(cluster: Cluster, applied: list[dict[str, Any]]) -> None:
    names = [document["metadata"]["name"] for document in applied if document["kind"] == "Pod"]
    for job in (document for document in applied if document["kind"] == "Job"):
        # As the Job's controller would, which nobody runs here.
        for k in range(job["spec"]["completions"]):
            names.append(f"{job['metadata']['name']}-{k}")
            template = job["spec"]["template"]
            metadata = {**template["metadata"], "name": names[-1]}
            cluster.plane.request("POST", PODS, {"metadata": metadata, "spec": template["spec"]})
    assert names
    cluster.whole(*names)


@pytest.mark.parametrize("sample", sorted((SAMPLES[0].parent / "demo").glob("*.yaml")), ids=lambda p: p.stem)
def test_what_the_demo_submits_is_accepted(cluster: Cluster, sample: Path) -> None:
    said = cluster.plane.kubectl("apply", "--validate=strict", "--dry-run=server", "-f", str(sample))
    assert "created (server dry run)" in said


def test_crd_is_accepted_and_refuses_what_makes_no_sense(cluster: Cluster) -> None:
    read = yaml.safe_load(cluster.plane.kubectl("get", "-f", str(CRD), "-o", "yaml"))
    conditions = {c["type"]: c["status"] for c in read["status"]["conditions"]}
    assert conditions["Established"] == "True"
    assert conditions.get("NonStructuralSchema", "False") == "False"
    assert conditions.get("KubernetesAPIApprovalPolicyConformant", "True") == "True"
    for wrong in ({"minMember": 0}, {"minMember": 1, "minResources": {GPU: "eight"}}, {"minMember": "two"}):
        with pytest.raises(ApiError, match="is invalid"):
            cluster.group_object("wrong", 1, "coscheduling", wrong)
    cluster.group_object("right", 2, "coscheduling", {"minResources": {GPU: 16, "memory": "1Gi"}})
    assert "MINMEMBER" in cluster.plane.kubectl("get", "podgroups.scheduling.x-k8s.io")


def test_everything_in_deploy_is_accepted(cluster: Cluster) -> None:
    plane = cluster.plane
    try:
        plane.kubectl("apply", "--validate=strict", "-k", str(REPO / "deploy"))
        may = "auth", "can-i", "--as=system:serviceaccount:gangsched-system:gangsched"
        assert "yes" in plane.kubectl(*may, "create", "pods", "--subresource=binding")
        for verb, what in (
            ("patch", "nodes"),
            ("get", "secrets"),
            ("update", "pods"),
            ("create", "configmaps"),
        ):
            with pytest.raises(KubectlFailed, match=f"can-i.*{verb} {what}"):
                plane.kubectl(*may, verb, what)
    finally:
        # Other tests of this server write as the admin what with this policy only the scheduler may.
        plane.kubectl("delete", "--ignore-not-found", "-f", str(REPO / "deploy" / "reserved-keys.yaml"))
        cluster.eventually(lambda: _admits_forged_keys(plane), "the policy is gone")


def _admits_forged_keys(plane: ControlPlane) -> bool:
    """By the file's last door: what is deleted before it is gone before it."""
    target = {"apiVersion": "v1", "kind": "Node", "name": "n"}
    binding = {"metadata": {"name": "nobody", "annotations": {GANG_KEY: "a"}}, "target": target}
    with pytest.raises(ApiError) as refused:
        plane.request("POST", f"{PODS}/nobody/binding", binding)
    assert refused.value.code in (403, 404), refused.value
    return refused.value.code == 404


def test_samples_can_be_applied_together() -> None:
    """Two of one name would be one Job, and the second its edit."""
    documents = [one for sample in SAMPLES for one in yaml.safe_load_all(sample.read_text())]
    names = [(one["kind"], one["apiVersion"], one["metadata"]["name"]) for one in documents]
    assert len(names) == len(set(names)), names
