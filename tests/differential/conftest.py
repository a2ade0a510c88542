"""The control plane and the kube-scheduler of this suite: its own, as they run with other gates."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gangsched.lab.controlplane.assets import Assets
from gangsched.lab.controlplane.processes import ControlPlane
from tests.differential.kube import APISERVER_FLAGS, KubeScheduler


@pytest.fixture(scope="package")
def kube_scheduler(assets: Assets) -> Iterator[KubeScheduler]:
    with ControlPlane(assets=assets, unsafe_no_fsync=True, apiserver_flags=APISERVER_FLAGS) as plane:
        yield KubeScheduler(plane)
