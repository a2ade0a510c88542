"""The W3C `traceparent` of annotations, in and out.

Called by telemetry.tracer. Source: W3C Trace Context, which OpenTelemetry's propagator reads for us.
"""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry.context import Context
from opentelemetry.trace import SpanContext, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gangsched.core.types.group import Group, MemberState
from gangsched.telemetry.names import MAX_LOOKED_AT, TRACEPARENT_KEY

_read = TraceContextTextMapPropagator().extract
# The propagator logs values longer than its own limit; the tracer reports bad values.
_MAX_CHARS = 512


def parse(text: str) -> SpanContext | None:
    """The context in a traceparent; None if it is invalid."""
    if len(text) > _MAX_CHARS:
        return None
    context = get_current_span(_read({"traceparent": text}, Context())).get_span_context()
    return context if context.is_valid else None


def written(trace_id: int, span_id: int, *, sampled: bool) -> str:
    """Formats a traceparent of version 00."""
    return f"00-{trace_id:032x}-{span_id:016x}-{'01' if sampled else '00'}"


def of_bound_members(group: Group) -> SpanContext | None:
    """The trace in which an earlier process bound the group's members."""
    for i, info in enumerate(group.in_state(MemberState.BOUND)):
        if i >= MAX_LOOKED_AT:
            break
        annotations: Mapping[str, str] = info.pod.metadata.annotations or {}
        found = parse(annotations.get(TRACEPARENT_KEY, ""))
        if found is not None:
            return found
    return None
