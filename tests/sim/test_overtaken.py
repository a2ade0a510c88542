"""No gang is overtaken beyond its bound by default, and guarantees are got back in time; both can fail."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from gangsched.core.queueing.bypasses import Bypasses
from gangsched.lab.sim.judges.queueing.overtaken import Entitled, Overtaken
from gangsched.lab.sim.objects import make_pod
from gangsched.plugins.fairness import Fairness
from tests.core.queued import queued
from tests.support.scenario import gang

LEAST = 64
"""The bound of `groups: auto` where no more than eight groups run."""
TREE = """
queues:
- name: top
  limit: {nvidia.com/gpu: LIMIT}
  guaranteed: {nvidia.com/gpu: 12}
  queues:
  - {name: a, guaranteed: {nvidia.com/gpu: 8}, namespaces: [a]}
  - {name: b, guaranteed: {nvidia.com/gpu: 4}, namespaces: [b]}
- {name: rest, namespaces: ["*"]}
"""


HARD = "queueing: {bound: {mode: hard, protects: gangs}}"


def overtaken(seed: int, ours: str = "") -> Iterator[str]:
    """One node of 8 devices; lone pods and small gangs without end, which state nothing, and three gangs that
    need all of it. In mode budget, the default, a gang at its bound is passed on until what its room keeps
    idle is earned: here by less than as many again."""
    bound = LEAST if ours == HARD else 2 * LEAST
    rng, c, judge = Random(f"{seed}-overtaken"), queued(ours), Overtaken(bound)
    ends: list[tuple[float, str]] = []
    seen: set[str] = set()
    serial, run_s = 0, rng.choice([10.0, 60.0, 900.0])
    for step in range(400):
        if step in (20, 60, 100):
            c.submit(gang(f"wide-{step}", pods=8))
        while sum(not pod.spec.node_name for pod in c.pods.values()) < 28:
            n = rng.choice([1, 1, 1, 2])
            c.submit(gang(f"g{serial}", pods=n) if n > 1 else [make_pod(f"p{serial}")])
            serial += 1
        c.run()
        yield from judge.check(c.pods.values())
        new = [name for name, pod in ((p.metadata.name, p) for p in c.pods.values()) if pod.spec.node_name]
        new = [name for name in new if name not in seen]
        seen.update(new)
        ends = sorted([*ends, *((c.now_s + run_s * rng.uniform(0.3, 1.7), name) for name in new)])
        at_s, gone = ends.pop(0) if ends else (c.now_s + 1.0, "")
        c.wait(max(0.0, at_s - c.now_s))
        if gone:
            c.delete(gone).run()


def not_got_back(seed: int) -> Iterator[str]:
    """Two nodes; a queue that is guaranteed half comes late, others have filled a limit or the nodes."""
    rng = Random(f"{seed}-due")
    c = queued(TREE.replace("LIMIT", str(rng.choice([12, 14, 16]))), nodes=2)
    judge = Entitled({"a": 8, "b": 4}, 16, most_s=10.0)
    for k in range(60):
        namespace = rng.choice("bbc") if k < 20 else rng.choice("abc")
        # Borrowers can be evicted one by one: a gang that stops as a whole may be too much to lose.
        n = rng.choice([1, 1, 2, 4]) if namespace == "a" else 1
        more: dict[str, Any] = {"namespace": namespace, "priority": rng.choice([0, 0, 10])}
        c.submit(gang(f"g{k}", pods=n, **more) if n > 1 else [make_pod(f"p{k}", **more)]).run()
        c.wait(rng.uniform(0.0, 8.0))
        there = [pod.metadata.name for pod in c.pods.values() if pod.spec.node_name and rng.random() < 0.03]
        c.delete(*there).run()
        yield from judge.check(c.pods.values(), c.now_s)


@pytest.mark.parametrize("seed", [0, 1, 5])
@pytest.mark.parametrize("ours", ["", HARD], ids=["by default", "hard"])
def test_no_gang_is_overtaken_beyond_its_bound(ours: str, seed: int) -> None:
    assert not list(overtaken(seed, ours))


@pytest.mark.parametrize("seed", range(12))
def test_what_is_guaranteed_is_got_back_in_time(seed: int) -> None:
    assert not list(not_got_back(seed))


def test_a_core_that_counts_no_passes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bypasses, "refused", lambda self, *asked: None)
    assert any("bypass-bound: " in one for seed in range(3) for one in overtaken(seed))


def test_a_core_in_which_a_limit_comes_before_a_guarantee_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fairness, "may_admit_without", lambda self, *asked: False)
    assert any("guarantees-soon: " in one for seed in range(12) for one in not_got_back(seed))


def test_a_core_that_gets_nothing_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fairness, "eviction_rule", lambda self, *asked: None)
    assert any("guarantees-soon: " in one for seed in range(12) for one in not_got_back(seed))
