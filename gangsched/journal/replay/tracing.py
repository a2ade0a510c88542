"""Traces of a replay: the spans that the scheduler would have sent, with the journal's times.

The tracer is the scheduler's own. Its clock is the journal's, which has the time of each call but not its
duration: spans within a call (Cycle and its points) have no length. Spans are sent as they end, in batches,
and each batch is awaited: a replay has time, and no span may be lost. Called by the command with
`--trace-endpoint`; importing it loads OpenTelemetry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from gangsched import __version__
from gangsched.core.framework.observer import Observer
from gangsched.core.framework.status import Code
from gangsched.errors import ConfigError
from gangsched.journal.records import Start
from gangsched.model.effects import Effect
from gangsched.model.events import Event
from gangsched.model.text.printable import several
from gangsched.telemetry import names
from gangsched.telemetry.sending.collector_answers import Answers
from gangsched.telemetry.sending.export import LogCapture
from gangsched.telemetry.settings import shown
from gangsched.telemetry.tracer import GangTracer

_FLAG = "--trace-endpoint"
_BATCH = 128
# For one batch, including retries and pauses.
_TIMEOUT_S = 10.0


class Collector:
    """Sends spans to a collector. n_spans, n_traces: how many it has taken; a trace counts by its root."""

    def __init__(self, endpoint: str) -> None:
        """endpoint: the full URL, which is tried once. Raises: ConfigError (it does not take spans)."""
        self._target = shown(endpoint)
        self._exporter = OTLPSpanExporter(endpoint=endpoint, timeout=_TIMEOUT_S, session=Answers().session())
        self._waiting: list[ReadableSpan] = []
        self.n_spans = 0
        self.n_traces = 0
        self._export([])

    def take(self, span: ReadableSpan) -> None:
        """Raises: ConfigError."""
        self._waiting.append(span)
        if len(self._waiting) >= _BATCH:
            self.flush()

    def flush(self) -> None:
        """Raises: ConfigError."""
        spans, self._waiting = self._waiting, []
        if spans:
            self._export(spans)
            self.n_spans += len(spans)
            self.n_traces += sum(span.parent is None for span in spans)

    def _export(self, spans: Sequence[ReadableSpan]) -> None:
        capture = LogCapture()
        capture.begin()
        try:
            result = self._exporter.export(spans)
        finally:
            capture.end()
        if result is not SpanExportResult.SUCCESS:
            lost = f"; it has taken {several(self.n_spans, 'span')} before" if self.n_spans else ""
            why = capture.last or "no answer"
            raise ConfigError(f"{self._target} does not take spans: {why}{lost}", path=_FLAG)


class ReplayTraces:
    """The tracer of one replay."""

    def __init__(self, start: Start, process: str, collector: Collector) -> None:
        """process: the journal's name, which distinguishes it in a collector."""
        self._now_s = start.now_s
        ago_ns = int((start.wall_s - start.now_s) * 1e9)
        resource: dict[str, str | bool] = {
            "service.name": names.SERVICE,
            "service.version": start.versions.get("gangsched", __version__),
            "service.instance.id": process,
            "gangsched.replayed": True,
        }
        self._tracer = GangTracer(
            collector.take,
            resource=Resource({**resource}),
            clock_ns=self._clock_ns,
            wall_ns=lambda: self._clock_ns() + ago_ns,
            logs=False,
        )

    def _clock_ns(self) -> int:
        return int(self._now_s * 1e9)

    def observer(self, observed: str) -> Observer:
        """Returns the stand-in for the recorded core's observer."""
        return _OfCalls(self._tracer) if observed == "calls" else self._tracer

    def began(self, events: Sequence[Event], now_s: float) -> None:
        """A call is about to be made."""
        self._now_s = now_s
        self._tracer.note_events(events)

    def ended(self, effects: Sequence[Effect]) -> None:
        self._tracer.turn_ended(effects)

    def stop(self, now_s: float) -> None:
        """Ends the spans of gangs that still wait."""
        self._now_s = max(self._now_s, now_s)
        self._tracer.stop()


class _OfCalls:
    """The tracer in place of an observer of plugins' calls; it ignores those calls."""

    def __init__(self, tracer: GangTracer) -> None:
        self._tracer = tracer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tracer, name)

    def plugin_began(self) -> None: ...
    def plugin_ended(self, plugin: str, point: str, code: Code) -> None: ...
