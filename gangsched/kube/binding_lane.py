"""The hot path: one POST a pod over warm connections of our own, as cheap as Python's asyncio allows.

Lives here: connections, sending, and what each kind of answer means for a bind. Not here: whether to bind
again after an unknown outcome (the core, by a GET). Called by kube.dispatcher only. A general client costs
about 200 us of CPU a request, which would be most of what we spend on a pod; here headers are prebuilt,
answers are read by kube.http1, and nothing is allocated per request but the request.

| the request | event |
|---|---|
| taken back while it waited | BindCancelled |
| 2xx | BindSucceeded |
| 429 | none: the lane pauses as long as asked, and sends it again |
| no connection, or lost before a byte was sent | none: waits, sent again after a backoff |
| 401 | none the first time: credentials are renewed and it is sent again |
| cut, timeout or nonsense after bytes were sent; 409; 5xx | BindUnknown |
| any other status | BindFailed |

A keep-alive connection that the server closed just as we wrote to it is "cut": the bytes may have arrived.
HTTP proxies are not supported: the API server is reached directly, or by a transparent one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from random import Random
from urllib.parse import urlsplit

import anyio
import structlog
from anyio.abc import TaskGroup

from gangsched.errors import ApiError
from gangsched.kube.backoff import Backoff
from gangsched.kube.connection import Connection, address_of
from gangsched.kube.credentials import Credentials
from gangsched.kube.http1 import USER_AGENT, Answer, ProtocolError, segment
from gangsched.kube.readers import Readers
from gangsched.kube.status import api_error
from gangsched.kube.tally import SILENCE
from gangsched.kube.writes import binding_body
from gangsched.model.effects import BindPod
from gangsched.model.events import BindCancelled, BindFailed, BindSucceeded, BindUnknown, Event

_log = structlog.get_logger(__name__)

CONNECT_TIMEOUT_S = 10.0
CREDENTIALS_CHECK_S = 5.0


def always() -> bool:
    """Nobody has to be asked."""
    return True


class _Entry:
    """A bind on its way through the lane."""

    __slots__ = ("authorization", "bind", "cancelled", "deadline_s", "renewed")

    def __init__(self, bind: BindPod) -> None:
        self.bind = bind
        self.cancelled = False
        self.renewed = False
        self.authorization = ""
        self.deadline_s = 0.0


class _Connection(Connection):
    """One connection, at most one request at a time."""

    __slots__ = ("_answer", "_lane", "entry")

    def __init__(self, lane: BindingLane) -> None:
        super().__init__(readers=lane._readers)
        self._lane = lane
        self._answer = Answer()
        self.entry: _Entry | None = None

    def send(self, entry: _Entry, request: bytes) -> None:
        """Write the request; from here on its outcome is the server's word or unknown."""
        self.entry = entry
        self._answer = Answer()
        self.write(request)

    def received(self, data: bytes) -> None:
        if self.entry is None:
            # An answer to nothing (Go's 408 on an idle connection): the connection has had its day.
            self.close()
            self.lost("an answer to nothing")
            return
        answer = self._answer
        try:
            answer.feed(data)
        except ProtocolError as error:
            self.close()
            self._lane._lost(self, f"the answer makes no sense: {error}")
            return
        if answer.whole:
            entry, self.entry = self.entry, None
            if not answer.keep_alive:
                self.close()
            self._lane._answered(self, entry, answer)

    def lost(self, why: str) -> None:
        self._lane._lost(self, f"connection lost: {why}")


class BindingLane:
    """FIFO of binds over `size` connections; `run()` must be running for anything to be sent.

    Every submitted bind is answered by exactly one event to `emit_nowait`, as the table says.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        emit_nowait: Callable[[Event], None],
        rng: Random,
        size: int = 16,
        timeout_s: float = 10.0,
        backoff_s: tuple[float, float] = (0.25, 10.0),
        may_send: Callable[[], bool] = always,
    ) -> None:
        """`may_send` is asked right before each bind is written: a process may be stopped between any two."""
        self._credentials = credentials
        self._emit = emit_nowait
        self._may_send = may_send
        self._size = size
        self._timeout_s = timeout_s
        self._backoff = Backoff(rng, first_s=backoff_s[0], max_s=backoff_s[1])
        self._waiting: deque[_Entry] = deque()
        self._readers = Readers()
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()
        self._n_connecting = 0
        self._n_asked = 0
        self._paused_until_s = 0.0
        self._renewing = False
        self._said = ""
        self._group: TaskGroup | None = None
        self._address = address_of(credentials)
        self._prefix = b""
        self._suffix = b""
        self._authorization: str | None = None
        self.n_sent = 0
        self.n_unknown = 0
        self.n_throttled = 0

    @property
    def n_waiting(self) -> int:
        """Binds of which no byte was sent."""
        return len(self._waiting)

    @property
    def n_in_flight(self) -> int:
        """Binds that were sent and not answered."""
        return len(self._busy)

    @property
    def is_busy(self) -> bool:
        """What can wait should: while gang after gang is bound the lane may be empty for moments only."""
        return bool(self._waiting) or 4 * len(self._busy) > self._size

    def submit(self, bind: BindPod) -> None:
        """Queue a bind; sent at once if a connection is free."""
        self._waiting.append(_Entry(bind))
        self._pump()

    def cancel(self, cause_id: str) -> None:
        """Take back what has not been sent for this cause, and keep what is thrown back from being sent."""
        for connection in self._busy:
            if connection.entry is not None and connection.entry.bind.cause_id == cause_id:
                connection.entry.cancelled = True
        if any(entry.bind.cause_id == cause_id for entry in self._waiting):
            entries, self._waiting = self._waiting, deque()
            for entry in entries:
                if entry.bind.cause_id == cause_id:
                    self._emit(BindCancelled(entry.bind.uid, entry.bind.attempt))
                else:
                    self._waiting.append(entry)

    def cancel_all(self) -> None:
        """Take back everything that has not been sent."""
        for connection in self._busy:
            if connection.entry is not None:
                connection.entry.cancelled = True
        entries, self._waiting = self._waiting, deque()
        for entry in entries:
            self._emit(BindCancelled(entry.bind.uid, entry.bind.attempt))

    def warm(self) -> None:
        """Open all connections now, so that the first gang does not wait for handshakes."""
        if self._group is None:
            self._n_asked = self._size
        else:
            self._connect(self._size)

    async def run(self) -> None:
        """Keep the lane going until cancelled; then what is in flight is answered BindUnknown."""
        try:
            async with anyio.create_task_group() as group:
                self._group = group
                await self._credentials.headers()
                self._connect(self._n_asked)
                self._pump()
                group.start_soon(self._sweep)
                group.start_soon(self._keep_credentials)
        finally:
            self._group = None
            for connection in [*self._idle, *self._busy]:
                connection.close()
                self._lost(connection, "the scheduler is stopping")
            self._readers.close()

    # Sending

    def _pump(self) -> None:
        """Send as much as may be sent now."""
        if not self._waiting or self._group is None or self._renewing:
            return
        loop = asyncio.get_running_loop()
        if loop.time() < self._paused_until_s:
            return  # _resume() is on its way
        while self._waiting and self._idle:
            connection = self._idle.pop()
            if not connection.is_open:
                continue
            if not self._may_send():
                self._idle.append(connection)
                return
            entry = self._waiting.popleft()
            entry.deadline_s = loop.time() + self._timeout_s
            self._busy.add(connection)
            self.n_sent += 1
            connection.send(entry, self._request(entry))
        if self._waiting:
            # While there is trouble one connection asks for all: no storm when the server comes back.
            self._connect(1 if self._said else len(self._waiting))

    def _request(self, entry: _Entry) -> bytes:
        if self._authorization is not self._credentials.authorization:
            self._build_heads()
        entry.authorization = self._credentials.authorization
        bind = entry.bind
        body = binding_body(bind)
        path = f"{segment(bind.namespace)}/pods/{segment(bind.name)}".encode()
        return b"%b%b%b%d\r\n\r\n%b" % (self._prefix, path, self._suffix, len(body), body)

    def _build_heads(self) -> None:
        self._authorization = self._credentials.authorization
        parts = urlsplit(self._credentials.server)
        self._prefix = f"POST {parts.path}/api/v1/namespaces/".encode()
        lines = [
            "/binding HTTP/1.1",
            f"Host: {parts.netloc}",
            f"User-Agent: {USER_AGENT}",
            "Accept: application/json",
            "Content-Type: application/json",
        ]
        if self._authorization:
            lines.append(f"Authorization: {self._authorization}")
        self._suffix = "\r\n".join([*lines, "Content-Length: "]).encode("latin-1")

    # Connections

    def _connect(self, n_wanted: int) -> None:
        """Open connections until `n_wanted` are idle or on their way, `size` at most in all."""
        if self._group is None:
            return
        room = self._size - len(self._busy) - len(self._idle) - self._n_connecting
        for _ in range(min(room, n_wanted - len(self._idle) - self._n_connecting)):
            self._n_connecting += 1
            self._group.start_soon(self._open)

    async def _open(self) -> None:
        connection = _Connection(self)
        try:
            with anyio.fail_after(CONNECT_TIMEOUT_S):
                await connection.open(self._address)
        except OSError as error:  # TimeoutError and SSLError are OSErrors
            self._pause(None, f"no connection to the API server: {str(error) or 'no answer in time'}")
        finally:
            self._n_connecting -= 1
        if connection.is_open:
            self._idle.append(connection)
        self._pump()

    def _lost(self, connection: _Connection, why: str) -> None:
        if connection in self._idle:
            self._idle.remove(connection)
        self._busy.discard(connection)
        entry, connection.entry = connection.entry, None
        if entry is not None:
            self._credentials.answers.count("POST", SILENCE)
            self._unknown(entry.bind, why)
        self._pump()

    # Answers

    def _answered(self, connection: _Connection, entry: _Entry, answer: Answer) -> None:
        self._busy.discard(connection)
        if connection.is_open:
            self._idle.append(connection)
        self._credentials.answers.count("POST", answer.status)
        if 200 <= answer.status < 300:
            if self._said:
                self._recovered()
            self._emit(BindSucceeded(entry.bind.uid, entry.bind.attempt))
        else:
            self._refused(entry, api_error(answer.status, answer.retry_after, answer.body))
        self._pump()

    def _refused(self, entry: _Entry, error: ApiError) -> None:
        bind = entry.bind
        code = error.code
        if code == 429:
            self.n_throttled += 1
            self._pause(error.retry_after_s, f"the API server throttles binds: {error}")
            self._again(entry)
        elif code == 401 and not entry.renewed and self._group is not None:
            entry.renewed = True
            self._again(entry)
            if not self._renewing:
                self._renewing = True
                self._group.start_soon(self._renew, entry.authorization)
        elif code == 409 or code >= 500:
            if code >= 500:
                self._pause(error.retry_after_s, f"the API server fails: {error}")
            self._unknown(bind, str(error))
        else:
            self._emit(BindFailed(bind.uid, bind.attempt, code, error.reason, error.message))

    def _again(self, entry: _Entry) -> None:
        if entry.cancelled:
            self._emit(BindCancelled(entry.bind.uid, entry.bind.attempt))
        else:
            self._waiting.appendleft(entry)

    def _unknown(self, bind: BindPod, why: str) -> None:
        self.n_unknown += 1
        self._emit(BindUnknown(bind.uid, bind.attempt, why))

    def _pause(self, retry_after_s: float | None, why: str) -> None:
        """Send nothing for a while. Answers that come during a pause belong to the same trouble."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._paused_until_s:
            return
        wait_s = self._backoff.next_s(retry_after_s)
        self._paused_until_s = loop.time() + wait_s
        loop.call_later(wait_s + 0.001, self._pump)
        if not self._said:
            _log.warning("binds are paused", err=why, pause_s=round(wait_s, 2))
        self._said = why

    def _recovered(self) -> None:
        if asyncio.get_running_loop().time() >= self._paused_until_s:
            self._said = ""
            self._backoff.reset()
            _log.info("binds are going out again")

    # Housekeeping

    async def _renew(self, refused: str) -> None:
        try:
            await self._credentials.refresh(refused=refused)
        finally:
            self._renewing = False
        self._pump()

    async def _keep_credentials(self) -> None:
        while True:
            await anyio.sleep(CREDENTIALS_CHECK_S)
            await self._credentials.headers()

    async def _sweep(self) -> None:
        """One timer for all requests: a timer each would cost more than reading the answer."""
        loop = asyncio.get_running_loop()
        while True:
            await anyio.sleep(min(1.0, self._timeout_s / 4))
            now_s = loop.time()
            for connection in list(self._busy):
                entry = connection.entry
                if entry is not None and entry.deadline_s <= now_s:
                    connection.close()
                    self._lost(connection, f"no answer in {self._timeout_s:g} s")
