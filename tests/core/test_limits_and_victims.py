"""A group for which others are evicted keeps what it needs within its limit until they are gone."""

from __future__ import annotations

from gangsched.lab.sim.objects import make_node
from tests.core.queued import pods, queued
from tests.core.test_queues import held
from tests.support.scenario import Cluster

LIMITED = """
queues:
- {name: a, limit: {nvidia.com/gpu: 8}, namespaces: [a]}
- {name: b, namespaces: [b]}
"""


def evicting() -> Cluster:
    """A pod of b leaves slowly for an urgent one of a; a node that has too little cpu for that is free."""
    c = queued(LIMITED, nodes=2).node(make_node("slow", gpus=8, cpu=1))
    c.evictions = "slow"
    c.submit(pods("a", "first", gpus=4)).run()
    c.submit(pods("b", "b0", "b1", "b2", gpus=4, cpu="2")).run()
    c.submit(pods("a", "urgent", gpus=4, cpu="2", priority=10)).run()
    assert waits_for_victims(c)
    return c


def waits_for_victims(c: Cluster) -> bool:
    return "waiting for 1 pod of lower priority to go" in c.why("urgent")


def victims_go(c: Cluster) -> Cluster:
    return c.delete(*[pod.metadata.name for pod in c.pods.values() if pod.metadata.deletion_timestamp]).run()


def test_its_queue_starts_nothing_within_what_it_needs() -> None:
    c = evicting()
    c.submit(pods("a", "later", gpus=4)).run()
    assert c.why("later") == (
        "Fairness: queue a: 4 of 8 nvidia.com/gpu used, 4 kept for groups that are promised room or have"
        " been passed as often as allowed, needs 4"
    )
    assert "urgent" in victims_go(c).bound()
    assert held(c, "a") == 8


def test_another_queue_and_who_is_more_important_go_on() -> None:
    c = evicting()
    c.submit(pods("b", "other", cpu="100m"), pods("a", "king", gpus=4, priority=20, cpu="100m")).run()
    assert {"other", "king"} <= {*c.bound()}


def test_it_is_kept_no_longer_than_it_waits() -> None:
    c = evicting()
    c.submit(pods("a", "later", gpus=4)).run().delete("urgent").run().wait(2.0)
    assert "later" in c.bound()


def test_what_its_victims_hold_of_the_same_limit_is_not_kept_twice() -> None:
    c = queued(LIMITED)
    c.evictions = "slow"
    c.submit(pods("a", "low", gpus=4), pods("b", "important", gpus=4, priority=50)).run()
    c.submit(pods("a", "urgent", gpus=4, cpu="2", priority=10)).run()
    assert waits_for_victims(c)
    c.node(make_node("n1", gpus=8, cpu=1)).submit(pods("a", "small", gpus=4, cpu="100m")).run()
    assert "small" in c.bound()
    assert "urgent" in victims_go(c).bound()
    assert held(c, "a") == 8
