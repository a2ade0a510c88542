"""`gangsched trace`: what a person sees, and what he is told when there is nothing to see."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from gangsched.certificates import self_signed
from gangsched.command.cli import main
from gangsched.config import TracingSettings
from gangsched.telemetry import names
from gangsched.telemetry.sending.otlp_json import encode_line
from gangsched.telemetry.showing import reading
from gangsched.telemetry.showing.reading import SpanView, TraceView
from gangsched.telemetry.showing.waterfall import draw
from gangsched.web.pages.explanations import Explanations
from tests.support.scenario import cluster, gang, with_annotations
from tests.telemetry.traced import Traced
from tests.web.test_server import serving

# No scheduler listens there.
NOBODY = "--server=https://127.0.0.1:1"
TOTAL_3 = {"gangsched.io/total-members": "3"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A gang `d/train` that timed out in Permit and came back, and one `d/data` that still waits there."""
    c = Traced(nodes=1)
    c.submit(with_annotations(gang("train", pods=2, gpus=2, min_members=2), TOTAL_3)).run().wait(60.0)
    c.submit(with_annotations(gang("train", pods=1, first=2, gpus=2, min_members=2), TOTAL_3))
    c.wait(5.0).run()
    c.submit(with_annotations(gang("data", pods=2, gpus=1, min_members=2), TOTAL_3)).run()
    path = tmp_path / "traces.jsonl"
    path.write_bytes(b"".join(encode_line([span]) for span in c.spans))
    return path


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["trace", *arguments, "--width=100"]) == 0
    return capsys.readouterr().out


def test_a_gang_that_came_back_is_drawn(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, "d/train", f"--file={file}").splitlines()
    assert lines[0].split("  ")[0] == "d/train"
    assert "Scheduled  2 attempts" in lines[0]
    names = [line.split("━")[0].split("╹")[0].rstrip() for line in lines if "━" in line or "╹" in line]
    assert names == [
        "schedule gang",
        "  Gathering",
        "  Attempt 1",
        "    Queue wait",
        "    Cycle",
        "      PreFilter",
        "      Filter",
        "      Reserve",
        "      Permit",
        "    Permit wait",
        "    Unreserve",
        "  Attempt 2",
        "    Queue wait",
        "    Cycle",
        "      PreFilter",
        "      Filter",
        "      Reserve",
        "      Permit",
        "    Bind",
    ]
    text = "\n".join(lines)
    assert "waits for: 2 of 3 members are here" in text
    assert "WaitOnPermit timed out" in text
    assert "train-2 bound on n0" in text
    [wait] = [line for line in lines if "Permit wait" in line]
    assert wait.endswith("60 s GivenBack")
    assert all(len(line) <= 100 for line in lines)


def test_a_gang_that_still_waits_is_drawn_from_the_spans_so_far(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown(capsys, "d/data", f"--file={file}")
    assert "Cycle" in text
    assert "The root has not ended" in text


def test_no_such_gang_names_the_nearest(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "d/trian", f"--file={file}", NOBODY]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "no trace of gang 'd/trian'; there are traces of d/train" in said


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "no trace of gang 'd/a', nor of any other"),
        ("{}\n", "line 1 is not a line of OTLP JSON traces"),
        ('\n{"resourceSpans":[]}\nhello\n', "line 3 is not a line of OTLP JSON traces"),
        ('{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":3}]}]}]}', "line 1 is not"),
        ("[" * 10_000, "line 1 is not"),
    ],
)
def test_a_file_of_something_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, says: str
) -> None:
    path = tmp_path / "other"
    path.write_text(content)
    assert main(["trace", "d/a", f"--file={path}", NOBODY]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"{path}: " in said
    assert says in said


def test_a_file_without_lines_is_not_read_to_its_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gangsched.telemetry.showing.reading.bounded.MAX_ANSWER", 10_000)
    assert main(["trace", "d/a", "--file=/dev/zero", NOBODY]) == 2
    assert "/dev/zero: line 1 is not a line of OTLP JSON traces" in capsys.readouterr().err


def test_a_line_of_countless_values_is_not_parsed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line of 30 MB took 1.3 GB of memory, and one may have 256 MiB."""
    monkeypatch.setattr(reading, "_MAX_VALUES", 1000)
    path = tmp_path / "traces"
    path.write_text('{"resourceSpans":[]}\n{"resourceSpans":[' + "{}," * 1001 + "{}]}\n")
    assert main(["trace", "d/a", f"--file={path}", NOBODY]) == 2
    said = capsys.readouterr().err
    assert f"{path}: line 2 has more than 1000 values, which no exporter writes" in said


def test_a_pipe_is_not_read_since_it_would_have_to_be_read_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of <(zcat old.jsonl.gz) the second reading finds nothing, and of a named pipe it never begins."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert main(["trace", "d/a", f"--file={pipe}", NOBODY]) == 2
    assert f"{pipe}: is a pipe, and a file of traces is read twice: give a file" in capsys.readouterr().err


def test_a_file_whose_name_is_too_long_is_not_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "d/a", f"--file={'x' * 300}", NOBODY]) == 2
    assert "cannot be read: File name too long" in capsys.readouterr().err


@pytest.mark.parametrize("body", [b'[{"x":' + b"[" * 100_000, b'{"a": 1}', b"\xff"])
def test_a_scheduler_that_answers_something_else_is_not_asked_for_the_present_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    path = tmp_path / "traces"
    path.write_text("")
    with answering(200, body) as server:
        assert main(["trace", "d/a", f"--file={path}", f"--server={server}"]) == 2
    said = capsys.readouterr().err
    assert "no trace of gang 'd/a', nor of any other; a trace is written as its parts end" in said
    assert said.count("\n") == 1


def test_a_number_out_of_range_is_shown_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gang = {"key": names.GROUP, "value": {"intValue": "9" * 5000}}
    times = {"startTimeUnixNano": "1", "endTimeUnixNano": "2"}
    span = {"traceId": "t", "spanId": "s", "name": "n", "attributes": [gang], **times}
    path = tmp_path / "other"
    path.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}))
    assert main(["trace", "d/a", f"--file={path}", NOBODY]) == 2
    assert "there are traces of 999" in capsys.readouterr().err


@pytest.mark.parametrize("at", ["-1", str(2**64), "9" * 400, "9" * 5000, "soon"])
def test_an_impossible_time_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], at: str) -> None:
    """400 digits are an int in Python, and no float: the lengths of the bars."""
    gang = {"key": names.GROUP, "value": {"stringValue": "d/a"}}
    times = {"startTimeUnixNano": "1", "endTimeUnixNano": at}
    span = {"traceId": "t", "spanId": "s", "name": "n", "attributes": [gang], **times}
    path = tmp_path / "other"
    path.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}))
    assert main(["trace", "d/a", f"--file={path}", NOBODY]) == 2
    assert f"{path}: span 's': " in capsys.readouterr().err


def jaegers(**more: object) -> bytes:
    span = {"traceID": "t", "spanID": "s", "operationName": "n", "startTime": 1, "duration": 1} | more
    return json.dumps({"data": [{"spans": [span]}]}).encode()


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "d/a", f"--file={tmp_path / 'x'}"]) == 2
    assert "x: cannot be read: No such file or directory" in capsys.readouterr().err


def test_a_trace_is_chosen_by_the_begin_of_its_id(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace_id = next(line for line in shown(capsys, "d/train", f"--file={file}").splitlines()[1:]).split()[1]
    assert trace_id in shown(capsys, "d/train", f"--file={file}", f"--trace-id={trace_id[:6]}")
    assert main(["trace", "d/train", f"--file={file}", "--trace-id=xyz"]) == 2
    assert trace_id in capsys.readouterr().err


def test_untrusted_text_is_cleaned_before_it_reaches_the_terminal() -> None:
    evil = "\x1b[2J\x1b]0;owned\x07[red]x[/red]\r\n"
    attributes = {"gangsched.verdict": evil, "gangsched.reason": evil, "gangsched.nodes": [evil]}
    event = ("bound", 1, {"k8s.pod.name": evil, "k8s.node.name": evil, "gangsched.devices": [evil]})
    span = SpanView("t", "s", "", "Bind", 0, 10, attributes, (event,), (evil,))
    named = replace(span, span_id="u", parent_id="s", name=evil)
    text = "\n".join(
        str(line.renderable if hasattr(line, "renderable") else line) for line in lines(span, named)
    )
    assert "owned" in text
    assert not any(ord(char) < 32 and char != "\n" for char in text)
    assert text.count("[red]") > 1, "and no markup is read"


def lines(*spans: SpanView) -> list[object]:
    return list(draw(TraceView("t", spans), gang="d/a", width=100))


def test_spans_that_form_no_tree_are_drawn_nevertheless() -> None:
    own_parent = SpanView("t", "s", "s", "Bind", 0, 10, {})
    deep = [SpanView("t", str(i), str(i - 1), "Bind", 0, 10, {}) for i in range(5000)]
    drawn = [str(line) for line in lines(own_parent, *deep)]
    assert sum("Bind" in line for line in drawn) == 5001


@contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    """A server that gives everybody the same answer."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Not onto the test's stderr."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "body", "code", "says"),
    [
        (200, b"<html>", 2, "does not answer as Jaeger's query API does"),
        (200, b'{"data": 3}', 2, "does not answer as Jaeger's query API does"),
        (200, b'{"data": []}', 2, "no trace of gang 'd/a', nor of any other"),
        (404, b"", 1, "404 Jaeger: "),
        (200, json.dumps({"data": [{"spans": [{}]}]}).encode(), 2, "does not answer as"),
        (200, jaegers(duration=10**400), 2, "does not answer as"),
        (200, jaegers(startTime=-(10**30)), 2, "does not answer as"),
        (200, jaegers(operationName=["n"]), 2, "does not answer as"),
        (200, jaegers(traceID={}), 2, "does not answer as"),
    ],
)
def test_an_answer_that_is_not_jaegers_is_refused(
    capsys: pytest.CaptureFixture[str], status: int, body: bytes, code: int, says: str
) -> None:
    with answering(status, body) as url:
        assert main(["trace", "d/a", f"--jaeger={url}", NOBODY]) == code
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert says in said


def test_an_answer_of_countless_values_is_not_parsed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_MAX_VALUES", 1000)
    with answering(200, b'{"data": [' + b"[]," * 1001 + b"[]]}") as url:
        assert main(["trace", "d/a", f"--jaeger={url}", NOBODY]) == 2
    assert "answers more than 1000 values; is it Jaeger?" in capsys.readouterr().err


def test_an_answer_that_comes_in_drops_is_not_waited_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte came in time, and the last one never."""
    monkeypatch.setattr(reading, "_ANSWER_S", 1.0)
    enough = threading.Event()

    def drip(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection, contextlib.suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            while not enough.wait(0.1):
                connection.sendall(b" ")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=drip, args=(listening,))
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        assert main(["trace", "d/a", f"--jaeger={url}", NOBODY]) == 1
        enough.set()
        thread.join()
    assert f"no Jaeger answers at {url}: timed out" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["localhost:16686", "http://[::1", "http://", "http://a:b"])
def test_an_invalid_url_is_refused(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "d/a", f"--jaeger={url}"]) == 2
    assert "is not the URL of" in capsys.readouterr().err


def test_an_unreachable_jaeger_is_reported_without_an_error_number(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["trace", "d/a", "--jaeger=http://127.0.0.1:1"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("gangsched: no Jaeger answers at http://127.0.0.1:1: connection refused; in a")
    assert "port-forward deployment/gangsched-jaeger 16686" in said
    assert "Errno" not in said


async def test_without_a_source_the_scheduler_is_asked_where_its_traces_are(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As README prints it."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    c = cluster(nodes=1).submit(gang("train", pods=1, gpus=1)).run()
    settings = TracingSettings()
    pages = Explanations(c.scheduler, clock_s=lambda: c.now_s, tracing=lambda: settings)
    pair = self_signed("gangsched", hosts=["127.0.0.1"])
    async with serving(pair, explanations=pages) as client:
        asked = ["trace", "d/train", f"--server=https://127.0.0.1:{client.port}", "--token=good"]
        assert await anyio.to_thread.run_sync(main, asked) == 2
        assert "this scheduler writes none: it does with --trace-file FILE" in capsys.readouterr().err
        settings = TracingSettings(endpoint="http://jaeger:4318")
        pages._kept.clear()
        assert await anyio.to_thread.run_sync(main, asked) == 2
        said = capsys.readouterr().err
        assert (
            "the scheduler says: gangsched trace d/train --jaeger URL (traces go to http://jaeger:4318)"
            in said
        )
        settings = TracingSettings(file=str(file))
        pages._kept.clear()
        await anyio.to_thread.run_sync(main, asked)
        assert capsys.readouterr().out.startswith("d/train  61 s  Scheduled")
    assert await anyio.to_thread.run_sync(main, ["trace", "d/train", NOBODY]) == 2
    assert "give --file FILE, or --jaeger URL (as http://localhost:16686)" in capsys.readouterr().err


async def test_for_a_gang_without_a_trace_its_present_state_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    path = tmp_path / "traces.jsonl"
    path.write_text("")
    c = cluster(nodes=1).submit(gang("train", pods=1, gpus=1, min_members=2)).run().wait(30.0)
    pages = Explanations(c.scheduler, clock_s=lambda: c.now_s)
    pair = self_signed("gangsched", hosts=["127.0.0.1"])
    async with serving(pair, explanations=pages) as client:
        run = anyio.to_thread.run_sync
        ask = [f"--file={path}", f"--server=https://127.0.0.1:{client.port}", "--token=good"]
        assert await run(main, ["trace", "d/train", *ask]) == 2
        said = capsys.readouterr().err
        assert (
            "no trace of gang 'd/train', nor of any other; it has been gathering for 30s: 1 of 2 members"
            in said
        )
        assert "(a trace is written as its parts end)" in said
    async with serving(pair, explanations=Explanations(cluster(nodes=1).scheduler)) as client:
        ask[1] = f"--server=https://127.0.0.1:{client.port}"
        assert await run(main, ["trace", "d/train", *ask]) == 2
        assert "; and the scheduler knows no gang and no pod" in capsys.readouterr().err
    assert await run(main, ["trace", "d/train", f"--file={path}", NOBODY]) == 2
    assert "`gangsched explain d/train` asks the scheduler why it waits" in capsys.readouterr().err


@pytest.mark.parametrize("columns", ["0", "²", "x", "-3"])
def test_an_impossible_width_in_the_environment_is_ignored(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    """A shell within an editor, or `docker exec -t`, may export COLUMNS=0: rich makes empty lines of that."""
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["trace", "d/train", f"--file={file}"]) == 0
    assert "Permit wait" in capsys.readouterr().out


@pytest.mark.parametrize("width", ["0", "-5", "many", "9999999"])
def test_a_width_of_no_columns_is_a_mistake(
    file: Path, capsys: pytest.CaptureFixture[str], width: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["trace", "d/train", f"--file={file}", f"--width={width}"])
    assert f"'{width}' is not a number of columns, 1 or more" in capsys.readouterr().err
