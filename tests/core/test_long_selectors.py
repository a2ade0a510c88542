"""Selectors of objects that a tenant creates beside its pods cost a turn what people write, and no more."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.workloads import PodDisruptionBudget, ReplicaSet, Service
from gangsched.plugins import default_preemption
from gangsched.plugins.default_preemption import BUDGETS
from tests.core.test_turn_cost import lines_of
from tests.hostile.heavy import heavy_pod
from tests.hostile.turns import as_pod, scheduler_of

N_LONG = 20_000
Json = dict[str, Any]


def long(n: int = N_LONG, k: int = 0) -> Json:
    """A selector that every pod matches, as long as an object may be."""
    wishes = [{"key": f"k{i}", "operator": "NotIn", "values": [f"v{k}"]} for i in range(n)]
    return {"matchExpressions": wishes}


def budget(name: str, namespace: str, selector: Json, *, allowed: int = 0) -> ev.Event:
    meta = {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}"}
    body = {"metadata": meta, "spec": {"selector": selector}, "status": {"disruptionsAllowed": allowed}}
    return ev.ObjectPut(BUDGETS, msgspec.convert(body, PodDisruptionBudget))


def running(namespace: str, name: str, node: str, *, cpu: str, **labels: str) -> ev.Event:
    body = heavy_pod(name, namespace=namespace)
    body["metadata"]["labels"] = {"app": name, **labels}
    body["spec"]["nodeName"] = node
    body["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
    return ev.PodAdded(as_pod(body))


def evicted_for_a_larger_pod(
    events: Iterable[ev.Event], *, n_nodes: int, cpu: str = "40"
) -> tuple[set[str], int]:
    """The victims of a more important pod, by name, and the lines of Python of its turn."""
    scheduler = scheduler_of(n_nodes, 0)
    scheduler.handle(list(events), 0.5)
    body = heavy_pod("high", namespace="theirs")
    body["spec"]["priority"] = 10
    body["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
    effects: list[ef.Effect] = []

    def turn() -> None:
        effects.extend(scheduler.handle([ev.PodAdded(as_pod(body))], 1.0))
        effects.extend(scheduler.schedule_next(1.0) or [])

    n_lines = lines_of(turn)
    return {one.name for one in effects if isinstance(one, ef.EvictPod | ef.DeletePod)}, n_lines


def test_a_long_budget_protects_its_namespace_and_is_not_compared() -> None:
    pods = [running("evil", f"e{k}", f"n{k % 2}", cpu="1") for k in range(60)]
    pods += [running("good", f"g{k}", "n2", cpu="1") for k in range(60)]
    budgets = [budget(f"b{k}", "evil", long(k=k)) for k in range(5)]
    victims, n_lines = evicted_for_a_larger_pod([*pods, *budgets], n_nodes=3)
    assert victims
    assert all(name.startswith("g") for name in victims), "the others are protected, as by an empty selector"
    assert n_lines < 3 * 5 * N_LONG, (
        f"{n_lines:,} lines: its length is counted, and nothing else done with it"
    )


def test_more_budgets_than_one_search_compares_protect_their_namespace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(default_preemption, "MAX_COMPARED", 10_000)
    pods = [running("evil", f"e{k}", f"n{k % 2}", cpu="1") for k in range(60)]
    pods += [running("good", f"g{k}", "n2", cpu="1") for k in range(60)]
    budgets = [budget(f"b{k}", "evil", long(1, k), allowed=99) for k in range(2_000)]
    victims, n_lines = evicted_for_a_larger_pod([*pods, *budgets], n_nodes=3)
    assert victims
    assert all(name.startswith("g") for name in victims)
    assert n_lines < 200_000, f"{n_lines:,} lines"


def test_many_short_budgets_protect_the_pods_that_they_select() -> None:
    pods = [running("own", f"a{k}", f"n{k % 2}", cpu="20", tier=f"t{k}") for k in range(6)]
    budgets = [
        budget(f"b{k}", "own", {"matchLabels": {"app": f"a{k}", "tier": f"t{k}"}}, allowed=int(k == 1))
        for k in range(6)
    ]
    victims, _ = evicted_for_a_larger_pod([*pods, *budgets], n_nodes=2, cpu="10")
    assert victims == {"a1"}


CONTROLLER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}


@pytest.mark.parametrize("kind", ["replicasets.apps", "services"])
def test_a_long_selector_of_a_service_or_controller_spreads_nothing(kind: str) -> None:
    scheduler = scheduler_of(60, 400)
    body = heavy_pod("own", namespace="team0")
    selector: Json = long()
    if kind == "services":
        selector = {f"k{i}": "v" for i in range(N_LONG)}
        body["metadata"]["labels"] |= selector
    else:
        body["metadata"]["ownerReferences"] = [CONTROLLER]
    form = Service if kind == "services" else ReplicaSet
    meta = {"name": "r", "namespace": "team0", "uid": "r"}
    item = msgspec.convert({"metadata": meta, "spec": {"selector": selector}}, form)
    scheduler.handle([ev.ObjectPut(kind, item)], 0.5)
    effects: list[ef.Effect] = []

    def turn() -> None:
        effects.extend(scheduler.handle([ev.PodAdded(as_pod(body))], 1.0))
        effects.extend(scheduler.schedule_next(1.0) or [])

    n_lines = lines_of(turn)
    assert [one.name for one in effects if isinstance(one, ef.BindPod)] == ["own"]
    assert n_lines < 10 * N_LONG, f"{n_lines:,} lines"
