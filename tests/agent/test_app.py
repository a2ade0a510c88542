"""The agent's edge against the embedded API server: threads, requests, and what happens when one hangs."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from gangsched.agent.app import AgentApp
from gangsched.agent.report import source_reports
from gangsched.agent.report.reports import Report, Silence
from gangsched.agent.settings import AgentFlags, AgentSettings, default_settings
from gangsched.agent.sources import Source
from gangsched.errors import ConfigError
from gangsched.kube.access.credentials import load_credentials
from gangsched.lab.apiserver.app import EmbeddedCluster
from gangsched.model.devices.annotations import ALLOCATED_KEY
from gangsched.model.events import PodAdded
from gangsched.model.objects import ObjectMeta, Pod, PodSpec
from tests.agent.virtual import GPU, devices, report
from tests.support.tasks import until

KEY = "gangsched.io/devices"


class Told:
    """Says what it was told to say; hangs while `hangs` is set."""

    period_s = 0.02

    def __init__(self, name: str = "told", silence: Silence = Silence.SICKNESS) -> None:
        self.name = name
        self.silence = silence
        self.says = report(*devices("a"), source=name)
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.fails = 0

    def read(self) -> Report:
        self.goes_on.wait()
        if self.fails:
            self.fails -= 1
            raise RuntimeError("a bug of ours")
        return self.says


class Running:
    def __init__(self, cluster: EmbeddedCluster, app: AgentApp) -> None:
        self.cluster = cluster
        self.app = app

    def listed(self) -> dict[str, str]:
        registry = self.cluster.registry
        node = json.loads(registry.get(registry.resource("nodes"), "", "n1").raw)
        text = node["metadata"].get("annotations", {}).get(KEY, "{}")
        return {device["id"]: device["health"] for device in json.loads(text).get(GPU, [])}


def settings(node: str = "n1") -> AgentSettings:
    return default_settings(AgentFlags(node_name=node, nvml="off"), {})


@asynccontextmanager
async def running(tmp_path: Path, *sources: Source) -> AsyncIterator[Running]:
    async with EmbeddedCluster() as cluster:
        registry = cluster.registry
        registry.create(registry.resource("nodes"), {"metadata": {"name": "n1"}})
        path = tmp_path / "kubeconfig"
        cluster.kubeconfig(path)
        credentials = await load_credentials(kubeconfig=str(path), environ={})
        app = AgentApp(settings(), credentials, sources=list(sources), seed=1)
        async with anyio.create_task_group() as group:
            group.start_soon(app.run)
            yield Running(cluster, app)
            group.cancel_scope.cancel()


async def test_a_sources_report_is_on_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        source_reports, "SILENT_S", 1e9
    )  # no deadline but the heartbeat, which is beyond patience
    source = Told()
    async with running(tmp_path, source) as agent:
        await until(lambda: agent.listed() == {"a": "Healthy"})
        source.says = report(*devices("a", "b", sick=("a",)), source="told")
        await until(lambda: agent.listed() == {"a": "Unhealthy", "b": "Healthy"})
        # The server has it before the agent has heard so.
        await until(lambda: agent.app.reporter.n_writes >= 2)
        assert agent.app.reporter.n_writes == 2


async def test_a_source_that_hangs_delays_no_other_and_its_devices_are_not_handed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_reports, "SILENT_S", 0.3)
    driver, file = Told("driver"), Told("file", Silence.NOTHING)
    file.says = report(*devices("f"), source="file")
    async with running(tmp_path, driver, file) as agent:
        await until(lambda: agent.listed() == {"a": "Healthy", "f": "Healthy"})
        driver.goes_on.clear()
        try:
            await until(lambda: agent.listed() == {"a": "Unhealthy", "f": "Healthy"})
            file.says = report(*devices("f", "g"), source="file")
            await until(lambda: agent.listed() == {"a": "Unhealthy", "f": "Healthy", "g": "Healthy"})
        finally:
            driver.goes_on.set()
        await until(lambda: agent.listed()["a"] == "Healthy")


async def test_a_source_that_breaks_goes_on(tmp_path: Path) -> None:
    source = Told()
    source.fails = 3
    async with running(tmp_path, source) as agent:
        await until(lambda: agent.listed() == {"a": "Healthy"})


async def test_a_node_that_is_not_there_is_a_mistake_with_the_nearest_name(tmp_path: Path) -> None:
    async with EmbeddedCluster() as cluster:
        registry = cluster.registry
        registry.create(registry.resource("nodes"), {"metadata": {"name": "n11"}})
        cluster.kubeconfig(tmp_path / "kubeconfig")
        credentials = await load_credentials(kubeconfig=str(tmp_path / "kubeconfig"), environ={})
        with pytest.raises(ConfigError, match="there is no node 'n011'; did you mean n11"):
            await AgentApp(settings("n011"), credentials, sources=[]).run()


async def test_a_pod_of_the_list_that_cannot_be_read_keeps_the_devices_that_were_planned_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kubelet asks while the list has one such pod: its set was planned for nobody any more."""
    planned = {ALLOCATED_KEY: json.dumps({"main": {GPU: ["a"]}})}
    items = [
        {"metadata": {"name": name, "namespace": "d", "uid": name, "annotations": planned}, "spec": spec}
        for name, spec in (("good", {}), ("bad", {"containers": 1}))
    ]
    body = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}

    async def answered(*_: object, **__: object) -> bytes:
        return json.dumps(body).encode()

    async with EmbeddedCluster() as cluster:
        cluster.kubeconfig(tmp_path / "kubeconfig")
        credentials = await load_credentials(kubeconfig=str(tmp_path / "kubeconfig"), environ={})
        app = AgentApp(settings(), credentials, sources=[])
        metas = [ObjectMeta(name=n, namespace="d", uid=n, annotations=planned) for n in ("bad", "gone")]
        app._node_pods.apply([PodAdded(Pod(meta, PodSpec())) for meta in metas])
        monkeypatch.setattr(app._client, "get", answered)
        listed = await app._planned_pods()
    assert listed is not None
    assert [pod.name for pod in listed] == ["good", "bad"]
    assert all(pod.planned == {"main": {GPU: frozenset("a")}} for pod in listed)
