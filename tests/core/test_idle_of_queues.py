"""What claims keep idle is had lately by their queue, and by nobody else."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gangsched.core.cache.queues.tree import QUEUE_KEY
from gangsched.core.queueing.idle import IdleOfQueues
from gangsched.core.scheduler import Scheduler
from gangsched.lab.sim.objects import make_pod
from gangsched.model.dialects.numbers import GROUPS_KEY
from gangsched.model.walltime import WALLTIME_KEY
from tests.core.queued import GPU, pods, queued, reconfigured
from tests.support.inside import Inside
from tests.support.scenario import Cluster, gang, with_annotations

HALF_LIFE_S = 3600.0
QUEUES = """
fairness: {compare: [nvidia.com/gpu], halfLife: 1h}
queues:
- name: top
  queues:
  - {name: a, namespaces: [a]}
  - {name: b, namespaces: [b]}
"""
CLAIMING = "queueing: {bound: {groups: 1, mode: hard}}\n" + QUEUES


def claimed(ours: str = CLAIMING) -> Cluster:
    """One of two nodes is taken by b for two hours; the other is kept for a gang of a."""
    c = queued(ours, nodes=2)
    c.submit(with_annotations(pods("b", "long", gpus=8), {WALLTIME_KEY: "2h"})).run()
    large = gang("large", pods=2, gpus=8, namespace="a")
    c.submit(with_annotations(large, {WALLTIME_KEY: "1h"})).run()
    c.submit(with_annotations(pods("b", "passes", gpus=8), {WALLTIME_KEY: "10s"})).run()
    c.delete("passes").run().wait(15.0)
    c.submit(with_annotations(pods("b", "late", gpus=8), {WALLTIME_KEY: "9h"})).run()
    assert not c.pod("late").spec.node_name
    return c.wait(60.0)


def had(part: float, for_s: float) -> float:
    kept: float = 2.0 ** (-for_s / HALF_LIFE_S)
    return part * (1.0 - kept)


def lately(scheduler: Scheduler, queue: str, now_s: float) -> float:
    return Inside(scheduler).queue_book().decayed(queue, now_s)


def idle(c: Cluster) -> dict[str, int]:
    """By queue, of those without others below them."""
    return {name: c.queue_book()._uses[name].idle.get(GPU, 0) for name in ("a", "b")}


def test_what_is_idle_is_charged_to_the_queue_that_the_gang_names_by_now() -> None:
    c = claimed(CLAIMING.replace("namespaces: [b]", "namespaces: [b, 'a*']"))
    assert idle(c) == {"a": 8, "b": 0}
    for name in ("large-0", "large-1"):
        pod = c.pod(name)
        own = {**(pod.metadata.annotations or {}), QUEUE_KEY: "b"}
        c.update(pod, metadata=replace(pod.metadata, annotations=own))
    assert idle(c) == {"a": 0, "b": 8}


def test_of_gangs_that_start_together_each_is_charged_to_its_own_queue() -> None:
    c = queued(
        CLAIMING.replace("namespaces: [b]}", "namespaces: [b]}\n  - {name: c, namespaces: [c]}"), nodes=3
    )
    for k in range(2):
        c.submit(with_annotations(pods("c", f"long-{k}", gpus=8), {WALLTIME_KEY: "2h"})).run()
    own = {GROUPS_KEY: '["a/one", "b/two", "b/three"]', WALLTIME_KEY: "1h"}
    for namespace, name in (("a", "one"), ("b", "two"), ("b", "three")):
        c.submit(with_annotations(gang(name, pods=1, gpus=8, namespace=namespace), own))
    c.run().submit(with_annotations(pods("c", "passes", gpus=8), {WALLTIME_KEY: "10s"})).run()
    c.delete("passes").run().wait(15.0)
    c.submit(with_annotations(pods("c", "late", gpus=8), {WALLTIME_KEY: "9h"})).run()
    [kept] = c.claims().all
    [whose] = [one.info.pod.metadata.namespace for one in kept.held if one.node_name == "n2"]
    assert idle(c) == {"a": 0, "b": 0, whose: 8}
    c.drop_node("n2")
    assert idle(c) == {"a": 0, "b": 0}


def test_what_is_idle_is_what_the_gang_asks_for_by_now() -> None:
    c = claimed()
    for name in ("large-0", "large-1"):
        c.update(c.pod(name), spec=make_pod(name, gpus=4).spec)
    assert idle(c) == {"a": 4, "b": 0}


def test_a_queue_is_charged_for_the_node_that_its_claim_keeps_idle() -> None:
    c = claimed()
    before_s, before = c.now_s, lately(c.scheduler, "a", c.now_s)
    both = lately(c.scheduler, "top", c.now_s)
    c.wait(1200.0)
    rest = 2.0 ** (-(c.now_s - before_s) / HALF_LIFE_S)
    grown = had(0.5, c.now_s - before_s)
    assert lately(c.scheduler, "a", c.now_s) == pytest.approx(before * rest + grown, abs=1e-6)
    assert lately(c.scheduler, "top", c.now_s) == pytest.approx(both * rest + 2 * grown, abs=1e-6)
    assert (c.queue_book().dominant("a"), c.queue_book().dominant("b")) == (0.0, 0.5), "it holds nothing"
    assert not c.queue_book().used("a")


def test_room_that_somebody_fills_meanwhile_is_not_idle() -> None:
    c = claimed()
    c.submit(with_annotations(pods("b", "short", gpus=8), {WALLTIME_KEY: "30m"})).run()
    assert c.pod("short").spec.node_name
    before_s, before = c.now_s, lately(c.scheduler, "a", c.now_s)
    c.wait(1200.0)
    rest = 2.0 ** (-(c.now_s - before_s) / HALF_LIFE_S)
    assert lately(c.scheduler, "a", c.now_s) == pytest.approx(before * rest, abs=1e-6)


def test_it_ends_with_the_claim_and_with_the_setting() -> None:
    for end in ("gone", "off"):
        c = claimed()
        if end == "gone":
            c.delete("large-0", "large-1").run().wait(1.0)
        else:
            reconfigured(c, f"queueing: {{bound: {{mode: off}}}}\n{QUEUES}").wait(1.0)
        c.delete("late").run()
        before_s, before = c.now_s, lately(c.scheduler, "a", c.now_s)
        assert before > 0.0
        c.wait(1200.0)
        rest = 2.0 ** (-(c.now_s - before_s) / HALF_LIFE_S)
        assert lately(c.scheduler, "a", c.now_s) == pytest.approx(before * rest, abs=1e-6), end


def test_a_claim_whose_members_are_all_gone_is_charged_to_nobody() -> None:
    """For a moment it stands without any."""
    c = claimed()
    (one,) = c.claims().all
    one.held = ()
    idle = IdleOfQueues(c.view())
    before_s, before = c.now_s, lately(c.scheduler, "a", c.now_s)
    idle.charge(c.queue_book(), [one], 1, before_s)
    assert c.queue_book().decayed("a", before_s + HALF_LIFE_S) == pytest.approx(before / 2, abs=1e-6)
