"""Both servers, one of each for the whole run, and for each test a namespace of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from gangsched.lab.apiserver.app import EmbeddedCluster, Simulation
from gangsched.lab.controlplane.assets import Assets
from gangsched.lab.controlplane.processes import GANG_GATE, GROUP_CLAIMS_GATE, ControlPlane
from tests.contract.api import Api
from tests.support.threads import in_a_thread

_numbers = itertools.count()


@pytest.fixture(scope="session")
def embedded_api() -> Iterator[Api]:
    """An embedded API server on a loop of its own, without simulated nodes and controllers."""
    cluster = EmbeddedCluster(port=0)
    with in_a_thread(cluster):
        api = Api("embedded", cluster.url)
        api.forget = cluster.registry.store.compact
        yield api
        api.close()


@pytest.fixture(scope="session")
def real_api(littered_plane: ControlPlane) -> Iterator[Api]:
    api = Api("real", littered_plane.base_url, littered_plane.token, str(littered_plane.ca_file))
    # Its watch cache begins at its start.
    api.forget = littered_plane.restart_apiserver
    yield api
    api.close()


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def api(request: pytest.FixtureRequest) -> Api:
    """One of the two servers, with a namespace that this test alone uses."""
    return _in_a_namespace(request.getfixturevalue(f"{request.param}_api"))


def _in_a_namespace(server: Api) -> Api:
    server.namespace = f"contract-{next(_numbers)}"
    server.post("/api/v1/namespaces", {"metadata": {"name": server.namespace}}).ok(201)
    return server


@pytest.fixture(scope="session")
def embedded_controllers() -> Iterator[Api]:
    """An embedded cluster with its controllers; nobody runs the pods."""
    cluster = EmbeddedCluster(port=0, simulation=Simulation(kubelets=False), podgroup_claims=True)
    with in_a_thread(cluster):
        api = Api("embedded", cluster.url)
        yield api
        api.close()


@pytest.fixture(scope="session")
def real_controllers(assets: Assets) -> Iterator[Api]:
    """A real API server with the controllers of claims, of garbage and of deleted PodGroups."""
    flags = [GANG_GATE, GROUP_CLAIMS_GATE]
    names = ["garbage-collector-controller", "podgroup-protection-controller", "resourceclaim-controller"]
    with ControlPlane(assets=assets, apiserver_flags=[GROUP_CLAIMS_GATE], unsafe_no_fsync=True) as plane:
        plane.start_controllers(*names, flags=flags)
        api = Api("real", plane.base_url, plane.token, str(plane.ca_file))
        yield api
        api.close()


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def controlled(request: pytest.FixtureRequest) -> Api:
    """One of the two servers with controllers, with a namespace that this test alone uses."""
    return _in_a_namespace(request.getfixturevalue(f"{request.param}_controllers"))
