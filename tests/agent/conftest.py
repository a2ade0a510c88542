"""A real API server with deploy/agent applied, and nodes with agents on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gangsched.lab.controlplane.processes import ControlPlane
from tests.agent.process import ACCOUNT, DEPLOY, NAMESPACE, Site, kubeconfig_of
from tests.support.applying import apply, token_of


@pytest.fixture
def site(fresh_cluster: ControlPlane, tmp_path: Path) -> Iterator[Site]:
    """Agents with the rights of deploy/agent/rbac.yaml; its policies are test_deploy's."""
    apply(fresh_cluster, DEPLOY / "rbac.yaml")
    token = token_of(fresh_cluster, ACCOUNT, NAMESPACE)
    made = Site(fresh_cluster, tmp_path, kubeconfig_of(fresh_cluster, token, tmp_path / "agent.kubeconfig"))
    try:
        yield made
    finally:
        made.close()
