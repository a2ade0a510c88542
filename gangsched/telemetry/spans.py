"""Spans of one trace, built when they end, and their open state until then.

Lives here: ids, times, attributes and events in the exporters' form. Not here: when anything begins or ends
(telemetry.gang_trace, the only caller). Spans are built as ReadableSpans, the exporters' own input, not by a
Tracer. A tracer's span costs 19 us and exists while its gang waits; this one costs 4 us and nothing before
its end. And a root that another process began keeps its id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from gangsched.telemetry.names import (
    EVENTS_UNTOLD,
    MAX_EVENTS,
    MAX_PLAIN_EVENTS,
    TROUBLE,
    VERDICT,
)

Value = str | int | bool | Sequence[str]
Attributes = dict[str, Value]

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_UNSET = Status(StatusCode.UNSET)
_ERROR = Status(StatusCode.ERROR)


class OpenSpan:
    """A span that has begun. Times are of the tracer's clock, ns."""

    __slots__ = ("attributes", "began_ns", "events", "links", "n_unwritten", "name", "span_id")

    def __init__(self, name: str, span_id: int, began_ns: int) -> None:
        self.name = name
        self.span_id = span_id
        self.began_ns = began_ns
        self.attributes: Attributes = {}
        self.events: list[tuple[str, int, Attributes]] = []
        self.links: list[Link] = []
        self.n_unwritten = 0

    def event(
        self, name: str, at_ns: int, attributes: Attributes, *, trouble: bool = False, limit: int = MAX_EVENTS
    ) -> None:
        """Adds an event, or counts it when there are many; failures have their own share of the limit."""
        if len(self.events) < min(limit, MAX_EVENTS if trouble else MAX_PLAIN_EVENTS):
            self.events.append((name, at_ns, attributes))
        else:
            self.n_unwritten += 1


class SpanMaker:
    """Makes one trace's spans. offset_ns: from the tracer's clock to Unix time, fixed for the trace."""

    __slots__ = ("_resource", "_scope", "offset_ns", "root_id", "trace_id")

    def __init__(
        self, trace_id: int, root_id: int, offset_ns: int, resource: Resource, scope: InstrumentationScope
    ) -> None:
        self.trace_id = trace_id
        self.root_id = root_id
        self.offset_ns = offset_ns
        self._resource = resource
        self._scope = scope

    def context(self, span_id: int) -> SpanContext:
        return SpanContext(self.trace_id, span_id, False, _SAMPLED)

    def link(self, span_id: int, attributes: Mapping[str, str]) -> Link:
        """A link to another span of this trace."""
        return Link(self.context(span_id), attributes)

    def end(self, span: OpenSpan, end_ns: int, *, parent_id: int | None) -> ReadableSpan:
        """The span for export. Attributes may be added until it is exported."""
        attributes, offset_ns = span.attributes, self.offset_ns
        if span.n_unwritten:
            attributes[EVENTS_UNTOLD] = span.n_unwritten
        return ReadableSpan(
            span.name,
            self.context(span.span_id),
            None if parent_id is None else self.context(parent_id),
            self._resource,
            attributes,
            [Event(name, more, at_ns + offset_ns) for name, at_ns, more in span.events],
            span.links,
            status=_ERROR if attributes.get(VERDICT) in TROUBLE else _UNSET,
            start_time=span.began_ns + offset_ns,
            end_time=max(end_ns, span.began_ns) + offset_ns,
            instrumentation_scope=self._scope,
        )


def new_ids(ids: IdGenerator) -> tuple[int, int]:
    """A trace's id and its root's."""
    return ids.generate_trace_id(), ids.generate_span_id()
