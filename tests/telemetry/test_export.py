"""Where spans go: nobody waits for an exporter, what is lost is counted, what can be delivered is."""

from __future__ import annotations

import gzip
import os
import threading
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from urllib3.response import GzipDecoder

from gangsched.config import TracingSettings
from gangsched.errors import ConfigError
from gangsched.lab.controlplane.daemon import free_ports
from gangsched.telemetry.sending.export import SpanLane
from gangsched.telemetry.sending.otlp_json import FileExporter, encode_line
from gangsched.telemetry.service import Tracing
from gangsched.telemetry.showing.reading import from_file
from tests.support.scenario import gang
from tests.telemetry.traced import Traced

MADE = Traced(nodes=1).submit(gang("a", pods=1)).run().spans


def spans(n: int) -> list[ReadableSpan]:
    """Those of one gang, again and again."""
    return [MADE[i % len(MADE)] for i in range(n)]


class Gate(SpanExporter):
    """An exporter that hangs until it is let go."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.n_exported = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.open.wait(60)
        self.n_exported += len(spans)
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self.open.set()


@contextmanager
def collector(
    status: int = 200, *, hangs: threading.Event | None = None
) -> Iterator[tuple[str, list[bytes]]]:
    """An HTTP server that takes everything and answers `status`, or nothing until `hangs` is set."""
    taken: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            taken.append(self.rfile.read(int(self.headers["Content-Length"])))
            if hangs is not None:
                hangs.wait(60)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Not onto the test's stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1/traces", taken
    finally:
        if hangs is not None:
            hangs.set()
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def talkative(most: int) -> Iterator[tuple[str, list[int]]]:
    """A collector whose answer has so many bytes, with how many of them each connection took."""
    sent: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            n, part = 0, b"x" * 2**16
            try:
                while n < most:
                    self.wfile.write(part)
                    n += len(part)
            except OSError:
                pass
            sent.append(n)

        def log_message(self, format: str, *args: object) -> None:
            """Not onto the test's stderr."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1/traces", sent
        finally:
            server.shutdown()
            thread.join()


def test_of_a_collectors_answer_only_the_begin_is_read() -> None:
    with talkative(2**28) as (url, sent):
        tracing = Tracing(TracingSettings(endpoint=url))
        for span in spans(3):
            tracing.output.emit(span)
        tracing.close(30.0)
    assert tracing.output.lanes[0].n_exported == 3
    assert len(sent) == 1
    assert sent[0] < 2**26


@contextmanager
def saying(code: int, reason: str, body: bytes = b"", **headers: str) -> Iterator[str]:
    """A collector that gives everybody the same answer."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(code, reason)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Not onto the test's stderr."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1/traces"
        finally:
            server.shutdown()
            thread.join()


def three_sent(url: str) -> tuple[tuple[int, int], Sequence[MutableMapping[str, Any]]]:
    """(how many of three spans were exported, how many failed), and what was logged."""
    tracing = Tracing(TracingSettings(endpoint=url))
    with structlog.testing.capture_logs() as logs:
        for span in spans(3):
            tracing.output.emit(span)
        tracing.close(30.0)
    lane = tracing.output.lanes[0]
    return (lane.n_exported, lane.n_failed), logs


@pytest.mark.parametrize("code", [301, 302, 307, 308])
def test_a_collectors_redirect_is_reported_and_counts_as_a_failure(code: int) -> None:
    """Its redirect was taken for success: all spans were lost, and counted as exported."""
    with saying(code, "Elsewhere", Location="https://127.0.0.1:1/") as url:
        (n_exported, n_failed), logs = three_sent(url)
    assert (n_exported, n_failed) == (0, 3)
    assert f"it redirects, with code {code}" in logs[-1]["err"]


@pytest.mark.parametrize(("refused", "counted"), [(2, 2), (10**12, 3), (-1, 0)])
def test_spans_that_a_collector_refuses_of_a_batch_are_counted(refused: int, counted: int) -> None:
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = refused
    answer.partial_success.error_message = "no\nroom"
    with saying(200, "OK", answer.SerializeToString()) as url:
        (n_exported, n_failed), logs = three_sent(url)
    assert (n_exported, n_failed) == (3 - counted, counted)
    said = [line["err"] for line in logs if line["event"] == "the collector refuses spans"]
    assert said == (["no\\x0aroom"] if counted else [])


def test_an_answer_that_is_compressed_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked: list[int] = []
    real = GzipDecoder.decompress

    def counted(decoder: GzipDecoder, *args: Any, **more: Any) -> bytes:
        found = real(decoder, *args, **more)
        unpacked.append(len(found))
        return found

    monkeypatch.setattr(GzipDecoder, "decompress", counted)
    with saying(200, "OK", gzip.compress(bytes(2**22)), Content_Encoding="gzip") as url:
        tracing = Tracing(TracingSettings(endpoint=url))
        for span in spans(3):
            tracing.output.emit(span)
        tracing.close(30.0)
    assert tracing.output.lanes[0].n_exported == 3
    assert unpacked == []


def test_what_a_collector_says_is_one_line_that_no_terminal_obeys() -> None:
    with saying(400, "\x1b[31mNo") as url:
        tracing = Tracing(TracingSettings(endpoint=url))
        with structlog.testing.capture_logs() as logs:
            for span in spans(3):
                tracing.output.emit(span)
            tracing.close(30.0)
    assert logs[-1]["err"].isprintable()


def test_an_exporter_that_hangs_delays_nothing() -> None:
    gate = Gate()
    lane = SpanLane(gate, "a collector", max_waiting=200)
    with structlog.testing.capture_logs() as logs:
        for span in spans(1000):
            lane.offer(span)  # would hang here for ever
    assert lane.n_dropped > 0
    assert lane.n_waiting <= 200
    assert [line["event"] for line in logs] == ["spans are dropped: the exporter does not keep up"], "once"
    gate.open.set()
    lane.close(30.0)
    assert lane.n_exported == gate.n_exported == 1000 - lane.n_dropped


def test_closing_gives_up_on_an_exporter_that_hangs() -> None:
    gate = Gate()
    gate.shutdown = lambda: None  # type: ignore[method-assign]
    lane = SpanLane(gate, "a collector")
    for span in spans(10):
        lane.offer(span)
    with structlog.testing.capture_logs() as logs:
        lane.close(0.1)
    gate.open.set()
    assert [(line["event"], line["n_lost"]) for line in logs] == [("spans were not exported", 10)]


def test_closing_delivers_everything_to_a_collector_that_is_up() -> None:
    with collector() as (url, taken):
        lane = SpanLane(OTLPSpanExporter(endpoint=url), url)
        for span in spans(1000):
            lane.offer(span)
        lane.close(30.0)
    assert lane.n_exported == 1000
    assert sum(len(body) for body in taken) > 1000 * 50


def test_a_collector_that_is_down_is_logged_once_with_the_reason() -> None:
    [port] = free_ports(1)
    with structlog.testing.capture_logs() as logs:
        lane = SpanLane(OTLPSpanExporter(endpoint=f"http://127.0.0.1:{port}/v1/traces", timeout=0.1), "it")
        for span in spans(300):
            lane.offer(span)
        lane.close(30.0)
    assert (lane.n_exported, lane.n_failed) == (0, 300)
    warned, closed = logs
    assert warned["event"] == "spans cannot be exported"
    assert warned["err"]
    assert (closed["event"], closed["n_lost"]) == ("spans were not exported", 300)


def test_a_collector_that_hangs_costs_its_timeout_and_nothing_else() -> None:
    hangs = threading.Event()
    with collector(hangs=hangs) as (url, _):
        lane = SpanLane(OTLPSpanExporter(endpoint=url, timeout=0.2), url)
        for span in spans(10):
            lane.offer(span)
        lane.close(30.0)
    assert (lane.n_exported, lane.n_failed) == (0, 10)


def test_a_collector_that_refuses_and_then_takes(tmp_path: Path) -> None:
    class Moody(SpanExporter):
        results = iter([SpanExportResult.FAILURE, SpanExportResult.SUCCESS])

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            return next(self.results)

    lane = SpanLane(Moody(), "it")
    with structlog.testing.capture_logs() as logs:
        assert lane.export(spans(5)) is SpanExportResult.FAILURE
        assert lane.export(spans(5)) is SpanExportResult.SUCCESS
    assert [line["event"] for line in logs] == ["spans cannot be exported", "spans are exported again"]
    lane.close(30.0)


def test_a_gang_is_found_in_what_stood_in_the_file_before_it_grew_to_its_limit(tmp_path: Path) -> None:
    """Both parts of a trace that was written while the file was renamed are its trace."""
    path = tmp_path / "traces.jsonl"
    c = Traced(nodes=1).submit(gang("a", pods=2)).run()
    exporter = FileExporter(path, max_bytes=1)
    half = len(c.spans) // 2
    for some in (c.spans[:half], c.spans[half:]):
        exporter.export(some)
    exporter.shutdown()
    assert (tmp_path / "traces.jsonl.1").exists()
    [trace] = from_file(path, "d/a")
    assert len(trace.spans) == len(c.spans)


def test_a_file_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    c = Traced(nodes=1).submit(gang("a", pods=2)).run()
    lane = SpanLane(FileExporter(path), str(path))
    for span in c.spans:
        lane.offer(span)
    lane.close(30.0)
    [trace] = from_file(path, "d/a")
    assert {span.span_id for span in trace.spans} == {
        f"{s.context.span_id:016x}" for s in c.spans if s.context
    }
    [root] = c.named("schedule gang")
    assert trace.root is not None
    assert (trace.root.start_ns, trace.root.end_ns) == (root.start_time, root.end_time)
    plain = {key: list(v) if isinstance(v, tuple) else v for key, v in (root.attributes or {}).items()}
    assert trace.root.attributes == plain


def test_a_file_does_not_grow_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    line = encode_line(spans(1))
    exporter = FileExporter(path, max_bytes=len(line) * 3)
    for _ in range(5):
        exporter.export(spans(1))
    exporter.shutdown()
    assert path.stat().st_size == 2 * len(line)
    assert (tmp_path / "traces.jsonl.1").stat().st_size == 3 * len(line)


def test_a_file_that_cannot_be_written_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere/traces.jsonl: cannot be written: No such file"):
        FileExporter(tmp_path / "nowhere" / "traces.jsonl")


@pytest.mark.parametrize("has_reader", [False, True])
def test_a_named_pipe_in_the_place_of_the_file_is_not_waited_for(tmp_path: Path, has_reader: bool) -> None:
    path = tmp_path / "traces.jsonl"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK) if has_reader else -1
    with pytest.raises(ConfigError, match="cannot be written: it is a pipe or a terminal, and no file"):
        FileExporter(path)
    if has_reader:
        os.close(reader)


def test_a_file_that_was_moved_or_deleted_is_made_again_once_its_directory_is_there(tmp_path: Path) -> None:
    place = tmp_path / "traces"
    place.mkdir()
    path = place / "traces.jsonl"
    lane = SpanLane(FileExporter(path), str(path))
    with structlog.testing.capture_logs() as logs:
        assert lane.export(spans(1)) is SpanExportResult.SUCCESS
        path.rename(tmp_path / "moved")
        assert lane.export(spans(1)) is SpanExportResult.SUCCESS
        assert path.read_bytes().count(b"\n") == 1
        path.unlink()
        place.rmdir()
        assert [lane.export(spans(1)) for _ in range(3)] == [SpanExportResult.FAILURE] * 3
        place.mkdir()
        assert lane.export(spans(1)) is SpanExportResult.SUCCESS
    assert [one["event"] for one in logs] == ["spans cannot be exported", "spans are exported again"]
    assert "No such file or directory" in logs[0]["err"]
    lane.close(30.0)


def test_a_full_file_that_cannot_be_renamed_costs_spans_until_it_can(tmp_path: Path) -> None:
    """As in a directory that has become read-only; the exporter once wrote nothing any more."""
    path = tmp_path / "traces.jsonl"
    exporter = FileExporter(path, max_bytes=1)
    lane = SpanLane(exporter, str(path))
    lane.export(spans(1))
    (tmp_path / "traces.jsonl.1").mkdir()
    with structlog.testing.capture_logs() as logs:
        assert [lane.export(spans(1)) for _ in range(3)] == [SpanExportResult.FAILURE] * 3
        (tmp_path / "traces.jsonl.1").rmdir()
        assert lane.export(spans(1)) is SpanExportResult.SUCCESS
    assert [one["event"] for one in logs] == ["spans cannot be exported", "spans are exported again"]
    assert path.read_bytes().count(b"\n") == 1
    lane.close(30.0)


def test_a_file_that_somebody_empties_has_no_hole_when_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "traces.jsonl"
    exporter = FileExporter(path)
    exporter.export(spans(1))
    os.truncate(path, 0)
    monkeypatch.setattr(exporter, "_file", HalfFull(exporter._file, exporter._file.write))
    with pytest.raises(OSError, match="the disk is full"):
        exporter.export(spans(1))
    assert path.read_bytes() == b""
    exporter.shutdown()


def test_a_full_disk_costs_spans_and_leaves_no_half_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "traces.jsonl"
    exporter = FileExporter(path)
    exporter.export(spans(1))
    before = path.read_bytes()
    full = exporter._file.write
    monkeypatch.setattr(exporter, "_file", HalfFull(exporter._file, full))
    lane = SpanLane(exporter, str(path))
    with structlog.testing.capture_logs() as logs:
        assert lane.export(spans(1)) is SpanExportResult.FAILURE
    assert "the disk is full" in logs[0]["err"]
    assert path.read_bytes() == before
    lane.close(30.0)


class HalfFull:
    """A file on a disk that has room for half of what is written."""

    def __init__(self, file: object, write: object) -> None:
        self._file, self._write = file, write

    def write(self, data: bytes) -> int:
        return int(self._write(data[: len(data) // 2]))  # type: ignore[operator]

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)
