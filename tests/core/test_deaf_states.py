"""No state makes a group deaf: a change that lets it start is heard in each of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from gangsched.core.groups.attempts.extenders import Interest
from gangsched.core.types.group import GroupState
from gangsched.lab.sim.objects import RACK, make_node, make_pod
from gangsched.model import events as ev
from gangsched.model.devices.annotations import INVENTORY_KEY
from gangsched.model.objects import Taint
from gangsched.model.pod_group import GROUPS_KEY
from tests.core.test_preemption import bind_as_stranger, singles
from tests.extenders.test_core import Story, answer
from tests.support.scenario import Cluster, cluster, gang, with_annotations

SOON_S = 0.001


def slow_victims(nodes: int = 1, *, grace_s: int = 3600) -> Cluster:
    """Nodes full of pods that take an hour to go."""
    c = cluster(nodes=nodes)
    c.evictions = "slow"
    for k in range(nodes):
        pod = make_pod(f"low-{k}", gpus=8)
        c.submit(replace(pod, spec=replace(pod.spec, termination_grace_period_seconds=grace_s)))
    return c.run()


def attempts(c: Cluster) -> int:
    return int(c.scheduler.statistics()["attempts"])


# -- waiting for victims -----------------------------------------------------------------------------------


def test_a_preemptor_takes_free_room_that_comes_before_its_victims_have_gone() -> None:
    c = slow_victims()
    c.submit(gang("high", pods=1, gpus=8, priority=10)).run()
    assert c.state("high") == "waiting"
    assert c.taken() == ["low-0"]
    c.wait(10.0).node(make_node("n1")).run()
    assert c.placed("high"), "the victim has an hour, and a node is free"
    assert c.pod("high-0").spec.node_name == "n1"
    c.clear().wait(10.0)
    assert not c.taken()
    assert not c.victims()


def test_a_pod_of_no_priority_does_not_take_what_would_do_for_a_preemptor() -> None:
    c = slow_victims()
    c.submit(gang("high", pods=1, gpus=8, priority=10)).run()
    c.submit(make_pod("younger", gpus=8)).run()
    c.wait(20.0).node(make_node("n1")).run()
    assert c.placed("high")
    assert not c.pod("younger").spec.node_name


def test_a_gang_takes_a_free_node_beside_what_one_of_its_victims_has_left() -> None:
    c = slow_victims(2)
    c.submit(gang("high", pods=2, gpus=8, priority=10)).run()
    assert len(c.taken()) == 2
    c.wait(5.0).node(make_node("n2")).run()
    assert c.untouched("high"), "one node is free and it needs two"
    c.wait(5.0).delete("low-0").run()
    assert c.placed("high", on=2)


def test_victims_that_were_not_asked_in_vain_are_spared_once_they_are_not_needed() -> None:
    c = slow_victims(2)
    c.evictions = "429"
    c.submit(gang("high", pods=2, gpus=8, priority=10)).run()
    c.leave("low-0").run()
    c.clear().wait(1.0).node(make_node("n2")).run()
    assert c.state("high") == "waiting"
    c.clear().wait(30.0)
    assert not c.taken(), "low-0 goes already, and n2 is free"
    c.delete("low-0").run()
    assert c.placed("high", on=2)
    assert "low-1" in {pod.metadata.name for pod in c.pods.values()}


def test_of_many_preemptors_only_as_many_have_a_turn_as_may_fit() -> None:
    c = slow_victims(150)
    c.submit([make_pod(f"high-{k}", gpus=8, priority=10) for k in range(150)]).run()
    assert len(c.taken()) == 150
    before = attempts(c)
    c.wait(20.0).node(make_node("m0")).run()
    assert c.pod("high-0").spec.node_name == "m0", "the first in line"
    assert attempts(c) - before <= 3
    before = attempts(c)
    c.delete("low-7").run()
    assert attempts(c) - before <= 2, "what its victim left is nobody else's news"


# -- room that was promised and is gone --------------------------------------------------------------------


def cordoned(c: Cluster, name: str) -> Cluster:
    return c.node(replace(c.nodes[name], spec=replace(c.nodes[name].spec, unschedulable=True)))


def tainted(c: Cluster, name: str) -> Cluster:
    taint = Taint(key="down", effect="NoSchedule")
    return c.node(replace(c.nodes[name], spec=replace(c.nodes[name].spec, taints=[taint])))


def relabelled(c: Cluster, name: str) -> Cluster:
    node = c.nodes[name]
    return c.node(replace(node, metadata=replace(node.metadata, labels={"pool": "other"})))


def sick(c: Cluster, name: str) -> Cluster:
    node = c.nodes[name]
    own = {**(node.metadata.annotations or {})}
    own[INVENTORY_KEY] = own[INVENTORY_KEY].replace('"healthy":true', '"healthy":false')
    smaller = replace(node.status, allocatable={**(node.status.allocatable or {}), "nvidia.com/gpu": 7})
    return c.node(replace(node, metadata=replace(node.metadata, annotations=own), status=smaller))


def deleted(c: Cluster, name: str) -> Cluster:
    return c.drop_node(name)


def taken(c: Cluster, name: str) -> Cluster:
    """Another scheduler's more important pod is bound there."""
    bind_as_stranger(c, "stranger", name, gpus=1, priority=100)
    return c


@pytest.mark.parametrize("lost", [cordoned, tainted, relabelled, sick, deleted, taken])
def test_room_that_is_lost_is_made_elsewhere_at_once(lost: Callable[[Cluster, str], Cluster]) -> None:
    c = cluster(nodes=0)
    c.evictions = "slow"
    for name in ("n0", "n1"):
        node = make_node(name)
        c.node(replace(node, metadata=replace(node.metadata, labels={"pool": "gpu"})))
    singles(c, 2, gpus=8)
    (pod,) = gang("high", pods=1, gpus=8, priority=10)
    c.submit(replace(pod, spec=replace(pod.spec, node_selector={"pool": "gpu"}))).run()
    (first,) = c.taken()
    room = c.pod(first).spec.node_name
    (other,) = {"n0", "n1"} - {room}
    lost(c.clear(), room).run()
    assert c.taken() == [f"low-{1 - int(first[-1])}"]
    assert c.state("high") == "waiting"
    assert next(iter(c.group("high").preemption.nodes)) == other  # type: ignore[union-attr]
    c.delete(*c.taken()).run()
    assert c.pod("high-0").spec.node_name == other


def test_room_that_is_lost_and_cannot_be_made_elsewhere_is_reported_and_awaited() -> None:
    c = slow_victims()
    c.submit(gang("high", pods=1, gpus=8, priority=10)).run()
    cordoned(c.clear(), "n0").run()
    assert c.state("high") == "unschedulable"
    assert "the room that was made for it is gone" in c.said("high-0")
    c.wait(2.0).node(make_node("n1")).run()
    assert c.placed("high")


# -- backoff -----------------------------------------------------------------------------------------------


def test_a_gang_starts_as_soon_as_the_last_of_many_foreign_pods_has_ended() -> None:
    c = cluster(nodes=8)
    for k in range(8):
        bind_as_stranger(c, f"foreign-{k}", f"n{k}", gpus=8, priority=100)
    c.submit(gang("g", pods=8, gpus=8)).run()
    for k in range(8):
        c.wait(0.7).delete(f"foreign-{k}").run()
    assert c.placed("g", on=8), "it waits for the end of a backoff, and all its nodes are free"


def test_a_younger_pod_does_not_take_a_slot_that_an_older_gang_in_backoff_can_use() -> None:
    """A node is drained and comes back; the wounded gang has failed more often than the lone pod."""
    for pause_s in (0.1, 0.5, 1.1, 2.2, 3.3):
        c = cluster(nodes=2).submit(gang("g", pods=2, gpus=8, min_members=1)).run()
        cordoned(c, "n1").delete("g-1").submit(gang("g", pods=1, gpus=8, min_members=1, first=1)).run()
        c.wait(0.3).submit(make_pod("younger", gpus=8)).run()
        c.node(make_node("small", gpus=4)).run().wait(pause_s)
        c.node(make_node("n1")).run()
        assert c.pod("g-1").spec.node_name == "n1", pause_s
        assert not c.pod("younger").spec.node_name


def test_a_younger_preemptor_does_not_take_what_an_older_gang_in_backoff_can_use() -> None:
    for pause_s in (0.1, 0.5, 0.9, 1.5):
        c = slow_victims()
        modest = gang("older", pods=2, gpus=4, priority=10)
        c.submit([replace(pod, spec=replace(pod.spec, preemption_policy="Never")) for pod in modest]).run()
        c.submit(gang("younger", pods=1, gpus=8, priority=10)).run()
        assert (c.state("older"), c.state("younger")) == ("unschedulable", "waiting")
        c.node(make_node("small", gpus=4)).run().wait(pause_s)
        c.node(make_node("n1")).run()
        assert c.placed("older"), pause_s
        assert not c.pod("younger-0").spec.node_name


def three_racks(*, waiting: int) -> Cluster:
    """Full nodes in three racks, an old gang that needs two of them in one rack, gangs that need any two, and
    a young pod; all have failed a moment ago."""
    c = cluster(nodes=0)
    for k in range(3):
        c.node(make_node(f"n{k}", rack=f"r{k}"))
        bind_as_stranger(c, f"foreign-{k}", f"n{k}", gpus=8, priority=100)
    own = {"gangsched.io/topology": f"required: {RACK}"}
    c.submit(with_annotations(gang("one-rack", pods=2, gpus=8), own)).run().wait(0.1)
    for k in range(waiting):
        c.submit(gang(f"older-{k}", pods=2, gpus=8)).run()
    c.wait(0.1).submit(make_pod("younger", gpus=8)).run().wait(0.1)
    return c


def leave_at_once(c: Cluster) -> Cluster:
    return leave(c).run()


def leave(c: Cluster) -> Cluster:
    gone = [c.pods.pop(c.pod(f"foreign-{k}").metadata.uid) for k in range(3)]
    return c.tell(*(ev.PodDeleted(pod) for pod in gone))


def test_what_a_gang_in_front_only_seems_to_take_goes_to_the_next_in_line() -> None:
    """The sums give two nodes of three to a gang that does not fit, so that one is left for the others."""
    c = leave_at_once(three_racks(waiting=1))
    assert c.placed("older-0", on=2), "it waits for the end of a backoff, and two nodes were free"
    assert not c.placed("one-rack")


@pytest.mark.parametrize("lost", [("one-rack-0",), ("one-rack-0", "one-rack-1")], ids=["a member", "all"])
def test_what_a_gang_in_front_cannot_take_any_more_goes_to_the_next_in_line(lost: tuple[str, ...]) -> None:
    """It was to have its turn at once, and loses members before that."""
    c = leave(three_racks(waiting=1)).delete(*lost).run()
    assert c.placed("older-0", on=2)


def test_what_a_gang_in_front_does_not_take_goes_to_the_next_before_one_that_is_in_line_already() -> None:
    c = three_racks(waiting=1)
    c.submit(make_pod("small", gpus=8))
    leave_at_once(c)
    assert c.placed("older-0", on=2), "a new pod that is in line asks nobody for a turn"


def test_what_a_set_takes_is_counted_once_for_all_of_its_gangs() -> None:
    c = cluster(nodes=4)
    for k in range(4):
        bind_as_stranger(c, f"foreign-{k}", f"n{k}", gpus=8, priority=100)
    for name in ("a", "b"):
        c.submit(with_annotations(gang(name, pods=1, gpus=8), {GROUPS_KEY: '["d/a", "d/b"]'}))
    c.run().wait(0.1).submit(gang("older", pods=2, gpus=8)).run().wait(0.1)
    c.submit(make_pod("younger", gpus=8)).run().wait(0.1)
    gone = [c.pods.pop(c.pod(f"foreign-{k}").metadata.uid) for k in range(4)]
    c.tell(*(ev.PodDeleted(pod) for pod in gone)).run()
    assert all(c.placed(name) for name in ("a", "b", "older"))


def test_of_many_groups_that_are_left_out_only_a_few_have_a_turn() -> None:
    c = three_racks(waiting=20)
    before = attempts(c)
    leave_at_once(c)
    assert c.placed("older-0", on=2)
    assert attempts(c) - before <= 10


def test_a_stream_of_changes_does_not_make_a_gang_spin_that_sums_alone_let_start() -> None:
    """It requires one rack; there is room enough, in two."""
    c = cluster(nodes=0)
    for k in range(4):
        c.node(make_node(f"n{k}", rack=f"r{k % 2}"))
    for k in range(2):
        bind_as_stranger(c, f"foreign-{k}", f"n{k}", gpus=8, priority=100)
    own = {"gangsched.io/topology": f"required: {RACK}"}
    c.submit(with_annotations(gang("g", pods=2, gpus=8), own)).run()
    before = attempts(c)
    for k in range(500):
        bind_as_stranger(c, f"one-{k}", "n2", gpus=0, priority=100)
        c.delete(f"one-{k}").run().wait(0.02)
    assert not c.placed("g")
    assert attempts(c) - before <= 16, "ten seconds, with fifty changes each"
    c.delete("foreign-0").run().wait(10.0)
    assert c.placed("g")


# -- asking extenders --------------------------------------------------------------------------------------


def test_a_node_that_comes_while_extenders_are_asked_is_not_forgotten() -> None:
    story = Story(Interest("http://e"))
    story.create(make_pod("p", gpus=8))
    [ask] = story.asked
    story.tell(ev.NodeAdded(make_node("n9", listed=False)))
    story.tell(answer(ask, failed=dict.fromkeys(ask.nodes, "no")))
    assert story.state() is GroupState.BACKOFF, "the answer is about the nodes of before"
    story.wait(1.0)
    story.tell(answer(story.asked[-1], "n9"))
    assert story.bound == {"p": "n9"}


def test_an_answer_after_which_nothing_has_changed_is_not_asked_for_again() -> None:
    story = Story(Interest("http://e"))
    story.create(make_pod("p", gpus=8))
    story.tell(answer(story.asked[0], failed=dict.fromkeys(story.asked[0].nodes, "no")))
    assert story.state() is GroupState.UNSCHEDULABLE


def test_a_member_that_comes_to_a_started_gang_does_not_wait_for_the_backoff_of_another() -> None:
    c = cluster(nodes=2)
    c.submit(gang("g", pods=2, gpus=8)).run()
    c.submit(make_pod("g-2", gpus=8, group="g", min_members=2)).run()
    assert c.state("g") == "unschedulable"
    c.node(make_node("small", gpus=3)).run()
    c.wait(0.1).submit(make_pod("g-3", gpus=3, group="g", min_members=2))
    c.submit(make_pod("younger", gpus=3)).run()
    assert c.pod("g-3").spec.node_name
    assert not c.pod("younger").spec.node_name
