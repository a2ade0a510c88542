"""top in a terminal, beside a scheduler that runs: keys, sizes, and the terminal as it was before, always."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
import yaml

from gangsched.lab.controlplane.daemon import free_ports
from tests.support.processes import PATIENCE_S, until

_COMMAND = (sys.executable, "-m", "gangsched.command.cli")
_DOCUMENT = """
apiVersion: v1
kind: Pod
metadata:
  name: {name}-{k}
  labels: {{gangsched.io/pod-group: {name}}}
  annotations: {{gangsched.io/min-members: "{n}"}}
spec:
  schedulerName: gangsched
  containers:
  - name: main
    image: busybox
    resources: {{limits: {{nvidia.com/gpu: 8}}}}
"""


class Running(NamedTuple):
    """A scheduler on an API server in memory. ended: ends the scheduler."""

    kubeconfig: Path
    port: int
    scheduler: subprocess.Popen[bytes]


@contextmanager
def running(folder: Path) -> Iterator[Running]:
    kubeconfig = folder / "kubeconfig"
    [port] = free_ports(1)
    log = (folder / "log").open("wb")
    quiet = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
    server = ("apiserver", "--nodes=4", "--racks=2", "--port=0", f"--kubeconfig-out={kubeconfig}")
    with log, subprocess.Popen([*_COMMAND, *server], **quiet) as api:  # type: ignore[call-overload]
        try:
            until(kubeconfig.exists, "the API server is there")
            own = ("scheduler", f"--kubeconfig={kubeconfig}", f"--secure-port={port}")
            with subprocess.Popen([*_COMMAND, *own], **quiet) as scheduler:  # type: ignore[call-overload]
                try:
                    until(
                        lambda: f"port={port}".encode() in (folder / "log").read_bytes(),
                        "the pages are served",
                    )
                    yield Running(kubeconfig, port, scheduler)
                finally:
                    scheduler.terminate()
        finally:
            api.terminate()


class Top:
    """top in a terminal of its own."""

    def __init__(self, on: Running, *options: str, columns: int = 110, lines: int = 30, **env: str) -> None:
        self._master, self._slave = pty.openpty()
        self.resize(columns, lines)
        self.before = termios.tcgetattr(self._slave)
        self.output = b""
        server = (f"--server=https://127.0.0.1:{on.port}", f"--kubeconfig={on.kubeconfig}")
        self.process = subprocess.Popen(
            [*_COMMAND, "top", *server, "--delay=0.5", *options],
            stdin=self._slave,
            stdout=self._slave,
            stderr=subprocess.PIPE,
            env=os.environ | {"TERM": "xterm-256color"} | env,
            start_new_session=True,
        )

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def picture(self) -> str:
        """The last whole picture, without styles."""
        drawn = self.output.decode(errors="replace").split("\x1b[H")[-1]
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", drawn)

    def shows(self, text: str) -> str:
        """Waits until the last picture has it."""
        deadline_s = time.monotonic() + PATIENCE_S
        while text not in self.picture() or "\x1b[J" not in self.output.decode(errors="replace")[-40:]:
            assert time.monotonic() < deadline_s, self.picture()
            self._read()
            assert self.process.poll() is None, self.picture()
        return self.picture()

    def ended(self) -> tuple[int, str]:
        """Its exit code and what it said on stderr; the terminal is as it was."""
        deadline_s = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline_s, self.picture()
            self._read()
        while self._read():
            pass
        assert self.process.stderr is not None
        said = self.process.stderr.read().decode()
        self.process.stderr.close()
        assert termios.tcgetattr(self._slave) == self.before
        return self.process.returncode, said

    def close_window(self) -> None:
        os.close(self._slave)
        os.close(self._master)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._slave)
        os.close(self._master)

    def _read(self) -> bool:
        if not select.select([self._master], [], [], 0.1)[0]:
            return False
        self.output += os.read(self._master, 65536)
        return True


def test_a_window_that_is_closed_ends_it_without_a_word(on: Running) -> None:
    """It has no controlling terminal here, so no SIGHUP comes first."""
    top = Top(on)
    top.shows("Waiting")
    top.close_window()
    assert top.process.wait(PATIENCE_S) == 128 + signal.SIGTERM
    assert top.process.stderr is not None
    assert top.process.stderr.read() == b""
    top.process.stderr.close()


@pytest.fixture(scope="module")
def on(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("top")) as found:
        create(found, "runs", 2)
        create(found, "large", 6)
        create(found, "larger", 9)
        yield found


def create(on: Running, name: str, n: int) -> None:
    server = yaml.safe_load(on.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    for k in range(n):
        body = msgspec.json.encode(yaml.safe_load(_DOCUMENT.format(name=name, k=k, n=n)))
        path = f"{server}/api/v1/namespaces/default/pods"
        request = urllib.request.Request(path, body, {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=30).close()


@contextmanager
def top(on: Running, *options: str, columns: int = 110, lines: int = 30, **env: str) -> Iterator[Top]:
    found = Top(on, *options, columns=columns, lines=lines, **env)
    try:
        yield found
    finally:
        found.close()


def test_it_shows_the_cluster_and_keys_sort_choose_and_pause(on: Running) -> None:
    with top(on) as shown:
        shown.shows("16 bound  0 reserved  0 unhealthy  16 free")
        shown.shows("Decisions 0.0/s  binds 0.0/s")
        first = shown.shows("default/larger")
        assert first.index("default/large ") < first.index("default/larger")
        assert shown.output.startswith(b"\x1b[?1049h")
        shown.press("ss")
        assert "PODSv" not in first
        sorted_ = shown.shows("PODSv")
        assert sorted_.index("default/larger") < sorted_.index("default/large ")
        shown.press("\x1b[B")
        shown.shows("default/larger: gang default/larger:")
        shown.press(" ")
        shown.shows("paused")
        shown.press(" ")
        create(on, "new", 1)
        shown.shows("24 bound")
        shown.press("q")
        assert shown.ended() == (0, "")
        assert shown.output.rstrip().endswith(b"\x1b[?1049l")


def test_it_fills_a_terminal_that_becomes_narrow(on: Running) -> None:
    with top(on) as shown:
        wide = shown.shows("WHY")
        assert max(map(len, wide.splitlines())) > 90
        shown.resize(44, 12)
        shown.process.send_signal(signal.SIGWINCH)
        narrow = shown.shows("s position")
        assert "WHY" not in narrow
        assert max(map(len, narrow.splitlines())) <= 44
        assert len(narrow.splitlines()) == 12
        shown.resize(20, 4)
        shown.process.send_signal(signal.SIGWINCH)
        shown.shows("40 x 8 at least")
        shown.press("q")
        assert shown.ended()[0] == 0


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 0), ("SIGTERM", 143), ("SIGHUP", 143)])
def test_a_signal_ends_it_and_the_terminal_is_as_before(on: Running, name: str, code: int) -> None:
    with top(on) as shown:
        shown.shows("default/larger")
        shown.process.send_signal(signal.Signals[name])
        assert shown.ended() == (code, "")
        assert shown.output.rstrip().endswith(b"\x1b[?1049l")


def test_ctrl_z_gives_the_terminal_back_until_it_goes_on(on: Running) -> None:
    with top(on) as shown:
        shown.shows("default/larger")
        shown.process.send_signal(signal.SIGTSTP)
        _, status = os.waitpid(shown.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        assert termios.tcgetattr(shown._slave) == shown.before
        shown.process.send_signal(signal.SIGCONT)
        shown.output = b""
        shown.shows("default/larger")
        shown.press("q")
        assert shown.ended()[0] == 0


def test_a_scheduler_that_goes_is_reported_and_the_last_picture_stays(tmp_path: Path) -> None:
    with running(tmp_path) as gone:
        create(gone, "large", 9)
        with top(gone) as shown:
            shown.shows("default/large")
            gone.scheduler.terminate()
            told = shown.shows("no scheduler answers")
            assert "default/large" in told
            shown.press("q")
            assert shown.ended() == (0, "")
        with top(gone) as none:
            code, said = none.ended()
            assert code == 1
            assert said.startswith("gangsched: no scheduler answers at https://127.0.0.1:")
            assert "\x1b[?1049h" not in none.output.decode()


def test_a_terminal_that_cannot_be_drawn_on_is_reported(on: Running) -> None:
    with top(on, TERM="dumb") as shown:
        code, said = shown.ended()
        assert code == 2
        assert "TERM=dumb" in said
        assert "--once" in said


def test_without_colour_nothing_is_coloured(on: Running) -> None:
    with top(on, NO_COLOR="1") as shown:
        shown.shows("default/larger")
        assert re.search(rb"\x1b\[3\dm", shown.output) is None
        shown.press("q")
        assert shown.ended()[0] == 0
