"""A unit that takes back what is guaranteed takes it from those that have borrowed it, then from its own."""

from __future__ import annotations

import pytest

from gangsched.lab.sim.objects import make_node
from gangsched.model.effects import DeletePod, EvictPod
from tests.core.queued import pods, queued
from tests.core.test_queues import held
from tests.support.scenario import Cluster, gang

TWO = """
queues:
- {name: a, guaranteed: {nvidia.com/gpu: 16}, namespaces: [a]}
- {name: b, namespaces: [b]}
"""
TREE = """
queues:
- name: research
  guaranteed: {nvidia.com/gpu: 16}
  queues:
  - {name: nlp, namespaces: [a]}
  - {name: cv, namespaces: [cv]}
- {name: b, namespaces: [b]}
"""


def gone(c: Cluster) -> dict[str, int]:
    """By namespace: how many pods were evicted or deleted."""
    found: dict[str, int] = {}
    lost: list[EvictPod | DeletePod] = [*c.all(EvictPod), *c.all(DeletePod)]
    for effect in lost:
        found[effect.namespace] = found.get(effect.namespace, 0) + 1
    return found


@pytest.mark.parametrize("priority", [0, 5, 100], ids=["as important", "more", "most important"])
@pytest.mark.parametrize("n_members", [1, 2, 8], ids=["a pod", "a gang of two", "a gang of eight"])
def test_own_pods_stay_while_others_borrow(priority: int, n_members: int) -> None:
    c = queued(TWO, nodes=3).submit(pods("a", *(f"a{k}" for k in range(8)))).run()
    c.submit(pods("b", *(f"b{k}" for k in range(16)), priority=priority)).run()
    if n_members == 1:
        c.submit(pods("a", "g-0", gpus=5, priority=10)).run()
    else:
        c.submit(gang("g", pods=n_members, gpus=8 // n_members, namespace="a", priority=10)).run()
    assert c.placed("g")
    assert set(gone(c)) == {"b"}
    assert held(c, "a") + held(c, "b") == 24
    c.five_more_turns_change_nothing()


@pytest.mark.parametrize(
    "ours", [TWO, TREE], ids=["its own queue", "a queue beside it, below the one that is due"]
)
def test_a_node_with_both_gives_up_what_is_borrowed(ours: str) -> None:
    own = "a" if ours is TWO else "cv"
    c = queued(ours, nodes=1)
    c.submit(
        pods(own, *(f"a{k}" for k in range(4))), pods("b", *(f"b{k}" for k in range(4)), priority=50)
    ).run()
    c.submit(pods("a", "g-0", gpus=4, priority=10)).run()
    assert c.placed("g")
    assert gone(c) == {"b": 4}


def test_own_pods_go_where_borrowers_are_not_enough() -> None:
    c = queued(TWO, nodes=1).node(make_node("without-cpu", cpu=0))
    c.submit(pods("a", *(f"a{k}" for k in range(6))), pods("b", "b0", "b1", priority=50)).run()
    c.submit(pods("a", "g-0", gpus=4, priority=10)).run()
    assert c.placed("g")
    assert gone(c) == {"b": 2, "a": 2}


def test_beyond_its_guarantee_a_queue_evicts_its_own_by_priority_as_before() -> None:
    c = queued(TWO.replace("16", "8"), nodes=2).submit(pods("a", *(f"a{k}" for k in range(8)))).run()
    c.submit(pods("b", *(f"b{k}" for k in range(8)))).run()
    c.submit(gang("g", pods=2, gpus=4, namespace="a", priority=10)).run()
    assert c.placed("g")
    assert held(c, "a") + held(c, "b") == 16
    assert sum(gone(c).values()) == 8
