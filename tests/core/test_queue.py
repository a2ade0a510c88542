"""Who is tried when: states, order, backoff, and what wakes whom."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from gangsched.core.framework.interface import SUCCESS, Change, Status
from gangsched.core.state.line import queue as waiting
from gangsched.core.types.cluster_events import ClusterChange
from gangsched.lab.sim.objects import STRANGER, make_node, make_pod, make_pod_group
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import ContainerPort, SchedulingGroup, Taint
from tests.core.plugins import with_plugins
from tests.support.scenario import cluster, gang, with_annotations


def test_a_gang_gathers_until_its_last_member_exists() -> None:
    c = cluster().submit(gang("a", pods=4, gpus=8)[:3]).run()
    assert c.state("a") == "gathering"
    assert c.untouched("a")
    c.submit(gang("a", pods=4, gpus=8)[3]).run()
    assert c.placed("a", on=4)
    c.five_more_turns_change_nothing()


def test_a_gang_that_stays_incomplete_says_what_is_missing() -> None:
    c = cluster().submit(gang("a", pods=4)[:3]).run()
    assert not c.all(ef.WritePodCondition)
    c.wait(6.0)
    assert c.said("a-0") == "gang d/a waits for members: 3 of 4 exist"


def test_gated_members_do_not_count_until_the_gate_is_gone() -> None:
    pods = gang("a", pods=2, gated=True)
    c = cluster().submit(pods).run()
    assert c.state("a") == "gated"
    for name in ("a-0", "a-1"):
        pod = c.pod(name)
        c.update(pod, spec=replace(pod.spec, scheduling_gates=None)).run()
    assert c.placed("a")


def test_higher_priority_goes_first_then_the_gang_that_was_complete_first() -> None:
    c = cluster()
    c.submit(gang("late", pods=1)[0])
    c.now_s += 1
    c.submit(gang("low", pods=1), gang("high", pods=1, priority=10))
    c.run()
    assert c.bind_order() == ["high", "late", "low"]


def test_the_line_is_listed_in_the_order_in_which_groups_will_be_tried() -> None:
    c = cluster()
    names = [f"g{i}" for i in range(40)]
    c.submit(*(gang(name, pods=1, priority=7 * i % 40) for i, name in enumerate(names)))
    c.delete("g11-0")
    line = [group.key.name for group in c.scheduler.in_line()]
    assert line == sorted(set(names) - {"g11"}, key=lambda name: -(7 * int(name[1:]) % 40))
    popped = []
    while (group := c.scheduler.pop()) is not None:
        popped.append(group.key.name)
    assert popped == line, "and it has stayed as it was"
    assert not list(c.scheduler.in_line())


def test_a_failed_attempt_does_not_cost_a_gang_its_place() -> None:
    c = cluster(nodes=1)
    c.submit(make_pod("full", gpus=8)).run().submit(gang("old", pods=2, gpus=4)).run()
    assert c.state("old") == "unschedulable"
    c.wait(5.0).submit(gang("young", pods=2, gpus=4)).run().wait(5.0).clear()
    c.delete("full").run().wait(15.0)
    assert c.bind_order() == ["old"]


def test_backoff_is_1_2_4_8_10_10_seconds() -> None:
    c = cluster(nodes=1)
    c.submit(gang("a", pods=2, gpus=8)).run()
    waits = []
    for k in range(6):
        waits.append(c.group("a").backoff_until_s - c.now_s)
        c.node(
            replace(c.nodes["n0"], status=replace(c.nodes["n0"].status, allocatable=_grown(c.nodes["n0"], k)))
        )
        assert c.state("a") == "backoff"
        c.wait(waits[-1])
        assert c.state("a") == "unschedulable"
    assert waits == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def _grown(node: object, k: int) -> dict[str, str | int | float]:
    return {"cpu": 64, "memory": "512Gi", "pods": 110, "nvidia.com/gpu": 9 + k}


def test_nothing_but_five_minutes_wakes_a_gang_that_no_event_can_cure() -> None:
    c = cluster(nodes=1).submit(make_pod("one", gpus=1), gang("a", pods=2, gpus=8)).run()
    attempts = c.group("a").attempts
    c.submit(make_pod("x", gpus=0)).run().delete("x")
    c.node(replace(c.nodes["n0"], metadata=replace(c.nodes["n0"].metadata, labels={"a": "b"}))).run()
    c.wait(290.0)
    assert c.group("a").attempts == attempts
    c.wait(12.0)
    assert c.group("a").attempts == attempts + 1


@pytest.mark.parametrize("cure", ["node", "pod", "taint", "cordon", "stranger", "nominee"])
def test_what_can_cure_wakes(cure: str) -> None:
    c = cluster(nodes=1)
    node = c.nodes["n0"]
    if cure == "taint":
        c.node(replace(node, spec=replace(node.spec, taints=[Taint("k", "v", "NoSchedule")])))
    elif cure == "cordon":
        c.node(replace(node, spec=replace(node.spec, unschedulable=True)))
    elif cure == "pod":
        c.submit(make_pod("full", gpus=4)).run()
    elif cure == "stranger":
        other = make_pod("full", gpus=4, scheduler=STRANGER)
        c.submit(replace(other, spec=replace(other.spec, node_name="n0")))
    elif cure == "nominee":
        other = make_pod("full", gpus=4, scheduler=STRANGER, priority=5)
        c.submit(replace(other, status=replace(other.status, nominated_node_name="n0")))
    else:
        c.drop_node("n0")
    c.submit(gang("a", pods=2, gpus=4)).run()
    assert c.state("a") == "unschedulable"
    c.wait(20.0)
    assert c.untouched("a")
    if cure in ("pod", "stranger", "nominee"):
        c.delete("full")
    else:
        c.node(make_node("n0", uid="new") if cure == "node" else node)
    assert c.run().placed("a")


@pytest.mark.parametrize("most_pairs", [20_000, 0])
def test_a_plugin_hears_of_all_changes_that_it_names_merged_or_not(
    most_pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Closed:
        name = "Closed"
        cured_by = Change.ROOM_FREED | Change.NODE_ADDED
        heard: ClassVar[list[ClusterChange]] = []

        def reserve(self, state: Any, group: Any, placements: Any) -> Status:
            return SUCCESS if group.key.name.startswith("full") else Status.unschedulable("closed")

        def unreserve(self, group: Any, infos: Any) -> None: ...

        def cures(self, change: ClusterChange, template: Any, view: Any) -> bool:
            self.heard.append(change)
            return False

    monkeypatch.setattr(waiting, "_MAX_PAIRS", most_pairs)
    with_port = make_pod("full-0", gpus=0)
    [container] = with_port.spec.containers
    container = replace(container, ports=[ContainerPort(container_port=80, host_port=80)])
    with_port = replace(with_port, spec=replace(with_port.spec, containers=[container]))
    c = with_plugins(Closed()).submit(with_port, make_pod("full-1", gpus=1)).run().submit(make_pod("p-0"))
    c.run().wait(5.0)
    Closed.heard.clear()
    gone = [ev.PodDeleted(c.pods.pop(c.pod(f"full-{k}").metadata.uid)) for k in range(2)]
    c.tell(*gone, ev.NodeAdded(make_node("new"))).run()
    by_kind = {what: [one for one in Closed.heard if one.what is what] for what in Change}
    freed, added = by_kind.pop(Change.ROOM_FREED), by_kind.pop(Change.NODE_ADDED)
    assert not any(by_kind.values())
    assert (len(freed), len(added)) == ((1, 1) if most_pairs == 0 else (2, 1))
    assert set().union(*(one.resources for one in freed)) >= {"cpu", "memory", "nvidia.com/gpu"}
    assert any(one.ports for one in freed)
    if most_pairs == 0:
        assert [(one.row, one.pod) for one in freed] == [(-1, None)]


def test_a_plugin_that_fails_when_it_is_asked_what_cures_is_named_and_its_group_is_tried_again() -> None:
    class Unsure:
        name = "Unsure"
        cured_by = Change.ROOM_FREED
        is_open = True

        def reserve(self, state: Any, group: Any, placements: Any) -> Status:
            return SUCCESS if self.is_open else Status.unschedulable("closed")

        def unreserve(self, group: Any, infos: Any) -> None: ...

        def cures(self, change: Any, template: Any, view: Any) -> bool:
            raise ValueError("who knows")

    unsure = Unsure()
    c = with_plugins(unsure).submit(make_pod("before")).run()
    unsure.is_open = False
    c.submit(make_pod("p-0")).run().wait(5.0)
    assert c.untouched("p")
    unsure.is_open = True
    c.delete("before").run()
    assert c.placed("p")
    said = [one.message for one in c.all(ef.RecordEvent) if one.reason == "PluginFailed"]
    assert said == ["plugin Unsure failed in EventsToRegister: ValueError: who knows"]


def test_room_for_a_sibling_of_another_shape_wakes_the_gang_too() -> None:
    """The small member sits where the large one would fit; new room for the small one frees it."""
    c = cluster(nodes=1, gpus=4)
    c.submit(
        gang("a", pods=1, gpus=2, min_members=2), gang("a", pods=1, gpus=4, min_members=2, first=1)
    ).run()
    assert c.state("a") == "unschedulable"
    c.wait(20.0).node(make_node("n1", gpus=2)).run()
    assert c.placed("a", on=2)


@pytest.mark.parametrize("cure", ["node", "pod", "taint"])
@pytest.mark.parametrize("how", ["one gang", "two that start together"])
def test_what_lets_another_member_move_away_wakes_all(how: str, cure: str) -> None:
    """The large member fits on n0 alone, the small one on both; n1 is too small for the large one."""
    c = cluster(nodes=1, gpus=4)
    small_node = make_node("n1", gpus=2)
    if cure == "taint":
        c.node(replace(small_node, spec=replace(small_node.spec, taints=[Taint("k", "v", "NoSchedule")])))
    elif cure == "pod":
        c.node(small_node)
        lone = make_pod("full", gpus=1, scheduler=STRANGER)
        c.submit(replace(lone, spec=replace(lone.spec, node_name="n1")))
    if how == "one gang":
        names = ["a"]
        small, large = (gang("a", pods=1, gpus=2 + 2 * i, min_members=2, first=i) for i in range(2))
        c.submit(small, large)
    else:
        names = ["a", "b"]
        own = {"gangsched.io/groups": '["a","b"]'}
        for i, name in enumerate(names):
            c.submit(with_annotations(gang(name, pods=1, gpus=2 + 2 * i), own))
    c.run().wait(20.0)
    assert {c.state(name) for name in names} == {"unschedulable"}
    if cure == "pod":
        c.delete("full")
    else:
        c.node(small_node)
    c.run()
    assert all(c.placed(name) for name in names)


def test_a_sibling_that_is_still_binding_is_waited_for_and_then_joined() -> None:
    own = {"gangsched.io/groups": '["a","b"]'}
    c = cluster(nodes=2)
    c.answer = lambda bind: "hold"
    c.submit(with_annotations(gang("a", pods=1), own), with_annotations(gang("b", pods=1), own)).run()
    assert {c.state("a"), c.state("b")} == {"binding"}


def test_an_order_changed_by_the_pod_group_takes_effect_in_line() -> None:
    c = cluster()
    for name, priority in (("a", 1), ("b", 2)):
        spec = {"schedulingPolicy": {"gang": {"minCount": 1}}, "priority": priority}
        c.object("core", make_pod_group(name, spec=spec))
        pod = make_pod(f"{name}-0", priority=3)
        c.submit(replace(pod, spec=replace(pod.spec, scheduling_group=SchedulingGroup(name))))
    spec = {"schedulingPolicy": {"gang": {"minCount": 1}}, "priority": 3}
    c.object("core", make_pod_group("a", spec=spec))
    assert c.run().bind_order() == ["a", "b"]
