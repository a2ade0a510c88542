"""What counting bypasses costs where no gang waits, as by default: work is counted, not time."""

from __future__ import annotations

from collections import Counter

import pytest

from gangsched.core.queueing.running_pods import RunningPods
from gangsched.core.queueing.walltimes import Walltimes
from gangsched.model import effects as ef
from gangsched.model.walltime import WALLTIME_KEY
from tests.core.queued import queued
from tests.support.scenario import gang


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a group's walltime is computed, and the ends of a node's pods are."""
    found: Counter[str] = Counter()
    asked, read = Walltimes._asked, RunningPods._read

    def asking(self: Walltimes, *args: object) -> object:
        found["walltimes"] += 1
        return asked(self, *args)  # type: ignore[arg-type]

    def reading(self: RunningPods, *args: object) -> None:
        found["rows"] += 1
        read(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Walltimes, "_asked", asking)
    monkeypatch.setattr(RunningPods, "_read", reading)
    return found


def test_where_no_gang_waits_no_walltime_and_no_end_is_computed(counts: Counter[str]) -> None:
    c = queued("", nodes=40)
    for k in range(40):
        c.submit(gang(f"g{k}", pods=2, gpus=4)).run()
    assert all(pod.spec.node_name for pod in c.pods.values())
    for k in range(40):
        c.delete(f"g{k}-0", f"g{k}-1").run()
    assert not counts


def test_while_a_gang_waits_the_ends_of_pods_are_followed(counts: Counter[str]) -> None:
    c = queued("", nodes=40)
    c.submit(gang("first", pods=2, gpus=8)).run()
    c.submit(gang("large", pods=40, gpus=8)).run()
    for k in range(40):
        c.submit(gang(f"g{k}", pods=2, gpus=2)).run()
    assert counts["rows"] > 0


def test_an_unreadable_walltime_is_reported_though_no_gang_waits(counts: Counter[str]) -> None:
    c = queued("", nodes=2)
    c.submit(gang("g", pods=2, gpus=4, annotations={WALLTIME_KEY: "soon"})).run()
    assert [e.reason for e in c.all(ef.RecordEvent)].count("WalltimeUnread") == 1
    assert counts["walltimes"] == 1
