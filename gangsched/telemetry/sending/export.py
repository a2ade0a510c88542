"""Exports ended spans: a bounded queue and a thread for each exporter, without ever blocking the loop.

Lives here: what happens when a collector is down or hangs (spans are dropped, counted and logged), and the
flush at the end. Not here: the protocol (OpenTelemetry's exporter, telemetry.sending.otlp_json). Called by
telemetry.service from the scheduler's loop, and by the exporters' threads.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

import structlog
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from gangsched.model.text.printable import one_line

_log = structlog.get_logger(__name__)

# 9 spans a gang: the output of 900 gangs while a collector does not answer, about 20 MB.
MAX_WAITING = 8192
# The thread holds the interpreter's lock while it encodes a batch: batches are small so that the loop gets it
# back soon.
BATCH = 128
DELAY_MS = 1000.0
SAY_AGAIN_S = 60.0


class LogCapture(logging.Handler):
    """Captures the log of OpenTelemetry's own loggers, which would go to stderr past our log's format."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = one_line(record.getMessage()[:512])

    def begin(self) -> None:
        logger = logging.getLogger("opentelemetry")
        logger.addHandler(self)
        logger.propagate = False

    def end(self) -> None:
        logging.getLogger("opentelemetry").removeHandler(self)


class SpanLane(SpanExporter):
    """One exporter with its queue and thread. `target` is its name in the log.

    refused: returns how many spans of the last batch were refused though it was accepted, and why.
    """

    def __init__(
        self,
        exporter: SpanExporter,
        target: str,
        *,
        max_waiting: int = MAX_WAITING,
        refused: Callable[[], tuple[int, str]] = lambda: (0, ""),
    ) -> None:
        self.target = target
        self._refused = refused
        self.n_offered = 0
        self.n_dropped = 0
        self.n_exported = 0
        self.n_failed = 0
        self._n_taken = 0
        self._max_waiting = max_waiting
        self._exporter = exporter
        self._failing = False
        self._say_again_s = 0.0
        self._why = ""
        self._capture = LogCapture()
        self._capture.begin()
        # Larger than our own queue: it must never drop by itself, since it does not report drops.
        self._processor = BatchSpanProcessor(
            self,
            max_queue_size=max_waiting + BATCH,
            schedule_delay_millis=DELAY_MS,
            max_export_batch_size=BATCH,
        )

    @property
    def n_waiting(self) -> int:
        """Spans not yet passed to the exporter."""
        return self.n_offered - self.n_dropped - self._n_taken

    @property
    def n_lost(self) -> int:
        return self.n_dropped + self.n_failed

    def offer(self, span: ReadableSpan) -> None:
        """Queue the span, or drop it when the queue is full. Never blocks."""
        self.n_offered += 1
        if self.n_waiting > self._max_waiting:
            self.n_dropped += 1
            self._trouble("spans are dropped: the exporter does not keep up")
        else:
            self._processor.on_end(span)

    def close(self, timeout_s: float) -> None:
        """Exports the queue for up to `timeout_s`; then gives up and logs the loss."""
        thread = threading.Thread(target=self._processor.shutdown, name="spans-flush", daemon=True)
        thread.start()
        thread.join(timeout_s)
        if thread.is_alive():
            self._exporter.shutdown()
        n_lost = self.n_offered - self.n_exported
        if n_lost:
            _log.warning("spans were not exported", to=self.target, n_lost=n_lost, err=self._why)
        self._capture.end()

    # -- in the exporter's thread ----------------------------------------------------------------------

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self._n_taken += len(spans)
        why = ""
        try:
            result = self._exporter.export(spans)
        except Exception as error:  # a full disk, a bug of the exporter: lose only spans
            result, why = SpanExportResult.FAILURE, one_line(f"{type(error).__name__}: {error}"[:512])
        n_refused, message = self._refused() if result is SpanExportResult.SUCCESS else (0, "")
        if n_refused > 0:
            n_refused = min(n_refused, len(spans))  # a collector may report any number
            self.n_exported += len(spans) - n_refused
            self.n_failed += n_refused
            self._failing = True
            self._why = message
            self._trouble("the collector refuses spans")
        elif result is SpanExportResult.SUCCESS:
            self.n_exported += len(spans)
            if self._failing:
                self._failing = False
                self._say_again_s = 0.0
                _log.info("spans are exported again", to=self.target, n_lost=self.n_lost)
        else:
            self.n_failed += len(spans)
            self._failing = True
            self._why = why or self._capture.last
            self._trouble("spans cannot be exported")
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Nothing is buffered here."""
        return True

    def _trouble(self, what: str) -> None:
        now_s = time.monotonic()
        if now_s >= self._say_again_s:
            self._say_again_s = now_s + SAY_AGAIN_S
            _log.warning(what, to=self.target, n_lost=self.n_lost, err=self._why)


class Output:
    """All lanes: each span goes to every one."""

    def __init__(self, lanes: Sequence[SpanLane]) -> None:
        self.lanes = tuple(lanes)

    def emit(self, span: ReadableSpan) -> None:
        for lane in self.lanes:
            lane.offer(span)

    def close(self, timeout_s: float) -> None:
        """Flushes all lanes, within one lane's time limit in all."""
        deadline_s = time.monotonic() + timeout_s
        threads = [
            threading.Thread(target=lane.close, args=(timeout_s,), name="spans-close", daemon=True)
            for lane in self.lanes
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, deadline_s + 0.5 - time.monotonic()))
