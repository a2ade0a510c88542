"""Permit and WaitOnPermit: reserved whole, nothing bound, until allowed or given back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gangsched.lab.sim.objects import STRANGER, inventory, make_node, make_pod, make_pod_group
from gangsched.model import effects as ef
from gangsched.model.devices.annotations import INVENTORY_KEY
from gangsched.model.objects import Pod
from gangsched.model.pod_group import COSCHEDULING_LABEL
from tests.support.scenario import Cluster, cluster, gang, with_annotations


def together(name: str, *others: str, pods: int = 2, gpus: int = 8, **more: Any) -> list[Pod]:
    own = {"gangsched.io/groups": msgspec.json.encode([name, *others]).decode()}
    return with_annotations(gang(name, pods=pods, gpus=gpus, **more), own)


@pytest.mark.parametrize("n_more", [0, 3], ids=["two groups", "five groups"])
def test_groups_that_fit_in_one_order_only_are_placed_in_that_order(n_more: int) -> None:
    """`a` alone would take the one node that is large enough for `b`."""
    c = cluster(nodes=0).node(make_node("n0", gpus=8))
    for i in range(2 + n_more):
        c.node(make_node(f"n{i + 1}", gpus=4))
    names = ["a", "b", *(f"c{i}" for i in range(n_more))]
    sizes = {"a": (4, 2), "b": (1, 8)}  # pods, GPUs of each
    for name in names:
        pods, gpus = sizes.get(name, (1, 4))
        c.submit(together(name, *(other for other in names if other != name), pods=pods, gpus=gpus))
    c.run()
    assert all(c.placed(name) for name in names)
    assert c.pod("b-0").spec.node_name == "n0"


def test_groups_that_start_together_wait_reserved_and_bind_together() -> None:
    c = cluster().submit(together("a", "b")).run()
    assert c.state("a") == "waiting"
    assert c.scheduler.statistics()["reservations"] == 2
    assert "GangWaiting" in c.reasons()
    c.five_more_turns_change_nothing()
    c.submit(together("b", "a")).run()
    assert c.placed("a")
    assert c.placed("b")


def test_a_wait_ends_after_the_configured_time_and_everything_is_given_back() -> None:
    c = cluster().submit(together("a", "b")).run().wait(59.0)
    assert c.state("a") == "waiting"
    c.wait(1.5)
    assert c.state("a") == "backoff"
    assert c.scheduler.statistics()["reservations"] == 0
    assert c.said("a-0") == (
        "gang d/a gave its reservations back: WaitOnPermit timed out (group d/b does not exist, or does not"
        " list this group); it is tried again in 1 s"
    )


def test_groups_that_waited_together_rest_together_and_leave_their_room_to_others() -> None:
    """The end of one's wait ended the other's, which was then taken for rested: both were reserved again in
    the same moment, for another minute, and so on."""
    c = cluster(nodes=2)
    c.submit(together("a", "b", "c", pods=1), together("b", "a", "c", pods=1)).run()
    c.submit(make_pod("other", gpus=8)).run().wait(60.5)
    assert c.pod("other").spec.node_name
    assert c.untouched("a")
    assert c.untouched("b")


def test_the_timeout_of_a_pod_without_a_gang_counts_too() -> None:
    """It waits for its victim's grace period and for its own timeout, and not for permitWaitSeconds."""
    old = make_pod("old", gpus=8, priority=1)
    old = replace(old, spec=replace(old.spec, termination_grace_period_seconds=10))
    c = cluster(nodes=1).submit(old).run()
    c.evictions = "slow"
    c.submit(make_pod("p", gpus=8, priority=9, annotations={"gangsched.io/schedule-timeout": "5s"})).run()
    assert c.state("p") == "waiting"
    assert c.wait(14.0).state("p") == "waiting"
    assert c.wait(1.5).state("p") != "waiting"
    c.submit(make_pod("odd", annotations={"gangsched.io/schedule-timeout": "soon"})).run()
    assert "gangsched.io/schedule-timeout: 'soon' is not a duration" in c.said("odd")


def test_the_gangs_own_timeout_counts() -> None:
    pods = with_annotations(together("a", "b"), {"gangsched.io/schedule-timeout": "5s"})
    c = cluster().submit(pods).run().wait(4.0)
    assert c.state("a") == "waiting"
    assert c.wait(1.1).state("a") == "backoff"


def test_a_group_that_does_not_list_this_one_is_no_sibling() -> None:
    c = cluster().submit(together("a", "b"), gang("b", pods=1)).run()
    assert c.state("a") == "waiting"
    assert c.placed("b")


def test_a_set_that_does_not_fit_as_a_whole_holds_nothing() -> None:
    c = cluster(nodes=3).submit(together("a", "b")).run().submit(together("b", "a")).run()
    assert c.scheduler.statistics()["reservations"] == 0
    assert c.untouched("a")
    assert c.untouched("b")
    assert c.submit(make_pod("small", gpus=8)).run().pod("small").spec.node_name


def total(name: str, *, pods: int, of: int, least: int = 2, first: int = 0, gpus: int = 8) -> list[Pod]:
    made = gang(name, pods=pods, min_members=least, gpus=gpus, first=first)
    return with_annotations(made, {"gangsched.io/total-members": str(of)})


def test_members_up_to_the_total_are_waited_for() -> None:
    c = cluster().submit(total("a", pods=2, of=4)).run()
    assert c.state("a") == "waiting"
    c.submit(total("a", pods=1, of=4, first=2)).run()
    assert c.scheduler.statistics()["reservations"] == 3
    c.submit(total("a", pods=1, of=4, first=3)).run()
    assert c.placed("a", on=4)


def test_a_late_member_that_does_not_fit_gives_everything_back() -> None:
    c = cluster(nodes=2).submit(total("a", pods=2, of=3)).run()
    assert c.state("a") == "waiting"
    c.submit(total("a", pods=1, of=3, first=2)).run()
    assert c.state("a") == "unschedulable"
    assert c.scheduler.statistics()["reservations"] == 0


def test_min_resources_are_no_sum_to_wait_for() -> None:
    """A controller writes there what the whole job may come to need; its pods may never add up to it."""
    c = cluster()
    spec = {"minMember": 1, "minResources": {"nvidia.com/gpu": 16, "cpu": "3"}}
    c.object("coscheduling", make_pod_group("a", spec=spec))
    c.submit(make_pod("a-0", gpus=8, labels={COSCHEDULING_LABEL: "a"})).run()
    assert c.placed("a", on=1)


def test_min_resources_of_memory_are_reported_in_gi() -> None:
    c = cluster(nodes=2)
    spec = {"minMember": 1, "minResources": {"memory": "2Ti"}}
    c.object("coscheduling", make_pod_group("a", spec=spec))
    c.submit(make_pod("a-0", labels={COSCHEDULING_LABEL: "a"})).run()
    assert c.said("a-0") == "gang d/a: minResources is 2048Gi memory and all nodes together have 1024Gi"


@pytest.mark.parametrize("name", ["nvidia.com/gpu", "example.com/none-has-it"])
def test_min_resources_that_the_cluster_does_not_have_are_reported_and_cured_by_a_node(name: str) -> None:
    c = cluster(nodes=2)
    c.object("coscheduling", make_pod_group("a", spec={"minMember": 1, "minResources": {name: 24}}))
    c.submit(make_pod("a-0", gpus=8, labels={COSCHEDULING_LABEL: "a"})).run()
    there = 16 if "gpu" in name else 0
    assert c.said("a-0") == f"gang d/a: minResources is 24 {name} and all nodes together have {there}"
    node = make_node("n9")
    more = {**(node.status.allocatable or {}), name: 24}
    c.node(replace(node, status=replace(node.status, allocatable=more))).wait(11.0)
    assert c.placed("a")


def test_extra_members_join_while_there_is_room() -> None:
    c = cluster(nodes=2).submit(gang("a", pods=3, min_members=2, gpus=8)).run()
    bound = [name for name in ("a-0", "a-1", "a-2") if c.pod(name).spec.node_name]
    assert len(bound) == 2
    c.wait(20.0).delete(bound[0]).run()
    assert c.placed("a")


def test_a_member_that_comes_after_the_gang_was_bound_stands_alone() -> None:
    c = cluster().submit(gang("a", pods=2)).run().submit(gang("a", pods=1, min_members=2, first=2)).run()
    assert c.placed("a")


@pytest.mark.parametrize("how", ["delete", "leave"])
def test_a_waiting_gang_that_loses_a_member_goes_back(how: str) -> None:
    c = cluster().submit(together("a", "b")).run()
    getattr(c, how)("a-1").run()
    assert c.state("a") == "gathering"
    assert c.scheduler.statistics()["reservations"] == 0


@pytest.mark.parametrize("what", ["deleted", "cordoned", "shrunk", "device", "stranger"])
def test_a_waiting_gang_whose_room_breaks_goes_back_and_never_binds_there(what: str) -> None:
    c = cluster(nodes=2).submit(together("a", "b", pods=1, gpus=6)).run()
    assert c.state("a") == "waiting"
    name = next(info.node_name for info in c.group("a").members.values())
    spoil(c, name, what)
    c.wait(3.0)
    c.clear().submit(together("b", "a", pods=1, gpus=1)).run().wait(5.0)
    assert name not in {bind.node for bind in c.all(ef.BindPod) if bind.name == "a-0"}
    assert c.pod("a-0").spec.node_name


def spoil(c: Cluster, name: str, what: str) -> None:
    node = c.nodes[name]
    if what == "deleted":
        c.drop_node(name)
    elif what == "cordoned":
        c.node(replace(node, spec=replace(node.spec, unschedulable=True)))
    elif what == "shrunk":
        c.node(
            replace(
                node,
                status=replace(
                    node.status, allocatable={**(node.status.allocatable or {}), "nvidia.com/gpu": 5}
                ),
            )
        )
    elif what == "device":
        bad = inventory(name, 8, unhealthy=range(0, 8, 2))
        c.node(replace(node, metadata=replace(node.metadata, annotations={INVENTORY_KEY: bad})))
    else:
        other = make_pod("other", gpus=4, scheduler=STRANGER)
        c.submit(replace(other, spec=replace(other.spec, node_name=name)))


def test_a_waiting_gang_whose_object_is_deleted_goes_back() -> None:
    c = cluster()
    item = make_pod_group("a", spec={"minMember": 1})
    own = {"gangsched.io/total-members": "2"}
    c.object("coscheduling", replace(item, metadata=replace(item.metadata, annotations=own)))
    c.submit(make_pod("a-0", gpus=8, labels={COSCHEDULING_LABEL: "a"})).run()
    assert c.state("a") == "waiting"
    c.drop_object("coscheduling", "a")
    assert c.scheduler.statistics()["reservations"] == 0
    assert c.untouched("a")


def test_a_waiting_gang_whose_members_are_all_deleted_is_gone() -> None:
    c = cluster().submit(together("a", "b")).run().delete("a-0", "a-1")
    assert c.scheduler.statistics()["reservations"] == 0
    assert not c.groups()


def test_a_started_gang_whose_last_waiting_member_goes_waits_no_more() -> None:
    """It has nothing to reserve or bind, and stayed in binding until something else touched it."""
    c = cluster(nodes=1, gpus=8)
    c.submit(make_pod("low", gpus=4)).run()
    first, more = gang("train", pods=2, gpus=4, min_members=1, priority=5)
    c.submit(first).run()
    c.evictions = "slow"
    c.submit(more).run()
    assert c.state("train") == "waiting"
    c.delete(more.metadata.name).run()
    assert c.state("train") == "bound"
    assert not c.nominated()
