"""A scheduler that an admin runs where our policies are in force: told what refuses it, and what helps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gangsched.errors import ApiError
from gangsched.lab.controlplane.processes import KubectlFailed
from tests.real.cluster import Cluster
from tests.real.process import service_account

pytestmark = pytest.mark.real

PODS = "/api/v1/namespaces/default/pods"
POLICY = Path(__file__).parents[2] / "deploy" / "reserved-keys.yaml"
CURE = "run the scheduler as that service account: in the cluster, or with a kubeconfig of its token"


@pytest.fixture
def guarded(cluster: Cluster) -> Iterator[Cluster]:
    """deploy/reserved-keys.yaml is applied, and seen to refuse an admin."""
    plane = cluster.plane
    plane.kubectl("apply", "-f", str(POLICY))
    try:
        yield cluster
    finally:
        for scheduler in cluster.schedulers:
            scheduler.kill()
        plane.kubectl("delete", "-f", str(POLICY))


def test_an_admins_scheduler_is_told_of_the_policy_and_not_of_rbac(guarded: Cluster) -> None:
    cluster = guarded
    cluster.nodes(1)

    def forged() -> bool:
        try:
            cluster.plane.kubectl("annotate", "pod", "probe", "gangsched.io/rank=0", "--dry-run=server")
        except KubectlFailed as error:
            return "only the scheduler" in str(error)
        return False

    def bound() -> bool:
        """The API server takes up each of the two policies by itself."""
        body = {
            "metadata": {"name": "probe", "annotations": {"gangsched.io/rank": "0"}},
            "target": {"kind": "Node", "name": "no-such"},
        }
        try:
            cluster.plane.request("POST", f"{PODS}/probe/binding?dryRun=All", body)
        except ApiError as error:
            return "only the scheduler" in str(error)
        return False

    cluster.pod("probe", gpus=99)
    cluster.eventually(forged, "the policy of pods is in force")
    cluster.eventually(bound, "the policy of bindings is in force")
    admin = cluster.schedule(kubeconfig=cluster.plane.kubeconfig)
    cluster.pod("a", gpus=1)
    cluster.held("a", says=CURE)
    note = cluster.event("FailedScheduling", "a")["note"]
    assert "ValidatingAdmissionPolicy 'gangsched-reserved-keys-binding'" in note
    assert "RBAC" not in note
    assert "role needs the verb" not in note
    admin.stop_cleanly()

    # The cure, word for word.
    cluster.schedule(kubeconfig=service_account(cluster.plane, cluster.directory / "cure.yaml"))
    cluster.whole("a", pods=1)


def test_missing_rights_are_reported_as_such(cluster: Cluster) -> None:
    cluster.nodes(1)
    plane = cluster.plane
    rules = plane.request("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/gangsched")
    kept = [rule for rule in rules["rules"] if "pods/binding" not in rule["resources"]]
    assert kept != rules["rules"]
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gangsched"
    plane.request("PUT", path, {**rules, "rules": kept})
    try:
        cluster.schedule()
        cluster.pod("a", gpus=1)
        cluster.held("a", says="the scheduler's role needs the verb create on pods/binding")
    finally:
        now = plane.request("GET", path)
        plane.request("PUT", path, {**now, "rules": rules["rules"]})
    cluster.whole("a", pods=1)
