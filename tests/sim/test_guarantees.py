"""Queues in storms: guarantees hold under faults, claims too, and the checker of guarantees can fail."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.core.groups.attempts.making_room import MakingRoom
from gangsched.core.preemption.queue_rights import QueueRights
from gangsched.core.state.line.waking import _Cures
from gangsched.lab.sim.judges.queueing.guarantees import Guarantees
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.lab.sim.reading.received import Received
from gangsched.lab.sim.runs.driver import Simulation
from gangsched.lab.sim.runs.storms import STORMS, case
from gangsched.lab.sim.workloads.queues.guaranteed import QUEUE_KEY, SETTINGS, make_with_queues
from gangsched.model import effects as ef
from gangsched.model import events as ev
from tests.support.breaking import found, keep_behind_claims
from tests.support.inside import Inside
from tests.support.scenario import Cluster

QUEUES = STORMS["queues"]


def test_guarantees_and_claims_hold_and_all_comes_to_rest() -> None:
    n_claims = n_evicted = 0
    for seed in range(51_000, 51_004):
        sim = case(QUEUES, seed).run()
        assert isinstance(sim, Simulation)
        n_claims += Inside(sim.scheduler).count("claims_made")
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
    assert any("guarantees-kept: " in one for one in found(QUEUES, range(51_020, 51_026)))


class Judged(Cluster):
    """A scenario in which the judge guarantees-kept looks at each step, as in storms."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._judge = Guarantees()
        super().__init__(SETTINGS, make=make_with_queues)

    def _done(self, effects: list[ef.Effect]) -> None:
        self.problems += self._judge.check(self.scheduler, effects, self.received)
        super()._done(effects)


def refused_until_the_queue_holds_less() -> Judged:
    """Queue b holds 6 of 2, an eviction for queue a is refused, and b's other pods leave nodes that are
    cordoned."""
    c = Judged()
    for k in range(3):
        c.node(make_node(f"n{k}", gpus=2))
    c.evictions = "429"
    for k in range(3):
        c.submit(make_pod(f"b{k}", gpus=2, annotations={QUEUE_KEY: "b"}))
    c.run().submit(make_pod("a0", gpus=2, annotations={QUEUE_KEY: "a"})).run()
    [victim] = [one.name for one in c.all(ef.EvictPod)]
    for name in (name for name in ("b0", "b1", "b2") if name != victim):
        node = c.nodes[c.pod(name).spec.node_name]
        c.node(replace(node, spec=replace(node.spec, unschedulable=True))).delete(name)
    return c.run().wait(60.0)


def test_an_eviction_that_is_repeated_though_it_goes_below_the_guarantee_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    c = refused_until_the_queue_holds_less()
    assert len(c.all(ef.EvictPod)) == 1
    assert not c.problems
    monkeypatch.setattr(MakingRoom, "is_outdated", lambda self, waited: False)
    c = refused_until_the_queue_holds_less()
    assert len(c.all(ef.EvictPod)) > 1
    assert {one.partition(": ")[0] for one in c.problems} == {"guarantees-kept"}


def test_a_core_that_does_not_wake_gangs_that_can_grow_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    may_cure = _Cures.may_cure
    monkeypatch.setattr(
        _Cures, "may_cure", lambda self, group: not group.has_started and may_cure(self, group)
    )
    assert any("claim-fills: " in one for one in found(QUEUES, range(9_324, 9_329)))


def test_a_core_that_lets_no_gang_grow_in_front_of_a_claim_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_behind_claims(monkeypatch, lambda group: group.has_started)
    assert any("claim-fills: " in one for one in found(QUEUES, range(9_323, 9_331)))


def test_two_that_go_together_are_judged_together() -> None:
    received = Received()
    received.apply([ev.NodeAdded(make_node("n0", gpus=6))])
    for k in range(3):
        received.apply([ev.PodAdded(on("n0", f"b{k}", "b"))])
    received.apply([ev.PodAdded(make_pod("asks", annotations={QUEUE_KEY: "a"}))])
    one, two = (ef.EvictPod(f"uid-d-b{k}", "d", f"b{k}", "d/asks#1") for k in range(2))
    scheduler = make_with_queues(SETTINGS)
    assert not list(Guarantees().check(scheduler, [one], received)), "3 are held, 2 are guaranteed"
    assert list(Guarantees().check(scheduler, [one, two], received))


def test_a_gang_that_has_lost_its_first_pod_belongs_to_the_queue_of_the_others() -> None:
    received = Received()
    received.apply([ev.NodeAdded(make_node("n0", gpus=6)), ev.PodAdded(on("n0", "b0", "b"))])
    asks = make_pod("asks-1", group="asks", min_members=1, annotations={QUEUE_KEY: "b"})
    received.apply([ev.PodAdded(asks)])
    scheduler = make_with_queues(SETTINGS)
    assert not list(Guarantees().check(scheduler, [ef.EvictPod("uid-d-b0", "d", "b0", "d/asks#1")], received))
    assert list(Guarantees().check(scheduler, [ef.EvictPod("uid-d-b0", "d", "b0", "d/others#1")], received))


def on(node: str, name: str, queue: str) -> Any:
    pod = make_pod(name, annotations={QUEUE_KEY: queue})
    return replace(pod, spec=replace(pod.spec, node_name=node))
