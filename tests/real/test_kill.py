"""kill -9 between any two effects of a gang, and SIGTERM in the middle: it ends whole or given back.

A proxy lets exactly so many Bindings (or evictions) through and holds the next, so that the moment of the
kill is the one that is meant. The next process sees the API server directly and knows only what is there.
"""

from __future__ import annotations

import pytest

from tests.real.cluster import PODS, Cluster
from tests.real.picture import annotation, gpus_of, ids_of, node_of
from tests.real.process import binding_gate

pytestmark = pytest.mark.real

N = 8


def killed_after(cluster: Cluster, n_binds: int, *, dialect: str = "ours", **settings: object) -> None:
    """A gang of 8 that wants all 32 GPUs; its scheduler is killed when exactly `n_binds` are done."""
    cluster.nodes(4, gpus=8)
    through = binding_gate(cluster.plane, cluster.directory, lambda _, n_passed: n_passed < n_binds)
    with through as (gate, kubeconfig):
        scheduler = cluster.schedule(kubeconfig=kubeconfig, **settings)
        cluster.gang("a", pods=N, gpus=4, dialect=dialect)

        def is_there() -> bool:
            return cluster.n_bound("a") == n_binds and (n_binds == N or bool(gate.held))

        cluster.picture.until(is_there, f"{n_binds} are bound, the next is held")
        scheduler.kill()


def given_back(cluster: Cluster) -> None:
    """Waits until nothing of the gang is bound any more."""
    cluster.picture.until(lambda: cluster.n_bound("a") == 0, "what was half bound is given back")


def replaced(cluster: Cluster, *, dialect: str = "ours") -> None:
    """The evicted members come again, as a Job would make them, and the gang starts."""
    names = {pod["metadata"]["name"] for pod in cluster.members("a")}
    missing = [k for k in range(N) if f"a-{k}" not in names]
    assert missing, "somebody was evicted"
    cluster.gang("a", pods=N, gpus=4, dialect=dialect, members=missing)
    cluster.whole("a")


@pytest.mark.parametrize("n_binds", range(N + 1))
def test_killed_gang_is_completed(cluster: Cluster, n_binds: int) -> None:
    killed_after(cluster, n_binds)
    bound = {p["metadata"]["name"]: (node_of(p), ids_of(p)) for p in cluster.members("a") if node_of(p)}
    assert len(bound) == n_binds
    cluster.schedule()
    cluster.pod("other")
    cluster.whole("a", "other")
    now = {p["metadata"]["name"]: (node_of(p), ids_of(p)) for p in cluster.members("a")}
    assert bound.items() <= now.items(), "what was bound stayed as it was"
    assert {annotation(pod, "gangsched.io/rank") for pod in cluster.members("a")} == set("01234567")


@pytest.mark.parametrize("dialect", ["core", "coscheduling", "lightweight"])
def test_killed_gang_of_another_dialect_is_completed(cluster: Cluster, dialect: str) -> None:
    killed_after(cluster, 3, dialect=dialect)
    cluster.schedule()
    cluster.whole("a")


@pytest.mark.parametrize("n_binds", [1, 4, 7])
def test_killed_gang_is_unwound_by_policy(cluster: Cluster, n_binds: int) -> None:
    killed_after(cluster, n_binds)
    cluster.schedule(onPartialBind="unwind")
    given_back(cluster)
    assert len(cluster.members("a")) == N - n_binds
    assert (
        f"bound in part ({n_binds} of {N})"
        in cluster.event("GangAborted", *(f"a-{k}" for k in range(N)))["note"]
    )
    replaced(cluster)


@pytest.mark.parametrize("n_evictions", [0, 1, 3])
def test_killed_while_it_unwinds_it_goes_on_unwinding(cluster: Cluster, n_evictions: int) -> None:
    killed_after(cluster, 4)
    through = binding_gate(cluster.plane, cluster.directory, lambda _, n_come: n_come <= n_evictions)
    with through as (gate, kubeconfig):
        second = cluster.schedule(kubeconfig=kubeconfig, onPartialBind="unwind")
        cluster.picture.until(
            lambda: len(gate.evictions) > n_evictions and len(cluster.members("a")) == N - n_evictions,
            f"{n_evictions} are evicted, the next is held",
        )
        second.kill()
    cluster.schedule(onPartialBind="unwind", settleSeconds=4)
    given_back(cluster)
    replaced(cluster)


@pytest.mark.parametrize("n_binds", [1, 4, 7])
def test_gang_that_cannot_be_completed_is_given_back(cluster: Cluster, n_binds: int) -> None:
    killed_after(cluster, n_binds)
    free = {f"n{i}": 8 for i in range(4)}
    for pod in cluster.members("a"):
        if node_of(pod):
            free[node_of(pod)] -= gpus_of(pod)
    for node, n_gpus in free.items():
        if n_gpus:
            cluster.pod(f"taker-{node}", gpus=n_gpus, scheduler="default-scheduler")
            cluster.bind_by_hand(f"taker-{node}", node)
    cluster.schedule(settleSeconds=4)
    given_back(cluster)
    assert len(cluster.members("a")) == N - n_binds
    for node, n_gpus in free.items():
        if n_gpus:
            cluster.plane.request("DELETE", f"{PODS}/taker-{node}", {"gracePeriodSeconds": 0})
    replaced(cluster)


def test_sigterm_while_binding_ends_in_order(cluster: Cluster) -> None:
    cluster.nodes(4)
    with binding_gate(cluster.plane, cluster.directory, lambda *_: True, delay_s=0.4) as (gate, kubeconfig):
        scheduler = cluster.schedule(kubeconfig=kubeconfig)
        cluster.gang("a", pods=64, gpus=0)
        cluster.picture.until(lambda: gate.passed, "a bind is on its way")
        scheduler.stop_cleanly()
        assert "everything_answered=True" in scheduler.said
        assert len(gate.passed) == cluster.n_bound("a") > 0, "each bind that was sent was waited for"
    cluster.schedule()
    cluster.pod("other")
    cluster.whole("a", "other")
