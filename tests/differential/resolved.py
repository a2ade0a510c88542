"""What a configuration file comes to in the real kube-scheduler, and in ours, in the same terms.

With --write-config-to it makes its profiles, writes the file as it understood it and ends, all in a tenth of
a second and without an API server; at -v=2 it says which plugins it runs at each point, in which order and
with which weights. Lives here: running it and reading that; not comparing.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import yaml

from gangsched.config import parse_config
from gangsched.plugins import IN_TREE

HEAD = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
_NOBODY = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "here",
    "clusters": [{"name": "here", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "nobody", "user": {}}],
    "contexts": [{"name": "here", "context": {"cluster": "here", "user": "nobody"}}],
}
_STARTS = "the scheduler starts to work with those plugins"
DEADLINE_S = 60.0

Points = dict[str, list[tuple[str, int]]]
"""Point -> (plugin, weight) in order; weight 0 where none counts."""


class Resolved(msgspec.Struct):
    """profiles: name -> points; args: name -> plugin -> its arguments as data; refusal: why there is none."""

    profiles: dict[str, Points] = {}
    args: dict[str, dict[str, Any]] = {}
    refusal: str = ""
    document: dict[str, Any] = {}


class KubeSchedulerReader:
    """The binary, and a folder for its files."""

    def __init__(self, binary: Path, folder: Path) -> None:
        self._binary = binary
        self._folder = folder
        self._kubeconfig = folder / "kubeconfig"
        self._kubeconfig.write_text(json.dumps(_NOBODY))

    def read(self, document: dict[str, Any], *flags: str) -> Resolved:
        """What it makes of the document, or what it says against it."""
        path, written = self._folder / "config.yaml", self._folder / "written.yaml"
        written.unlink(missing_ok=True)
        connection = {"kubeconfig": str(self._kubeconfig)} | document.get("clientConnection", {})
        path.write_text(json.dumps(HEAD | document | {"clientConnection": connection}))
        command = [
            str(self._binary),
            f"--config={path}",
            f"--write-config-to={written}",
            "--logging-format=json",
            "-v=2",
            "--secure-port=0",
            *flags,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
        lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
        if done.returncode != 0:
            said = [line["err"] for line in lines if "err" in line] or [done.stderr]
            return Resolved(refusal=said[-1])
        found = yaml.safe_load(written.read_text())
        names = [profile["schedulerName"] for profile in found["profiles"]]
        points = [_points(line["Plugins"]) for line in lines if line["msg"] == _STARTS]
        args = [
            {one["name"]: one.get("args") for one in profile.get("pluginConfig", ())}
            for profile in found["profiles"]
        ]
        return Resolved(
            dict(zip(names, points, strict=True)), dict(zip(names, args, strict=True)), document=found
        )


def _points(plugins: dict[str, Any]) -> Points:
    """Its names of points begin with a capital letter there."""
    return {
        point[0].lower() + point[1:]: [(one["Name"], one["Weight"]) for one in listed["Enabled"] or ()]
        for point, listed in plugins.items()
        if point != "MultiPoint"
    }


def ours(document: dict[str, Any]) -> Resolved:
    """Raises: ConfigError."""
    config = parse_config(json.dumps(HEAD | document), source="f.yaml", plugins=IN_TREE)
    resolved = Resolved()
    for profile in config.profiles:
        resolved.profiles[profile.scheduler_name] = {
            point: [(name, profile.weights[name] if point == "score" else 0) for name in names]
            for point, names in profile.plugins.items()
        }
        resolved.args[profile.scheduler_name] = {
            name: msgspec.to_builtins(args) for name, args in profile.args.items()
        }
    return resolved
