"""Requests over a few warm connections, without a task, a future or a timer for each.

Lives here: sending, deadlines, pauses, renewal after a 401. Not here: what waits, its order and what an
answer means (the subclasses in kube.effects.binding_lane and kube.effects.write_lanes), one connection
(kube.transport.lane_connection), the bytes of HTTP (kube.transport.http1). A general client costs about 200
us of CPU a request, which would be most of what we spend on a pod; here headers are prebuilt, and a success
that arrives in one piece is matched at once.

For each call that was sent, exactly one of these methods of the subclass is called; it may put the call back:

| what came | method |
|---|---|
| 2xx with the expected body (`_proves`) | `_done` |
| 401 | none the first time: credentials are renewed and it is sent again |
| any other status; 2xx with anything else | `_refused` |
| the connection was lost, silent for too long, or sent nonsense | `_silent`: the bytes may have arrived |

When no connection can be opened nothing is sent: calls keep their place, and the lane pauses.

A lane with a `depth` sends further requests on connections that have not answered yet, once each connection
has one. The server then has the next request as soon as it is done with one, instead of sleeping until we
have read its answer, and two requests sent together cost one write. The server works on at most one request
per connection at a time. RFC 9112 (9.3.2) asks for care with pipelining, since a lost connection leaves
several outcomes open: each of them ends in `_silent`. After that the lane sends one request at a time for a
while, since a proxy that cannot handle pipelining would fail in this way.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from random import Random
from typing import Generic

import anyio
from anyio.abc import TaskGroup

from gangsched.errors import ApiError
from gangsched.kube.access.credentials import Credentials
from gangsched.kube.reach import UNAUTHORIZED
from gangsched.kube.tally import SILENCE
from gangsched.kube.transport.backoff import Backoff
from gangsched.kube.transport.complaints import Complaints
from gangsched.kube.transport.connection import address_of
from gangsched.kube.transport.exchange import refusal
from gangsched.kube.transport.http1 import Frame, Verb
from gangsched.kube.transport.lane_connection import Call, ItemT, LaneConnection
from gangsched.kube.transport.readers import Readers

CONNECT_TIMEOUT_S = 10.0
# How long one request at a time is sent after a connection with several was lost.
ONE_EACH_S = 60.0
CREDENTIALS_CHECK_S = 5.0


def always() -> bool:
    """The default for `may_send`."""
    return True


class Lane(Generic[ItemT]):
    """At most `size` connections; `run()` must be running for anything to be sent."""

    name = "ask"
    method = "POST"

    def __init__(
        self,
        credentials: Credentials,
        *,
        rng: Random,
        size: int,
        depth: int = 1,
        timeout_s: float,
        backoff_s: tuple[float, float] = (0.25, 10.0),
        readers: Readers,
    ) -> None:
        """`depth`: requests on a connection; `timeout_s`: of each; `readers` serve several lanes."""
        self._credentials = credentials
        self._size = size
        self._depth = depth
        self._one_each_until_s = 0.0
        self._timeout_s = timeout_s
        self._backoff = Backoff(rng, first_s=backoff_s[0], max_s=backoff_s[1])
        self._complaints = Complaints()
        self._readers = readers
        self._frames: dict[Verb, Frame] = {}
        self._connections: list[LaneConnection[ItemT]] = []
        self._idle: list[LaneConnection[ItemT]] = []
        self._n_connecting = 0
        self._n_asked = 0
        self._paused_until_s = 0.0
        self._is_troubled = False
        self._is_renewing = False
        self._sweeper: asyncio.TimerHandle | None = None
        self._group: TaskGroup | None = None
        credentials.follow(self)
        self._loop: asyncio.AbstractEventLoop
        self.n_sent = 0
        self.n_in_flight = 0
        """Calls sent and not answered."""

    @property
    def n_unsent(self) -> int:
        """Calls waiting to be sent."""
        raise NotImplementedError

    def _next(self, now_s: float) -> Call[ItemT] | None:
        """The next call to send; None if nothing may be sent."""
        raise NotImplementedError

    def _put_back(self, call: Call[ItemT]) -> None:
        """Requeue it at the front."""
        raise NotImplementedError

    def _request(self, call: Call[ItemT]) -> tuple[Verb, str, bytes]:
        """The request for a call: verb, path and body."""
        raise NotImplementedError

    def _proves(self, call: Call[ItemT], body: bytes) -> bool:
        """Whether the body of a 2xx is what the API server would send; asked for each 2xx."""
        raise NotImplementedError

    def _done(self, call: Call[ItemT], body: bytes) -> None:
        raise NotImplementedError

    def _refused(self, call: Call[ItemT], error: ApiError) -> None:
        raise NotImplementedError

    def _silent(self, call: Call[ItemT], why: str) -> None:
        raise NotImplementedError

    def warm(self) -> None:
        """Open all connections now, so that the first calls do not wait for handshakes."""
        if self._group is None:
            self._n_asked = self._size
        else:
            self._connect(self._size)

    async def run(self) -> None:
        """Keep the lane going until cancelled; calls in flight then count as lost."""
        self._loop = asyncio.get_running_loop()
        try:
            await self._credentials.headers()
            async with anyio.create_task_group() as group:
                self._group = group
                self._connect(self._n_asked)
                self._pump()
                group.start_soon(self._keep_credentials)
        finally:
            self._group = None
            if self._sweeper is not None:
                self._sweeper.cancel()
            for connection in list(self._connections):
                connection.close()
                self.lost(connection, "the scheduler is stopping")

    # Sending

    def _pump(self) -> None:
        """Send as much as allowed now."""
        idle = self._idle
        if self._group is None or self._is_renewing or self.n_in_flight == self._size * self._depth:
            return
        now_s = time.monotonic()
        if now_s < self._paused_until_s:
            return  # a timer will call this
        depth = self._depth
        if self._is_troubled or len(self._connections) < self._size or now_s < self._one_each_until_s:
            depth = 1
        while idle:
            # One on each connection before a second on any.
            calls = self._take(depth if self.n_unsent >= depth * len(idle) else 1, now_s)
            if not calls:
                return
            self._send(idle.pop(), calls, now_s)
        if depth > 1:
            for connection in self._connections:
                if len(connection.calls) < depth and not connection.is_leaving:
                    calls = self._take(depth - len(connection.calls), now_s)
                    if not calls:
                        return
                    self._send(connection, calls, now_s)
        if len(self._connections) < self._size and self.n_unsent:
            # During an outage only one connection is tried: no storm when the server comes back.
            self._connect(1 if self._is_troubled else self.n_unsent)

    def _take(self, n_wanted: int, now_s: float) -> list[Call[ItemT]]:
        """Up to `n_wanted` calls that may be sent now."""
        calls: list[Call[ItemT]] = []
        while len(calls) < n_wanted and (call := self._next(now_s)) is not None:
            calls.append(call)
        return calls

    def _send(self, connection: LaneConnection[ItemT], calls: Sequence[Call[ItemT]], now_s: float) -> None:
        """Write the requests; from here on their outcome is the server's answer or unknown."""
        requests = []
        version = self._credentials.version
        for call in calls:
            verb, path, body = self._request(call)
            frame = self._frames.get(verb)
            if frame is None or frame.authorization is not self._credentials.authorization:
                frame = Frame(verb, self._credentials.server, authorization=self._credentials.authorization)
                self._frames[verb] = frame
            call.frame = frame
            call.version = version
            call.deadline_s = now_s + self._timeout_s
            call.is_behind = bool(connection.calls)
            connection.calls.append(call)
            requests.append(frame.request(path, body))
        self.n_sent += len(calls)
        self.n_in_flight += len(calls)
        self._readers.n_awaited += len(calls)
        connection.write(requests[0] if len(requests) == 1 else b"".join(requests))
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(self._sweep_s, self._sweep)

    @property
    def _sweep_s(self) -> float:
        return min(1.0, self._timeout_s / 4)

    def _sweep(self) -> None:
        """One timer for all requests: a timer for each would cost more than reading the answer."""
        now_s = time.monotonic()
        for connection in list(self._connections):
            if connection.calls and connection.calls[0].deadline_s <= now_s:
                connection.close()
                self.lost(connection, f"no answer in {self._timeout_s:g} s")
        self._sweeper = self._loop.call_later(self._sweep_s, self._sweep) if self.n_in_flight else None

    # Connections

    def _connect(self, n_wanted: int) -> None:
        """Open connections until `n_wanted` are idle or being opened, `size` at most in all."""
        if self._group is None:
            return
        room = self._size - len(self._connections) - self._n_connecting
        for _ in range(min(room, n_wanted - len(self._idle) - self._n_connecting)):
            self._n_connecting += 1
            self._group.start_soon(self._open)

    async def _open(self) -> None:
        connection = LaneConnection(self, self._readers)
        try:
            with anyio.fail_after(CONNECT_TIMEOUT_S):
                await connection.open(address_of(self._credentials))
        except OSError as error:  # TimeoutError and SSLError are OSErrors
            self._credentials.answers.count(self.method, SILENCE)
            self._pause(self._credentials.not_reached(error))
        finally:
            self._n_connecting -= 1
        if connection.is_open and connection.context is not self._credentials.ssl_context:
            connection.close()  # the certificates have changed meanwhile
        if connection.is_open:
            self._connections.append(connection)
            self._idle.append(connection)
        self._pump()

    def certificates_changed(self) -> None:
        """Close connections with old certificates: idle ones now, busy ones when they are answered."""
        for connection in self._connections:
            connection.is_leaving = True
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
            self._connections.remove(connection)
        if idle:
            self._connect(len(idle))

    def lost(self, connection: LaneConnection[ItemT], why: str) -> None:
        """The connection is closed, with or without calls on it."""
        if not connection.calls:
            self._idle.remove(connection)
        self._give_up(connection, why)
        self._pump()

    def _give_up(self, connection: LaneConnection[ItemT], why: str) -> None:
        """Close the connection: requests sent on it and not answered may have arrived."""
        self._connections.remove(connection)
        calls, connection.calls = connection.calls, deque()
        for call in calls:
            if call.is_behind:
                self._one_each_until_s = time.monotonic() + ONE_EACH_S
            self._landed(call)
            self._credentials.answers.count(call.frame.method, SILENCE)
            self._silent(call, why)

    # Answers

    def _landed(self, call: Call[ItemT]) -> None:
        """The call is no longer in flight; the caller reports its outcome next."""
        self.n_in_flight -= 1
        self._readers.n_awaited -= 1

    def answered(
        self,
        connection: LaneConnection[ItemT],
        call: Call[ItemT],
        status: int,
        body: bytes,
        retry_after: str | None = None,
    ) -> None:
        """One call of the connection was answered and taken off it."""
        self._landed(call)
        if connection.is_open and not connection.calls:
            if connection.is_leaving or (status == UNAUTHORIZED and connection.is_known_by_certificate):
                connection.close()
            else:
                self._idle.append(connection)
        self._credentials.answers.count(call.frame.method, status)
        if 200 <= status < 300 and self._proves(call, body):
            if self._is_troubled:
                self._recovered()
            self._done(call, body)
        elif status == UNAUTHORIZED and not call.is_renewed and self._group is not None:
            call.is_renewed = True
            self._put_back(call)
            if not self._is_renewing:
                self._is_renewing = True
                self._group.start_soon(self._renew, call.version)
        else:
            self._refused(call, refusal(self._credentials, status, retry_after, body))
        if not connection.is_open:
            self._give_up(connection, "the server closed the connection after an earlier answer")
        self._readers.then(self._pump)

    def _doubt(self, call: Call[ItemT], error: ApiError, about: str) -> None:
        """The answer is not from the API server or not about this object: count it, log now and then."""
        self._credentials.answers.doubt(call.frame.method)
        self._complaints.doubt(self.name, error, about=about)

    def _pause(self, error: ApiError) -> None:
        """Send nothing for a while. Answers during a pause belong to the same outage."""
        now_s = time.monotonic()
        if now_s < self._paused_until_s:
            return
        wait_s = self._backoff.next_s(error.retry_after_s)
        self._paused_until_s = now_s + wait_s
        self._loop.call_later(wait_s + 0.001, self._pump)
        self._complaints.say(self.name, error)
        self._is_troubled = True

    def _recovered(self) -> None:
        if time.monotonic() >= self._paused_until_s:
            self._is_troubled = False
            self._backoff.reset()

    # Credentials

    async def _renew(self, refused: int) -> None:
        try:
            await self._credentials.refresh(refused=refused)
        finally:
            self._is_renewing = False
        self._pump()

    async def _keep_credentials(self) -> None:
        while True:
            await anyio.sleep(CREDENTIALS_CHECK_S)
            await self._credentials.headers()
