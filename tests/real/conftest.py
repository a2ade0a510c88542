"""The fixtures of the end-to-end tests: a cluster, and a check of its whole history at the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gangsched.lab.controlplane.assets import Assets
from gangsched.lab.controlplane.processes import ControlPlane
from tests.real.claimed import ClaimCluster, checked_claims, claim_control_plane
from tests.real.cluster import Cluster, checked
from tests.real.jobs import JobCluster, checked_jobs, job_control_plane


@pytest.fixture
def cluster(fresh_cluster: ControlPlane, tmp_path: Path) -> Iterator[Cluster]:
    """Empty, with rights and CRD in place; what must always hold is checked when the test has passed."""
    with checked(fresh_cluster, tmp_path) as made:
        yield made


@pytest.fixture(scope="session")
def job_plane(assets: Assets) -> Iterator[ControlPlane]:
    """A control plane with Kubernetes' own Job controller, for this process."""
    with job_control_plane(assets) as running:
        yield running


@pytest.fixture
def job_cluster(job_plane: ControlPlane, tmp_path: Path) -> Iterator[JobCluster]:
    """As `cluster`, where Jobs make pods."""
    with checked_jobs(job_plane, tmp_path) as made:
        yield made


@pytest.fixture(scope="session")
def claim_plane(assets: Assets) -> Iterator[ControlPlane]:
    """A control plane with Kubernetes' own resourceclaim controller, for this process."""
    with claim_control_plane(assets) as running:
        yield running


@pytest.fixture
def claim_cluster(claim_plane: ControlPlane, tmp_path: Path) -> Iterator[ClaimCluster]:
    """As `cluster`, whose devices are offered and claimed by Dynamic Resource Allocation."""
    with checked_claims(claim_plane, tmp_path) as made:
        yield made
