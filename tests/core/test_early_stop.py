"""EarlyStop: kube-scheduler's percentageOfNodesToScore, where somebody wants it."""

from __future__ import annotations

import numpy as np
import pytest

from gangsched.config import Settings, parse_config
from gangsched.config.effective import effective_yaml
from gangsched.core.framework.sampling import EarlyStop, n_wanted
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.plugins import IN_TREE
from tests.support.scenario import Cluster, gang


@pytest.mark.parametrize(
    ("n_nodes", "percentage", "wanted"),
    [
        (10, 30, 10),
        (99, 1, 99),
        (100, 0, 100),
        (1000, 0, 420),
        (1000, 30, 300),
        (5000, 0, 500),
        (6000, 0, 300),
        (50_000, 0, 2500),
        (1000, 5, 100),
        (1000, 100, 1000),
    ],
)
def test_how_many_nodes_are_enough(n_nodes: int, percentage: int, wanted: int) -> None:
    """Figures of kube-scheduler's own test of numFeasibleNodesToFind, and its formula."""
    assert n_wanted(n_nodes, percentage) == wanted


def test_a_search_goes_on_where_the_last_one_ended_and_round_again() -> None:
    stop = EarlyStop(40)
    feasible = np.arange(0, 500, 2)
    first = stop.narrow(feasible, 500, 500)
    assert (len(first), first[0], first[-1]) == (200, 0, 398)
    second = stop.narrow(feasible, 500, 500)
    assert len(second) == 200
    assert set(second) == set(feasible[200:]) | set(feasible[:150])
    assert list(second) == sorted(second)


def test_where_too_few_are_feasible_all_of_them_are_taken() -> None:
    stop = EarlyStop(40)
    few = np.arange(50)
    assert stop.narrow(few, 500, 500) is few
    assert stop.narrow(few, 500, 500) is few


def filled(settings: Settings) -> Cluster:
    """200 nodes; the later ones are fuller, and the profile prefers emptier ones."""
    where = Cluster(settings)
    for i in range(200):
        where.node(make_node(f"n{i}", gpus=0))
    return where


def test_it_is_off_by_default_and_all_nodes_are_scored() -> None:
    where = filled(Settings())
    where.submit([make_pod(f"p{i}", gpus=0) for i in range(3)]).run()
    assert {pod.spec.node_name for pod in where.pods.values()} == {"n0", "n1", "n2"}


def test_a_lone_pod_goes_to_the_best_of_those_that_were_found() -> None:
    """100 of 200 are enough: the second pod is looked for from the 101st node on."""
    where = filled(Settings(nodes_to_score={"gangsched": 50}))
    where.submit([make_pod(f"p{i}", gpus=0) for i in range(3)]).run()
    assert [where.pod(f"p{i}").spec.node_name for i in range(3)] == ["n0", "n100", "n1"]


def test_a_gang_is_packed_over_all_nodes() -> None:
    where = filled(Settings(nodes_to_score={"gangsched": 50}))
    where.submit(make_pod("lone", gpus=0)).run()
    where.submit(gang("a", pods=4, gpus=0)).run()
    assert where.placed("a", on=1)


HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
OURS = "---\napiVersion: gangsched.io/v1\nkind: GangschedConfiguration\nearlyStop: true\n"
TWO = (
    "percentageOfNodesToScore: 30\n"
    "profiles: [{schedulerName: a, percentageOfNodesToScore: 70}, {schedulerName: b}]\n"
)


def test_the_percentages_of_a_file_count_where_it_says_so() -> None:
    without = parse_config(HEAD + TWO, source="f", plugins=IN_TREE)
    assert without.settings.nodes_to_score == {}
    assert any("percentageOfNodesToScore 30: all nodes are always scored" in note for note in without.notes)
    counted = parse_config(HEAD + TWO + OURS, source="f", plugins=IN_TREE)
    assert counted.settings.nodes_to_score == {"a": 70, "b": 30}
    assert not any("percentageOfNodesToScore" in note for note in counted.notes)
    assert parse_config(HEAD + OURS, source="f", plugins=IN_TREE).settings.nodes_to_score == {
        "default-scheduler": 0
    }


def test_the_configuration_in_effect_says_so_too() -> None:
    counted = parse_config(HEAD + TWO + OURS, source="f", plugins=IN_TREE)
    again = parse_config(effective_yaml(counted), source="g", plugins=IN_TREE)
    assert again.settings == counted.settings
