"""Faults 9 and 10 for a whole gang on the real API server: a bind that fails for good, a decision gone stale.

The proxy before the server answers instead of it, or leaves binds without an answer, while the test changes
what the decision stood on. The edge alone under faults 1 to 8, 11 and 14 is in test_edge_*.py.
"""

from __future__ import annotations

import json

import pytest

from tests.proxy import http_answer
from tests.real.cluster import Cluster
from tests.real.picture import GPU, ids_of
from tests.real.process import binding_gate

pytestmark = pytest.mark.real

FORBIDDEN = http_answer(
    "403 Forbidden",
    json.dumps(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "message": "not today",
            "reason": "Forbidden",
            "details": {"name": "a-3", "kind": "pods"},
            "code": 403,
        }
    ).encode(),
    "Content-Type: application/json",
)


def test_09_a_bind_refused_once_costs_the_gang_nothing(cluster: Cluster) -> None:
    cluster.nodes(4, gpus=8)
    refused: list[str] = []

    def lets_through(name: str, _: int) -> bool:
        if name == "a-3" and not refused:
            refused.append(name)
            return False
        return True

    with binding_gate(cluster.plane, cluster.directory, lets_through, answer=FORBIDDEN) as (_, kubeconfig):
        scheduler = cluster.schedule(kubeconfig=kubeconfig)
        cluster.gang("a", pods=8, gpus=4)
        cluster.whole("a")
        assert refused == ["a-3"]
        scheduler.stop_cleanly()


def test_09_a_bind_refused_for_good_gives_the_gang_back(cluster: Cluster) -> None:
    cluster.nodes(4, gpus=8)
    always = binding_gate(cluster.plane, cluster.directory, lambda name, _: name != "a-3", answer=FORBIDDEN)
    with always as (gate, kubeconfig):
        scheduler = cluster.schedule(kubeconfig=kubeconfig, settleSeconds=4)
        cluster.gang("a", pods=8, gpus=4)
        cluster.picture.until(lambda: gate.held, "the bind of a-3 is refused")
        note = cluster.event("GangAborted", *(f"a-{k}" for k in range(8)))["note"]
        assert "403 not today; an admission policy or webhook refused it, not RBAC" in note
        cluster.picture.until(
            lambda: gate.evictions and cluster.n_bound("a") == 0, "what was half bound is given back"
        )
        cluster.pod("other", gpus=8)
        cluster.whole("other")
        scheduler.stop_cleanly()
    names = {pod["metadata"]["name"] for pod in cluster.members("a")}
    cluster.schedule()
    cluster.delete("other")
    cluster.gang("a", pods=8, gpus=4, members=[k for k in range(8) if f"a-{k}" not in names])
    cluster.whole("a")


def test_10_a_device_that_vanishes_under_an_unanswered_bind_is_not_used(cluster: Cluster) -> None:
    cluster.node("x", [{"id": f"GPU-x-{k}", "health": "Healthy"} for k in range(8)])
    stale = True
    silent = binding_gate(cluster.plane, cluster.directory, lambda *_: not stale)
    with silent as (gate, kubeconfig):
        scheduler = cluster.schedule(kubeconfig=kubeconfig)
        cluster.gang("a", pods=2, gpus=3)
        cluster.picture.until(lambda: len(gate.held) == 2, "both binds are on their way, unanswered")
        # The first six were promised; one of them goes, and six of the other seven must do.
        devices = [{"id": f"GPU-x-{k}", "health": "Unhealthy" if k == 1 else "Healthy"} for k in range(8)]
        cluster.inventory["x"].discard("GPU-x-1")
        cluster.annotate_node("x", json.dumps({GPU: devices}))
        stale = False
        cluster.whole("a")
        assert "GPU-x-1" not in [device for pod in cluster.members("a") for device in ids_of(pod)]
        scheduler.stop_cleanly()
