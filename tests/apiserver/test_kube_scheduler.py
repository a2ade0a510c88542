"""Another scheduler against the embedded cluster: the real kube-scheduler, which sends protobuf and follows
16 kinds."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import anyio
import pytest

from gangsched.errors import ConfigError
from gangsched.lab.apiserver.app import EmbeddedCluster, Simulation
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
        process = await asyncio.create_subprocess_exec(
            str(kube_scheduler),
            f"--kubeconfig={kubeconfig}",
            "--leader-elect=false",
            "--secure-port=0",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            with anyio.fail_after(DEADLINE_S):
                # 16 GPUs in all, two for each pod: the rest is told why it waits.
                while not told(cluster, bound=8, waiting=N_PODS - 8):
                    await asyncio.sleep(0.05)
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
