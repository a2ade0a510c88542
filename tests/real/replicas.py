"""Two recorded replicas behind proxies of their own, and all that can happen to them.

Lives here: a replica's life from process to process, what is done to it, and the replay of what each process
has left, as soon as it has ended. Not here: gangs, and when something happens (test_recorded_hour.py).
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import yaml

from gangsched.lab.controlplane.daemon import free_ports
from gangsched.lab.controlplane.processes import ControlPlane
from tests.proxy import Proxy, Rule, http_answer
from tests.real.process import Scheduler, service_account
from tests.support.threads import in_a_thread

LEASE = {"leaseDuration": "6s", "renewDeadline": "4s", "retryPeriod": "500ms"}
PAUSE_S = 9.0
_SAID = re.compile(
    r"([\d,]+) calls, ([\d,]+) events, ([\d,]+) effects, ([\d,]+) of them binds, all as recorded"
)
_DISK_MB = 24
_COUNTED = (
    *(" leading ", "another configuration is in effect", "the configuration is wrong"),
    *("the journal has a gap", "the journal goes on after a gap", "no new segment of the journal"),
)
_BUSY = http_answer("429 Too Many Requests", b"{}", "Retry-After: 1")
_BROKEN = http_answer("500 Internal Server Error", b"{}")
_TOO_OLD = http_answer("410 Gone", b'{"kind":"Status","apiVersion":"v1","code":410,"reason":"Expired"}')


class Door:
    """The proxy before the API server that one replica goes through; it runs in a thread."""

    def __init__(self, plane: ControlPlane, directory: Path) -> None:
        directory.mkdir()
        self._proxy, self.certificate = Proxy.before(plane, directory)
        self._running = ExitStack()
        self._loop = self._running.enter_context(in_a_thread(self._proxy))

    @property
    def url(self) -> str:
        return self._proxy.url

    def do(self, what: Callable[[Proxy], object]) -> None:
        self._loop.call_soon_threadsafe(what, self._proxy)

    def close(self) -> None:
        self._running.close()


def cut_all(proxy: Proxy) -> None:
    proxy.cut()


def cut_watches(proxy: Proxy) -> None:
    proxy.cut("watch=")


def stall_watches(proxy: Proxy) -> None:
    proxy.stall("watch=")


def refuse(proxy: Proxy) -> None:
    proxy.refusing = True
    proxy.cut()


def slow(proxy: Proxy) -> None:
    proxy.delay_s = 0.1


def healed(proxy: Proxy) -> None:
    proxy.refusing, proxy.delay_s = False, 0.0
    proxy.rules[:] = [one for one in proxy.rules if len(one.seen) < one.times]
    proxy.requests.clear()


def _on(words: str, times: int, **fault: Any) -> Callable[[Proxy], object]:
    return lambda proxy: proxy.rule(Rule(lambda line: words in line, times=times, **fault))


def wire_faults(rng: Random) -> dict[str, Callable[[Proxy], object]]:
    """By name."""
    n = rng.randint(1, 6)
    return {
        "every connection is cut": cut_all,
        "watches are cut": cut_watches,
        "watches stall": stall_watches,
        "connections are refused": refuse,
        "answers are slow": slow,
        "binds are refused for now": _on("/binding", n, answer=_BUSY),
        "binds fail": _on("/binding", n, answer=_BROKEN),
        "binds are cut before they arrive": _on("/binding", n, cut_before=True),
        "answers to binds are cut": _on("/binding", n, cut_after=True, forward_bytes=rng.choice((0, 40))),
        "answers to binds never come": _on("/binding", 1, stall=True),
        "watches are too old": _on("watch=", n, answer=_TOO_OLD),
        "messages are refused": _on("/status", n, answer=_BUSY),
        "evictions fail": _on("/eviction", n, answer=_BROKEN),
        "the lease is not renewed": _on("/leases/", n, answer=_BROKEN),
    }


def numbers_of(said: str) -> list[list[int]]:
    """Calls, events, effects and binds, of each line that says so."""
    return [[int(n.replace(",", "")) for n in numbers] for numbers in _SAID.findall(said)]


class Replayed(NamedTuple):
    """What one process has left, played again."""

    folder: Path
    code: int
    said: str

    @property
    def numbers(self) -> tuple[int, ...]:
        """Calls, events, effects and binds, all as recorded."""
        return tuple(sum(column) for column in zip(*numbers_of(self.said), strict=True)) or (0, 0, 0, 0)


def replay(directory: Path, *flags: str) -> Replayed:
    """As a user runs it, in a process with hashes of its own."""
    command = [sys.executable, "-m", "gangsched.command.cli", "replay", str(directory), *flags]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=lambda: os.nice(5))
    return Replayed(directory, done.returncode, done.stdout + done.stderr)


class Replica:
    """One of them, process after process, each with its journal in `disk`."""

    def __init__(self, plane: ControlPlane, directory: Path, name: str) -> None:
        self.name = name
        self._plane = plane
        self._directory = directory / name
        self._directory.mkdir()
        self.disk = self._directory / "disk"
        self.disk.mkdir()
        self.is_small = self._mount()
        self.door = Door(plane, self._directory / "door")
        self.config = self._directory / "config.yaml"
        (self._port,) = free_ports(1)
        self.seen: Counter[str] = Counter()
        self.scheduler: Scheduler | None = None
        self._n_started = 0
        self._played = ThreadPoolExecutor(1)
        self.replays: list[Future[Replayed]] = []

    def _mount(self) -> bool:
        """A disk of its own that can be full, where that is allowed."""
        command = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_MB}m", "tmpfs", str(self.disk)]
        try:
            return subprocess.run(command, capture_output=True).returncode == 0
        except OSError:
            return False

    def start(self) -> None:
        self._n_started += 1
        account = self._directory / "account.yaml"
        account.unlink(missing_ok=True)
        service_account(self._plane, account, server=self.door.url, ca_file=self.door.certificate)
        log = self._directory / f"{self._n_started}.log"
        self.scheduler = Scheduler(self.config, account, log, port=self._port)

    @property
    def running(self) -> Scheduler | None:
        return self.scheduler if self.scheduler is not None and self.scheduler.running else None

    @property
    def leads(self) -> bool:
        return self.running is not None and " leading " in self.running.said

    def bury(self) -> None:
        """It has ended: its journal is taken away and played, in its own time."""
        assert self.scheduler is not None
        self.scheduler.never_broke()
        said, self.scheduler = self.scheduler.said, None
        self.seen.update({words: said.count(words) for words in _COUNTED})
        folder = self._directory / f"journal-{self._n_started}"
        folder.mkdir()
        for found in sorted(self.disk.rglob("*.journal.*")):
            target = folder if found.suffix == ".zst" else self._directory
            shutil.move(found, target / found.name)
        if any(folder.iterdir()):
            self.replays.append(self._played.submit(replay, folder))

    def close(self) -> None:
        if self.scheduler is not None:
            self.scheduler.process.send_signal(signal.SIGCONT)
            self.scheduler.kill()
        self.door.close()
        self._played.shutdown(cancel_futures=True)
        if self.is_small:
            subprocess.run(["umount", "-l", str(self.disk)], check=True)

    # -- what is done to it ------------------------------------------------------------------------------

    def fill(self) -> None:
        """The disk is full."""
        with open(self.disk / "filler", "wb", buffering=0) as file:
            block = bytes(2**16)
            try:
                while file.write(block) == len(block):
                    pass
            except OSError:
                return

    def make_room(self) -> None:
        (self.disk / "filler").unlink(missing_ok=True)

    def write_config(self, rng: Random, *, recorded: str) -> None:
        """recorded: the folder on its disk; "": nothing is."""
        kube = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": True, "resourceNamespace": "gangsched-system", **LEASE},
            "podMaxBackoffSeconds": rng.randint(1, 5),
            "profiles": [_profile(rng)],
        }
        ours: dict[str, Any] = {
            "apiVersion": "gangsched.io/v1",
            "kind": "GangschedConfiguration",
            "settleSeconds": rng.randint(1, 5),
            "ties": rng.choice(("random", "roundRobin")),
            "onPartialBind": rng.choice(("complete", "unwind")),
        }
        if recorded:
            directory = str(self.disk / recorded)
            ours["record"] = {"directory": directory, "maxAge": rng.choice(("3m", "20m", "2h"))}
        self._write(kube, ours)

    def write_wrong_config(self) -> None:
        """A journal where none can be."""
        kube, ours = yaml.safe_load_all(self.config.read_text())
        self._write(kube, {**ours, "record": {"directory": "/proc/nowhere"}})

    def _write(self, *documents: Any) -> None:
        """As an editor replaces a file."""
        new = self.config.with_suffix(".new")
        new.write_text(yaml.safe_dump_all(documents))
        new.rename(self.config)


def _profile(rng: Random) -> dict[str, Any]:
    kind = rng.choice(("LeastAllocated", "MostAllocated"))
    strategy = {"type": kind, "resources": [{"name": "cpu", "weight": rng.randint(1, 5)}]}
    args = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "NodeResourcesFitArgs"}
    fit = {"name": "NodeResourcesFit", "args": {**args, "scoringStrategy": strategy}}
    return {"schedulerName": "gangsched", "pluginConfig": [fit]}
