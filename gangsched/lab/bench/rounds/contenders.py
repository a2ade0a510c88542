"""The measured schedulers: null binder, gangsched, kube-scheduler with and without its own gang scheduling.

On request also gangsched with its fence, as it runs with leader election, and with its journal.

Each is started as a process of its own and stopped again; nothing here measures.
"""

from __future__ import annotations

import compileall
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import gangsched
from gangsched.lab.bench.rounds.null_binder import write_plan
from gangsched.lab.bench.rounds.workload import NAMESPACE
from gangsched.lab.controlplane.daemon import Daemon
from gangsched.lab.controlplane.processes import ControlPlane

NULL = "null"
GANGSCHED = "gangsched"
FENCED = "gangsched-fence"
RECORDED = "gangsched-record"
OURS = frozenset({GANGSCHED, FENCED, RECORDED})
KUBE = "kube-scheduler"
KUBE_GANG = "kube-scheduler-gang"
ALL = (NULL, GANGSCHED, KUBE, KUBE_GANG)
SCHEDULER_NAMES = {
    NULL: "null-binder",
    GANGSCHED: "gangsched",
    FENCED: "gangsched",
    RECORDED: "gangsched",
    KUBE: "default-scheduler",
    KUBE_GANG: "default-scheduler",
}
WRITES_DEVICES = OURS | {NULL}
N_CONNECTIONS = 16
KUBE_CLIENT = {"qps": 5000, "burst": 5000}
"""kube-scheduler's defaults (50, 100) would measure its client's limit."""

_CONFIG = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
profiles:
  - schedulerName: gangsched
---
apiVersion: gangsched.io/v1
kind: GangschedConfiguration
fence: {fence}
"""


class Started(NamedTuple):
    """A running contender; `at_ns` is the monotonic time just before its process was made."""

    daemon: Daemon
    at_ns: int


def start(name: str, cp: ControlPlane, folder: Path, plan: Path | None = None) -> Started:
    """Starts one; the null binder needs its plan. Raises: StartFailed, MissingAssets."""
    at_ns = time.monotonic_ns()
    if name == NULL:
        if plan is None:
            raise ValueError("the null binder decides nothing: it needs a plan")
        where = ["127.0.0.1", str(cp.port), str(cp.ca_file), str(N_CONNECTIONS)]
        return Started(
            _python("gangsched.lab.bench.rounds.null_binder", [str(plan), *where], folder / "null.log"), at_ns
        )
    if name in OURS:
        config = folder / "gangsched.yaml"
        config.write_text(_CONFIG.replace("{fence}", "true" if name == FENCED else "false"))
        arguments = ["scheduler", "--config", str(config), "--kubeconfig", str(cp.kubeconfig)]
        arguments += ["--secure-port", "0"]
        if name == RECORDED:
            arguments += ["--record", str(journal(folder))]
        # Compiled, as an installed package is; a source tree may forbid Python to keep what it compiles.
        compileall.compile_dir(Path(gangsched.__file__).parent, quiet=2)
        at_ns = time.monotonic_ns()
        return Started(_python("gangsched.command.cli", arguments, folder / "gangsched.log"), at_ns)
    daemon = cp.start_kube_scheduler(gang=name == KUBE_GANG, config={"clientConnection": KUBE_CLIENT})
    return Started(daemon, at_ns)


def journal(folder: Path) -> Path:
    """Where the journals of RECORDED are."""
    return folder / "journal"


def stop(started: Started, cp: ControlPlane) -> None:
    """Ends it and forgets it."""
    started.daemon.stop()
    if started.daemon in cp.schedulers:
        cp.schedulers.remove(started.daemon)


def write_null_plan(path: Path, bindings: Sequence[dict[str, Any]], cp: ControlPlane) -> None:
    """Writes the whole requests that the null binder will send, as bytes."""
    write_plan(path, [_request(binding, cp) for binding in bindings])


def _request(binding: dict[str, Any], cp: ControlPlane) -> bytes:
    body = msgspec.json.encode(binding)
    lines = [
        f"POST /api/v1/namespaces/{NAMESPACE}/pods/{binding['metadata']['name']}/binding HTTP/1.1",
        f"Host: 127.0.0.1:{cp.port}",
        "User-Agent: gangsched-null-binder",
        "Accept: application/json",
        "Content-Type: application/json",
        f"Authorization: Bearer {cp.token}",
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def _python(module: str, arguments: Sequence[str], log: Path) -> Daemon:
    return Daemon(module, [sys.executable, "-m", module, *arguments], log=log, env=os.environ)
