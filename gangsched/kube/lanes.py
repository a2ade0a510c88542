"""The dispatcher's slower lanes: reads, evictions, status writes and events, each with its own patience.

Lives here: one class a lane: what waits, in which order it is sent, what an answer means. Not here: binds
(kube.binding_lane), what goes on the wire (kube.writes). Called by kube.dispatcher only. Each lane has its
own connections and its own backoff; a lane that is refused pauses alone.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from random import Random
from typing import Generic, Protocol, TypeVar

import anyio
import msgspec

from gangsched.errors import ApiError
from gangsched.kube.backoff import Backoff
from gangsched.kube.complaints import Complaints
from gangsched.kube.decode import read_pod_leniently
from gangsched.kube.pool import JSON, MERGE_PATCH, STRATEGIC_MERGE_PATCH, RequestPool
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

_decode_pod = msgspec.json.Decoder(Pod).decode

StatusWrite = WritePodCondition | WritePodGroupStatus | NominateNode
ItemT = TypeVar("ItemT")

STATUS_TRIES = 5
EVENT_TRIES = 3
# The same words about the same object are said again only after this long.
EVENT_REPEAT_S = 600.0
MAX_REMEMBERED_EVENTS = 4096
YIELD_STEP_S = 0.05


class BusyLane(Protocol):
    """What the others give way to."""

    @property
    def is_busy(self) -> bool:
        """More binds are under way than one small gang's last ones."""
        ...


class _Lane(Generic[ItemT]):
    """A bounded FIFO by key and its workers; a later item replaces the waiting one of its key."""

    name = "lane"
    yield_s = 0.0

    def __init__(
        self,
        client: RequestPool,
        emit_nowait: Callable[[Event], None],
        *,
        rng: Random,
        binds: BusyLane,
        n_workers: int,
        limit: int,
        backoff_s: tuple[float, float] = (0.25, 10.0),
    ) -> None:
        self._client = client
        self._emit = emit_nowait
        self._rng = rng
        self._binds = binds
        self._n_workers = n_workers
        self._limit = limit
        self._backoff_s = backoff_s
        self._waiting: OrderedDict[Hashable, ItemT] = OrderedDict()
        self._wake = anyio.Event()
        self._complaints = Complaints()
        self.n_active = 0
        self.n_sent = 0
        self.n_dropped = 0
        self.hurry = False

    @property
    def n_waiting(self) -> int:
        """Waiting or being sent."""
        return len(self._waiting) + self.n_active

    def put(self, key: Hashable, item: ItemT) -> None:
        """Queue `item`; over the limit the oldest is dropped and counted."""
        self._waiting[key] = item
        if len(self._waiting) > self._limit:
            self._waiting.popitem(last=False)
            self.n_dropped += 1
        self._wake.set()

    async def run(self) -> None:
        """Send until cancelled."""
        async with self._client, anyio.create_task_group() as group:
            for _ in range(self._n_workers):
                group.start_soon(self._work)

    async def _work(self) -> None:
        backoff = Backoff(self._rng, first_s=self._backoff_s[0], max_s=self._backoff_s[1])
        while True:
            while not self._waiting:
                if self._wake.is_set():
                    self._wake = anyio.Event()
                await self._wake.wait()
            await self._yield_to_binds()
            if not self._waiting:
                continue
            key, item = self._waiting.popitem(last=False)
            self.n_active += 1
            try:
                await self._until_done(key, item, backoff)
            finally:
                self.n_active -= 1

    async def _until_done(self, key: Hashable, item: ItemT, backoff: Backoff) -> None:
        n_tries = 0
        while True:
            n_tries += 1
            try:
                self.n_sent += 1
                await self._send(item)
            except ApiError as error:
                if not self._again(item, error, n_tries):
                    return
                self._complaints.say(self.name, error)
                await anyio.sleep(backoff.next_s(error.retry_after_s))
                if self._is_superseded(key):
                    return
            else:
                backoff.reset()
                return

    async def _yield_to_binds(self) -> None:
        """Let binds go first, but not for ever: people wait for reasons too."""
        for _ in range(round(self.yield_s / YIELD_STEP_S)):
            if self.hurry or not self._binds.is_busy:
                return
            await anyio.sleep(YIELD_STEP_S)

    def _is_superseded(self, key: Hashable) -> bool:
        return False

    async def _send(self, item: ItemT) -> None:
        raise NotImplementedError

    def _again(self, item: ItemT, error: ApiError, n_tries: int) -> bool:
        """What the refusal means; true: try it again later."""
        raise NotImplementedError


def may_pass(error: ApiError) -> bool:
    """Silence, throttling, a server in trouble, credentials on their way: worth another try."""
    return error.code in (0, 401, 408, 429) or error.code >= 500


class ReadLane(_Lane[GetPod]):
    """Reads that decide about binds: consistent (no resourceVersion), and tried until answered.

    Also after a 403, slowly: a bind of unknown outcome stays unknown until somebody says what it is.
    """

    name = "read a pod"

    def put_read(self, effect: GetPod) -> None:
        """Queue a read; the answer to a waiting one serves both who asked, as it is read after both."""
        self.put(effect.uid, effect)

    async def _send(self, item: GetPod) -> None:
        body = await self._client.request("GET", pod_path(item), timeout_s=10.0)
        try:
            pod = _decode_pod(body)
        except msgspec.MsgspecError:
            # Whether it is bound, and to which node, can be read even when the rest does not parse.
            pod = read_pod_leniently(body)
        # Another UID under this name: the pod that was asked about is gone.
        self._emit(PodRead(item.uid, pod if pod.metadata.uid == item.uid else None))

    def _again(self, item: GetPod, error: ApiError, n_tries: int) -> bool:
        if error.code == 404:
            self._emit(PodRead(item.uid, None))
            return False
        return True


class _LeadersLane(_Lane[ItemT]):
    """What only who leads at that moment may write."""

    def __init__(
        self,
        client: RequestPool,
        emit_nowait: Callable[[Event], None],
        *,
        rng: Random,
        binds: BusyLane,
        limit: int,
        may_send: Callable[[], bool],
    ) -> None:
        """`may_send` is asked before each; after a no this process has nothing more to say, and ends."""
        super().__init__(client, emit_nowait, rng=rng, binds=binds, n_workers=2, limit=limit)
        self._may_send = may_send

    async def _send(self, item: ItemT) -> None:
        if self._may_send():
            await self._write(item)

    async def _write(self, item: ItemT) -> None:
        raise NotImplementedError


class EvictionLane(_LeadersLane[EvictPod | DeletePod]):
    """Evictions and deletions; the UID precondition makes it safe to ask again after a silence."""

    name = "evict a pod"

    async def _write(self, item: EvictPod | DeletePod) -> None:
        request = self._client.request
        if isinstance(item, EvictPod):
            await request("POST", pod_path(item, "eviction"), body=eviction_body(item), content_type=JSON)
        else:
            why = disruption_body(item, time.time())
            status = pod_path(item, "status")
            await request("PATCH", status, body=why, content_type=STRATEGIC_MERGE_PATCH)
            await request("DELETE", pod_path(item), body=deletion_body(item), content_type=JSON)
        self._emit(EvictionSucceeded(item.uid))

    def _again(self, item: EvictPod | DeletePod, error: ApiError, n_tries: int) -> bool:
        # A disruption budget says 429 too, with a reason; plain throttling has none or asks to come back.
        is_budget = error.reason == "DisruptionBudget" or "disruption budget" in error.message
        if may_pass(error) and not is_budget:
            return True
        self._emit(EvictionFailed(item.uid, error.code, error.message))
        return False


class PatchLane(_LeadersLane[PatchPod]):
    """Annotations made right; every answer goes back, as what to write depends on what is there by then."""

    name = "patch a pod"
    yield_s = 1.0

    async def _write(self, item: PatchPod) -> None:
        body = annotations_body(item)
        await self._client.request("PATCH", pod_path(item), body=body, content_type=MERGE_PATCH)
        self._emit(PodPatched(item.uid))

    def _again(self, item: PatchPod, error: ApiError, n_tries: int) -> bool:
        if error.code not in (404, 409):
            self._complaints.say(self.name, error, about=f"{item.namespace}/{item.name}")
        self._emit(PodPatchFailed(item.uid, error.code, error.message))
        return False


class StatusLane(_Lane[StatusWrite]):
    """Conditions of pods and statuses of groups: the last word for each object is the one that is sent."""

    name = "write a status"
    yield_s = 1.0

    def put_status(self, effect: StatusWrite) -> None:
        """Queue a write in the place of an older one about the same thing."""
        if isinstance(effect, WritePodCondition):
            self.put((effect.uid, effect.type), effect)
        elif isinstance(effect, NominateNode):
            self.put((effect.uid, "nominatedNodeName"), effect)
        else:
            self.put((effect.uid, effect.api_version), effect)

    def _is_superseded(self, key: Hashable) -> bool:
        return key in self._waiting

    async def _send(self, item: StatusWrite) -> None:
        if isinstance(item, WritePodCondition):
            path, body = pod_path(item, "status"), condition_body(item, time.time())
            await self._client.request("PATCH", path, body=body, content_type=STRATEGIC_MERGE_PATCH)
        elif isinstance(item, NominateNode):
            path, body = pod_path(item, "status"), nomination_body(item)
            await self._client.request("PATCH", path, body=body, content_type=MERGE_PATCH)
        else:
            path, body = group_status_path(item), group_status_body(item, time.time())
            await self._client.request("PATCH", path, body=body, content_type=MERGE_PATCH)

    def _again(self, item: StatusWrite, error: ApiError, n_tries: int) -> bool:
        if may_pass(error) and n_tries < STATUS_TRIES:
            return True
        self.n_dropped += 1
        if error.code not in (404, 409):  # the object is gone, or another one of that name: nobody to tell
            self._complaints.say(self.name, error, about=f"{item.namespace}/{item.name}")
        return False


class EventLane(_Lane[RecordEvent]):
    """Events for people: the last to be sent, the first to be dropped, never the same one twice in a row."""

    name = "create an event"
    yield_s = 2.0

    def __init__(
        self,
        client: RequestPool,
        emit_nowait: Callable[[Event], None],
        *,
        rng: Random,
        binds: BusyLane,
        limit: int,
        controller: str,
        instance: str,
        wall: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(client, emit_nowait, rng=rng, binds=binds, n_workers=1, limit=limit)
        self._controller = controller
        self._instance = instance
        self._wall = wall
        self._serial = int(wall() * 1e9)
        self._recent: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        self.n_repeated = 0

    def put_event(self, effect: RecordEvent) -> None:
        """Queue an event, unless the same was said a short while ago."""
        said = (effect.uid or effect.name, effect.reason, note(effect.message))
        now_s = time.monotonic()
        before_s = self._recent.get(said)
        if before_s is not None and now_s - before_s < EVENT_REPEAT_S:
            self.n_repeated += 1
            return
        self._recent[said] = now_s
        self._recent.move_to_end(said)
        if len(self._recent) > MAX_REMEMBERED_EVENTS:
            self._recent.popitem(last=False)
        self._serial += 1
        self.put(self._serial, effect)

    async def _send(self, item: RecordEvent) -> None:
        self._serial += 1
        body = event_body(
            item,
            controller=self._controller,
            instance=self._instance,
            wall_s=self._wall(),
            serial=self._serial,
        )
        await self._client.request("POST", events_path(item), body=body, content_type=JSON)

    def _again(self, item: RecordEvent, error: ApiError, n_tries: int) -> bool:
        if may_pass(error) and n_tries < EVENT_TRIES:
            return True
        self.n_dropped += 1
        if error.code not in (404, 409):
            self._complaints.say(self.name, error)
        return False
