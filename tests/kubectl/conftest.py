"""kubectl for an embedded server without nodes and for a real one alike, and for an embedded cluster that lives."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangsched.lab.apiserver.app import EmbeddedCluster, Simulation
from gangsched.lab.controlplane.assets import Assets
from gangsched.lab.controlplane.processes import ControlPlane
from tests.kubectl.run import Kubectl
from tests.support.threads import in_a_thread

_numbers = itertools.count()


def _kubectl(cluster: EmbeddedCluster, assets: Assets, directory: Path) -> Kubectl:
    return Kubectl(assets.path("kubectl"), cluster.kubeconfig(directory / "kubeconfig"), directory / "cache")


@pytest.fixture(scope="session")
def bare_kubectl(assets: Assets, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """An embedded API server, without nodes and controllers, as a bare kube-apiserver is."""
    cluster = EmbeddedCluster(port=0)
    with in_a_thread(cluster):
        yield _kubectl(cluster, assets, tmp_path_factory.mktemp("kubectl-test-bare"))


@pytest.fixture(scope="session")
def real_kubectl(littered_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    directory = tmp_path_factory.mktemp("kubectl-test-real")
    return Kubectl(littered_plane.assets.path("kubectl"), littered_plane.kubeconfig, directory / "cache")


@pytest.fixture
def both(bare_kubectl: Kubectl, real_kubectl: Kubectl) -> tuple[Kubectl, Kubectl]:
    """The embedded server's and the real one's, each in a new namespace of the same name."""
    namespace = f"kubectl-{next(_numbers)}"
    for kubectl in (bare_kubectl, real_kubectl):
        kubectl("create", "namespace", namespace)
        kubectl.namespace = namespace
    return bare_kubectl, real_kubectl


@pytest.fixture(scope="session")
def living_kubectl(assets: Assets, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """An embedded cluster with four nodes, whose time passes twenty times as fast."""
    simulation = Simulation(nodes=4, gpus=8, racks=2, speed=20.0)
    cluster = EmbeddedCluster(port=0, simulation=simulation)
    with in_a_thread(cluster):
        yield _kubectl(cluster, assets, tmp_path_factory.mktemp("kubectl-test-living"))


@pytest.fixture
def living(living_kubectl: Kubectl) -> Iterator[Kubectl]:
    """That cluster, in a new namespace, which goes with its pods when the test ends."""
    namespace = f"living-{next(_numbers)}"
    living_kubectl("create", "namespace", namespace)
    living_kubectl.namespace = namespace
    yield living_kubectl
    living_kubectl.namespace = ""
    living_kubectl("delete", "namespace", namespace, "--wait=false")
