"""`gangsched replay --trace-endpoint`: the spans of a recorded day, with its times, complete."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from gangsched.command.cli import main
from gangsched.journal.records import End, Start
from gangsched.journal.replay import tracing
from gangsched.telemetry import names
from tests.journal.kept import Kept
from tests.journal.test_command import a_gang, day, long_day
from tests.telemetry.test_export import collector

_SAID = re.compile(r"([\d,]+) traces?, ([\d,]+) spans?, were sent")


def sent(directory: Path, kept: Kept, capsys: pytest.CaptureFixture[str], *flags: str) -> list[Span]:
    """What a collector has when the command ends; as many as it says."""
    kept.write_to(directory)
    with collector() as (url, taken):
        assert main(["replay", str(directory), "--trace-endpoint", url, *flags]) == 0
    out = capsys.readouterr().out
    found = []
    for body in taken:
        request = ExportTraceServiceRequest.FromString(body)
        found += [one for r in request.resource_spans for s in r.scope_spans for one in s.spans]
    (n_traces, n_spans) = _SAID.findall(out)[0]
    assert len(found) == int(n_spans.replace(",", ""))
    assert sum(not one.parent_span_id for one in found) == int(n_traces.replace(",", ""))
    assert "all as recorded" in out
    return found


def gang_of(span: Span) -> str:
    return next((one.value.string_value for one in span.attributes if one.key == names.GROUP), "")


def test_a_days_traces_are_whole_and_have_its_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seven spans in a batch: the last are sent too."""
    monkeypatch.setattr(tracing, "_BATCH", 7)
    spans = sent(tmp_path, day(), capsys)
    first, last = day().records[0], day().records[-1]
    assert isinstance(first, Start)
    assert isinstance(last, End)
    ids = {one.span_id for one in spans}
    assert len(ids) == len(spans)
    assert {one.parent_span_id for one in spans} - ids == {b""}, "every parent is there"
    for one in spans:
        assert first.wall_s - 1e-3 <= one.start_time_unix_nano / 1e9 <= one.end_time_unix_nano / 1e9
        assert one.end_time_unix_nano / 1e9 <= first.wall_s + last.now_s - first.now_s + 1e-3
    [root] = [one for one in spans if one.name == names.GANG and gang_of(one) == a_gang()]
    about = Counter(one.name for one in spans if one.trace_id == root.trace_id)
    for name in (names.GATHERING, names.ATTEMPT, names.QUEUE_WAIT, names.CYCLE, names.RESERVE, names.BIND):
        assert about[name], (name, about)
    [bind] = [one for one in spans if one.trace_id == root.trace_id and one.name == names.BIND]
    assert bind.events
    assert all(bind.start_time_unix_nano < event.time_unix_nano for event in bind.events)
    assert root.end_time_unix_nano > root.start_time_unix_nano


def test_until_ends_the_spans_of_gangs_that_wait(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = sent(tmp_path, day(), capsys)
    some = sent(tmp_path, day(), capsys, "--until", "+2s")
    assert 0 < len(some) < len(whole)
    assert {one.parent_span_id for one in some} - {one.span_id for one in some} <= {b""}


def test_a_collector_that_refuses_is_a_mistake_of_the_user(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    day().write_to(tmp_path)
    with collector(400) as (url, _):
        assert main(["replay", str(tmp_path), "--trace-endpoint", url]) == 2
    assert f"--trace-endpoint: {url} does not take spans: " in capsys.readouterr().err


def test_an_endpoint_at_which_nothing_answers_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "_TIMEOUT_S", 0.5)
    day().write_to(tmp_path)
    assert main(["replay", str(tmp_path), "--trace-endpoint", "http://127.0.0.1:1"]) == 2
    assert "http://127.0.0.1:1/v1/traces does not take spans: " in capsys.readouterr().err
    assert main(["replay", str(tmp_path), "--trace-endpoint", "localhost"]) == 2
    assert "--trace-endpoint: 'localhost' is not the URL of a collector" in capsys.readouterr().err


def test_the_state_of_a_core_that_was_not_observed_has_no_traces(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The pages observe it; without them, traces begin where the journal does."""
    long_day().write_to(tmp_path)
    with collector() as (url, _):
        assert main(["replay", str(tmp_path), "--trace-endpoint", url, "--from", "+300s"]) == 2
        assert "had neither pages nor traces" in capsys.readouterr().err
        assert main(["replay", str(tmp_path), "--trace-endpoint", url]) == 0
