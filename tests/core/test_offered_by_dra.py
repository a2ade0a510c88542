"""A resource that only Dynamic Resource Allocation offers is called that, and no name to be corrected."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gangsched.core.explaining.explain import explain
from gangsched.lab.sim.objects import GPU, make_node, make_pod
from gangsched.model import events as ev
from gangsched.model.objects import Container, Node, ObjectMeta, Pod, ResourceRequirements
from gangsched.model.resource_claims.objects import DEVICE_CLASSES, ClassSpec, DeviceClass
from tests.core.claims import ClaimCluster
from tests.support.scenario import Cluster

SAID = "is offered by Dynamic Resource Allocation alone (DeviceClass gpu.nvidia.com)"
IMPLICIT = "deviceclass.resource.kubernetes.io/gpu.nvidia.com"


def device_class(name: str = "gpu.nvidia.com", resource: str = GPU) -> ev.ObjectPut:
    meta = ObjectMeta(name=name, uid=f"uid-{name}")
    return ev.ObjectPut(DEVICE_CLASSES, DeviceClass(meta, ClassSpec(extended_resource_name=resource)))


def without_gpus(**more: int) -> Node:
    node = make_node("n", gpus=0, listed=False)
    room = {name: n for name, n in (node.status.allocatable or {}).items() if name != GPU} | more
    return replace(node, status=replace(node.status, allocatable=room))


def asking(resource: str) -> Pod:
    pod = make_pod("p", gpus=0)
    container = Container(name="main", resources=ResourceRequirements(requests={"cpu": "1", resource: 1}))
    return replace(pod, spec=replace(pod.spec, containers=[container]))


@pytest.mark.parametrize("more", [{}, {GPU: 0}], ids=["never offered", "none left of a former plugin"])
def test_a_resource_of_a_device_class_is_named_once_the_class_is_known(more: dict[str, int]) -> None:
    c = Cluster().node(without_gpus(**more)).submit(asking(GPU)).run()
    assert DEVICE_CLASSES in c.scheduler.kinds
    c.tell(device_class()).run()
    assert f"{GPU} {SAID}" in c.said("p")
    assert "No node offers" not in c.said("p")
    told = explain(c.scheduler, c.group("p"), c.now_s)
    assert any(SAID in one for one in (told.answer, *told.cures))
    assert not any("Correct" in one for one in told.cures)


def test_the_implicit_name_of_a_class_needs_no_reading() -> None:
    c = Cluster().node(without_gpus()).submit(asking(IMPLICIT)).run()
    assert f"{IMPLICIT} {SAID}" in c.said("p")


def test_another_name_is_still_a_wrong_name() -> None:
    c = (
        Cluster()
        .node(make_node("n"))
        .tell(device_class(resource="example.com/x"))
        .submit(asking("nvidia.com/gpux"))
    )
    c.run()
    assert "No node offers nvidia.com/gpux" in c.said("p")
    assert any("Correct" in one for one in explain(c.scheduler, c.group("p"), c.now_s).cures)


def test_classes_are_not_followed_for_what_a_node_offers() -> None:
    c = Cluster().node(make_node("n", gpus=1)).submit(make_pod("p", gpus=4)).run()
    assert c.scheduler.newly_watched() == ()


def serving(c: ClaimCluster, name: str, *, made: str, resource: str = GPU) -> None:
    """A class of the cluster's devices that serves the resource as well."""
    meta = {"name": name, "uid": f"uid-{name}", "creationTimestamp": made}
    c.put(DEVICE_CLASSES, {"metadata": meta, "spec": {"extendedResourceName": resource}}, DeviceClass)


def test_nodes_that_serve_a_resource_by_a_class_are_told_from_those_that_have_too_little_of_it() -> None:
    c = ClaimCluster().offer("claims", "more").node(make_node("plugin", gpus=1)).node(without_gpus())
    serving(c, "gpu.new", made="2026-02-01T00:00:00Z")
    serving(c, "gpu.old", made="2026-01-01T00:00:00Z")
    c.submit(make_pod("p", gpus=2)).run()
    which = "which gangsched does not allocate by that name (yet)"
    assert f"2 node(s) that serve {GPU} by DeviceClass gpu.new, {which}" in c.said("p")
    assert f"2 Insufficient {GPU}" in c.said("p")
    c.submit(make_pod("q", gpus=1)).run()
    assert c.are_bound("q") == [True], "the node with a plugin serves it"


@pytest.mark.parametrize(("name", "counts"), [("gpu.a", "gpu.a"), ("gpu.c", "gpu.b")])
def test_of_two_classes_of_one_time_the_first_by_name_counts(name: str, counts: str) -> None:
    c = ClaimCluster().offer("claims")
    for one in ("gpu.b", name):
        serving(c, one, made="2026-01-01T00:00:00Z")
    c.submit(make_pod("p", gpus=2)).run()
    assert f"by DeviceClass {counts}," in c.said("p")


def test_a_class_without_devices_on_a_node_serves_nothing_there() -> None:
    c = ClaimCluster().offer("claims", gpus_each=0).submit(asking("deviceclass.resource.kubernetes.io/gpu"))
    c.run()
    assert "1 Insufficient deviceclass.resource.kubernetes.io/gpu" in c.said("p")
    c.delete("p").offer("more").submit(asking("deviceclass.resource.kubernetes.io/gpu")).run()
    assert "1 node(s) that serve deviceclass.resource.kubernetes.io/gpu by DeviceClass gpu," in c.said("p")
