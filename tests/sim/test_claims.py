"""Claims in storms: bounds hold by a plain recount, the same seed claims the same, the checker can fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.config.queueing import QueueingSettings
from gangsched.core.binding.group_outcome import GroupOutcome
from gangsched.core.groups.walltime_evictions import WalltimeEvictions
from gangsched.core.kept.claiming import Claiming
from gangsched.core.kept.kept import Kept
from gangsched.core.queueing.claims import Claims
from gangsched.core.queueing.ends import End, Ends
from gangsched.core.queueing.kept_from import KeptFrom
from gangsched.core.scheduler import Scheduler
from gangsched.core.state.line.waking import _Cures
from gangsched.core.types.claim import StartClaim
from gangsched.core.types.group import MemberState
from gangsched.lab.sim.judges.queueing.filling import is_plain, places
from gangsched.lab.sim.making import make_scheduler
from gangsched.lab.sim.objects import GPU, make_pod
from gangsched.lab.sim.runs.driver import Simulation
from gangsched.lab.sim.runs.storms import STORMS, Storm
from gangsched.lab.sim.workloads.walltimes import walltimes_workload
from gangsched.model.effects import EvictPod
from tests.sim.test_queueing import Recounted
from tests.support.breaking import found, keep_behind_claims
from tests.support.inside import Inside

BOUND = 2
HARD = QueueingSettings(BOUND, mode="hard")
CLAIMS = STORMS["claims"]
LIMITED = replace(CLAIMS, workload=walltimes_workload)


class Bounded(Recounted):
    """Recounts each start: no group is overtaken more often than its bound."""

    def charge(self, *args: Any) -> Any:
        full = super().charge(*args)
        for group, n in self.counts.values():
            assert n <= BOUND, f"{group!r} was passed {n} times"
        return full


def recounting(settings: Settings) -> Scheduler:
    scheduler = make_scheduler(settings)
    shared = scheduler.shared
    assert shared.claims is not None
    own = Bounded(HARD, shared.groups, shared.queue.order)
    own.count_claimed(shared.claims.by_key)
    shared.queue.bypasses = own
    return scheduler


def run(storm: Storm, seed: int) -> Simulation:
    sim = Simulation(seed, storm.workload(seed), rates=storm.rates, settings=storm.settings, make=storm.make)
    sim.run_for(storm.storm_s)
    sim.settle()
    return sim


def test_no_group_is_overtaken_more_often_than_its_bound_and_all_start() -> None:
    storm = replace(CLAIMS, make=recounting)
    n_made = 0
    for seed in range(41_000, 41_002):
        sim = run(storm, seed)
        n_made += Inside(sim.scheduler).count("claims_made")
        waiting = [g for g in Inside(sim.scheduler).groups() if g.n_pending and g.is_complete]
        assert not waiting, f"seed {seed}: everything ends by itself, and {waiting} never started"
    assert n_made, "nobody was claimed for"


def test_the_same_seed_claims_the_same() -> None:
    first, again = run(CLAIMS, 41_010), run(CLAIMS, 41_010)
    assert first.history == again.history


def test_a_core_that_does_not_keep_the_room_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets(self: Kept, unit: Any) -> KeptFrom:
        return KeptFrom(list(self._shared.cache.nominated.values()), (), None)

    monkeypatch.setattr(Kept, "kept_from", forgets)
    assert any("claim-room-kept: " in one for one in found(LIMITED, range(41_020, 41_023)))


def test_a_core_that_gives_no_cause_for_a_slip_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangsched.core.kept.claiming.slip_cause", lambda shared, claim, demands: "")
    assert any("claim-promise: " in one for one in found(LIMITED, range(41_060, 41_066)))


def test_a_core_that_promises_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each slip would count from the last promise, and every one would be kept."""
    stands = Claiming._stands

    def forgets(self: Claiming, claim: StartClaim) -> None:
        claim.promised_s = None
        stands(self, claim)

    monkeypatch.setattr(Claiming, "_stands", forgets)
    assert any("claim-promise: " in one for one in found(LIMITED, range(41_060, 41_066)))


def test_a_core_that_keeps_room_for_groups_that_have_started_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Claims, "moved", lambda self, group: None)
    monkeypatch.setattr(Claims, "is_sound", lambda self, claim: True)
    assert any("claim-exists: " in one for one in found(LIMITED, range(41_070, 41_072)))


def test_a_core_in_which_nothing_starts_before_a_claim_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_behind_claims(monkeypatch, lambda group: True)
    assert any("claim-fills: " in one for one in found(LIMITED, range(41_080, 41_086)))


def test_a_core_that_wakes_no_group_for_room_that_claims_leave_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Claims, "_changes", lambda self, left: ())
    assert any("claim-fills: " in one for one in found(LIMITED, range(41_080, 41_092)))


def gangs_unfilled(seeds: range) -> Iterator[str]:
    """What is found of gangs that wait for room that they could have."""
    problems = found(LIMITED, seeds)
    return (one for one in problems if "claim-fills: " in one and "fits on" in one and "gang d/" in one)


def test_a_core_in_which_no_gang_fills_in_before_a_claim_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_behind_claims(monkeypatch, lambda group: group.is_gang)
    assert any(gangs_unfilled(range(41_081, 41_083)))


def test_a_core_that_does_not_wake_gangs_for_what_becomes_free_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_cure = _Cures.may_cure
    monkeypatch.setattr(_Cures, "may_cure", lambda self, group: not group.is_gang and may_cure(self, group))
    assert any(gangs_unfilled(range(41_080, 41_082)))


def test_the_packing_proves_that_a_gang_fits_and_says_nothing_where_it_is_not_sure() -> None:
    pods = [make_pod(f"a-{k}", gpus=gpus, group="a", min_members=2) for k, gpus in enumerate((4, 1, 2))]
    [four, one, two] = pods
    free = {"n0": {GPU: 2, "pods": 9, "cpu": 9000, "memory": 2**40}, "n1": {GPU: 1}}
    assert places([one, two], free) == []  # the small one takes the place of the other
    assert places([two, one], {**free, "n1": free["n0"]}) == ["n0", "n1"]
    assert places([four], free) == []
    assert is_plain(one, None)
    assert not is_plain(replace(one, spec=replace(one.spec, node_selector={"a": "b"})), None)
    own = {**(one.metadata.annotations or {}), "gangsched.io/topology": "required: rack"}
    assert not is_plain(replace(one, metadata=replace(one.metadata, annotations=own)), None)


def test_with_a_budget_all_of_it_starts_too() -> None:
    n_made = 0
    for seed in range(41_030, 41_032):
        sim = run(STORMS["budget"], seed)
        n_made += Inside(sim.scheduler).count("claims_made")
        waiting = [g for g in Inside(sim.scheduler).groups() if g.n_pending and g.is_complete]
        assert not waiting, f"seed {seed}: everything ends by itself, and {waiting} never started"
    assert n_made, "nobody was claimed for"


def test_what_runs_past_its_walltime_is_evicted_and_nothing_else() -> None:
    n_victims = sum(
        Inside(run(STORMS["overrun"], seed).scheduler).count("overrun_victims") for seed in (41_051, 41_054)
    )
    assert n_victims, "nobody was evicted"


def test_a_core_that_evicts_too_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def over(self: Ends, info: Any, now_s: float, wall_ahead_s: Any) -> End:
        return End(now_s + 60.0, over_s=now_s - 60.0)

    monkeypatch.setattr(Ends, "end", over)
    assert any("claim-evictions: " in one for one in found(STORMS["overrun"], range(41_050, 41_053)))


def test_whatever_runs_past_its_walltime_is_evicted_in_time() -> None:
    sims = [run(STORMS["overtime"], seed) for seed in (41_100, 41_101)]
    assert any(Inside(sim.scheduler).count("overrun_evictions") for sim in sims), "nobody was evicted"


def test_a_core_that_ends_a_walltime_too_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = Ends.stated_end_s
    monkeypatch.setattr(Ends, "stated_end_s", lambda *asked: ends(*asked) - 40.0)
    assert any("walltime-evictions: " in one for one in found(STORMS["overtime"], range(41_110, 41_113)))


def test_a_core_that_ignores_a_longer_walltime_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = Ends.stated_end_s

    def ignoring(self: Ends, group: Any, *more: Any) -> float:
        first: dict[str, float] = vars(self).setdefault("first", {})
        return first.setdefault(f"{group.key} {sorted(group.members)}", ends(self, group, *more))

    monkeypatch.setattr(Ends, "stated_end_s", ignoring)
    assert any("walltime-evictions: " in one for one in found(STORMS["overtime"], range(41_125, 41_131)))


def test_a_core_that_evicts_a_gang_in_part_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_of_it(self: GroupOutcome, group: Any) -> None:
        for info in group.in_state(MemberState.BOUND)[:1]:
            meta = info.pod.metadata
            self._shared.emit(EvictPod(info.uid, meta.namespace, meta.name, group.cause_id))

    monkeypatch.setattr(GroupOutcome, "evict_bound", one_of_it)
    assert any("walltime-evictions: " in one for one in found(STORMS["overtime"], range(41_110, 41_113)))


def test_a_core_that_lets_them_run_on_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WalltimeEvictions, "act", lambda self, group: None)
    assert any("walltime-in-time: " in one for one in found(STORMS["overtime"], range(41_110, 41_113)))
