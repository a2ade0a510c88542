"""NodeResourcesBalancedAllocation: nodes that a pod leaves evenly used; figures worked out by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangsched.core.cache.trial import Trial
from gangsched.plugins.resources.node_resources_balanced_allocation import (
    Args,
    NodeResourcesBalancedAllocation,
)
from tests.plugins.build import GPU, Cluster, node, pod

EVEN = {"cpu": "10", "memory": "10Gi"}


def plugin(*names: str) -> NodeResourcesBalancedAllocation:
    args: dict[str, Any] = {"resources": [{"name": name} for name in names]} if names else {}
    return NodeResourcesBalancedAllocation(msgspec.convert(args, Args))


def scores(
    cluster: Cluster, one: Any, scorer: NodeResourcesBalancedAllocation, *nodes: str
) -> list[float] | None:
    found = scorer.score(cluster.state, cluster.template(one), cluster.view, cluster.rows(nodes))
    return None if found is None else found.tolist()


def test_a_pod_that_evens_a_node_out_finds_it_better_than_an_even_one() -> None:
    cluster = Cluster(node("even", allocatable=EVEN), node("lopsided", allocatable=EVEN))
    cluster.run(pod("cpu-only", requests={"cpu": "6"}), on="lopsided")
    one = pod(requests={"memory": "6Gi"})
    # Half of 0.6 is the deviation of (0.6, 0): an even node loses 30 of 100, the lopsided one wins them.
    assert scores(cluster, one, plugin(), "even", "lopsided") == [60.0, 90.0]


def test_a_pod_that_does_not_change_the_balance_scores_75() -> None:
    cluster = Cluster(node("a", allocatable=EVEN))
    assert scores(cluster, pod(requests={"cpu": "1", "memory": "1Gi"}), plugin(), "a") == [75.0]


def test_a_pod_that_asks_for_none_of_it_is_not_scored() -> None:
    cluster = Cluster(node("a", allocatable={GPU: "8"}))
    assert scores(cluster, pod(), plugin(), "a") is None
    assert scores(cluster, pod(requests={GPU: "1"}), plugin(), "a") is None
    assert scores(cluster, pod(requests={GPU: "1"}), plugin("cpu", GPU), "a") is not None


def test_more_than_two_resources_by_their_standard_deviation() -> None:
    cluster = Cluster(node("all", allocatable={**EVEN, GPU: "10"}), node("no-gpu", allocatable=EVEN))
    one = pod(requests={"cpu": "3", "memory": "3Gi", GPU: "9"})
    # Shares 0.3, 0.3, 0.9: mean 0.5, variance (0.04 + 0.04 + 0.16) / 3, deviation 0.2828.
    assert scores(cluster, one, plugin("cpu", "memory", GPU), "all") == [50 + (50 + 71 - 100) // 2]
    # A node without GPUs is judged by the two others; that it cannot take the pod is not asked here.
    assert scores(cluster, one, plugin("cpu", "memory", GPU), "no-gpu") == [75.0]


def test_more_than_everything_counts_as_everything() -> None:
    cluster = Cluster(node("a", allocatable=EVEN))
    cluster.run(pod("huge", requests={"cpu": "30"}), on="a")
    # (1, 0) before; (1, 0.4) after.
    assert scores(cluster, pod(requests={"memory": "4Gi"}), plugin(), "a") == [50 + (50 + 70 - 50) // 2]


def test_one_resource_is_always_even() -> None:
    cluster = Cluster(node("a", allocatable=EVEN))
    assert scores(cluster, pod(requests={"memory": "4Gi"}), plugin("memory"), "a") == [75.0]


def test_what_a_trial_has_placed_counts() -> None:
    cluster = Cluster(node("a", allocatable=EVEN))
    trial = Trial(cluster.view)
    trial.place(0, cluster.template(pod(requests={"cpu": "6"})))
    template = cluster.template(pod(requests={"memory": "6Gi"}))
    found = plugin().score(cluster.state, template, trial, cluster.rows(["a"]))
    assert found is not None
    assert found.tolist() == [90.0]


@pytest.mark.parametrize(
    ("resources", "problem"),
    [
        ([{"name": "cpu", "weight": 2}], "must be 1"),
        ([{"name": "cpu"}, {"name": "cpu"}], "named twice"),
    ],
)
def test_args_that_kube_scheduler_refuses(resources: list[dict[str, Any]], problem: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=problem):
        msgspec.convert({"resources": resources}, Args)


def test_a_weight_of_zero_is_one() -> None:
    assert msgspec.convert({"resources": [{"name": "cpu", "weight": 0}]}, Args).resources[0].name == "cpu"


def test_as_printed_it_is_how_far_cpu_and_memory_are_apart_with_the_pod() -> None:
    """10 - |cpu - memory| * 10, in 0..100; a node filled by more such pods scores as if they were there."""
    scorer = NodeResourcesBalancedAllocation(Args(formula="AsPrinted"))
    cluster = Cluster(node("empty", allocatable=EVEN), node("half", allocatable=EVEN))
    cluster.run(pod("cpu-only", requests={"cpu": "5"}), on="half")
    one = pod(requests={"cpu": "1", "memory": "2Gi"})
    assert scores(cluster, one, scorer, "empty", "half") == pytest.approx([90.0, 60.0])
    assert scores(cluster, pod(requests={"cpu": "8"}), scorer, "empty", "half") == pytest.approx([20.0, 0.0])
    with pytest.raises(msgspec.ValidationError, match="about cpu and memory"):
        msgspec.convert({"formula": "AsPrinted", "resources": [{"name": GPU}]}, Args)
