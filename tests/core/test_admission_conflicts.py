"""Pods that kubelet's device plugin API could mix up are not due on one node at the same time."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.config.devices import DeviceSettings
from gangsched.lab.sim.objects import GPU, STRANGER, make_node, make_pod
from gangsched.model import effects as ef
from gangsched.model.devices.annotations import (
    INVENTORY_KEY,
    Device,
    allocation_annotations,
    inventory_annotation,
)
from gangsched.model.devices.constraints import CONSTRAINTS_KEY
from gangsched.model.devices.report import DEVICE_REPORT_KEY, PodDevices, report_annotation
from gangsched.model.objects import Container, Pod, ResourceRequirements
from gangsched.model.pod_group import GROUPS_KEY
from tests.support.scenario import Cluster, gang, with_annotations


def spaced(*, settle_s: float = 30.0) -> Cluster:
    settings = Settings(devices=DeviceSettings(hand_off={GPU: "device-plugin"}), settle_s=settle_s)
    return Cluster(settings).node(make_node("n0"))


def test_a_second_gang_with_the_same_number_waits_until_the_first_is_admitted() -> None:
    c = spaced().submit(gang("a", pods=2, gpus=2)).run()
    c.submit(gang("b", pods=2, gpus=2)).run()
    assert c.bound() == ["a-0", "a-1"], "members of one gang are due together"
    assert c.state("b") == "binding"
    c.start("a-0")
    assert c.bound() == ["a-0", "a-1"]
    c.start("a-1")
    assert c.placed("b", on=1)
    c.clear().five_more_turns_change_nothing()


def test_kubelets_report_is_as_good_as_its_status() -> None:
    c = spaced().submit(make_pod("x", gpus=1)).run().submit(make_pod("y", gpus=1)).run()
    assert c.bound() == ["x"]
    meta = c.pod("x").metadata
    given = PodDevices(meta.uid, "d", "x", {"main": {GPU: tuple(c.ids("x"))}})
    node = c.nodes["n0"]
    own = {**(node.metadata.annotations or {}), DEVICE_REPORT_KEY: report_annotation([GPU], [given])}
    c.node(replace(node, metadata=replace(node.metadata, annotations=own)))
    assert c.bound() == ["x", "y"]


def test_other_numbers_and_other_nodes_are_not_held_up() -> None:
    c = spaced().node(make_node("n1"))
    c.submit(gang("a", pods=1, gpus=2)).run()
    c.submit(gang("b", pods=1, gpus=3), gang("c", pods=1, gpus=4)).run()
    assert len(c.bound()) == 3


def test_a_due_pod_that_goes_away_lets_the_next_one_in() -> None:
    c = spaced().submit(make_pod("x", gpus=1)).run().submit(make_pod("y", gpus=1)).run()
    assert c.bound() == ["x"]
    c.delete("x")
    assert c.bound() == ["y"]


def test_three_take_their_turns() -> None:
    c = spaced().submit(make_pod("x", gpus=1)).run()
    c.submit(make_pod("y", gpus=1)).run().submit(make_pod("z", gpus=1)).run()
    for n, due in enumerate(("x", "y", "z"), start=1):
        assert c.bound() == ["x", "y", "z"][:n]
        c.start(due)


def test_a_kubelet_that_does_not_admit_does_not_hold_a_gang_for_ever() -> None:
    """What it holds is given back, with the reason; a node elsewhere is as good."""
    c = spaced(settle_s=10.0).submit(make_pod("x", gpus=1)).run()
    c.submit(gang("b", pods=2, gpus=1)).run()
    c.wait(9.0)
    assert c.state("b") == "binding"
    assert c.group("b").attempts == 1
    c.wait(3.0)
    assert c.group("b").attempts > 1
    assert "d/x is about to be given 1 nvidia.com/gpu on n0" in c.said("b-0")
    c.start("x")
    c.wait(15.0)
    assert c.placed("b")


def test_without_that_hand_off_nobody_waits() -> None:
    c = Cluster().node(make_node("n0"))
    c.submit(make_pod("x", gpus=1)).run().submit(make_pod("y", gpus=1)).run()
    assert c.bound() == ["x", "y"]


# -- members of one gang that could not be exchanged ---------------------------------------------------


def two_sockets() -> Cluster:
    """Eight devices, 0 to 3 on one NUMA node, 4 to 7 on the other."""
    devices = [Device(f"d{k}", numa=k // 4) for k in range(8)]
    node = make_node("n0", gpus=8, annotations={INVENTORY_KEY: inventory_annotation({GPU: devices})})
    return Cluster(spaced().settings).node(node)


def asking(name: str, gpus: int, *, n: int, group: str = "a", **asked: object) -> Pod:
    own = {CONSTRAINTS_KEY: msgspec.json.encode({GPU: asked}).decode()} if asked else {}
    return make_pod(name, gpus=gpus, group=group, min_members=n, annotations=own)


def test_members_with_other_constraints_take_their_turns() -> None:
    """a-0 and a-2 may be exchanged, a-1 could get devices of two NUMA nodes."""
    c = two_sockets().submit(
        asking("a-0", 2, n=3), asking("a-1", 2, n=3, sameNUMA=True), asking("a-2", 2, n=3)
    )
    c.run()
    assert c.bound() == ["a-0", "a-2"]
    assert c.state("a") == "binding"
    c.start("a-0")
    assert c.bound() == ["a-0", "a-2"]
    c.start("a-2")
    assert c.placed("a", on=1)
    assert c.state("a") == "bound"
    c.clear().five_more_turns_change_nothing()


def test_other_numbers_of_one_gang_are_due_together() -> None:
    c = two_sockets().submit(asking("a-0", 1, n=2), asking("a-1", 2, n=2, sameNUMA=True)).run()
    assert c.bound() == ["a-0", "a-1"]


def test_members_of_other_containers_take_their_turns() -> None:
    """As many devices in one container as in the other, and the pods have different shapes."""
    c = two_sockets()
    second = asking("a-1", 2, n=2)
    more = Container(name="more", resources=ResourceRequirements(requests={GPU: 1}))
    c.submit(
        asking("a-0", 2, n=2),
        replace(second, spec=replace(second.spec, containers=[*second.spec.containers, more])),
    ).run()
    assert c.bound() == ["a-0"]
    c.start("a-0")
    assert c.bound() == ["a-0", "a-1"]


def test_a_stranger_does_not_come_between_the_members_of_a_gang_that_is_binding() -> None:
    c = two_sockets().submit(asking("a-0", 2, n=2), asking("a-1", 2, n=2, sameNUMA=True)).run()
    c.submit(make_pod("x", gpus=2)).run()
    assert c.bound() == ["a-0"]
    c.start("a-0")
    assert c.bound() == ["a-0", "a-1"]
    c.start("a-1")
    assert c.bound() == ["a-0", "a-1", "x"]


def test_gangs_that_start_together_take_their_turns_member_by_member() -> None:
    c = two_sockets()
    for name, other in (("a", "b"), ("b", "a")):
        c.submit(with_annotations(gang(name, pods=1, gpus=2), {GROUPS_KEY: f'["d/{name}", "d/{other}"]'}))
    c.run()
    assert c.bound() == ["a-0"]
    c.start(*c.bound())
    assert sorted(c.bound()) == ["a-0", "b-0"]


def test_a_gang_that_is_held_does_not_start_after_the_other_of_its_set_was_refused() -> None:
    c = two_sockets()
    c.answer = lambda bind: "403" if bind.name == "a-0" else "ok"
    for name in ("a", "b"):
        c.submit(with_annotations(gang(name, pods=1, gpus=2), {GROUPS_KEY: '["d/a", "d/b"]'}))
    c.run()
    assert c.bound() == []
    assert c.group("b").n_assumed == 0
    assert "gang d/b was not bound: gang d/a, which starts with it, was not bound" in c.said("b-0")


def test_a_kubelet_that_does_not_admit_the_first_wave_does_not_leave_the_gang_half_bound() -> None:
    c = two_sockets()
    c.submit(asking("a-0", 2, n=2), asking("a-1", 2, n=2, sameNUMA=True)).run()
    assert c.bound() == ["a-0"]
    c.wait(14.0)
    assert c.state("a") == "binding"
    c.wait(16.5)
    assert not [name for name in c.bound() if name == "a-0"], "given back within settle_s"
    said = [event.message for event in c.all(ef.RecordEvent)]
    assert any("d/a-0 is about to be given 2 nvidia.com/gpu on n0" in one for one in said), said


def test_a_member_that_cannot_be_bound_gives_those_back_that_are_held() -> None:
    c = two_sockets()
    c.answer = lambda bind: "403"
    c.submit(asking("a-0", 2, n=2), asking("a-1", 2, n=2, sameNUMA=True)).run()
    assert c.bound() == []
    assert c.group("a").n_assumed == 0
    assert "403 no; an admission policy or webhook refused it, not RBAC" in c.said("a-1")


def test_a_device_that_fails_under_a_held_member_is_exchanged_for_another() -> None:
    c = two_sockets().submit(asking("a-0", 2, n=2), asking("a-1", 2, n=2, sameNUMA=True)).run()
    held = next(info for info in c.group("a").members.values() if info.pod.metadata.name == "a-1")
    sick = held.ids[GPU][0]
    devices = [
        Device(f"d{k}", numa=k // 4, health="Unhealthy" if f"d{k}" == sick else "Healthy") for k in range(8)
    ]
    node = make_node("n0", gpus=8, annotations={INVENTORY_KEY: inventory_annotation({GPU: devices})})
    c.node(node).run()
    c.start("a-0")
    c.wait(5.0)
    assert c.placed("a")
    assert sick not in c.ids("a-1")


def test_a_device_that_another_scheduler_takes_from_a_held_member_is_exchanged_for_another() -> None:
    c = two_sockets().submit(asking("a-0", 2, n=2), asking("a-1", 2, n=2, sameNUMA=True)).run()
    held = next(info for info in c.group("a").members.values() if info.pod.metadata.name == "a-1")
    taken = held.ids[GPU]
    own = allocation_annotations({"main": {GPU: taken}})
    theirs = make_pod("theirs", gpus=2, scheduler=STRANGER, annotations=own)
    c.submit(replace(theirs, spec=replace(theirs.spec, node_name="n0"))).run()
    c.start("a-0", "theirs")
    c.wait(5.0)
    assert c.placed("a")
    assert not {*taken} & {*c.ids("a-1")}


def test_a_member_that_is_held_later_is_waited_for_as_long_as_the_first_was() -> None:
    c = two_sockets().submit(asking("a-0", 1, n=2), asking("a-1", 1, n=2, sameNUMA=True)).run()
    c.wait(10.0)
    c.start("a-0")
    assert c.bound() == ["a-0", "a-1"]
    c.submit(asking("a-2", 1, n=2)).run()
    c.wait(10.0)
    assert c.state("a") == "binding", "20 s after the first was held, 10 s after this one"
    assert c.group("a").attempts == 2
    c.wait(10.0)
    assert c.group("a").attempts > 2
    c.start("a-1")
    c.wait(20.0)
    assert c.bound() == ["a-0", "a-1", "a-2"]


def test_a_restart_between_the_waves_goes_on_where_it_was() -> None:
    c = two_sockets().submit(asking("a-0", 2, n=2), asking("a-1", 2, n=2, sameNUMA=True)).run()
    c.restart().run()
    assert c.bound() == ["a-0"]
    c.start("a-0")
    assert c.bound() == ["a-0", "a-1"]


def test_a_held_member_that_is_deleted_leaves_no_trace() -> None:
    c = two_sockets().submit(asking("a-0", 2, n=1), asking("a-1", 2, n=1, sameNUMA=True)).run()
    assert c.bound() == ["a-0"]
    c.delete("a-1")
    assert c.state("a") == "bound"
    c.start("a-0")
    c.clear().five_more_turns_change_nothing()
