"""A resource that only Dynamic Resource Allocation offers is called that, and no name to be corrected."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gangsched.core.explaining.explain import explain
from gangsched.lab.sim.objects import GPU, make_node, make_pod
from gangsched.model import events as ev
from gangsched.model.objects import Container, Node, ObjectMeta, Pod, ResourceRequirements
from gangsched.model.resource_claims.objects import DEVICE_CLASSES, ClassSpec, DeviceClass
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
    assert DEVICE_CLASSES in c.scheduler.newly_watched()
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
