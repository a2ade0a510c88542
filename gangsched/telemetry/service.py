"""Tracing: the tracer and its exporters as one object, passed to a scheduler.

Called by the command line, which makes it, hands it to app.SchedulerApp, and closes it when the loop has
ended. Importing this loads OpenTelemetry; a scheduler without traces does not.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from opentelemetry.sdk.resources import OTELResourceDetector, Resource

from gangsched import __version__
from gangsched.config import TracingSettings
from gangsched.model.effects import Effect
from gangsched.model.events import Event
from gangsched.telemetry import names
from gangsched.telemetry.sending.export import Output, SpanLane
from gangsched.telemetry.sending.otlp_json import FileExporter
from gangsched.telemetry.settings import shown
from gangsched.telemetry.tracer import GangTracer

FLUSH_S = 5.0


class Tracing:
    """Traces of one scheduler, by its settings. Raises: ConfigError, when the file cannot be written."""

    def __init__(self, settings: TracingSettings) -> None:
        lanes = []
        if settings.file:
            lanes.append(SpanLane(FileExporter(Path(settings.file)), settings.file))
        if settings.endpoint:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            from gangsched.telemetry.sending.collector_answers import Answers

            answers = Answers()
            exporter = OTLPSpanExporter(endpoint=settings.endpoint, session=answers.session())
            lanes.append(SpanLane(exporter, shown(settings.endpoint), refused=answers.refused))
        self.output = Output(lanes)
        self.tracer = GangTracer(
            self.output.emit, resource=_resource(), ratio=settings.sampling_ratio, keep=settings.keep
        )

    def note_events(self, events: Sequence[Event]) -> None:
        """Takes in events before the core handles them."""
        self.tracer.note_events(events)

    def turn_ended(self, effects: Sequence[Effect]) -> Sequence[Effect]:
        """Returns the turn's effects, with our traceparent in every Binding."""
        return self.tracer.turn_ended(effects)

    def close(self, timeout_s: float = FLUSH_S) -> None:
        """Ends open spans and flushes. Blocks, so do not call it from a loop with other work."""
        self.tracer.stop()
        self.output.close(timeout_s)

    def statistics(self) -> dict[str, int]:
        """Counts of spans, over all exporters."""
        lanes = self.output.lanes
        return {
            "spans_exported": sum(lane.n_exported for lane in lanes),
            "spans_dropped": sum(lane.n_dropped for lane in lanes),
            "spans_failed": sum(lane.n_failed for lane in lanes),
        }


def _resource() -> Resource:
    """Describes the reporting process; OTEL_RESOURCE_ATTRIBUTES may add attributes, not replace our name."""
    own = {
        "service.name": names.SERVICE,
        "service.version": __version__,
        # Unique to the process, like our identity in a Lease.
        "service.instance.id": f"{os.uname().nodename}_{os.urandom(8).hex()}",
    }
    return OTELResourceDetector().detect().merge(Resource(own))
