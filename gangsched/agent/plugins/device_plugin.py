"""One resource's device plugin: answers kubelet's calls from the plan, on its own socket.

Lives here: the calls (messages in, messages out: `Plugin`), and their gRPC server with its registration
(`PluginServer`). Not here: choosing the set (`hand_off`), what a container gets with it (`outfit`), knowledge
about the node (`agent.plugins.runner`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import anyio
import structlog
from google.protobuf.message import DecodeError
from grpclib.const import Status
from grpclib.exceptions import GRPCError, ProtocolError
from grpclib.server import Stream

from gangsched.agent.channels import BoundedServer
from gangsched.agent.kubelet_api import deviceplugin_pb2 as pb
from gangsched.agent.kubelet_api.deviceplugin_grpc import DevicePluginBase
from gangsched.agent.plugins.hand_off import Granted, Known, NotPlanned, Prefer, prefer, verify
from gangsched.agent.plugins.kubelet import Identity, Kubelet, KubeletError, identity_of
from gangsched.agent.plugins.outfit import outfit
from gangsched.agent.plugins.settings import PluginDocument
from gangsched.model.devices.annotations import Device

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")

_log = structlog.get_logger(__name__)

# kubelet admits no other pod meanwhile. The plan exists before kubelet calls, but the API server may notify
# us of it after kubelet, and we and kubelet see a swap of two pods' sets at different times.
PATIENCE_S = 5.0
_AGAIN_S = 0.1
# How soon a restarted kubelet is noticed: until then it rejects the pods it receives.
SOCKET_S = 0.1
# A kubelet that has not listened for this long has lost the connection and takes the plugin for dead.
UNHEARD_S = 5.0
# kubelet logs each registration that it rejects; while the same kubelet rejects, each retry is later.
_MAX_PAUSE_S = 5.0
# The largest number that kubelet's message can carry. A file or an annotation may have a larger one.
_MAX_NUMA = 2**63 - 1
_UNSAFE = re.compile(r"[^a-z0-9]+")


class Mismatch(NamedTuple):
    """A container that gets no devices, and the reason."""

    resource: str
    why: str


class NodeView(Protocol):
    """What is known about the node, queried on demand."""

    async def look(self, *, again: bool) -> Known:
        """Returns the current knowledge, refreshed with `again` or if it may be old. Raises: KubeletError."""
        ...

    async def news(self, timeout_s: float) -> None:
        """Wait until something has changed, or for `timeout_s`."""
        ...

    def granted(self) -> None:
        """Devices were granted to kubelet: cached knowledge is outdated."""
        ...

    def refused(self, mismatch: Mismatch) -> None: ...


class Plugin:
    """Answers calls for one resource: kubelet's messages in, ours out, no socket."""

    def __init__(
        self, settings: PluginDocument, view: NodeView, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.settings = settings
        self._view = view
        self._clock = clock
        self._devices: list[pb.Device] = []
        self._preferred: frozenset[str] = frozenset()
        self._changed = anyio.Event()

    @property
    def options(self) -> pb.DevicePluginOptions:
        is_planned = self.settings.hand_off == "device-plugin"
        return pb.DevicePluginOptions(get_preferred_allocation_available=is_planned)

    def show(self, devices: Iterable[Device]) -> None:
        """Set what ListAndWatch reports: the inventory's devices, with the inventory's health."""
        shown = [self._shown(device) for device in devices]
        if shown != self._devices:
            self._devices = shown
            self._changed.set()
            self._changed = anyio.Event()

    def listed(self) -> tuple[pb.ListAndWatchResponse, anyio.Event]:
        """The current report, and an event that is set when it is outdated."""
        return pb.ListAndWatchResponse(devices=self._devices), self._changed

    async def preferred(self, request: pb.PreferredAllocationRequest) -> pb.PreferredAllocationResponse:
        """Prefers nothing when no planned set is due: Allocate then rejects what kubelet takes."""
        response = pb.PreferredAllocationResponse()
        deadline_s = self._clock() + PATIENCE_S
        for asked in request.container_requests:
            ids = await self._prefer(asked, deadline_s)
            response.container_responses.add(deviceIDs=sorted(ids))
        return response

    async def allocate(self, request: pb.AllocateRequest) -> pb.AllocateResponse:
        """Raises: GRPCError, when it is not a planned set; the pod then fails at admission."""
        response = pb.AllocateResponse()
        deadline_s = self._clock() + PATIENCE_S
        for asked in request.container_requests:
            ids = frozenset(asked.devices_ids)
            if self.settings.hand_off == "device-plugin":
                await self._verify(ids, deadline_s)
            response.container_responses.append(outfit(self.settings, ids))
        self._view.granted()
        return response

    async def _prefer(
        self, asked: pb.ContainerPreferredAllocationRequest, deadline_s: float
    ) -> frozenset[str]:
        if self.settings.hand_off != "device-plugin":
            return frozenset()
        found = await self._settled(
            lambda known: prefer(
                self.settings.resource,
                asked.allocation_size,
                known,
                available=frozenset(asked.available_deviceIDs),
                must_include=frozenset(asked.must_include_deviceIDs),
            ),
            deadline_s,
            again=True,
        )
        self._preferred = found.ids if isinstance(found, Prefer) else frozenset()
        return self._preferred

    async def _verify(self, ids: frozenset[str], deadline_s: float) -> None:
        # The knowledge from when this set was preferred still holds: kubelet has been granted nothing since.
        found = await self._settled(
            lambda known: verify(self.settings.resource, ids, known, preferred=self._preferred),
            deadline_s,
            again=False,
        )
        if isinstance(found, NotPlanned):
            self._view.refused(Mismatch(self.settings.resource, found.why))
            raise GRPCError(Status.FAILED_PRECONDITION, f"gangsched: {found.why}")

    async def _settled(
        self, decide: Callable[[Known], Prefer | Granted | NotPlanned], deadline_s: float, *, again: bool
    ) -> Prefer | Granted | NotPlanned:
        """Returns the answer, decided again with newer knowledge until it is positive, final or late."""
        while True:
            try:
                found = decide(await self._view.look(again=again))
            except KubeletError as error:
                found = NotPlanned(f"what kubelet has given so far is not known: {error}")
            left_s = deadline_s - self._clock()
            if not isinstance(found, NotPlanned) or (again and (found.is_final or left_s <= 0)):
                return found
            if again:
                await self._view.news(min(_AGAIN_S, left_s))
            again = True

    def _shown(self, device: Device) -> pb.Device:
        shown = pb.Device(ID=device.id, health=device.health)
        if self.settings.tell_numa and 0 <= device.numa <= _MAX_NUMA:
            shown.topology.nodes.add(ID=device.numa)
        return shown


class _Face(DevicePluginBase):
    """gRPC's calls, passed to the plugin. n_listening: ListAndWatch calls that are open."""

    def __init__(self, plugin: Plugin) -> None:
        self._plugin = plugin
        self.n_listening = 0

    async def GetDevicePluginOptions(self, stream: Stream[pb.Empty, pb.DevicePluginOptions]) -> None:
        await _received(stream)
        await stream.send_message(self._plugin.options)

    async def ListAndWatch(self, stream: Stream[pb.Empty, pb.ListAndWatchResponse]) -> None:
        await _received(stream)
        self.n_listening += 1
        try:
            while True:
                response, changed = self._plugin.listed()
                await stream.send_message(response)
                await changed.wait()
        finally:
            self.n_listening -= 1

    async def GetPreferredAllocation(
        self, stream: Stream[pb.PreferredAllocationRequest, pb.PreferredAllocationResponse]
    ) -> None:
        await stream.send_message(await self._plugin.preferred(await _received(stream)))

    async def Allocate(self, stream: Stream[pb.AllocateRequest, pb.AllocateResponse]) -> None:
        await stream.send_message(await self._plugin.allocate(await _received(stream)))

    async def PreStartContainer(
        self, stream: Stream[pb.PreStartContainerRequest, pb.PreStartContainerResponse]
    ) -> None:
        # Our options do not request this call.
        await _received(stream)
        await stream.send_message(pb.PreStartContainerResponse())


async def _received(stream: Stream[Asked, Answer]) -> Asked:
    """Returns the call's one message. Raises: GRPCError; grpclib would log garbage with a traceback."""
    try:
        request = await stream.recv_message()
    except (DecodeError, ProtocolError, RecursionError, AssertionError, NotImplementedError) as error:
        why = f"the request cannot be read: {str(error) or type(error).__name__}"
        raise GRPCError(Status.INVALID_ARGUMENT, why) from None
    if request is None:
        raise GRPCError(Status.INVALID_ARGUMENT, "the call has no request")
    return request


class PluginServer:
    """The plugin's socket and registration; registers again if kubelet is replaced or stops listening."""

    def __init__(self, plugin: Plugin, kubelet: Kubelet, directory: str) -> None:
        self._plugin = plugin
        self._kubelet = kubelet
        self._directory = Path(directory)
        self.endpoint = endpoint_of(plugin.settings.resource)
        self.n_registrations = 0
        self._logged = ""
        self._seen: Identity | None = None
        self._own: Identity | None = None
        self._pause_s = SOCKET_S

    async def run(self) -> None:
        """Serve and register until cancelled; start over when kubelet has cleared its directory."""
        while True:
            face = _Face(self._plugin)
            server = BoundedServer([face])
            try:
                if await self._serve(server):
                    await self._until_kubelet_is_another(face)
            finally:
                with anyio.CancelScope(shield=True), anyio.move_on_after(2.0):
                    await server.end()
                self._take_away()
            await self._pause()

    async def _serve(self, server: BoundedServer) -> bool:
        resource = self._plugin.settings.resource
        path = self._directory / self.endpoint
        before, self._seen = self._seen, self._identity()
        if before != self._seen:
            self._pause_s = SOCKET_S
        if self._seen is None:
            self._say(f"{self._directory} has no socket of a kubelet; waiting for it")
            return False
        try:
            path.unlink(missing_ok=True)
            await server.start(path=str(path))
            self._own = identity_of(str(path))
            await self._kubelet.register(resource, self.endpoint, self._plugin.options)
        except (OSError, KubeletError) as error:
            self._say(f"cannot register with kubelet: {error}")
            if isinstance(error, KubeletError):
                self._pause_s = min(2 * self._pause_s, _MAX_PAUSE_S)
            return False
        self.n_registrations += 1
        self._logged = ""
        self._pause_s = SOCKET_S
        _log.info("registered with kubelet", resource=resource, endpoint=self.endpoint)
        return True

    async def _until_kubelet_is_another(self, face: _Face) -> None:
        """Wait until kubelet is replaced or has ended ListAndWatch: the plugin must register again."""
        path, resource = self._directory / self.endpoint, self._plugin.settings.resource
        unheard_s = 0.0
        while self._identity() == self._seen and path.exists():
            if unheard_s >= UNHEARD_S:
                if not await self._is_followed():
                    _log.warning("kubelet does not listen; registering again", resource=resource)
                    return
                # Each agent would take the name from the other, and kubelet would lose the plugin each time.
                self._say("another agent offers this node's devices; waiting until it has ended")
                unheard_s = 0.0
            await anyio.sleep(SOCKET_S)
            unheard_s = 0.0 if face.n_listening else unheard_s + SOCKET_S
        _log.info("kubelet was started anew, or the plugin's socket was taken away", resource=resource)

    async def _pause(self) -> None:
        """Wait until the next attempt; end early for a restarted kubelet."""
        paused_s = 0.0
        while paused_s < self._pause_s:
            await anyio.sleep(SOCKET_S)
            paused_s += SOCKET_S
            if self._identity() != self._seen:
                return

    async def _is_followed(self) -> bool:
        """Whether our socket's name now belongs to another live agent."""
        path = str(self._directory / self.endpoint)
        if identity_of(path) == self._own:
            return False
        with suppress(OSError), anyio.move_on_after(_AGAIN_S):
            async with await anyio.connect_unix(path):
                return True
        return False

    def _take_away(self) -> None:
        """Remove our socket, unless its name now belongs to another agent, as to a newer pod of ours."""
        path = self._directory / self.endpoint
        if self._own is not None and identity_of(str(path)) == self._own:
            # The right to write may have been removed; the next start reports that.
            with suppress(OSError):
                path.unlink()
        self._own = None

    def _identity(self) -> Identity | None:
        return identity_of(f"{self._directory}/kubelet.sock")

    def _say(self, why: str) -> None:
        if why != self._logged:
            self._logged = why
            _log.warning(why, resource=self._plugin.settings.resource)


def endpoint_of(resource: str) -> str:
    """The name of the plugin's socket; a socket's path has at most 107 bytes."""
    plain = _UNSAFE.sub("-", resource.lower())[:40]
    return f"gangsched-{plain}-{sha256(resource.encode()).hexdigest()[:8]}.sock"
