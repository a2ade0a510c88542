"""gRPC on sockets of this machine, with limits on the length of a message and on the number of connections.

grpclib reads any length that a peer announces, up to 4 GiB, and has no setting for it. The agent's memory is
limited, and neither kubelet nor a stranger on the socket must exhaust it. The length is checked where the
announced bytes would be read. Used by `agent.plugins.kubelet` (as client) and `agent.plugins.device_plugin`
(as server).
"""

from __future__ import annotations

from asyncio import BaseTransport
from collections.abc import Collection
from typing import TYPE_CHECKING

from grpclib.client import Channel
from grpclib.exceptions import ProtocolError
from grpclib.protocol import Connection, H2Protocol, Stream
from grpclib.server import Server
from grpclib.utils import Wrapper

if TYPE_CHECKING:
    from grpclib._typing import IServable

# kubelet's own clients accept this much of PodResources; gRPC's usual limit is a quarter of it.
MAX_MESSAGE_BYTES = 16 * 2**20
# kubelet has one, and a second one while it restarts. Each is a file descriptor, and a container may have no
# more than 1,024.
MAX_CONNECTIONS = 128


class _Stream(Stream):
    async def recv_data(self, size: int) -> bytes:
        if size > MAX_MESSAGE_BYTES:
            raise ProtocolError(f"a message of {size} bytes, at most {MAX_MESSAGE_BYTES}")
        return await super().recv_data(size)


class _Connection(Connection):
    def create_stream(self, *, stream_id: int | None = None, wrapper: Wrapper | None = None) -> Stream:
        return _Stream(self, self._connection, self._transport, stream_id=stream_id, wrapper=wrapper)


class _Protocol(H2Protocol):
    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)
        self.connection.__class__ = _Connection  # grpclib makes its own and has no parameter for the class

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except Exception as error:
            # grpclib catches h2's ProtocolError only; asyncio would log the rest with a traceback.
            self.processor.close(f"what comes is not gRPC: {type(error).__name__}")


class BoundedChannel(Channel):
    """A client's connection."""

    def _protocol_factory(self) -> H2Protocol:
        made = super()._protocol_factory()
        return _Protocol(made.handler, made.config, made.h2_config)


class _Accepted(_Protocol):
    """A server's connection; closed at once if there are too many.

    It closes the newest, not the oldest: the oldest is kubelet's, which takes the plugin for dead when it
    ends.
    """

    open: set[_Accepted]

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)
        self.open.add(self)
        if len(self.open) > MAX_CONNECTIONS:
            transport.close()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.open.discard(self)
        super().connection_lost(exc)


class BoundedServer(Server):
    """A server's socket."""

    def __init__(self, handlers: Collection[IServable]) -> None:
        super().__init__(handlers)
        self._open: set[_Accepted] = set()

    async def end(self) -> None:
        """Close the server, unless it could not start."""
        try:
            self.close()
        except RuntimeError:
            return
        await self.wait_closed()

    def _protocol_factory(self) -> H2Protocol:
        made = super()._protocol_factory()
        accepted = _Accepted(made.handler, made.config, made.h2_config)
        accepted.open = self._open
        return accepted
