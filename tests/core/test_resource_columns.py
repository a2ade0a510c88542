"""Resource names cost a column of memory on each node: who can make one, and what is freed."""

from __future__ import annotations

import json

from msgspec.structs import replace

from gangsched.core.types.cluster_events import Change
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.model.devices.annotations import (
    ALLOCATED_KEY,
    INVENTORY_KEY,
    ids_of,
    parse_allocation,
    parse_inventory,
)
from gangsched.model.devices.links import MAX_LINKED
from gangsched.model.objects import Node, NodeStatus, ObjectMeta, Pod
from gangsched.model.resources import MAX_RESOURCES
from tests.core.test_unreadable_fields import NODE, Edge
from tests.plugins.build import Cluster as Nodes
from tests.support.scenario import cluster

GPU = "nvidia.com/gpu"


def offering(name: str, *resources: str, amount: int = 8) -> Node:
    offered: dict[str, str | int | float] = {"cpu": 64, "pods": 110, **dict.fromkeys(resources, amount)}
    return Node(ObjectMeta(name=name, uid=f"uid-{name}"), status=NodeStatus(allocatable=offered))


def asking(name: str, resource: str, amount: int = 1) -> Pod:
    pod = make_pod(name)
    [container] = pod.spec.containers
    assert container.resources is not None
    resources = replace(container.resources, requests={resource: amount}, limits=None)
    return replace(pod, spec=replace(pod.spec, containers=[replace(container, resources=resources)]))


def running(name: str, allocated: str) -> Pod:
    pod = make_pod(name, annotations={ALLOCATED_KEY: allocated})
    return replace(pod, spec=replace(pod.spec, node_name="n0"))


INVENTED = [f"invented.com/r{i}" for i in range(5000)]


def test_invented_names_of_a_node_take_nothing_from_what_pods_request() -> None:
    c = Nodes()
    _, problem = c.cache.put_node(offering("bad", *INVENTED))
    assert "4748 resource names not counted (invented.com/r252, " in problem.replace(",", "", 1)
    assert len(c.cache.table) == MAX_RESOURCES
    assert c.cache.put_node(offering("good", GPU))[1].startswith("status.allocatable: 1 resource name not")
    template = c.template(asking("p", GPU))
    assert template.missing == ()
    info = c.run(asking("p", GPU), on="good")
    column = c.cache.table.column(GPU)
    assert c.cache.nodes.free[column].tolist()[:2] == [0, 7]
    c.cache.forget(info)
    assert c.cache.nodes.free[column].tolist()[:2] == [0, 8]
    assert len(c.cache.table) == MAX_RESOURCES


def test_names_that_no_node_offers_any_more_give_their_columns_up() -> None:
    c = Nodes()
    for start in range(0, 2000, 200):
        _, problem = c.cache.put_node(offering("n", *INVENTED[start : start + 200]))
        assert not problem
    assert len(c.cache.table) == MAX_RESOURCES
    assert c.cache.nodes.allocatable.shape[0] <= MAX_RESOURCES + 4
    held = [name for name in INVENTED if name in c.cache.table]
    assert set(INVENTED[1800:2000]) <= set(held)


def test_a_column_of_a_running_pod_is_never_given_to_another_name() -> None:
    c = Nodes()
    c.cache.put_node(offering("n", INVENTED[0]))
    info = c.run(asking("p", INVENTED[0], 3), on="n")
    column = c.cache.table.column(INVENTED[0])
    c.cache.put_node(offering("n", *INVENTED[1:]))
    assert c.cache.table.names[column] == INVENTED[0]
    assert c.cache.nodes.free[column, 0] == -3
    c.cache.forget(info)
    assert c.cache.nodes.free[column, 0] == 0


def test_a_waiting_pod_starts_when_its_resource_comes_after_thousands_of_others() -> None:
    c = cluster(nodes=0).node(offering("bad", *INVENTED)).submit(asking("p", "late.com/r")).run()
    assert not c.pod("p").spec.node_name
    c.node(offering("good", "late.com/r")).wait(60)
    assert c.pod("p").spec.node_name == "good"
    c.scheduler.validate()


def test_a_pod_starts_by_a_resource_that_was_not_counted_until_it_came() -> None:
    c = cluster(nodes=0).node(offering("bad", *INVENTED)).node(offering("good", "late.com/r"))
    c.submit(asking("p", "late.com/r")).run()
    assert c.pod("p").spec.node_name == "good"


def test_a_pod_is_cured_by_a_column_that_its_resource_gets_late() -> None:
    c = Nodes()
    c.cache.put_node(offering("bad", *INVENTED))
    c.cache.put_node(offering("good", "late.com/r"))
    assert "late.com/r" not in c.cache.table
    c.cache.remove_node("bad")
    changes, problem = c.cache.put_node(offering("other", "late.com/r"))
    assert not problem
    assert (Change.NODE_ALLOCATABLE, frozenset({"late.com/r"})) in [
        (one.what, one.resources) for one in changes
    ]


def test_a_list_of_thousands_of_resources_is_refused() -> None:
    edge = Edge()
    text = json.dumps({name: [{"id": "x"}] for name in INVENTED})
    edge.show("ADDED", NODE | {"metadata": {**NODE["metadata"], "annotations": {INVENTORY_KEY: text}}})  # type: ignore[dict-item]
    ledger = edge.c.ledger()
    assert list(ledger.columns) == [GPU]  # what it offers is listed with none free
    assert any("lists 5000 resources, at most 64" in one for one in map(str, edge.c.effects))


def test_a_listed_resource_costs_a_few_words_until_a_pod_requests_it() -> None:
    c = Nodes()
    for n in range(100):
        names = INVENTED[n * 50 : n * 50 + 50]
        text = json.dumps({name: [{"id": f"x{k}"}] for k, name in enumerate(names)})
        node = offering(f"n{n}")
        c.cache.put_node(replace(node, metadata=replace(node.metadata, annotations={INVENTORY_KEY: text})))
    columns = c.cache.ledger.columns
    assert len(columns) == 5000
    assert not [name for name, column in columns.items() if column._arrays is not None]
    for name in INVENTED:
        assert columns[name].free.max() == 1
    assert len([name for name, column in columns.items() if column._arrays is not None]) <= 256
    for n in range(100):
        c.cache.put_node(offering(f"n{n}"))
    assert not columns


def test_devices_named_by_a_pod_leave_with_it() -> None:
    text = json.dumps({"main": {name: ["x"] for name in INVENTED[:60]}})
    c = cluster(nodes=1)
    before = dict(c.ledger().columns)
    c.submit(running("p", text)).run()
    assert len(c.ledger().columns) == len(before) + 60
    c.delete("p")
    assert c.ledger().columns == before


def test_an_allocation_of_thousands_of_resources_or_devices_is_refused() -> None:
    for text in (
        {"main": {name: ["x"] for name in INVENTED}},
        {"main": {GPU: [str(i) for i in range(5000)]}},
    ):
        c = cluster(nodes=1)
        c.submit(running("p", json.dumps(text))).run()
        assert list(c.ledger().columns) == [GPU]
        assert not c.ledger().holders(0, GPU)


def test_the_same_devices_in_two_containers_are_merged_in_their_order() -> None:
    ids = [str(i) for i in range(4000)]
    allocation = parse_allocation(json.dumps({"init": {GPU: ids}, "main": {GPU: [*ids[::-1], "z"]}}))
    assert ids_of(allocation) == {GPU: (*ids, "z")}


def test_weights_of_one_list_are_bounded() -> None:
    devices = [{"id": str(i), "numa": i % 2, "memoryMiB": i} for i in range(MAX_LINKED)]
    listed = parse_inventory(json.dumps({f"r{i}/x": devices for i in range(12)}))
    weights = {id(row) for one in listed.values() for row in one.topology.weight}
    assert len(weights) <= 4 * MAX_LINKED + 12


def test_a_node_is_as_before_when_its_names_are_few_again() -> None:
    c = cluster(nodes=0).node(offering("n", *INVENTED))
    c.node(make_node("n", uid="uid-n")).submit(make_pod("p", gpus=8)).run()
    assert c.pod("p").spec.node_name == "n"
