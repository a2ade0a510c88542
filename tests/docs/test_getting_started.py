"""docs/getting-started.md, "On your machine": its commands are typed, in their order, as a new user would."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gangsched.lab.controlplane.assets import Assets
from gangsched.lab.controlplane.daemon import Daemon, free_ports
from tests.docs.pages import DOCS, ROOT, blocks, commands
from tests.support.processes import until

PAGE = DOCS / "getting-started.md"
PATIENCE_S = 60.0
"""Nothing is timed here; so long a wait means that it will never be."""


class Reader:
    """Somebody with terminals and a folder. Ports are free ones instead of the usual."""

    def __init__(self, folder: Path, kubectl: Path) -> None:
        self.folder = folder
        self.terminals: list[Daemon] = []
        self._kubectl = kubectl
        self._env = {**os.environ, "NO_PROXY": "*"}

    def start(self, line: str, *more: str) -> Daemon:
        """Types it in a terminal that stays open."""
        name = shlex.split(line)[1]
        log = self.folder / f"{name}.log"
        daemon = Daemon(f"gangsched {name}", [*self._words(line), *more], log=log, env=self._env)
        self.terminals.append(daemon)
        return daemon

    def type(self, line: str) -> str:
        """Types it, and answers with what it prints."""
        words = self._words(line)
        done = subprocess.run(words, cwd=ROOT, env=self._env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def until(self, line: str, holds: Callable[[str], bool]) -> str:
        """Types it again and again."""
        said: list[str] = []

        def typed() -> bool:
            said.append(self.type(line))
            return holds(said[-1])

        until(typed, line, timeout_s=PATIENCE_S, story=lambda: said[-1])
        return said[-1]

    def _words(self, line: str) -> list[str]:
        words = shlex.split(line)
        if words[0] == "kubectl":
            start = [str(self._kubectl)]
        else:
            assert words[0] == ".venv/bin/gangsched"
            start = [sys.executable, "-m", "gangsched.command.cli"]
        return [*start, *(self._path(word) for word in words[1:])]

    def _path(self, word: str) -> str:
        if word in ("cluster.yaml", "too-big.yaml", "steady.yaml"):
            return str(self.folder / word)
        return str(ROOT / word) if word.startswith(("config/", "deploy/")) else word


@pytest.fixture
def reader(assets: Assets, tmp_path: Path) -> Iterator[Reader]:
    made = Reader(tmp_path, assets.path("kubectl"))
    yield made
    for daemon in reversed(made.terminals):
        daemon.stop()


def test_the_page_works_as_it_says(reader: Reader) -> None:
    lines = [line for block in blocks(PAGE, "sh") for line in commands(block)]
    demo, serve, schedule, apply, get_pods, devices, *more = lines
    apply_big, events, queue, story, doctor, *more = more
    in_a_cluster = next(i for i, line in enumerate(more) if line.startswith("docker"))
    serve_broken, *broken, claimed_nodes, by_claims, claims, who_has, crds, other = more[:in_a_cluster]
    assert demo == "make demo"  # tests/demo plays it

    server = reader.start(serve, "--port", "0")
    kubeconfig = reader.folder / "cluster.yaml"
    says_how = f"kubectl --kubeconfig {kubeconfig}"
    server.wait_ready(lambda: says_how in server.tail(), timeout_s=PATIENCE_S)
    assert "serving http://127.0.0.1:" in server.tail()

    [port] = map(str, free_ports(1))
    scheduler = reader.start(schedule, "--secure-port", port)
    scheduler.wait_ready(lambda: "synced, scheduling" in scheduler.tail(), timeout_s=PATIENCE_S)

    assert "job.batch/train created" in reader.type(apply)
    running = reader.until(get_pods, lambda said: said.count("Running") == 4)
    assert len({line.split()[6] for line in running.splitlines()[1:]}) == 4, "each has a node of its own"
    held = [line.split() for line in reader.type(devices).splitlines() if "default/train 8" in line]
    assert [line[2:7] for line in held] == [["0", "of", "8", "-", "8"]] * 4

    too_big, steady = (block.text for block in blocks(PAGE, "yaml"))
    (reader.folder / "too-big.yaml").write_text(too_big)
    reader.type(apply_big)
    said = reader.until(events, lambda text: "too-big" in text)
    assert "FailedScheduling" in said
    here = f"--server https://127.0.0.1:{port}"
    assert "default/too-big" in reader.until(f"{queue} {here}", lambda text: "12 of 20 fit" in text)
    assert "every bind landed" in reader.type(f"{story} {here}")

    levels = [line.split()[0] for line in reader.type(doctor).splitlines() if line[:1].isalpha()]
    assert "problem" not in levels
    assert levels.count("warning") == 6, "policies (two), FlowSchemas, the Deployment, the lease, the agents"

    at = server_port(server)
    server.stop()
    server.log.unlink()
    server = reader.start(serve_broken, "--port", at)
    server.wait_ready(lambda: says_how in server.tail(), timeout_s=PATIENCE_S)
    until(lambda: not scheduler.running, "the scheduler ends", timeout_s=PATIENCE_S, story=scheduler.tail)
    assert "another cluster answers" in scheduler.tail()
    scheduler.log.unlink()
    scheduler = reader.start(schedule, "--secure-port", port)
    until(lambda: "serving" in scheduler.tail(), timeout_s=PATIENCE_S, story=scheduler.tail)
    (reader.folder / "steady.yaml").write_text(steady)
    what_breaks(reader, broken, here)

    reader.type(claimed_nodes)
    reader.type(by_claims)
    shown = reader.until(claims, lambda text: text.count("allocated,reserved") == 4)
    assert shown.count("rollout-") == 4
    assert "default/rollout 4" in reader.type(who_has)

    reader.type(crds)
    assert "podgroup.scheduling.x-k8s.io/train-coscheduling created" in reader.until(
        other, lambda text: "job.batch/train-coscheduling" in text
    )
    assert "Traceback" not in server.tail() + scheduler.tail()


def what_breaks(reader: Reader, lines: list[str], here: str) -> None:
    """On the cluster of eight nodes, with one sick GPU on node-2."""
    apply, get_pods, devices, sicken, events, kill, get_again, story = lines
    shown, told = (one.text.strip() for one in blocks(PAGE, "text") if "node-" in one.text)
    reader.type(apply)
    running = reader.until(get_pods, lambda said: said.count("Running") == 4)
    first = nodes_of(running)
    assert {"node-0", "node-1"} <= first, "those that the page breaks"
    assert len(first) == 4
    assert "node-2" not in first
    assert shown in reader.type(devices)

    reader.type(sicken)
    before, _, _ = told.partition("steady-")
    assert before in reader.until(events, lambda said: before in said)
    after = nodes_of(reader.until(get_pods, lambda said: moved(said, first, "node-0")))

    reader.type(kill)
    reader.until(get_again, lambda said: moved(said, after, "node-1"))
    assert reader.type(f"{story} {here}").count("every bind landed") >= 3


def nodes_of(pods: str) -> set[str]:
    """Where those that run are, as kubectl prints them."""
    return {line.split()[6] for line in pods.splitlines()[1:] if "Running" in line}


def moved(pods: str, before: set[str], broken: str) -> bool:
    """Whether the pod of the broken node runs elsewhere."""
    now = nodes_of(pods)
    return broken not in now and len(now) == 4 and now > before - {broken}


def server_port(server: Daemon) -> str:
    [url] = [word for word in server.tail().split() if word.startswith("http://127.0.0.1:")]
    return url.rstrip(",").rpartition(":")[2]
