"""Fifty agents as processes against a real API server, each with a kubelet of the tests behind real sockets.

400 devices; gangs are bound and handed out, and what kubelet gave is confirmed; then an agent is killed and
started again, a kubelet's socket is made again, a device fails. Nothing may be lost. The times are figures.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import msgspec
import pytest
import yaml

from gangsched.agent.plugins.messages import given_by_kubelet
from gangsched.lab.controlplane.processes import ControlPlane
from gangsched.model.devices.annotations import ALLOCATED_KEY, parse_allocation, parse_devices
from gangsched.model.devices.report import DEVICE_REPORT_KEY, parse_report
from gangsched.model.objects import Pod
from tests.agent.process import ACCOUNT, DEPLOY, MERGE, NAMESPACE, Agent, kubeconfig_of
from tests.kubelet.kubelet import TestKubelet
from tests.kubelet.sockets import KubeletSockets
from tests.real.process import Scheduler, service_account, write_config
from tests.support.bodies import gang
from tests.support.processes import answered, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

PODS = "/api/v1/namespaces/default/pods"
FPGA = "example.com/fpga"
N_NODES, N_DEVICES = 50, 8
N_GANGS, N_MEMBERS, N_EACH = 50, 4, 2
PATIENCE_S = 120.0
# So many start at a time: each is an interpreter that imports.
AT_A_TIME = 6

T = TypeVar("T")
Json = dict[str, Any]
_decode_pod = msgspec.json.Decoder(Pod).decode


class Kubelets:
    """All of them in one thread with a loop of its own; what they do on the API server is done by polling."""

    def __init__(self, plane: ControlPlane, directory: Path) -> None:
        self._plane = plane
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._stop = False
        self.nodes: dict[str, KubeletSockets] = {}
        for i in range(N_NODES):
            folder = directory / f"k{i}"
            folder.mkdir()
            # Every second one has no Pods API.
            made = KubeletSockets(TestKubelet(Random(i)), folder, shows_pods=i % 2 == 0)
            self.nodes[f"n{i}"] = made

    def start(self) -> None:
        self._thread.start()
        for sockets in self.nodes.values():
            self.call(sockets.start())
        self._following = asyncio.run_coroutine_threadsafe(self._follow(), self._loop)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def stop(self) -> None:
        self._stop = True
        self._following.result(60)
        for sockets in self.nodes.values():
            self.call(sockets.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _follow(self) -> None:
        offered: dict[str, int] = {}
        while not self._stop:
            for name, sockets in self.nodes.items():
                n_healthy = len(sockets.kubelet.devices.healthy.get(FPGA, {}))
                if n_healthy and offered.get(name) != n_healthy:
                    offered[name] = n_healthy
                    await asyncio.to_thread(self._offer, name, n_healthy)
            listed = await asyncio.to_thread(self._plane.request, "GET", PODS)
            for item in listed["items"]:
                node = item["spec"].get("nodeName")
                if node is not None:
                    await self._hear(self.nodes[node].kubelet, _decode_pod(json.dumps(item).encode()))
            await asyncio.sleep(0.1)

    def _offer(self, node: str, n: int) -> None:
        room = {"cpu": "64", "memory": "512Gi", "pods": "110", FPGA: str(n)}
        status = {"status": {"allocatable": room, "capacity": room}}
        self._plane.request("PATCH", f"/api/v1/nodes/{node}/status", status, content_type=MERGE)

    async def _hear(self, kubelet: TestKubelet, pod: Pod) -> None:
        uid = pod.metadata.uid
        if uid in kubelet.pods:
            kubelet.pods[uid] = pod
        elif FPGA in kubelet.plugins:
            await kubelet.add(pod)
            phase = "Failed" if uid in kubelet.failed else "Running"
            kubelet.started.add(uid)
            status: Json = {"phase": phase, "startTime": "2026-01-02T00:00:00Z"}
            if phase == "Failed":
                status["message"] = kubelet.failed[uid]
            path = f"{PODS}/{pod.metadata.name}/status"
            await asyncio.to_thread(
                self._plane.request, "PATCH", path, {"status": status}, content_type=MERGE
            )


class Fleet:
    def __init__(self, plane: ControlPlane, directory: Path) -> None:
        self.plane = plane
        self.directory = directory
        self.kubelets = Kubelets(plane, directory)
        self.agents: dict[str, Agent] = {}
        self.scheduler: Scheduler | None = None
        self._n_logs = 0

    def start(self) -> None:
        for kind in ("agent/rbac.yaml", "rbac.yaml"):
            self.plane.kubectl("apply", "-f", str(DEPLOY.parent / kind))
        self.plane.kubectl("apply", "-f", str(DEPLOY.parent / "device-plugin-hand-off" / "rbac.yaml"))
        token = self.plane.kubectl("create", "token", ACCOUNT, f"--namespace={NAMESPACE}").strip()
        self._account = kubeconfig_of(self.plane, token, self.directory / "agent.kubeconfig")
        for name in self.kubelets.nodes:
            metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
            self.plane.request("POST", "/api/v1/nodes", {"metadata": metadata})
            self.devices(name)
        self.kubelets.start()

    def devices(self, node: str, *, sick: int = -1) -> None:
        folder = self.directory / f"{node}-devices"
        folder.mkdir(exist_ok=True)
        health = ["Unhealthy" if i == sick else "Healthy" for i in range(N_DEVICES)]
        listed = [{"id": f"{node}-f{i}", "numa": i // 4, "health": health[i]} for i in range(N_DEVICES)]
        (folder / "new").write_text(json.dumps({FPGA: listed}))
        (folder / "new").rename(folder / "all.json")

    def agent(self, node: str) -> None:
        kubelet = self.kubelets.nodes[node].settings
        document = {
            "apiVersion": "gangsched.io/v1",
            "kind": "AgentConfiguration",
            "devices": [str(self.directory / f"{node}-devices")],
            "kubelet": {
                "devicePlugins": kubelet.device_plugins,
                "podResources": kubelet.pod_resources,
                "podsApi": kubelet.pods_api,
            },
            "plugins": [{"resource": FPGA, "env": {"FPGAS": "{ids}"}}],
        }
        config = self.directory / f"{node}.yaml"
        config.write_text(yaml.safe_dump(document))
        self._n_logs += 1
        log = self.directory / f"agent-{self._n_logs}.log"
        self.agents[node] = Agent(node, self._account, log, f"--config={config}")

    def notes(self) -> dict[str, dict[str, str]]:
        items = self.plane.request("GET", "/api/v1/nodes")["items"]
        return {item["metadata"]["name"]: item["metadata"].get("annotations", {}) for item in items}

    def listed(self) -> int:
        texts = [notes.get("gangsched.io/devices", "{}") for notes in self.notes().values()]
        return sum(len(parse_devices(text).get(FPGA, [])) for text in texts)

    def reported(self) -> dict[str, dict[str, tuple[str, ...]]]:
        """Pod -> container -> devices, as all agents say together."""
        texts = [notes.get(DEVICE_REPORT_KEY) for notes in self.notes().values()]
        reports = [parse_report(text) for text in texts if text]
        return {
            one.name: {container: sets[FPGA] for container, sets in one.containers.items()}
            for report in reports
            for one in report.pods
        }

    def said(self) -> dict[str, dict[str, tuple[str, ...]]]:
        """The same as the pods' annotations say."""
        pods = self.plane.request("GET", PODS)["items"]
        notes = {pod["metadata"]["name"]: pod["metadata"].get("annotations", {}) for pod in pods}
        return {
            name: {
                container: tuple(sorted(sets[FPGA]))
                for container, sets in parse_allocation(text[ALLOCATED_KEY]).items()
            }
            for name, text in notes.items()
            if ALLOCATED_KEY in text
        }

    def held(self) -> dict[str, dict[str, tuple[str, ...]]]:
        """The same as the kubelets have it."""
        return {
            name: {container: tuple(sorted(sets[FPGA])) for container, sets in containers.items()}
            for sockets in self.kubelets.nodes.values()
            for (_, name), containers in given_by_kubelet(sockets.kubelet.pod_resources()).items()
            if any(FPGA in sets for sets in containers.values())
        }

    def until(self, true: Callable[[], object], what: str) -> float:
        """Waits for a fact; how long it took."""
        started_s = time.monotonic()
        until(answered(true), what, timeout_s=PATIENCE_S, story=self._story)
        return time.monotonic() - started_s

    def _story(self) -> str:
        scheduler = self.scheduler.said[-3000:] if self.scheduler else ""
        return "\n".join([scheduler, *(agent.said[-500:] for agent in self.agents.values())])

    def close(self) -> None:
        for agent in self.agents.values():
            agent.kill()
        if self.scheduler is not None:
            self.scheduler.kill()
        self.kubelets.stop()


@pytest.fixture
def fleet(fresh_cluster: ControlPlane) -> Iterator[Fleet]:
    with tempfile.TemporaryDirectory(prefix="gs-", ignore_cleanup_errors=True) as folder:
        made = Fleet(fresh_cluster, Path(folder))
        try:
            made.start()
            yield made
        finally:
            made.close()


def test_nothing_is_lost_among_fifty_agents(
    fleet: Fleet, record_property: Callable[[str, object], None], tmp_path: Path
) -> None:
    nodes = list(fleet.kubelets.nodes)
    started_s = time.monotonic()
    for i in range(0, N_NODES, AT_A_TIME):
        for name in nodes[i : i + AT_A_TIME]:
            fleet.agent(name)
        there = min(i + AT_A_TIME, N_NODES) * N_DEVICES
        fleet.until(lambda there=there: fleet.listed() == there, f"{there} devices are listed")  # type: ignore[misc]
    listed_s = time.monotonic() - started_s
    sockets = fleet.kubelets.nodes
    fleet.until(lambda: all(one.n_registrations for one in sockets.values()), "all plugins are registered")

    config = write_config(
        tmp_path / "scheduler.yaml", devices={"handOff": {FPGA: "device-plugin"}, "repairAnnotations": True}
    )
    account = service_account(fleet.plane, tmp_path / "scheduler.kubeconfig")
    fleet.scheduler = Scheduler(config, account, tmp_path / "scheduler.log")
    for g in range(N_GANGS):
        limits = {FPGA: N_EACH}
        for member in gang(f"g{g}", pods=N_MEMBERS, cpu="1", limits=limits, terminationGracePeriodSeconds=0):
            fleet.plane.request("POST", PODS, member)
    n_pods = N_GANGS * N_MEMBERS
    bound_s = fleet.until(lambda: len(fleet.said()) == n_pods, "all gangs are bound")
    given_s = fleet.until(lambda: len(fleet.held()) == n_pods, "all have their devices")
    confirmed_s = fleet.until(
        lambda: fleet.reported() == fleet.said() == fleet.held(), "reports, annotations and kubelets agree"
    )
    before = fleet.held()
    check(fleet, before)

    fleet.agents["n7"].kill()
    n_before = sockets["n7"].n_registrations
    fleet.agent("n7")
    agent_s = fleet.until(lambda: sockets["n7"].n_registrations > n_before, "n7's agent is back")

    n_before = sockets["n8"].n_registrations
    fleet.kubelets.call(sockets["n8"].stop())
    fleet.kubelets.call(sockets["n8"].start())
    kubelet_s = fleet.until(
        lambda: sockets["n8"].n_registrations > n_before, "n8's plugin is registered again"
    )

    fleet.devices("n9", sick=3)
    node_s = fleet.until(lambda: sick(fleet, "n9") == ["n9-f3"], "the Node says that a device is sick")
    client = sockets["n9"].clients[FPGA]
    reported_s = fleet.until(lambda: client.health.get("n9-f3") == "Unhealthy", "kubelet is told")
    assert node_s + reported_s < PATIENCE_S

    fleet.until(lambda: fleet.reported() == fleet.said() == fleet.held() == before, "nothing has changed")
    assert fleet.listed() == N_NODES * N_DEVICES
    for agent in fleet.agents.values():
        assert "Traceback" not in agent.said, agent.said
        assert "no devices given" not in agent.said, agent.said
    record_property(
        "figure",
        f"{N_NODES} agents: {N_NODES * N_DEVICES} devices listed in {listed_s:.0f} s ({AT_A_TIME} processes"
        f" started at a time); {n_pods} pods bound {bound_s:.1f} s after the last was made, given"
        f" {given_s:.1f} and confirmed {confirmed_s:.1f} s later; agent killed: registered again after"
        f" {agent_s:.1f} s; its kubelet's socket made again: {kubelet_s:.1f} s; a device failed: on the Node"
        f" after {node_s:.1f} s, told to kubelet {reported_s:.1f} s later",
    )


def sick(fleet: Fleet, node: str) -> list[str]:
    devices = parse_devices(fleet.notes()[node]["gangsched.io/devices"])[FPGA]
    return [device.id for device in devices if device.health != "Healthy"]


def check(fleet: Fleet, held: dict[str, dict[str, tuple[str, ...]]]) -> None:
    """Each device with one pod, each pod with what it asked for, no pod failed."""
    given = [device for containers in held.values() for ids in containers.values() for device in ids]
    assert len(given) == len(set(given)) == N_GANGS * N_MEMBERS * N_EACH
    assert all(len(ids) == N_EACH for containers in held.values() for ids in containers.values())
    failed = [one for sockets in fleet.kubelets.nodes.values() for one in sockets.kubelet.failed.values()]
    assert not failed, failed
