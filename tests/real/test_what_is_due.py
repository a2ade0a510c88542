"""Two replicas with the base's configuration and queues: what is due to a queue is got back, from whom it
is, and at the cost that it must have.

All queues list the one namespace of these tests; pods name theirs, and have four GPUs each.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gangsched.lab.controlplane.processes import ControlPlane
from tests.real.cluster import Cluster, checked
from tests.real.picture import node_of
from tests.real.test_leader import says
from tests.real.test_preemption import priority_class
from tests.real.test_queues import GPU, held, named, queue
from tests.real.test_started_or_not import base_with, two_replicas

pytestmark = pytest.mark.real


@pytest.fixture
def cluster(fresh_cluster: ControlPlane, tmp_path: Path) -> Iterator[Cluster]:
    with checked(fresh_cluster, tmp_path) as made:
        priority_class(fresh_cluster, "high")
        yield made


def fill(cluster: Cluster, letter: str, n: int, **more: Any) -> None:
    """So many pods of a queue run."""
    for k in range(n):
        cluster.pod(f"{letter}{k}", gpus=4, annotations=named(letter), **more)
    cluster.picture.until(lambda: len(held(cluster, letter)) == n, f"{n} of {letter} run")


def went(cluster: Cluster) -> list[str]:
    """Pods that were bound and that the watch has seen go, or asked to; a letter each, in order."""
    seen = {
        pod["metadata"]["name"]
        for type_, pod, _ in cluster.picture.sights
        if node_of(pod) and (type_ == "DELETED" or pod["metadata"].get("deletionTimestamp"))
    }
    return sorted(name[0] for name in seen)


def test_a_guarantee_is_got_back_although_the_parents_limit_is_used_up(cluster: Cluster) -> None:
    """A free node helps nobody there; the borrowers are more important, and a new leader decides."""
    below = [queue("a", guaranteed={GPU: 8}), queue("b")]
    root = {"name": "root", "limit": {GPU: 16}, "guaranteed": {GPU: 8}, "queues": below}
    cluster.nodes(3, gpus=8)
    leader, follower = two_replicas(cluster, base_with(cluster, queues=[root]))
    fill(cluster, "b", 4, priorityClassName="high")
    leader.stop_cleanly()
    says(cluster, follower, " leading ")
    cluster.gang("a", pods=2, gpus=4, annotations=named("a"))
    cluster.whole("a")
    assert went(cluster) == ["b", "b"]
    assert len(held(cluster, "b")) == 2


def test_at_its_own_limit_a_gang_takes_the_place_of_less_important_pods_of_its_queue(
    cluster: Cluster,
) -> None:
    cluster.nodes(3, gpus=8)
    two_replicas(cluster, base_with(cluster, queues=[queue("a", limit={GPU: 16}), queue("b")]))
    fill(cluster, "b", 1)
    fill(cluster, "a", 4)
    cluster.gang("urgent", pods=2, gpus=4, annotations=named("a"), priorityClassName="high")
    cluster.whole("urgent")
    assert went(cluster) == ["a", "a"]


def test_a_queue_under_its_guarantee_evicts_those_that_borrow_and_none_of_its_own(cluster: Cluster) -> None:
    """Its own pods are less important than the gang, and than those of the other queue."""
    cluster.nodes(3, gpus=8)
    two_replicas(cluster, base_with(cluster, queues=[queue("a", guaranteed={GPU: 16}), queue("b")]))
    fill(cluster, "a", 2)
    fill(cluster, "b", 4, priorityClassName="high")
    cluster.gang("a-gang", pods=2, gpus=4, annotations=named("a"), priorityClassName="high")
    cluster.whole("a-gang")
    assert went(cluster) == ["b", "b"]


def test_of_two_equal_queues_each_gets_its_half_to_the_last_gang_and_keeps_it(cluster: Cluster) -> None:
    cluster.nodes(2, gpus=8)
    queues = [queue("a", share=1), queue("b", share=1)]
    fair = {"reclaim": "fair", "compare": [GPU], "halfLife": "0s"}
    two_replicas(cluster, base_with(cluster, queues=queues, fairness=fair))
    for k in range(2):
        cluster.gang(f"b{k}", pods=2, gpus=4, annotations=named("b"))
        cluster.whole(f"b{k}")
    for k in range(2):
        cluster.gang(f"a{k}", pods=2, gpus=4, annotations=named("a"))
    cluster.picture.until(lambda: len(held(cluster, "a")) == 2, "one gang of a has its half")
    [waits] = [f"a{k}" for k in range(2) if not cluster.n_bound(f"a{k}")]
    cluster.held(waits, says="nodes are available")
    cluster.gang("b2", pods=2, gpus=4, annotations=named("b"))
    cluster.held("b2", says="nodes are available")
    assert went(cluster) == ["b", "b"]
    assert (len(held(cluster, "a")), len(held(cluster, "b"))) == (2, 2)
