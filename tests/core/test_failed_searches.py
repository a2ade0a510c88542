"""A search for victims that finds none serves all pods alike, until something that it reads has changed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from gangsched.core.groups.attempts import failed_searches
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.model import events as ev
from gangsched.model.objects import Condition
from tests.core.queued import pods, queued
from tests.support.scenario import Cluster, cluster, gang

FAIR = """
fairness: {reclaim: fair, compare: [nvidia.com/gpu]}
queues:
- {name: a, share: 1, namespaces: [a]}
- {name: b, share: 1, namespaces: [b]}
"""


def full(n_waiting: int = 50) -> Cluster:
    """A node full of important pods, beside a pod that is less important and too small to help."""
    c = cluster(nodes=1)
    c.submit(make_pod("low", gpus=1, priority=-1)).run()
    c.submit(make_pod("high", gpus=7, priority=100)).run()
    return c.submit(*[make_pod(f"w{i}", gpus=2) for i in range(n_waiting)]).run()


def searches(c: Cluster) -> int:
    return c.count("preemption_attempts")


def test_one_search_serves_all_pods_alike() -> None:
    c = full()
    assert searches(c) == 1
    assert c.count("preemption_answers_kept") == 49
    said = {c.said(f"w{i}").partition("preemption: ")[2] for i in range(50)}
    assert len(said) == 1, "and all are told the same"


def test_a_flush_of_all_that_wait_costs_a_search_a_minute() -> None:
    c = full(150)
    before, attempts = searches(c), c.count("attempts")
    c.wait(301.0)
    assert c.count("attempts") >= attempts + 150
    assert searches(c) - before <= 2


@pytest.mark.parametrize("what", ["priority", "template", "queue"])
def test_pods_that_differ_in_what_is_read_search_for_themselves(what: str) -> None:
    if what == "queue":
        c = queued(FAIR)
        c.submit(*pods("a", "a0", gpus=4), *pods("b", "b0", gpus=4)).run()
        c.submit(*pods("a", "a1", "a2", gpus=8), *pods("b", "b1", "b2", gpus=8)).run()
        assert searches(c) == 2
        return
    c = full(2)
    pod = make_pod("x", gpus=2, priority=1) if what == "priority" else make_pod("x", gpus=2, cpu="2")
    c.submit(pod).run()
    assert searches(c) == 2


def _labels(c: Cluster) -> None:
    node = c.nodes["n0"]
    c.node(replace(node, metadata=replace(node.metadata, labels={"a": "b"})))


def _heartbeat(c: Cluster) -> None:
    node = c.nodes["n0"]
    c.tell(ev.NodeUpdated(replace(node, metadata=replace(node.metadata, resource_version="77"))))


def _annotated(c: Cluster) -> None:
    pod = c.pod("high")
    c.update(pod, metadata=replace(pod.metadata, annotations={**(pod.metadata.annotations or {}), "x": "y"}))


def _status(c: Cluster) -> None:
    pod = c.pod("high")
    c.update(pod, status=replace(pod.status, conditions=[Condition(type="Ready", status="False")]))


CHANGES: dict[str, tuple[Callable[[Cluster], object], bool]] = {
    "a node comes": (lambda c: c.node(make_node("n1", gpus=1)), True),
    "a node's labels change": (_labels, True),
    "a pod ends": (lambda c: c.delete("low"), True),
    "a running pod is edited": (_annotated, True),
    "another pod starts": (lambda c: c.delete("low").submit(make_pod("s", gpus=1)).run(), True),
    "an object changes": (lambda c: c.tell(ev.ObjectGone("services", "d", "s", "s")), True),
    "a minute is over": (lambda c: c.wait(61.0), True),
    "a node's heartbeat": (_heartbeat, False),
    "a pod's conditions": (_status, False),
}


@pytest.mark.parametrize("what", CHANGES)
def test_an_answer_holds_until_something_that_it_read_has_changed(what: str) -> None:
    c = full(3)
    c.wait(1.0)
    before = searches(c)
    change, is_news = CHANGES[what]
    change(c)
    middle = searches(c)
    c.tell()
    c.scheduler.attempts.run(c.group("w0"))
    assert searches(c) - before >= 1 if is_news else searches(c) == before
    assert middle - before <= 1


def test_failed_searches_have_a_share_of_time_and_none_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pod is of another kind, so that each searches for itself."""
    monkeypatch.setattr(failed_searches, "NODES_A_SECOND", 0.5)
    c = full(0)
    before = searches(c)
    c.submit(*[make_pod(f"w{i}", gpus=2, cpu=f"{i + 1}m") for i in range(40)]).run()
    assert searches(c) - before == 5, "what was saved up"
    assert sum(str(failed_searches.LATER) in c.said(f"w{i}") for i in range(40)) == 35
    c.wait(20.0)
    assert searches(c) - before <= 16
    c.wait(120.0)
    assert not any(str(failed_searches.LATER) in c.said(f"w{i}") for i in range(40)), (
        "each has had its search"
    )
    c.delete("high").run().wait(10.0)
    assert sum(bool(c.pod(f"w{i}").spec.node_name) for i in range(40)) == 4


def test_no_namespace_uses_up_the_share_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_searches, "NODES_A_SECOND", 0.01)
    c = full(0)
    c.submit(*[make_pod(f"w{i}", gpus=2, cpu=f"{i + 1}m") for i in range(40)]).run()
    before = searches(c)
    c.submit(make_pod("other", namespace="e", gpus=2), make_pod("other2", namespace="e", gpus=3)).run()
    assert searches(c) == before + 1
    c.wait(75.0)
    assert str(failed_searches.LATER) not in c.said("other2")


def test_successful_searches_cost_nothing_of_the_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_searches, "NODES_A_SECOND", 0.01)
    c = cluster(nodes=4).submit(*[make_pod(f"low{i}", gpus=1) for i in range(32)]).run()
    c.submit(*[make_pod(f"high{i}", gpus=1, priority=1, cpu=f"{i + 1}m") for i in range(32)]).run().wait(5.0)
    assert all(c.pod(f"high{i}").spec.node_name for i in range(32))


def test_a_gang_searches_for_itself() -> None:
    c = full(0)
    before = searches(c)
    c.submit(gang("g", pods=2, gpus=4), gang("h", pods=2, gpus=4)).run()
    assert searches(c) - before == 2
