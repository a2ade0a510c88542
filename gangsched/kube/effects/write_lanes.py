"""The dispatcher's slower lanes: reads, evictions, status writes and events, each with its own patience.

Lives here: one class per lane: what it sends, and what an answer means. Not here: binds
(kube.effects.binding_lane), what the lanes share (kube.effects.slow_lane), paths and bodies
(kube.effects.writes). Called by kube.effects.dispatcher only. Each lane has its own connections and its own
backoff; a refused lane pauses alone. An answer that does not come from the API server, or is not about the
object (kube.evidence), counts as an error with code 0, like silence.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Unpack

import msgspec

from gangsched.errors import ApiError
from gangsched.kube.access.credentials import Credentials
from gangsched.kube.effects.claim_writes import claim_path, claim_target, read_claim
from gangsched.kube.effects.slow_lane import LaneOptions, SlowLane
from gangsched.kube.effects.writes import (
    GroupOutline,
    annotations_body,
    condition_body,
    deletion_body,
    disruption_body,
    event_body,
    event_name,
    events_path,
    eviction_body,
    group_status_body,
    group_status_path,
    has_conditions,
    merges_conditions,
    nomination_body,
    note,
    pod_path,
    read_group_outline,
    scheduled_body,
    unchanged_body,
)
from gangsched.kube.evidence import Target, is_gone, pod
from gangsched.kube.status import is_success
from gangsched.kube.transport.http1 import JSON, MERGE_PATCH, STRATEGIC_MERGE_PATCH, Verb
from gangsched.kube.transport.lane_connection import Call
from gangsched.kube.watch.unparsed import read_pod_leniently
from gangsched.model.effects import (
    DeletePod,
    EvictPod,
    GetClaim,
    GetPod,
    NominateNode,
    PatchPod,
    RecordEvent,
    WritePodCondition,
    WritePodGroupStatus,
)
from gangsched.model.events import (
    ClaimRead,
    ClaimUnread,
    Event,
    EvictionFailed,
    EvictionSucceeded,
    PodPatched,
    PodPatchFailed,
    PodRead,
    PodUnread,
)
from gangsched.model.objects import Pod
from gangsched.model.text import bounded
from gangsched.model.text.server_refusals import says_budget_refuses, says_namespace_goes

_decode_pod = bounded.lenient_decoder(Pod)


class _Spec(msgspec.Struct, gc=False, rename="camel"):
    node_name: str = ""


class _Place(msgspec.Struct, gc=False):
    """A pod, read only for its node."""

    spec: _Spec = msgspec.field(default_factory=_Spec)


_decode_place = bounded.lenient_decoder(_Place)

StatusWrite = WritePodCondition | WritePodGroupStatus | NominateNode

_GET = Verb("GET")
_POST = Verb("POST", JSON)
_DELETE = Verb("DELETE", JSON)
_MERGE = Verb("PATCH", MERGE_PATCH)
_STRATEGIC_MERGE = Verb("PATCH", STRATEGIC_MERGE_PATCH)

SCHEDULED = "PodScheduled"
STATUS_TRIES = 5
# A CRD may get a status subresource later: it is found out after this long.
WHOLE_KNOWN_S = 600.0
# This many tries of a read take about ten seconds while its gang waits; the core is notified after each such
# series.
READS_SAID = 6
EVENT_TRIES = 3
# An identical Event about the same object is repeated only after this long.
EVENT_REPEAT_S = 600.0
MAX_REMEMBERED_EVENTS = 4096


def may_pass(error: ApiError) -> bool:
    """Whether a retry may help: silence, throttling, a server in trouble, credentials being renewed."""
    return error.code in (0, 401, 408, 429) or error.code >= 500


class ReadLane(SlowLane[GetPod | GetClaim]):
    """Reads that binds depend on: consistent (no resourceVersion), and retried until answered.

    A waiting read answers two requests for the same object, since it is sent after both. Retried after a 403
    too: a write of unknown outcome stays unknown until a read settles it.
    """

    name = "read a pod or a claim"
    method = "GET"

    def _request(self, call: Call[GetPod | GetClaim]) -> tuple[Verb, str, bytes]:
        item = call.item
        return _GET, pod_path(item) if isinstance(item, GetPod) else claim_path(item), b""

    def _target(self, call: Call[GetPod | GetClaim]) -> Target:
        item = call.item
        return pod(item.namespace, item.name) if isinstance(item, GetPod) else claim_target(item)

    def _done(self, call: Call[GetPod | GetClaim], body: bytes) -> None:
        item = call.item
        if isinstance(item, GetClaim):
            try:
                self._emit(ClaimRead(item.uid, read_claim(body, item)))
            except ApiError as error:  # it has the name, and nothing else of it can be read
                self._refused(call, error)
            return
        try:
            found = _decode_pod(body)
        except ValueError:
            # The node can be read even when the rest of the pod does not parse.
            found = read_pod_leniently(body)
        # Another UID under this name: the requested pod is gone.
        self._emit(PodRead(item.uid, found if found.metadata.uid == item.uid else None))

    def _again(self, call: Call[GetPod | GetClaim], error: ApiError) -> bool:
        uid, is_pod = call.item.uid, isinstance(call.item, GetPod)
        if is_gone(error, self._target(call)):
            self._emit(PodRead(uid, None) if is_pod else ClaimRead(uid, None))
            return False
        if not call.n_tries % READS_SAID:
            self._emit(PodUnread(uid, str(error)) if is_pod else ClaimUnread(uid, str(error)))
        return True


class EvictionLane(SlowLane[EvictPod | DeletePod]):
    """Evictions and deletions; the UID precondition makes a retry after silence safe."""

    name = "evict a pod"

    def _request(self, call: Call[EvictPod | DeletePod]) -> tuple[Verb, str, bytes]:
        item = call.item
        if isinstance(item, EvictPod):
            return _POST, pod_path(item, "eviction"), eviction_body(item)
        if not call.n_done:
            return _STRATEGIC_MERGE, pod_path(item, "status"), disruption_body(item, time.time())
        return _DELETE, pod_path(item), deletion_body(item)

    def _target(self, call: Call[EvictPod | DeletePod]) -> Target:
        return pod(call.item.namespace, call.item.name)

    def _proves(self, call: Call[EvictPod | DeletePod], body: bytes) -> bool:
        if isinstance(call.item, EvictPod):
            return is_success(body)
        # An immediate deletion may be answered with a Status.
        return super()._proves(call, body) or (call.n_done > 0 and is_success(body))

    def _done(self, call: Call[EvictPod | DeletePod], body: bytes) -> None:
        call.n_done += 1
        if isinstance(call.item, DeletePod) and call.n_done == 1:
            self._put_back(call)  # the disruption condition is written; now delete
        else:
            self._emit(EvictionSucceeded(call.item.uid))

    def _again(self, call: Call[EvictPod | DeletePod], error: ApiError) -> bool:
        # A disruption budget causes a 429 too, with a reason; plain throttling has none or a Retry-After. Two
        # budgets that cover one pod cause a 500, as long as both exist.
        is_budget = error.subject is not None and (
            error.reason == "DisruptionBudget" or says_budget_refuses(error.message)
        )
        if may_pass(error) and not is_budget:
            return True
        self._emit(EvictionFailed(call.item.uid, error.code, error.message))
        return False


class PatchLane(SlowLane[PatchPod]):
    """Annotation repairs; every answer goes back to the core, since the next write depends on it."""

    name = "patch a pod"
    method = "PATCH"
    yield_s = 1.0

    def _request(self, call: Call[PatchPod]) -> tuple[Verb, str, bytes]:
        return _MERGE, pod_path(call.item), annotations_body(call.item)

    def _target(self, call: Call[PatchPod]) -> Target:
        return pod(call.item.namespace, call.item.name)

    def _done(self, call: Call[PatchPod], body: bytes) -> None:
        self._emit(PodPatched(call.item.uid))

    def _again(self, call: Call[PatchPod], error: ApiError) -> bool:
        item = call.item
        if error.code not in (404, 409):
            self._complaints.say(self.name, error, about=f"{item.namespace}/{item.name}")
        self._emit(PodPatchFailed(item.uid, error.code, error.message))
        return False


class StatusLane(SlowLane[StatusWrite]):
    """Conditions of pods and statuses of groups: only the latest write per object is sent.

    PodGroups of Volcano and Koordinator have no status subresource: the API server answers as if the object
    were gone. The status is then written as part of the object, and the kind is remembered for a while, so
    that not every write takes two requests.

    The API server merges conditions of its own kinds by type. Those of other kinds are lists that a merge
    patch replaces whole: the object is read first, and written only if it has not changed since.

    Binds overtake statuses. Once a pod is bound, "no room" is no longer written for it; if the answer shows
    that it was written too late, the condition is restored to what kube-apiserver had written.
    """

    name = "write a status"
    method = "PATCH"
    yield_s = 1.0
    _whole_until_s: Mapping[str, float] = {}

    def __init__(
        self, credentials: Credentials, emit_nowait: Callable[[Event], None], **options: Unpack[LaneOptions]
    ) -> None:
        super().__init__(credentials, emit_nowait, **options)
        self._found: dict[Hashable, GroupOutline] = {}  # by key of the call: what it was answered with

    def bound(self, uid: str) -> None:
        """The pod is bound: drop waiting writes about why it was not."""
        self._waiting.pop((uid, SCHEDULED), None)

    def _key(self, item: StatusWrite) -> Hashable:
        if isinstance(item, WritePodGroupStatus):
            return item.uid, item.api_version
        return item.uid, item.type if isinstance(item, WritePodCondition) else "nominatedNodeName"

    def _request(self, call: Call[StatusWrite]) -> tuple[Verb, str, bytes]:
        item = call.item
        if isinstance(item, WritePodGroupStatus):
            path = group_status_path(item, whole=call.n_done > 0 or self._is_known_whole(item))
            if merges_conditions(item):
                return _STRATEGIC_MERGE, path, group_status_body(item, time.time())
            found = self._found.get(call.key)
            if found is None and has_conditions(item):
                return _MERGE, path, unchanged_body(item)
            return _MERGE, path, group_status_body(item, time.time(), found)
        path = pod_path(item, "status")
        if isinstance(item, NominateNode):
            return _MERGE, path, nomination_body(item)
        body = scheduled_body if call.n_done else condition_body
        return _STRATEGIC_MERGE, path, body(item, time.time())

    def _target(self, call: Call[StatusWrite]) -> Target:
        item = call.item
        if isinstance(item, WritePodGroupStatus):
            group = item.api_version.partition("/")[0]
            return Target("podgroups", "PodGroup", item.name, item.namespace, group)
        return pod(item.namespace, item.name)

    def _done(self, call: Call[StatusWrite], body: bytes) -> None:
        item = call.item
        if isinstance(item, WritePodGroupStatus):
            if call.n_done:
                until_s = time.monotonic() + WHOLE_KNOWN_S
                self._whole_until_s = {**self._whole_until_s, item.api_version: until_s}
            is_read = has_conditions(item) and not merges_conditions(item)
            if self._found.pop(call.key, None) is None and is_read:
                self._found[call.key] = read_group_outline(body)
                self._put_back(call)
        elif isinstance(item, WritePodCondition) and not call.n_done and _is_too_late(item, body):
            call.n_done = 1
            self._put_back(call)

    def _may_be_whole(self, call: Call[StatusWrite], item: WritePodGroupStatus, error: ApiError) -> bool:
        was_tried = call.n_done > 0 or self._is_known_whole(item)
        return not was_tried and is_gone(error, self._target(call))

    def _is_known_whole(self, item: WritePodGroupStatus) -> bool:
        return time.monotonic() < self._whole_until_s.get(item.api_version, 0.0)

    def _again(self, call: Call[StatusWrite], error: ApiError) -> bool:
        item = call.item
        was_read = self._found.pop(call.key, None) is not None
        # 409: somebody else has written to the object since it was read.
        if (may_pass(error) or (was_read and error.code == 409)) and call.n_tries < STATUS_TRIES:
            return True
        if isinstance(item, WritePodGroupStatus) and self._may_be_whole(call, item, error):
            call.n_done = 1
            self._put_back(call)
            return False
        self.n_dropped += 1
        if error.code not in (404, 409):  # 404, 409: the object is gone or replaced, nothing to write to
            self._complaints.say(self.name, error, about=f"{item.namespace}/{item.name}")
        return False


def _is_too_late(item: WritePodCondition, answer: bytes) -> bool:
    """Whether the pod has a node, and its condition now states that it has none."""
    try:
        return (item.type, item.status) == (SCHEDULED, "False") and bool(_decode_place(answer).spec.node_name)
    except ValueError:
        return False


class EventLane(SlowLane[RecordEvent]):
    """Events for people: sent last, dropped first, never repeated back to back."""

    name = "create an event"
    yield_s = 2.0

    def __init__(
        self,
        credentials: Credentials,
        emit_nowait: Callable[[Event], None],
        *,
        controller: str,
        instance: str,
        wall: Callable[[], float] | None = None,
        **options: Unpack[LaneOptions],
    ) -> None:
        super().__init__(credentials, emit_nowait, **options)
        self._controller = controller
        self._instance = instance
        self._wall = wall or time.time
        self._serial = int(self._wall() * 1e9)
        self._recent: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        self.n_repeated = 0

    def submit(self, item: RecordEvent) -> None:
        """Queue an event, unless an identical one was sent recently."""
        content = _said(item)
        now_s = time.monotonic()
        before_s = self._recent.get(content)
        if before_s is not None and now_s - before_s < EVENT_REPEAT_S:
            self.n_repeated += 1
            return
        self._recent[content] = now_s
        self._recent.move_to_end(content)
        if len(self._recent) > MAX_REMEMBERED_EVENTS:
            self._recent.popitem(last=False)
        super().submit(item)

    def _key(self, item: RecordEvent) -> Hashable:
        self._serial += 1
        return self._serial

    def _target(self, call: Call[RecordEvent]) -> Target:
        name = event_name(call.item, _serial(call))
        return Target("events", "Event", name, call.item.namespace or "default", "events.k8s.io")

    def _request(self, call: Call[RecordEvent]) -> tuple[Verb, str, bytes]:
        # A retry uses the same name: the first may have arrived, and is then not duplicated.
        body = event_body(
            call.item,
            controller=self._controller,
            instance=self._instance,
            wall_s=self._wall(),
            serial=_serial(call),
        )
        return _POST, events_path(call.item), body

    def _again(self, call: Call[RecordEvent], error: ApiError) -> bool:
        if error.reason == "AlreadyExists":
            return False
        if may_pass(error) and call.n_tries < EVENT_TRIES:
            return True
        self._recent.pop(_said(call.item), None)
        self.n_dropped += 1
        if error.code not in (404, 409) and not says_namespace_goes(error.message):
            self._complaints.say(self.name, error)
        return False


def _said(item: RecordEvent) -> tuple[str, str, str]:
    """What makes two events identical."""
    return item.uid or item.name, item.reason, note(item.message)


def _serial(call: Call[RecordEvent]) -> int:
    assert isinstance(call.key, int)
    return call.key
