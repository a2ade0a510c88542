"""Devices in labels: read, given, refused before anything is bound, kept over a restart, and audited."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.config.devices import DeviceSettings
from gangsched.lab.sim.objects import GPU, make_node, make_pod
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.devices.annotations import (
    ALLOCATED_KEY,
    INVENTORY_KEY,
    VISIBLE_KEY,
    Device,
    inventory_annotation,
)
from gangsched.model.devices.labels import allocated_labels, inventory_labels
from gangsched.model.objects import Container, Node, Pod, ResourceRequirements
from tests.support.scenario import Cluster, gang, with_annotations

KEY = "main.nvidia.com.allocated-devices.gangsched.io/gpu"


def labelled(*, repair: bool = False, on_failure: Literal["none", "evictMember"] = "none") -> Cluster:
    settings = DeviceSettings(allocation_in="labels", repair=repair, on_failure=on_failure)
    return Cluster(Settings(devices=settings))


def node(name: str, *ids: str, sick: tuple[str, ...] = ()) -> Node:
    """A node whose devices are in labels."""
    made = make_node(name, gpus=len(ids), listed=False)
    devices = [Device(one, "Unhealthy" if one in sick else "Healthy") for one in ids]
    labels = {**(made.metadata.labels or {}), **inventory_labels({GPU: devices})}
    return replace(made, metadata=replace(made.metadata, labels=labels))


def device_labels(c: Cluster, name: str) -> dict[str, str]:
    return allocated_labels(c.pod(name).metadata.labels)


def test_ids_come_with_the_binding_as_labels_and_nothing_of_them_as_annotations() -> None:
    c = labelled().node(node("n0", "g0", "g1", "g2", "g3"))
    c.submit(gang("a", pods=2, gpus=2)).run()
    assert c.placed("a", on=1)
    assert {device_labels(c, f"a-{k}")[KEY] for k in (0, 1)} == {"g0.g1", "g2.g3"}
    for bind in c.all(ef.BindPod):
        assert not {ALLOCATED_KEY, VISIBLE_KEY} & {*bind.annotations}
        assert bind.annotations["gangsched.io/gang"] == "d/a"
    c.five_more_turns_change_nothing()


def test_by_default_a_node_with_labels_is_read_and_pods_get_annotations() -> None:
    c = Cluster().node(node("n0", "g0", "g1", sick=("g0",)))
    c.submit(make_pod("x", gpus=1)).run()
    (bind,) = c.all(ef.BindPod)
    assert c.ids("x") == {"g1"}
    assert ALLOCATED_KEY in bind.annotations
    assert not bind.labels


def test_the_books_are_made_again_from_labels_after_a_restart() -> None:
    c = labelled().node(node("n0", "g0", "g1", "g2", "g3"))
    c.submit(make_pod("x", gpus=2)).run()
    held = c.ids("x")
    for settings in (c.settings, Settings()):  # by whatever configuration: both are read
        c.settings = settings
        c.restart().run()
        info = c.pod_info("x")
        assert {one for ids in info.ids.values() for one in ids} == held
    c.submit(make_pod("y", gpus=2)).run()
    assert c.ids("y") == {"g0", "g1", "g2", "g3"} - held


def test_an_unhealthy_device_is_given_to_nobody_and_one_that_fails_is_reported() -> None:
    c = labelled(on_failure="evictMember").node(node("n0", "g0", "g1", sick=("g1",)))
    c.submit(make_pod("x", gpus=1), make_pod("y", gpus=1)).run()
    assert c.ids("x") == {"g0"}
    assert not c.pod("y").spec.node_name
    c.node(node("n0", "g0", "g1")).wait(5.0)
    assert c.ids("y") == {"g1"}
    c.node(node("n0", "g0", "g1", sick=("g0",))).wait(40.0)
    assert [evict.name for evict in c.all(ef.EvictPod)] == ["x"]


def test_several_containers_have_a_label_each() -> None:
    pod = make_pod("x", gpus=1)
    second = Container(name="second", resources=ResourceRequirements(requests={GPU: 2}))
    c = labelled().node(node("n0", "g0", "g1", "g2"))
    c.submit(replace(pod, spec=replace(pod.spec, containers=[*pod.spec.containers, second]))).run()
    labels = device_labels(c, "x")
    assert sorted(labels) == [KEY, KEY.replace("main", "second")]
    assert sorted(".".join(labels.values()).split(".")) == ["g0", "g1", "g2"]


def test_a_gang_whose_ids_do_not_fit_is_refused_as_a_whole_and_the_limit_is_named() -> None:
    uuids = [f"GPU-6f1c9a2e-b3d4-4c5f-8a1e-00000000000{k}" for k in range(8)]
    c = labelled().node(node_of_annotation("n0", uuids)).node(node_of_annotation("n1", uuids))
    c.submit(gang("a", pods=4, gpus=4)).run()
    assert c.untouched("a")
    assert not c.all(ef.BindPod)
    assert (
        "2 node(s) where a label (63 characters) holds at most 1 IDs of nvidia.com/gpu, a container needs 4"
        in c.said("a-0")
    )
    c.submit(gang("b", pods=4, gpus=1)).run()
    assert c.placed("b"), "one such ID fits"


def node_of_annotation(name: str, ids: list[str]) -> Node:
    text = inventory_annotation({GPU: [Device(one) for one in ids]})
    return make_node(name, gpus=len(ids), annotations={INVENTORY_KEY: text})


def test_a_node_whose_ids_fit_is_taken_instead_and_shorter_ids_cure() -> None:
    long = [f"example-device-number-{k}" for k in range(4)]
    c = labelled().node(node_of_annotation("n0", long))
    c.submit(make_pod("x", gpus=4)).run()
    assert c.untouched("x")
    assert c.state("x") == "unschedulable"
    c.node(node_of_annotation("n0", [f"dev-{k}" for k in range(4)])).wait(20.0)
    assert c.ids("x") == {f"dev-{k}" for k in range(4)}
    c.node(node_of_annotation("n1", long)).node(node("n2", "a", "b"))
    c.submit(make_pod("y", gpus=2)).run()
    assert c.pod("y").spec.node_name == "n1", "two such IDs fit too; ties go to the first name"
    assert len(c.ids("y")) == 2


def test_a_node_whose_ids_fit_no_label_stays_refused_when_its_room_changes() -> None:
    long = [f"{k}{'x' * 39}" for k in range(4)]
    c = labelled().node(node_of_annotation("n0", long))
    for i in range(1, 9):
        c.node(make_node(f"n{i}", gpus=0))
    for name, gpus in (("y", 2), ("x", 1), ("z", 2)):
        c.submit(make_pod(name, gpus=gpus)).run()
    assert c.pod("x").spec.node_name == "n0"
    assert "a label (63 characters) holds at most 1 IDs" in c.said("z")


def test_ids_with_other_characters_are_refused_with_what_is_right() -> None:
    c = labelled().node(node_of_annotation("n0", ["0000:3b:00.0"]))
    c.submit(make_pod("x", gpus=1)).run()
    assert "IDs of nvidia.com/gpu do not fit a label (letters, digits, - and _ only" in c.said("x")


def test_a_resource_of_which_no_key_can_be_made_is_refused_with_why() -> None:
    resource = "a." * 108 + "io/gpu"
    made = node_of_annotation("n0", [])
    notes = {INVENTORY_KEY: inventory_annotation({resource: [Device("a")]})}
    made = replace(
        made,
        metadata=replace(made.metadata, annotations=notes),
        status=replace(made.status, allocatable={**(made.status.allocatable or {}), resource: 1}),
    )
    asks = ResourceRequirements(requests={resource: 1})
    pod = make_pod("x", gpus=0)
    c = labelled().node(made)
    c.submit(replace(pod, spec=replace(pod.spec, containers=[Container(name="main", resources=asks)]))).run()
    assert "devices.allocationIn: labels cannot serve" in c.said("x")
    assert "at most 253" in c.said("x")


def test_a_forged_annotation_is_overwritten_where_it_would_be_read() -> None:
    """No policy kept it out; the annotation counts where both are."""
    forged = {ALLOCATED_KEY: '{"main":{"nvidia.com/gpu":["g0"]}}'}
    c = labelled().node(node("n0", "g0", "g1")).submit(make_pod("y", gpus=1)).run()
    assert c.ids("y") == {"g0"}
    c.submit(with_annotations([make_pod("x", gpus=1)], forged))
    c.run()
    assert c.ids("x") == {"g1"}
    assert not device_labels(c, "x")


def test_an_edited_label_is_noticed_and_by_right_repaired() -> None:
    for repair in (False, True):
        c = labelled(repair=repair).node(node("n0", "g0", "g1")).submit(make_pod("x", gpus=1)).run()
        held = device_labels(c, "x")
        pod = c.pod("x")
        edited = {**(pod.metadata.labels or {}), KEY: "g1"}
        c.update(pod, metadata=replace(pod.metadata, labels=edited)).wait(1.0)
        said = [event.message for event in c.all(ef.RecordEvent) if event.reason == "DeviceMismatch"]
        assert any("its labels were edited: main: nvidia.com/gpu g1" in one for one in said), said
        drift = c.scheduler.statistics()["device_drift"]
        assert (drift["edited"], device_labels(c, "x") == held) == ((0, True) if repair else (1, False))
    c.submit(make_pod("y", gpus=1)).run()
    assert c.ids("y") == {"g1"}


@pytest.mark.parametrize(
    "order",
    [
        lambda bind, pod: (ev.BindSucceeded(bind.uid, bind.attempt), ev.PodUpdated(pod)),
        lambda bind, pod: (ev.PodUpdated(pod), ev.BindSucceeded(bind.uid, bind.attempt)),
    ],
    ids=["the answer first", "the watch first"],
)
def test_labels_that_the_server_dropped_are_noticed(
    order: Callable[[ef.BindPod, Pod], tuple[ev.Event, ...]],
) -> None:
    """Its feature is off, though its version would have it."""
    c = labelled(repair=True).node(node("n0", "g0", "g1"))
    c.answer = lambda bind: "hold"
    c.submit(make_pod("x", gpus=1)).run()
    (bind,) = c.held_binds
    pod = c.commit(replace(bind, labels={}))
    c.tell(*order(bind, pod)).wait(1.0)
    assert device_labels(c, "x") == {KEY: "g0"}
    said = [event.message for event in c.all(ef.RecordEvent) if event.reason == "DeviceMismatch"]
    assert any("PodTopologyLabelsAdmission" in one for one in said)
    c.answer = lambda bind: "ok"
    c.submit(make_pod("y", gpus=1)).run()
    assert c.ids("y") == {"g1"}
