"""What people get wrong: each mistake is reported where they look for it, and everything else goes on."""

from __future__ import annotations

import json

import pytest

from tests.real.cluster import Cluster
from tests.real.picture import GPU, ids_of

pytestmark = pytest.mark.real

LIGHTWEIGHT = "pod-group.scheduling.sigs.k8s.io"
# labels, annotations, what the pod's condition and its event say
OURS = {"gangsched.io/pod-group": "x"}
MISTAKES: list[tuple[dict[str, str], dict[str, str], str]] = [
    (
        OURS,
        {"gangsched.io/min-members": "many"},
        "gangsched.io/min-members: 'many' is",
    ),
    (OURS, {"gangsched.io/min-members": "0"}, "'0' is not a whole number from 1"),
    (
        OURS,
        {"gangsched.io/min-members": "4", "gangsched.io/total-members": "2"},
        "2 is less than gangsched.io/min-members, 4",
    ),
    (OURS, {"gangsched.io/schedule-timeout": "soon"}, "'soon' is not a duration"),
    (OURS, {"gangsched.io/groups": "y, z"}, "is not a JSON list of groups"),
    (
        OURS,
        {"gangsched.io/on-partial-bind": "hope"},
        "neither complete nor unwind",
    ),
    ({f"{LIGHTWEIGHT}/name": "x", f"{LIGHTWEIGHT}/min-available": "two"}, {}, "'two' is not a whole number"),
    (
        {"gangsched.io/pod-group": "x", "scheduling.x-k8s.io/pod-group": "y"},
        {},
        "the pod names different groups",
    ),
]


def good_gang_is_bound(cluster: Cluster, name: str = "good") -> None:
    cluster.gang(name, pods=2, gpus=1)
    cluster.whole(name)
    cluster.delete(name)


def test_mistakes_in_pods_are_reported_on_the_pod(cluster: Cluster) -> None:
    cluster.nodes(1)
    cluster.schedule()
    for i, (labels, words, says) in enumerate(MISTAKES):
        cluster.pod(f"bad{i}", labels=labels, annotations=words)
        cluster.held(f"bad{i}", says=says)
        assert says in cluster.event("FailedScheduling", f"bad{i}")["note"]
        good_gang_is_bound(cluster, f"good{i}")
        cluster.delete(f"bad{i}")


def test_members_that_disagree_are_reported(cluster: Cluster) -> None:
    cluster.nodes(1)
    cluster.schedule()
    label = {"gangsched.io/pod-group": "g"}
    cluster.pod("g-0", gpus=9, labels=label, annotations={"gangsched.io/min-members": "1"})  # never fits
    cluster.pod("g-1", labels=label, annotations={"gangsched.io/min-members": "2"})
    cluster.held("g", says="members disagree on gangsched.io/min-members: '1' (g-0), '2' (g-1)", members=2)
    good_gang_is_bound(cluster)


def test_more_members_wanted_than_exist(cluster: Cluster) -> None:
    cluster.nodes(1)
    cluster.schedule()
    cluster.gang("g", pods=2, gpus=1, min_count=3)
    good_gang_is_bound(cluster)
    cluster.held("g", says="waits for members: 2 of 3 exist", members=2)
    cluster.unchanged("g")


def test_members_of_different_schedulers(cluster: Cluster) -> None:
    cluster.nodes(1)
    cluster.schedule()
    words = {"gangsched.io/min-members": "2"}
    label = {"gangsched.io/pod-group": "g"}
    cluster.pod("g-1", labels=label, annotations=words, scheduler="default-scheduler")
    cluster.pod("g-0", labels=label, annotations=words)
    cluster.held("g-0", says="members name different schedulers (default-scheduler, gangsched)")
    good_gang_is_bound(cluster)
    cluster.gang("g", pods=3, min_count=2, gpus=0, members=[2])
    cluster.held("g-2", says="members name different schedulers")
    cluster.delete("g-1")
    cluster.whole("g")


@pytest.mark.parametrize(
    ("inventory", "says"),
    [
        (json.dumps({GPU: [{"id": "GPU-1"}, {"id": "GPU-1"}]}), "lists the ID 'GPU-1' twice"),
        ("8 GPUs, all fine", "is not a device inventory"),
        (json.dumps({GPU: [{"id": "x" * 80}]}), "an ID has 1 to 63 characters"),
    ],
)
def test_inventory_that_cannot_be_used_is_reported_on_the_node(
    cluster: Cluster, inventory: str, says: str
) -> None:
    cluster.node("bad", inventory)
    cluster.nodes(1, gpus=4)
    cluster.schedule()
    good_gang_is_bound(cluster)
    told = cluster.event("InvalidDeviceInventory", "bad")
    assert says in told["note"]
    assert told["regarding"]["kind"] == "Node"
    cluster.pod("p", gpus=5)
    cluster.held("p", says="0/2 nodes are available")  # it has room for 8 by its count, and no names for them
    devices = [{"id": f"GPU-b-{k}", "health": "Healthy"} for k in range(8)]
    cluster.inventory["bad"] = {str(device["id"]) for device in devices}
    cluster.annotate_node("bad", json.dumps({GPU: devices}))
    cluster.whole("p")


def test_allocation_that_cannot_be_read_is_reported_and_counted(cluster: Cluster) -> None:
    cluster.nodes(1, gpus=4)
    forged = {"gangsched.io/allocated-devices": "all of them"}
    cluster.pod("theirs", gpus=2, annotations=forged, scheduler="default-scheduler")
    cluster.bind_by_hand("theirs", "n0")
    cluster.schedule()
    good_gang_is_bound(cluster)
    assert "is not an allocation" in cluster.event("DeviceMismatch", "theirs")["note"]
    cluster.pod("p", gpus=3)
    cluster.held("p", says=f"Insufficient {GPU}")
    cluster.delete("theirs")
    cluster.whole("p")
    assert len(ids_of(cluster.members("p")[0])) == 3


def test_configuration_with_an_unknown_field_ends_with_its_place(cluster: Cluster) -> None:
    wrong = cluster.schedule(settleSecond=4)
    assert wrong.process.wait(20) == 2
    assert "settleSecond" in wrong.said
    assert "settleSeconds" in wrong.said, "the nearest right name"
    cluster.nodes(1)
    cluster.schedule()
    good_gang_is_bound(cluster)
