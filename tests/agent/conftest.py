"""A real API server with deploy/agent applied, and nodes with agents on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gangsched.controlplane.processes import ControlPlane
from tests.agent.process import ACCOUNT, DEPLOY, NAMESPACE, Site, kubeconfig_of


@pytest.fixture
def site(fresh_cluster: ControlPlane, tmp_path: Path) -> Iterator[Site]:
    """Agents with the rights of deploy/agent/rbac.yaml; its policies are test_deploy's."""
    fresh_cluster.kubectl("apply", "-f", str(DEPLOY / "rbac.yaml"))
    token = fresh_cluster.kubectl("create", "token", ACCOUNT, f"--namespace={NAMESPACE}").strip()
    made = Site(fresh_cluster, tmp_path, kubeconfig_of(fresh_cluster, token, tmp_path / "agent.kubeconfig"))
    try:
        yield made
    finally:
        made.close()
