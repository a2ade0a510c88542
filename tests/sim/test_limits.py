"""Limits of queues in storms: they hold under faults, none is passed at one without end, and the checkers of
both can fail."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.core.cache.queues.book import QueueBook
from gangsched.core.kept.limits import Amounts, KeptInLimits, add_needs
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import Group
from gangsched.core.types.needed import completes
from gangsched.lab.sim.judges.at_rest import nothing_starves
from gangsched.lab.sim.judges.queueing.limits import Limits
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.lab.sim.reading.received import Received
from gangsched.lab.sim.runs.driver import Simulation
from gangsched.lab.sim.runs.storms import STORMS, case
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Pod
from gangsched.model.pod_group import TOTAL_MEMBERS_KEY
from gangsched.plugins.fairness import Fairness
from tests.core.queued import pods, queued
from tests.core.test_claimed_limits import lasting
from tests.support.breaking import found
from tests.support.inside import Inside
from tests.support.scenario import Cluster, gang

LIMITS = STORMS["limits"]


def test_limits_hold_and_groups_kept_out_by_one_have_their_turn() -> None:
    n_bound = n_claims = 0
    for seed in range(52_002, 52_006):
        sim = case(LIMITS, seed).run()
        assert isinstance(sim, Simulation)
        n_bound += sum(b"BindPod" in one for one in sim.history)
        n_claims += Inside(sim.scheduler).count("claims_made")
    assert n_bound
    assert n_claims, "nobody was claimed for"


def test_the_same_seed_decides_the_same() -> None:
    first, again = case(LIMITS, 52_010).run(), case(LIMITS, 52_010).run()
    assert first.history == again.history


def test_pods_that_complete_a_gang_to_its_total_may_take_more_than_the_limit() -> None:
    own = {TOTAL_MEMBERS_KEY: "6"}
    pods = [make_pod(f"g-{k}", group="g", min_members=2, gpus=1, annotations=own) for k in range(6)]
    there = [replace(pod, spec=replace(pod.spec, node_name="n0")) for pod in pods[:5]]
    sent = {pod.metadata.uid: bind_of(pod) for pod in there}
    received = Received()
    received.apply([ev.NodeAdded(make_node("n0", gpus=8)), *map(ev.PodAdded, [*there, pods[5]])])
    limits = Limits()
    limits._sent |= sent
    assert not list(limits.check([bind_of(pods[5])], received, 1.0))


def bind_of(pod: Pod) -> ef.BindPod:
    meta = pod.metadata
    return ef.BindPod(meta.uid, meta.namespace, meta.name, "n0", {}, "d/g", 1, "d/g#1")


def test_a_core_that_forgets_limits_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QueueBook, "over_limits", lambda self, asked, kept: iter(()))
    assert any("limits-kept: with " in one for one in found(LIMITS, range(52_020, 52_023)))


def test_a_core_that_looks_at_a_queue_and_not_at_those_above_it_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    over_limits = QueueBook.over_limits

    def below(self: QueueBook, asked: Amounts, kept: Amounts) -> Any:
        leaves = {name: some for name, some in asked.items() if self.tree.queues[name].parent}
        return over_limits(self, leaves, kept)

    monkeypatch.setattr(QueueBook, "over_limits", below)
    assert any("limits-kept: with " in one for one in found(LIMITS, range(52_020, 52_023)))


def test_a_core_that_counts_what_has_ended_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    add = QueueBook._add
    monkeypatch.setattr(QueueBook, "_add", lambda self, held, sign: sign > 0 and add(self, held, sign))
    assert any("claim-fills: " in one for one in found(LIMITS, range(52_020, 52_023)))


def test_a_core_that_counts_no_passes_at_limits_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeptInLimits, "charge_passes", lambda self, unit: None)
    assert any(" have passed " in one for one in found(LIMITS, (10, 46)))


def test_a_core_that_wakes_no_group_when_a_limit_has_room_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fairness, "admit_again", lambda self, *asked: False)
    monkeypatch.setattr(Fairness, "may_admit_without", lambda self, *asked: False)
    assert any("claim-fills: " in one for one in found(LIMITS, range(52_020, 52_023)))


def promised_behind_a_group_kept_out() -> Cluster:
    """Of queue a, which may use 18 devices and uses none, a gang of 18 has been passed as often as may be,
    and one of 16 is promised a start; what that one waited for has ended, and there is room for it alone."""
    ours = "queueing: {bound: {groups: 1, mode: hard}}\nqueues:\n"
    ours += "- {name: a, limit: {nvidia.com/gpu: 18}, namespaces: [a]}\n- {name: b, namespaces: [b]}\n"
    c = queued(ours, nodes=0).node(make_node("half", gpus=4))
    c.submit(lasting("300s", pods("a", "small", gpus=2))).run()
    c.node(make_node("x")).node(make_node("y"))
    c.submit(lasting("600s", pods("b", "holds", gpus=8))).run()
    c.submit(lasting("2h", gang("wide", pods=9, gpus=2, namespace="a"))).run().wait(1.0)
    c.submit(lasting("2h", gang("large", pods=2, gpus=8, namespace="a"))).run()
    c.submit(lasting("10s", pods("b", "before", gpus=8))).run().delete("before").run()
    c.submit(lasting("2h", pods("b", "passes", gpus=8))).run()
    c.submit(lasting("300s", pods("a", "passes-at-limit"))).run()
    c.delete("small", "passes-at-limit").run().wait(2.0)
    kept_out = c.scheduler.attempts.kept.limits.kept_out(c.group("wide"))
    assert kept_out is not None
    assert kept_out.is_at_bound
    c.delete("passes").run().wait(590.0).delete("holds").drop_node("half")
    return c.run().wait(2.0)


def fresh(c: Cluster) -> Scheduler:
    """Another process, shown the same objects."""
    made = c.make(c.settings)
    events: list[ev.Event] = [*map(ev.NodeAdded, c.nodes.values()), *map(ev.PodAdded, c.pods.values())]
    made.handle([*events, *(ev.KindSynced(kind) for kind in made.kinds)], c.now_s)
    return made


def test_a_core_in_which_claims_wait_for_groups_that_leave_them_their_limit_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    c = promised_behind_a_group_kept_out()
    assert c.placed("large")
    assert not list(nothing_starves(c.scheduler, lambda: fresh(c), c.now_s))

    def kept(self: KeptInLimits, group: Group) -> Amounts:
        found = Amounts() if completes(group) else self._claimed.kept_from(group, by_claims=True)
        for one, needs in () if completes(group) else self._ahead_of(group):
            if one.is_at_bound:
                add_needs(found, needs)
        return found

    monkeypatch.setattr(KeptInLimits, "kept_ahead_of", kept)
    c = promised_behind_a_group_kept_out()
    [problem] = nothing_starves(c.scheduler, lambda: fresh(c), c.now_s)
    assert problem.startswith("nothing-starves: <a/large unschedulable")
