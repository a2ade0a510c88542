"""One connection to an API server: a socket, TLS or not, read and written without a transport in between.

Lives here: the handshake, bytes in and out, the end. Not here: where sockets come from (kube.network), what
the bytes mean (kube.transport.http1), and which request they answer (kube.transport.answered, a subclass).

asyncio's TLS transport costs more than the scheduler's own work on a pod: protocol layers, flow control and
two reads for each record. Here one recv takes all that the kernel has, OpenSSL decrypts it from memory, and
a write goes out at once, with a buffer only for the rare rest that a full socket does not take.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import NamedTuple, cast
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from gangsched.kube.access.credentials import Credentials
from gangsched.kube.network import KERNEL, Network
from gangsched.kube.transport.readers import Readers

# One TLS record holds at most this much.
_RECORD_BYTES = 16384
_HANDSHAKE_BYTES = 65536
# Read from the kernel in one piece; small enough that what is built from it fits the caches and reused
# memory.
_READ_BYTES = 64 * 1024


class Address(NamedTuple):
    """Where the API server is, and how to verify it."""

    host: str
    port: int
    ssl_context: ssl.SSLContext | None
    server_hostname: str | None
    network: Network = KERNEL


def address_of(credentials: Credentials) -> Address:
    """The address for a connection opened now; renewed certificates make a new TLS context."""
    parts = urlsplit(credentials.server)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    name = credentials.server_hostname or host
    return Address(host, port, credentials.ssl_context, name, credentials.network)


# Buffers for bytes in transit, shared by all connections of a loop: they are empty when a turn of the loop is
# over. One set per connection would add 8 MiB to a scheduler's start, and a page fault for each page on first
# use.
class _Buffers(NamedTuple):
    read: memoryview
    plain: memoryview


_buffers: WeakKeyDictionary[asyncio.AbstractEventLoop, _Buffers] = WeakKeyDictionary()


def _buffers_of(loop: asyncio.AbstractEventLoop) -> _Buffers:
    found = _buffers.get(loop)
    if found is None:
        # Newly read bytes may complete a record that came in part.
        sizes = (_READ_BYTES, _READ_BYTES + _RECORD_BYTES)
        found = _buffers[loop] = _Buffers(*(memoryview(bytearray(size)) for size in sizes))
    return found


class Connection:
    """Subclasses override `received` and `lost`.

    After `close()` neither is called any more. `lost` is never called from within `write`.
    """

    __slots__ = (
        "_buffer",
        "_incoming",
        "_is_reading",
        "_loop",
        "_outgoing",
        "_plain",
        "_readers",
        "_sock",
        "_tls",
        "_unsent",
        "context",
        "is_at_end",
        "is_open",
    )

    def __init__(self, *, readers: Readers | None = None) -> None:
        self.is_open = False
        self.is_at_end = False
        """The server closed it properly; over TLS this needs a close_notify, as a cut looks the same."""
        self.context: ssl.SSLContext | None = None
        """The context it was opened with; if the credentials have another one, its certificates are old."""
        self._readers = readers
        self._is_reading = False
        self._unsent = b""
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self._sock: socket.socket
        self._loop: asyncio.AbstractEventLoop
        self._buffer: memoryview
        self._plain: memoryview

    def received(self, data: bytes) -> None:
        """At least one byte has arrived."""
        raise NotImplementedError

    def lost(self, why: str) -> None:
        """The connection ended, not through our own `close()`."""
        raise NotImplementedError

    async def open(self, address: Address) -> None:
        """Connect and shake hands. Raises: OSError (also TimeoutError and ssl.SSLError)."""
        self._loop = asyncio.get_running_loop()
        self._buffer, self._plain = _buffers_of(self._loop)
        self.context = address.ssl_context
        self._sock = sock = await address.network.connect(address.host, address.port)
        try:
            if address.ssl_context is not None:
                self._tls = address.ssl_context.wrap_bio(
                    self._incoming, self._outgoing, server_hostname=address.server_hostname
                )
                await self._shake_hands(self._tls)
            self.is_open = True
            self.resume()
        except BaseException:
            self.is_open = False
            sock.close()
            raise

    def adopt(self, other: Connection) -> None:
        """Take over the socket of an idle connection, which gives it up: saves a handshake, 2 ms of CPU."""
        other.pause()
        other.is_open = False
        self._loop, self._sock = other._loop, other._sock
        self._buffer, self._plain = other._buffer, other._plain
        self.context = other.context
        self._tls, self._incoming, self._outgoing = other._tls, other._incoming, other._outgoing
        self.is_open = True
        self.resume()

    async def _shake_hands(self, tls: ssl.SSLObject) -> None:
        while True:
            try:
                tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                done = False
            if self._outgoing.pending:
                await self._loop.sock_sendall(self._sock, self._outgoing.read())
            if done:
                return
            data = await self._loop.sock_recv(self._sock, _HANDSHAKE_BYTES)
            if not data:
                raise ConnectionResetError("closed by the server during the TLS handshake")
            self._incoming.write(data)

    @property
    def is_known_by_certificate(self) -> bool:
        """Whether TLS may identify us once per connection: then a new one may succeed after a 401."""
        return self.context is not None

    def close(self) -> None:
        """Give the connection up; a second call does nothing."""
        if not self.is_open:
            return
        self.is_open = False
        self.pause()
        if self._unsent:
            self._unsent = b""
            self._loop.remove_writer(self._sock)
        self._sock.close()

    # Reading

    def pause(self) -> None:
        """Stop reading; bytes stay in the kernel."""
        if self._is_reading:
            self._is_reading = False
            (self._readers or self._loop).remove_reader(self._sock)

    def resume(self) -> None:
        """Read again as soon as bytes arrive."""
        if self.is_open and not self._is_reading:
            self._is_reading = True
            (self._readers or self._loop).add_reader(self._sock, self.read_now)

    def read_now(self) -> None:
        """Read everything the kernel has."""
        if not self.is_open:
            return
        parts: list[bytes] = []
        why = ""
        try:
            if self._receive_plain(parts) if self._tls is None else self._receive_tls(self._tls, parts):
                why = "closed by the server"
        except OSError as error:
            why = str(error) or type(error).__name__
        for part in parts:
            if self.is_open:
                self.received(part)
        if why:
            self._end(why)

    def _receive_plain(self, parts: list[bytes]) -> bool:
        """Read a plain socket until it has no more; true at its end."""
        buffer = self._buffer
        while True:
            try:
                n_bytes = self._sock.recv_into(buffer)
            except (BlockingIOError, InterruptedError):
                return False
            if not n_bytes:
                self.is_at_end = True
                return True
            parts.append(bytes(buffer[:n_bytes]))
            if n_bytes < len(buffer):
                return False

    def _receive_tls(self, tls: ssl.SSLObject, parts: list[bytes]) -> bool:
        """The same through TLS; an incomplete record stays in OpenSSL's memory."""
        incoming, buffer = self._incoming, self._buffer
        while True:
            try:
                n_bytes = self._sock.recv_into(buffer)
            except (BlockingIOError, InterruptedError):
                return False
            if not n_bytes:
                return True
            incoming.write(buffer[:n_bytes])
            if self._decrypt(tls, parts):
                self.is_at_end = True
                return True
            if self._outgoing.pending:
                self._send(self._outgoing.read())  # TLS's own answer to a key update
            if n_bytes < len(buffer):
                return False

    def _decrypt(self, tls: ssl.SSLObject, parts: list[bytes]) -> bool:
        """Decrypt all complete records, as one part if they fit; true at the end of the stream."""
        plain, n_bytes, is_over = self._plain, 0, False
        # OpenSSL returns a record in one piece, so with nothing pending another read would find nothing.
        while self._incoming.pending:
            if n_bytes > len(plain) - _RECORD_BYTES:
                parts.append(bytes(plain[:n_bytes]))
                n_bytes = 0
            try:
                n_read = cast(int, tls.read(_RECORD_BYTES, plain[n_bytes:]))  # bytes without a buffer
            except ssl.SSLWantReadError:
                break
            if not n_read:
                is_over = True
                break
            n_bytes += n_read
        if n_bytes:
            parts.append(bytes(plain[:n_bytes]))
        return is_over

    # Writing

    def write(self, data: bytes) -> None:
        """Send now what the socket takes, the rest as it takes more."""
        if not self.is_open:
            return
        try:
            if self._tls is not None:
                self._tls.write(data)
                data = self._outgoing.read()
            self._send(data)
        except OSError as error:
            self._loop.call_soon(self._end, str(error) or type(error).__name__)

    def _send(self, data: bytes) -> None:
        if self._unsent:
            self._unsent += data
            return
        try:
            n_bytes = self._sock.send(data)
        except (BlockingIOError, InterruptedError):
            n_bytes = 0
        if n_bytes < len(data):
            self._unsent = data[n_bytes:]
            self._loop.add_writer(self._sock, self._send_rest)

    def _send_rest(self) -> None:
        data, self._unsent = self._unsent, b""
        self._loop.remove_writer(self._sock)
        try:
            self._send(data)
        except OSError as error:
            self._end(str(error) or type(error).__name__)

    def _end(self, why: str) -> None:
        if self.is_open:
            self.close()
            self.lost(why)
