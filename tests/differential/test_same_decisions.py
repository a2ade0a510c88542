"""kube-scheduler and we, on the same random clusters: the same nodes, the same scores, the same choice."""

from __future__ import annotations

import pytest

from tests.differential import draw_volumes
from tests.differential.compare import differences
from tests.differential.differences import MEANT
from tests.differential.draw import draw
from tests.differential.draw_pods import draw_pods
from tests.differential.kube import KubeScheduler, Outcome
from tests.differential.ours import Ours

N_SEEDS = 30
PODS_A_SEED = 14

pytestmark = pytest.mark.real


@pytest.mark.parametrize("seed", range(N_SEEDS))
def test_same_decisions(seed: int, kube_scheduler: KubeScheduler) -> None:
    same(kube_scheduler.decide(draw(seed, PODS_A_SEED)))


@pytest.mark.parametrize("seed", range(N_SEEDS))
def test_same_decisions_where_pods_say_things_of_each_other(seed: int, kube_scheduler: KubeScheduler) -> None:
    same(kube_scheduler.decide(draw_pods(seed, PODS_A_SEED)))


@pytest.mark.parametrize("seed", range(draw_volumes.N_SEEDS))
def test_same_decisions_where_pods_have_volumes(seed: int, kube_scheduler: KubeScheduler) -> None:
    same(kube_scheduler.decide(draw_volumes.draw_volumes(seed)))


def same(outcome: Outcome) -> None:
    """One pod after the other, each with those before it where kube-scheduler put them."""
    ours = Ours(outcome)
    wrong = []
    for pod in sorted(outcome.pods, key=lambda pod: outcome.attempts[pod["metadata"]["name"]].order):
        theirs = outcome.attempts[pod["metadata"]["name"]]
        ours.see(outcome.claims_before.get(pod["metadata"]["name"], []))
        decision = ours.decide(pod)
        found = differences(theirs, decision)
        if found and not any(one.excuses(pod, theirs, decision) for one in MEANT):
            wrong.append((pod["metadata"]["name"], pod["spec"], found))
        if theirs.node:
            ours.place(pod, theirs.node)
    assert not wrong, "\n".join(f"{name}: {found}\n    {spec}" for name, spec, found in wrong)
