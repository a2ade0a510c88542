"""A control plane that keeps an audit log, and the kustomize base as kubectl reads it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangsched.controlplane.assets import find
from gangsched.controlplane.build import REQUIRE_VARIABLE
from gangsched.controlplane.processes import ControlPlane
from gangsched.errors import ConfigError
from tests.deploy.rights import AUDIT_POLICY

DEPLOY = Path(__file__).parents[2] / "deploy"


class Audited(ControlPlane):
    """Writes each request, with its user, verb and object, to `audit_log`."""

    def __init__(self, directory: Path, **more: Any) -> None:
        policy = directory / "audit-policy.yaml"
        policy.write_text(AUDIT_POLICY)
        self.audit_log = directory / "audit.log"
        flags = [f"--audit-policy-file={policy}", f"--audit-log-path={self.audit_log}"]
        super().__init__(apiserver_flags=[*flags, "--audit-log-mode=blocking"], **more)


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audited]:
    """A fresh one: nobody has applied anything to it."""
    try:
        assets = find()
    except ConfigError as error:
        if os.environ.get(REQUIRE_VARIABLE) == "1":
            pytest.fail(f"{REQUIRE_VARIABLE}=1, but: {error}", pytrace=False)
        pytest.skip(f"no real control plane: {error}")
    directory = tmp_path_factory.mktemp("audited")
    with Audited(directory, assets=assets, unsafe_no_fsync=True) as running:
        yield running


@pytest.fixture(scope="module")
def base() -> list[dict[str, Any]]:
    """What `kubectl apply -k deploy/` would send."""
    try:
        kubectl = find().path("kubectl")
    except ConfigError as error:
        pytest.skip(f"no kubectl: {error}")
    done = subprocess.run(
        [str(kubectl), "kustomize", str(DEPLOY)], capture_output=True, text=True, timeout=60, check=True
    )
    return [document for document in yaml.safe_load_all(done.stdout) if document]
