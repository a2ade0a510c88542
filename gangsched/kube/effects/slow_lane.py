"""What the dispatcher's slower lanes share: queueing by key, giving way to binds, and retries.

Lives here: the order of sending, keeping only the latest item per key, handling doubtful answers. Not here:
what is sent and what a clear answer means (kube.effects.write_lanes), how requests are sent
(kube.transport.lane).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from random import Random
from typing import NotRequired, Protocol, TypedDict

from gangsched.errors import ApiError
from gangsched.kube.access.credentials import Credentials
from gangsched.kube.evidence import Target, is_doubtful, outline_of
from gangsched.kube.transport.lane import Lane, always
from gangsched.kube.transport.lane_connection import Call, ItemT
from gangsched.kube.transport.readers import Readers
from gangsched.model.events import Event

REQUEST_TIMEOUT_S = 30.0
YIELD_STEP_S = 0.1


class BusyLane(Protocol):
    """The lane that the slower ones give way to."""

    @property
    def is_busy(self) -> bool:
        """Whether more binds are under way than the last few of one small gang."""
        ...


class LaneOptions(TypedDict):
    """A slower lane's constructor options; SlowLane explains them."""

    rng: Random
    readers: Readers
    binds: BusyLane
    size: int
    limit: int
    timeout_s: NotRequired[float]
    may_send: NotRequired[Callable[[], bool]]


class SlowLane(Lane[ItemT]):
    """A bounded FIFO by key that gives way to binds.

    While a request for a key is in flight, the next one for that key waits for the answer: over another
    connection it might arrive first, and the older write would win.
    """

    yield_s = 0.0

    def __init__(
        self,
        credentials: Credentials,
        emit_nowait: Callable[[Event], None],
        *,
        rng: Random,
        readers: Readers,
        binds: BusyLane,
        size: int,
        limit: int,
        timeout_s: float = REQUEST_TIMEOUT_S,
        may_send: Callable[[], bool] = always,
    ) -> None:
        """`may_send` is called before each write; once it is false, this lane sends nothing more and ends."""
        super().__init__(credentials, rng=rng, readers=readers, size=size, timeout_s=timeout_s)
        self._emit = emit_nowait
        self._binds = binds
        self._limit = limit
        self._may_send = may_send
        self._waiting: OrderedDict[Hashable, Call[ItemT]] = OrderedDict()
        self._followers: dict[Hashable, Call[ItemT] | None] = {}  # by the call in flight
        self._is_looked_after = False
        self._yields_until_s = 0.0
        self.n_dropped = 0
        self.hurry = False

    @property
    def n_unsent(self) -> int:
        return len(self._waiting)

    @property
    def n_waiting(self) -> int:
        """Waiting or being sent."""
        n_followers = sum(call is not None for call in self._followers.values())
        return len(self._waiting) + n_followers + self.n_in_flight

    def submit(self, item: ItemT) -> None:
        """Queue `item`, replacing an older one of its key; over the limit the oldest is dropped."""
        key = self._key(item)
        self._waiting[key] = Call(item, key)
        if len(self._waiting) > self._limit:
            self._waiting.popitem(last=False)
            self.n_dropped += 1
        self._pump()

    def _key(self, item: ItemT) -> Hashable:
        return item.uid

    def _look_again(self) -> None:
        self._is_looked_after = False
        self._pump()

    def _next(self, now_s: float) -> Call[ItemT] | None:
        while self._waiting:
            if self._gives_way(now_s):
                return None
            if not self._may_send():
                self._waiting.clear()
                return None
            key, call = self._waiting.popitem(last=False)
            if key not in self._followers:
                self._followers[key] = None
                return call
            self._followers[key] = call
        self._yields_until_s = 0.0
        return None

    def _landed(self, call: Call[ItemT]) -> None:
        super()._landed(call)
        follower = self._followers.pop(call.key, None)
        if follower is not None:
            self._waiting.setdefault(call.key, follower)

    def _gives_way(self, now_s: float) -> bool:
        """Whether binds go first; not for ever, since users wait for statuses too."""
        if self.hurry or not self.yield_s or not self._binds.is_busy:
            self._yields_until_s = 0.0
            return False
        if not self._yields_until_s:
            self._yields_until_s = now_s + self.yield_s
        elif now_s >= self._yields_until_s:
            self._yields_until_s = now_s + self.yield_s / self._size
            return False
        if not self._is_looked_after:
            self._is_looked_after = True
            self._loop.call_later(YIELD_STEP_S, self._look_again)
        return True

    def _put_back(self, call: Call[ItemT]) -> None:
        newer = self._waiting.setdefault(call.key, call)
        # Steps done for the older item count for the newer one, which might never get to the rest otherwise.
        newer.n_done = call.n_done
        self._waiting.move_to_end(call.key, last=False)

    def _done(self, call: Call[ItemT], body: bytes) -> None:
        pass

    def _target(self, call: Call[ItemT]) -> Target:
        """The object that the request is about."""
        raise NotImplementedError

    def _proves(self, call: Call[ItemT], body: bytes) -> bool:
        return outline_of(body, self._target(call)) is not None

    def _refused(self, call: Call[ItemT], error: ApiError) -> None:
        call.n_tries += 1
        target = self._target(call)
        if is_doubtful(error, target):
            self._doubt(call, error, f"{target.namespace}/{target.name}")
            # As good as no answer: the request may or may not have taken effect.
            error = ApiError(f"not the API server's own answer: {error}", retry_after_s=error.retry_after_s)
        if self._again(call, error):
            call.is_renewed = False
            self._pause(error)
            # Move it to the end of the queue: other calls may succeed.
            self._waiting.setdefault(call.key, call)

    def _silent(self, call: Call[ItemT], why: str) -> None:
        if self._group is not None:
            self._refused(call, ApiError(why))

    def _again(self, call: Call[ItemT], error: ApiError) -> bool:
        """Interpret the refusal; true: retry later."""
        raise NotImplementedError
