"""config/samples/measured/ on the embedded cluster: nodes report, and pods go by what they report."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from gangsched.config import SchedulerConfig, default_config, parse_config
from gangsched.kube.access.credentials import load_credentials
from gangsched.kube.client import ApiClient
from gangsched.lab.apiserver.app import EmbeddedCluster, Simulation
from gangsched.lab.apiserver.strategy import Object
from gangsched.lab.demo.story import STORY
from gangsched.model.stated.bandwidth import MEGABYTE, REMAINING_KEY, RemainingBandwidth, remaining_annotation
from gangsched.model.stated.load import LOAD_KEY, NodeLoad, Performance, Utilisation, load_annotation
from gangsched.plugins import IN_TREE
from gangsched.process.app import SchedulerApp
from tests.apiserver.simulated.test_samples import ROOT, Live

SAMPLES = ROOT / "config" / "samples" / "measured"
SERVER = Performance(cores=64, mhz=2500, memory_bytes=256e9, network_mbps=1250, disk_mbps=500)


@asynccontextmanager
async def measured(
    directory: Path, annotations: Callable[[int], Mapping[str, str]], config: SchedulerConfig
) -> AsyncIterator[tuple[Live, list[str]]]:
    """Eight nodes whose agents have written these, by number, before the scheduler starts; their names."""
    async with EmbeddedCluster(simulation=Simulation(nodes=8, racks=2, speed=30.0), seed=1) as cluster:
        credentials = await load_credentials(kubeconfig=str(cluster.kubeconfig(directory / "kubeconfig")))
        async with ApiClient(credentials) as client:
            app = SchedulerApp(config, credentials)
            here = Live(cluster, client, app)
            names = sorted(one["metadata"]["name"] for one in here.all("nodes"))
            for i, name in enumerate(names):
                body = msgspec.json.encode({"metadata": {"annotations": annotations(i)}})
                await client.patch(f"/api/v1/nodes/{name}", body)
            running = asyncio.create_task(app.run(on_signals=False))
            try:
                yield here, names
            finally:
                await app.stop(2.0)
                await running


def remaining(egress: int) -> dict[str, str]:
    """So much left to send, and next to nothing to receive."""
    left = RemainingBandwidth(egress * MEGABYTE, MEGABYTE, 1250 * MEGABYTE, datetime.now(UTC))
    return {REMAINING_KEY: remaining_annotation(left)}


def load(share: float) -> dict[str, str]:
    used = Utilisation(share, share, share, share)
    return {LOAD_KEY: load_annotation(NodeLoad(used, SERVER, datetime.now(UTC)))}


def load_aware() -> SchedulerConfig:
    path = ROOT / "config" / "load-aware.yaml"
    return parse_config(path.read_text(), source=str(path), plugins=IN_TREE)


async def placed(here: Live, sample: Path, n_pods: int) -> list[str]:
    """Nodes of the sample's pods, when all have one."""
    await here.apply(sample)

    def nodes() -> list[str]:
        pods: list[Object] = here.all("pods")
        return [node for pod in pods if (node := pod["spec"].get("nodeName", ""))]

    await here.until(lambda: len(nodes()) == n_pods)
    return nodes()


async def test_the_gang_that_streams_goes_where_links_have_room(tmp_path: Path) -> None:
    left = {3: 1100, 6: 1000}
    async with measured(tmp_path, lambda i: remaining(left.get(i, 300)), default_config(IN_TREE)) as (
        here,
        names,
    ):
        found = await placed(here, SAMPLES / "bandwidth.yaml", 2)
    assert set(found) <= {names[i] for i in left}


async def test_pods_go_to_the_nodes_with_least_load_and_not_all_to_one(tmp_path: Path) -> None:
    idle = (2, 5)
    async with measured(tmp_path, lambda i: load(0.1 if i in idle else 0.8), load_aware()) as (here, names):
        found = await placed(here, SAMPLES / "load.yaml", 4)
    assert Counter(found) == {names[i]: 2 for i in idle}


def test_the_page_and_the_demo_use_them() -> None:
    page = (ROOT / "docs" / "bandwidth-and-load.md").read_text()
    named = [path.name for path in SAMPLES.glob("*.yaml") if f"config/samples/measured/{path.name}" in page]
    assert sorted(named) == ["bandwidth.yaml", "load.yaml"]
    assert any("measured/bandwidth.yaml" in str(action) for step in STORY for action in step.does)
