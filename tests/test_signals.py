"""Signals to a command that does not listen yet: while it waits for a credential plugin of its kubeconfig."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from tests.kube.test_credentials import is_running, kubeconfig, plugin

ROOT = Path(__file__).parents[1]
SENT = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Waiting:
    """`gangsched COMMAND` that waits for a plugin that never answers. ignored: as by `nohup`; whatever else
    the tests themselves were started with ignored is not."""

    def __init__(self, directory: Path, *command: str, ignored: Collection[signal.Signals] = ()) -> None:
        started = directory / "started"
        user = plugin(
            directory,
            "import os, time\n"
            f"open({str(started)!r} + '.part', 'w').write(str(os.getpid()))\n"
            f"os.rename({str(started)!r} + '.part', {str(started)!r})\n"
            "time.sleep(1000)",
        )
        flags = ["--kubeconfig", kubeconfig(directory, user)]

        def heard() -> None:
            for one in SENT:
                signal.signal(one, signal.SIG_IGN if one in ignored else signal.SIG_DFL)

        self.process = subprocess.Popen(
            [sys.executable, "-m", "gangsched", *command, *flags],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=heard,
        )
        wait_for(started.exists)
        self.plugin = int(started.read_text())

    def ended(self) -> tuple[int, str]:
        """The exit code and what it said, once the plugin has ended too."""
        said = self.process.communicate(timeout=60)[1]
        wait_for(lambda: not is_running(self.plugin))
        return self.process.returncode, said


def wait_for(is_so: Callable[[], bool]) -> None:
    for _ in range(3000):
        if is_so():
            return
        time.sleep(0.02)
    raise AssertionError("it takes more than a minute")


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [(signal.SIGTERM, 143, "ended by SIGTERM"), (signal.SIGINT, 130, "interrupted")],
)
@pytest.mark.parametrize("command", ["scheduler", "agent", "devices"])
def test_it_ends_with_one_line_and_leaves_nothing_running(
    tmp_path: Path, command: str, number: signal.Signals, code: int, said: str
) -> None:
    more = ["--node-name", "n0"] if command == "agent" else []
    waiting = Waiting(tmp_path, command, *more)
    waiting.process.send_signal(number)
    assert waiting.ended() == (code, f"gangsched: {said}\n")


def test_a_terminal_that_is_closed_ends_a_command_but_not_the_scheduler(tmp_path: Path) -> None:
    for name in ("scheduler", "devices"):
        (tmp_path / name).mkdir()
        waiting = Waiting(tmp_path / name, name)
        waiting.process.send_signal(signal.SIGHUP)
        if name == "scheduler":
            waiting.process.send_signal(signal.SIGTERM)
            assert waiting.ended() == (143, "gangsched: ended by SIGTERM\n")
        else:
            assert waiting.ended() == (129, "gangsched: ended by SIGHUP\n")


def test_a_command_under_nohup_does_not_end_with_its_terminal(tmp_path: Path) -> None:
    waiting = Waiting(tmp_path, "devices", ignored=[signal.SIGHUP])
    waiting.process.send_signal(signal.SIGHUP)
    waiting.process.send_signal(signal.SIGTERM)
    assert waiting.ended() == (143, "gangsched: ended by SIGTERM\n")


OF_ANOTHER_THREAD = """
import signal, threading, time
import anyio
from gangsched.signals import EndedBySignal, early_signals, run_loop

def other():
    time.sleep(1.0)  # the loop waits by then
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    time.sleep(1000.0)

threading.Thread(target=other, daemon=True).start()
try:
    with early_signals(reloads=False):
        run_loop(anyio.sleep, 1000.0)
except EndedBySignal as error:
    print(error)
"""


def test_a_signal_that_does_not_interrupt_the_loop_is_heard_at_once() -> None:
    """It comes to another thread. One that comes just before the loop waits is as easily missed."""
    command = [sys.executable, "-c", OF_ANOTHER_THREAD]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("ended by SIGTERM\n", "")
