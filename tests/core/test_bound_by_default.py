"""Without a word in the configuration no gang starves; lone pods decide among themselves as before."""

from __future__ import annotations

import random

import pytest

from gangsched.lab.sim.objects import make_pod
from tests.core.queued import queued, reconfigured
from tests.support.scenario import Cluster, gang

OFF = "queueing: {bound: {mode: off}}"
LEAST = 64
"""Of `groups: auto`, where no more than eight groups run."""


def n_that_start_first(c: Cluster, name: str, run_s: float, most: int) -> int:
    """Submits a group that needs the whole node, then lone pods without end, which state no walltimes; there
    are always more of them than fit. Returns how many start before it, at most `most`."""
    rng = random.Random(f"{name}-{run_s}")
    first = [f"first-{k}" for k in range(8)]
    c.submit([make_pod(one) for one in first]).run()
    ends = [(c.now_s + run_s * (k + 1) / 8, one) for k, one in enumerate(first)]
    wide = gang(name, pods=8) if name == "wide" else [make_pod(f"{name}-0", gpus=8)]
    c.submit(wide).run()
    seen, serial = set(first), 0
    while len(seen) - 8 < most and not c.placed(name):
        n_waiting = sum(not pod.spec.node_name for pod in c.pods.values()) - len(wide)
        for _ in range(4 - n_waiting):
            c.submit(make_pod(f"later-{serial}"))
            serial += 1
        c.run()
        new = [one for one in c.bound() if one not in seen and not one.startswith(name)]
        seen.update(new)
        ends = sorted([*ends, *((c.now_s + run_s * rng.uniform(0.5, 1.5), one) for one in new)])
        at_s, gone = ends.pop(0) if ends else (c.now_s + 1.0, "")
        c.wait(max(0.0, at_s - c.now_s))
        if gone:
            c.delete(gone).run()
    return len(seen) - 8


@pytest.mark.parametrize("run_s", [30.0, 600.0, 7200.0])
def test_a_gang_of_eight_starts_behind_an_endless_stream_of_lone_pods(run_s: float) -> None:
    c = queued("")
    assert n_that_start_first(c, "wide", run_s, 400) <= LEAST + 8
    assert c.placed("wide")


def test_off_restores_what_was() -> None:
    c = queued(OFF)
    assert n_that_start_first(c, "wide", 30.0, 400) == 400
    assert c.scheduler.shared.queue.bypasses is None


def test_a_lone_pod_has_no_bound_of_its_own_and_gets_one_where_all_are_protected() -> None:
    assert n_that_start_first(queued(""), "large", 30.0, 200) == 200
    c = queued("queueing: {bound: {protects: all}}")
    assert n_that_start_first(c, "large", 30.0, 200) <= LEAST + 8
    assert c.placed("large")


def test_lone_pods_start_where_and_when_they_would_without_it() -> None:
    """With none but lone pods nothing is counted, and nothing is kept."""
    placed = []
    for ours in ("", OFF):
        rng, c = random.Random(7), queued(f"ties: roundRobin\n{ours}", nodes=3)
        for k in range(120):
            c.submit(make_pod(f"p{k}", gpus=rng.choice([1, 2, 4, 8]), priority=rng.choice([0, 0, 5]))).run()
            there = [one for one in c.bound() if rng.random() < 0.1]
            c.delete(*there).run().wait(rng.uniform(0.0, 5.0))
        placed.append({pod.metadata.name: pod.spec.node_name for pod in c.pods.values()})
        if not ours:
            assert c.bypasses().n_claimed == 0
    assert placed[0] == placed[1]


def test_it_is_turned_off_and_on_while_gangs_wait() -> None:
    c = queued("").submit(make_pod("holds", gpus=8)).run().submit(gang("wide", pods=8)).run()
    for ours in (OFF, "", "queueing: {bound: {mode: hard}}", OFF, ""):
        reconfigured(c, ours).run().wait(20.0)
    c.delete("holds").run().wait(20.0)
    assert c.placed("wide")
