"""What a conformance run is made of: e2e.test and kwok, built from go.mod beside this file.

What does not live here: the control plane's binaries (gangsched/lab/controlplane).
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from gangsched.lab.controlplane import assets, build

KWOK_VERSION = "v0.8.0"
_KWOK = "sigs.k8s.io/kwok"
# Nodes are ready and stay so by their leases, pods run at once, a Job's end at once, deleted ones go at once.
_STAGES = ("node/fast", "node/heartbeat-with-lease", "pod/fast")
# As a kubelet does with an extended resource that somebody added to a node's capacity, or took from it.
_ALLOCATABLE = """
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata:
  name: node-allocatable
spec:
  resourceRef:
    apiGroup: v1
    kind: Node
  selector:
    matchExpressions:
    - key: 'if .status.capacity == .status.allocatable then "same" else "differs" end'
      operator: In
      values: ["differs"]
  weight: 10000
  next:
    patches:
    - subresource: status
      root: status
      type: merge
      template: |
        {{ $capacity := .status.capacity }}
        allocatable:
        {{ range $name, $amount := .status.allocatable }}
        {{ if not (index $capacity $name) }}
          {{ $name | Quote }}: null
        {{ end }}
        {{ end }}
        {{ range $name, $amount := .status.capacity }}
          {{ $name | Quote }}: {{ $amount | Quote }}
        {{ end }}
"""
# As a kubelet does before it lets a pod go: one that goes without was deleted by force, and may run on, with
# its devices.
_ENDED = """
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata:
  name: pod-ended
spec:
  resourceRef:
    apiGroup: v1
    kind: Pod
  selector:
    matchExpressions:
    - key: '.metadata.deletionTimestamp'
      operator: Exists
    - key: '.spec.resourceClaims'
      operator: Exists
    - key: '.status.phase'
      operator: In
      values: ["Running"]
  weight: 10000
  next:
    statusTemplate: |
      phase: Failed
"""

MODULE = assets.Module(
    name="conformance",
    version=assets.KUBERNETES_VERSION,
    directory=Path(__file__).parent,
    required=("e2e.test", "kwok"),
)
RECIPE = build.Recipe(
    module=MODULE,
    tools=(
        build.Tool(name="kwok", package=f"{_KWOK}/cmd/kwok", expected_s=60),
        build.Tool(name="e2e.test", package="k8s.io/kubernetes/test/e2e", expected_s=300, of_tests=True),
    ),
    ldflags=build.kubernetes_ldflags(),
    cold_after="e2e.test",
    cold_bytes=build.COLD_DISK_BYTES,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The binaries, and the stages by which kwok plays nodes and pods."""

    control_plane: assets.Assets
    e2e: Path
    kwok: Path
    stages: str


def ready() -> Tools:
    """Builds what is missing in the user's cache, minutes the first time.

    Raises: CannotBuild, BuildFailed, MissingAssets, ConfigError.
    """
    control_plane = assets.find()
    for name in ("kube-scheduler", "kube-controller-manager"):
        control_plane.path(name)
    folder = build.ensure(RECIPE)
    return Tools(
        control_plane=control_plane, e2e=folder / "e2e.test", kwok=folder / "kwok", stages=_published_stages()
    )


def _published_stages() -> str:
    """kwok's own stages, one YAML stream; they are in its module and not in its binary."""
    go = build.find_go()
    command = [str(go), "mod", "download", "-json", f"{_KWOK}@{KWOK_VERSION}"]
    done = subprocess.run(
        command, cwd=MODULE.directory, env=build.go_environment(go), capture_output=True, text=True
    )
    if done.returncode != 0:
        raise build.CannotBuild(f"{' '.join(command[1:])}: {(done.stderr or done.stdout).strip()}")
    folder = Path(json.loads(done.stdout)["Dir"]) / "kustomize" / "stage"
    files = [path for part in _STAGES for path in sorted((folder / part).glob("*.yaml"))]
    stages = [path.read_text() for path in files if path.name != "kustomization.yaml"]
    return "---\n".join([*stages, _ALLOCATABLE, _ENDED])
