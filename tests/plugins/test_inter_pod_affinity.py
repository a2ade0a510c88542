"""Near some pods and away from others; tests/differential compares case by case with kube-scheduler."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gangsched.core.framework.interface import SKIP, Change, ClusterChange
from gangsched.model.objects import Pod
from gangsched.plugins.neighbours.inter_pod_affinity import (
    REASON,
    REASON_ANTI,
    REASON_EXISTING,
    Args,
    InterPodAffinity,
)
from tests.core.test_pods_and_objects import labelled
from tests.plugins.build import Cluster, node

HOST = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def term(app: str, key: str = "zone", **more: Any) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}


def near(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {"podAffinity": {REQUIRED: list(terms)}}}


def away(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {"podAntiAffinity": {REQUIRED: list(terms)}}}


def rather(weight: int, one: dict[str, Any], kind: str = "podAffinity") -> dict[str, Any]:
    return {"affinity": {kind: {PREFERRED: [{"weight": weight, "podAffinityTerm": one}]}}}


def zones(*zones_of: str) -> Cluster:
    """Nodes n0, n1, … in these zones; "" is a node without the label."""
    return Cluster(
        *(
            node(f"n{i}", labels={HOST: f"n{i}"} | ({"zone": zone} if zone else {}))
            for i, zone in enumerate(zones_of)
        )
    )


def allowed(c: Cluster, one: Pod) -> list[str]:
    plugin, template = InterPodAffinity(), c.template(one)
    if plugin.pre_filter(c.state, template, c.view) is SKIP:
        return c.names(None)
    return c.names(plugin.filter(c.state, template, c.view))


def scores(c: Cluster, one: Pod, args: Args | None = None) -> list[float] | None:
    found = InterPodAffinity(args).score(c.state, c.template(one), c.view, np.arange(c.view.n_rows))
    return None if found is None else found.tolist()


def test_a_pod_without_statements_by_it_or_about_it_is_skipped() -> None:
    c = zones("a", "b")
    c.run(labelled("db", app="db", spec=away(term("web"))), on="n0")
    plugin = InterPodAffinity()
    assert plugin.pre_filter(c.state, c.template(labelled("x", app="x")), c.view) is SKIP
    assert plugin.pre_filter(c.state, c.template(labelled("w", app="web")), c.view) is not SKIP


def test_near_a_pod_is_its_whole_zone() -> None:
    c = zones("a", "a", "b", "")
    c.run(labelled("web", app="web"), on="n0")
    assert allowed(c, labelled("p", spec=near(term("web")))) == ["n0", "n1"]
    assert allowed(c, labelled("p", "other", spec=near(term("web")))) == [], (
        "another namespace's are not meant"
    )
    elsewhere = near(term("web", namespaces=["default"]))
    assert allowed(c, labelled("p", "other", spec=elsewhere)) == ["n0", "n1"]


def test_one_pod_has_to_match_all_terms() -> None:
    c = zones("a", "a")
    front = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"tier": "front"}}}
    c.run(labelled("1", app="web"), on="n0")
    c.run(labelled("2", tier="front"), on="n1")
    assert allowed(c, labelled("p", spec=near(term("web"), front))) == []
    c.run(labelled("3", app="web", tier="front"), on="n1")
    assert allowed(c, labelled("p", spec=near(term("web"), front))) == ["n0", "n1"]


def test_the_first_of_its_kind_may_go_anywhere_that_has_the_label() -> None:
    c = zones("a", "", "b")
    first = labelled("p", app="web", spec=near(term("web")))
    assert allowed(c, first) == ["n0", "n2"]
    c.run(labelled("q", app="web"), on="n2")
    assert allowed(c, first) == ["n2"]
    assert allowed(c, labelled("r", app="db", spec=near(term("cache")))) == []


def test_anti_affinity_holds_in_both_directions() -> None:
    c = zones("a", "a", "b", "")
    c.run(labelled("web", app="web"), on="n0")
    c.run(labelled("shy", app="shy", spec=away(term("web", HOST))), on="n2")
    assert allowed(c, labelled("p", spec=away(term("web")))) == ["n2", "n3"]
    assert allowed(c, labelled("w", app="web")) == ["n0", "n1", "n3"]
    one = c.template(labelled("w", app="web", spec=away(term("web", HOST))))
    found = {reason: c.names(rows) for reason, rows in InterPodAffinity().reasons(c.state, one, c.view)}
    assert found == {REASON_ANTI: ["n0"], REASON_EXISTING: ["n2"]}
    two = c.template(labelled("d", spec=near(term("db"))))
    [(reason, rows)] = InterPodAffinity().reasons(c.state, two, c.view)
    assert (reason, c.names(rows)) == (REASON, ["n0", "n1", "n2", "n3"])


def test_preferences_of_both_sides_are_weighed() -> None:
    c = zones("a", "b", "c")
    c.run(labelled("web", app="web"), on="n0")
    assert scores(c, labelled("p")) is None
    assert scores(c, labelled("p", spec=rather(10, term("web")))) == [100.0, 0.0, 0.0]
    assert scores(c, labelled("p", spec=rather(10, term("web"), "podAntiAffinity"))) == [0.0, 100.0, 100.0]
    c.run(labelled("1", spec=rather(30, term("x"))), on="n1")
    c.run(labelled("2", spec=near(term("x"))), on="n2")
    x = labelled("x", app="x")
    assert scores(c, x) == [0.0, 100.0, 3.0], "30 and the weight of a requirement, 1"
    assert scores(c, x, Args(hard_pod_affinity_weight=15)) == [0.0, 100.0, 50.0]
    assert scores(c, x, Args(ignore_preferred_terms_of_existing_pods=True)) is None


def test_a_weight_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match=r"hardPodAffinityWeight: 101 is not within 0\.\.100"):
        Args(hard_pod_affinity_weight=101)


def test_what_cures_a_rejection() -> None:
    c = zones("a")
    plugin = InterPodAffinity()
    wants = c.template(labelled("p", app="p", spec=near(term("web"))))
    shy = c.template(labelled("s", app="s", spec=away(term("web"))))
    web, other = labelled("w", app="web"), labelled("o", app="o")
    against = labelled("a", app="o", spec=away(term("p")))

    def cured(what: Change, pod: Pod, template: Any) -> bool:
        return plugin.cures(ClusterChange(what, 0, pod=pod), template, c.view)

    assert cured(Change.POD_ADDED, web, wants)
    assert not cured(Change.POD_ADDED, other, wants)
    assert not cured(Change.POD_ADDED, web, shy)
    assert cured(Change.ROOM_FREED, web, shy)
    assert not cured(Change.ROOM_FREED, other, shy)
    assert cured(Change.ROOM_FREED, against, wants)
    assert plugin.cures(ClusterChange(Change.OBJECT, kind="namespaces"), wants, c.view)
    assert not plugin.cures(ClusterChange(Change.OBJECT, kind="services"), wants, c.view)
    assert plugin.cures(ClusterChange(Change.NODE_ADDED, 0), wants, c.view)


def test_a_gang_that_prefers_to_be_apart_is_not_packed() -> None:
    c = zones("a")
    plugin = InterPodAffinity()
    web = c.template(labelled("w", app="web", spec=rather(1, term("web"), "podAntiAffinity")))
    friend = c.template(labelled("f", app="web", spec=rather(1, term("web"))))
    assert plugin.spreads(web, [web])
    assert not plugin.spreads(web, [c.template(labelled("d", app="db"))])
    assert not plugin.spreads(friend, [friend])


def test_of_pods_that_all_keep_away_from_all_of_them_a_node_takes_one_whichever_it_is() -> None:
    c = zones("a", "a", "b", "")
    lead, work = (
        labelled(f"{role}-0", app="x", role=role, spec=away(term("x"))) for role in ("lead", "work")
    )
    together = InterPodAffinity().together([c.template(lead), c.template(work)], c.view)
    assert together is not None
    assert together[:3].tolist() == [1, 1, 1]
    assert together[3] > 1000, "a node without the label is in nobody's zone"
    c.run(labelled("old", app="x"), "n2")
    taken = InterPodAffinity().together([c.template(lead), c.template(work)], c.view)
    assert taken is not None
    assert taken[:3].tolist() == [1, 1, 0]
    other = labelled("other-0", app="y", spec=away(term("x")))
    assert InterPodAffinity().together([c.template(lead), c.template(other)], c.view) is None


def test_pods_of_several_kinds_that_want_to_be_near_each_other_get_the_room_of_one_zone() -> None:
    c = zones("a", "a", "b", "b")
    room = np.array([2, 3, 4, 0])
    lead, work = (
        c.template(labelled(role, app="x", spec={**near(term("x")), "priority": i}))
        for i, role in enumerate(("lead", "work"))
    )
    plugin = InterPodAffinity()
    assert plugin.at_most_together([lead, work], c.view, room) == 5
    c.run(labelled("old", app="x"), "n3")
    assert plugin.at_most_together([lead, work], c.view, room) == 4
    other = c.template(labelled("other", app="y", spec=near(term("x"))))
    assert plugin.at_most_together([lead, other], c.view, room) == 9
    free = c.template(labelled("free", app="x"))
    assert plugin.at_most_together([lead, free], c.view, room) == 9
