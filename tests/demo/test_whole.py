"""The whole demo as people start it: in a terminal, in a pipe, interrupted, and asked for what cannot be."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from gangsched.command import cli
from gangsched.lab.demo.samples import find_samples
from gangsched.lab.demo.story import STORY

# The story waits six seconds for a reservation to be given back, and for kubelets; a busy machine for more.
PATIENCE_S = 100.0
DEMO = (sys.executable, "-m", "gangsched.command.cli", "demo")


class Demo:
    """One demo in a process of its own, with a home and a temporary folder that can be looked into."""

    def __init__(self, home: Path, *options: str, columns: int = 0, **environ: str) -> None:
        """With `columns` it runs in a terminal of that width."""
        self.home = home
        self.temporary = home / "tmp"
        self.temporary.mkdir(parents=True)
        own = {"HOME": str(home), "TMPDIR": str(self.temporary), "XDG_CACHE_HOME": str(home / "cache")}
        own |= {"TERM": "xterm-256color", "PYTHONUNBUFFERED": "1"} | environ
        env = {name: value for name, value in os.environ.items() if name not in _OURS} | own
        self.output = b""
        self._master, slave = pty.openpty() if columns else os.pipe()
        if columns:
            fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self.process = subprocess.Popen(
            [*DEMO, *options], stdin=subprocess.DEVNULL, stdout=slave, stderr=subprocess.PIPE, env=env
        )
        os.close(slave)

    def until(self, seen: Callable[[str], bool]) -> str:
        """Reads what it says until that is seen, or until its end."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not seen(self.said):
            assert time.monotonic() < deadline_s, self.said
            if not select.select([self._master], [], [], 1.0)[0]:
                continue
            try:
                more = os.read(self._master, 65536)
            except OSError:  # how a terminal ends
                more = b""
            if not more:
                break
            self.output += more
        return self.said

    def end(self) -> tuple[int, str]:
        """Exit code and what it said on stderr."""
        self.until(lambda said: False)
        assert self.process.stderr is not None
        error = self.process.stderr.read().decode()
        return self.process.wait(PATIENCE_S), error

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> None:
        self.process.send_signal(number)

    @property
    def said(self) -> str:
        return self.output.decode(errors="replace").replace("\r\n", "\n")

    @property
    def left(self) -> list[str]:
        """What it left in its temporary folder."""
        return sorted(str(path.relative_to(self.home)) for path in self.temporary.rglob("*"))

    def kill(self) -> None:
        """Whatever happened, nothing stays."""
        self.process.kill()
        self.process.wait()
        if self.process.stderr is not None:
            self.process.stderr.close()
        with contextlib.suppress(OSError):
            os.close(self._master)


_OURS = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "OTEL_EXPORTER_OTLP_ENDPOINT")


def test_in_a_pipe_it_prints_lines_and_goes_on_when_asked_to(tmp_path: Path) -> None:
    svg, kubeconfig = tmp_path / "demo.svg", tmp_path / "kube.config"
    options = ("--keep", "--speed=20", f"--svg={svg}", f"--kubeconfig-out={kubeconfig}")
    demo = Demo(tmp_path / "home", *options)
    try:
        said = demo.until(lambda said: "It goes on until Ctrl-C" in said and said.endswith("\n\n"))
        for number, step in enumerate(STORY, 1):
            assert f"{number} of {len(STORY)}: {step.title}" in said
        order = ["lone       running", "train      running", "learners   waiting", "learners   running"]
        order += ["pretrain   unschedulable", "train      deleted", "pretrain   running"]
        order += ["evaluate   waiting", "notebook   unschedulable", "notebook   running"]
        order += ["stream     running", "simulate   running", "finetune   unschedulable"]
        order += ["probe      running", "simulate   ended", "finetune   running", "rollout    running"]
        order += ["explain default/sweep", "4 in use (4 by gang default/rollout), 4 free", "What happened in"]
        places = [said.index(text) for text in order]
        assert places == sorted(places)
        assert "At no moment was a gang bound in part, or a GPU given to two pods." in said
        assert f"export KUBECONFIG={kubeconfig}" in said
        n_running = 1 + 9 + 2 + 6 + 1 + 2 + 8 + 4
        assert running_pods(kubeconfig) == n_running, "the lone pod, mpi, learners, actors, …"
        assert demo.process.poll() is None
        assert "default/nightly" in running_top(said), "it waits for the eight nodes"
        demo.interrupt()
        assert demo.end() == (0, ""), "after the story Ctrl-C is how it is ended"
        assert demo.left == []
        assert not kubeconfig.exists()
        assert svg.read_text().startswith("<svg")
    finally:
        demo.kill()


def running_top(said: str) -> str:
    """What the command prints that the demo names at its start."""
    found = re.search(r"gangsched top --server (\S+)", said)
    assert found is not None, said
    command = [
        sys.executable,
        "-m",
        "gangsched.command.cli",
        "top",
        "--once",
        "-d",
        "0.5",
        "--server",
        found.group(1),
    ]
    return subprocess.run(command, capture_output=True, check=True, text=True, timeout=PATIENCE_S).stdout


def running_pods(kubeconfig: Path) -> int:
    """How many the server behind the kubeconfig has, running."""
    server = json.loads(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    with urllib.request.urlopen(f"{server}/api/v1/namespaces/default/pods") as answer:
        items = json.load(answer)["items"]
    return sum(pod["status"]["phase"] == "Running" for pod in items)


def test_in_a_terminal_it_draws_the_table_and_ends_with_a_summary(tmp_path: Path) -> None:
    demo = Demo(tmp_path / "home", "--speed=20", columns=100)
    try:
        assert demo.end() == (0, "")
        text = plain(demo.said)
        assert "gang      state         res. bound need    time  nodes and device IDs" in text
        assert re.search(r"■ learners  waiting +2 +0 +2 ", text)
        assert re.search(r"rack-0  ■······· □□□□□□□□ □□□□□□□□ ········", text)
        assert re.search(r"■ pretrain  unschedulable +0 +0 +8 ", text)
        assert all(step.title in text for step in STORY)
        assert "What happened in" in text
        assert demo.said.count("\x1b[?25l") == demo.said.count("\x1b[?25h") == 1, "the cursor comes back"
        assert demo.left == []
        traces = demo.home / "cache" / "gangsched" / "demo-traces.jsonl"
        assert f"trace default/learners --file {traces}" in text
        assert traces.stat().st_size > 1000
        assert cli.main(["trace", "default/evaluate", "--file", str(traces)]) == 0
    finally:
        demo.kill()


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_in_the_middle_it_says_one_line(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    demo = Demo(tmp_path / "home", f"--svg={tmp_path / 'demo.svg'}", columns=80)
    try:
        demo.until(lambda said: "lone" in said and "running" in said)
        demo.interrupt(number)
        line = f"gangsched demo: interrupted by {number.name}; nothing is left running\n"
        assert demo.end() == (code, line)
        assert demo.left == []
        assert not (tmp_path / "demo.svg").exists()
        assert not list((demo.home / "cache").rglob("*.jsonl")), "traces of half a story are of no use"
        assert demo.said.count("\x1b[?25l") == demo.said.count("\x1b[?25h")
    finally:
        demo.kill()


def test_what_the_server_refuses_ends_it_with_its_words(tmp_path: Path) -> None:
    samples = tmp_path / "samples"
    samples.mkdir()
    pod = (find_samples() / "lone-pod.yaml").read_text().replace("name: main", "name: Main!")
    (samples / "lone-pod.yaml").write_text(pod)
    demo = Demo(tmp_path / "home", "--speed=20", f"--samples={samples}")
    try:
        code, error = demo.end()
        assert code == 1
        assert error.startswith("gangsched demo: 422 Invalid: ")
        assert "spec.containers[0].name" in error.splitlines()[0]
        assert "Traceback" not in error
        assert demo.left == []
    finally:
        demo.kill()


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        demo = Demo(tmp_path / "home", f"--port={port}")
        try:
            code, error = demo.end()
        finally:
            demo.kill()
    assert code == 2
    assert error.count("\n") == 1
    assert str(port) in error
    assert demo.left == []


def test_a_reader_who_goes_away_ends_it_quietly(tmp_path: Path) -> None:
    demo = Demo(tmp_path / "home", "--speed=20")
    try:
        demo.until(lambda said: f"1 of {len(STORY)}" in said)
        os.close(demo._master)
        assert demo.process.wait(PATIENCE_S) == 141
        assert demo.process.stderr is not None
        assert demo.process.stderr.read() == b""
        assert demo.left == []
    finally:
        demo.kill()


def test_a_full_disk_ends_it_with_one_line() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(DEMO, stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S)
    assert done.stderr == "gangsched: the output cannot be written: No space left on device\n"
    assert done.returncode == 1


def test_a_narrow_terminal_gets_lines_and_gets_the_reason(tmp_path: Path) -> None:
    demo = Demo(tmp_path / "home", "--speed=20", columns=50)
    try:
        said = demo.until(lambda said: f"1 of {len(STORY)}" in said)
        assert said.startswith(
            "the terminal has 50 x 40 cells, the table needs 72 x 20: a line for each change"
        )
    finally:
        demo.kill()


# -- what cannot be, found out before anything starts --------------------------------------------------


def refused(options: Mapping[str, str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on stderr; exit code 2."""
    try:
        code = cli.main(["demo", *(f"--{name}={value}" for name, value in options.items())])
    except SystemExit as error:  # argparse's own
        code = int(error.code or 0)
    said = capsys.readouterr()
    assert code == 2
    assert said.out == ""
    return said.err.splitlines()[-1]


@pytest.mark.parametrize("option", ["svg", "trace-file", "kubeconfig-out", "log-file"])
def test_files_that_cannot_be_written(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nowhere" / "file"
    line = refused({option: str(path)}, capsys)
    assert line == f"gangsched: --{option} {path}: cannot be written: No such file or directory"
    line = refused({option: str(tmp_path)}, capsys)
    assert line.startswith(f"gangsched: --{option} {tmp_path}: ")


@pytest.mark.parametrize("kind", ["pipe", "terminal"])
def test_traces_are_not_written_to_a_pipe_or_a_terminal(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    master, slave = os.openpty()
    path = Path(os.ttyname(slave)) if kind == "terminal" else tmp_path / "pipe"
    if kind == "pipe":
        os.mkfifo(path)
    line = refused({"trace-file": str(path)}, capsys)
    os.close(master)
    os.close(slave)
    assert (
        line == f"gangsched: --trace-file {path}: cannot be written: it is a pipe or a terminal, and no file"
    )


def test_a_kubeconfig_of_somebody_else_is_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config"
    path.write_text("mine")
    line = refused({"kubeconfig-out": str(path)}, capsys)
    assert "exists already; the demo makes a new file and removes it" in line
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"speed": "0"}, "'0' is not a number from 1 to 100"),
        ({"speed": "fast"}, "'fast' is not a number from 1 to 100"),
        ({"port": "70000"}, "'70000' is not a port; it is 0 (any free one) to 65535"),
        ({"samples": "/nowhere"}, "--samples /nowhere: there is no such folder"),
    ],
)
def test_options_that_make_no_sense(
    options: dict[str, str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert says in refused(options, capsys)


def test_no_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    assert refused({}, capsys).startswith("gangsched: no temporary folder can be made: ")


def test_an_unwritable_cache_costs_the_traces_and_nothing_else(tmp_path: Path) -> None:
    from gangsched.lab.demo.files import trace_path

    (tmp_path / "file").write_text("")
    path, why = trace_path("", {"XDG_CACHE_HOME": str(tmp_path / "file")})
    assert path is None
    assert why.startswith(f"No traces: {tmp_path}/file/gangsched/demo-traces.jsonl cannot be written (")


def test_a_traces_file_that_was_named_is_added_to(tmp_path: Path) -> None:
    from gangsched.lab.demo.files import trace_path

    (tmp_path / "mine").write_text("kept\n")
    assert trace_path(str(tmp_path / "mine"), {}) == (tmp_path / "mine", "")
    assert (tmp_path / "mine").read_text() == "kept\n"
