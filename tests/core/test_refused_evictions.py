"""A refused eviction is repeated ever more rarely, whatever it is for, and at once on a change."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.core.explaining.explain import explain
from gangsched.core.state.evictions import LONGEST_PAUSE_S
from gangsched.lab.sim.objects import make_pod
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Condition
from gangsched.model.workloads import PodDisruptionBudget
from tests.core.test_audit import unlinked
from tests.core.test_health import fail, watched
from tests.core.test_walltime_evictions import evicting
from tests.support.long import all_but
from tests.support.scenario import Cluster, cluster, gang, lone

BUDGETS = "poddisruptionbudgets.policy"
A_DAY_S = 86_400.0


def unwinding(code: str) -> Cluster:
    c = cluster(nodes=2, settings=Settings(on_partial_bind="unwind"))
    c.answer = lambda bind: "422" if bind.name == "a-1" else "ok"
    c.evictions = code
    return c.submit(gang("a", pods=2, gpus=8)).run()


def failed_device(code: str) -> Cluster:
    c = watched("evictMember").submit(make_pod("x", gpus=1)).run()
    c.evictions = code
    fail(c, 0)
    return c


def failed_device_of_a_gang(code: str) -> Cluster:
    c = watched("evictGang").submit(gang("a", pods=2, gpus=1)).run()
    c.evictions = code
    fail(c, 0)
    return c


def unusable_devices(code: str) -> Cluster:
    return unlinked(on_mismatch="evict", evictions=code)


def walltime(code: str) -> Cluster:
    c = evicting().submit(lone("a", 1, "600s")).run()
    c.evictions = code
    return c


def preempting(code: str) -> Cluster:
    c = cluster(nodes=1).submit(make_pod("low", gpus=8)).run()
    pod = c.pod("low")
    c.update(pod, spec=replace(pod.spec, termination_grace_period_seconds=86_400))
    c.evictions = code
    return c.submit(make_pod("high", gpus=8, priority=10)).run()


WAYS = (unwinding, failed_device, failed_device_of_a_gang, unusable_devices, walltime, preempting)


def most_asked(c: Cluster) -> int:
    """The most that was asked for one pod, as an eviction or as a deletion."""
    asked = [("evict", one.uid) for one in c.all(ef.EvictPod)]
    asked += [("delete", one.uid) for one in c.all(ef.DeletePod)]
    return max(map(asked.count, asked), default=0)


@pytest.mark.parametrize("way", all_but(len(WAYS) - 1, WAYS))
@pytest.mark.parametrize("code", ["429", "403"])
def test_a_day_of_refusals_costs_some_300_requests_a_pod(way: Callable[[str], Cluster], code: str) -> None:
    c = way(code)
    c.wait(A_DAY_S)
    if way is not preempting:  # that becomes a deletion, or gives up
        assert most_asked(c) >= 250
    assert most_asked(c) <= 12 + A_DAY_S / LONGEST_PAUSE_S


@pytest.mark.parametrize("way", WAYS[:-1])
def test_it_is_asked_for_soon_at_first(way: Callable[[str], Cluster]) -> None:
    c = way("429")
    c.wait(700.0)
    assert most_asked(c) >= 4


def budget(allowed: int, version: int, app: str = "x") -> PodDisruptionBudget:
    return msgspec.convert(
        {
            "metadata": {"name": "b", "namespace": "d", "uid": "b", "resourceVersion": str(version)},
            "spec": {"selector": {"matchLabels": {"app": app}}},
            "status": {"disruptionsAllowed": allowed},
        },
        PodDisruptionBudget,
    )


CHANGES: dict[str, Callable[[Cluster], object]] = {
    "the budget allows one": lambda c: c.tell(ev.ObjectPut(BUDGETS, budget(1, 2))),
    "it selects others": lambda c: c.tell(ev.ObjectPut(BUDGETS, budget(0, 2, "y"))),
    "it is gone": lambda c: c.tell(ev.ObjectGone(BUDGETS, "d", "b", "b")),
    "the pod's labels change": lambda c: _edit(c, labels={"app": "z"}),
    "the pod is not ready": lambda c: _edit(c, ready="False"),
}
NO_CHANGES: dict[str, Callable[[Cluster], object]] = {
    "it still allows none": lambda c: c.tell(ev.ObjectPut(BUDGETS, budget(0, 2))),
    "an annotation": lambda c: _edit(c, annotations={"a": "b"}),
}


def _edit(c: Cluster, ready: str = "", **metadata: dict[str, str]) -> None:
    for uid in {one.uid for one in c.all(ef.EvictPod)}:
        pod = c.pods[uid]
        status = pod.status
        if ready:
            status = replace(status, conditions=[Condition(type="Ready", status=ready)])
        merged = {key: {**(getattr(pod.metadata, key) or {}), **value} for key, value in metadata.items()}
        c.update(pod, metadata=replace(pod.metadata, **merged), status=status)


@pytest.mark.parametrize("way", WAYS[:-1])
@pytest.mark.parametrize("what", [*CHANGES, *NO_CHANGES])
def test_it_is_asked_for_at_once_when_what_refused_it_has_changed(
    way: Callable[[str], Cluster], what: str
) -> None:
    c = way("429")
    c.tell(ev.ObjectPut(BUDGETS, budget(0, 1)))
    c.wait(5000.0)
    c.evictions = "ok"
    asked = {one.uid for one in c.all(ef.EvictPod)}
    (CHANGES | NO_CHANGES)[what](c)
    c.wait(2.5)
    assert asked.isdisjoint(c.pods) is (what in CHANGES)
    c.wait(LONGEST_PAUSE_S)
    assert asked.isdisjoint(c.pods), "nothing is forgotten"


def test_explain_says_how_often_it_was_asked_for_and_when_it_is_again() -> None:
    c = unwinding("429")
    c.wait(300.0)
    found = explain(c.scheduler, c.group("a"), c.now_s)
    assert found.answer == "It is being taken back: 1 pod of it still to go. evicting d/a-0: 429 refused"
    assert found.then.startswith("The eviction of its pod was asked for ")
    assert found.then.endswith("s, or as soon as the pod or a disruption budget of its namespace changes.")
    c = failed_device("429")
    c.wait(300.0)
    assert "its pod was asked for" in explain(c.scheduler, c.group("x"), c.now_s).then


def test_pods_that_are_gone_are_forgotten() -> None:
    c = cluster(nodes=1)
    for n in range(600):
        c.submit(make_pod(f"low{n}", gpus=8)).run()
        c.submit(make_pod(f"high{n}", gpus=8, priority=10)).run().wait(2.0)
        c.delete(f"high{n}").run()
    assert len(c.scheduler.shared.evictions._asked) < 300
