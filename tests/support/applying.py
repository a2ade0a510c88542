"""What kubectl does before many tests, without kubectl, which takes a third of a second of CPU to start.

That deploy/ applies with kubectl is what tests/deploy shows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from gangsched.lab.controlplane.processes import ControlPlane

_APPLY = "application/apply-patch+yaml"


def apply(plane: ControlPlane, *files: Path) -> None:
    """As `kubectl apply --server-side --force-conflicts`, object by object in the order of the files."""
    for file in files:
        for body in yaml.safe_load_all(file.read_text()):
            plane.request("PATCH", f"{_path(body)}?fieldManager=tests&force=true", body, content_type=_APPLY)


def token_of(plane: ControlPlane, account: str, namespace: str) -> str:
    """As `kubectl create token`."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return str(plane.request("POST", path, asked)["status"]["token"])


def _path(body: dict[str, Any]) -> str:
    version, metadata = body["apiVersion"], body["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    place = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    return f"{root}{place}/{_plural(body['kind'].lower())}/{metadata['name']}"


def _plural(kind: str) -> str:
    if kind.endswith("y"):
        return f"{kind[:-1]}ies"
    return f"{kind}es" if kind.endswith("s") else f"{kind}s"
