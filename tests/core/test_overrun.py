"""Evictions for a claim that is due (`onOverrun: yield`): of pods past their time, no more than it needs."""

from __future__ import annotations

import pytest

from gangsched.config import Settings
from gangsched.config.queueing import QueueingSettings
from gangsched.lab.sim.objects import make_pod
from gangsched.lab.sim.world.actors import reborn
from gangsched.model.walltime import WALLTIME_KEY
from tests.support.scenario import Cluster, cluster, gang, lone, with_annotations


def waiting(*holders: tuple[str, int], asks: int, priority: int = 0, room: int = 8) -> Cluster:
    """A gang of one pod has a claim on the only node, for when these have ended, after 600 s.

    priority: of those; room: devices of the node.
    """
    own = QueueingSettings(1, mode="hard", on_overrun="yield")
    c = cluster(nodes=1, gpus=room, settings=Settings(queueing=own))
    for name, gpus in holders:
        c.submit(lone(name, gpus, "600s", priority=priority))
    c.run().submit(gang("large", pods=1, gpus=asks)).run()
    c.submit(lone("before", 1, "10s")).run()
    c.delete("before").run().submit(lone("passes", 1, "2h")).run()
    assert c.claims().all[0].start_s == 601.0
    return c


def test_of_several_that_are_over_no_more_go_than_the_claim_needs() -> None:
    c = waiting(("a", 2), ("b", 3), ("c", 2), asks=3).wait(640.0)
    assert c.evicted() == ["b"]
    assert c.run().wait(2.0).placed("large")
    assert {c.pod(name).spec.node_name for name in "ac"} == {"n0"}


def test_of_two_that_are_over_the_one_whose_room_suffices_goes_alone() -> None:
    c = waiting(("a", 4), ("b", 3), asks=4).wait(640.0)
    assert c.evicted() == ["a"]
    assert c.run().wait(2.0).placed("large")


def test_of_many_that_are_over_no_more_go_than_the_claim_needs_either() -> None:
    c = waiting(*((f"a{k}", 1) for k in range(47)), asks=3, room=48).wait(640.0)
    assert len(c.evicted()) == 3
    assert c.run().wait(2.0).placed("large")


def test_who_is_more_important_stays_however_long_it_is_over() -> None:
    c = waiting(("a", 4), ("b", 3), asks=4, priority=5).wait(3600.0)
    assert c.evicted() == []
    assert not c.placed("large")


def test_a_promise_that_is_late_as_its_victims_take_their_time_is_late_because_they_overran() -> None:
    c = waiting(("a", 7), asks=8)
    c.evictions = "slow"
    c.wait(700.0)
    assert c.evicted() == ["a"]
    c.delete("a").run().wait(2.0)
    assert c.placed("large")
    assert c.claims().promises == {"overrun": 1}


def test_nobody_goes_while_what_is_going_already_leaves_enough_room() -> None:
    c = waiting(("a", 4), ("b", 3), asks=3).wait(610.0)
    c.leave("a").run().wait(40.0)
    assert c.evicted() == []
    c.delete("a").run().wait(2.0)
    assert c.placed("large")
    c.five_more_turns_change_nothing()


def test_what_is_going_and_does_not_go_is_waited_for_no_longer_than_its_grace() -> None:
    c = waiting(("a", 4), ("b", 3), asks=3).wait(610.0)
    c.leave("a").run().wait(200.0)
    assert c.evicted() == ["b"]
    assert c.run().wait(2.0).placed("large")


def test_beside_what_is_going_already_no_more_go_than_are_needed() -> None:
    c = waiting(("a", 2), ("b", 2), ("d", 3), asks=4).wait(625.0)
    c.leave("a").run().wait(20.0)
    assert len(c.evicted()) == 1
    c.delete("a").run().wait(2.0)
    assert c.placed("large")


@pytest.mark.parametrize(("needs", "go"), [(1, ["e-0"]), (2, ["e-0", "e-1"])])
def test_of_a_gang_what_came_later_stays_if_it_is_enough(needs: int, go: list[str]) -> None:
    own = QueueingSettings(1, mode="hard", on_overrun="yield")
    c = cluster(nodes=2, gpus=8, settings=Settings(queueing=own))
    elastic = [make_pod(f"e-{k}", group="e", min_members=needs, gpus=gpus) for k, gpus in enumerate((8, 5))]
    c.submit(with_annotations(elastic, {WALLTIME_KEY: "600s"}), lone("fills", 2, "4h")).run().wait(400.0)
    late = c.pod("e-1")
    c.delete("e-1").submit(reborn(late, "r1", c.now_s)).run().submit(gang("large", pods=1, gpus=8)).run()
    c.submit(lone("before", 1, "10s")).run()
    c.delete("before").run().submit(lone("passes", 1, "2h")).run()
    assert c.claims().all[0].start_s == 601.0
    c.wait(250.0)
    assert c.evicted() == go
    assert c.placed("large")
