"""The scheduler as a user runs it: a process with a config file and the rights of deploy/rbac.yaml.

Lives here: its start, its ends, its log; and the proxy that holds Bindings back. Not here: pods and nodes
(cluster.py).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from gangsched.lab.controlplane.daemon import Daemon
from gangsched.lab.controlplane.processes import ControlPlane
from tests.proxy import Proxy, Rule
from tests.support.applying import token_of
from tests.support.threads import in_a_thread

SERVICE_ACCOUNT = ("gangsched-system", "gangsched")
STOP_S = 15.0
_BIND = re.compile(r"POST /api/v1/namespaces/default/pods/([^/]+)/binding")


def service_account(
    plane: ControlPlane, path: Path, *, server: str = "", ca_file: Path | None = None
) -> Path:
    """A kubeconfig with a token of the service account that deploy/rbac.yaml makes."""
    namespace, name = SERVICE_ACCOUNT
    token = token_of(plane, name, namespace)
    cluster = {"server": server or plane.base_url, "certificate-authority": str(ca_file or plane.ca_file)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "here", "cluster": cluster}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": name}}],
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document))
    return path


def write_config(path: Path, *, also_named: Sequence[str] = (), **settings: Any) -> Path:
    """A configuration file with a profile `gangsched`, and one for each of `also_named`; `settings` are
    GangschedConfiguration's fields."""
    kube = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "podMaxBackoffSeconds": 2,
        "profiles": [{"schedulerName": name} for name in ("gangsched", *also_named)],
    }
    ours = {"apiVersion": "gangsched.io/v1", "kind": "GangschedConfiguration", **settings}
    path.write_text(yaml.safe_dump_all([kube, ours]))
    return path


class Scheduler(Daemon):
    """`gangsched scheduler` with its log in a file; `port` of its pages, 0 for none; `plugins`: files."""

    def __init__(
        self,
        config: Path,
        kubeconfig: Path,
        log: Path,
        *,
        port: int = 0,
        plugins: Sequence[Path] = (),
        flags: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        command = [sys.executable, "-m", "gangsched.command.cli", "scheduler"]
        command += [f"--config={config}", f"--kubeconfig={kubeconfig}", f"--secure-port={port}"]
        command += [f"--plugin={plugin}" for plugin in plugins]
        command += flags
        super().__init__("gangsched", command, log=log, env={**os.environ, "NO_PROXY": "*", **(env or {})})

    @property
    def said(self) -> str:
        """Its log so far."""
        return self.log.read_text(errors="replace")

    def stop_cleanly(self) -> None:
        """SIGTERM; it must end by itself with code 0, and must never have printed a traceback."""
        self.stop(timeout_s=STOP_S)
        assert self.process.returncode == 0, f"ended with {self.process.returncode}:\n{self.said}"
        self.never_broke()

    def never_broke(self) -> None:
        assert "Traceback" not in self.said, self.said


class BindingGate:
    """Which Bindings and evictions a proxy before the API server lets through; the others it holds."""

    def __init__(self, lets_through: Callable[[str, int], bool]) -> None:
        self._lets_through = lets_through
        self.passed: list[str] = []
        self.held: list[str] = []
        self.evictions: list[str] = []

    def holds(self, request: str) -> bool:
        """The proxy's rule: asked for each request, in the order of their coming."""
        if request.endswith("/eviction"):
            self.evictions.append(request)
            return not self._lets_through("eviction", len(self.evictions))
        match = _BIND.match(request)
        if match is None:
            return False
        name = match[1]
        if self._lets_through(name, len(self.passed)):
            self.passed.append(name)
            return False
        self.held.append(name)
        return True


@contextmanager
def binding_gate(
    plane: ControlPlane,
    directory: Path,
    lets_through: Callable[[str, int], bool],
    *,
    delay_s: float = 0.0,
    answer: bytes = b"",
) -> Iterator[tuple[BindingGate, Path]]:
    """The gate, and a kubeconfig that leads through it.

    `lets_through` is given the pod's name and how many have passed; for an eviction, "eviction" and how many
    have come with it. `answer` is what the others get instead; an empty one leaves their sender waiting.
    """
    gate = BindingGate(lets_through)
    proxy, certificate = Proxy.before(plane, directory)
    proxy.rule(Rule(gate.holds, times=sys.maxsize, answer=answer))
    proxy.delay_s = delay_s
    with in_a_thread(proxy):
        account = directory / "gate.yaml"
        yield gate, service_account(plane, account, server=proxy.url, ca_file=certificate)
