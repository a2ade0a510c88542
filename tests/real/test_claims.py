"""Claims on a real API server: a starving gang starts within its bound, and a new leader keeps its claim."""

from __future__ import annotations

from typing import Any

import pytest

from gangsched.model.walltime import WALLTIME_KEY
from tests.real.cluster import CORE_GROUPS, Cluster
from tests.real.picture import Json, node_of, reason_of

pytestmark = pytest.mark.real

N = 8
BOUND = 5
QUEUEING: dict[str, Any] = {"bound": {"groups": BOUND, "mode": "hard"}}


def start_promised(cluster: Cluster) -> Json:
    """The condition of the gang's object; {} while there is none."""
    found = cluster.plane.request("GET", f"{CORE_GROUPS}/large")
    conditions = found.get("status", {}).get("conditions", ())
    return next((one for one in conditions if one["type"] == "gangsched.io/StartPromised"), {})


def answered(cluster: Cluster, name: str) -> bool:
    """Whether the pod is bound; waits until it is, or is told why not."""
    pods = cluster.picture.pods
    cluster.picture.until(
        lambda: name in pods and (node_of(pods[name]) or reason_of(pods[name])), f"{name} is answered"
    )
    return bool(node_of(pods[name]))


def starving(cluster: Cluster) -> list[str]:
    """A gang of all nodes behind a stream of lone pods, until one of these is not bound. Returns who runs."""
    cluster.nodes(N, gpus=1)
    cluster.schedule(queueing=QUEUEING)
    running = [f"first-{k}" for k in range(N)]
    for name in running:
        cluster.pod(name, gpus=1)
    cluster.whole("first", pods=N)
    cluster.gang("large", pods=N, gpus=1, dialect="core")
    cluster.held("large", says="0 of 8 fit")
    for k in range(3 * BOUND):
        cluster.delete(running.pop(0))
        cluster.pod(f"next-{k}", gpus=1)
        if not answered(cluster, f"next-{k}"):
            assert k <= BOUND
            return running
        running.append(f"next-{k}")
    raise AssertionError(f"the gang was passed more than {3 * BOUND} times, its bound is {BOUND}")


def test_a_gang_behind_an_endless_stream_starts_within_its_bound(cluster: Cluster) -> None:
    running = starving(cluster)
    cluster.eventually(lambda: start_promised(cluster).get("reason") == "Estimated", "it says when it starts")
    assert "room is kept for it on 8 nodes" in start_promised(cluster)["message"]
    cluster.held("large", says="room is kept for it on 8 nodes")
    cluster.delete(*running)
    cluster.whole("large")
    cluster.eventually(lambda: start_promised(cluster).get("reason") == "Started", "and that it has")


def test_a_gang_without_a_claim_is_told_about_when_it_starts(cluster: Cluster) -> None:
    cluster.nodes(1, gpus=1)
    cluster.schedule(queueing={})
    cluster.pod("runs", gpus=1, annotations={WALLTIME_KEY: "600s"})
    cluster.whole("runs", pods=1)
    cluster.gang("large", pods=1, gpus=1, dialect="core")
    cluster.held("large", says="0 of 1 fit")
    cluster.eventually(lambda: start_promised(cluster).get("reason") == "Forecast", "it says when it starts")
    assert "no room is kept for it" in start_promised(cluster)["message"]
    cluster.delete("runs")
    cluster.whole("large")
    cluster.eventually(lambda: start_promised(cluster).get("reason") == "Started", "and that it has")


def test_a_leader_that_is_killed_leaves_its_claims_to_the_next(cluster: Cluster) -> None:
    running = starving(cluster)
    cluster.eventually(lambda: start_promised(cluster).get("reason") == "Estimated", "it says when it starts")
    cluster.schedulers[-1].kill()
    cluster.delete(running.pop())
    cluster.pod("later", gpus=1)
    cluster.schedule(queueing=QUEUEING)
    assert not answered(cluster, "later"), "it would have passed a gang that the last leader had claimed for"
    cluster.delete(*running)
    cluster.whole("large")
