"""Two storms at once: each pair runs, and a judge of one is fair to the other."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gangsched.lab.sim.runs.storms import HOSTILE, STORMS, case

MIXED = STORMS["mixed"]


@pytest.mark.parametrize("nth", range(len(MIXED.mixes)))
def test_nothing_is_found_in_one_of_each(nth: int) -> None:
    one = case(MIXED, 29 * len(MIXED.mixes) + nth)
    assert one.storm is MIXED.mixes[nth]
    assert one.failure() is None


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("claims", 10_011),
        ("queues", 10_010),
        ("limits", 10_062),
        ("limits", 20_013),
        ("lending", 20_023),
    ],
)
def test_judges_are_fair_to_hostile_objects(name: str, seed: int) -> None:
    assert case(replace(STORMS[name], rates=HOSTILE), seed).failure() is None


def test_a_gang_bound_by_a_clock_that_is_ahead_may_still_be_evicted_for_its_walltime() -> None:
    assert case(replace(STORMS["overtime"], rates=HOSTILE), 10_035).failure() is None
