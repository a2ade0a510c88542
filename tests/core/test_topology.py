"""A gang that has to be in one rack, or would rather be: where it goes, and what it says otherwise."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.core.explaining.explain import explain
from gangsched.lab.sim.objects import make_pod, make_pod_group
from gangsched.model.pod_group import (
    COSCHEDULING_LABEL,
    LIGHTWEIGHT_MIN,
    LIGHTWEIGHT_NAME,
    TOTAL_MEMBERS_KEY,
)
from gangsched.model.stated.topology import TOPOLOGY_KEY
from tests.core.topologies import (
    BLOCK,
    ONE_RACK,
    RACK,
    core_gang,
    core_pods,
    levels,
    node,
    racks,
    where,
    within,
)
from tests.support.scenario import Cluster, cluster, gang, with_annotations

# -- required --------------------------------------------------------------------------------------------


def test_three_pods_that_must_share_a_rack_of_two_nodes_are_not_bound_over_both() -> None:
    """What was seen with the Job controller: racks of two nodes, and a core PodGroup's constraint."""
    c = racks(a=2, b=2).object("core", core_gang("train", pods=3))
    c.submit(core_pods("train", pods=3, gpus=8)).run()
    assert c.untouched("train")
    assert c.said("train-0") == (
        f"gang d/train: no {RACK} has room for 3 members: a could take 2, b could take 2. In a: 2 of 3 fit; "
        "member train-2: 0/4 nodes are available: 2 Insufficient nvidia.com/gpu, 2 node(s) were outside of a."
        " Too few nodes suit it: with nothing else running, 2 of 3 would fit."
    )
    c.five_more_turns_change_nothing()


def test_a_core_pod_group_goes_to_a_rack_where_it_fits() -> None:
    c = racks(a=2, b=3, c=2).object("core", core_gang("train", pods=3))
    c.submit(core_pods("train", pods=3, gpus=8)).run()
    assert c.placed("train", on=3)
    assert where(c, "train") == ["b"]


@pytest.mark.parametrize(
    "dialect", ["ours", "coscheduling", "lightweight", "coscheduling object", "core pods"]
)
def test_the_annotation_holds_in_every_dialect(dialect: str) -> None:
    c = racks(a=2, b=3)
    if dialect == "ours":
        pods = within(ONE_RACK, gang("g", pods=3, gpus=8))
    elif dialect == "lightweight":
        labels = {LIGHTWEIGHT_NAME: "g", LIGHTWEIGHT_MIN: "3"}
        pods = within(ONE_RACK, [make_pod(f"g-{k}", gpus=8, labels=labels) for k in range(3)])
    elif dialect == "core pods":  # whoever writes a Job cannot annotate the PodGroup that it gets
        c.object("core", make_pod_group("g", spec={"schedulingPolicy": {"gang": {"minCount": 3}}}))
        pods = within(ONE_RACK, core_pods("g", pods=3, gpus=8))
    else:
        own = {TOPOLOGY_KEY: ONE_RACK} if dialect == "coscheduling object" else {}
        c.object("coscheduling", make_pod_group("g", spec={"minMember": 3}, annotations=own))
        pods = [make_pod(f"g-{k}", gpus=8, labels={COSCHEDULING_LABEL: "g"}) for k in range(3)]
        pods = pods if own else within(ONE_RACK, pods)
    c.submit(pods).run()
    assert c.placed("g")
    assert where(c, "g") == ["b"]


def test_kais_constraint_keeps_its_group_in_one_rack() -> None:
    c = racks(a=2, b=2)
    constraint = {"topology": "cluster", "requiredTopologyLevel": RACK}
    c.object("kai", make_pod_group("g", spec={"minMember": 3, "topologyConstraint": constraint}))
    c.submit([make_pod(f"g-{k}", gpus=8, annotations={"pod-group-name": "g"}) for k in range(3)]).run()
    assert c.untouched("g")
    assert f"no {RACK} has room for 3 members" in c.said("g-0")
    c.node(node("b2", rack="b")).wait(11.0)
    assert c.placed("g")
    assert where(c, "g") == ["b"]


def test_without_a_constraint_the_same_gang_goes_over_two_racks() -> None:
    c = racks(a=2, b=2).submit(gang("g", pods=3, gpus=8)).run()
    assert c.placed("g", on=3)
    assert where(c, "g") == ["a", "b"]


def test_of_racks_that_fit_the_tightest_is_taken_and_of_equal_ones_the_first_by_name() -> None:
    c = racks(z=2, wide=4, a=3, b=2)
    c.submit(within(ONE_RACK, gang("g", pods=2, gpus=8))).run()
    assert where(c, "g") == ["b"]
    c.submit(within(ONE_RACK, gang("h", pods=2, gpus=8))).run()
    assert where(c, "h") == ["z"]


def test_fewest_nodes_go_before_the_tightest_rack() -> None:
    c = racks(a=(2, 2), b=(8, 8))
    c.submit(within(ONE_RACK, gang("g", pods=4, gpus=1))).run()
    assert c.placed("g", on=1)
    assert where(c, "g") == ["b"]


def test_a_node_without_the_label_never_counts() -> None:
    c = racks(a=1).node(node("bare-0")).node(node("bare-1"))
    c.submit(within(ONE_RACK, gang("g", pods=2, gpus=8))).run()
    assert c.untouched("g")
    assert c.said("g-0").startswith(f"gang d/g: no {RACK} has room for 2 members: a could take 1. In a: ")


def test_a_label_that_no_node_has_is_reported() -> None:
    c = cluster(nodes=2).submit(within("required: example.com/rak", gang("g", pods=2))).run()
    assert c.untouched("g")
    assert c.said("g-0") == "gang d/g: no node has the label example.com/rak."
    own = f"required: {RACK}x, required: {RACK}"
    c = racks(a=2).submit(within(own, gang("h", pods=2))).run()
    assert c.said("h-0") == f"gang d/h: no node has the label {RACK}x; did you mean {RACK}?"
    [cure] = explain(c.scheduler, c.group("h"), c.now_s).cures
    assert cure.startswith("Correct the label, in the annotation gangsched.io/topology or in the PodGroup's")


def test_a_lone_pod_goes_where_the_label_is() -> None:
    c = racks(a=1)
    c.node(node("roomy", gpus=16))
    c.submit(within(ONE_RACK, [make_pod("one", gpus=1)])).run()
    assert c.pod("one").spec.node_name == "a0"
    c.submit(within(ONE_RACK, [make_pod("two", gpus=8)])).run()
    assert c.said("two").startswith(f"no {RACK} has room for one member: a could take 0. In a: 0/2 nodes are")


def test_many_racks_are_reported_by_the_three_nearest() -> None:
    c = racks(**{f"r{i}": 1 for i in range(12)})
    c.submit(gang("old", pods=12, gpus=5)).run()
    c.submit(within(ONE_RACK, gang("g", pods=4, gpus=1))).run()
    assert c.said("g-0").startswith(
        f"gang d/g: no {RACK} has room for 4 members: r0 could take 3, r1 could take 3, r10 could take 3, "
        "9 others no more than that. In r0: 3 of 4 fit; member g-3: 0/12 nodes are available: "
    )


# -- levels ----------------------------------------------------------------------------------------------


BLOCK_THEN_RACK = f"required: {BLOCK}, preferred: {RACK}"


def test_a_block_is_required_and_a_rack_of_it_is_found_though_another_block_is_tighter() -> None:
    c = levels({"p": {"p1": 1, "p2": 1}, "q": {"q1": 1, "q2": 2, "q3": 1}})
    c.submit(within(BLOCK_THEN_RACK, gang("g", pods=2, gpus=8))).run()
    assert where(c, "g") == ["q2"]


def test_where_no_rack_does_it_is_the_block_with_the_fewest_racks() -> None:
    c = levels({"p": {"p1": 2, "p2": 1, "p3": 2}, "q": {"q1": 2, "q2": 1, "q3": 1, "q4": 1}})
    c.submit(within(BLOCK_THEN_RACK, gang("g", pods=4, gpus=8))).run()
    assert where(c, "g", BLOCK) == ["p"]
    assert where(c, "g") == ["p1", "p3"]


def test_no_block_does_though_all_of_them_would() -> None:
    c = levels({"p": {"p1": 2}, "q": {"q1": 2}})
    c.submit(within(BLOCK_THEN_RACK, gang("g", pods=3, gpus=8))).run()
    assert c.untouched("g")
    assert c.said("g-0").startswith(f"gang d/g: no {BLOCK} has room for 3 members: p could take 2, q could")


def test_what_is_only_preferred_falls_back() -> None:
    c = racks(a=1, b=2, c=3).submit(within(f"preferred: {RACK}", gang("g", pods=5, gpus=8))).run()
    assert c.placed("g", on=5)
    assert where(c, "g") == ["b", "c"]
    c = racks(a=1, b=1, c=1).submit(within(f"preferred: {RACK}", gang("g", pods=3, gpus=8))).run()
    assert c.placed("g", on=3)


def test_as_few_racks_as_can_be_go_before_as_few_nodes() -> None:
    """Two nodes of eight and one of four would be three; two racks of four nodes have room for all."""
    c = racks(a=(8,), b=(8,), c=(4,), p=(4, 4, 4), q=(4, 4))
    c.submit(within(f"preferred: {RACK}", gang("g", pods=5, gpus=4))).run()
    assert len(where(c, "g")) == 2


def test_a_preference_goes_before_fewest_nodes() -> None:
    """Two nodes of different racks would hold it; one rack's three do."""
    c = (
        racks(a=(8,), b=(4,), c=(4, 4, 4))
        .submit(within(f"preferred: {RACK}", gang("g", pods=3, gpus=4)))
        .run()
    )
    assert where(c, "g") == ["c"]


def test_the_narrowest_preference_is_tried_first_then_the_wider_one() -> None:
    both = f"preferred: {BLOCK}, preferred: {RACK}"
    c = levels({"p": {"p1": 2, "p2": 2}, "q": {"q1": 1, "q2": 1, "q3": 1}, "r": {"r1": 4}})
    c.submit(within(both, gang("g", pods=4, gpus=8))).run()
    assert where(c, "g") == ["r1"]
    c.submit(within(both, gang("h", pods=3, gpus=8))).run()
    assert where(c, "h", BLOCK) == ["p"]
    assert where(c, "h") == ["p1", "p2"]


def test_two_labels_required_are_one_domain() -> None:
    """The rack of that name in the other block is another rack."""
    c = Cluster(Settings(topology_key=RACK))
    for block, n in (("p", 1), ("q", 1)):
        for i in range(n):
            c.node(node(f"{block}{i}", block=block, rack="r1"))
    c.submit(within(f"required: {BLOCK}, required: {RACK}", gang("g", pods=2, gpus=8))).run()
    assert c.untouched("g")
    assert f"no {BLOCK} and {RACK} has room for 2 members: p/r1 could take 1, q/r1 could" in c.said("g-0")


# -- members that are there already ----------------------------------------------------------------------


def test_a_gang_that_grows_stays_in_its_rack() -> None:
    c = racks(a=2, b=3).submit(within(ONE_RACK, gang("g", pods=2, gpus=4))).run()
    assert where(c, "g") == ["a"]
    c.submit(within(ONE_RACK, gang("g", pods=3, gpus=4, first=2, min_members=2))).run()
    assert where(c, "g") == ["a"]
    pending = [p.metadata.name for p in c.pods.values() if not p.spec.node_name]
    assert pending == ["g-4"]
    assert c.said("g-4").startswith(
        f"gang d/g: its members are in {RACK} a, which has no room for 1 more member. In a: "
    )


def test_a_member_that_is_replaced_goes_back_to_the_rack_of_the_others() -> None:
    c = racks(a=2, b=4).submit(within(ONE_RACK, gang("g", pods=2, gpus=8))).run()
    c.delete("g-0").submit(within(ONE_RACK, gang("g", pods=1, gpus=8, min_members=2))).run()
    assert c.placed("g", on=2)
    assert where(c, "g") == ["a"]


def test_a_restart_with_half_of_the_gang_bound_is_completed_in_its_rack() -> None:
    c = racks(a=2, b=2)
    c.answer = lambda bind: "ok" if bind.name == "g-0" else "hold"
    c.submit(within(ONE_RACK, gang("g", pods=2, gpus=8))).run()
    bound = c.pod("g-0").spec.node_name
    assert bound
    c.answer = lambda bind: "ok"
    c.restart().run()
    assert c.placed("g", on=2)
    assert len(where(c, "g")) == 1


def test_members_on_their_way_out_keep_nobody_in_their_rack() -> None:
    c = racks(a=2, b=2).submit(within(ONE_RACK, gang("g", pods=2, gpus=8))).run()
    assert where(c, "g") == ["a"]
    for name in ("g-0", "g-1"):
        c.leave(name)
    c.submit(within(ONE_RACK, gang("g", pods=2, gpus=8, first=2))).run()
    assert {c.pod(f"g-{k}").spec.node_name for k in (2, 3)} == {"b0", "b1"}


def test_members_that_run_in_two_racks_are_reported() -> None:
    c = racks(a=1, b=1).submit(gang("g", pods=2, gpus=8)).run()
    for name in ("g-0", "g-1"):
        pod = c.pod(name)
        own = {**(pod.metadata.annotations or {}), TOPOLOGY_KEY: ONE_RACK}
        c.update(pod, metadata=replace(pod.metadata, annotations=own))
    c.restart().submit(within(ONE_RACK, gang("g", pods=1, gpus=1, first=2, min_members=2))).run()
    assert c.said("g-2") == f"gang d/g: its members are not in one {RACK}: g-0 is in a, g-1 is in b."


def test_as_many_as_go_of_a_gang_with_fewer_needed_go_to_the_roomiest_rack() -> None:
    c = racks(a=2, b=3).submit(within(ONE_RACK, gang("g", pods=4, gpus=8, min_members=2))).run()
    assert where(c, "g") == ["b"]
    assert sum(bool(p.spec.node_name) for p in c.pods.values()) == 3


def test_those_that_wait_for_the_total_hold_the_rack_for_the_others() -> None:
    own = {TOPOLOGY_KEY: ONE_RACK, TOTAL_MEMBERS_KEY: "3"}
    c = racks(a=2, b=3).submit(with_annotations(gang("g", pods=1, gpus=8), own)).run()
    assert c.state("g") == "waiting"
    c.submit(with_annotations(gang("g", pods=2, gpus=8, first=1, min_members=1), own)).run()
    assert c.placed("g", on=3)
    assert where(c, "g") == ["b"]


def test_a_domain_without_a_name_is_shown() -> None:
    """A label may have an empty value, which is a value; it printed as nothing."""
    c = Cluster(Settings(topology_key=RACK))
    c.node(node("n0", rack="")).node(node("n1", rack="")).node(node("m0", rack="m"))
    c.submit(within(ONE_RACK, gang("a", pods=3, gpus=8))).run()
    assert c.untouched("a")
    assert f'no {RACK} has room for 3 members: "" could take 2, m could take 1' in c.said("a-0")
    assert 'outside of ""' in c.said("a-0")
    c.node(node("m1", rack="m")).submit(within(ONE_RACK, gang("b", pods=2, gpus=8))).run()
    assert where(c, "b") == [""] or where(c, "b") == ["m"]


def test_what_is_proved_of_one_domain_is_not_claimed_of_all() -> None:
    """Two domains: in the first every order is tried, the search in the others ends before."""
    from gangsched.core.cycle.domains.domains import refusal
    from gangsched.core.framework.plan import FitError
    from gangsched.core.why import OfGang, together
    from gangsched.core.why.nodes import Searched, SearchEnd

    c = racks(a=1)
    c.submit(within(ONE_RACK, gang("a", pods=2, gpus=8))).run()
    group = c.groups()[0]
    inner = FitError(group, together(OfGang("d/a", "1 of 2 fit."), Searched(SearchEnd.PROVED)), ())
    demand = type("Asked", (), {"group": group})()
    told = refusal(demand, (), "no rack can take 2 members; tried: a, b", inner, "a").message
    assert told.endswith(f"In a: 1 of 2 fit. {SearchEnd.PROVED_THERE.value}")
    assert SearchEnd.PROVED.value not in told
