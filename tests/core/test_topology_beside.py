"""Gangs in one rack beside all else: affinity, devices, siblings, victims, wake-ups, what is refused."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.core.cycle.domains import topology
from gangsched.core.cycle.domains.domains import Area
from gangsched.core.framework.profile import Demand
from gangsched.lab.sim.objects import inventory, make_pod, make_pod_group
from gangsched.model import effects as ef
from gangsched.model.devices.annotations import INVENTORY_KEY
from gangsched.model.objects import SchedulingGroup
from gangsched.model.pod_group import (
    DISRUPTION_KEY,
    GROUPS_KEY,
    SINGLE,
)
from gangsched.model.stated.topology import TOPOLOGY_KEY
from tests.core.topologies import (
    BLOCK,
    ONE_RACK,
    RACK,
    apart,
    core_pods,
    full,
    node,
    racks,
    where,
    within,
)
from tests.support.scenario import Cluster, gang, with_annotations

# -- together with everything else -----------------------------------------------------------------------


def test_members_apart_from_each_other_find_the_rack_with_enough_nodes() -> None:
    c = racks(a=2, b=3, c=2).submit(apart(within(ONE_RACK, gang("g", pods=3, gpus=1)))).run()
    assert c.placed("g", on=3)
    assert where(c, "g") == ["b"]


def test_members_apart_from_each_other_without_such_a_rack_are_reported() -> None:
    c = racks(a=2, b=2).submit(apart(within(ONE_RACK, gang("g", pods=3, gpus=1)))).run()
    assert c.untouched("g")
    assert c.said("g-0").startswith(
        f"gang d/g: no {RACK} can take 3 members placed as they ask; tried: a, b. In a: 2 of 3 fit; "
    )


def test_a_gang_whose_members_all_differ_is_tried_in_fewer_racks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each try asks about each kind of member: a turn must not take longer for more of them."""
    tried: list[int] = []
    narrowed = topology._narrowed

    def counted(demands: Sequence[Demand], areas: Sequence[Area]) -> list[Demand]:
        tried.append(sum(len(demand.by_template()) for demand in demands))
        return narrowed(demands, areas)

    monkeypatch.setattr(topology, "_narrowed", counted)
    asked = []
    for n_kinds in (16, 100):
        tried.clear()
        c = Cluster(Settings(topology_key=RACK, search_placements=0))
        for i in range(12 * 63):
            c.node(node(f"n{i}", rack=f"r{i // 63}"))
        cpus = [f"{10 + i % n_kinds}m" for i in range(100)]
        # A rack has 504 devices for 450, and takes 50 members of five devices and 26 of four.
        pods = [
            make_pod(f"g-{i}", group="g", min_members=100, gpus=5 - i % 2, cpu=cpu)
            for i, cpu in enumerate(cpus)
        ]
        c.submit(within(ONE_RACK, pods)).run()
        assert c.untouched("g")
        assert ("A placement may exist" in c.said("g-0")) == (n_kinds == 100)
        asked.append(sum(tried))
    assert asked == [16 * 12, 100 * 5]


def test_members_of_two_sizes_fit_in_one_order_only() -> None:
    """5 + 3 and 4 + 4 fill two nodes; in the order of their names they do not."""
    c = racks(a=(8, 7), b=2)
    pods = gang("g", pods=2, gpus=4, min_members=4)
    pods += [
        make_pod("g-2", group="g", min_members=4, gpus=5),
        make_pod("g-3", group="g", min_members=4, gpus=3),
    ]
    c.submit(within(ONE_RACK, pods)).run()
    assert c.placed("g", on=2)
    assert where(c, "g") == ["b"]


def test_devices_that_are_taken_are_no_room() -> None:
    c = racks(a=2, b=2)
    strangers = [make_pod(f"old-{k}", gpus=1, scheduler="other") for k in range(2)]
    c.submit([replace(p, spec=replace(p.spec, node_name=f"a{k}")) for k, p in enumerate(strangers)])
    c.submit(within(ONE_RACK, gang("g", pods=2, gpus=8))).run()
    assert where(c, "g") == ["b"]
    assert all(len(c.ids(f"g-{k}")) == 8 for k in range(2))


def both(names: Sequence[str]) -> dict[str, str]:
    return {GROUPS_KEY: msgspec.json.encode(list(names)).decode()}


def test_groups_that_start_together_have_a_rack_each_and_no_more_than_there_is() -> None:
    """The tightest rack is the best for both, and holds one of them."""
    names = ("g", "h")
    c = racks(a=2, b=2)
    for name in names:
        c.submit(with_annotations(within(ONE_RACK, gang(name, pods=2, gpus=8)), both(names)))
    c.run()
    assert [where(c, "g"), where(c, "h")] == [["a"], ["b"]]


def test_of_groups_that_start_together_one_without_a_rack_holds_all_back() -> None:
    names = ("g", "h", "i")
    c = racks(a=2, b=2, c=1, d=1)
    for name in names:
        c.submit(with_annotations(within(ONE_RACK, gang(name, pods=2, gpus=8)), both(names)))
    c.run()
    assert all(c.untouched(name) for name in names)
    assert f"no {RACK} can take 2 members placed as they ask" in c.said("g-0")


def test_a_sibling_without_a_constraint_leaves_the_rack_to_the_one_that_needs_it() -> None:
    names = ("free", "tied")
    c = racks(a=2, b=1, c=1)
    c.submit(with_annotations(gang("free", pods=2, gpus=8), both(names)))
    c.submit(with_annotations(within(ONE_RACK, gang("tied", pods=2, gpus=8)), both(names)))
    c.run()
    assert where(c, "tied") == ["a"]
    assert where(c, "free") == ["b", "c"]


# -- preemption ------------------------------------------------------------------------------------------


def test_victims_are_of_one_rack_and_the_cheapest_one() -> None:
    c = full(racks(a=2, b=2, c=2), a=5, b=1, c=3)
    c.submit(within(ONE_RACK, gang("g", pods=2, gpus=8, priority=10))).run()
    assert c.taken() == ["old-b0", "old-b1"]
    assert c.run().placed("g", on=2)
    assert where(c, "g") == ["b"]


def test_a_rack_where_fewer_must_go_is_cheaper() -> None:
    c = full(racks(a=2, b=2), a=1, b=1)
    c.delete("old-b1")
    c.submit(within(ONE_RACK, gang("g", pods=2, gpus=8, priority=10))).run()
    assert c.taken() == ["old-b0"]
    assert where(c.run(), "g") == ["b"]


def test_the_cheapest_nodes_of_many_racks_are_not_the_cheapest_rack() -> None:
    """Each rack has one node with one pod and three with three; the last one has two on each of four."""
    names = "abcdefgh"
    c = racks(**dict.fromkeys(names, (9,) * 4))
    for name in c.nodes:
        n = 2 if name.startswith("h") else 1 if name.endswith("0") else 3
        for k in range(n):
            pod = make_pod(f"old-{name}-{k}", gpus=3, priority=1, scheduler="other")
            c.submit(replace(pod, spec=replace(pod.spec, node_name=name)))
    c.submit(within(ONE_RACK, gang("g", pods=4, gpus=9, priority=10))).run()
    assert {name[:5] for name in c.taken()} == {"old-h"}
    assert where(c.run(), "g") == ["h"]


def test_of_more_racks_than_are_searched_those_with_most_room_are() -> None:
    names = [f"r{i:02}" for i in range(24)]
    c = full(racks(**dict.fromkeys(names, 2)), **dict.fromkeys(names, 1))
    c.delete("old-r230")
    c.submit(within(ONE_RACK, gang("g", pods=2, gpus=8, priority=10))).run()
    assert c.taken() == ["old-r231"]


def test_the_rack_of_lowest_priority_is_searched_though_many_come_before_it_by_name() -> None:
    names = [f"r{i:02}" for i in range(24)]
    c = full(racks(**dict.fromkeys(names, 2)), **dict.fromkeys(names, 5))
    c.delete("old-r230", "old-r231")
    full(c, r23=1)
    c.submit(within(ONE_RACK, gang("g", pods=2, gpus=8, priority=10))).run()
    assert c.taken() == ["old-r230", "old-r231"]


def test_no_pod_is_evicted_where_no_single_rack_can_be_freed() -> None:
    """Free nodes enough of two racks, and one pod of each that may not go."""
    c = full(racks(a=2, b=2), a=1, b=1)
    for name in ("a0", "b0"):
        c.delete(f"old-{name}")
        pod = make_pod(f"high-{name}", gpus=8, priority=100, scheduler="other")
        c.submit(replace(pod, spec=replace(pod.spec, node_name=name)))
    c.submit(within(ONE_RACK, gang("g", pods=2, gpus=8, priority=10))).run()
    assert c.taken() == []
    assert c.untouched("g")
    assert "preemption: " in c.said("g-0")


def test_a_preference_takes_no_victim() -> None:
    c = full(racks(a=2, b=2), a=1)
    c.delete("old-a0")
    c.submit(within(f"preferred: {RACK}", gang("g", pods=3, gpus=8, priority=10))).run()
    assert c.taken() == []
    assert c.placed("g", on=3)


def test_the_room_of_victims_is_kept_in_their_rack_while_they_go() -> None:
    c = full(racks(a=2, b=2), a=1, b=5)
    c.evictions = "slow"
    c.submit(within(ONE_RACK, gang("g", pods=2, gpus=8, priority=10))).run()
    nominated = {one.node for one in c.all(ef.NominateNode)}
    assert nominated == {"a0", "a1"}
    c.delete("old-b0")  # room in the other rack, and not enough of it
    c.delete("old-a0", "old-a1").run()
    assert c.placed("g", on=2)
    assert where(c, "g") == ["a"]


def test_a_gang_that_is_a_victim_goes_whole_for_one_in_one_rack() -> None:
    c = racks(a=2, b=2)
    c.submit(gang("low", pods=4, gpus=8)).run()
    c.submit(within(ONE_RACK, gang("g", pods=2, gpus=8, priority=10))).run()
    assert len(c.taken()) == 4
    assert c.run().placed("g", on=2)
    assert len(where(c, "g")) == 1


def test_of_a_gang_that_goes_pod_by_pod_those_of_one_rack_go() -> None:
    c = racks(a=2, b=2)
    c.submit(with_annotations(gang("low", pods=4, gpus=8), {DISRUPTION_KEY: SINGLE})).run()
    c.submit(within(ONE_RACK, gang("g", pods=2, gpus=8, priority=10))).run()
    assert len(c.taken()) == 2
    assert c.run().placed("g", on=2)
    assert len(where(c, "g")) == 1


# -- what wakes it, what is refused ----------------------------------------------------------------------


def waiting_gang() -> Cluster:
    c = racks(a=2, b=2, c=1)
    c.submit([make_pod("old", gpus=8, scheduler="other")])
    old = c.pod("old")
    c.update(old, spec=replace(old.spec, node_name="b0"))
    c.submit(within(ONE_RACK, gang("g", pods=3, gpus=8))).run()
    assert c.untouched("g")
    return c


def test_a_node_that_joins_the_rack_wakes_the_gang() -> None:
    assert waiting_gang().node(node("a2", rack="a")).run().wait(20).placed("g")


def test_a_node_that_gets_the_label_wakes_the_gang() -> None:
    c = waiting_gang().node(node("bare")).run().wait(20)
    assert c.untouched("g")
    assert where(c.node(node("bare", rack="a")).run(), "g") == ["a"]


def test_pods_that_go_wake_the_gang() -> None:
    c = waiting_gang().node(node("b2", rack="b")).run().wait(20)
    assert c.untouched("g")
    assert where(c.delete("old").run(), "g") == ["b"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("rack", "'rack' is not a level of topology"),
        ("", "'' is not a level of topology"),
        (f"required: {RACK}, ", "'' is not a level of topology"),
        ("must: example.com/rack", "'must: example.com/rack' is not a level of topology"),
        ("required: -bad-", "'-bad-' is not a label key"),
        (f"required: {RACK}, preferred: {RACK}", "is named twice"),
        (", ".join(f"required: example.com/l{i}" for i in range(9)), "more than 8 levels"),
        ("required: " + "x" * 5000, "characters; at most"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(text: str, why: str) -> None:
    c = racks(a=4).submit(within(text, gang("g", pods=2))).run()
    assert c.untouched("g")
    assert c.said("g-0").startswith(f"gang d/g: {TOPOLOGY_KEY}: ")
    assert why in c.said("g-0")
    assert len(c.said("g-0").encode()) <= 1024


def test_a_basic_pod_group_with_a_rack_does_not_give_way_to_another_name() -> None:
    """Its constraint would be lost."""
    spec = {"schedulingPolicy": {"basic": {}}, "schedulingConstraints": {"topology": [{"key": RACK}]}}
    pods = gang("g", pods=2, gpus=8)
    pods = [replace(p, spec=replace(p.spec, scheduling_group=SchedulingGroup("made-for-it"))) for p in pods]
    c = racks(a=2).object("core", make_pod_group("made-for-it", spec=spec)).submit(pods).run()
    assert c.untouched("g")
    assert "the pod names different groups" in c.said("g-0")


def test_pods_of_a_basic_pod_group_share_a_rack_one_after_the_other() -> None:
    spec = {"schedulingPolicy": {"basic": {}}, "schedulingConstraints": {"topology": [{"key": RACK}]}}
    c = racks(a=2, b=3).object("core", make_pod_group("g", spec=spec))
    for pod in core_pods("g", pods=3, gpus=8):
        c.submit(pod).run()
    assert where(c, "g") == ["a"]
    assert not c.pod("g-2").spec.node_name


def test_members_that_ask_for_different_racks_are_refused() -> None:
    c = racks(a=4)
    c.submit(within(ONE_RACK, gang("g", pods=1, min_members=2)))
    c.submit(within(f"required: {BLOCK}", gang("g", pods=1, first=1, min_members=2))).run()
    assert c.untouched("g")
    assert f"members disagree on {TOPOLOGY_KEY}" in c.said("g-0")


@pytest.mark.parametrize(
    ("constraints", "why"),
    [
        ({"topology": [{"key": RACK}], "spread": {}}, "spec.schedulingConstraints.spread: is not supported"),
        ({"topology": [{"key": RACK, "mode": "x"}]}, "topology[0].mode: is not supported"),
        ({"topology": {"key": RACK}}, "topology: is not a list"),
        ({"topology": [{}]}, "topology[0]: is not an object with a key"),
        ([], "is not an object"),
    ],
)
def test_a_constraint_of_the_core_api_that_is_not_known_is_refused(constraints: object, why: str) -> None:
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, "schedulingConstraints": constraints}
    c = racks(a=2).object("core", make_pod_group("g", spec=spec)).submit(core_pods("g", pods=2, gpus=1)).run()
    assert c.untouched("g")
    assert why in c.said("g-0")


@pytest.mark.parametrize("names", ["inside other", "within other"])
def test_a_set_is_woken_when_a_group_of_it_can_leave_the_rack_that_another_requires(names: str) -> None:
    """All pods are alike, but only one group must be in a rack: a device elsewhere is news for the other."""
    in_rack, free = names.split()
    c = racks(a=1, b=(4,))
    whole, ill = c.nodes["b0"], inventory("b0", 4, unhealthy=range(4))
    c.node(replace(whole, metadata=replace(whole.metadata, annotations={INVENTORY_KEY: ill})))
    together = {GROUPS_KEY: f'["d/{in_rack}", "d/{free}"]'}
    c.submit(with_annotations(within(ONE_RACK, gang(in_rack, pods=2, gpus=4)), together))
    c.submit(with_annotations(within(f"preferred: {RACK}", gang(free, pods=1, gpus=4)), together)).run()
    assert c.state(in_rack) == c.state(free) == "unschedulable"
    c.wait(15.0).node(whole).run()
    assert (where(c, in_rack), where(c, free)) == (["a"], ["b"])
