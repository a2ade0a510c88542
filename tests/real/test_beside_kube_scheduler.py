"""Beside others who bind to the same nodes: what is known is never overcommitted, conflicts are answered."""

from __future__ import annotations

import pytest

from tests.real.cluster import Cluster
from tests.real.picture import GPU, OURS, Json, Sight, gpus_of, node_of

pytestmark = pytest.mark.real

# A bind of another scheduler's that the watch showed this long before ours had been known when we decided.
KNOWN_AFTER_S = 1.0
GPUS = 8


def test_both_place_pods_on_the_same_nodes(cluster: Cluster) -> None:
    cluster.nodes(20, gpus=GPUS)
    cluster.schedule()
    cluster.plane.start_kube_scheduler()
    for i in range(12):
        cluster.gang(f"g{i}", pods=4, gpus=2)
        for k in range(8):
            cluster.pod(f"p{i}x{k}", gpus=k % 2, cpu="2", scheduler="default-scheduler")
    cluster.whole(*(f"g{i}" for i in range(12)))
    cluster.whole(*(f"p{i}x{k}" for i in range(12) for k in range(8)))
    check_room(cluster.picture.sights)


def check_room(sights: list[Sight]) -> None:
    """Invariant 2: ours alone never exceed a node; with theirs, only where both landed at one moment."""
    bound: dict[str, tuple[float, Json]] = {}
    for type_, pod, at_s in sights:
        uid = pod["metadata"]["uid"]
        if type_ == "DELETED":
            bound.pop(uid, None)
        elif node_of(pod) and uid not in bound:
            bound[uid] = (at_s, pod)
            if pod["spec"]["schedulerName"] == OURS:
                on_node = [(t, p) for t, p in bound.values() if node_of(p) == node_of(pod)]
                ours = [p for _, p in on_node if p["spec"]["schedulerName"] == OURS]
                known = [p for t, p in on_node if p not in ours and t < at_s - KNOWN_AFTER_S]
                n_gpus = sum(map(gpus_of, [*ours, *known]))
                assert n_gpus <= GPUS, f"{node_of(pod)}: {n_gpus} GPUs with {pod['metadata']['name']}"


def test_room_that_another_takes_while_a_gang_waits_is_not_used(cluster: Cluster) -> None:
    cluster.nodes(2, gpus=GPUS)
    cluster.schedule()
    total = {"gangsched.io/total-members": "2"}
    cluster.gang("a", pods=1, gpus=8, min_count=1, annotations=total)
    cluster.held("a", says="1 of 2 members are here")
    # Nobody else knows of what is held: both nodes look free to others.
    for node in ("n0", "n1"):
        cluster.pod(f"taker-{node}", gpus=4, scheduler="default-scheduler")
        cluster.bind_by_hand(f"taker-{node}", node)
    cluster.gang("a", pods=2, gpus=8, min_count=1, members=[1], annotations=total)
    cluster.held("a", says=f"Insufficient {GPU}", members=2)
    cluster.delete("taker-n0", "taker-n1")
    cluster.whole("a", pods=2)
