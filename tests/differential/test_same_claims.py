"""kube-scheduler and we, on the same random clusters with devices and resource claims."""

from __future__ import annotations

import os

import pytest

from tests.differential.draw_claims import draw_claims
from tests.differential.kube import KubeScheduler
from tests.differential.test_same_decisions import same

N_SEEDS = int(os.environ.get("GANGSCHED_CLAIM_CLUSTERS", "60"))
SEEDS_A_TEST = 10

pytestmark = [pytest.mark.real, pytest.mark.long]


@pytest.mark.parametrize("first", range(0, N_SEEDS, SEEDS_A_TEST))
def test_same_decisions_where_pods_have_resource_claims(first: int, kube_scheduler: KubeScheduler) -> None:
    for seed in range(first, min(first + SEEDS_A_TEST, N_SEEDS)):
        same(kube_scheduler.decide(draw_claims(seed)))
