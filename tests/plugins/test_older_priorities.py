"""SelectorSpread and NodePreferAvoidPods, which kube-scheduler had before 1.23."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest

from gangsched.config import parse_config
from gangsched.model.objects import OwnerReference, Pod
from gangsched.model.workloads import Service
from gangsched.plugins import IN_TREE, build_profiles
from gangsched.plugins.neighbours.selector_spread import SelectorSpread
from gangsched.plugins.nodes.node_prefer_avoid_pods import KEY, NodePreferAvoidPods
from tests.core.test_pods_and_objects import labelled
from tests.plugins.build import Cluster, node

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"


def served(*nodes: dict[str, str]) -> Cluster:
    """Nodes with these labels, and a service that selects app=web."""
    c = Cluster(*(node(f"n{i}", labels=labels) for i, labels in enumerate(nodes)))
    body = {"metadata": {"name": "s", "namespace": "default"}, "spec": {"selector": {"app": "web"}}}
    c.cache.objects.put("services", msgspec.convert(body, Service))
    c.cache.index.selected.name("s", ["app"])
    return c


def spread(c: Cluster, one: Pod) -> list[float] | None:
    found = SelectorSpread().score(c.state, c.template(one), c.view, np.arange(c.view.n_rows))
    return None if found is None else found.tolist()


def running(c: Cluster, *counts: int) -> None:
    for i, n in enumerate(counts):
        for k in range(n):
            c.run(labelled(f"{i}-{k}", app="web"), on=f"n{i}")


def test_without_zones_the_node_alone_counts() -> None:
    c = served({}, {}, {})
    web = labelled("p", app="web")
    assert spread(c, web) == [100.0, 100.0, 100.0]
    running(c, 3, 1, 0)
    assert spread(c, web) == [0.0, 66.0, 100.0]
    assert spread(c, labelled("p", app="db")) is None


def test_the_zone_counts_twice_as_much_as_the_node() -> None:
    c = served({ZONE: "a"}, {ZONE: "a"}, {ZONE: "b"}, {})
    running(c, 2, 0, 1, 0)
    # Nodes: 0, 100, 50, 100. Zones: a has 2 of 2, b has 1.
    assert spread(c, labelled("p", app="web")) == [0.0, 33.0, 50.0, 100.0]


def test_zones_of_one_name_in_two_regions_are_two_and_older_labels_count() -> None:
    old = ({OLD_ZONE: "a", REGION: "x"}, {OLD_ZONE: "c"})
    c = served({ZONE: "a", REGION: "x"}, {ZONE: "a", REGION: "y"}, *old)
    running(c, 1, 0, 0, 0)
    assert spread(c, labelled("p", app="web")) == [0.0, 100.0, 33.0, 100.0]


def test_a_pod_with_spread_constraints_of_its_own_is_not_scored() -> None:
    c = served({}, {})
    constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway"}
    own = labelled("p", app="web", spec={"topologySpreadConstraints": [constraint]})
    assert spread(c, own) is None


def avoiding(text: str) -> Cluster:
    plain, other = node("a"), node("b")
    meta = msgspec.structs.replace(other.metadata, annotations={KEY: text})
    return Cluster(plain, msgspec.structs.replace(other, metadata=meta))


def owned(kind: str, uid: str) -> Pod:
    one = labelled("p")
    owner = OwnerReference("apps/v1", kind, "rs", uid, True)
    meta = msgspec.structs.replace(one.metadata, owner_references=[owner])
    return msgspec.structs.replace(one, metadata=meta)


def avoided(c: Cluster, one: Pod) -> list[float] | None:
    found = NodePreferAvoidPods().score(c.state, c.template(one), c.view, np.arange(c.view.n_rows))
    return None if found is None else found.tolist()


def entry(kind: str, uid: str) -> str:
    controller = {"kind": kind, "uid": uid, "name": "rs", "apiVersion": "apps/v1", "controller": True}
    return json.dumps({"preferAvoidPods": [{"podSignature": {"podController": controller}, "reason": "r"}]})


def test_a_node_that_asks_not_to_get_a_controllers_pods() -> None:
    said = entry("ReplicaSet", "u1")
    assert avoided(avoiding(said), owned("ReplicaSet", "u1")) == [100.0, 0.0]
    assert avoided(avoiding(said), owned("ReplicaSet", "u2")) == [100.0, 100.0]
    assert avoided(avoiding(said), owned("Job", "u1")) is None
    assert avoided(avoiding(said), labelled("p")) is None
    plugin = NodePreferAvoidPods()
    assert plugin.sign(owned("ReplicaSet", "u1")) != plugin.sign(owned("ReplicaSet", "u2"))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"preferAvoidPods": 1}', '{"preferAvoidPods": [{}]}'])
def test_what_cannot_be_read_is_not_there(text: str) -> None:
    assert avoided(avoiding(text), owned("ReplicaSet", "u1")) == [100.0, 100.0]


def test_profiles_that_name_them_get_them_with_their_old_weights() -> None:
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    text = head + (
        "profiles: [{schedulerName: g, plugins:"
        " {score: {enabled: [{name: SelectorSpread}, {name: NodePreferAvoidPods}]}}}]"
    )
    profile = build_profiles(parse_config(text, source="x", plugins=IN_TREE))["g"]
    weights = {plugin.name: weight for plugin, weight in profile.scoring.scores}
    assert (weights["SelectorSpread"], weights["NodePreferAvoidPods"]) == (1.0, 10_000.0)
    plain = build_profiles(parse_config(head, source="x", plugins=IN_TREE))
    assert "SelectorSpread" not in {plugin.name for plugin, _ in next(iter(plain.values())).scoring.scores}
