"""Another scheduler against the embedded cluster: the real kube-scheduler, which sends protobuf and follows
16 kinds."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from gangsched.errors import ConfigError
from gangsched.lab.apiserver.app import EmbeddedCluster, Simulation
from gangsched.lab.apiserver.simulated import Driver
from gangsched.lab.controlplane.assets import find
from gangsched.lab.controlplane.build import REQUIRE_VARIABLE
from tests.support.bodies import pod

DEADLINE_S = 60.0
N_PODS = 12

pytestmark = pytest.mark.real


@pytest.fixture
def kube_scheduler() -> Path:
    try:
        return find().path("kube-scheduler")
    except ConfigError as error:
        if os.environ.get(REQUIRE_VARIABLE) == "1":
            pytest.fail(f"{REQUIRE_VARIABLE}=1, but: {error}", pytrace=False)
        pytest.skip(f"no kube-scheduler: {error}")


async def test_kube_scheduler_fills_the_nodes_and_no_more(kube_scheduler: Path, tmp_path: Path) -> None:
    simulation = Simulation(nodes=2, gpus=8, speed=0.05)
    async with EmbeddedCluster(simulation=simulation, seed=1) as cluster:
        kubeconfig = cluster.kubeconfig(tmp_path / "kubeconfig")
        pods = cluster.registry.resource("pods")
        for k in range(N_PODS):
            cluster.registry.create(
                pods, pod(f"p-{k}", limits={"nvidia.com/gpu": 2}, restartPolicy="Never"), namespace="default"
            )
        async with running(kube_scheduler, kubeconfig):
            with anyio.fail_after(DEADLINE_S):
                # 16 GPUs in all, two for each pod: the rest is told why it waits.
                while not told(cluster, bound=8, waiting=N_PODS - 8):
                    await asyncio.sleep(0.05)


async def test_kube_scheduler_allocates_claims_and_the_pods_run(kube_scheduler: Path, tmp_path: Path) -> None:
    """Four devices for six pods with a claim each: the last two start as soon as two have ended."""
    simulation = Simulation(nodes=2, gpus=0, driver=Driver(2))
    async with EmbeddedCluster(simulation=simulation, seed=1) as cluster:
        kubeconfig = cluster.kubeconfig(tmp_path / "kubeconfig")
        registry = cluster.registry
        claims = registry.resource("resourceclaims.resource.k8s.io")
        opaque = {"driver": Driver().name, "parameters": {"mode": "exclusive", "numbers": [1, 2.5]}}
        spec = {
            "devices": {
                "requests": [{"name": "gpu", "exactly": {"deviceClassName": Driver().name}}],
                "config": [{"opaque": opaque}],
            }
        }
        registry.create(
            registry.resource("resourceclaimtemplates.resource.k8s.io"),
            {"metadata": {"name": "t"}, "spec": {"spec": spec}},
            namespace="default",
        )
        for k in range(6):
            seconds = {"simulated.gangsched.io/run-seconds": "forever"}
            entry = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
            body = pod(f"p-{k}", annotations=seconds, restartPolicy="Never", resourceClaims=entry)
            registry.create(registry.resource("pods"), body, namespace="default")

        def running_pods() -> list[str]:
            items = registry.list(registry.resource("pods"), "default")
            return [item.name for item in items if item.fields["status.phase"] == "Running"]

        def held() -> list[tuple[str, str]]:
            allocated = [item.decode()["status"].get("allocation") for item in registry.list(claims)]
            results = [each for found in allocated if found for each in found["devices"]["results"]]
            return sorted((each["pool"], each["device"]) for each in results)

        everything = [(node, device) for node in ("node-0", "node-1") for device in ("gpu-0", "gpu-1")]
        async with running(kube_scheduler, kubeconfig):
            with anyio.fail_after(DEADLINE_S):
                while len(running_pods()) < 4:
                    await asyncio.sleep(0.05)
            assert held() == everything
            first = set(running_pods())
            for name in sorted(first)[:2]:
                registry.delete(registry.resource("pods"), "default", name)
            with anyio.fail_after(DEADLINE_S):
                while len(set(running_pods()) - first) < 2:
                    await asyncio.sleep(0.05)
        assert held() == everything
        assert len(registry.list(claims)) == 4
        for item in registry.list(claims):
            claim = item.decode()
            assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
            assert [each["resource"] for each in claim["status"]["reservedFor"]] == ["pods"]
            assert claim["status"]["allocation"]["devices"]["config"] == [
                {"source": "FromClaim", "opaque": opaque}
            ]


@asynccontextmanager
async def running(kube_scheduler: Path, kubeconfig: Path) -> AsyncIterator[None]:
    """kube-scheduler until the block ends."""
    process = await asyncio.create_subprocess_exec(
        str(kube_scheduler),
        f"--kubeconfig={kubeconfig}",
        "--leader-elect=false",
        "--secure-port=0",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.kill()
        await process.wait()


def told(cluster: EmbeddedCluster, *, bound: int, waiting: int) -> bool:
    """So many pods are bound, with an event each, and so many have the reason why not in their status."""
    events = cluster.registry.list(cluster.registry.resource("events"), "default")
    n_events = sum(event.decode()["reason"] == "Scheduled" for event in events)
    objects = [item.decode() for item in cluster.registry.list(cluster.registry.resource("pods"))]
    n_bound = sum("nodeName" in each["spec"] for each in objects)
    n_waiting = sum(
        condition.get("reason") == "Unschedulable"
        for each in objects
        for condition in each["status"].get("conditions", ())
    )
    return (n_bound, n_events, n_waiting) == (bound, bound, waiting)
