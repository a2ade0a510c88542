"""The inventory as labels: written, kept short, changed from and to the annotation, refused aloud."""

from __future__ import annotations

import pytest

from gangsched.agent.kubelet_api import pod_pb2
from gangsched.agent.plugins.messages import pods_of_kubelet
from gangsched.agent.plugins.plan import planned_pod
from gangsched.agent.report.holders import Holders
from gangsched.agent.settings import AgentFlags, parse_settings
from gangsched.errors import ConfigError
from gangsched.model.devices.annotations import INVENTORY_KEY, Device
from gangsched.model.devices.labels import inventory_labels
from gangsched.model.events import PodAdded
from gangsched.model.objects import ObjectMeta, Pod
from tests.agent.virtual import GPU, Node, Virtual, devices, on_node

LISTED = "nvidia.com.devices.gangsched.io/gpu"
SICK = "nvidia.com.unhealthy-devices.gangsched.io/gpu"
ALLOCATED = "main.nvidia.com.allocated-devices.gangsched.io/gpu"
UUIDS = tuple(f"GPU-6f1c9a2e-b3d4-4c5f-8a1e-00000000000{k}" for k in range(4))


def agent(*ids: str, node: Node | None = None, in_labels: bool = True) -> Virtual:
    made = Virtual(node, in_labels=in_labels)
    made.all_pods_known()
    made.found(*devices(*ids))
    made.run()
    return made


def ours(a: Virtual) -> dict[str, str]:
    return {key: value for key, value in a.node.labels.items() if "gangsched.io" in key}


def test_the_list_is_a_label_and_health_another() -> None:
    a = agent("g0", "g1", "g2")
    assert ours(a) == {LISTED: "g0.g1.g2"}
    assert INVENTORY_KEY not in a.node.annotations
    a.found(*devices("g0", "g1", "g2", sick=("g1",)))
    a.run(2.0)
    assert ours(a) == {LISTED: "g0.g1.g2", SICK: "g1"}
    a.found(*devices("g0", "g1", "g2"))
    a.run(2.0)
    assert ours(a) == {LISTED: "g0.g1.g2"}, "the second label goes when all are healthy"
    n_writes = a.node.n_writes
    a.run(300.0)
    assert a.node.n_writes == n_writes, "what is there is not written again"


def test_one_that_vanishes_while_a_pod_holds_it_stays_listed_and_unhealthy() -> None:
    a = agent("g0", "g1")
    meta = ObjectMeta(name="p", namespace="default", uid="uid-p", labels={ALLOCATED: "g1"})
    a.pods(PodAdded(Pod(metadata=meta)))
    a.found(*devices("g0"))
    a.run(2.0)
    assert ours(a) == {LISTED: "g0.g1", SICK: "g1"}


def test_a_successor_takes_over_the_list_in_labels() -> None:
    node = agent("g0", "g1").node
    a = Virtual(node, in_labels=True)
    a.found(*devices("g0"))
    a.run()
    assert ours(a) == {LISTED: "g0.g1", SICK: "g1"}, "nobody knows yet who holds g1"
    a.all_pods_known()
    a.run(2.0)
    assert ours(a) == {LISTED: "g0"}


def test_from_the_annotation_to_labels_and_back_in_one_write_each() -> None:
    node = on_node("g0", "g1")
    a = agent("g0", "g1", node=node)
    assert (ours(a), INVENTORY_KEY in node.annotations, node.n_writes) == ({LISTED: "g0.g1"}, False, 1)
    b = agent("g0", "g1", node=node, in_labels=False)
    assert (ours(b), INVENTORY_KEY in node.annotations, node.n_writes) == ({}, True, 2)
    assert b.written == {"g0": "Healthy", "g1": "Healthy"}


def test_a_foreign_write_is_reported_and_overwritten() -> None:
    a = agent("g0", "g1")
    a.node.labels[LISTED] = "g0"
    a.node.revision += 1
    a.node.writer = "'kubectl' at noon"
    a.run(100.0)
    assert ours(a) == {LISTED: "g0.g1"}
    assert "….devices.gangsched.io/… was changed by 'kubectl' at noon, and is written anew" in a.said


def test_a_list_that_does_not_fit_is_refused_and_only_health_is_updated() -> None:
    a = agent("g0", "g1")
    many = [f"device-{k:02}" for k in range(20)]
    a.found(*devices("g0", "g1", *many, sick=("g1",)))
    a.run(2.0)
    assert ours(a) == {LISTED: "g0.g1", SICK: "g1"}, "a sick device is kept out all the same"
    [notice] = [one for one in a.notices if one.level == "error"]
    assert notice.reason == "DevicesNotListed"
    assert "nvidia.com/gpu: 22 IDs joined by '.' have 205 characters, a label at most 63" in notice.message
    assert "IDs of at most 1 character fit" in notice.message
    a.run(300.0)
    assert sum(one.level == "error" for one in a.notices) == 1, "said once"
    a.found(*devices("g0", "g1", "g2"))
    a.run(2.0)
    assert ours(a) == {LISTED: "g0.g1.g2"}
    assert "labels list the devices again" in a.said


def test_one_that_was_never_listed_is_listed_without_devices() -> None:
    """Else its pods would be placed by count, and get devices that nobody chose."""
    a = agent(*UUIDS)
    assert ours(a) == {LISTED: ""}
    assert "4 IDs joined by '.' have 163 characters" in a.said


def test_an_annotation_that_labels_cannot_say_stays_untouched() -> None:
    node = on_node(*UUIDS)
    before = dict(node.annotations)
    a = agent(*UUIDS, node=node)
    assert (node.annotations, ours(a), node.n_writes) == (before, {}, 0)
    assert "a label at most 63" in a.said


def test_the_pods_of_the_node_are_read_by_their_labels() -> None:
    meta = ObjectMeta(name="p", namespace="d", uid="u", labels={ALLOCATED: "g0.g1", "app": "x"})
    pod = Pod(metadata=meta)
    assert planned_pod(pod).planned == {"main": {GPU: frozenset({"g0", "g1"})}}
    message = pod_pb2.Pod(metadata=pod_pb2.ObjectMeta(uid="u", name="p", namespace="d", labels=meta.labels))
    [by_kubelet] = pods_of_kubelet([message.SerializeToString()])
    assert by_kubelet.planned == planned_pod(pod).planned
    holders = Holders()
    holders.apply([PodAdded(pod)])
    assert holders.holds(GPU, "g1")
    assert not holders.holds(GPU, "g2")


def test_the_setting_is_checked() -> None:
    def parsed(text: str) -> bool:
        head = "apiVersion: gangsched.io/v1\nkind: AgentConfiguration\nnodeName: n1\n"
        return parse_settings(head + text, source="agent.yaml", flags=AgentFlags(), environ={}).in_labels

    assert parsed("inventoryIn: labels")
    assert not parsed("inventoryIn: annotation")
    assert not parsed("")
    with pytest.raises(ConfigError, match=r"agent.yaml: inventoryIn: .*label.*labels"):
        parsed("inventoryIn: label")
    with pytest.raises(ConfigError, match="inventoryIn"):
        parsed("inventoryin: labels")


def test_labels_alone_are_enough_to_start_from() -> None:
    node = Node()
    node.labels |= inventory_labels({GPU: [Device("g0"), Device("g1", "Unhealthy")]})
    a = agent("g0", "g1", node=node)
    assert ours(a) == {LISTED: "g0.g1"}
