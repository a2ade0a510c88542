"""The agent as a user runs it: a process with the rights of deploy/agent, and a directory of device files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from gangsched.lab.controlplane.daemon import Daemon
from gangsched.lab.controlplane.processes import ControlPlane
from tests.support.processes import answered, until

GPU = "nvidia.com/gpu"
KEY = "gangsched.io/devices"
DEPLOY = Path(__file__).parents[2] / "deploy" / "agent"
NAMESPACE, ACCOUNT = "gangsched-agent", "gangsched-agent"
PATIENCE_S = 60.0
"""Nothing is timed here; so long a wait means that it will never be."""
MERGE = "application/merge-patch+json"


class Agent(Daemon):
    """`gangsched agent` with its log in a file."""

    def __init__(self, node: str, kubeconfig: Path, log: Path, *flags: str) -> None:
        command = [sys.executable, "-m", "gangsched.command.cli", "agent", f"--node-name={node}"]
        command += [f"--kubeconfig={kubeconfig}", "--nvml=off", *flags]
        super().__init__("gangsched agent", command, log=log, env={**os.environ, "NO_PROXY": "*"})

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")


class Site:
    """Nodes with agents: `site.node("n1")`, `site.devices("n1", "a", "b")`, `site.agent("n1")`."""

    def __init__(self, plane: ControlPlane, directory: Path, kubeconfig: Path) -> None:
        self.plane = plane
        self.directory = directory
        self.kubeconfig = kubeconfig
        self.agents: list[Agent] = []

    def node(self, name: str) -> dict[str, Any]:
        # With a label, as every kubelet's: of an object that is made without any field of its own the API
        # server never notes who writes what.
        metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
        made: dict[str, Any] = self.plane.request("POST", "/api/v1/nodes", {"metadata": metadata})
        room = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: "8"}
        status = {"status": {"allocatable": room, "capacity": room}}
        self.plane.request("PATCH", f"/api/v1/nodes/{name}/status", status, content_type=MERGE)
        return made

    def devices(self, node: str, *ids: str, sick: tuple[str, ...] = ()) -> None:
        """What the node's file says from now on; written as a careful person does, in one step."""
        listed = [{"id": one, "health": "Unhealthy" if one in sick else "Healthy"} for one in ids]
        self.file(node, json.dumps({GPU: listed}))

    def file(self, node: str, text: str) -> None:
        folder = self.directory / node
        folder.mkdir(exist_ok=True)
        (folder / "new").write_text(text)
        (folder / "new").rename(folder / "gpus.json")

    def agent(self, node: str, *flags: str) -> Agent:
        log = self.directory / f"agent-{len(self.agents)}.log"
        made = Agent(node, self.kubeconfig, log, f"--devices={self.directory / node}", *flags)
        self.agents.append(made)
        return made

    def dry_run(self, *flags: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "gangsched.command.cli", "agent", f"--kubeconfig={self.kubeconfig}"]
        return subprocess.run(
            [*command, "--nvml=off", "--dry-run", *flags], capture_output=True, text=True, timeout=60
        )

    def listed(self, node: str, resource: str = GPU) -> dict[str, str] | None:
        """Device -> health, as the Node says; None where it says nothing."""
        found = self.plane.request("GET", f"/api/v1/nodes/{node}")
        text = found["metadata"].get("annotations", {}).get(KEY)
        if text is None:
            return None
        return {device["id"]: device["health"] for device in json.loads(text).get(resource, [])}

    def until(self, true: Callable[[], object], what: str) -> None:
        until(answered(true), what, timeout_s=PATIENCE_S, story=self._said, check=self._check)

    def _said(self) -> str:
        return "\n".join(agent.said for agent in self.agents)

    def _check(self) -> None:
        assert "Traceback" not in self._said(), self._said()

    def says(self, node: str, **health: str) -> None:
        """Waits until the node lists just these devices."""
        self.until(lambda: self.listed(node) == health, f"{node} lists {health}; {self.listed(node)}")

    def close(self) -> None:
        for agent in self.agents:
            agent.kill()


def kubeconfig_of(plane: ControlPlane, token: str, path: Path) -> Path:
    cluster = {"server": plane.base_url, "certificate-authority": str(plane.ca_file)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "here", "cluster": cluster}],
        "users": [{"name": "agent", "user": {"token": token}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "agent"}}],
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document))
    return path
