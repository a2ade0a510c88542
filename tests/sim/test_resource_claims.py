"""Resource claims in storms: allocated, lost, taken by others and given back; all comes to rest."""

from __future__ import annotations

from functools import partial

import pytest
from msgspec.structs import replace

from gangsched.lab.sim.runs.claim_run import ClaimSimulation
from gangsched.lab.sim.runs.storms import STORMS, case
from gangsched.lab.sim.workloads.resource_claims import group_claims_workload, resource_claims_workload
from gangsched.lab.sim.world.weather import CALM
from gangsched.model.resource_claims.objects import ResourceClaim

DRA = STORMS["dra"]


def test_gangs_get_their_devices_and_all_comes_to_rest() -> None:
    n_unclear = n_bumped = n_gone = 0
    for seed in (13, 14, 40, 41, 52):
        sim = case(DRA, seed).run()
        assert isinstance(sim, ClaimSimulation)
        history = b"".join(sim.history)
        assert b"PatchClaim" in history
        assert b"BindPod" in history
        n_unclear += history.count(b'"GetClaim"')
        n_bumped += history.count(b'"BumpClaim"')
        n_gone += history.count(b"its resource claim is gone") + history.count(b"is being deleted")
    assert n_unclear, "every patch was answered"
    assert n_bumped, "no patch was lost"
    assert n_gone, "no claim was deleted"


def test_the_same_seed_decides_the_same() -> None:
    first, again = case(DRA, 14).run(), case(DRA, 14).run()
    assert first.history == again.history


def test_in_good_weather_nothing_is_taken_back() -> None:
    for seed in (1, 2):
        sim = ClaimSimulation(seed, resource_claims_workload(seed), rates=CALM, settings=DRA.settings)
        written: list[tuple[bool, bool]] = []
        sim.api.claims.on_written.append(partial(_note, written))
        sim.run_for(60.0)
        sim.settle()
        assert (False, True) in written
        assert (True, False) not in written


@pytest.mark.long
def test_claims_of_pod_groups_are_reserved_for_them_and_come_to_rest() -> None:
    storm = replace(DRA, workload=group_claims_workload)
    written: list[tuple[bool, bool]] = []
    for seed in range(1, 6):
        sim = case(storm, seed).begun()
        assert isinstance(sim, ClaimSimulation)
        sim.api.claims.on_written.append(partial(_note_groups, written))
        sim.run_for(storm.storm_s)
        sim.settle()
    assert written.count((False, True)) > 15
    assert (True, False) in written, "none was taken back"


def _note_groups(written: list[tuple[bool, bool]], before: ResourceClaim, after: ResourceClaim) -> None:
    """Whether a PodGroup had the claim before the write, and after it."""
    had, has = (
        any(one.resource == "podgroups" for one in claim.status.reserved_for or ())
        for claim in (before, after)
    )
    written.append((had, has))


def _note(written: list[tuple[bool, bool]], before: ResourceClaim, after: ResourceClaim) -> None:
    """Whether the claim was allocated before the write, and after it."""
    written.append((before.status.allocation is not None, after.status.allocation is not None))
