"""NodeResourcesFit: whole copies that fit, and scores as kube-scheduler rounds them."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangsched.core.cache.trial import Trial
from gangsched.core.framework.interface import Change, ClusterChange
from gangsched.model.resources import is_extended
from gangsched.plugins.resources.node_resources_fit import Args, NodeResourcesFit
from tests.plugins.build import GPU, Cluster, node, pod

GI = 2**30


def plugin(**args: Any) -> NodeResourcesFit:
    return NodeResourcesFit(msgspec.convert(args, Args))


def strategy(kind: str, resources: dict[str, int] | None = None, shape: Any = None) -> NodeResourcesFit:
    scoring: dict[str, Any] = {"type": kind}
    if resources:
        scoring["resources"] = [{"name": name, "weight": weight} for name, weight in resources.items()]
    if shape:
        points = [{"utilization": u, "score": s} for u, s in shape]
        scoring["requestedToCapacityRatio"] = {"shape": points}
    return plugin(scoringStrategy=scoring)


def test_capacity_is_what_the_scarcest_resource_allows() -> None:
    cluster = Cluster(
        node("cpu", allocatable={"cpu": "3500m", GPU: "8"}),
        node("gpu", allocatable={"cpu": "64", GPU: "5"}),
        node("pods", allocatable={"pods": "1", GPU: "8"}),
        node("none"),
    )
    template = cluster.template(pod(requests={"cpu": "1", "memory": "1Gi", GPU: "2"}))
    room = plugin().capacity(cluster.state, template, cluster.view)
    assert room is not None
    assert room.tolist() == [3, 2, 1, 0]


def test_overcommitted_nodes_take_nothing_rather_than_less_than_nothing() -> None:
    cluster = Cluster(node("a", allocatable={"cpu": "1"}))
    cluster.run(pod("big", requests={"cpu": "4"}), on="a")
    room = plugin().capacity(cluster.state, cluster.template(pod(requests={"cpu": "1"})), cluster.view)
    assert room is not None
    assert room.tolist() == [0]


def test_room_taken_on_a_trial_counts_there() -> None:
    cluster = Cluster(node("a", allocatable={"cpu": "4"}))
    template = cluster.template(pod(requests={"cpu": "1"}))
    trial = Trial(cluster.view)
    trial.place(0, template, 3)
    room = plugin().capacity(cluster.state, template, trial)
    assert room is not None
    assert room.tolist() == [1]


def test_init_sidecar_and_overhead_are_in_the_request() -> None:
    def container(name: str, cpu: str, **more: str) -> dict[str, Any]:
        return {"name": name, "resources": {"requests": {"cpu": cpu}}, **more}

    one = pod(
        containers=[container("main", "1")],
        initContainers=[container("side", "500m", restartPolicy="Always"), container("setup", "3")],
        overhead={"cpu": "250m"},
    )
    cluster = Cluster(node("just", allocatable={"cpu": "3750m"}), node("short", allocatable={"cpu": "3749m"}))
    room = plugin().capacity(cluster.state, cluster.template(one), cluster.view)
    assert room is not None
    assert room.tolist() == [1, 0]


def test_reasons_in_kube_schedulers_words() -> None:
    cluster = Cluster(
        node("a", allocatable={"cpu": "1", "pods": "1", GPU: "1"}), node("b", allocatable={GPU: "8"})
    )
    cluster.run(pod("other"), on="a")
    template = cluster.template(pod(requests={"cpu": "2", GPU: "2"}))
    said = plugin().reasons(cluster.state, template, cluster.view)
    assert {str(why): cluster.names(rows) for why, rows in said} == {
        "Insufficient cpu": ["a"],
        f"Insufficient {GPU}": ["a"],
        "Too many pods": ["a"],
    }


def test_ignored_resources_are_extended_ones_only() -> None:
    cluster = Cluster(node("a", allocatable={"cpu": "1"}))
    template = cluster.template(pod(requests={GPU: "2", "example.com/x": "1"}))
    ignoring = plugin(ignoredResources=[GPU, "cpu"], ignoredResourceGroups=["example.com"])
    room = ignoring.capacity(cluster.state, template, cluster.view)
    assert room is not None
    assert room.tolist() == [110]
    greedy = ignoring.capacity(cluster.state, cluster.template(pod(requests={"cpu": "2"})), cluster.view)
    assert greedy is not None
    assert greedy.tolist() == [0]


@pytest.mark.parametrize(
    ("name", "extended"),
    [
        (GPU, True),
        ("cpu", False),
        ("hugepages-2Mi", False),
        ("kubernetes.io/x", False),
        ("requests.a/b", False),
    ],
)
def test_extended_resources(name: str, extended: bool) -> None:
    assert is_extended(name) is extended


def test_cured_by_room_of_the_kind_that_is_asked_for_where_it_suffices() -> None:
    cluster = Cluster(
        node("roomy", allocatable={GPU: "8"}), node("tight", allocatable={"cpu": "1", GPU: "1"})
    )
    fit, template = plugin(), cluster.template(pod(requests={"cpu": "2", GPU: "1"}))
    gpus, other = frozenset({GPU, "pods"}), frozenset({"example.com/x"})
    assert fit.cures(ClusterChange(Change.ROOM_FREED, 0, gpus), template, cluster.view)
    assert not fit.cures(ClusterChange(Change.ROOM_FREED, 1, gpus), template, cluster.view)
    assert not fit.cures(ClusterChange(Change.ROOM_FREED, 0, other), template, cluster.view)
    assert fit.cures(ClusterChange(Change.NODE_ADDED, 0), template, cluster.view)
    assert not fit.cures(ClusterChange(Change.NODE_ADDED, 1), template, cluster.view)
    (grown,) = cluster.put(node("tight", allocatable={"cpu": "2", GPU: "1"}))
    assert grown.what is Change.NODE_ALLOCATABLE
    assert fit.cures(grown, template, cluster.view)


def score_of(fit: NodeResourcesFit, cluster: Cluster, requests: dict[str, str]) -> list[float]:
    template = cluster.template(pod(requests=requests))
    names = [name for name in cluster.cache.nodes.names if name]
    scores = fit.score(cluster.state, template, cluster.view, cluster.rows(names))
    assert scores is not None
    return [float(one) for one in scores]


def test_least_and_most_allocated_round_as_kube_scheduler() -> None:
    cluster = Cluster(node("a", allocatable={"cpu": "4", "memory": "10Gi"}))
    cluster.run(pod("other", requests={"cpu": "1", "memory": "2Gi"}), on="a")
    asked = {"cpu": "500m", "memory": "1Gi"}
    # cpu 1500 of 4000: 62 free, 37 used; memory 3 of 10 Gi: 70 free, 30 used.
    assert score_of(strategy("LeastAllocated"), cluster, asked) == [66.0]
    assert score_of(strategy("MostAllocated"), cluster, asked) == [33.0]
    assert score_of(strategy("MostAllocated", {"cpu": 3, "memory": 1}), cluster, asked) == [35.0]


def test_a_pod_that_asks_for_nothing_scores_as_if_it_asked_for_a_little() -> None:
    cluster = Cluster(node("a", allocatable={"cpu": "1", "memory": "1000Mi"}))
    assert score_of(strategy("MostAllocated"), cluster, {}) == [15.0]  # 100m of 1, 200Mi of 1000Mi
    assert score_of(strategy("MostAllocated"), cluster, {"cpu": "0"}) == [10.0]  # 0 is a statement


def test_extended_resources_score_only_where_asked_for_and_present() -> None:
    cluster = Cluster(node("gpu", allocatable={GPU: "8"}), node("plain"))
    fit = strategy("MostAllocated", {GPU: 1})
    assert score_of(fit, cluster, {GPU: "2"}) == [25.0, 0.0]
    assert score_of(fit, cluster, {"cpu": "2"}) == [0.0, 0.0]


def test_requested_to_capacity_ratio_follows_its_shape() -> None:
    cluster = Cluster(node("a", allocatable={"cpu": "4"}), node("b", allocatable={"cpu": "2"}))
    rising = strategy("RequestedToCapacityRatio", {"cpu": 1}, shape=[(0, 0), (100, 10)])
    assert score_of(rising, cluster, {"cpu": "1"}) == [25.0, 50.0]
    hill = strategy("RequestedToCapacityRatio", {"cpu": 1}, shape=[(10, 2), (50, 10), (90, 0)])
    assert score_of(hill, cluster, {"cpu": "100m"}) == [20.0, 20.0]
    assert score_of(hill, cluster, {"cpu": "1200m"}) == [60.0, 75.0]
    assert score_of(hill, cluster, {"cpu": "4"}) == [0.0, 0.0]


def test_a_node_with_absurd_numbers_scores_within_bounds() -> None:
    cluster = Cluster(
        node("huge", allocatable={"cpu": "8E", "memory": "100E"}), node("zero", allocatable={"cpu": "0"})
    )
    for kind in ("LeastAllocated", "MostAllocated"):
        assert all(0.0 <= one <= 100.0 for one in score_of(strategy(kind), cluster, {"memory": "1Ei"}))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"ignoredResourceGroups": ["a/b"]}, "can't contain '/'"),
        ({"scoringStrategy": {"resources": [{"name": "cpu", "weight": 101}]}}, "not within 1..100"),
        ({"scoringStrategy": {"type": "RequestedToCapacityRatio"}}, "requestedToCapacityRatio belongs to"),
        ({"scoringStrategy": {"requestedToCapacityRatio": {"shape": []}}}, "at least one point"),
    ],
)
def test_unusable_args(args: dict[str, Any], message: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        plugin(**args)


def test_unsorted_shape_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="sorted by rising utilization"):
        strategy("RequestedToCapacityRatio", shape=[(50, 1), (50, 2)])


_AMOUNTS = st.fixed_dictionaries(
    {"cpu": st.integers(0, 8000), "memory": st.integers(0, 16), GPU: st.integers(0, 8)}
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.tuples(_AMOUNTS, _AMOUNTS), min_size=1, max_size=5), _AMOUNTS)
def test_arrays_answer_as_every_node_by_itself(
    nodes: list[tuple[dict[str, int], dict[str, int]]], asked: dict[str, int]
) -> None:
    """Each node: (allocatable, used); amounts in milli-cpu, Gi and devices."""

    def quantities(amounts: dict[str, int]) -> dict[str, str]:
        return {"cpu": f"{amounts['cpu']}m", "memory": f"{amounts['memory']}Gi", GPU: str(amounts[GPU])}

    cluster = Cluster(*(node(f"n{i}", allocatable=quantities(a)) for i, (a, _) in enumerate(nodes)))
    for i, (_, used) in enumerate(nodes):
        cluster.run(pod(f"used-{i}", requests=quantities(used)), on=f"n{i}")
    template = cluster.template(pod("new", requests=quantities(asked)))
    room = plugin().capacity(cluster.state, template, cluster.view)
    assert room is not None
    for i, (allocatable, used) in enumerate(nodes):
        fits = [109] + [max(0, (allocatable[k] - used[k]) // asked[k]) for k in asked if asked[k]]
        assert room[i] == min(fits)
    rows = cluster.rows([f"n{i}" for i in range(len(nodes))])
    for kind in ("LeastAllocated", "MostAllocated"):
        fit = strategy(kind, {"cpu": 2, "memory": 1, GPU: 5})
        scores = fit.score(cluster.state, template, cluster.view, rows)
        assert scores is not None
        assert scores.tolist() == [_score_slowly(kind, a, u, asked) for a, u in nodes]


def _score_slowly(kind: str, allocatable: dict[str, int], used: dict[str, int], asked: dict[str, int]) -> int:
    """least_allocated.go and most_allocated.go, in Go's whole numbers."""
    unit = {"cpu": 1, "memory": GI, GPU: 1}
    total = weights = 0
    for name, weight in (("cpu", 2), ("memory", 1), (GPU, 5)):
        capacity = allocatable[name] * unit[name]
        if not capacity or (name == GPU and not asked[GPU]):
            continue
        requested = (used[name] + asked[name]) * unit[name]
        if kind == "LeastAllocated":
            own = 0 if requested > capacity else (capacity - requested) * 100 // capacity
        else:
            own = min(requested, capacity) * 100 // capacity
        total += own * weight
        weights += weight
    return total // weights if weights else 0


def test_a_container_without_requests_counts_in_scores_before_and_after_it_is_placed() -> None:
    cluster = Cluster(
        node("busy", allocatable={"cpu": "1", "memory": "2000Mi"}),
        node("empty", allocatable={"cpu": "1", "memory": "2000Mi"}),
    )
    silent = pod("silent")
    cluster.run(silent, on="busy")
    cluster.run(pod("silent-too"), on="busy")
    rows = cluster.rows(["busy", "empty"])
    # 100m of 1 cpu and 200Mi of 2000Mi each: three on the one node, one on the other.
    found = plugin().score(cluster.state, cluster.template(silent), cluster.view, rows)
    assert found is not None
    assert found.tolist() == [70.0, 90.0]
    cluster.cache.forget(cluster.cache.pods["uid-silent-too"])
    again = plugin().score(cluster.state, cluster.template(silent), cluster.view, rows)
    assert again is not None
    assert again.tolist() == [80.0, 90.0]
    trial = Trial(cluster.view)
    trial.place(1, cluster.template(silent), 4)
    tried = plugin().score(cluster.state, cluster.template(silent), trial, rows)
    assert tried is not None
    assert tried.tolist() == [80.0, 50.0]


def test_a_request_of_zero_is_a_request() -> None:
    cluster = Cluster(node("a", allocatable={"cpu": "1", "memory": "2000Mi"}))
    cluster.run(pod("nothing", requests={"cpu": "0", "memory": "0"}), on="a")
    template = cluster.template(pod(requests={"cpu": "0", "memory": "1000Mi"}))
    found = plugin().score(cluster.state, template, cluster.view, cluster.rows(["a"]))
    assert found is not None
    assert found.tolist() == [75.0]


def test_requests_of_the_whole_pod_count_in_scores_once_it_is_on_a_node() -> None:
    cluster = Cluster(node("a", allocatable={"cpu": "10", "memory": "2000Mi"}))
    whole = pod("whole", resources={"requests": {"cpu": "5"}})
    only_cpu = strategy("LeastAllocated", {"cpu": 1})
    before = only_cpu.score(cluster.state, cluster.template(whole), cluster.view, cluster.rows(["a"]))
    cluster.run(whole, on="a")
    after = only_cpu.score(cluster.state, cluster.template(whole), cluster.view, cluster.rows(["a"]))
    assert before is not None
    assert after is not None
    # Its own container counts as 100m; on the node it is 5 of 10 cpu, with nothing filled in.
    assert (before.tolist(), after.tolist()) == ([99.0], [49.0])


def test_pods_of_several_kinds_are_bound_by_what_all_of_them_ask_for() -> None:
    c = Cluster(
        node("n", allocatable={"cpu": "8", GPU: "8", "pods": "110"}), node("none", allocatable={"cpu": "1"})
    )
    lead = c.template(pod(requests={"cpu": "1", GPU: "5"}))
    work = c.template(pod(requests={"cpu": "2", GPU: "4", "memory": "1Gi"}))
    np.testing.assert_array_equal(NodeResourcesFit().together([lead, work], c.view), [2, 0])
    ignoring = NodeResourcesFit(Args(ignored_resources=(GPU,)))
    np.testing.assert_array_equal(ignoring.together([lead, work], c.view), [8, 1])
    light = c.template(pod(requests={GPU: "4"}))
    np.testing.assert_array_equal(ignoring.together([lead, light], c.view), [110, 110])
