"""Preemption under faults, over seeds: no pod is evicted in vain or twice, and everything ends."""

from __future__ import annotations

import os

import pytest

from gangsched.config import Settings
from gangsched.lab.sim.runs.driver import Simulation
from gangsched.lab.sim.runs.storms import STORMS, case
from gangsched.lab.sim.workloads.arrivals import preempting_workload
from gangsched.lab.sim.world.weather import CALM, STORM, Rates
from gangsched.model.pod_group import group_key
from tests.support.inside import Inside

N_SEEDS = int(os.environ.get("GANGSCHED_SEEDS", "60"))


HASTY = Settings(permit_wait_s=15.0, fence=True)


def run(seed: int, rates: Rates, *, stubborn: bool) -> Simulation:
    workload = preempting_workload(seed, stubborn=stubborn)
    sim = Simulation(seed, workload, rates=rates, settings=HASTY)
    sim.run_for(60.0)
    sim.settle()
    return sim


def priorities(seed: int) -> dict[str, int]:
    """By group, as the workload has it."""
    pods = [pod for arrival in preempting_workload(seed, stubborn=False).arrivals for pod in arrival.pods]
    return {str(group_key(pod)): pod.spec.priority or 0 for pod in pods}


@pytest.mark.parametrize("seed", range(N_SEEDS // 2))
def test_a_storm_breaks_no_promise_and_everything_finishes_after_it(seed: int) -> None:
    run(5000 + seed, STORM, stubborn=False)


@pytest.mark.parametrize("seed", range(N_SEEDS // 2))
def test_in_good_weather_no_pod_is_evicted_in_vain(seed: int) -> None:
    sim = run(6000 + seed, CALM, stubborn=False)
    in_vain = list(sim.judges.victims.in_vain(priorities(6000 + seed)))
    assert not in_vain, f"seed {6000 + seed}: {in_vain}"
    stale = [p.key for p in sim.api.pods.values() if p.status.nominated_node_name and not p.spec.node_name]
    assert not stale, f"seed {6000 + seed}: {stale} say where they will go and do not wait"


@pytest.mark.parametrize("seed", range(N_SEEDS // 4))
def test_a_gang_gives_up_victims_that_do_not_go_and_goes_on(seed: int) -> None:
    run(7000 + seed, CALM, stubborn=True)


def test_the_workload_makes_gangs_preempt() -> None:
    n_victims = 0
    for seed in range(6000, 6010):
        seen: set[str] = set()

        def check(sim: Simulation, seen: set[str] = seen) -> list[str]:
            seen |= set(Inside(sim.scheduler).victims())
            return []

        sim = Simulation(seed, preempting_workload(seed))
        sim.watchers.append(check)
        sim.run_for(60.0)
        n_victims += len(seen)
    assert n_victims > 30


def test_a_gang_that_is_unwound_has_its_grace_before_the_cluster_counts_as_at_rest() -> None:
    """The last bound member of a gang was evicted with 20 s of grace, 13 s before it was judged."""
    assert case(STORMS["preempting"], 1026817500036).failure() is None
