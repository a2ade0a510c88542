"""Even over zones and nodes; tests/differential compares case by case with kube-scheduler."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from gangsched.core.cache.nodes.table import LabelColumn, NodeTable
from gangsched.core.framework.interface import SKIP, Change, ClusterChange
from gangsched.core.types.templates.spec_limits import MAX_POD_TERMS
from gangsched.model.objects import OwnerReference, Pod, Taint
from gangsched.model.workloads import ReplicaSet, Service
from gangsched.plugins.neighbours.pod_topology_spread import REASON, REASON_LABEL, PodTopologySpread
from gangsched.plugins.neighbours.spread_constraints import HOSTNAME, MAY, MUST, ZONE, Args, DefaultConstraint
from tests.core.test_pods_and_objects import labelled
from tests.plugins.build import Cluster, node


def over(key: str = ZONE, skew: int = 1, when: str = MUST, **more: Any) -> dict[str, Any]:
    selector = {"labelSelector": {"matchLabels": {"app": "web"}}}
    return {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": when, **selector, **more}


def web(*constraints: dict[str, Any], **spec: Any) -> Pod:
    return labelled("p", app="web", spec={"topologySpreadConstraints": list(constraints), **spec})


def zones(*zones_of: str, **more: Any) -> Cluster:
    return Cluster(
        *(
            node(f"n{i}", labels={HOSTNAME: f"n{i}"} | ({ZONE: zone} if zone else {}), **more)
            for i, zone in enumerate(zones_of)
        )
    )


def running(c: Cluster, *counts: int) -> None:
    for i, n in enumerate(counts):
        for k in range(n):
            c.run(labelled(f"{i}-{k}", app="web"), on=f"n{i}")


def allowed(c: Cluster, one: Pod) -> list[str]:
    plugin, template = PodTopologySpread(), c.template(one)
    assert plugin.pre_filter(c.state, template, c.view) is not SKIP
    return c.names(plugin.filter(c.state, template, c.view))


def scores(c: Cluster, one: Pod, args: Args | None = None) -> list[float] | None:
    plugin = PodTopologySpread(args)
    found = plugin.score(c.state, c.template(one), c.view, np.arange(c.view.n_rows))
    return None if found is None else found.tolist()


def test_a_zone_that_is_ahead_takes_none() -> None:
    c = zones("a", "a", "b", "c")
    running(c, 1, 1, 1, 1)
    assert allowed(c, web(over())) == ["n2", "n3"]
    assert allowed(c, web(over(skew=2))) == ["n0", "n1", "n2", "n3"]
    plugin = PodTopologySpread()
    assert plugin.pre_filter(c.state, c.template(web(over(when=MAY))), c.view) is SKIP
    assert plugin.pre_filter(c.state, c.template(labelled("x")), c.view) is SKIP


def test_nodes_without_the_label_and_nodes_that_are_ahead_have_their_reasons() -> None:
    c = zones("a", "b", "")
    running(c, 1, 0, 0)
    template = c.template(web(over()))
    found = {reason: c.names(rows) for reason, rows in PodTopologySpread().reasons(c.state, template, c.view)}
    assert found == {REASON_LABEL: ["n2"], REASON: ["n0"]}


def test_fewer_domains_than_wanted_count_as_empty_ones() -> None:
    c = zones("a", "b")
    running(c, 1, 1)
    assert allowed(c, web(over(minDomains=2))) == ["n0", "n1"]
    assert allowed(c, web(over(minDomains=3))) == []


def test_which_nodes_belong_to_a_domain() -> None:
    tainted = node("n2", labels={HOSTNAME: "n2", ZONE: "c"}, taints=[Taint("t", "", "NoSchedule")])
    c = zones("a", "b")
    c.put(tainted)
    running(c, 1, 1)
    assert allowed(c, web(over())) == ["n2"], "its taint is ignored unless it is honoured"
    assert allowed(c, web(over(nodeTaintsPolicy="Honor"))) == ["n0", "n1", "n2"]
    only: dict[str, Any] = {"nodeSelector": {ZONE: "a"}}
    assert "n0" in allowed(c, web(over(), **only)), "other zones are no domains of this pod"
    assert "n0" not in allowed(c, web(over(nodeAffinityPolicy="Ignore"), **only))


def test_match_label_keys_narrow_the_counted_pods() -> None:
    c = zones("a", "b")
    c.run(labelled("old", app="web", version="1"), on="n0")
    one = labelled("p", app="web", version="2", spec={"topologySpreadConstraints": [over()]})
    assert allowed(c, one) == ["n1"]
    keyed = {"topologySpreadConstraints": [over(matchLabelKeys=["version"])]}
    assert allowed(c, labelled("p", app="web", version="2", spec=keyed)) == ["n0", "n1"]


def test_pods_that_are_leaving_do_not_count() -> None:
    c = zones("a", "b")
    one = c.run(labelled("1", app="web"), on="n0")
    assert allowed(c, web(over())) == ["n1"]
    leaving = msgspec.convert({**msgspec.to_builtins(one.pod.metadata), "deletionTimestamp": _NOON}, _META)
    c.cache.renew(one, msgspec.structs.replace(one.pod, metadata=leaving))
    assert allowed(c, web(over())) == ["n0", "n1"]


_NOON = "2026-01-01T12:00:00Z"
_META = type(labelled("x").metadata)


def test_preferred_constraints_score_the_emptier_higher() -> None:
    c = zones("a", "b", "c", "")
    running(c, 2, 1, 0)
    found = scores(c, web(over(when=MAY)))
    assert found is not None
    assert found[2] == 100.0
    assert found[0] < found[1] < 100.0
    assert found[3] == 0.0, "it lacks the label"


def service(c: Cluster, **selector: str) -> None:
    body = {"metadata": {"name": "s", "namespace": "default"}, "spec": {"selector": selector}}
    one = msgspec.convert(body, Service)
    c.cache.objects.put("services", one)
    c.cache.index.selected.name("s", selector)


def test_pods_of_a_service_are_spread_by_default_and_pods_without_one_are_not() -> None:
    c = zones("a", "b")
    running(c, 1, 0)
    assert scores(c, labelled("p", app="web")) is None
    service(c, app="web")
    found = scores(c, labelled("p", app="web"))
    assert found is not None
    assert found[1] > found[0]
    assert scores(c, labelled("p", app="db")) is None
    assert scores(c, labelled("p", app="web"), Args((), "List")) is None


def test_pods_of_a_replica_set_are_spread_among_themselves() -> None:
    c = zones("a", "b")
    running(c, 0, 2)
    body = {
        "metadata": {"name": "rs", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
    }
    c.cache.objects.put("replicasets.apps", msgspec.convert(body, ReplicaSet))
    c.cache.index.selected.name("s", ["app"])
    one = labelled("p", app="web")
    owner = OwnerReference("apps/v1", "ReplicaSet", "rs", "u", True)
    owned = msgspec.structs.replace(
        one, metadata=msgspec.structs.replace(one.metadata, owner_references=[owner])
    )
    plugin = PodTopologySpread()
    assert plugin.sign(owned) != plugin.sign(one)
    found = scores(c, owned)
    assert found is not None
    assert found[0] > found[1]


def test_a_profile_may_demand_what_pods_do_not_say() -> None:
    c = zones("a", "b")
    running(c, 1, 0)
    service(c, app="web")
    plugin = PodTopologySpread(Args((DefaultConstraint(1, ZONE, MUST),), "List"))
    template = c.template(labelled("p", app="web"))
    assert plugin.pre_filter(c.state, template, c.view) is not SKIP
    assert c.names(plugin.filter(c.state, template, c.view)) == ["n1"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ((0, ZONE, MUST), r"defaultConstraints\[0\]\.maxSkew: 0 is not above 0"),
        ((1, "not a key!", MUST), r"defaultConstraints\[0\]\.topologyKey: 'not a key!' is not a label's key"),
        ((1, ZONE, "Maybe"), r"defaultConstraints\[0\]\.whenUnsatisfiable: 'Maybe' is not one of"),
    ],
)
def test_default_constraints_are_checked(given: tuple[int, str, str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Args((DefaultConstraint(*given),), "List")


def test_default_constraints_are_of_the_list_and_each_is_there_once() -> None:
    one = DefaultConstraint(1, ZONE, MUST)
    with pytest.raises(ValueError, match="cannot be combined with defaultConstraints; use List"):
        Args((one,), "System")
    with pytest.raises(ValueError, match="is given twice"):
        Args((one, one), "List")


def test_what_cures_a_rejection() -> None:
    c = zones("a")
    plugin, template = PodTopologySpread(), c.template(web(over()))

    def cured(what: Change, pod: Pod) -> bool:
        return plugin.cures(ClusterChange(what, 0, pod=pod), template, c.view)

    assert cured(Change.POD_ADDED, labelled("1", app="web"))
    assert cured(Change.ROOM_FREED, labelled("1", app="web"))
    assert not cured(Change.ROOM_FREED, labelled("1", app="db"))
    assert not cured(Change.POD_ADDED, labelled("1", "other", app="web"))
    assert plugin.cures(ClusterChange(Change.NODE_REMOVED), template, c.view)
    assert not plugin.cures(ClusterChange(Change.OBJECT, kind="namespaces"), template, c.view)


def test_a_gang_that_prefers_to_be_spread_is_not_packed() -> None:
    c = zones("a")
    plugin = PodTopologySpread()
    spread = c.template(web(over(when=MAY)))
    assert plugin.spreads(spread, [spread])
    assert not plugin.spreads(spread, [c.template(labelled("d", app="db"))])
    service(c, app="web")
    c.cache.settle(0.0)
    plain = c.template(labelled("p", app="web"))
    assert not plugin.spreads(plain, [plain]), "what the profile adds does not unpack gangs"


@pytest.mark.parametrize("when", [MUST, MAY])
def test_a_pod_with_as_many_constraints_as_may_be_costs_a_few_looks_at_each(
    monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Each used to look at the label of every other, and past 256 labels each look read every node again."""
    c, n = zones("a", "b"), MAX_POD_TERMS
    looks: list[str] = []
    look = NodeTable.label_column

    def counted(table: NodeTable, key: str) -> LabelColumn:
        looks.append(key)
        return look(table, key)

    monkeypatch.setattr(NodeTable, "label_column", counted)
    one = c.template(web(*(over(key=f"mine/{i}", when=when) for i in range(n))))
    plugin = PodTopologySpread()
    if when == MUST:
        assert not c.names(plugin.filter(c.state, one, c.view))
        ((reason, rows), *_) = plugin.reasons(c.state, one, c.view)
        assert (reason, c.names(rows)) == (REASON_LABEL, ["n0", "n1"])
    else:
        found = plugin.score(c.state, one, c.view, np.arange(c.view.n_rows))
        assert found is not None
        assert found.tolist() == [0.0, 0.0]
    assert len(looks) < 10 * n
    assert not c.cache.nodes.labels, "no node has one of them"


def test_pods_of_several_kinds_that_are_spread_alike_are_bound_together() -> None:
    c = zones("a", "b", "c")
    running(c, 0, 0, 1)
    room = np.array([1, 9, 9])
    lead, work = (c.template(web(over(), priority=i)) for i in range(2))
    plugin = PodTopologySpread()
    assert plugin.at_most_together([lead, work], c.view, room) == 1 + 2 + 1
    uneven = c.template(web(over(skew=2), priority=3))
    assert plugin.at_most_together([lead, uneven], c.view, room) == 19
    elsewhere = c.template(web(over(), priority=4, nodeSelector={ZONE: "b"}))
    assert plugin.at_most_together([lead, elsewhere], c.view, room) == 19
    uncounted = labelled("q", app="db", spec={"topologySpreadConstraints": [over()]})
    assert plugin.at_most_together([lead, c.template(uncounted)], c.view, room) == 19
