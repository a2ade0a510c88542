"""The agent's and kubelet's sockets with a stranger on the other side: the agent stays up."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import anyio
import pytest
from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.const import Status
from grpclib.exceptions import GRPCError
from structlog.testing import capture_logs

from gangsched.agent import channels
from gangsched.agent.kubelet_api import deviceplugin_pb2 as pb
from gangsched.agent.kubelet_api.deviceplugin_grpc import DevicePluginStub
from gangsched.agent.plugins import device_plugin
from gangsched.agent.plugins.device_plugin import endpoint_of
from gangsched.agent.plugins.kubelet import Kubelet
from gangsched.agent.plugins.plan import NodePods
from gangsched.agent.plugins.runner import PluginRunner
from gangsched.agent.plugins.settings import KubeletDocument, PluginDocument
from gangsched.agent.sources.pod_resources import PodResourcesSource
from gangsched.model.effects import RecordEvent
from gangsched.model.events import KindSynced
from tests.agent.test_kubelet import Plain
from tests.kubelet.kubelet import TestKubelet
from tests.kubelet.sockets import serving
from tests.kubelet.test_sockets import FPGA, NIC, Node, node
from tests.support.tasks import until

ALLOCATE = "/v1beta1.DevicePlugin/Allocate"


@pytest.fixture
def directory() -> Iterator[Path]:
    """Short: the path of a socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="st-") as name:
        yield Path(name)


async def works(made: Node) -> None:
    pod = made.bound("planned", "f2")
    await made.kubelet.add(pod)
    assert made.held(pod) == {"f2"}


@contextmanager
def channel_to(directory: Path, resource: str, codec: Plain | None = None) -> Iterator[Channel]:
    """What calls the plugin of a resource."""
    channel = Channel(path=str(directory / endpoint_of(resource)), codec=codec)
    try:
        yield channel
    finally:
        channel.close()


async def allocate(directory: Path, resource: str, *ids: str) -> str:
    """The words of the refusal."""
    request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=ids)])
    with channel_to(directory, resource) as channel, pytest.raises(GRPCError) as refused:
        await DevicePluginStub(channel).Allocate(request)
    return refused.value.message or ""


async def test_a_kubelet_that_is_not_there_yet_is_waited_for(directory: Path) -> None:
    async def record(event: RecordEvent) -> None:
        raise AssertionError(event.message)

    async def listed() -> tuple[()]:
        return ()

    place = directory / "plugins"
    settings = KubeletDocument(
        device_plugins=str(place), pod_resources=str(place / "resources.sock"), pods_api=""
    )
    plugins = [PluginDocument(resource=NIC, hand_off="count")]
    runner = PluginRunner(
        "n1", settings, plugins, NodePods(), write_report=lambda text: None, record=record, listed=listed
    )
    async with anyio.create_task_group() as group:
        group.start_soon(runner.run)
        runner.show({})
        await anyio.sleep(4 * device_plugin.SOCKET_S)
        place.write_text("no directory at all")
        await anyio.sleep(4 * device_plugin.SOCKET_S)
        place.unlink()
        place.mkdir()
        async with serving(TestKubelet(Random(1)), place) as sockets:
            await until(lambda: sockets.n_registrations == 1)
        group.cancel_scope.cancel()


async def test_a_directory_in_the_place_of_a_socket_costs_that_plugin_alone(directory: Path) -> None:
    async with node(directory) as made:
        place = directory / endpoint_of(NIC)
        place.unlink()
        place.mkdir()
        (place / "file").touch()
        await anyio.sleep(4 * device_plugin.SOCKET_S)
        await works(made)
        (place / "file").unlink()
        place.rmdir()
        await until(lambda: made.sockets.n_registrations == 3)


async def test_an_unreadable_request_is_refused_without_a_traceback(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with node(directory) as made:
        with channel_to(directory, FPGA, Plain()) as channel, pytest.raises(GRPCError) as refused:
            await UnaryUnaryMethod[bytes, bytes](channel, ALLOCATE, bytes, bytes)(b"\xff" * 10)
        assert refused.value.status is Status.INVALID_ARGUMENT
        assert not [record for record in caplog.records if record.exc_info]
        await works(made)


async def test_a_request_that_is_too_long_is_not_read(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "MAX_MESSAGE_BYTES", 10_000)
    async with node(directory) as made:
        said = await allocate(directory, FPGA, "x" * 9_000, "y" * 9_000)
        assert said == "the request cannot be read: a message of 18010 bytes, at most 10000"
        await works(made)


async def test_many_calls_at_once_ask_kubelet_as_one_would(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_plugin, "PATIENCE_S", 0.5)
    async with node(directory) as made:
        made.bound("due", "f0")
        n_asked, n_calls = 0, 60
        given = made.runner._kubelet.given

        async def counted() -> object:
            nonlocal n_asked
            n_asked += 1
            return await given()

        monkeypatch.setattr(made.runner._kubelet, "given", counted)
        async with anyio.create_task_group() as group:
            for _ in range(n_calls):
                group.start_soon(allocate, directory, FPGA, "x")
        assert n_asked < 2 * n_calls, "each waits for half a second, and looks every tenth of one"
        await works(made)


async def test_one_call_about_many_containers_waits_as_one_about_one(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_plugin, "PATIENCE_S", 0.5)
    async with node(directory) as made:
        made.bound("due", "f0")
        asked = pb.ContainerPreferredAllocationRequest(available_deviceIDs=["x"], allocation_size=1)
        with channel_to(directory, FPGA) as channel, anyio.fail_after(30.0):
            answer = await DevicePluginStub(channel).GetPreferredAllocation(
                pb.PreferredAllocationRequest(container_requests=[asked] * 200)
            )
        assert len(answer.container_responses) == 200


async def test_another_plugins_id_that_no_list_can_have_costs_that_device_alone(directory: Path) -> None:
    """The Node's list is read as a whole: with one such ID in it no device of the node would be known."""
    async with serving(TestKubelet(Random(1)), directory) as sockets:
        sockets.allocatable = {
            "other.com/gpu": {"g" * 64: 0, "g0": 2**63 - 1, "a,b": 0, "\x1b[31m": 0},
            "third.com/x": {"x": -(2**63)},
        }
        resources = ("other.com/gpu", "third.com/x")
        report = await anyio.to_thread.run_sync(
            PodResourcesSource(
                KubeletDocument(
                    device_plugins=sockets.settings.device_plugins,
                    pod_resources=sockets.settings.pod_resources,
                    resources=resources,
                )
            ).read
        )
        [place] = report.places
        assert {of: [one.id for one in devices] for of, devices in place.listed.items()} == {
            "other.com/gpu": ["g0"],
            "third.com/x": ["x"],
        }
        [problem] = report.problems
        assert "of other.com/gpu not all are listed: " in problem
        assert problem.isprintable()


async def test_of_too_many_connections_the_newest_are_closed_and_kubelets_stays(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "MAX_CONNECTIONS", 4)
    async with node(directory) as made:
        path = directory / endpoint_of(FPGA)
        silent = [await asyncio.open_unix_connection(str(path)) for _ in range(20)]
        with anyio.fail_after(10.0):
            for reader, _ in silent[4:]:
                with suppress(ConnectionError):
                    await reader.read()
        await works(made)
        for _, writer in silent:
            writer.close()


async def test_a_kubelet_that_has_lost_the_connection_is_registered_with_again(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the plugin for dead, with all its devices, until the plugin registers."""
    async with node(directory) as made:
        lost, other = made.sockets.clients[FPGA], made.sockets.clients[NIC]
        monkeypatch.setattr(device_plugin, "UNHEARD_S", 5 * device_plugin.SOCKET_S)
        await lost.close()
        await until(lambda: made.sockets.clients.get(FPGA, lost) is not lost)
        monkeypatch.setattr(device_plugin, "UNHEARD_S", 60.0)
        await until(lambda: made.sockets.clients[FPGA].n_lists)
        await works(made)
        assert made.sockets.clients[NIC] is other, "it listens to that one all the time"


async def test_a_kubelet_that_refuses_is_asked_less_and_less_often_and_its_successor_at_once(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_refused = 0

    async def refuse(request: pb.RegisterRequest) -> None:
        nonlocal n_refused
        n_refused += 1
        raise GRPCError(Status.UNKNOWN, "not now")

    async with serving(TestKubelet(Random(1)), directory) as sockets:
        made = Node(sockets, (PluginDocument(resource=FPGA),))
        made.hear(KindSynced("pods"))
        with monkeypatch.context() as patched:
            patched.setattr(sockets, "register", refuse)
            async with anyio.create_task_group() as group:
                group.start_soon(made.runner.run)
                made.show()
                await anyio.sleep(20 * device_plugin.SOCKET_S)
                assert 1 < n_refused < 8
                await sockets.stop()
                n_before = n_refused
                await sockets.start()
                await until(lambda: n_refused >= n_before + 2)
                patched.undo()
                await until(lambda: FPGA in sockets.clients and sockets.clients[FPGA].n_lists > 0)
                await works(made)
                group.cancel_scope.cancel()


async def test_a_kubelet_that_is_over_and_keeps_its_sockets_is_not_asked_any_more(
    directory: Path,
) -> None:
    """The connections to it still work: registration and questions went to it for ever."""
    async with node(directory) as made:
        await works(made)
        before = made.sockets
        async with serving(TestKubelet(Random(2)), directory) as after:
            await until(lambda: after.n_registrations == 2)
            assert before.n_registrations == 2
            made.kubelet = after.kubelet
            await until(lambda: all(client.n_lists for client in after.clients.values()))
            pod = made.bound("next", "f3")
            await made.kubelet.add(pod)
            assert made.held(pod) == {"f3"}


async def test_pods_that_are_gone_are_not_taken_for_those_that_the_api_server_lists(directory: Path) -> None:
    """The watch is behind; a list without any pod is a list."""
    async with node(directory, shows_pods=False) as made:
        made.bound("gone", "f2")
        made.api.clear()
        known = await made.runner.look(again=True)
        assert known.pods == ()


async def test_that_kubelet_shows_a_pod_that_cannot_be_read_is_reported_once(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server's list is used instead, which is behind kubelet's."""
    fake = TestKubelet(Random(1))
    shown = [b"\xff"]
    monkeypatch.setattr(fake, "list_pods", lambda: shown)
    async with serving(fake, directory) as sockets:
        kubelet = Kubelet(sockets.settings)
        with capture_logs() as logs:
            for _ in range(3):
                assert await kubelet.pods() is None
            shown.clear()
            assert await kubelet.pods() == ()
            shown.append(b"\xff")
            assert await kubelet.pods() is None
        kubelet.close()
    said = "kubelet's own list of pods is not used, but the API server's"
    assert [line["event"] for line in logs] == [said] * 2
    assert "kubelet shows a pod that cannot be read" in logs[0]["why"]
