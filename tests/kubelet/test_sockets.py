"""The device plugins on real sockets: registration, health, planned sets, reports, kubelet's restart."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from socket import AF_UNIX, socket

import anyio
import msgspec
import pytest
from grpclib.client import Channel

from gangsched.agent.kubelet_api import deviceplugin_pb2 as plugin_pb2
from gangsched.agent.kubelet_api.deviceplugin_grpc import DevicePluginStub
from gangsched.agent.plugins import device_plugin
from gangsched.agent.plugins.plan import NodePods, planned_pod
from gangsched.agent.plugins.runner import PluginRunner
from gangsched.agent.plugins.settings import (
    DeviceFileDocument,
    MountDocument,
    OutfitDocument,
    PluginDocument,
)
from gangsched.agent.report.inventory import Listed
from gangsched.agent.sources.pod_resources import PodResourcesSource
from gangsched.model.devices.annotations import ALLOCATED_KEY, Device
from gangsched.model.devices.report import parse_report
from gangsched.model.effects import RecordEvent
from gangsched.model.events import Event, KindSynced, PodAdded, PodUpdated
from gangsched.model.objects import Container, ObjectMeta, Pod, PodSpec, PodStatus, ResourceRequirements
from tests.kubelet.kubelet import TestKubelet
from tests.kubelet.sockets import KubeletSockets, serving
from tests.support.tasks import until

FPGA, NIC = "example.com/fpga", "example.com/nic"
PLUGINS = (
    PluginDocument(
        resource=FPGA,
        env={"FPGAS": "{ids}"},
        all=OutfitDocument(mounts=(MountDocument("/opt/fpga"),)),
        each=OutfitDocument(
            device_files=(
                DeviceFileDocument("/dev/{id}", container="/dev/fpga/{id}"),
                DeviceFileDocument("/dev/fpga-control"),
            ),
            cdi=("example.com/fpga={id}",),
        ),
        by_device={"f3": OutfitDocument(device_files=(DeviceFileDocument("/dev/odd", permissions="r"),))},
    ),
    PluginDocument(resource=NIC, hand_off="count"),
)
PATIENCE_S = 30.0


class Node:
    """A node's agent and kubelet; what is told to the API server is kept."""

    def __init__(self, sockets: KubeletSockets, plugins: tuple[PluginDocument, ...] = PLUGINS) -> None:
        self.sockets = sockets
        self.kubelet = sockets.kubelet
        self.listed: Listed = {
            FPGA: {f"f{i}": Device(f"f{i}", numa=i // 2) for i in range(4)},
            NIC: {"n0": Device("n0")},
        }
        self.said: list[str] = []
        self.events: list[RecordEvent] = []
        self.api: dict[str, Pod] = {}
        self.pods = NodePods()
        self.runner = self._made(plugins)

    def _made(self, plugins: tuple[PluginDocument, ...]) -> PluginRunner:
        async def record(event: RecordEvent) -> None:
            self.events.append(event)

        async def listed() -> tuple[object, ...]:
            return tuple(planned_pod(pod) for pod in self.api.values())

        return PluginRunner(
            "n1",
            self.sockets.settings,
            plugins,
            self.pods,
            write_report=self.said.append,
            record=record,
            listed=listed,  # type: ignore[arg-type]
        )

    def hear(self, *events: Event) -> None:
        self.pods.apply(events)
        self.runner.pods_changed()

    def show(self) -> None:
        self.runner.show(self.listed)

    def bound(self, name: str, *ids: str, resource: str = FPGA) -> Pod:
        limits: dict[str, str | int | float] = {resource: str(len(ids))}
        container = Container(name="main", resources=ResourceRequirements(limits=limits))
        notes = {ALLOCATED_KEY: json.dumps({"main": {resource: list(ids)}})} if resource == FPGA else {}
        meta = ObjectMeta(name=name, namespace="default", uid=f"uid-{name}", annotations=notes)
        pod = Pod(meta, PodSpec(node_name="n1", containers=[container]), PodStatus(phase="Pending"))
        self.api[pod.metadata.uid] = pod
        self.hear(PodAdded(pod))
        return pod

    def started(self, pod: Pod) -> None:
        self.kubelet.started.add(pod.metadata.uid)
        status = PodStatus(phase="Running", start_time=datetime(2026, 1, 2, tzinfo=UTC))
        self.api[pod.metadata.uid] = msgspec.structs.replace(pod, status=status)
        self.hear(PodUpdated(self.api[pod.metadata.uid]))

    def held(self, pod: Pod, resource: str = FPGA) -> frozenset[str]:
        return self.kubelet.devices.held.get(pod.metadata.uid, {}).get("main", {}).get(resource, frozenset())

    async def registered(self, times: int = 1) -> None:
        await until(lambda: self.sockets.n_registrations >= times * len(PLUGINS))
        await until(lambda: all(client.n_lists for client in self.sockets.clients.values()))


@asynccontextmanager
async def node(directory: Path, *, shows_pods: bool = True) -> AsyncIterator[Node]:
    async with serving(TestKubelet(Random(1)), directory, shows_pods=shows_pods) as sockets:
        made = Node(sockets)
        made.hear(KindSynced("pods"))
        async with anyio.create_task_group() as group:
            group.start_soon(made.runner.run)
            made.show()
            await made.registered()
            yield made
            group.cancel_scope.cancel()


@pytest.fixture
def directory() -> Iterator[Path]:
    """Short: the path of a socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="dp-") as name:
        yield Path(name)


@pytest.mark.parametrize("shows_pods", [True, False], ids=["by kubelet", "by the API server"])
async def test_a_pod_gets_its_planned_set_with_all_that_belongs_to_it(
    directory: Path, shows_pods: bool
) -> None:
    async with node(directory, shows_pods=shows_pods) as made:
        pod = made.bound("a", "f1", "f3")
        await made.kubelet.add(pod)
        assert made.kubelet.failed == {}
        assert made.held(pod) == {"f1", "f3"}
        outfit = made.kubelet.outfits[pod.metadata.uid, "main", FPGA]
        assert dict(outfit.envs) == {"FPGAS": "f1,f3"}
        assert [(one.container_path, one.host_path, one.permissions) for one in outfit.devices] == [
            ("/dev/fpga/f1", "/dev/f1", "rw"),
            ("/dev/fpga-control", "/dev/fpga-control", "rw"),
            ("/dev/odd", "/dev/odd", "r"),
        ]
        assert [(one.host_path, one.read_only) for one in outfit.mounts] == [("/opt/fpga", True)]
        assert [one.name for one in outfit.cdi_devices] == ["example.com/fpga=f1"]
        made.started(pod)
        await until(lambda: made.said and parse_report(made.said[-1]).pods)
        report = parse_report(made.said[-1])
        assert report.resources == (FPGA,), "of what is only counted nothing is said"
        assert [(one.uid, one.containers) for one in report.pods] == [
            ("uid-a", {"main": {FPGA: ("f1", "f3")}})
        ]


async def test_an_unplanned_set_is_refused_with_an_event(directory: Path) -> None:
    async with node(directory) as made:
        pod = made.bound("a", "f0")
        stranger = msgspec.structs.replace(
            pod, metadata=ObjectMeta(name="stranger", namespace="default", uid="uid-s")
        )
        await made.kubelet.add(stranger)
        assert "no container for which 1 of example.com/fpga are planned" in made.kubelet.failed["uid-s"]
        await until(lambda: made.events)
        assert (made.events[0].kind, made.events[0].name, made.events[0].reason) == (
            "Node",
            "n1",
            "DeviceMismatch",
        )
        await made.kubelet.add(pod)
        assert made.held(pod) == {"f0"}


async def test_an_ended_pod_with_anothers_devices_is_listed_until_its_annotation_is_right(
    directory: Path,
) -> None:
    """Two of one gang by the API server's word: kubelet lists both, and comes with the second one first."""
    async with node(directory, shows_pods=False) as made:
        first, second = made.bound("a", "f0"), made.bound("b", "f1")
        made.kubelet.pods[first.metadata.uid] = first
        await made.kubelet.add(second)
        assert made.held(second) == {"f0"}
        made.started(second)
        await until(lambda: made.said and parse_report(made.said[-1]).pods)
        made.kubelet.end(second.metadata.uid)
        ended = msgspec.structs.replace(second, status=PodStatus(phase="Succeeded"))
        made.hear(PodUpdated(ended))
        await until(lambda: parse_report(made.said[-1]).ended)
        [late] = parse_report(made.said[-1]).ended
        assert (late.name, late.containers) == ("b", {"main": {FPGA: ("f0",)}})
        notes = {ALLOCATED_KEY: json.dumps({"main": {FPGA: ["f0"]}})}
        meta = msgspec.structs.replace(second.metadata, annotations=notes)
        made.hear(PodUpdated(msgspec.structs.replace(ended, metadata=meta)))
        await until(lambda: not parse_report(made.said[-1]).ended)
        await made.kubelet.add(first)
        assert made.kubelet.failed == {}


async def test_a_resource_may_be_an_existing_one_and_a_kubelet_that_calls_before_a_start_is_answered(
    directory: Path,
) -> None:
    async with serving(TestKubelet(Random(1)), directory) as sockets:

        async def record(event: RecordEvent) -> None:
            raise AssertionError(event.message)

        async def listed() -> tuple[()]:
            return ()

        plugins = [PluginDocument(resource="nvidia.com/gpu", hand_off="count")]
        runner = PluginRunner(
            "n1",
            sockets.settings,
            plugins,
            NodePods(),
            write_report=lambda text: None,
            record=record,
            listed=listed,
        )
        async with anyio.create_task_group() as group:
            group.start_soon(runner.run)
            runner.show({"nvidia.com/gpu": {"GPU-1": Device("GPU-1")}})
            with anyio.fail_after(PATIENCE_S):
                while "nvidia.com/gpu" not in sockets.clients:
                    await anyio.sleep(0.02)
            [socket] = Path(sockets.settings.device_plugins).glob("gangsched-nvidia-com-gpu-*.sock")
            channel = Channel(path=str(socket))
            answer = await DevicePluginStub(channel).PreStartContainer(
                plugin_pb2.PreStartContainerRequest(devices_ids=["GPU-1"])
            )
            assert answer == plugin_pb2.PreStartContainerResponse()
            channel.close()
            group.cancel_scope.cancel()


async def test_a_resource_that_is_counted_takes_whatever_kubelet_takes(directory: Path) -> None:
    async with node(directory) as made:
        pod = made.bound("a", "n0", resource=NIC)
        await made.kubelet.add(pod)
        assert made.held(pod, NIC) == {"n0"}
        assert made.kubelet.n_preferred == 0


async def test_kubelet_gets_the_inventorys_health_at_once(directory: Path) -> None:
    async with node(directory) as made:
        made.listed[FPGA]["f1"] = Device("f1", health="Unhealthy")
        made.show()
        client = made.sockets.clients[FPGA]
        await until(lambda: client.health.get("f1") == "Unhealthy")
        assert client.health["f0"] == "Healthy"
        n_lists = client.n_lists
        made.show()
        await anyio.sleep(0.1)
        assert client.n_lists == n_lists


async def test_a_numa_node_that_kubelets_message_cannot_carry_is_not_reported(directory: Path) -> None:
    async with serving(TestKubelet(Random(1)), directory) as sockets:
        made = Node(sockets, (PluginDocument(resource=FPGA, tell_numa=True),))
        made.listed[FPGA] = {str(n): Device(str(n), numa=n) for n in (-1, 0, 2**63 - 1, 2**63, 10**30)}
        made.show()
        shown, _ = made.runner.plugins[FPGA].listed()
        assert {one.ID: [node.ID for node in one.topology.nodes] for one in shown.devices} == {
            "-1": [],
            "0": [0],
            str(2**63 - 1): [2**63 - 1],
            str(2**63): [],
            str(10**30): [],
        }


async def test_a_kubelet_that_is_restarted_finds_the_plugins_again_and_nothing_is_reported_meanwhile(
    directory: Path,
) -> None:
    async with node(directory) as made:
        pod = made.bound("a", "f1", "f3")
        await made.kubelet.add(pod)
        made.started(pod)
        await until(lambda: made.said and parse_report(made.said[-1]).pods)
        said = list(made.said)
        await made.sockets.stop()
        made.kubelet.restart()
        await made.sockets.start()
        await made.registered(2)
        await anyio.sleep(0.3)
        assert set(made.said[len(said) :]) <= {said[-1]}, "kubelet has not told of its pods yet"
        await made.kubelet.add(made.api[pod.metadata.uid])
        made.kubelet.is_ready = True
        other = made.bound("b", "f0")
        await made.kubelet.add(other)
        assert made.held(pod) == {"f1", "f3"}
        assert made.held(other) == {"f0"}
        await until(lambda: len(parse_report(made.said[-1]).pods) == 2)


async def test_an_agent_that_ends_leaves_the_sockets_of_the_one_that_has_followed_it(directory: Path) -> None:
    async with serving(TestKubelet(Random(1)), directory) as sockets:
        old, new = Node(sockets), Node(sockets)
        async with anyio.create_task_group() as group:
            old_runs = anyio.create_task_group()
            async with old_runs:
                old_runs.start_soon(old.runner.run)
                old.show()
                await old.registered()
                group.start_soon(new.runner.run)
                new.show()
                await new.registered(2)
                clients = dict(sockets.clients)
                old_runs.cancel_scope.cancel()
            # More than enough for the other to miss its socket and to make it again.
            await anyio.sleep(10 * device_plugin.SOCKET_S)
            assert sockets.clients == clients
            assert sockets.n_registrations == 2 * len(PLUGINS)
            new.hear(KindSynced("pods"))
            pod = new.bound("a", "f1")
            await new.kubelet.add(pod)
            assert new.held(pod) == {"f1"}
            group.cancel_scope.cancel()
        assert not [*directory.glob("gangsched-*")]


async def test_of_two_agents_the_older_waits_for_the_newer_to_end_and_goes_on(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_plugin, "UNHEARD_S", 10 * device_plugin.SOCKET_S)
    async with serving(TestKubelet(Random(1)), directory) as sockets:
        old, new = Node(sockets), Node(sockets)
        async with anyio.create_task_group() as group:
            group.start_soon(old.runner.run)
            old.show()
            await old.registered()
            async with anyio.create_task_group() as new_runs:
                new_runs.start_soon(new.runner.run)
                new.show()
                await new.registered(2)
                clients = dict(sockets.clients)
                await anyio.sleep(25 * device_plugin.SOCKET_S)
                assert sockets.clients == clients
                assert sockets.n_registrations == 2 * len(PLUGINS)
                new_runs.cancel_scope.cancel()
            await old.registered(3)
            old.hear(KindSynced("pods"))
            pod = old.bound("a", "f1")
            await old.kubelet.add(pod)
            assert old.held(pod) == {"f1"}
            group.cancel_scope.cancel()


async def test_a_newer_agent_that_was_killed_is_not_waited_for(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves its socket, and kubelet has lost the connection."""
    monkeypatch.setattr(device_plugin, "UNHEARD_S", 10 * device_plugin.SOCKET_S)
    async with node(directory) as made:
        lost = made.sockets.clients[FPGA]
        path = directory / device_plugin.endpoint_of(FPGA)
        path.unlink()
        with socket(AF_UNIX) as left:
            left.bind(str(path))
        await lost.close()
        clients = made.sockets.clients  # without the plugin while kubelet has lost it
        await until(lambda: FPGA in clients and clients[FPGA] is not lost and clients[FPGA].n_lists > 0)
        pod = made.bound("a", "f1")
        await made.kubelet.add(pod)
        assert made.held(pod) == {"f1"}


async def test_another_plugins_devices_are_listed_as_kubelet_reports_them(directory: Path) -> None:
    async with serving(TestKubelet(Random(1)), directory) as sockets:
        sockets.allocatable = {"other.com/gpu": {"g1": 1, "g0": 0}, "third.com/x": {"x": 0}}
        settings = msgspec.structs.replace(sockets.settings, resources=("other.com/gpu",))
        source = PodResourcesSource(settings)
        report = await anyio.to_thread.run_sync(source.read)
        [place] = report.places
        assert place.listed == {"other.com/gpu": (Device("g0", numa=0), Device("g1", numa=1))}
        del sockets.allocatable["other.com/gpu"]["g1"]
        report = await anyio.to_thread.run_sync(source.read)
        assert report.places[0].listed == {"other.com/gpu": (Device("g0", numa=0),)}
        await sockets.stop()
        report = await anyio.to_thread.run_sync(source.read)
        assert report.places[0].listed == {"other.com/gpu": (Device("g0", numa=0),)}
        assert "what it last listed stays" in report.problems[0]
