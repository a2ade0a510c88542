"""The fixture of the end-to-end tests: a cluster, and a check of its whole history at the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gangsched.controlplane.processes import ControlPlane
from tests.real.cluster import Cluster, checked


@pytest.fixture
def cluster(fresh_cluster: ControlPlane, tmp_path: Path) -> Iterator[Cluster]:
    """Empty, with rights and CRD in place; what must always hold is checked when the test has passed."""
    with checked(fresh_cluster, tmp_path) as made:
        yield made
