"""What all pods of one turn ask together is bounded, whatever each of them may ask alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gangsched.core.explaining.explain import explain
from gangsched.core.types.templates import spec_limits
from gangsched.lab.sim.objects import GPU, RACK, make_pod
from gangsched.model import effects as ef
from gangsched.model.objects import Pod
from tests.core.test_turn_cost import lines_of
from tests.hostile.heavy import heavy_pod
from tests.support.scenario import Cluster, cluster

# Some lines of Python for each entry, none for each entry and node or pod.
LINES_AN_ENTRY = 200
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
Spec = Mapping[str, Any]


def spread(k: int, n: int) -> Spec:
    return {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": RACK,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": f"v{k}-{i}"}},
            }
            for i in range(n)
        ]
    }


def apart(k: int, n: int) -> Spec:
    terms = [{"topologyKey": RACK, "labelSelector": {"matchLabels": {"app": f"v{k}-{i}"}}} for i in range(n)]
    return {"affinity": {"podAntiAffinity": {REQUIRED: terms}}}


def nodes(k: int, n: int) -> Spec:
    wishes = [{"key": "number", "operator": "NotIn", "values": [f"v{k}-{i}"]} for i in range(n)]
    terms = {"nodeSelectorTerms": [{"matchExpressions": wishes}]}
    return {"affinity": {"nodeAffinity": {REQUIRED: terms}}}


def member(name: str, gang: str, spec: Spec, *, least: int, together: str = "") -> Pod:
    body = heavy_pod(name)
    body["metadata"]["labels"]["gangsched.io/pod-group"] = gang
    own = {"gangsched.io/min-members": str(least)}
    body["metadata"]["annotations"] = own | ({"gangsched.io/groups": together} if together else {})
    body["spec"] |= spec
    return msgspec.convert(body, Pod)


def gang(name: str, n: int, asks: Callable[[int], Spec], *, together: str = "") -> list[Pod]:
    return [member(f"{name}-{k}", name, asks(k), least=n, together=together) for k in range(n)]


def bound(c: Cluster) -> set[str]:
    return {effect.name for effect in c.all(ef.BindPod)}


ASKS = {
    "topologySpreadConstraints": (spread, spec_limits.MAX_POD_TERMS, spec_limits.MAX_UNIT_TERMS),
    "podAntiAffinity": (apart, spec_limits.MAX_POD_TERMS, spec_limits.MAX_UNIT_TERMS),
    "nodeAffinity": (nodes, spec_limits.MAX_NODE_REQUIREMENTS, spec_limits.MAX_UNIT_REQUIREMENTS),
}


@pytest.mark.parametrize("name", ASKS)
def test_a_gang_whose_members_each_ask_as_much_as_one_pod_may_is_refused(name: str) -> None:
    asks, of_one, most = ASKS[name]
    c = cluster(nodes=3, racks=3)
    members = gang("heavy", most // of_one + 1, lambda k: asks(k, of_one))
    n_lines = lines_of(lambda: c.submit(members).run())
    assert not bound(c)
    said = c.said("heavy-0")
    assert name in said
    assert "at most" in said
    [group] = c.groups()
    assert name in str(explain(c.scheduler, group, c.now_s))
    assert n_lines < LINES_AN_ENTRY * len(members) * of_one, f"{n_lines:,} lines"
    good = member("good-0", "good", {}, least=1)
    assert bound(c.submit([good]).run()) == {"good-0"}


def test_gangs_that_start_together_are_one_turn() -> None:
    c = cluster(nodes=3, racks=3)
    n = spec_limits.MAX_UNIT_TERMS // spec_limits.MAX_POD_TERMS // 2 + 1
    names = '["default/a", "default/b"]'
    for at, name in enumerate("ab"):
        c.submit(gang(name, n, lambda k, at=at: apart(100 * at + k, 100), together=names))  # type: ignore[misc]
    c.run()
    assert not bound(c)
    assert "all pods that start together ask too much" in c.said("a-0")


def test_many_members_with_the_same_few_terms_start() -> None:
    """Each has a request of its own, as with claims of its own, so no two are of one kind."""
    c = cluster(nodes=3, racks=3)
    n = spec_limits.MAX_UNIT_TERMS // 10 + 10
    same = {**spread(0, 5), **apart(1, 5)}

    def own(k: int) -> Spec:
        [main] = heavy_pod("p")["spec"]["containers"]
        return {**same, "containers": [{**main, "resources": {"requests": {"cpu": f"{k + 1}m"}}}]}

    c.submit(gang("fine", n, own)).run()
    assert len(bound(c)) == n


def test_a_refused_gang_starts_once_its_members_ask_less() -> None:
    c = cluster(nodes=3, racks=3)
    c.submit(gang("heavy", 21, lambda k: apart(k, 100))).run()
    assert not bound(c)
    c.delete("heavy-20").submit([member("heavy-21", "heavy", {}, least=21)]).run()
    assert len(bound(c)) == 21


def lines_of_a_search(n_terms: int, *, priority: int = 0) -> int:
    """Lines of Python of a turn in which eight members that keep apart find four racks, in no order; with a
    priority, of one that looks for victims."""
    c = cluster(nodes=8, racks=4)
    if priority:
        low = [make_pod(f"low-{k}", gpus=1) for k in range(64)]
        c.submit(low).run()
    members = []
    for k in range(8):
        others = [f"m{j}" for j in range(8) if j != k]
        pair = {"matchExpressions": [{"key": "me", "operator": "In", "values": others}]}
        spec = dict(apart(k, n_terms))
        terms = spec["affinity"]["podAntiAffinity"][REQUIRED]
        terms.insert(0, {"topologyKey": RACK, "labelSelector": pair})
        if priority:
            [main] = heavy_pod("p")["spec"]["containers"]
            asked = {"requests": {GPU: "1"}, "limits": {GPU: "1"}}
            spec |= {"priority": priority, "containers": [{**main, "resources": asked}]}
        made = member(f"x-{k}", "x", spec, least=8)
        labels = {**(made.metadata.labels or {}), "me": f"m{k}"}
        members.append(replace(made, metadata=replace(made.metadata, labels=labels)))
    n_lines = lines_of(lambda: c.submit(members).run())
    assert not {name for name in bound(c) if name.startswith("x-")}
    return n_lines


@pytest.mark.long
@pytest.mark.parametrize("priority", [0, 10], ids=["orders", "victims"])
def test_a_search_costs_about_the_same_whatever_each_look_costs(priority: int) -> None:
    short, long = lines_of_a_search(2, priority=priority), lines_of_a_search(90, priority=priority)
    assert long < 9 * short, f"{short:,} and {long:,} lines"
