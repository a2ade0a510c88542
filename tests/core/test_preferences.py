"""What a gang's pods state that they prefer counts after the number of nodes and racks, before tightness."""

from __future__ import annotations

from itertools import combinations
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from gangsched.core.cache.node_info import NodeInfo
from gangsched.core.cycle.choosing.preferred import first_enough
from gangsched.core.framework.interface import SUCCESS, CycleState, Status
from gangsched.lab.sim.objects import RACK, make_node, make_pod
from gangsched.model.objects import Affinity, Node, Pod, Taint, TopologySpreadConstraint
from gangsched.model.stated.topology import TOPOLOGY_KEY
from tests.core.plugins import with_plugins
from tests.support.scenario import Cluster, gang, with_annotations

GOOD = "example.com/good"
CACHE = {"matchLabels": {"app": "cache"}}


def like(pods: list[Pod], *weights: tuple[str, int]) -> list[Pod]:
    """Pods that prefer nodes whose label `good` has these values, by these weights."""
    terms = [
        {
            "weight": weight,
            "preference": {"matchExpressions": [{"key": GOOD, "operator": "In", "values": [value]}]},
        }
        for value, weight in weights
    ]
    rules = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
    return [with_spec(pod, affinity=msgspec.convert(rules, Affinity)) for pod in pods]


def with_spec(pod: Pod, **changes: Any) -> Pod:
    return replace(pod, spec=replace(pod.spec, **changes))


def good_node(name: str, *, gpus: int, rack: str = "", good: str = "") -> Node:
    """A node with a value of the label `good`."""
    made = make_node(name, gpus=gpus, rack=rack)
    labels = {**(made.metadata.labels or {}), **({GOOD: good} if good else {})}
    return replace(made, metadata=replace(made.metadata, labels=labels))


def tainted(node: Node) -> Node:
    soft = Taint(key="example.com/slow", effect="PreferNoSchedule")
    return replace(node, spec=replace(node.spec, taints=[soft]))


def grown(*nodes: tuple[str, int, str, str]) -> Cluster:
    """(name, devices, rack, value of the label `good`) of each node."""
    c = Cluster()
    for name, gpus, rack, good in nodes:
        c.node(good_node(name, gpus=gpus, rack=rack, good=good))
    return c


def test_a_gang_of_two_goes_to_the_node_that_it_prefers_and_not_to_the_tightest() -> None:
    c = grown(("tight", 2, "", ""), ("roomy", 8, "", "yes"))
    c.submit(like(gang("a", pods=2), ("yes", 100)), gang("b", pods=2)).run()
    assert c.nodes_of("a") == ["roomy", "roomy"]
    assert c.nodes_of("b") == ["tight", "tight"]


def test_the_number_of_nodes_goes_before_what_it_prefers() -> None:
    c = grown(("one", 4, "", ""), ("left", 2, "", "yes"), ("right", 2, "", "yes"))
    c.submit(like(gang("a", pods=4), ("yes", 100))).run()
    assert c.nodes_of("a") == ["one"] * 4


def test_the_number_of_racks_goes_before_what_it_prefers() -> None:
    c = grown(("a0", 4, "a", ""), ("a1", 4, "a", ""), ("b0", 4, "b", "yes"), ("c0", 4, "c", "yes"))
    c.submit(like(gang("a", pods=8), ("yes", 100))).run()
    assert c.nodes_of("a") == ["a0"] * 4 + ["a1"] * 4


def test_of_several_racks_the_preferred_one_and_in_it_the_preferred_nodes() -> None:
    nodes = [
        (f"{rack}{i}", 4, rack, "yes" if rack == "b" and i > 0 else "") for rack in "ab" for i in range(4)
    ]
    c = grown(*nodes)
    c.submit(make_pod("x", gpus=4)).run()  # makes one of the racks the tighter one
    c.submit(like(gang("a", pods=8), ("yes", 10))).run()
    assert c.nodes_of("a")[0] != "b0"
    assert {name[0] for name in c.nodes_of("a")} == {"b"}


def test_two_racks_are_the_two_that_it_prefers() -> None:
    nodes = [(f"{rack}{i}", 4, rack, "yes" if rack in "bd" else "") for rack in "abcd" for i in range(2)]
    c = grown(*nodes)
    c.submit(like(gang("a", pods=16), ("yes", 1))).run()
    assert {name[0] for name in c.nodes_of("a")} == {"b", "d"}


def test_the_rest_goes_to_the_least_preferred_of_them() -> None:
    c = grown(("best", 4, "r", "1"), ("good", 4, "r", "2"), ("fair", 3, "r", ""), ("far", 2, "s", "1"))
    c.submit(like(gang("a", pods=6), ("1", 100), ("2", 50))).run()
    assert c.nodes_of("a") == ["best"] * 4 + ["good"] * 2


def test_a_taint_that_only_prefers_repels_a_gang() -> None:
    c = grown(("tight", 2, "", ""), ("roomy", 8, "", ""))
    c.node(tainted(c.nodes["tight"]))
    c.submit(gang("a", pods=2)).run()
    assert c.nodes_of("a") == ["roomy", "roomy"]


def test_gangs_keep_away_from_a_tainted_node_also_in_a_row_and_after_the_taint_came() -> None:
    c = grown(*((f"n{i}", 4, "", "") for i in range(4)))
    c.submit(gang("a", pods=2)).run()
    (first,) = set(c.nodes_of("a"))
    c.node(tainted(c.nodes[first]))
    for name in "bcd":
        c.submit(gang(name, pods=2)).run()
        assert first not in c.nodes_of(name)


def test_gangs_in_a_row_notice_a_preferred_node_that_is_free_again_though_it_is_larger() -> None:
    c = grown(*((f"n{i:02}", 8, "", "some") for i in range(30)), ("large", 16, "", "much"))
    c.submit(like(gang("first", pods=16), ("much", 10))).run()
    for name in ("a", "b", "c"):
        c.submit(like(gang(name, pods=8), ("much", 10), ("some", 4))).run()
        assert c.nodes_of(name)[0] != "large"
    c.delete(*(f"first-{i}" for i in range(16)))
    c.submit(like(gang("d", pods=8), ("much", 10), ("some", 4))).run()
    assert set(c.nodes_of("d")) == {"large"}


def test_preferred_affinity_to_other_pods_and_spread_from_others_count() -> None:
    near = [{"weight": 100, "podAffinityTerm": {"labelSelector": CACHE, "topologyKey": RACK}}]
    rules = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": near}}
    apart = {"topologyKey": RACK, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": CACHE}
    c = grown(("a0", 3, "a", ""), ("a1", 2, "a", ""), ("b0", 6, "b", ""), ("b1", 6, "b", ""))
    cache = make_pod("cache", gpus=1, labels={"app": "cache"})
    c.submit(with_spec(cache, node_selector={RACK: "b"})).run()
    affinity = msgspec.convert(rules, Affinity)
    c.submit([with_spec(pod, affinity=affinity) for pod in gang("near", pods=2)]).run()
    assert {name[0] for name in c.nodes_of("near")} == {"b"}
    constraints = [msgspec.convert(apart, TopologySpreadConstraint)]
    spread = [with_spec(pod, topology_spread_constraints=constraints) for pod in gang("far", pods=2)]
    c.submit(spread).run()
    assert {name[0] for name in c.nodes_of("far")} == {"a"}


def test_the_rest_of_a_gang_goes_elsewhere_where_nothing_is_left_in_the_rack_that_it_prefers() -> None:
    """Members that would be near each other, of two sizes: a plugin is not asked which of no nodes it
    prefers."""
    near = [{"weight": 9, "podAffinityTerm": {"labelSelector": CACHE, "topologyKey": RACK}}]
    rules = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": near}}
    c = grown(("a0", 8, "a", ""), ("a1", 8, "a", ""), ("b0", 4, "b", ""), ("c0", 8, "c", ""))
    pods = [*gang("g", pods=2, gpus=8, min_members=3), *gang("g", pods=1, gpus=4, first=2, min_members=3)]
    for pod in [with_spec(pod, affinity=msgspec.convert(rules, Affinity)) for pod in pods]:
        labels = {**(pod.metadata.labels or {}), "app": "cache"}
        c.submit(replace(pod, metadata=replace(pod.metadata, labels=labels)))
    c.run()
    assert c.nodes_of("g") == ["a0", "a1", "b0"]


def test_of_the_racks_that_it_may_have_the_preferred_one_and_not_the_tightest() -> None:
    c = grown(("a0", 4, "a", ""), ("b0", 8, "b", "yes"), ("c0", 6, "c", ""))
    pods = with_annotations(gang("a", pods=4), {TOPOLOGY_KEY: f"required: {RACK}"})
    c.submit(like(pods, ("yes", 1))).run()
    assert c.nodes_of("a") == ["b0"] * 4


class Refuses:
    """Looks at nodes one by one."""

    name = "Refuses"

    def filter_node(self, state: CycleState, pod: Pod, node_info: NodeInfo) -> Status:
        return Status.unschedulable("not here") if node_info.name == "n2" else SUCCESS


def test_the_next_preferred_node_is_taken_where_a_plugin_refuses_the_first() -> None:
    c = with_plugins(Refuses(), nodes=0)
    for i, good in enumerate(("", "", "best", "good", "")):
        c.node(good_node(f"n{i}", gpus=2 if i < 2 else 8, good=good))
    c.submit(like(gang("a", pods=2), ("best", 100), ("good", 1))).run()
    assert c.nodes_of("a") == ["n3", "n3"]


@pytest.mark.parametrize("seed", range(200))
def test_the_first_that_are_enough(seed: int) -> None:
    """Against every choice there is: the earliest in the order, one after the other."""
    rng = Random(seed)
    room = np.array([rng.randint(1, 5) for _ in range(rng.randint(1, 8))])
    wanted_room = rng.randint(1, int(room.sum()))
    sums = np.cumsum(np.sort(room)[::-1])
    n_items = int(np.searchsorted(sums, wanted_room)) + 1
    order = np.array(rng.sample(range(len(room)), len(room)))
    best = next(
        some for some in combinations(order.tolist(), n_items) if room[list(some)].sum() >= wanted_room
    )
    assert first_enough(order, room, n_items, wanted_room).tolist() == list(best), f"seed {seed}"


@pytest.mark.parametrize("seed", range(60))
def test_of_the_fewest_nodes_those_that_are_worth_most(seed: int) -> None:
    """Nodes of one size and no racks: against every choice, by members times the weight of their node."""
    rng = Random(seed)
    size, goods = rng.randint(1, 4), [rng.choice(("", "1", "2", "3")) for _ in range(rng.randint(2, 7))]
    weights = {"": 0, "1": 10, "2": 40, "3": 100}
    n = rng.randint(size + 1, size * len(goods))
    c = grown(*((f"n{i}", size, "", good) for i, good in enumerate(goods)))
    c.submit(like(gang("a", pods=n), *((v, w) for v, w in weights.items() if v))).run()
    got = sum(weights[goods[int(name[1:])]] for name in c.nodes_of("a"))
    each = sorted((weights[good] for good in goods for _ in range(size)), reverse=True)
    assert got == sum(each[:n]), f"seed {seed}: {goods} of {size}, {n} pods: {c.nodes_of('a')}"
    assert len(set(c.nodes_of("a"))) == -(-n // size), f"seed {seed}"


class Liked:
    """A user's own Score, node by node."""

    name = "Liked"

    def score_node(self, state: CycleState, pod: Pod, node_info: NodeInfo) -> float:
        return 100.0 if GOOD in (node_info.node.metadata.labels or {}) else 0.0


class LikedAsStated(Liked):
    def is_stated(self, template: object, view: object) -> bool:
        return True


@pytest.mark.parametrize(("plugin", "node"), [(LikedAsStated(), "roomy"), (Liked(), "tight")])
def test_a_users_score_counts_before_tightness_where_it_says_that_pods_state_it(
    plugin: Liked, node: str
) -> None:
    c = with_plugins(plugin, nodes=0)
    c.node(good_node("tight", gpus=2)).node(good_node("roomy", gpus=8, good="yes"))
    c.submit(gang("a", pods=2)).run()
    assert c.nodes_of("a") == [node, node]
