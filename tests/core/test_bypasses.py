"""Bypasses: whoever starts in front of a group that does not fit is counted; nothing else changes."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.config.queueing import QueueingSettings
from gangsched.core.queueing.bypasses import BUCKETS, Passed
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.model import effects as ef
from gangsched.model.objects import Pod
from tests.support.scenario import Cluster, cluster, gang


def counting(*, nodes: int = 2, gpus: int = 8, bound: int | None = 3, **more: Any) -> Cluster:
    settings = Settings(queueing=QueueingSettings(bound), **more)
    return cluster(nodes=nodes, gpus=gpus, settings=settings)


def passed(c: Cluster, name: str) -> Passed | None:
    return c.bypasses().count(c.group(name))


def count(c: Cluster, name: str) -> int:
    found = passed(c, name)
    assert found is not None
    return found.n


def in_zone(zone: str, *pods: Pod) -> list[Pod]:
    return [replace(pod, spec=replace(pod.spec, node_selector={"zone": zone})) for pod in pods]


def blocked(c: Cluster) -> Cluster:
    """A gang of both nodes waits for one pod on the first."""
    return c.submit(make_pod("holds", gpus=4)).run().submit(gang("large", pods=2, gpus=8)).run()


def stream(c: Cluster, n: int, *, first: int = 0) -> Cluster:
    """Lone pods of equal priority, one after the other, each gone before the next but one comes."""
    for k in range(first, first + n):
        c.submit(make_pod(f"small-{k}", gpus=4)).run()
        if k > first:
            c.delete(f"small-{k - 1}").run()
        c.wait(1.0)
    return c


def test_a_gang_behind_an_endless_stream_is_counted_and_says_when_it_reaches_its_bound() -> None:
    c = blocked(counting(bound=3))
    assert passed(c, "large") == Passed(0, 3, None)
    stream(c, 3)
    assert passed(c, "large") == Passed(3, 3, None)
    since_s = c.now_s
    stream(c, 1, first=3)
    assert passed(c, "large") == Passed(4, 3, since_s)
    assert (c.bypasses().n_claimed, c.bypasses().n_claimed_now(), c.bypasses().most()) == (1, 1, 4)
    stream(c, 2, first=4)
    assert c.bypasses().n_claimed == 1


@pytest.mark.parametrize(
    ("before", "after", "holds"), [(8, 2, 2), (2, 8, 8), (None, 5, 5), (5, None, 5), (100, None, 64)]
)
def test_another_bound_holds_for_who_waits_already(before: int | None, after: int | None, holds: int) -> None:
    c = stream(blocked(counting(bound=before)), 2)
    other = Settings(queueing=QueueingSettings(after))
    c.reconfigure(other)
    assert passed(c, "large") == Passed(2, holds, None)


def test_who_was_passed_more_often_than_another_bound_would_be_claimed_from_then_on() -> None:
    c = stream(blocked(counting(bound=8)), 4)
    c.reconfigure(Settings(queueing=QueueingSettings(2)))
    assert passed(c, "large") == Passed(4, 2, c.now_s)
    assert c.bypasses().n_claimed == 1


def test_a_gang_of_eight_behind_an_endless_stream_would_be_claimed_at_the_sixty_fifth() -> None:
    c = counting(nodes=8, gpus=1, bound=None)
    names = [f"first-{k}" for k in range(8)]
    c.submit([make_pod(name, gpus=1) for name in names]).run()
    c.submit(gang("large", pods=8, gpus=1)).run()
    for k in range(100):
        c.submit(make_pod(f"next-{k}", gpus=1))
        c.delete(names.pop(0)).run()
        names.append(f"next-{k}")
        c.wait(8.0)
    assert c.untouched("large")
    found = passed(c, "large")
    assert found is not None
    assert (found.n, found.bound) == (100, 64)
    assert found.claimed_s is not None


def test_groups_that_take_nothing_that_it_lacks_do_not_pass_it() -> None:
    c = blocked(counting())
    c.submit(make_pod("cpu-only", gpus=0)).run()
    assert c.pod("cpu-only").spec.node_name
    assert count(c, "large") == 0


def test_groups_that_go_where_it_may_not_do_not_pass_it() -> None:
    c = counting(nodes=0)
    for name, zone in (("n0", "a"), ("n1", "a"), ("n2", "b")):
        node = make_node(name, gpus=8)
        labels = {**(node.metadata.labels or {}), "zone": zone}
        c.node(replace(node, metadata=replace(node.metadata, labels=labels)))
    c.submit(in_zone("a", make_pod("holds", gpus=8))).run()
    c.submit(in_zone("a", *gang("large", pods=2, gpus=8))).run()
    c.submit(in_zone("b", make_pod("elsewhere", gpus=4))).run()
    assert count(c, "large") == 0
    node = c.nodes["n2"]
    c.node(replace(node, metadata=replace(node.metadata, labels={"zone": "a"})))
    c.submit(make_pod("here", gpus=1)).run()
    assert count(c, "large") == 1


@pytest.mark.parametrize(("priority", "n"), [(-1, 1), (0, 1), (1, 0)])
def test_a_higher_priority_does_not_count(priority: int, n: int) -> None:
    c = blocked(counting(allow_eviction=False))
    c.submit(make_pod("other", gpus=4, priority=priority)).run()
    assert c.pod("other").spec.node_name
    assert count(c, "large") == n


def test_groups_ahead_of_it_in_line_do_not_pass_it() -> None:
    c = blocked(counting())
    c.submit(gang("ahead", pods=2, gpus=6)[:1])
    c.now_s += 1
    c.submit(gang("behind", pods=2, gpus=8)).run()
    assert count(c, "behind") == 0
    c.submit(make_pod("last", gpus=1)).run()
    assert (count(c, "large"), count(c, "behind")) == (1, 1)
    c.submit(gang("ahead", pods=2, gpus=6)[1]).run()
    c.delete("holds", "last").run().wait(15.0)
    assert c.placed("large")


def test_a_group_that_could_never_fit_is_not_counted() -> None:
    c = counting().submit(gang("huge", pods=3, gpus=8)).run()
    c.submit(make_pod("small", gpus=1)).run()
    assert count(c, "huge") == 0
    c.node(make_node("n2", gpus=8)).run().wait(15.0)
    c.submit(make_pod("next", gpus=1)).run()
    assert count(c, "huge") == 1


def test_the_count_is_kept_through_gates_and_failed_binds_and_ends_with_the_start() -> None:
    c = stream(blocked(counting(bound=1)), 2)
    assert count(c, "large") == 2
    c.answer = lambda bind: "409" if bind.group.endswith("large") else "ok"
    c.delete("holds", "small-1").run()
    assert c.untouched("large")
    assert count(c, "large") == 2
    c.answer = lambda bind: "ok"
    c.wait(30.0)
    assert c.placed("large", on=2)
    assert passed(c, "large") is None
    assert c.bypasses().at_start[BUCKETS.index(2)] == 1
    assert (c.bypasses().total_at_start, c.bypasses().most()) == (2, 0)


def test_a_gang_that_is_gone_is_not_counted_on() -> None:
    c = stream(blocked(counting()), 1)
    c.delete("large-0", "large-1").run()
    assert c.bypasses().most() == 0
    assert sum(c.bypasses().at_start) == 0


def test_the_bound_follows_how_many_run_when_it_is_refused_first() -> None:
    c = counting(nodes=2, gpus=16, bound=None)
    c.submit([make_pod(f"runs-{k}", gpus=1) for k in range(20)]).run()
    c.submit(gang("large", pods=2, gpus=16)).run()
    assert passed(c, "large") == Passed(0, 160, None)
    c.delete(*(f"runs-{k}" for k in range(10))).run().wait(15.0)
    assert passed(c, "large") == Passed(0, 160, None)


def test_a_bound_that_is_derived_from_a_reload_on_follows_how_many_run_by_then() -> None:
    c = counting(nodes=2, gpus=16, bound=1000)
    c.submit([make_pod(f"runs-{k}", gpus=1) for k in range(20)]).run()
    c.submit(gang("large", pods=2, gpus=16)).run()
    for bound, n_gone, holds in ((None, 10, 160), (1000, 0, 1000), (None, 0, 80)):
        other = Settings(queueing=QueueingSettings(bound))
        c.reconfigure(other)
        assert passed(c, "large") == Passed(0, holds, None)
        c.delete(*(f"runs-{k}" for k in range(n_gone)))


def test_the_same_happens_as_without_counting() -> None:
    binds = []
    for settings in (Settings(), Settings(queueing=QueueingSettings(1))):
        c = stream(blocked(cluster(nodes=2, settings=settings)), 6)
        c.delete("holds").run().wait(30.0)
        binds.append([(bind.name, bind.node) for bind in c.all(ef.BindPod)])
    assert binds[0] == binds[1]
    assert binds[0]


def test_without_queueing_nothing_is_counted() -> None:
    c = blocked(cluster(nodes=2))
    assert c.scheduler.shared.queue.bypasses is None
    assert c.scheduler.shared.walltimes is None
