"""On real NVIDIA GPUs: what is read of them, what a program that breaks itself does to their health, and that
the IDs on a pod open just the GPUs that it was given."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from anyio import to_thread

from gangsched.agent.report.inventory import HEALTHY, UNHEALTHY
from gangsched.agent.sources.nvml import NvmlSource
from gangsched.agent.sources.nvml_links import pci_address
from gangsched.lab.apiserver.app import EmbeddedCluster
from gangsched.lab.apiserver.storage.store import Item
from gangsched.model.devices.annotations import Device
from tests.agent.process import GPU, KEY, Agent
from tests.apiserver.test_scheduling import devices_of, pods, scheduler
from tests.support.bodies import gang, node
from tests.support.tasks import until

ILLEGAL_ADDRESS = 700 % 256
"""CUDA_ERROR_ILLEGAL_ADDRESS, as far as a process can say it."""
# So long after a program has broken itself the driver has told of it.
HEARD_S = 10.0


def asked(*what: str) -> list[list[str]]:
    """What nvidia-smi says, a line for each GPU that is not in MIG mode; [] without a driver."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = f"--query-gpu=mig.mode.current,{','.join(what)}"
    said = subprocess.run(
        ["nvidia-smi", query, "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=60
    )
    lines = [[field.strip() for field in line.split(",")] for line in said.stdout.splitlines()]
    return [rest for mig, *rest in lines if said.returncode == 0 and mig != "Enabled"]


pytestmark = pytest.mark.skipif(
    not asked("uuid"),
    reason="no NVIDIA GPU here; where there is one: .venv/bin/python -m pytest tests/agent/test_gpu.py",
)


def listed(source: NvmlSource) -> dict[str, Device]:
    report = source.read()
    return {device.id: device for place in report.places for device in place.listed[GPU]}


def lists(item: Item) -> str:
    """The inventory on the Node."""
    found: str = item.decode()["metadata"].get("annotations", {}).get(KEY, "")
    return found


def run(visible: Iterable[str], *flags: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(visible)}
    command = [sys.executable, "-m", "tests.agent.cuda", *flags]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)


def test_what_is_read_is_what_nvidia_smi_says() -> None:
    found = listed(NvmlSource("on"))
    said = asked("uuid", "name", "memory.total", "pci.bus_id")
    assert sorted(found) == sorted(name for name, *_ in said)
    for name, model, memory_mib, address in said:
        numa = Path("/sys/bus/pci/devices") / pci_address(address) / "numa_node"
        device = found[name]
        assert (device.health, device.model, device.memory_mib) == (HEALTHY, model, int(memory_mib))
        assert device.numa == (int(numa.read_text()) if numa.exists() else -1)


def test_a_program_that_breaks_itself_does_not_make_its_gpu_sick() -> None:
    """The driver tells of it by an XID; a reader that takes every XID for the GPU's fault hears the same."""
    ours, strict = NvmlSource("on"), NvmlSource("on", ignored_xids=())
    [name, *_] = listed(ours)
    assert listed(strict)[name].health == HEALTHY
    broken = run([name], "--break")
    assert (broken.returncode, broken.stdout) == (ILLEGAL_ADDRESS, f"{name}\n"), broken.stderr
    deadline_s = time.monotonic() + HEARD_S
    while listed(strict)[name].health == HEALTHY:
        assert time.monotonic() < deadline_s, "the driver tells of no XID"
        time.sleep(0.1)
    assert listed(ours)[name].health == HEALTHY
    assert [problem for problem in strict.read().problems if f"{name}: XID " in problem]
    assert run([name]).returncode == 0, "the next program can use it"
    assert UNHEALTHY in {device.health for device in listed(strict).values()}, "that lasts"


async def test_the_ids_on_a_pod_open_just_the_gpus_that_it_was_given(tmp_path: Path) -> None:
    """Agent, API server and scheduler; the hand-off to a container is test_hand_off's."""
    names = sorted(name for [name] in asked("uuid"))
    async with EmbeddedCluster() as cluster, scheduler(cluster, tmp_path / "kubeconfig"):
        registry = cluster.registry
        room: dict[str, str | int] = {"cpu": 64, "memory": "64Gi", "pods": 110, GPU: len(names)}
        registry.create(registry.resource("nodes"), node("here", has=room))
        agent = Agent("here", tmp_path / "kubeconfig", tmp_path / "agent.log", "--nvml=on")
        try:
            await until(
                lambda: GPU in lists(registry.get(registry.resource("nodes"), "", "here")),
                "the agent lists the GPUs",
                story=lambda: agent.said,
            )
            for body in gang("train", pods=len(names), limits={GPU: 1}):
                registry.create(registry.resource("pods"), body, namespace="default")
            await until(
                lambda: all(pod.decode()["spec"].get("nodeName") for pod in pods(cluster)), "all are bound"
            )
        finally:
            agent.kill()
        bound = [pod.decode() for pod in pods(cluster)]
    given = [devices_of(pod) for pod in bound]
    assert sorted(one for ids in given for one in ids) == names
    for ids in given:
        opened = await to_thread.run_sync(run, ids)
        assert (opened.returncode, opened.stdout.split()) == (0, ids), opened.stderr
