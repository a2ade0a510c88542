"""Every file of config/samples/ on the embedded cluster, with our scheduler: applied and run through."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from gangsched.config import SchedulerConfig, default_config
from gangsched.kube.access.credentials import load_credentials
from gangsched.kube.client import ApiClient
from gangsched.lab.apiserver.app import EmbeddedCluster, Simulation
from gangsched.lab.apiserver.strategy import Object
from gangsched.model.devices.annotations import parse_allocation
from gangsched.model.objects import Node
from gangsched.plugins import IN_TREE
from gangsched.process.app import SchedulerApp
from tests.support.tasks import until

ROOT = Path(__file__).parents[3]
SAMPLES = sorted((ROOT / "config" / "samples").glob("*.yaml"))
CRD = ROOT / "deploy" / "crds" / "scheduling.x-k8s.io_podgroups.yaml"
GPU = "nvidia.com/gpu"
LIMIT_S = 40.0
# Which nodes it needs beside those with listed GPUs.
NEEDS = {"gang-claims": ROOT / "config" / "samples" / "demo" / "claims-nodes.yaml"}
_DEVICES = "/apis/resource.k8s.io/v1"
_PATHS = {
    ("v1", "Node"): "/api/v1/nodes",
    ("resource.k8s.io/v1", "DeviceClass"): f"{_DEVICES}/deviceclasses",
    ("resource.k8s.io/v1", "ResourceSlice"): f"{_DEVICES}/resourceslices",
    (
        "resource.k8s.io/v1",
        "ResourceClaimTemplate",
    ): f"{_DEVICES}/namespaces/default/resourceclaimtemplates",
    ("v1", "Pod"): "/api/v1/namespaces/default/pods",
    ("batch/v1", "Job"): "/apis/batch/v1/namespaces/default/jobs",
    ("scheduling.k8s.io/v1beta1", "PodGroup"): "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups",
    (
        "scheduling.x-k8s.io/v1alpha1",
        "PodGroup",
    ): "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups",
    (
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
    ): "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
}


class Live:
    """An embedded cluster, the scheduler, and a client of both."""

    def __init__(self, cluster: EmbeddedCluster, client: ApiClient, app: SchedulerApp) -> None:
        self.cluster = cluster
        self.client = client
        self._app = app

    async def apply(self, path: Path) -> list[Object]:
        documents: list[Object] = [each for each in yaml.safe_load_all(path.read_text()) if each]
        for each in documents:
            await self.client.post(_PATHS[each["apiVersion"], each["kind"]], msgspec.json.encode(each))
        return documents

    def all(self, name: str) -> list[Object]:
        registry = self.cluster.registry
        return [item.decode() for item in registry.list(registry.resource(name))]

    def nodes(self) -> dict[str, Node]:
        """As the scheduler knows them."""
        known = self._app.following.reflectors["nodes"].state.known
        return {node.metadata.name: node for node in known.values() if isinstance(node, Node)}

    async def until(self, what: Callable[[], Any]) -> None:
        await until(what, timeout_s=LIMIT_S, story=self._story)

    def _story(self) -> str:
        return f"the pods are { ({each['metadata']['name']: each['status'] for each in self.all('pods')}) }"


@asynccontextmanager
async def live(
    tmp_path: Path, *, nodes: int = 8, speed: float = 30.0, config: SchedulerConfig | None = None
) -> AsyncIterator[Live]:
    simulation = Simulation(nodes=nodes, racks=2, speed=speed)
    async with EmbeddedCluster(simulation=simulation, seed=1) as cluster:
        credentials = await load_credentials(kubeconfig=str(cluster.kubeconfig(tmp_path / "kubeconfig")))
        app = SchedulerApp(config or default_config(IN_TREE), credentials)
        running = asyncio.create_task(app.run(on_signals=False))
        try:
            async with ApiClient(credentials) as client:
                here = Live(cluster, client, app)
                await here.apply(CRD)
                yield here
        finally:
            await app.stop(2.0)
            await running


def held(pods: list[Object]) -> list[tuple[str, str]]:
    """Every device that these pods were given, with its node."""
    return [
        (each["spec"]["nodeName"], device)
        for each in pods
        if (text := each["metadata"].get("annotations", {}).get("gangsched.io/allocated-devices"))
        for by_resource in parse_allocation(text).values()
        for device in by_resource[GPU]
    ]


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
async def test_a_sample_runs_through(path: Path, tmp_path: Path) -> None:
    async with live(tmp_path) as here:
        if path.stem in NEEDS:
            await here.apply(NEEDS[path.stem])
        documents = await here.apply(path)
        jobs = [each for each in documents if each["kind"] == "Job"]
        n_pods = sum(each["spec"]["completions"] for each in jobs) or 1

        def all_run() -> bool:
            pods = here.all("pods")
            return len(pods) == n_pods and all(each["status"]["phase"] == "Running" for each in pods)

        await here.until(all_run)
        devices = held(here.all("pods"))
        asked = sum(
            int(container["resources"].get("limits", {}).get(GPU, 0))
            for each in here.all("pods")
            for container in each["spec"]["containers"]
        )
        assert len(devices) == len(set(devices)) == asked
        given = [
            (result["pool"], result["device"])
            for each in here.all("resourceclaims.resource.k8s.io")
            for result in each["status"]["allocation"]["devices"]["results"]
        ]
        assert len(given) == len(set(given)) == (n_pods if path.stem in NEEDS else 0)

        def all_done() -> bool:
            return all(each["status"]["phase"] == "Succeeded" for each in here.all("pods")) and all(
                any(
                    condition["type"] == "Complete" and condition["status"] == "True"
                    for condition in each.get("status", {}).get("conditions", ())
                )
                for each in here.all("jobs.batch")
            )

        await here.until(all_done)
        assert len(here.all("pods")) == n_pods
        assert all("finalizers" not in each["metadata"] for each in here.all("pods"))
        reasons = {each["reason"] for each in here.all("events") if each["type"] == "Warning"}
        assert not reasons & {"DeviceMismatch", "UnexpectedAdmissionError", "FailedCreate"}
