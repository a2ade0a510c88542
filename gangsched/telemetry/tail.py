"""TailSampling: holds spans of gangs outside the ratio until it is known whether to trace the gang.

Lives here: which gangs are kept, and how much is held. Not here: the ratio (telemetry.tracer), a span's
content (telemetry.gang_trace). A gang is kept as soon as one of its ended spans, the root at the latest,
gives a reason; from then on its spans are sent like those of any other gang. Without a reason it leaves no
span.

    kept as      where one of its spans
    ───────────  ─────────────────────────────────────────────────────────────────────────────────────────
    failed       ended in trouble (given back, a bind failed, bound in part), or unwinds; or the root ends as
                 Gone after a failed attempt, or is another process's
    preempting   is a wait for victims
    slow         ended later than the limit after the gang's first member was seen
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from opentelemetry.sdk.trace import ReadableSpan

from gangsched.config.tracing import KeepTraces
from gangsched.telemetry import names
from gangsched.telemetry.gang_trace import GangTrace

FAILED, PREEMPTING, SLOW = "failed", "preempting", "slow"
# One gang holds at most this fraction of the limit.
_SHARE = 4


class _Held:
    """A gang that is not yet decided. size: spans and events."""

    __slots__ = ("n_unwritten", "size", "spans", "trace", "was_rejected")

    def __init__(self, trace: GangTrace) -> None:
        self.trace = trace
        self.spans: list[ReadableSpan] = []
        self.size = 0
        self.n_unwritten = 0
        self.was_rejected = False


class TailSampling:
    """Holds gangs that the ratio leaves out. `send` takes the spans of kept gangs."""

    def __init__(self, keep: KeepTraces, send: Callable[[list[ReadableSpan]], None]) -> None:
        self._keep = keep
        self._send = send
        self._slower_than_ns = int(keep.slower_than_s * 1e9)
        # Not by trace id: two gangs share one if their bound members' annotations name the same.
        self._held: dict[GangTrace, _Held] = {}
        self.size = 0
        """Spans and events held for all gangs."""

    def begin(self, trace: GangTrace) -> None:
        """Takes the ended spans of this gang from now on."""
        held = self._held[trace] = _Held(trace)
        trace.out = partial(self._take, held)

    def holds(self, trace: GangTrace) -> bool:
        """Whether this gang is not decided yet."""
        return trace in self._held

    def clear(self) -> None:
        """Drops undecided gangs, as the process ends."""
        self._held.clear()
        self.size = 0

    def _take(self, held: _Held, spans: list[ReadableSpan]) -> None:
        why = next((why for span in spans if (why := self._why(held, span))), "")
        is_over = spans[-1].parent is None
        if why or is_over:
            del self._held[held.trace]
            self.size -= held.size
        if why:
            about = held.trace.root.attributes
            about[names.KEPT] = why
            if held.n_unwritten:
                about[names.SPANS_UNTOLD] = held.n_unwritten
            held.trace.out = self._send
            self._send(held.spans + spans)
        elif not is_over:
            self._hold(held, spans)

    def _why(self, held: _Held, span: ReadableSpan) -> str:
        about = span.attributes or {}
        verdict = about.get(names.VERDICT)
        if span.name == names.ATTEMPT and verdict == names.UNSCHEDULABLE:
            held.was_rejected = True
        is_root = span.parent is None
        if self._keep.failed and (
            verdict in names.TROUBLE
            or span.name == names.UNWIND
            or (is_root and verdict == names.GONE and held.was_rejected)
            or (is_root and names.CONTINUED in about)
        ):
            return FAILED
        if self._keep.preempting and any(event.name == names.PREEMPTS for event in span.events):
            return PREEMPTING
        began_ns = held.trace.root.began_ns + held.trace.maker.offset_ns
        if self._slower_than_ns and (span.end_time or 0) - began_ns >= self._slower_than_ns:
            return SLOW
        return ""

    def _hold(self, held: _Held, spans: list[ReadableSpan]) -> None:
        """Beyond the limit a gang's spans are dropped and counted; its root still shows the outcome."""
        size = sum(1 + len(span.events) for span in spans)
        most = self._keep.max_held_spans
        if self.size + size > most or held.size + size > max(1, most // _SHARE):
            held.n_unwritten += len(spans) + len(held.spans)
            self.size -= held.size
            held.size = 0
            held.spans = []
        else:
            self.size += size
            held.size += size
            held.spans += spans
