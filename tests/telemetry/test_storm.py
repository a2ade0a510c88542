"""Traces under simulated storms: crashes, lost answers, evictions, deletions; what holds of every trace."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
import structlog
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from gangsched.config import Settings, default_config
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import Group
from gangsched.lab.sim.faults.mischief import Mischief
from gangsched.lab.sim.objects import at
from gangsched.lab.sim.runs.driver import Simulation
from gangsched.lab.sim.runs.storms import ROUGH
from gangsched.lab.sim.workloads.arrivals import random_workload
from gangsched.model.effects import Effect
from gangsched.model.events import Event
from gangsched.plugins import IN_TREE, build_profiles
from gangsched.telemetry import names
from gangsched.telemetry.sending.export import SpanLane
from gangsched.telemetry.sending.otlp_json import FileExporter
from gangsched.telemetry.tracer import GangTracer
from tests.support.inside import Inside
from tests.telemetry.traced import RESOURCE, said


class TracedScheduler(Scheduler):
    """A scheduler as app.py drives it, with a tracer. Each process has a tracer of its own."""

    def __init__(self, settings: Settings, sink: Callable[[ReadableSpan], None] | None = None) -> None:
        self._now_ns = 0
        self.spans: list[ReadableSpan] = []
        self.tracer = GangTracer(
            sink or self.spans.append,
            resource=RESOURCE,
            clock_ns=lambda: self._now_ns,
            wall_ns=lambda: int(at(0).timestamp() * 1e9) + self._now_ns,
        )
        profiles = build_profiles(default_config(IN_TREE))
        super().__init__(profiles, settings, node_capacity=4, observer=self.tracer)

    def handle(self, events: Sequence[Event], now_s: float) -> list[Effect]:
        self._now_ns = int(now_s * 1e9)
        self.tracer.note_events(events)
        return list(self.tracer.turn_ended(super().handle(events, now_s)))

    def advance(self, now_s: float) -> list[Effect]:
        self._now_ns = int(now_s * 1e9)
        return list(self.tracer.turn_ended(super().advance(now_s)))

    def schedule(self, group: Group, now_s: float) -> list[Effect]:
        self._now_ns = int(now_s * 1e9)
        return list(self.tracer.turn_ended(super().schedule(group, now_s)))


@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_traces_of_a_storm(seed: int, crashes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not crashes:
        monkeypatch.setattr(Mischief, "crash", lambda self: None)
    sim = Simulation(seed, random_workload(seed), rates=ROUGH, make=TracedScheduler)
    processes: dict[int, TracedScheduler] = {}

    def look(sim: Simulation) -> tuple[str, ...]:
        assert isinstance(sim.scheduler, TracedScheduler)
        processes[id(sim.scheduler)] = sim.scheduler  # and not those that the checkers make to compare with
        return ()

    sim.watchers.append(look)
    sim.run_for(40.0)
    sim.settle()
    last = processes[id(sim.scheduler)]
    exist = {group.key for group in Inside(last).groups()}
    assert exist >= last.tracer._traces.keys() | last.tracer._over
    last.tracer.stop()
    spans = [span for process in processes.values() for span in process.spans]
    assert spans
    for process in processes.values():
        check_nesting(process.spans)
    assert crashes or not sim.n_crashes
    by_trace: dict[int, list[ReadableSpan]] = {}
    for span in spans:
        assert span.context
        by_trace.setdefault(span.context.trace_id, []).append(span)
    for of in by_trace.values():
        continued = [span for span in of if said(span, names.CONTINUED)]
        assert crashes or not continued
        # A gang that was whole, lost members and is found half bound by the next process ends its root again.
        once = of if not continued else [span for span in of if span.parent is not None]
        assert len({span.context.span_id for span in once if span.context}) == len(once)
        assert continued or sum(span.parent is None for span in of) <= 1
        for span in of:
            check(span)
            if not sim.n_crashes:
                parents = {one.context.span_id for one in of if one.context}
                assert span.parent is None or span.parent.span_id in parents, f"{span.name} has no parent"


class FullDisk(FileExporter):
    """A file on a disk that has no room left."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_for_the_trace_file_changes_no_decision(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    lane = SpanLane(FullDisk(path), str(path))
    histories = []
    for make in (TracedScheduler, partial(TracedScheduler, sink=lane.offer)):
        sim = Simulation(3, random_workload(3), rates=ROUGH, make=make)
        sim.run_for(40.0)
        sim.settle()
        histories.append([_without_traces(step) for step in sim.history])
    with structlog.testing.capture_logs():
        lane.close(30.0)
    assert histories[0] == histories[1]
    assert lane.n_lost == lane.n_offered > 0


def _without_traces(step: bytes) -> bytes:
    """What was decided; the traces' own numbers differ from process to process."""
    return re.sub(rb'"gangsched.io/traceparent":"[^"]*"', b"", step)


def check_nesting(spans: list[ReadableSpan]) -> None:
    """What one process tells of a whole is around what it tells of the parts, unless it went on with it."""
    known = {span.context.span_id: span for span in spans if span.context}
    for span in spans:
        parent = known.get(span.parent.span_id) if span.parent else None
        if parent is not None and not said(parent, names.CONTINUED):
            assert (parent.start_time or 0) <= (span.start_time or 0)
            assert (span.end_time or 0) <= (parent.end_time or 0)


def check(span: ReadableSpan) -> None:
    """What holds for each span."""
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.start_time <= span.end_time
    if span.name in (names.ATTEMPT, names.CYCLE, names.GANG, names.POD):
        assert said(span, names.VERDICT)
    if span.name == names.BIND and said(span, names.VERDICT) == names.SCHEDULED:
        assert said(span, names.N_BOUND) >= 0
    for event in span.events:
        assert span.start_time <= event.timestamp <= span.end_time
