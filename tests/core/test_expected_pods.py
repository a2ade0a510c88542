"""Pods that are yet to come, since their victims have not gone: they keep their room, and are nobody's
neighbours before they are there. kube-scheduler asks its filters with and without them (1.37
`framework/runtime/framework.go`, RunFilterPluginsWithNominatedPods)."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.model.objects import TopologySpreadConstraint
from tests.core.test_gangs_and_pods import HOST, RACK, nodes_of, saying, terms
from tests.support.scenario import Cluster


def one_to_come() -> Cluster:
    """Each node is a rack, and only n0 has devices: there the pod `web` waits until a lesser one has gone."""
    c = Cluster()
    c.evictions = "slow"
    for name, gpus in (("n0", 8), ("n1", 0)):
        one = make_node(name, gpus=gpus)
        labels = {HOST: name, RACK: f"r-{name}"}
        c.node(replace(one, metadata=replace(one.metadata, labels=labels)))
    c.submit(make_pod("low", gpus=8)).run()
    c.submit(saying([make_pod("web", gpus=4, priority=10)], app="web")).run()
    assert c.state("web") == "waiting"
    return c


def test_a_pod_goes_near_nobody_who_waits_for_victims() -> None:
    c = one_to_come()
    [near] = saying([make_pod("near", gpus=0)], app="x", affinity=terms("podAffinity", "web", RACK))
    c.submit(near).run().wait(15.0)
    assert c.state("near") == "unschedulable"
    assert "2 node(s) didn't match pod affinity rules" in c.said("near")
    c.delete("low").run()
    assert nodes_of(c, "near") == nodes_of(c, "web") == ["n0"]


def test_a_pod_keeps_off_where_one_is_to_come_that_it_must_not_meet() -> None:
    c = one_to_come()
    [shy] = saying([make_pod("shy", gpus=0)], app="x", affinity=terms("podAntiAffinity", "web", RACK))
    c.submit(shy).run()
    assert nodes_of(c, "shy") == ["n1"]


def test_the_first_of_a_kind_goes_where_one_of_it_is_to_come() -> None:
    c = one_to_come()
    [first] = saying([make_pod("first", gpus=0)], app="web", affinity=terms("podAffinity", "web", RACK))
    c.submit(first).run()
    assert nodes_of(c, "first") == ["n0"]


def test_who_is_to_come_does_not_make_room_for_one_more_elsewhere() -> None:
    constraint = {
        "maxSkew": 1,
        "topologyKey": RACK,
        "whenUnsatisfiable": "DoNotSchedule",
        "nodeAffinityPolicy": "Ignore",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    even = [msgspec.convert(constraint, TopologySpreadConstraint)]
    c, pods = one_to_come(), [make_pod(f"even-{k}", gpus=0) for k in range(2)]
    on_n1 = {"topology_spread_constraints": even, "node_selector": {HOST: "n1"}}
    c.submit(saying(pods[:1], app="web", **on_n1)).run()
    assert nodes_of(c, "even-0") == ["n1"]
    c.submit(saying(pods[1:], app="web", **on_n1)).run().wait(15.0)
    assert c.state("even-1") == "unschedulable", "one on each, once the other is there"
    c.delete("low").run()
    assert nodes_of(c, "even-1") == ["n1"]
