"""One server process of the control plane: started, waited for, stopped, and never left behind.

What does not live here: which flags a server takes (processes.py, the only caller).
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gangsched.errors import GangschedError

POLL_PERIOD_S = 0.05
LOG_TAIL_LINES = 15

# Executed by a fresh interpreter, which then becomes the server under the same pid. Linux is asked to
# kill the server when its parent dies (1 is PR_SET_PDEATHSIG, 9 is SIGKILL); elsewhere a parent that is
# killed leaves its servers behind. Not a preexec_fn: that may deadlock in a process with threads.
_LAUNCHER = """
import os, sys
if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None).prctl(1, 9)
    if os.getppid() != int(sys.argv[1]):
        sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""

# "Parent" means the thread that forked: a server started from a short-lived thread would die with it.
# So all of them are started from this one thread, which lives as long as the process.
_starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="controlplane-starter")


class StartFailed(GangschedError):
    """A server that ended, or was not ready in time; the message carries the end of its log."""


class Daemon:
    """A server process with its log in a file; `pid` stays the same from start to stop."""

    def __init__(self, name: str, command: Sequence[str], *, log: Path, env: Mapping[str, str]) -> None:
        self.name = name
        self.command = tuple(command)
        self.log = log
        with open(log, "ab") as output:
            self.process = _starter.submit(self._spawn, output.fileno(), env).result()

    @property
    def pid(self) -> int:
        """The server's own process id."""
        return self.process.pid

    @property
    def running(self) -> bool:
        """Whether the process still runs."""
        return self.process.poll() is None

    def wait_ready(self, ready: Callable[[], bool], *, timeout_s: float) -> None:
        """Waits until `ready` returns true; raises StartFailed when the server ends or the time is over."""
        deadline_s = time.monotonic() + timeout_s
        while not ready():
            if not self.running:
                raise StartFailed(f"{self.name} ended with code {self.process.returncode}:\n{self.tail()}")
            if time.monotonic() > deadline_s:
                raise StartFailed(f"{self.name} was not ready in {timeout_s:.0f} s:\n{self.tail()}")
            time.sleep(POLL_PERIOD_S)

    def stop(self, *, timeout_s: float = 10.0) -> None:
        """Asks it to end (SIGTERM), and kills it when it does not; nothing if it has ended."""
        if self.running:
            self.process.terminate()
            try:
                self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """Ends it at once (SIGKILL), as a crash would; nothing if it has ended."""
        if self.running:
            # A test may have stopped it by SIGSTOP: SIGKILL works all the same.
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def tail(self) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])

    def _spawn(self, output: int, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        # A session of its own: Ctrl-C in the terminal reaches us, and we stop the servers in order.
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), *self.command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=dict(env),
            start_new_session=True,
        )


def free_ports(n_ports: int) -> list[int]:
    """Ports of 127.0.0.1 without a listener now; held open together, so they differ."""
    sockets = [socket.socket() for _ in range(n_ports)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()
