"""The hot path: one POST a pod, as cheap as Python's asyncio allows. What it shares with claims is here too.

Lives here: which bind is sent next, its bytes, and what each answer means for it. Not here: how requests are
sent (kube.transport.lane), whether to bind again after an unknown outcome (the core, by a GET). Called by
kube.effects.dispatcher only; kube.effects.claim_lane is a lane of the same kind, with the same table.

| the request | event |
|---|---|
| taken back before a byte of it was sent | BindCancelled |
| 2xx with a Status of Success | BindSucceeded |
| 429 | none: the lane pauses as long as requested, and sends it again |
| no connection, or lost before a byte was sent | none: waits, sent again after a backoff |
| 401 | none the first time: credentials are renewed and it is sent again |
| a Status that names the pod: NotFound, Forbidden, Invalid, … (kube.evidence) | BindFailed |
| a Status that names nothing: a webhook's denial, BadRequest | BindUnknown, as a refusal |
| taken back after a 429 or 401; a Conflict; 5xx | BindUnknown |
| cut, timeout, malformed; any answer that is not the API server's own about this pod | BindUnknown |

A keep-alive connection that the server closed just as we wrote to it is "cut": the bytes may have arrived.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from itertools import takewhile
from random import Random
from typing import Protocol, TypeVar

import msgspec
import structlog

from gangsched.errors import ApiError
from gangsched.kube.access.credentials import Credentials
from gangsched.kube.effects.writes import pod_path
from gangsched.kube.evidence import Target, is_doubtful, is_refusal, names_nothing, pod
from gangsched.kube.status import is_success
from gangsched.kube.transport.http1 import JSON, Verb
from gangsched.kube.transport.lane import Lane, always
from gangsched.kube.transport.lane_connection import Call, Item
from gangsched.kube.transport.readers import Readers
from gangsched.model.effects import BindPod
from gangsched.model.events import BindCancelled, BindFailed, BindSucceeded, BindUnknown, Event

_log = structlog.get_logger(__name__)

_POST = Verb("POST", JSON)
DEPTH = 2
# Exactly what kube-apiserver answers to a Binding; a Success in any other form is parsed.
_BOUND = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}\n'
# One such answer is a mishap. When all answers are like it, do not query everything at once.
_MAX_DOUBTFUL_IN_ROW = 3
# Codes of refusals that concern the request itself and will repeat; not credentials, versions or timing.
_ABOUT_THE_REQUEST = (400, 403, 404, 405, 406, 413, 415, 422)

_encode = msgspec.json.Encoder().encode


class _Meta(msgspec.Struct, gc=False, omit_defaults=True):
    name: str
    namespace: str
    uid: str
    annotations: Mapping[str, str]
    labels: Mapping[str, str] = {}
    resource_version: str = msgspec.field(default="", name="resourceVersion")


class _Target(msgspec.Struct, gc=False):
    name: str
    kind: str = "Node"


class _Binding(msgspec.Struct, gc=False, rename="camel"):
    metadata: _Meta
    target: _Target
    api_version: str = "v1"
    kind: str = "Binding"


def binding_body(effect: BindPod) -> bytes:
    """Node, annotations and labels in one Binding; preconditions: the UID, optionally the version."""
    metadata = _Meta(
        effect.name,
        effect.namespace,
        effect.uid,
        effect.annotations,
        effect.labels,
        effect.resource_version,
    )
    return _encode(_Binding(metadata, _Target(effect.node)))


class _Caused(Item, Protocol):
    @property
    def cause_id(self) -> str:
        """The attempt that caused it."""
        ...


OnceT = TypeVar("OnceT", bound=_Caused)


class OnceLane(Lane[OnceT]):
    """Requests that are sent once each: FIFO over `size` connections, two on each while more wait than those.

    Every submitted item results in exactly one event through `emit_nowait` (table above).
    """

    goes_on = ""
    """Logged when the server answers again after trouble."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        emit_nowait: Callable[[Event], None],
        rng: Random,
        readers: Readers,
        size: int = 16,
        timeout_s: float = 10.0,
        backoff_s: tuple[float, float] = (0.25, 10.0),
        may_send: Callable[[], bool] = always,
    ) -> None:
        """`may_send` is called right before each write: the process may be paused between any two."""
        super().__init__(
            credentials,
            rng=rng,
            size=size,
            depth=DEPTH,
            timeout_s=timeout_s,
            backoff_s=backoff_s,
            readers=readers,
        )
        self._emit = emit_nowait
        self._may_send = may_send
        self._waiting: deque[Call[OnceT]] = deque()
        self._n_doubtful_in_row = 0
        self.n_unknown = 0
        self.n_throttled = 0

    # What a lane of these adds.

    def _target(self, item: OnceT) -> Target:
        """The object that the request is about."""
        raise NotImplementedError

    def _succeeded(self, item: OnceT, body: bytes) -> Event:
        raise NotImplementedError

    def _failed(self, item: OnceT, error: ApiError) -> Event:
        raise NotImplementedError

    def _unknown(self, item: OnceT, why: str, *, refused: bool) -> Event:
        raise NotImplementedError

    def _cancelled(self, item: OnceT) -> Event:
        raise NotImplementedError

    # What all of them do.

    @property
    def n_unsent(self) -> int:
        """Items not yet sent, not even in part."""
        return len(self._waiting)

    @property
    def is_busy(self) -> bool:
        """Whether less urgent requests should wait; between gangs the lane is empty only briefly."""
        return bool(self._waiting) or 4 * self.n_in_flight > self._size

    def submit(self, item: OnceT) -> None:
        """Queue an item; sent at once if a connection is free."""
        self._waiting.append(Call(item))
        self._pump()

    def cancel(self, cause_id: str) -> None:
        """Withdraw this cause's unsent items, and do not resend those that come back."""
        self._take_back(lambda item: item.cause_id == cause_id)

    def cancel_all(self) -> None:
        """Withdraw all unsent items."""
        self._take_back(lambda item: True)

    def _take_back(self, is_meant: Callable[[OnceT], bool]) -> None:
        for connection in self._connections:
            for call in connection.calls:
                if is_meant(call.item):
                    call.is_cancelled = True
        calls, self._waiting = self._waiting, deque()
        for call in calls:
            if is_meant(call.item):
                self._taken_back(call)
            else:
                self._waiting.append(call)

    def _taken_back(self, call: Call[OnceT]) -> None:
        if call.deadline_s:  # sent before and put back; that outcome is unknown
            self._silent(call, "taken back after it was sent")
        else:
            self._emit(self._cancelled(call.item))

    def _next(self, now_s: float) -> Call[OnceT] | None:
        return self._waiting.popleft() if self._waiting and self._may_send() else None

    def _put_back(self, call: Call[OnceT]) -> None:
        if call.is_cancelled:
            self._taken_back(call)
        else:
            # Behind earlier ones that were put back too; an item that was never sent has no deadline.
            n_before = sum(1 for _ in takewhile(lambda o: 0 < o.deadline_s <= call.deadline_s, self._waiting))
            self._waiting.insert(n_before, call)

    def _done(self, call: Call[OnceT], body: bytes) -> None:
        self._n_doubtful_in_row = 0
        self._emit(self._succeeded(call.item, body))

    def _refused(self, call: Call[OnceT], error: ApiError) -> None:
        item, code = call.item, error.code
        target = self._target(item)
        if is_doubtful(error, target):
            self._doubt(call, error, f"{target.namespace}/{target.name}")
            self._n_doubtful_in_row += 1
        if code in (401, 429) or code >= 500 or self._n_doubtful_in_row > _MAX_DOUBTFUL_IN_ROW:
            self._pause(error)
        if code == 429:
            self.n_throttled += 1
            self._put_back(call)
        elif is_refusal(error, target):
            self._emit(self._failed(item, error))
        else:
            self._silent(call, str(error), refused=names_nothing(error) and code in _ABOUT_THE_REQUEST)

    def _silent(self, call: Call[OnceT], why: str, *, refused: bool = False) -> None:
        self.n_unknown += 1
        self._emit(self._unknown(call.item, why, refused=refused))

    def _recovered(self) -> None:
        super()._recovered()
        if not self._is_troubled:
            _log.info(self.goes_on)


class BindingLane(OnceLane[BindPod]):
    """Sends binds; each results in one of BindSucceeded, BindFailed, BindUnknown, BindCancelled."""

    name = "bind a pod"
    goes_on = "binds are going out again"

    def _target(self, item: BindPod) -> Target:
        return pod(item.namespace, item.name)

    def _request(self, call: Call[BindPod]) -> tuple[Verb, str, bytes]:
        return _POST, pod_path(call.item, "binding"), binding_body(call.item)

    def _proves(self, call: Call[BindPod], body: bytes) -> bool:
        return body == _BOUND or is_success(body)

    def _succeeded(self, item: BindPod, body: bytes) -> BindSucceeded:
        return BindSucceeded(item.uid, item.attempt)

    def _failed(self, item: BindPod, error: ApiError) -> BindFailed:
        return BindFailed(item.uid, item.attempt, error.code, error.reason, error.message)

    def _unknown(self, item: BindPod, why: str, *, refused: bool) -> BindUnknown:
        return BindUnknown(item.uid, item.attempt, why, refused)

    def _cancelled(self, item: BindPod) -> BindCancelled:
        return BindCancelled(item.uid, item.attempt)
