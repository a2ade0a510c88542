"""Pods that kubelet's device plugin API could mix up are not due on one node at the same time."""

from __future__ import annotations

from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.config.devices import DeviceSettings
from gangsched.model.device_report import DEVICE_REPORT_KEY, PodDevices, report_annotation
from gangsched.sim.objects import GPU, at, make_node, make_pod
from tests.core.scenario import Cluster, gang


def spaced(*, settle_s: float = 30.0) -> Cluster:
    settings = Settings(devices=DeviceSettings(hand_off={GPU: "device-plugin"}), settle_s=settle_s)
    return Cluster(settings).node(make_node("n0"))


def admit(c: Cluster, *names: str) -> None:
    """kubelet acknowledges pods."""
    for name in names:
        pod = c.pod(name)
        c.update(pod, status=replace(pod.status, phase="Running", start_time=at(c.now_s)))


def bound(c: Cluster) -> list[str]:
    return [pod.metadata.name for pod in c.pods.values() if pod.spec.node_name]


def test_a_second_gang_with_the_same_number_waits_until_the_first_is_admitted() -> None:
    c = spaced().submit(gang("a", pods=2, gpus=2)).run()
    c.submit(gang("b", pods=2, gpus=2)).run()
    assert bound(c) == ["a-0", "a-1"], "members of one gang are due together"
    assert c.state("b") == "binding"
    admit(c, "a-0")
    assert bound(c) == ["a-0", "a-1"]
    admit(c, "a-1")
    assert c.placed("b", on=1)
    c.clear().five_more_turns_change_nothing()


def test_kubelets_report_is_as_good_as_its_status() -> None:
    c = spaced().submit(make_pod("x", gpus=1)).run().submit(make_pod("y", gpus=1)).run()
    assert bound(c) == ["x"]
    meta = c.pod("x").metadata
    given = PodDevices(meta.uid, "d", "x", {"main": {GPU: tuple(c.ids("x"))}})
    node = c.nodes["n0"]
    own = {**(node.metadata.annotations or {}), DEVICE_REPORT_KEY: report_annotation([GPU], [given])}
    c.node(replace(node, metadata=replace(node.metadata, annotations=own)))
    assert bound(c) == ["x", "y"]


def test_other_numbers_and_other_nodes_are_not_held_up() -> None:
    c = spaced().node(make_node("n1"))
    c.submit(gang("a", pods=1, gpus=2)).run()
    c.submit(gang("b", pods=1, gpus=3), gang("c", pods=1, gpus=4)).run()
    assert len(bound(c)) == 3


def test_a_due_pod_that_goes_away_lets_the_next_one_in() -> None:
    c = spaced().submit(make_pod("x", gpus=1)).run().submit(make_pod("y", gpus=1)).run()
    assert bound(c) == ["x"]
    c.delete("x")
    assert bound(c) == ["y"]


def test_three_take_their_turns() -> None:
    c = spaced().submit(make_pod("x", gpus=1)).run()
    c.submit(make_pod("y", gpus=1)).run().submit(make_pod("z", gpus=1)).run()
    for n, due in enumerate(("x", "y", "z"), start=1):
        assert bound(c) == ["x", "y", "z"][:n]
        admit(c, due)


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
    admit(c, "x")
    c.wait(15.0)
    assert c.placed("b")


def test_without_that_hand_off_nobody_waits() -> None:
    c = Cluster().node(make_node("n0"))
    c.submit(make_pod("x", gpus=1)).run().submit(make_pod("y", gpus=1)).run()
    assert bound(c) == ["x", "y"]
