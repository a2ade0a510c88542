"""Queues in storms: guarantees hold under faults, claims too, and the checker of guarantees can fail."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.core.groups.making_room import MakingRoom
from gangsched.core.preemption.queue_rights import QueueRights
from gangsched.core.state.waking import _Heard
from gangsched.lab.sim.driver import Simulation
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.lab.sim.storms import STORMS, case
from gangsched.lab.sim.teams import QUEUE_KEY, SETTINGS, Guarantees, make_with_queues
from gangsched.lab.sim.told import Told
from gangsched.model import effects as ef
from gangsched.model import events as ev
from tests.support.breaking import found, keep_behind_claims

QUEUES = STORMS["queues"]


def test_guarantees_and_claims_hold_and_all_comes_to_rest() -> None:
    n_claims = n_evicted = 0
    for seed in range(51_000, 51_004):
        sim = case(QUEUES, seed).run()
        assert isinstance(sim, Simulation)
        n_claims += sim.scheduler.shared.counters["claims_made"]
        n_evicted += sum(b"EvictPod" in one for one in sim.history)
    assert n_claims, "nobody was claimed for"
    assert n_evicted, "nobody was evicted"


def test_the_same_seed_decides_the_same() -> None:
    first, again = case(QUEUES, 51_010).run(), case(QUEUES, 51_010).run()
    assert first.history == again.history


def test_a_core_that_forgets_what_others_are_guaranteed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def loses_nothing(self: QueueRights, name: str, lost: Any) -> bool:
        return False

    monkeypatch.setattr(QueueRights, "_loses", loses_nothing)
    assert any("31: " in one for one in found(QUEUES, range(51_020, 51_026)))


def test_an_eviction_is_not_repeated_once_it_would_go_below_the_guarantee(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One seed in a hundred comes into that case, and which one changes with each decision."""
    seeds = (215, 221)
    assert not list(found(QUEUES, seeds))
    monkeypatch.setattr(MakingRoom, "is_outdated", lambda self, waited: False)
    assert any("31: " in one for one in found(QUEUES, seeds))


def test_a_core_that_does_not_wake_gangs_that_can_grow_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    may_cure = _Heard.may_cure
    monkeypatch.setattr(_Heard, "may_cure", lambda self, group: not group.satisfied and may_cure(self, group))
    assert any("I5: " in one for one in found(QUEUES, range(9_324, 9_329)))


def test_a_core_that_lets_no_gang_grow_in_front_of_a_claim_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_behind_claims(monkeypatch, lambda group: group.satisfied)
    assert any("I5: " in one for one in found(QUEUES, range(9_323, 9_331)))


def test_two_that_go_together_are_judged_together() -> None:
    told = Told()
    told.hear([ev.NodeAdded(make_node("n0", gpus=6))])
    for k in range(3):
        told.hear([ev.PodAdded(on("n0", f"b{k}", "b"))])
    told.hear([ev.PodAdded(make_pod("asks", annotations={QUEUE_KEY: "a"}))])
    one, two = (ef.EvictPod(f"uid-d-b{k}", "d", f"b{k}", "d/asks#1") for k in range(2))
    scheduler = make_with_queues(SETTINGS)
    assert not list(Guarantees().look(scheduler, [one], told)), "3 are held, 2 are guaranteed"
    assert list(Guarantees().look(scheduler, [one, two], told))


def on(node: str, name: str, queue: str) -> Any:
    pod = make_pod(name, annotations={QUEUE_KEY: queue})
    return replace(pod, spec=replace(pod.spec, node_name=node))
