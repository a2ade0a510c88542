"""The chart's life on a real kube-apiserver, by Helm: installed, upgraded, rolled back, uninstalled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gangsched.errors import ApiError
from gangsched.lab.controlplane.processes import ControlPlane
from tests.deploy.conftest import in_force
from tests.deploy.doors import NAMESPACE as NAMESPACE_OF_DOORS
from tests.deploy.doors import Json
from tests.deploy.generate_chart import CHART
from tests.deploy.helm import NAMESPACE, RELEASE, Helm, found_helm
from tests.real.cluster import PODS, Cluster
from tests.real.picture import annotation, ids_of
from tests.real.process import Scheduler, service_account

pytestmark = pytest.mark.real

CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/gangsched"
RANK = "gangsched.io/rank"
ALL_VALUES = {
    "agent": '{"enabled": true, "nvidia": true, "load": true, "labels": true, "devicePlugin": true}',
    "namespace.create": "true",
    "policies.envHandOff.enabled": "true",
    "metricsServer.enabled": "true",
    "config.gangsched": '{"devices": {"repairAnnotations": true}}',
}


class Installed(Cluster):
    """What Helm has put there is all that there is."""

    def set_up(self) -> None:
        self.eventually(self._serves_crd, "the CRD is served")
        self.picture.start()


@pytest.fixture(scope="module")
def helm(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return found_helm(tmp_path_factory.mktemp("helm"), plane.kubeconfig)


@contextmanager
def installed(plane: ControlPlane, helm: Helm, directory: Path) -> Iterator[Cluster]:
    """All values on, so that the API server sees each object that the chart can make; and the scheduler with
    the configuration and the service account of the release, as its pods would run it.
    """
    made = Installed(plane, directory)
    try:
        made.nodes(3, gpus=8)  # before the policies, which let agents alone list devices
        given = [f"--set-json={path}={value}" for path, value in ALL_VALUES.items()]
        helm("install", RELEASE, str(CHART), f"--namespace={NAMESPACE}", "--create-namespace", *given)
        plane.kubectl("create", "namespace", NAMESPACE_OF_DOORS)
        in_force(plane)
        made.set_up()
        [text] = [one["data"]["scheduler.yaml"] for one in config_maps(plane)]
        (directory / "scheduler.yaml").write_text(text)
        account = service_account(plane, directory / "account.yaml")
        made.schedulers.append(Scheduler(directory / "scheduler.yaml", account, directory / "scheduler.log"))
        yield made
        made.check()
    finally:
        made.close()


def config_maps(plane: ControlPlane) -> list[Json]:
    items: list[Json] = plane.request("GET", CONFIG_MAPS)["items"]
    return [one for one in items if one["metadata"]["name"].startswith("gangsched-config-")]


def test_it_is_installed_upgraded_rolled_back_and_uninstalled(
    plane: ControlPlane, helm: Helm, tmp_path: Path
) -> None:
    with installed(plane, helm, tmp_path) as cluster:
        plane.start_kube_scheduler()
        cluster.gang("train", pods=2, gpus=8, dialect="coscheduling")
        cluster.pod("theirs", gpus=1, scheduler="default-scheduler")
        cluster.whole("train", "theirs")
        assert all(len(ids_of(pod)) == 8 for pod in cluster.members("train"))
        assert not ids_of(cluster.members("theirs")[0])
        _upgraded_and_rolled_back(plane, helm)
        helm("uninstall", RELEASE, f"--namespace={NAMESPACE}")
        _what_remains(plane, cluster)
    for scheduler in plane.schedulers:
        scheduler.kill()


def _upgraded_and_rolled_back(plane: ControlPlane, helm: Helm) -> None:
    before = plane.request("GET", DEPLOYMENT)["spec"]
    [was] = config_maps(plane)
    changed = ["--reset-then-reuse-values", "--set=scheduler.replicas=3,config.gangsched.settleSeconds=9"]
    helm("upgrade", RELEASE, str(CHART), f"--namespace={NAMESPACE}", *changed)
    after = plane.request("GET", DEPLOYMENT)["spec"]
    [now] = config_maps(plane)
    assert (before["replicas"], after["replicas"]) == (2, 3)
    assert "settleSeconds: 9" in now["data"]["scheduler.yaml"]
    assert "repairAnnotations: true" in now["data"]["scheduler.yaml"]
    [volume] = [one for one in after["template"]["spec"]["volumes"] if "configMap" in one]
    assert volume["configMap"]["name"] == now["metadata"]["name"] != was["metadata"]["name"]
    helm("rollback", RELEASE, "1", f"--namespace={NAMESPACE}")
    assert plane.request("GET", DEPLOYMENT)["spec"]["template"] == before["template"]
    assert [one["metadata"]["name"] for one in config_maps(plane)] == [was["metadata"]["name"]]


def _what_remains(plane: ControlPlane, cluster: Cluster) -> None:
    """Nothing of the release; the CRD with its groups, and the pods with what they were given."""
    kinds = "clusterroles,clusterrolebindings,flowschemas,priorityclasses,validatingadmissionpolicies"
    kinds += ",validatingadmissionpolicybindings,mutatingadmissionpolicies,mutatingadmissionpolicybindings"
    left = plane.kubectl("get", kinds, "-o", "name").split()
    assert not [name for name in left if "gangsched" in name]
    assert plane.request("GET", "/apis/scheduling.x-k8s.io/v1alpha1/podgroups")["items"]
    for pod in cluster.members("train"):
        assert annotation(pod, RANK)
        assert len(ids_of(pod)) == 8
    # No policy keeps these annotations any more.
    merge = {"metadata": {"annotations": {RANK: None}}}
    path = f"{PODS}/train-0"
    cluster.eventually(lambda: _may(plane, path, merge), "the policies are out of force")


def _may(plane: ControlPlane, path: str, patch: Json) -> bool:
    try:
        plane.request("PATCH", f"{path}?dryRun=All", patch, content_type="application/merge-patch+json")
    except ApiError as error:
        if error.code == 403:
            return False
        raise
    return True
