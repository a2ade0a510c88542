"""The configuration changes in storms: nothing is lost by it, and from then on the next one holds."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from gangsched.core import scheduler
from gangsched.core.turns import reconfigure
from gangsched.core.types.group import Group, GroupState
from gangsched.lab.sim.runs.reload_mix import BESIDE, FickleReloads, VolumeReloads, mixed
from gangsched.lab.sim.runs.reloads import ReloadDuel, ReloadSimulation
from gangsched.lab.sim.runs.storms import STORMS, case
from tests.support.breaking import found
from tests.support.inside import Inside

RELOADS = STORMS["reloads"]


def test_other_configurations_take_effect_and_all_comes_to_rest() -> None:
    history, n_reloads, n_claims = b"", 0, 0
    for seed in range(58_000, 58_007):
        sim = case(RELOADS, seed).run()
        assert isinstance(sim, ReloadSimulation | ReloadDuel)
        history += b"".join(sim.history)
        n_reloads += sim.n_reloads
        if isinstance(sim, ReloadSimulation):
            n_claims += Inside(sim.scheduler).count("claims_made")
    assert n_reloads > 7 * 3
    for what in (
        b"BindPod",
        b"EvictPod",
        b"RoomClaimed",
        b"more than its limit",
        b"no queue of this name takes pods",
    ):
        assert what in history, what


def test_other_configurations_come_beside_all_that_the_mix_names() -> None:
    drawn = {mixed(seed) for seed in range(8 * len(BESIDE))}
    assert drawn.issuperset(BESIDE)
    kinds = {one.simulation for one in drawn}
    assert kinds.issuperset((ReloadSimulation, FickleReloads, VolumeReloads, ReloadDuel))


def test_the_same_seed_decides_the_same() -> None:
    first, again = case(RELOADS, 58_001).run(), case(RELOADS, 58_001).run()
    assert first.history == again.history


def test_pods_dropped_with_their_profile_before_the_watch_shows_where_they_are_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def in_motion(shared: object, names: Iterable[str]) -> list[Group]:
        moving = (GroupState.BINDING, GroupState.UNWINDING)
        return [one for one in unfinished(shared, names) if one.state in moving]  # type: ignore[arg-type]

    unfinished = reconfigure.unfinished
    monkeypatch.setattr(scheduler, "unfinished", in_motion)
    monkeypatch.setattr(reconfigure, "unfinished", in_motion)
    assert any(": room: " in one or ": one-holder: " in one for one in found(RELOADS, (71, 105, 153)))


def test_volumes_that_are_forgotten_when_the_plugin_is_rebuilt_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reconfigure, "_hand_over", lambda *_: None)
    assert any(": volumes-bound-first: " in one for one in found(RELOADS, (28, 108)))


def test_evictions_that_go_on_though_they_are_not_allowed_any_more_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reconfigure, "_stop_evicting", lambda *_: None)
    assert any("evictions-allowed: " in one for one in found(RELOADS, (30, 67, 9)))
