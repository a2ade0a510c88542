"""Reads the refusals that a controller got when it created pods: the Events FailedCreate of its object.

Lives here: the request, and which of the Events counts. Not here: when to ask (core.groups.members.refusals).
For people only, so nothing is retried: the core asks again by itself.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from urllib.parse import quote

import msgspec

from gangsched.errors import ApiError
from gangsched.kube.effects.slow_lane import SlowLane
from gangsched.kube.evidence import Target
from gangsched.kube.transport.http1 import Verb, segment
from gangsched.kube.transport.lane_connection import Call
from gangsched.model.effects import ReadRefusals
from gangsched.model.events import RefusalsRead
from gangsched.model.text import bounded

_GET = Verb("GET")
# The Events come sorted by name, so the oldest first, and are kept for an hour: a controller that retries
# often writes dozens in that time.
_MAX_EVENTS = 200
# Controllers back off for up to a quarter of an hour; an older refusal may be over.
FRESH_S = 1_200.0


class _Series(msgspec.Struct, rename="camel"):
    last_observed_time: datetime | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    creation_timestamp: datetime | None = None


class _Regarding(msgspec.Struct):
    name: str = ""


class FailedCreate(msgspec.Struct, rename="camel"):
    """An Event of that reason. regarding: the object that could not create more."""

    regarding: _Regarding = msgspec.field(default_factory=_Regarding)
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    note: str = ""
    event_time: datetime | None = None
    deprecated_last_timestamp: datetime | None = None
    series: _Series | None = None

    @property
    def last(self) -> float:
        """Unix time at which it was seen last."""
        times = (
            self.series.last_observed_time if self.series is not None else None,
            self.deprecated_last_timestamp,
            self.event_time,
            self.metadata.creation_timestamp,
        )
        return next((at.astimezone(UTC).timestamp() for at in times if at is not None), 0.0)


class _EventList(msgspec.Struct):
    kind: str
    items: list[FailedCreate] = []


_decode = bounded.lenient_decoder(_EventList)


class RefusalsLane(SlowLane[ReadRefusals]):
    """Sends over one connection, after the binds."""

    name = "read a controller's events"
    method = "GET"
    yield_s = 2.0

    def _request(self, call: Call[ReadRefusals]) -> tuple[Verb, str, bytes]:
        return _GET, refusals_path(call.item), b""

    def _target(self, call: Call[ReadRefusals]) -> Target:
        return Target("events", "Event", "", call.item.namespace, "events.k8s.io")

    def _proves(self, call: Call[ReadRefusals], body: bytes) -> bool:
        try:
            return _decode(body).kind == "EventList"
        except ValueError:
            return False

    def _done(self, call: Call[ReadRefusals], body: bytes) -> None:
        item = call.item
        found = last_refusal(body, time.time())
        self._emit(RefusalsRead(item.group, item.kind, item.name, found))

    def _again(self, call: Call[ReadRefusals], error: ApiError) -> bool:
        return False


def refusals_path(item: ReadRefusals) -> str:
    """Returns the path of the controller's Events FailedCreate, limited in number."""
    fields = quote(f"regarding.uid={item.uid},reason=FailedCreate", safe="")
    namespace = segment(item.namespace)
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    return f"{path}?fieldSelector={fields}&limit={_MAX_EVENTS}"


def last_refusal(body: bytes, now_s: float) -> str:
    """Returns the newest Event's note; "" if none is recent enough to still apply."""
    newest = max(_decode(body).items, key=lambda one: one.last, default=None)
    return newest.note if newest is not None and newest.last > now_s - FRESH_S else ""
