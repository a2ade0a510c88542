"""Helm as a user runs it on the chart of the source tree: rendering, and releases on a real API server."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangsched.errors import ConfigError
from gangsched.lab.controlplane import assets
from gangsched.lab.controlplane.build import REQUIRE_VARIABLE
from tests.deploy.generate_chart import CHART

RELEASE, NAMESPACE = "gangsched", "gangsched-system"


class Refused(Exception):
    """What helm said when it ended with an error."""


class Helm:
    """The pinned helm with a home of its own; `kubeconfig` where it shall reach a cluster."""

    def __init__(self, home: Path, kubeconfig: Path | None = None) -> None:
        self._binary = assets.find(module=assets.HELM).path("helm")
        self._env = {
            **os.environ,
            **{f"HELM_{name}_HOME": str(home / name.lower()) for name in ("CACHE", "CONFIG", "DATA")},
            "KUBECONFIG": str(kubeconfig or home / "none"),
        }

    def __call__(self, *arguments: str) -> str:
        """What it prints. Raises: Refused."""
        done = subprocess.run(
            [str(self._binary), *arguments], env=self._env, capture_output=True, text=True, timeout=120
        )
        if done.returncode != 0:
            raise Refused(done.stderr.strip())
        return done.stdout

    def rendered(self, **values: Any) -> list[dict[str, Any]]:
        """The objects of a release with these values, each as `agent__enabled=True` or a whole map."""
        given = [
            f"--set-json={path.replace('__', '.')}={json.dumps(value)}" for path, value in values.items()
        ]
        text = self("template", RELEASE, str(CHART), f"--namespace={NAMESPACE}", "--include-crds", *given)
        return [document for document in yaml.safe_load_all(text) if document]


def found_helm(home: Path, kubeconfig: Path | None = None) -> Helm:
    """The built one; without it the test is skipped, or fails where everything must run."""
    try:
        return Helm(home, kubeconfig)
    except ConfigError as error:
        if os.environ.get(REQUIRE_VARIABLE) == "1":
            pytest.fail(f"{REQUIRE_VARIABLE}=1, but: {error}", pytrace=False)
        pytest.skip(f"no Helm: {error}")
