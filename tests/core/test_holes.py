"""The place of a member that a running gang has lost is kept for its successor, where the settings say so."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.core.explaining.explain import explain
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.model import events as ev
from gangsched.model.objects import Pod
from tests.core.claims import ClaimCluster, wish
from tests.core.test_start_records import started
from tests.support.scenario import Cluster, cluster, gang

ON = Settings(successor_timeout_s=60.0)


def full(settings: Settings = ON, **more: Any) -> Cluster:
    """Two nodes, all of whose GPUs a gang of two has; a pod waits that wants one."""
    c = cluster(nodes=2, settings=settings).submit(gang("a", pods=2, gpus=8, **more)).run()
    started(c)
    c.now_s += 10.0
    c.submit(make_pod("lone-0", gpus=1)).run()
    assert not c.placed("lone")
    return c


def successor() -> list[Pod]:
    return gang("a", pods=1, gpus=8, min_members=2, first=2)


def kept(c: Cluster) -> int:
    return len(c.scheduler.shared.holes.kept)


def test_who_waits_for_room_does_not_get_the_place_before_the_successor_is_made() -> None:
    c = full().delete("a-1").run()
    assert not c.placed("lone"), "a controller takes a second to make the next one"
    c.wait(2.0).submit(successor()).run()
    assert c.are_bound("a-2", "lone-0") == [True, False]
    assert not kept(c)
    c.five_more_turns_change_nothing()


def test_without_the_setting_it_is_whoevers_turn_it_is() -> None:
    c = full(Settings()).delete("a-1").run()
    assert c.placed("lone")


def test_it_is_kept_no_longer_than_that() -> None:
    c = full().delete("a-1").run().wait(59.0)
    assert not c.placed("lone")
    c.wait(1.5)
    assert c.placed("lone")
    assert not kept(c)


def test_more_important_pods_do_not_wait_for_it() -> None:
    c = full().delete("a-1").submit(make_pod("urgent-0", gpus=1, priority=10)).run()
    assert c.placed("urgent")
    assert not c.placed("lone")


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_member_that_has_succeeded_leaves_no_hole(phase: str) -> None:
    c = full().phase("a-1", phase).run()
    assert c.placed("lone") == (phase == "Succeeded")


def test_a_gang_that_is_deleted_keeps_nothing() -> None:
    """Its pods go one after the other, and after the first of them it seems to have lost a member."""
    c = full().delete("a-1").run()
    assert not c.placed("lone")
    c.delete("a-0").run()
    assert c.placed("lone")
    assert not kept(c)


def test_a_gang_that_has_enough_without_the_member_keeps_nothing() -> None:
    """An elastic job that shrinks, say."""
    c = full(min_members=1).delete("a-1").run()
    assert c.placed("lone")


def test_only_what_is_missing_is_kept() -> None:
    """Of four, three are needed; two are lost."""
    c = cluster(nodes=4, settings=ON).submit(gang("a", pods=4, gpus=8, min_members=3)).run()
    started(c)
    c.submit(make_pod("lone-0", gpus=8), make_pod("lone-1", gpus=8)).run()
    c.delete("a-3", "a-2").run()
    assert sum(c.are_bound("lone-0", "lone-1")) == 1
    assert kept(c) == 1
    c.submit(gang("a", pods=1, gpus=8, min_members=3, first=4)).run()
    assert c.are_bound("a-4") == [True]
    assert not kept(c)


def test_a_successor_that_goes_elsewhere_lets_the_place_go() -> None:
    c = full()
    lost = c.nodes[c.pod("a-1").spec.node_name]
    c.delete("a-1").run()
    c.node(make_node("n2", gpus=8)).node(replace(lost, spec=replace(lost.spec, unschedulable=True)))
    c.submit(successor()).run()
    assert c.pod("a-2").spec.node_name == "n2"
    assert not kept(c)


def test_a_node_is_drained_and_uncordoned_under_a_gang() -> None:
    """volcano#5805: the successor first, not a pod that waits for the room."""
    for _ in range(50):
        c = full()
        node = c.nodes[c.pod("a-1").spec.node_name]
        c.node(replace(node, spec=replace(node.spec, unschedulable=True))).delete("a-1").run()
        c.submit(successor()).run()
        assert c.are_bound("a-2", "lone-0") == [False, False]
        c.node(node).run().wait(30.0)
        assert c.are_bound("a-2", "lone-0") == [True, False]


def test_devices_of_claims_are_kept_too() -> None:
    c = ClaimCluster(settings=ON).offer("n0", "n1", gpus_each=2)
    c.submit([c.want(f"a-{i}", wish(2), group="a", min_members=2) for i in range(2)]).run()
    started(c)
    c.submit(c.want("lone-0", wish(1))).run()
    assert not c.placed("lone")
    gone = c.pod("a-1")
    c.delete("a-1").lose("a-1-gpu").run()
    assert not c.placed("lone")
    c.submit(c.want("a-2", wish(2), group="a", min_members=2)).run()
    assert c.pod("a-2").spec.node_name == gone.spec.node_name
    assert not c.placed("lone")


def test_a_process_that_starts_knows_of_none() -> None:
    c = full().delete("a-1").run()
    assert kept(c) == 1
    assert not kept(c.restart().run())


def test_a_pod_that_is_shown_again_is_no_successor() -> None:
    """The watch was cut; the same pods are listed."""
    c = full().delete("a-1").run()
    c.tell(*(ev.PodAdded(pod) for pod in c.pods.values())).run()
    assert kept(c) == 1


def test_it_is_said_what_is_kept_and_how_long() -> None:
    c = full().delete("a-1").run().wait(10.0)
    told = explain(c.scheduler, c.group("lone-0"), c.now_s).answer
    assert "1 place is kept for a member that a running gang has lost, for 50 s more at most" in told
    told = explain(c.scheduler, c.group("a"), c.now_s).answer
    assert "The place of a-1 on node n1 is kept for its successor for 50 s more." in told
