"""kube-scheduler and we, on the same full clusters: who fits nowhere takes the same node and victims."""

from __future__ import annotations

from typing import Any

import pytest

from gangsched.lab.controlplane.assets import Assets
from gangsched.lab.controlplane.processes import ControlPlane
from tests.differential.differences import MEANT_OF_VICTIMS
from tests.differential.draw import Json
from tests.differential.draw_preemption import CASE, PROFILE, Full, draw_full
from tests.differential.taking import Choice, Known, cost, ours, theirs
from tests.support.bodies import node, pod

N_CASES = 120

pytestmark = pytest.mark.real


def small_node(case: str, name: str) -> Json:
    has = {"cpu": "2", "memory": "8Gi", "pods": "10"}
    return node(name, has=has, labels={CASE: case, "kubernetes.io/hostname": name})


def large_pod(case: str, name: str, klass: str, **spec: Any) -> Json:
    """It takes all of a node's CPU."""
    return pod(name, cpu="2", labels={CASE: case}, priorityClassName=klass, **spec)


def settled(case: str, name: str, klass: str, on: str) -> Json:
    return large_pod(case, name, klass, nodeName=on, schedulerName="somebody-else")


def new(case: str) -> Json:
    return large_pod(case, f"{case}-new", "high", schedulerName=PROFILE, nodeSelector={CASE: case})


def one_leaves() -> Full:
    """kube-scheduler takes the less important pod; we wait for the one that leaves."""
    nodes = [small_node("leaves", "leaves-a"), small_node("leaves", "leaves-b")]
    pods = [
        settled("leaves", "leaves-1", "two", "leaves-a"),
        settled("leaves", "leaves-2", "zero", "leaves-b"),
    ]
    return Full(nodes, pods, {}, ["leaves-1"], [], new("leaves"))


SHOWN = {"pods on their way out": one_leaves()}
ONLY_IN_MEMORY = ("budgets for everybody",)
"""Its budget would be about the pods of all other cases too; tests/plugins/test_default_preemption.py."""


@pytest.fixture(scope="module")
def answers(assets: Assets) -> dict[str, tuple[Known, Choice]]:
    """All cases in one cluster, by name."""
    cases = [*(draw_full(seed) for seed in range(N_CASES)), *SHOWN.values()]
    with ControlPlane(assets=assets, unsafe_no_fsync=True) as plane:
        found = theirs(plane, cases)
    return {known.pod["metadata"]["labels"][CASE]: (known, choice) for known, choice in found}


@pytest.mark.timeout(400)
def test_same_victims(answers: dict[str, tuple[Known, Choice]]) -> None:
    wrong = []
    for seed in range(N_CASES):
        known, other = answers[f"f{seed}"]
        mine = ours(known)
        if mine == other or _are_as_good(known, mine, other):
            continue
        if not any(one.excuses(known, other, mine) for one in MEANT_OF_VICTIMS):
            wrong.append(f"case {seed}: theirs {other}, ours {mine}")
    assert not wrong, "\n".join(wrong)


def _are_as_good(known: Known, mine: Choice, other: Choice) -> bool:
    """Different nodes that kube-scheduler chooses between by chance."""
    both_take = bool(mine.victims and other.victims)
    return both_take and mine.node != other.node and cost(known, mine) == cost(known, other)


def test_the_cases_are_of_all_sorts(answers: dict[str, tuple[Known, Choice]]) -> None:
    choices = [choice for name, (_, choice) in answers.items() if name.startswith("f")]
    assert sum(not choice.node for choice in choices) >= 10
    assert sum(len(choice.victims) == 1 for choice in choices) >= 20
    assert sum(len(choice.victims) > 1 for choice in choices) >= 30
    guarded = [known for known, choice in answers.values() if known.budgets and choice.node]
    assert len(guarded) >= 20


def test_every_difference_is_shown(answers: dict[str, tuple[Known, Choice]]) -> None:
    assert [one.name for one in MEANT_OF_VICTIMS] == [*SHOWN, *ONLY_IN_MEMORY]
    for one, case in SHOWN.items():
        known, other = answers[case.pod["metadata"]["labels"][CASE]]
        mine = ours(known)
        assert mine != other, one
        assert any(meant.name == one and meant.excuses(known, other, mine) for meant in MEANT_OF_VICTIMS)
