"""Views show what the scheduler believes: counts, places, devices, reasons, and since when."""

from __future__ import annotations

import json

import pytest

from gangsched.core.explaining.reports import (
    GroupView,
    NodeView,
    view_group,
    view_groups,
    view_members,
    view_nodes,
)
from gangsched.core.types.group import GroupState, MemberState
from gangsched.lab.sim.objects import GPU, make_node, make_pod
from gangsched.model.pod_group import GROUPS_KEY, TIMEOUT_KEY
from tests.support.scenario import Cluster, cluster, gang, with_annotations


def seen(world: Cluster, name: str) -> GroupView:
    return view_group(world.group(name))


def node(world: Cluster, name: str) -> NodeView:
    return next(view for view in view_nodes(world.scheduler) if view.name == name)


def test_a_gang_from_its_first_member_to_the_last_bind() -> None:
    world = cluster(nodes=4)
    pods = gang("train", pods=4, gpus=8)
    world.submit(pods[:1])
    view = seen(world, "train")
    assert (view.state, view.why) == (GroupState.GATHERING, "1 of 4 members exist")
    assert (view.n_pending, view.n_needed, view.complete_since_s) == (1, 4, None)
    since_s = view.since_s

    world.now_s += 3
    world.submit(pods[1:])
    view = seen(world, "train")
    assert (view.state, view.why) == (GroupState.ACTIVE, "")
    assert view.since_s == since_s + 3 == view.complete_since_s

    world.run()
    view = seen(world, "train")
    assert (view.state, view.n_bound, view.n_reserved, view.n_pending) == (GroupState.BOUND, 4, 0, 0)
    assert (view.is_whole, view.is_half_bound, view.attempts, view.why) == (True, False, 1, "")
    assert view.nodes == ("n0", "n1", "n2", "n3")
    assert len(set(view.ids)) == 32
    assert view.n_running == 0

    world.phase("train-0", "Running")
    world.phase("train-1", "Succeeded")
    view = seen(world, "train")
    assert (view.n_bound, view.n_running, view.n_ended) == (4, 1, 1)
    assert len(view.nodes) == 3, "who has ended holds nothing"


def test_reserved_and_waiting_then_given_back() -> None:
    world = cluster(nodes=2)
    pair = {GROUPS_KEY: json.dumps(["left", "right"]), TIMEOUT_KEY: "30s"}
    world.submit(with_annotations(gang("left", pods=2, gpus=4), pair)).run()
    view = seen(world, "left")
    assert (view.state, view.n_reserved, view.n_bound) == (GroupState.WAITING, 2, 0)
    assert "group d/right does not exist" in view.why
    assert view.start_together == ("d/right",)
    assert view.deadline_s == view.since_s + 30
    assert [(h.n_reserved, h.n_bound, len(h.ids)) for h in view.holds] == [(2, 0, 8)]
    assert view.holds[0].reserved_ids[GPU] == view.ids
    devices = node(world, view.nodes[0]).devices[GPU]
    assert all(d.reserved and d.group == "d/left" and len(d.pods) == 1 for d in devices)

    world.wait(30)
    view = seen(world, "left")
    assert (view.state, view.n_reserved, view.failures) == (GroupState.BACKOFF, 0, 1)
    assert "gave its reservations back: WaitOnPermit timed out" in view.why
    assert not view.holds
    assert not any(d.group for n in view_nodes(world.scheduler) for d in n.devices[GPU])


def test_unschedulable_says_why_and_by_whom() -> None:
    world = cluster(nodes=2).submit(gang("big", pods=3, gpus=8)).run()
    view = seen(world, "big")
    assert (view.state, view.n_pending, view.attempts) == (GroupState.UNSCHEDULABLE, 3, 1)
    assert "2 of 3 fit" in view.why
    assert view.rejected_by
    assert [m.why for m in view_members(world.group("big"))] == [view.why] * 3


def test_numbers_that_make_no_sense_are_the_reason() -> None:
    world = cluster().submit(make_pod("odd-0", group="odd", annotations={"gangsched.io/min-members": "two"}))
    world.run()
    assert "'two' is not a whole number" in seen(world, "odd").why


def test_a_group_whose_object_is_missing_reports_that() -> None:
    world = cluster().submit(make_pod("w-0", labels={"scheduling.x-k8s.io/pod-group": "w"}))
    assert seen(world, "w").why == "its PodGroup object does not exist (yet)"


def test_members_come_by_rank_with_their_devices() -> None:
    world = cluster(nodes=4).submit(gang("train", pods=12, gpus=2)).run()
    members = view_members(world.group("train"))
    assert [m.name for m in members] == [f"train-{k}" for k in range(12)]
    assert [m.rank for m in members] == list(range(12))
    assert all(m.state is MemberState.BOUND and len(m.ids[GPU]) == 2 and m.attempt == 1 for m in members)


def test_nodes_in_natural_order_with_room_and_racks() -> None:
    world = cluster(nodes=11, gpus=8, racks=2).submit(make_pod("lone", gpus=3)).run()
    views = view_nodes(world.scheduler)
    assert [view.name for view in views] == [f"n{i}" for i in range(11)]
    assert (views[0].topology, views[1].topology) == ("r0", "r1")
    [place] = seen(world, "lone").nodes
    holding = node(world, place)
    assert (holding.allocatable[GPU], holding.free[GPU]) == (8, 5)
    assert [d.pods for d in holding.devices[GPU] if d.pods] == [("d/lone",)] * 3


def test_sick_devices_and_cordons_are_seen() -> None:
    world = cluster(nodes=1)
    text = '{"nvidia.com/gpu": [{"id": "a", "health": "Unhealthy"}, {"id": "b"}]}'
    world.node(make_node("sick", gpus=2, annotations={"gangsched.io/devices": text}))
    assert [(d.id, d.healthy) for d in node(world, "sick").devices[GPU]] == [("a", False), ("b", True)]
    assert not node(world, "sick").unschedulable


@pytest.mark.parametrize("nasty", ["\x1b[31mred", "a\nb", "\u202ex"])
def test_what_strangers_wrote_cannot_move_the_cursor(nasty: str) -> None:
    world = cluster(nodes=0)
    text = json.dumps({GPU: [{"id": nasty, "health": "Healthy"}]})
    world.node(make_node("n0", gpus=1, annotations={"gangsched.io/devices": text}))
    world.submit(make_pod("lone", gpus=1)).run()
    shown = [*seen(world, "lone").ids, *(d.id for d in node(world, "n0").devices[GPU])]
    assert all(text.isprintable() for text in shown), shown
    assert len(shown) == 2


def test_groups_come_by_namespace_and_name() -> None:
    world = cluster(nodes=2).submit(
        make_pod("z", namespace="a"), make_pod("b", namespace="b"), gang("a", pods=2, namespace="b")
    )
    assert [view.name for view in view_groups(world.scheduler)] == ["a/z", "b/a", "b/b"]
    assert [view.is_gang for view in view_groups(world.scheduler)] == [False, True, False]
