"""The dispatcher's slower lanes: reads, evictions, status writes and events, each with its own patience.

Lives here: one class a lane: what waits, in which order it is sent, what an answer means. Not here: binds
(kube.binding_lane), how requests are sent (kube.lane), what goes on the wire (kube.writes). Called by
kube.dispatcher only. Each lane has its own connections and its own backoff; a lane that is refused pauses
alone.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from random import Random
from typing import Protocol

import msgspec

from gangsched.errors import ApiError
from gangsched.kube.credentials import Credentials
from gangsched.kube.decode import read_pod_leniently
from gangsched.kube.http1 import JSON, MERGE_PATCH, STRATEGIC_MERGE_PATCH, Verb
from gangsched.kube.lane import Lane, always
from gangsched.kube.line import Call, ItemT
from gangsched.kube.readers import Readers
from gangsched.kube.writes import (
    annotations_body,
    condition_body,
    deletion_body,
    disruption_body,
    event_body,
    events_path,
    eviction_body,
    group_status_body,
    group_status_path,
    nomination_body,
    note,
    pod_path,
)
from gangsched.model import bounded
from gangsched.model.effects import (
    DeletePod,
    EvictPod,
    GetPod,
    NominateNode,
    PatchPod,
    RecordEvent,
    WritePodCondition,
    WritePodGroupStatus,
)
from gangsched.model.events import (
    Event,
    EvictionFailed,
    EvictionSucceeded,
    PodPatched,
    PodPatchFailed,
    PodRead,
)
from gangsched.model.objects import Pod

_decode_pod = bounded.lenient_decoder(Pod)

StatusWrite = WritePodCondition | WritePodGroupStatus | NominateNode

_GET = Verb("GET")
_POST = Verb("POST", JSON)
_DELETE = Verb("DELETE", JSON)
_MERGE = Verb("PATCH", MERGE_PATCH)
_STRATEGIC_MERGE = Verb("PATCH", STRATEGIC_MERGE_PATCH)

REQUEST_TIMEOUT_S = 30.0
STATUS_TRIES = 5
EVENT_TRIES = 3
# The same words about the same object are said again only after this long.
EVENT_REPEAT_S = 600.0
MAX_REMEMBERED_EVENTS = 4096
YIELD_STEP_S = 0.1


class BusyLane(Protocol):
    """What the others give way to."""

    @property
    def is_busy(self) -> bool:
        """More binds are under way than one small gang's last ones."""
        ...


class _SlowLane(Lane[ItemT]):
    """A bounded FIFO by key that gives way to binds.

    While something of a key is on its way, the next of that key waits for the answer: over another connection
    it might arrive first, and the older word would be the one that stays.
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
        """`may_send` is asked before each; after a no this process has nothing more to say, and ends."""
        super().__init__(credentials, rng=rng, readers=readers, size=size, timeout_s=timeout_s)
        self._emit = emit_nowait
        self._binds = binds
        self._limit = limit
        self._may_send = may_send
        self._waiting: OrderedDict[Hashable, Call[ItemT]] = OrderedDict()
        self._followers: dict[Hashable, Call[ItemT] | None] = {}  # by what is on its way
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
        """Queue `item` in the place of an older one of its key; over the limit the oldest is dropped."""
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
        """Let binds go first, but not for ever: people wait for reasons too."""
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
        if call.key not in self._waiting:  # else there is a later word
            self._waiting[call.key] = call
            self._waiting.move_to_end(call.key, last=False)

    def _done(self, call: Call[ItemT], body: bytes) -> None:
        pass

    def _refused(self, call: Call[ItemT], error: ApiError) -> None:
        call.n_tries += 1
        if self._again(call.item, error, call.n_tries):
            call.is_renewed = False
            self._pause(error)
            # Behind the others, of which some may fare better.
            self._waiting.setdefault(call.key, call)

    def _silent(self, call: Call[ItemT], why: str) -> None:
        if self._group is not None:
            self._refused(call, ApiError(why))

    def _again(self, item: ItemT, error: ApiError, n_tries: int) -> bool:
        """What the refusal means; true: try it again later."""
        raise NotImplementedError


def may_pass(error: ApiError) -> bool:
    """Silence, throttling, a server in trouble, credentials on their way: worth another try."""
    return error.code in (0, 401, 408, 429) or error.code >= 500


class ReadLane(_SlowLane[GetPod]):
    """Reads that decide about binds: consistent (no resourceVersion), and tried until answered.

    The answer to a waiting one serves both who asked, as it is read after both. Tried also after a 403, as
    a bind of unknown outcome stays unknown until somebody says what it is.
    """

    name = "read a pod"
    method = "GET"

    def _request(self, call: Call[GetPod]) -> tuple[Verb, str, bytes]:
        return _GET, pod_path(call.item), b""

    def _done(self, call: Call[GetPod], body: bytes) -> None:
        uid = call.item.uid
        try:
            pod = _decode_pod(body)
        except msgspec.MsgspecError:
            # Whether it is bound, and to which node, can be read even when the rest does not parse.
            pod = read_pod_leniently(body)
        # Another UID under this name: the pod that was asked about is gone.
        self._emit(PodRead(uid, pod if pod.metadata.uid == uid else None))

    def _again(self, item: GetPod, error: ApiError, n_tries: int) -> bool:
        if error.code == 404:
            self._emit(PodRead(item.uid, None))
            return False
        return True


class EvictionLane(_SlowLane[EvictPod | DeletePod]):
    """Evictions and deletions; the UID precondition makes it safe to ask again after a silence."""

    name = "evict a pod"

    def _request(self, call: Call[EvictPod | DeletePod]) -> tuple[Verb, str, bytes]:
        item = call.item
        if isinstance(item, EvictPod):
            return _POST, pod_path(item, "eviction"), eviction_body(item)
        if not call.n_done:
            return _STRATEGIC_MERGE, pod_path(item, "status"), disruption_body(item, time.time())
        return _DELETE, pod_path(item), deletion_body(item)

    def _done(self, call: Call[EvictPod | DeletePod], body: bytes) -> None:
        call.n_done += 1
        if isinstance(call.item, DeletePod) and call.n_done == 1:
            self._put_back(call)  # why it goes has been said, now it may
        else:
            self._emit(EvictionSucceeded(call.item.uid))

    def _again(self, item: EvictPod | DeletePod, error: ApiError, n_tries: int) -> bool:
        # A disruption budget says 429 too, with a reason; plain throttling has none or asks to come back.
        is_budget = error.reason == "DisruptionBudget" or "disruption budget" in error.message
        if may_pass(error) and not is_budget:
            return True
        self._emit(EvictionFailed(item.uid, error.code, error.message))
        return False


class PatchLane(_SlowLane[PatchPod]):
    """Annotations made right; every answer goes back, as what to write depends on what is there by then."""

    name = "patch a pod"
    method = "PATCH"
    yield_s = 1.0

    def _request(self, call: Call[PatchPod]) -> tuple[Verb, str, bytes]:
        return _MERGE, pod_path(call.item), annotations_body(call.item)

    def _done(self, call: Call[PatchPod], body: bytes) -> None:
        self._emit(PodPatched(call.item.uid))

    def _again(self, item: PatchPod, error: ApiError, n_tries: int) -> bool:
        if error.code not in (404, 409):
            self._complaints.say(self.name, error, about=f"{item.namespace}/{item.name}")
        self._emit(PodPatchFailed(item.uid, error.code, error.message))
        return False


class StatusLane(_SlowLane[StatusWrite]):
    """Conditions of pods and statuses of groups: the last word for each object is the one that is sent."""

    name = "write a status"
    method = "PATCH"
    yield_s = 1.0

    def _key(self, item: StatusWrite) -> Hashable:
        if isinstance(item, WritePodGroupStatus):
            return item.uid, item.api_version
        return item.uid, item.type if isinstance(item, WritePodCondition) else "nominatedNodeName"

    def _request(self, call: Call[StatusWrite]) -> tuple[Verb, str, bytes]:
        item = call.item
        if isinstance(item, WritePodGroupStatus):
            return _MERGE, group_status_path(item), group_status_body(item, time.time())
        path = pod_path(item, "status")
        if isinstance(item, NominateNode):
            return _MERGE, path, nomination_body(item)
        return _STRATEGIC_MERGE, path, condition_body(item, time.time())

    def _again(self, item: StatusWrite, error: ApiError, n_tries: int) -> bool:
        if may_pass(error) and n_tries < STATUS_TRIES:
            return True
        self.n_dropped += 1
        if error.code not in (404, 409):  # the object is gone, or another one of that name: nobody to tell
            self._complaints.say(self.name, error, about=f"{item.namespace}/{item.name}")
        return False


class EventLane(_SlowLane[RecordEvent]):
    """Events for people: the last to be sent, the first to be dropped, never the same one twice in a row."""

    name = "create an event"
    yield_s = 2.0

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
        controller: str,
        instance: str,
        may_send: Callable[[], bool] = always,
        wall: Callable[[], float] | None = None,
    ) -> None:
        super().__init__(
            credentials,
            emit_nowait,
            rng=rng,
            readers=readers,
            binds=binds,
            size=size,
            limit=limit,
            may_send=may_send,
        )
        self._controller = controller
        self._instance = instance
        self._wall = wall or time.time
        self._serial = int(self._wall() * 1e9)
        self._recent: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        self.n_repeated = 0

    def submit(self, item: RecordEvent) -> None:
        """Queue an event, unless the same was said a short while ago."""
        said = (item.uid or item.name, item.reason, note(item.message))
        now_s = time.monotonic()
        before_s = self._recent.get(said)
        if before_s is not None and now_s - before_s < EVENT_REPEAT_S:
            self.n_repeated += 1
            return
        self._recent[said] = now_s
        self._recent.move_to_end(said)
        if len(self._recent) > MAX_REMEMBERED_EVENTS:
            self._recent.popitem(last=False)
        super().submit(item)

    def _key(self, item: RecordEvent) -> Hashable:
        self._serial += 1
        return self._serial

    def _request(self, call: Call[RecordEvent]) -> tuple[Verb, str, bytes]:
        self._serial += 1  # also when it is tried again: the first may have arrived
        body = event_body(
            call.item,
            controller=self._controller,
            instance=self._instance,
            wall_s=self._wall(),
            serial=self._serial,
        )
        return _POST, events_path(call.item), body

    def _again(self, item: RecordEvent, error: ApiError, n_tries: int) -> bool:
        if may_pass(error) and n_tries < EVENT_TRIES:
            return True
        self.n_dropped += 1
        if error.code not in (404, 409):
            self._complaints.say(self.name, error)
        return False
