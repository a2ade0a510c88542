"""What a turn costs is not the choice of whoever writes an object: elementary steps are counted, not seconds.

`python -m tests.hostile.turns` measures the CPU with 1.4 MB, 5,000 nodes and 50,000 pods.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import msgspec
import pytest

from gangsched.core.explaining.explain import explain
from gangsched.core.types.templates import spec_limits
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Pod
from tests.hostile.heavy import HEAVY, heavy_pod, pod_terms
from tests.hostile.owners import LONG, Long
from tests.hostile.turns import as_pod, measure_long, scheduler_of
from tests.support.inside import Inside
from tests.support.scenario import cluster

N_BYTES = 100_000
# A few lines of Python for each entry of a list, none for each entry and node or pod.
LINES_A_BYTE = 2.0
BESIDES = 100_000


def lines_of(work: Callable[[], object]) -> int:
    """How many lines of Python it runs: the same on every machine."""
    n = 0

    def count(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal n
        n += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(before)
    return n


@pytest.mark.parametrize("name", HEAVY)
def test_a_long_list_costs_steps_by_its_length_alone(name: str) -> None:
    scheduler = scheduler_of(60, 400)
    scheduler.handle([ev.PodAdded(as_pod(HEAVY["pod anti-affinity by ids"]("looks", 1_000)))], 1.0)
    pod = as_pod(HEAVY[name]("heavy", N_BYTES))
    good = as_pod(heavy_pod("good", namespace="team0"))
    effects: list[ef.Effect] = []

    def turns() -> None:
        scheduler.handle([ev.PodAdded(pod)], 2.0)
        while scheduler.schedule_next(2.0) is not None:
            pass
        group = Inside(scheduler).pod_info(pod.metadata.name).group
        assert group is not None
        explain(scheduler, group, 3.0)
        effects.extend(scheduler.handle([ev.PodAdded(good)], 4.0))
        while (answer := scheduler.schedule_next(4.0)) is not None:
            effects.extend(answer)
        scheduler.handle([ev.PodDeleted(pod)], 5.0)

    n_lines = lines_of(turns)
    assert n_lines < BESIDES + LINES_A_BYTE * N_BYTES, f"{name}: {n_lines:,} lines"
    assert "good" in [effect.name for effect in effects if isinstance(effect, ef.BindPod)]
    scheduler.validate()


@pytest.mark.parametrize("long", LONG, ids=str)
def test_a_long_object_of_a_gang_costs_steps_by_its_length_alone(long: Long) -> None:
    """Reading it, its turns and what is told of it; read from its text, as the watch does."""
    scheduler = scheduler_of(60, 400)
    good = as_pod(heavy_pod("good", namespace="team0"))
    effects: list[ef.Effect] = []

    def all_of_it() -> None:
        measure_long(scheduler, long, N_BYTES, 2.0)
        effects.extend(scheduler.handle([ev.PodAdded(good)], 600.0))
        while (answer := scheduler.schedule_next(600.0)) is not None:
            effects.extend(answer)

    n_made = lines_of(lambda: long.make("long", N_BYTES))
    n_lines = lines_of(all_of_it) - n_made
    assert n_lines < BESIDES + LINES_A_BYTE * N_BYTES, f"{n_lines:,} lines"
    assert "good" in [effect.name for effect in effects if isinstance(effect, ef.BindPod)]
    scheduler.validate()


LIMITS = {
    "node affinity Gt and NotIn": "spec.affinity.nodeAffinity: ",
    "node affinity preferred": "spec.affinity.nodeAffinity: ",
    "node affinity of many values": "spec.affinity.nodeAffinity: ",
    "node selector": "spec.nodeSelector: ",
    "pod anti-affinity": "spec.affinity: podAntiAffinity: ",
    "pod anti-affinity of many namespaces": "spec.affinity: podAntiAffinity: ",
    "pod anti-affinity of matchLabelKeys": "spec.affinity: podAntiAffinity: ",
    "pod anti-affinity preferred": "spec.affinity: podAntiAffinity: ",
    "pod affinity": "spec.affinity: podAffinity: ",
    "spread": "spec.topologySpreadConstraints: ",
    "tolerations": "spec.tolerations: ",
    "containers": "spec.containers: ",
    "resource names": "spec.containers.resources: ",
    "host ports": "spec.containers.ports: ",
    "claims": "spec.volumes: ",
    "RBD monitors": "spec.volumes.rbd.monitors: ",
}


@pytest.mark.parametrize("name", LIMITS)
def test_above_a_limit_a_pending_pod_is_refused_with_the_reason(name: str) -> None:
    c = cluster(nodes=3)
    c.submit(as_pod(HEAVY[name]("heavy", 200_000))).run()
    said = c.said("heavy")
    assert LIMITS[name] in said
    assert "at most" in said
    assert len(said) < 300
    assert not c.all(ef.BindPod)
    [group] = c.groups()
    told = explain(c.scheduler, group, c.now_s)
    assert LIMITS[name] in str(told)


def test_at_a_limit_a_pod_is_placed_by_all_that_it_asks() -> None:
    """As many requirements as may be: 999 of them exclude nobody, and one says where."""
    body = heavy_pod("long")
    wishes = [{"key": "number", "operator": "NotIn", "values": [f"v{i}"]} for i in range(999)]
    wishes.append({"key": "number", "operator": "Gt", "values": ["58"]})
    assert len(wishes) == spec_limits.MAX_NODE_REQUIREMENTS
    required = {"nodeSelectorTerms": [{"matchExpressions": wishes}]}
    body["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    scheduler = scheduler_of(60, 0)
    effects = scheduler.handle([ev.PodAdded(as_pod(body))], 1.0)
    effects += scheduler.schedule_next(1.0) or []
    assert [effect.node for effect in effects if isinstance(effect, ef.BindPod)] == ["n59"]


def bound(body: dict[str, Any], node: str, namespace: str) -> Pod:
    body["metadata"]["namespace"] = namespace
    body["spec"]["nodeName"] = node
    return msgspec.convert(body, Pod)


def about_all(i: int, k: int = 0) -> dict[str, Any]:
    wish = {"key": "app", "operator": "NotIn", "values": [f"v{k}-{i}"]}
    return {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchExpressions": [wish]},
        "namespaces": ["theirs"],
    }


def placed_beside(terms: Callable[[int], dict[str, Any]], n: int, namespace: str) -> str:
    """Where a pod of the namespace goes when one with `n` such terms stands on n0 of two nodes."""
    scheduler = scheduler_of(2, 0)
    body = pod_terms("podAntiAffinity", terms, n)("stands", 10**7)
    scheduler.handle([ev.PodAdded(bound(body, "n0", "own"))], 1.0)
    other = heavy_pod("other", namespace=namespace)
    other["spec"]["nodeSelector"] = {"number": "0"}
    effects = scheduler.handle([ev.PodAdded(as_pod(other))], 2.0)
    effects += scheduler.schedule_next(2.0) or []
    return "".join(effect.node for effect in effects if isinstance(effect, ef.BindPod))


def test_what_a_bound_pod_says_within_the_limits_holds_for_all_namespaces() -> None:
    assert placed_beside(about_all, spec_limits.MAX_POD_TERMS, "theirs") == ""
    assert placed_beside(about_all, spec_limits.MAX_POD_TERMS, "own") == "n0"


def test_what_it_says_beyond_them_keeps_its_own_namespace_away_and_nobody_else() -> None:
    def about_one(i: int) -> dict[str, Any]:
        term = about_all(i)
        operator = "NotIn" if i >= spec_limits.MAX_POD_TERMS else "In"
        term["labelSelector"] = {"matchExpressions": [{"key": "app", "operator": operator, "values": ["x"]}]}
        return {**term, "namespaces": [f"theirs{i}" if operator == "In" else "theirs"]}

    n = spec_limits.MAX_POD_TERMS + 50
    assert placed_beside(about_one, n, "theirs") == "n0", "what is above the limit is not asked of others"
    assert placed_beside(about_one, n, "own") == "", "its own namespace is kept away to be safe"
    assert placed_beside(about_one, n, "third") == "n0"


def test_a_bound_pod_above_the_limits_holds_what_it_holds() -> None:
    scheduler = scheduler_of(1, 0)
    body = HEAVY["pod anti-affinity"]("stands", 200_000)
    body["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "63"
    body["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    scheduler.handle([ev.PodAdded(bound(body, "n0", "own"))], 1.0)
    wide = heavy_pod("wide", namespace="theirs")
    wide["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2"
    port = heavy_pod("port", namespace="theirs")
    port["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    effects = scheduler.handle([ev.PodAdded(as_pod(wide)), ev.PodAdded(as_pod(port))], 2.0)
    while (answer := scheduler.schedule_next(2.0)) is not None:
        effects += answer
    assert not [effect for effect in effects if isinstance(effect, ef.BindPod)]
    scheduler.validate()


def test_many_bound_pods_terms_cost_a_new_template_a_few_steps_each() -> None:
    scheduler = scheduler_of(60, 100)
    for k in range(20):
        body = pod_terms("podAntiAffinity", partial(about_all, k=k), 2_000)(f"b{k}", 10**7)
        scheduler.handle([ev.PodAdded(bound(body, f"n{k}", "own"))], 1.0)
    new = as_pod(heavy_pod("new", namespace="theirs"))

    def turn() -> None:
        scheduler.handle([ev.PodAdded(new)], 2.0)
        scheduler.schedule_next(2.0)

    n_lines = lines_of(turn)
    assert n_lines < 40 * 20 * spec_limits.MAX_POD_TERMS, f"{n_lines:,} lines"
