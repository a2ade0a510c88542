"""Not known is not free: IDs are given only where it is known which pod has which device."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.config.devices import DeviceSettings
from gangsched.lab.sim.objects import GPU, STRANGER, inventory, make_node, make_pod
from gangsched.model.devices.annotations import ALLOCATED_KEY, INVENTORY_KEY
from gangsched.model.devices.report import DEVICE_REPORT_KEY, PodDevices, report_annotation
from gangsched.model.devices.required_ids import REQUIRE_IDS_KEY
from gangsched.model.objects import Container, Node, Pod, ResourceRequirements
from tests.support.scenario import Cluster, gang, with_annotations

UNKNOWN = f"node(s) where it is not known which of the listed {GPU} the pods there have"


def stranger(name: str, gpus: int, node: str = "n", **more: object) -> Pod:
    """Another scheduler's pod on a node, as it comes from the watch."""
    pod = make_pod(name, gpus=gpus, scheduler=STRANGER, **more)  # type: ignore[arg-type]
    return replace(pod, spec=replace(pod.spec, node_name=node))


def node(*, listed: bool = True, mark: str = "", gpus: int = 8, others: Iterable[PodDevices] = ()) -> Node:
    own = {INVENTORY_KEY: inventory("n", gpus, mark=mark)} if listed else {}
    if others:
        own[DEVICE_REPORT_KEY] = report_annotation((), (), (), others)
    return make_node("n", gpus=8, annotations=own, listed=listed)


def has(name: str, *numbers: int) -> PodDevices:
    ids = tuple(f"GPU-n-{k}" for k in numbers)
    return PodDevices(f"uid-d-{name}", "d", name, {"main": {GPU: ids}})


def test_no_ids_are_given_beside_another_schedulers_pod_until_the_agent_says_what_it_has() -> None:
    c = Cluster().node(node()).submit(stranger("s", 4)).submit(gang("a", pods=2, gpus=1)).run()
    assert c.placed("a", on=1), "there is room, by count"
    assert not c.ids("a-0") | c.ids("a-1")
    c.node(node(others=[has("s", 0, 1, 2, 3), has("a-0", 6), has("a-1", 7)])).run()
    c.submit(make_pod("b", gpus=2)).run()
    assert c.ids("b") == {"GPU-n-4", "GPU-n-5"}, "what the others have is known now"


def test_they_are_given_again_when_the_pod_is_gone() -> None:
    c = Cluster().node(node()).submit(stranger("s", 4)).run()
    c.submit(make_pod("a", gpus=1, annotations={REQUIRE_IDS_KEY: "true"})).run()
    assert not c.pod("a").spec.node_name
    assert UNKNOWN in c.said("a")
    c.delete("s").wait(12.0)
    assert len(c.ids("a")) == 1


@pytest.mark.parametrize("asked", ["sameNUMA", "linked"])
def test_a_gang_whose_devices_must_lie_in_some_way_says_why_it_waits(asked: str) -> None:
    wants = {"gangsched.io/device-constraints": json.dumps({GPU: {asked: True}})}
    c = Cluster().node(node()).submit(stranger("s", 2))
    c.submit(with_annotations(gang("a", pods=2, gpus=2), wants)).run()
    assert c.untouched("a")
    assert UNKNOWN in c.said("a-0")
    c.node(node(others=[has("s", 0, 1)])).wait(12.0)
    assert c.placed("a", on=1)
    assert not (c.ids("a-0") | c.ids("a-1")) & {"GPU-n-0", "GPU-n-1"}


def test_pods_bound_before_the_list_came_are_holders_that_are_not_known() -> None:
    c = Cluster().node(node(listed=False)).submit(make_pod("old", gpus=4)).run()
    c.node(node()).submit(make_pod("new", gpus=4)).run()
    assert c.pod("new").spec.node_name == "n"
    assert not c.ids("new")
    c.delete("old").run()
    c.submit(make_pod("later", gpus=4)).run()
    assert not c.ids("later"), "new itself has no known devices"


def test_a_reservation_without_ids_is_made_again_when_the_list_comes() -> None:
    waiting = {"gangsched.io/total-members": "3"}
    c = Cluster().node(node(listed=False)).submit(with_annotations(gang("a", pods=2, gpus=2), waiting)).run()
    assert c.state("a") == "waiting"
    c.node(node()).run()
    more = make_pod("a-2", group="a", min_members=2, gpus=2, annotations=waiting)
    c.submit(more).run()
    assert len(c.ids("a-0") | c.ids("a-1") | c.ids("a-2")) == 6


def test_reserved_ids_are_given_up_for_a_pod_that_may_have_them() -> None:
    waiting = {"gangsched.io/total-members": "3"}
    c = Cluster().node(node()).submit(with_annotations(gang("a", pods=2, gpus=1), waiting)).run()
    assert c.state("a") == "waiting"
    c.submit(stranger("s", 4)).run()
    c.submit(make_pod("a-2", group="a", min_members=2, gpus=1, annotations=waiting)).run()
    assert c.placed("a", on=1)
    assert not (c.ids("a-0") | c.ids("a-1") | c.ids("a-2"))


def test_devices_listed_under_new_names_are_not_free_for_that() -> None:
    c = Cluster().node(node()).submit(make_pod("old", gpus=4)).run()
    assert len(c.ids("old")) == 4
    c.node(node(mark="-renamed")).submit(make_pod("new", gpus=4)).run()
    assert c.pod("new").spec.node_name == "n"
    assert not c.ids("new")


def test_a_list_shorter_than_what_is_held_gives_none_either() -> None:
    c = Cluster().node(node()).submit(make_pod("old", gpus=4)).run()
    c.node(node(gpus=2)).submit(make_pod("new", gpus=1)).run()
    assert not c.ids("new")


def lists(**ids: Iterable[str]) -> Node:
    names = {"gpu": GPU, "shared": "nvidia.com/gpu.shared", "fpga": "example.com/fpga"}
    listed = {names[of]: [{"id": one} for one in some] for of, some in ids.items()}
    made = make_node("n", gpus=8, annotations={INVENTORY_KEY: json.dumps(listed)})
    room = {**(made.status.allocatable or {}), **{names[of]: 4 for of in ids}}
    if "gpu" not in ids:
        room.pop(GPU, None)
    return replace(made, status=replace(made.status, allocatable=room))


def asks(name: str, resource: str, n: int) -> Pod:
    pod = make_pod(name, gpus=0)
    container = Container(name="main", resources=ResourceRequirements(requests={"cpu": "1", resource: n}))
    return replace(pod, spec=replace(pod.spec, containers=[container]))


def test_one_id_under_two_resources_is_given_as_neither() -> None:
    c = Cluster().node(lists(gpu="abcd", shared="dxyz", fpga="q"))
    for name, resource in (("p", GPU), ("q", "nvidia.com/gpu.shared"), ("r", "example.com/fpga")):
        c.submit(asks(name, resource, 1))
    c.run()
    assert [bool(c.ids(name)) for name in "pqr"] == [False, False, True]
    assert all(c.pod(name).spec.node_name for name in "pqr")


def test_a_renamed_resource_does_not_free_what_was_given_under_its_old_name() -> None:
    c = Cluster().node(lists(gpu="abcd")).submit(asks("old", GPU, 2)).run()
    assert len(c.ids("old")) == 2
    c.node(lists(shared="abcd")).submit(asks("new", "nvidia.com/gpu.shared", 1)).run()
    assert c.pod("new").spec.node_name
    assert not c.ids("new")


def test_nor_what_was_given_by_count_of_a_resource_that_the_node_offers_no_longer() -> None:
    c = Cluster().node(node(listed=False)).submit(make_pod("old", gpus=2)).run()
    c.node(lists(shared="wxyz", fpga="q")).submit(asks("new", "nvidia.com/gpu.shared", 1)).run()
    c.submit(asks("other", "example.com/fpga", 1)).run()
    assert not c.ids("new")
    assert c.ids("other") == {"q"}, "another vendor's devices are none of that"


def test_pods_of_a_node_made_again_under_its_name_hold_devices_that_it_does_not_list() -> None:
    c = Cluster().node(node()).submit(make_pod("old", gpus=4)).run()
    again = node(mark="-again")
    again = replace(again, metadata=replace(again.metadata, uid="uid-again"))
    c.drop_node("n").node(again).submit(make_pod("new", gpus=2)).run()
    assert not c.ids("new")


@pytest.mark.parametrize("gpus", [1, 2])
def test_what_an_init_container_had_counts_until_the_pod_is_gone(gpus: int) -> None:
    """kubelet hands the devices of an init container on, and keeps what is over for the same pod."""
    pod = stranger("s", gpus)
    first = Container(name="first", resources=ResourceRequirements(requests={GPU: 2}))
    pod = replace(pod, spec=replace(pod.spec, init_containers=[first]))
    c = Cluster().node(node(others=[has("s", *range(gpus))])).submit(pod)
    c.submit(make_pod("a", gpus=1)).run()
    assert bool(c.ids("a")) == (gpus == 2)


def test_a_pod_created_on_its_node_is_a_holder_that_is_not_known() -> None:
    pod = make_pod("direct", gpus=2)
    c = Cluster().node(node()).submit(replace(pod, spec=replace(pod.spec, node_name="n")))
    c.submit(make_pod("a", gpus=1)).run()
    assert c.pod("a").spec.node_name
    assert not c.ids("a")


def test_a_pod_that_is_leaving_holds_its_devices_until_it_is_gone() -> None:
    c = Cluster().node(node()).submit(stranger("s", 2)).leave("s")
    c.submit(make_pod("a", gpus=1)).run()
    assert not c.ids("a")


def test_a_device_plugin_that_admits_no_pod_without_ids_gets_none() -> None:
    settings = Settings(devices=DeviceSettings(hand_off={GPU: "device-plugin"}))
    c = Cluster(settings=settings).node(node()).submit(stranger("s", 2))
    c.submit(make_pod("a", gpus=1)).run()
    assert not c.pod("a").spec.node_name
    assert UNKNOWN in c.said("a")


def test_nor_does_one_whose_agent_says_that_it_goes_by_the_plan() -> None:
    own = {DEVICE_REPORT_KEY: report_annotation([GPU], ())}
    c = Cluster().node(make_node("n", gpus=8, annotations=own)).submit(stranger("s", 2))
    c.submit(make_pod("a", gpus=1)).run()
    assert not c.pod("a").spec.node_name
    assert UNKNOWN in c.said("a")


def test_a_gang_that_needs_ids_may_make_room_among_pods_whose_devices_are_not_known() -> None:
    c = Cluster().node(node())
    c.submit(stranger("s", 2, priority=0))
    wanted = {REQUIRE_IDS_KEY: "true"}
    c.submit(with_annotations(gang("a", pods=2, gpus=4, priority=10), wanted)).run()
    c.wait(30.0)
    assert "s" not in {pod.metadata.name for pod in c.pods.values()}
    assert len(c.ids("a-0") | c.ids("a-1")) == 8


def test_a_restart_knows_no_more_than_the_objects_say() -> None:
    c = Cluster().node(node()).submit(stranger("s", 4)).submit(make_pod("a", gpus=1)).run()
    c.restart().submit(make_pod("b", gpus=1)).run()
    assert not c.ids("b")
    c.node(node(others=[has("s", 0, 1, 2, 3), has("a", 4), has("b", 5)])).run()
    c.restart().submit(make_pod("d", gpus=2)).run()
    assert c.ids("d") == {"GPU-n-6", "GPU-n-7"}


def test_the_annotation_of_a_pod_that_another_instance_bound_says_what_it_has() -> None:
    own = {ALLOCATED_KEY: json.dumps({"main": {GPU: ["GPU-n-0", "GPU-n-1"]}})}
    c = Cluster().node(node()).submit(stranger("s", 2, annotations=own))
    c.submit(make_pod("a", gpus=6)).run()
    assert len(c.ids("a")) == 6


def test_a_resource_that_comes_after_a_list_that_cannot_be_read_is_not_counted() -> None:
    """A node starts: its agent's list is bad, and kubelet offers the GPUs only once their plugin is there."""
    c = Cluster()
    well = make_node("n0", gpus=2)
    bad = {**(well.metadata.annotations or {}), INVENTORY_KEY: "{"}
    without = {name: n for name, n in (well.status.allocatable or {}).items() if name != GPU}
    c.node(
        replace(
            well,
            metadata=replace(well.metadata, annotations=bad),
            status=replace(well.status, allocatable=without),
        )
    )
    c.submit(gang("a", pods=1, gpus=1)).run()
    c.node(replace(well, metadata=replace(well.metadata, annotations=bad))).run()
    assert not c.n_bound()
    c.node(well).run()
    assert c.placed("a")
