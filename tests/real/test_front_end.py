"""A front end before the real API server answers some requests itself: nothing is lost, nothing is given
twice, nothing is evicted, and when it is honest again everything is at rest.
"""

from __future__ import annotations

import re

import pytest

from tests.real.cluster import Cluster
from tests.real.front_end import (
    BINDS,
    DISCOVERY,
    EVENTS,
    EVICTIONS,
    LEASES,
    LISTS,
    READS,
    STATUSES,
    WATCHES,
    FrontEnd,
    standing_before,
    summary,
)

pytestmark = pytest.mark.real

GANGS = [f"g{n}" for n in range(20)]
# Ten seconds of silence each for what the proxy never answers, and a slow machine.
PATIENCE_S = 90.0


def bound_in_spite_of(cluster: Cluster, front: FrontEnd) -> None:
    """Twenty gangs of eight, told lies about; then what must hold."""
    with standing_before(cluster.plane, cluster.directory, front) as kubeconfig:
        scheduler = cluster.schedule(kubeconfig=kubeconfig)
        cluster.nodes(20, gpus=8)
        for name in GANGS:
            cluster.gang(name, pods=8, gpus=1)
        cluster.picture.until(
            lambda: all(cluster.n_bound(name) == 8 for name in GANGS),
            f"all gangs are bound in spite of {front.told}",
            timeout_s=PATIENCE_S,
        )
        assert front.told, "no lie was told"
        front.honest = True
        assert front.n(EVICTIONS) == 0, summary(front)
        assert not [sight for sight in cluster.picture.sights if sight.type == "DELETED"]
        cluster.unchanged(GANGS[0], for_s=2.0)
        for name in GANGS:
            cluster.unchanged(name, for_s=0.0)
        scheduler.stop_cleanly()


@pytest.mark.parametrize("every", [20, 4])
def test_lies_about_binds_cost_no_gang(cluster: Cluster, every: int) -> None:
    front = FrontEnd(BINDS, every=every)
    bound_in_spite_of(cluster, front)
    assert "did not come from the API server itself" in cluster.schedulers[0].said


def test_lies_about_binds_and_reads_cost_no_gang(cluster: Cluster) -> None:
    front = FrontEnd(BINDS, READS, every=3)
    bound_in_spite_of(cluster, front)
    assert front.n(READS) > 0, summary(front)


def test_lies_about_lists_watches_and_discovery_cost_no_gang(cluster: Cluster) -> None:
    bound_in_spite_of(cluster, FrontEnd(LISTS, WATCHES, DISCOVERY, every=3))


def test_a_kind_that_cannot_be_read_keeps_nobody_waiting_who_does_not_need_it(cluster: Cluster) -> None:
    """As a CRD with a broken conversion webhook; here Kubernetes' own PodGroups, until they can be read."""
    front = FrontEnd(re.compile(r"GET /apis/scheduling\.k8s\.io/[^/]+/podgroups\?"), every=1)
    with standing_before(cluster.plane, cluster.directory, front) as kubeconfig:
        scheduler = cluster.schedule(kubeconfig=kubeconfig)
        cluster.nodes(2, gpus=8)
        cluster.gang("a", pods=8, gpus=1)
        cluster.picture.until(lambda: cluster.n_bound("a") == 8, "a is bound", timeout_s=PATIENCE_S)
        assert "cannot be read, going on without it kind=podgroups.core" in scheduler.said
        front.honest = True
        cluster.picture.until(
            lambda: "following again kind=podgroups.core" in scheduler.said,
            "its objects are followed",
            timeout_s=PATIENCE_S,
        )
        scheduler.stop_cleanly()


def test_lies_about_everything_cost_no_gang(cluster: Cluster) -> None:
    every = (BINDS, READS, STATUSES, EVENTS, LISTS, WATCHES, DISCOVERY, LEASES)
    bound_in_spite_of(cluster, FrontEnd(*every, every=10))
