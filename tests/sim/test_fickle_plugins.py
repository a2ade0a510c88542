"""Plugins that change their minds in storms: nothing is lost by it, and once they agree everybody starts."""

from __future__ import annotations

import pytest

from gangsched.core.framework.plan import FitError, Plan
from gangsched.core.groups.attempts.placer import Placer
from gangsched.core.kept.kept import Kept
from gangsched.core.state.line.queue import SchedulingQueue
from gangsched.core.state.tables.groups import Cause
from gangsched.core.types.group import Group, GroupState
from gangsched.lab.sim.faults.fickle_plugins import FickleReserve
from gangsched.lab.sim.runs.fickle_run import FickleSimulation
from gangsched.lab.sim.runs.storms import STORMS, case
from tests.support.breaking import found
from tests.support.inside import Inside

FICKLE = STORMS["moody"]


def test_plugins_refuse_raise_and_wait_and_all_comes_to_rest() -> None:
    history = b""
    n_claims = 0
    for seed in range(57_000, 57_006):
        sim = case(FICKLE, seed).run()
        assert isinstance(sim, FickleSimulation)
        history += b"".join(sim.history)
        n_claims += Inside(sim.scheduler).count("claims_made")
    assert b"BindPod" in history
    assert b"ValueError: of bad temper" in history, "no plugin raised"
    assert b"in two minds" in history, "no plugin asked to wait"
    assert n_claims, "nobody was claimed for"


def test_the_same_seed_decides_the_same() -> None:
    first, again = case(FICKLE, 57_001).run(), case(FICKLE, 57_001).run()
    assert first.history == again.history


def test_a_core_in_which_two_with_claims_that_a_plugin_refuses_wake_each_other_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wake = SchedulingQueue.wake

    def at_once(self: SchedulingQueue, group: Group, cause: Cause, now_s: float) -> None:
        claims = self._shared.claims
        is_awaited = claims is not None and claims.claim(group) is not None
        if is_awaited and group.state is GroupState.UNSCHEDULABLE:
            self.activate(group, cause)
        else:
            wake(self, group, cause, now_s)

    monkeypatch.setattr(SchedulingQueue, "wake", at_once)
    assert any("no-endless-refusals: " in one for one in found(FICKLE, (156,)))


def test_a_core_that_fails_where_all_is_reserved_and_waits_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """With claims, what yields to no claim was asked for once Permit let such a gang go on."""
    place = Placer.place

    def asked_for_no_group(self: Placer, unit: list[Group], kept: Kept) -> Plan | FitError:
        if not self._units.demands(unit):
            list(kept.ways_to_start([]))
        return place(self, unit, kept)

    monkeypatch.setattr(Placer, "place", asked_for_no_group)
    assert any("core raised ValueError" in one for one in found(FICKLE, range(10)))


def test_a_plugin_that_does_not_learn_what_is_given_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FickleReserve, "unreserve", lambda self, group, infos: None)
    assert any("nothing-leaks: reserved " in one for one in found(FICKLE, range(12)))
