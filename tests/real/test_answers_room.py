"""Why is it pending? Gangs that wait for room, each made on a real API server; docs/why-pending.md has the
answers.

One scheduler answers all; each test has nodes and gangs of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gangsched.lab.controlplane.processes import ControlPlane
from tests.conftest import wipe
from tests.real.answers import BACKS_OFF, AskedCluster, shown
from tests.real.cluster import MERGE, RACK, checking
from tests.real.picture import GPU

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def shared(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AskedCluster]:
    wipe(control_plane)
    with checking(AskedCluster(control_plane, tmp_path_factory.mktemp("asked"))) as made:
        # By default nothing is estimated unless asked for. With `queueing` it is, every half minute: whether
        # an answer began with an estimate would be chance.
        made.schedule()
        yield made


@pytest.fixture
def cluster(shared: AskedCluster) -> Iterator[AskedCluster]:
    yield shared
    shared.clear()
    wipe(shared.plane)
    shared.picture.until(lambda: not shared.picture.pods, "no pod is left")


def change(cluster: AskedCluster, node: str, **what: Any) -> None:
    cluster.plane.request("PATCH", f"/api/v1/nodes/{node}", what, content_type=MERGE)


def test_gpus_that_are_only_reserved(cluster: AskedCluster) -> None:
    cluster.nodes(2, racks=2)
    # Which of two equal nodes it would get depends on the nodes of earlier tests.
    total, on_n0 = {"gangsched.io/total-members": "2"}, {RACK: "r0"}
    cluster.gang("evaluate", pods=1, gpus=8, annotations=total, nodeSelector=on_n0)
    cluster.told("evaluate", "Permit waits")
    cluster.gang("train", pods=2, gpus=8)
    told = cluster.told(
        "train",
        "1 of 2 members fit.",
        f"8 {GPU} are reserved by default/evaluate until ",
        "default/evaluate (8 reserved)",
        condition=f"8 {GPU} are reserved by default/evaluate.",
    )
    shown("GPUs that another gang has only reserved", told)


def test_a_gang_that_waits_in_permit(cluster: AskedCluster) -> None:
    cluster.nodes(1)
    cluster.gang("evaluate", pods=1, gpus=4, annotations={"gangsched.io/total-members": "2"})
    told = cluster.told(
        "evaluate",
        "Room for 1 pod of it is reserved on n0",
        "1 of 2 members are here (GangScheduling)",
        "To do: ",
        condition="1 of 2 members are here",
    )
    shown("It is reserved, and Permit waits", told)


def test_a_gang_that_waited_too_long_in_permit(cluster: AskedCluster) -> None:
    cluster.nodes(1)
    annotations = {"gangsched.io/total-members": "2", "gangsched.io/schedule-timeout": "2s"}
    cluster.gang("evaluate", pods=1, gpus=4, annotations=annotations)
    told = cluster.told("evaluate", BACKS_OFF, "is tried again in", condition="1 of 2 members are here")
    shown("It waited too long in Permit", told)


def test_a_gang_larger_than_the_cluster(cluster: AskedCluster) -> None:
    cluster.nodes(2)
    cluster.gang("train", pods=4, gpus=8)
    small = "with nothing else running, 2 of 4 would fit."
    told = cluster.told("train", small, "Waiting does not help", condition=small)
    shown("It is larger than the cluster", told)


def test_a_label_value_that_no_node_has(cluster: AskedCluster) -> None:
    cluster.nodes(2)
    for name in ("n0", "n1"):
        taints = [{"key": "dedicated", "value": "web", "effect": "NoSchedule"}]
        change(cluster, name, metadata={"labels": {"gpu-model": "hopper"}}, spec={"taints": taints})
    cluster.gang("train", pods=2, gpus=8, nodeSelector={"gpu-model": "hoper"})
    meant = "no node has gpu-model=hoper; did you mean hopper?"
    told = cluster.told("train", meant, condition=meant)
    shown("A label's value is misspelt", told)


def test_a_taint(cluster: AskedCluster) -> None:
    cluster.nodes(2)
    for name in ("n0", "n1"):
        taints = [{"key": GPU, "value": "a100", "effect": "NoSchedule"}]
        change(cluster, name, spec={"taints": taints})
    cluster.gang("train", pods=2, gpus=8)
    told = cluster.told("train", f"{{{GPU}=a100:NoSchedule}}", "olerat", condition=f"{GPU}=a100:NoSchedule")
    shown("A taint", told)


def test_a_rack(cluster: AskedCluster) -> None:
    cluster.nodes(4, racks=2)
    cluster.gang("train", pods=3, gpus=8, annotations={"gangsched.io/topology": f"required: {RACK}"})
    rack = f"no {RACK} has room for 3 members: r0 could take 2, r1 could take 2."
    told = cluster.told("train", rack, condition=rack)
    shown("No rack is large enough", told)


def test_unhealthy_devices(cluster: AskedCluster) -> None:
    states = ["Healthy"] * 7 + ["Unhealthy"]
    cluster.node("n0", [{"id": f"GPU-0-{k}", "health": state} for k, state in enumerate(states)])
    cluster.gang("train", pods=1, gpus=8)
    ill = "Unhealthy: GPU-0-7 on n0."
    told = cluster.told("train", ill, condition=ill)
    shown("A device is not healthy", told)


def test_ids_are_required_and_nobody_lists_devices(cluster: AskedCluster) -> None:
    cluster.node("n0", "{}")
    cluster.gang("train", pods=1, gpus=8, annotations={"gangsched.io/require-device-ids": "true"})
    told = cluster.told(
        "train",
        f"node(s) did not list their {GPU}, whose IDs must be known",
        "agent",
        condition=f"node(s) did not list their {GPU}",
    )
    shown("IDs are required, and no agent lists devices", told)
