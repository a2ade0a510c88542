"""A limit is no wall before what may be evicted: its amounts count what the victims will give back."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from gangsched.lab.sim.objects import RACK, make_node
from gangsched.model import events as ev
from gangsched.model.effects import EvictPod
from gangsched.model.objects import Pod
from tests.core.queued import pods, queued
from tests.core.test_queues import held
from tests.support.scenario import Cluster, gang

LIMITED = """
queues:
- {name: a, limit: {nvidia.com/gpu: 8}, namespaces: [a]}
- {name: b, namespaces: [b]}
"""
FULL = """
queues:
- name: root
  limit: {nvidia.com/gpu: 32}
  guaranteed: {nvidia.com/gpu: 16}
  queues:
  - {name: a, guaranteed: {nvidia.com/gpu: 16}, namespaces: [a]}
  - {name: b, namespaces: [b]}
- {name: rest, namespaces: ["*"]}
"""


def n_evicted(c: Cluster) -> int:
    return len(c.all(EvictPod))


def n_started(c: Cluster, gang: str) -> int:
    return sum(name.startswith(f"{gang}-") for name in c.bound())


def two_racks() -> Cluster:
    c = queued(LIMITED, nodes=0)
    return c.node(make_node("n0", rack="0")).node(make_node("n1", rack="1"))


def only_on(rack: str, some: Sequence[Pod]) -> list[Pod]:
    return [replace(pod, spec=replace(pod.spec, node_selector={RACK: rack})) for pod in some]


def low(n: int = 8) -> list[Pod]:
    return pods("a", *(f"low-{k}" for k in range(n)))


def borrowers(n: int = 32) -> list[Pod]:
    return pods("b", *(f"b{k}" for k in range(n)), priority=100)


# -- a parent's limit --------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [4, 8], ids=["full", "half of the nodes are empty"])
def test_a_guarantee_is_got_back_although_the_parents_limit_is_used_up(nodes: int) -> None:
    c = queued(FULL, nodes=nodes).submit(borrowers()).run()
    c.submit(gang("g", pods=4, gpus=4, namespace="a")).run()
    assert c.placed("g")
    assert (held(c, "a"), held(c, "b"), n_evicted(c)) == (16, 16, 16)
    c.five_more_turns_change_nothing()


def test_it_waits_until_its_victims_have_gone_and_the_limit_holds_all_the_while() -> None:
    c = queued(FULL, nodes=8).submit(borrowers()).run()
    c.evictions = "slow"
    c.submit(gang("g", pods=4, gpus=4, namespace="a")).run()
    going = [pod.metadata.name for pod in c.pods.values() if pod.metadata.deletion_timestamp]
    assert len(going) == 16
    for name in going:
        assert not c.placed("g")
        c.submit(pods("b", f"again-{name}", priority=100)).delete(name).run().wait(1.0)
        assert held(c, "root") <= 32
    assert c.placed("g")
    assert (held(c, "a"), held(c, "b")) == (16, 16)
    assert {effect.name for effect in c.all(EvictPod)} == {*going}


# -- its own queue's ---------------------------------------------------------------------------------------


def test_an_important_gang_does_not_wait_at_its_queues_limit_for_its_own_less_important_pods() -> None:
    c = queued(LIMITED, nodes=3).submit(low()).run()
    c.submit(gang("urgent", pods=2, gpus=2, namespace="a", priority=10)).run()
    assert c.placed("urgent")
    assert (held(c, "a"), n_evicted(c)) == (8, 4)
    c.five_more_turns_change_nothing()


def test_a_lone_pod_neither_though_those_that_go_are_where_it_may_not_be() -> None:
    c = two_racks().submit(only_on("1", low())).run()
    c.submit(only_on("0", pods("a", "urgent", gpus=3, priority=10))).run()
    assert c.pod("urgent").spec.node_name == "n0"
    assert (held(c, "a"), n_evicted(c)) == (8, 3)


def test_both_its_room_and_its_limit_are_made_by_one_set_of_victims() -> None:
    c = two_racks().submit(only_on("0", low(4))).submit(only_on("1", pods("b", "b0", gpus=8)))
    c.run().submit(only_on("1", pods("a", "urgent", gpus=6, priority=10))).run()
    assert c.pod("urgent").spec.node_name == "n1"
    assert (held(c, "a"), held(c, "b"), n_evicted(c)) == (8, 0, 3)


def test_nothing_goes_if_that_would_not_bring_it_within_the_limit() -> None:
    c = queued(LIMITED, nodes=3).submit(low(2)).submit(pods("a", "equal", gpus=6, priority=10)).run()
    c.submit(pods("a", "urgent", gpus=4, priority=10)).run().wait(60.0)
    assert n_evicted(c) == 0
    assert c.why("urgent") == "Fairness: queue a: 8 of 8 nvidia.com/gpu used, needs 4"


def test_it_is_tried_again_as_soon_as_what_may_go_is_enough() -> None:
    c = queued(LIMITED, nodes=3).submit(low(4)).submit(pods("a", "equal", gpus=4, priority=10)).run()
    c.submit(pods("a", "urgent", gpus=8, priority=10)).run().wait(20.0)
    assert n_evicted(c) == 0
    c.delete("equal").run().wait(5.0)
    assert "urgent" in c.bound()
    assert (held(c, "a"), n_evicted(c)) == (8, 4)


def test_who_may_not_preempt_waits_at_the_limit() -> None:
    c = queued(LIMITED, nodes=3).submit(low()).run()
    c.submit(pods("a", "urgent", gpus=2, priority=10, preempts=False)).run().wait(60.0)
    assert (n_evicted(c), held(c, "a")) == (0, 8)


def test_a_gang_starts_with_what_fits_and_those_by_which_it_grows_preempt_as_they_do_on_nodes() -> None:
    c = queued(LIMITED, nodes=3).submit(low(6)).run()
    c.evictions = "slow"
    c.submit(gang("g", pods=4, min_members=2, namespace="a", priority=10)).run()
    assert n_started(c, "g") == 2
    assert (held(c, "a"), n_evicted(c)) == (8, 1)


def test_what_goes_for_one_is_not_counted_for_the_next() -> None:
    c = queued(LIMITED, nodes=3).submit(low()).run()
    c.evictions = "slow"
    c.submit(pods("a", "first", gpus=4, priority=10)).submit(pods("a", "second", gpus=4, priority=10)).run()
    going = [pod.metadata.name for pod in c.pods.values() if pod.metadata.deletion_timestamp]
    assert len(going) == 8
    c.delete(*going).run().wait(2.0)
    assert {"first", "second"} <= {*c.bound()}


def test_a_turn_while_its_victims_go_costs_it_nothing_though_others_wait_for_them_too() -> None:
    """Nodes that come are room, and the limit keeps the gang from them: it waits on where it has its room."""
    c = two_racks().submit(only_on("0", gang("low", pods=8, namespace="a"))).run()
    c.evictions = "slow"
    c.submit(only_on("0", gang("first", pods=2, gpus=2, namespace="a", priority=10))).run()
    c.submit(only_on("0", pods("b", "other", gpus=4, priority=10))).run()
    going = [pod.metadata.name for pod in c.pods.values() if pod.metadata.deletion_timestamp]
    assert sorted(going) == [f"low-{k}" for k in range(8)]
    n_turns = c.group("first").attempts
    for k in range(3):
        small = [make_node(f"small{k}-{i}", rack="0", gpus=2) for i in range(2)]  # not for the other one
        c.node(small[0]).node(small[1]).run().wait(1.0)
        assert c.state("first") == "waiting"
    assert c.group("first").attempts > n_turns
    c.delete(*going).run().wait(2.0)
    assert (n_started(c, "first"), held(c, "a"), n_evicted(c)) == (2, 4, 8)
    assert "other" in c.bound()


def test_what_is_being_bound_below_the_limit_is_evicted_after_that() -> None:
    c = queued(LIMITED, nodes=3)
    c.answer = lambda bind: "hold"
    c.submit(low()).run()
    c.submit(pods("a", "urgent", gpus=4, priority=10)).run()
    assert n_evicted(c) == 0
    c.answer = lambda bind: "ok"
    for bind in c.held_binds:
        c.tell(ev.BindSucceeded(bind.uid, bind.attempt), ev.PodUpdated(c.commit(bind)))
    c.run().wait(15.0)
    assert "urgent" in c.bound()
    assert (held(c, "a"), n_evicted(c)) == (8, 4)
