"""Properties over seeds: whatever kubelets do and people write, at rest books, annotations and kubelet agree.

GANGSCHED_SEEDS says how many seeds (default 60, a third of them here).
"""

from __future__ import annotations

import math
import os

import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.config.devices import DeviceSettings
from gangsched.core.device_audit.drift import DriftAudit
from gangsched.core.types.group import PodInfo
from gangsched.lab.sim.runs.driver import Broken, Simulation
from gangsched.lab.sim.workloads.arrivals import random_workload
from gangsched.lab.sim.world.weather import STORM

N_SEEDS = int(os.environ.get("GANGSCHED_SEEDS", "60"))
# Lost answers, conflicts, late watches. No crash in the middle of a swap (tests/core/test_audit.py has that),
# and no missing right, which is asked for again after minutes only.
TAMPERED = replace(STORM, tampering_per_s=2.0, mischief_per_s=0.0, crashes=False, late=0.0, forbidden=0.0)
SETTINGS = Settings(
    devices=DeviceSettings(
        repair=True, on_mismatch="evict", on_failure="evictMember", failure_grace_s=3.0, failure_again_s=10.0
    )
)


def run(seed: int) -> Simulation:
    workload = random_workload(seed, n_arrivals=7, over_s=12.0)
    sim = Simulation(seed, workload, rates=TAMPERED, settings=SETTINGS)
    sim.run_for(15.0)
    sim.weather.clear()
    sim.run_for(10.0)
    sim.settle()
    return sim


@pytest.mark.parametrize("seed", range(N_SEEDS))
def test_at_rest_annotations_records_and_kubelets_agree(seed: int) -> None:
    try:
        run(seed)
    except Broken as broken:
        pytest.fail(f"seed {seed}: {broken}", pytrace=False)


def test_there_is_enough_to_find() -> None:
    sims = [run(seed) for seed in range(12)]
    assert sum(sim.tampering.n_edits for sim in sims) >= 60
    assert sum(sim.tampering.n_swaps for sim in sims) >= 12


def found(seeds: range) -> list[str]:
    """What the checkers say of these seeds."""
    problems = []
    for seed in seeds:
        try:
            sim = run(seed)
            assert sim.tampering.n_edits + sim.tampering.n_swaps
        except Broken as broken:
            problems.append(broken.problem)
    return problems


def test_without_the_repair_the_difference_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what is found nowhere above is there to be found."""

    def nothing(self: DriftAudit, info: PodInfo) -> None:
        self.due.set(info.uid, math.inf)

    monkeypatch.setattr(DriftAudit, "_repair", nothing)
    assert len(found(range(6))) >= 5


def test_if_the_records_ignore_kubelets_report_the_difference_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(DriftAudit, "_compare", lambda self, name, report: None)
    assert any("kubelet gave another set" in problem for problem in found(range(6)))
