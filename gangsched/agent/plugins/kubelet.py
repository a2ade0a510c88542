"""The agent's client of kubelet: PodResources, the Pods API, and the registration of device plugins.

Lives here: the sockets on our side as a client, and the meaning of failures. Not here: the meaning of answers
(`plan`), our own sockets (`device_plugin`).

Of the Pods API (KEP-4188) only ListPods is used, at the moment when kubelet calls us. kubelet puts a pod into
its list before admitting it, but sends it to a watch only once the pod has a status, which is after admission
(kubernetes pkg/kubelet/kubelet.go HandlePodAdditions, pkg/kubelet/apis/pods/server.go, v1.37.1). Until all
its sources are ready, it rejects the call; then the API server's list is used.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog
from grpclib.client import Channel
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError

from gangsched.agent.channels import BoundedChannel
from gangsched.agent.kubelet_api import deviceplugin_pb2 as plugin_pb2
from gangsched.agent.kubelet_api import podresources_pb2, pods_pb2
from gangsched.agent.kubelet_api.deviceplugin_grpc import RegistrationStub
from gangsched.agent.kubelet_api.podresources_grpc import PodResourcesListerStub
from gangsched.agent.kubelet_api.pods_grpc import PodsStub
from gangsched.agent.plugins.messages import given_by_kubelet, pods_of_kubelet
from gangsched.agent.plugins.plan import Given, PlannedPod
from gangsched.agent.plugins.settings import KubeletDocument
from gangsched.errors import GangschedError, ParseError
from gangsched.model.text.printable import one_line

_log = structlog.get_logger(__name__)
Answer = TypeVar("Answer")
Identity = tuple[int, int, int]

# All on this machine; kubelet answers in milliseconds or is in trouble.
CALL_S = 3.0
VERSION = "v1beta1"
# Limit on the quoted part of an error: kubelet writes the text, which goes into a log line and an Event.
_MAX_QUOTED = 400


class KubeletError(GangschedError):
    """kubelet did not answer, or its answer is unusable."""


class Kubelet:
    """One node's kubelet. Channels are opened on demand, and again after a failure."""

    def __init__(self, paths: KubeletDocument) -> None:
        self._paths = paths
        self._channels: dict[str, tuple[Identity | None, Channel]] = {}
        self._unread = ""

    def close(self) -> None:
        for _, channel in self._channels.values():
            channel.close()
        self._channels.clear()

    async def pods(self) -> tuple[PlannedPod, ...] | None:
        """Returns the pods that kubelet has now; None if it does not list them (yet), or if one is
        unreadable: the API server's list has it too, so no pod loses its devices.
        """
        path = self._paths.pods_api
        if not path:
            return None
        try:
            answer = await self._call(path, lambda on: PodsStub(on).ListPods(pods_pb2.ListPodsRequest()))
            found = pods_of_kubelet(answer.pods)
        except KubeletError:
            return None
        except ParseError as error:
            self._say_unread(_quoted(str(error)))
            return None
        self._say_unread("")
        return found

    def _say_unread(self, why: str) -> None:
        """Log once, until all pods can be read again."""
        if why and not self._unread:
            _log.warning("kubelet's own list of pods is not used, but the API server's", why=why)
        self._unread = why

    async def given(self) -> Given:
        """Returns the devices that its pods have. Raises: KubeletError."""
        request = podresources_pb2.ListPodResourcesRequest()
        return given_by_kubelet(
            await self._call(self._paths.pod_resources, lambda on: PodResourcesListerStub(on).List(request))
        )

    async def allocatable(self) -> podresources_pb2.AllocatableResourcesResponse:
        """Returns the healthy devices that all device plugins list. Raises: KubeletError."""
        request = podresources_pb2.AllocatableResourcesRequest()
        return await self._call(
            self._paths.pod_resources,
            lambda on: PodResourcesListerStub(on).GetAllocatableResources(request),
        )

    async def register(self, resource: str, endpoint: str, options: plugin_pb2.DevicePluginOptions) -> None:
        """Register the plugin of `resource`, which listens at `endpoint`. Raises: KubeletError."""
        request = plugin_pb2.RegisterRequest(
            version=VERSION, endpoint=endpoint, resource_name=resource, options=options
        )
        await self._call(self._paths.registration_socket, lambda on: RegistrationStub(on).Register(request))

    async def _call(self, path: str, call: Callable[[Channel], Awaitable[Answer]]) -> Answer:
        channel = self._channel(path)
        try:
            async with asyncio.timeout(CALL_S):
                return await call(channel)
        except GRPCError as error:
            # The connection works; kubelet rejected the call.
            raise KubeletError(f"{path}: {error.status.name}: {_quoted(error.message or '')}") from None
        except (OSError, ProtocolError, StreamTerminatedError) as error:  # TimeoutError is an OSError
            self._forget(path, channel)
            what = _quoted(str(error)) or f"no answer within {CALL_S:g} s"
            raise KubeletError(f"{path}: {what}") from None
        except Exception as error:
            # For malformed answers grpclib, h2, hpack and protobuf raise errors without a common class: a
            # message that is invalid, cut short or compressed, a header that is missing or not base64.
            self._forget(path, channel)
            what = _quoted(str(error)) or type(error).__name__
            raise KubeletError(f"{path}: the answer cannot be read: {what}") from None

    def _channel(self, path: str) -> Channel:
        """Returns a channel to the current socket: a former kubelet may still hold its own one open."""
        identity = identity_of(path)
        before, channel = self._channels.get(path, (None, None))
        if channel is None or before != identity:
            if channel is not None:
                channel.close()
            channel = BoundedChannel(path=path)
            self._channels[path] = identity, channel
        return channel

    def _forget(self, path: str, channel: Channel) -> None:
        if self._channels.get(path, (None, None))[1] is channel:
            del self._channels[path]
        channel.close()


def identity_of(path: str) -> Identity | None:
    """Returns the identity of the socket that has this name now; None: there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_ctime_ns)


def _quoted(text: str) -> str:
    return one_line(text[:_MAX_QUOTED])
