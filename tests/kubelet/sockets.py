"""The kubelet of the tests behind its sockets: Registration, PodResources, Pods as servers, and its client.

Not here: what it does with what it hears (`kubelet`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from grpclib.client import Channel
from grpclib.const import Status
from grpclib.exceptions import GRPCError
from grpclib.server import Server, Stream

from gangsched.agent.kubelet_api import deviceplugin_pb2 as pb
from gangsched.agent.kubelet_api import podresources_pb2 as resources_pb2
from gangsched.agent.kubelet_api import pods_pb2
from gangsched.agent.kubelet_api.deviceplugin_grpc import DevicePluginStub, RegistrationBase
from gangsched.agent.kubelet_api.podresources_grpc import PodResourcesListerBase
from gangsched.agent.kubelet_api.pods_grpc import PodsBase
from gangsched.agent.plugins.settings import KubeletDocument
from tests.kubelet.kubelet import Refused, TestKubelet


class PluginClient:
    """kubelet's connection to one plugin: its options, its ListAndWatch, its calls."""

    def __init__(
        self, kubelet: TestKubelet, resource: str, path: Path, options: pb.DevicePluginOptions
    ) -> None:
        self.prefers = options.get_preferred_allocation_available
        self.n_lists = 0
        self.health: dict[str, str] = {}
        self._kubelet = kubelet
        self._resource = resource
        self._channel = Channel(path=str(path))
        self._stub = DevicePluginStub(self._channel)
        self._watch = asyncio.create_task(self._list_and_watch())

    async def preferred(self, request: pb.PreferredAllocationRequest) -> pb.PreferredAllocationResponse:
        try:
            return await self._stub.GetPreferredAllocation(request)
        except GRPCError as error:
            raise Refused(error.message) from None

    async def allocate(self, request: pb.AllocateRequest) -> pb.AllocateResponse:
        try:
            return await self._stub.Allocate(request)
        except GRPCError as error:
            raise Refused(error.message) from None

    async def _list_and_watch(self) -> None:
        async with self._stub.ListAndWatch.open() as stream:
            await stream.send_message(pb.Empty(), end=True)
            async for response in stream:
                self.n_lists += 1
                self.health = {one.ID: one.health for one in response.devices}
                healthy = {
                    one.ID: one.topology.nodes[0].ID if one.topology.nodes else -1
                    for one in response.devices
                    if one.health == "Healthy"
                }
                self._kubelet.listed(self._resource, healthy)

    async def close(self) -> None:
        self._watch.cancel()
        await asyncio.gather(self._watch, return_exceptions=True)
        self._channel.close()


class KubeletSockets:
    """Serves in `directory`; `restart` does what a kubelet does: it clears the plugins' directory first."""

    def __init__(self, kubelet: TestKubelet, directory: Path, *, shows_pods: bool) -> None:
        self.kubelet = kubelet
        self.clients: dict[str, PluginClient] = {}
        self.n_registrations = 0
        self.allocatable: dict[str, dict[str, int]] = {}
        self._directory = directory
        self._shows_pods = shows_pods
        self._servers: list[Server] = []
        self.settings = KubeletDocument(
            device_plugins=str(directory),
            pod_resources=str(directory / "resources.sock"),
            pods_api=str(directory / "pods.sock"),
        )

    async def start(self) -> None:
        for old in self._directory.glob("*.sock"):
            old.unlink()
        faces: list[tuple[str, object]] = [
            ("resources.sock", _PodResources(self)),
            ("kubelet.sock", _Registration(self)),
        ]
        if self._shows_pods:
            faces.insert(0, ("pods.sock", _Pods(self)))
        for name, face in faces:
            server = Server([face])  # type: ignore[list-item]
            await server.start(path=str(self._directory / name))
            self._servers.append(server)

    async def stop(self) -> None:
        for client in self.clients.values():
            await client.close()
        self.clients.clear()
        for server in self._servers:
            server.close()
            await server.wait_closed()
        self._servers.clear()

    async def register(self, request: pb.RegisterRequest) -> None:
        assert request.version == "v1beta1"
        path = self._directory / request.endpoint
        old = self.clients.pop(request.resource_name, None)
        if old is not None:
            await old.close()
        client = PluginClient(self.kubelet, request.resource_name, path, request.options)
        self.clients[request.resource_name] = client
        self.kubelet.plugins[request.resource_name] = client
        self.n_registrations += 1


class _Registration(RegistrationBase):
    def __init__(self, sockets: KubeletSockets) -> None:
        self._sockets = sockets

    async def Register(self, stream: Stream[pb.RegisterRequest, pb.Empty]) -> None:
        request = await stream.recv_message()
        assert request is not None
        await self._sockets.register(request)
        await stream.send_message(pb.Empty())


class _PodResources(PodResourcesListerBase):
    def __init__(self, sockets: KubeletSockets) -> None:
        self._sockets = sockets

    async def List(
        self, stream: Stream[resources_pb2.ListPodResourcesRequest, resources_pb2.ListPodResourcesResponse]
    ) -> None:
        await stream.recv_message()
        await stream.send_message(self._sockets.kubelet.pod_resources())

    async def GetAllocatableResources(
        self,
        stream: Stream[resources_pb2.AllocatableResourcesRequest, resources_pb2.AllocatableResourcesResponse],
    ) -> None:
        await stream.recv_message()
        answer = resources_pb2.AllocatableResourcesResponse()
        for resource, devices in self._sockets.allocatable.items():
            for device, numa in devices.items():
                part = answer.devices.add(resource_name=resource, device_ids=[device])
                part.topology.nodes.add(ID=numa)
        await stream.send_message(answer)

    async def Get(
        self, stream: Stream[resources_pb2.GetPodResourcesRequest, resources_pb2.GetPodResourcesResponse]
    ) -> None:
        raise GRPCError(Status.UNIMPLEMENTED, "not asked for")


class _Pods(PodsBase):
    def __init__(self, sockets: KubeletSockets) -> None:
        self._sockets = sockets

    async def ListPods(self, stream: Stream[pods_pb2.ListPodsRequest, pods_pb2.ListPodsResponse]) -> None:
        await stream.recv_message()
        if not self._sockets.kubelet.is_ready:
            raise GRPCError(Status.FAILED_PRECONDITION, "Kubelet is initializing")
        await stream.send_message(pods_pb2.ListPodsResponse(pods=self._sockets.kubelet.list_pods()))

    async def WatchPods(self, stream: Stream[pods_pb2.WatchPodsRequest, pods_pb2.WatchPodsEvent]) -> None:
        raise GRPCError(Status.UNIMPLEMENTED, "not asked for")

    async def GetPod(self, stream: Stream[pods_pb2.GetPodRequest, pods_pb2.GetPodResponse]) -> None:
        raise GRPCError(Status.UNIMPLEMENTED, "not asked for")


@asynccontextmanager
async def serving(
    kubelet: TestKubelet, directory: Path, *, shows_pods: bool = True
) -> AsyncIterator[KubeletSockets]:
    """Kubelet's sockets in `directory`, which should have a short name."""
    made = KubeletSockets(kubelet, directory, shows_pods=shows_pods)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()
