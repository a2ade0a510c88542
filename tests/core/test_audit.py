"""Books, annotations and kubelet's word: what is true is written, what cannot be mended is reported."""

from __future__ import annotations

from typing import Literal

import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.config.devices import DeviceSettings
from gangsched.lab.sim.objects import GPU, STRANGER, inventory, make_node, make_pod
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.devices.annotations import ALLOCATED_KEY, INVENTORY_KEY, VISIBLE_KEY, parse_allocation
from gangsched.model.devices.constraints import CONSTRAINTS_KEY
from gangsched.model.devices.report import DEVICE_REPORT_KEY, PodDevices, report_annotation
from gangsched.model.objects import Container, Pod, ResourceRequirements
from tests.support.scenario import Cluster, gang, with_annotations

NAMED = (ALLOCATED_KEY, VISIBLE_KEY)


def audited(
    *,
    repair: bool = True,
    on_mismatch: Literal["none", "evict"] = "none",
    allow_eviction: bool = True,
    gpus: int = 8,
) -> Cluster:
    devices = DeviceSettings(repair=repair, on_mismatch=on_mismatch)
    settings = Settings(devices=devices, allow_eviction=allow_eviction)
    return Cluster(settings).node(make_node("n0", gpus=gpus))


def given(c: Cluster, **pods: list[int]) -> None:
    """kubelet's word for n0: pod -> the devices that its container `main` has, by number."""
    reported(c, pods, {})


def reported(c: Cluster, pods: dict[str, list[int]], ended: dict[str, list[int]]) -> None:
    """As `given`; and what pods had that have ended."""

    def devices(of: dict[str, list[int]]) -> list[PodDevices]:
        held = []
        for name, numbers in of.items():
            meta = c.pod(name.replace("_", "-")).metadata
            ids = tuple(f"GPU-n0-{k}" for k in numbers)
            held.append(PodDevices(meta.uid, meta.namespace, meta.name, {"main": {GPU: ids}}))
        return held

    node = c.nodes["n0"]
    text = report_annotation([GPU], devices(pods), devices(ended))
    own = {**(node.metadata.annotations or {}), DEVICE_REPORT_KEY: text}
    c.node(replace(node, metadata=replace(node.metadata, annotations=own)))


def booked(c: Cluster, name: str) -> list[int]:
    """By the scheduler's books."""
    info = c.pod_info(name)
    return sorted(int(i.rpartition("-")[2]) for ids in info.ids.values() for i in ids)


def edit(c: Cluster, name: str, **keys: str | None) -> None:
    pod = c.pod(name)
    named = {"allocated": ALLOCATED_KEY, "visible": VISIBLE_KEY}
    own = {**(pod.metadata.annotations or {}), **{named[k]: v for k, v in keys.items()}}
    kept = {k: v for k, v in own.items() if v is not None}
    c.update(pod, metadata=replace(pod.metadata, annotations=kept))


def drift(c: Cluster) -> dict[str, int]:
    found: dict[str, int] = c.scheduler.statistics()["device_drift"]
    return found


def mismatches(c: Cluster) -> list[str]:
    return [event.message for event in c.all(ef.RecordEvent) if event.reason == "DeviceMismatch"]


# -- kubelet's word ------------------------------------------------------------------------------------


def test_what_kubelet_gave_as_planned_changes_nothing() -> None:
    c = audited().submit(gang("a", pods=2, gpus=2)).run().clear()
    given(c, a_0=[0, 1], a_1=[2, 3])
    assert (c.numbers("a-0"), c.numbers("a-1")) == ([0, 1], [2, 3])
    assert not c.effects
    assert not any(drift(c).values())


def test_two_pods_that_kubelet_swapped_are_swapped_in_the_books_and_in_writing() -> None:
    c = audited().submit(gang("a", pods=2, gpus=2)).run().clear()
    given(c, a_0=[2, 3], a_1=[0, 1])
    assert (c.numbers("a-0"), c.numbers("a-1")) == ([0, 1], [2, 3]), "written in its time"
    assert (booked(c, "a-0"), booked(c, "a-1")) == ([2, 3], [0, 1])
    assert drift(c)["kubelet"] == 2
    c.wait(1.0)
    assert (c.numbers("a-0"), c.numbers("a-1")) == ([2, 3], [0, 1])
    assert (c.pod("a-0").metadata.annotations or {})[VISIBLE_KEY] == "GPU-n0-2,GPU-n0-3"
    assert not any(drift(c).values())
    assert (
        "kubelet gave it main: nvidia.com/gpu GPU-n0-2, GPU-n0-3 instead of the planned main:"
        in mismatches(c)[0]
    )
    assert c.reasons().count("DevicesConfirmed") == 2
    c.clear().five_more_turns_change_nothing()
    assert not c.all(ef.PatchPod)


def test_a_restart_in_the_middle_of_a_swap_ends_in_the_truth() -> None:
    """One annotation is written, the other is not: both claim the same devices."""
    c = audited().submit(gang("a", pods=2, gpus=2)).run()
    c.patches = "0"
    given(c, a_0=[2, 3], a_1=[0, 1])
    own = {**(c.pod("a-0").metadata.annotations or {})}
    own |= {ALLOCATED_KEY: '{"main":{"nvidia.com/gpu":["GPU-n0-2","GPU-n0-3"]}}'}
    c.store(c.pod("a-0"), metadata=replace(c.pod("a-0").metadata, annotations=own))
    assert c.numbers("a-0") == c.numbers("a-1")
    c.patches = "ok"
    c.restart()
    c.wait(1.0)
    assert (c.numbers("a-0"), c.numbers("a-1")) == ([2, 3], [0, 1])
    assert not any(drift(c).values())


# -- pods that ended before anybody could say it --------------------------------------------------------


def test_a_pod_that_ended_with_anothers_devices_comes_to_say_what_it_had() -> None:
    c = audited().submit(gang("a", pods=2, gpus=2)).run()
    c.phase("a-0", "Succeeded").clear()
    reported(c, {"a_1": [0, 1]}, {"a_0": [2, 3]})
    c.wait(1.0)
    assert (c.numbers("a-0"), c.numbers("a-1")) == ([2, 3], [0, 1])
    assert (booked(c, "a-0"), booked(c, "a-1")) == ([], [0, 1])
    said = [one for one in mismatches(c) if "it has ended" in one]
    assert said == [
        "n0: kubelet gave it main: nvidia.com/gpu GPU-n0-2, GPU-n0-3"
        " instead of the planned main: nvidia.com/gpu GPU-n0-0, GPU-n0-1, and it has ended"
    ]
    given(c, a_1=[0, 1])
    c.wait(60.0)
    assert c.reasons().count("DevicesConfirmed") >= 1
    c.clear().five_more_turns_change_nothing()
    assert not c.all(ef.PatchPod)


def test_an_ended_pods_devices_may_belong_to_another_pod_when_it_is_reported() -> None:
    c = audited(gpus=4).submit(gang("a", pods=2, gpus=2)).run()
    c.phase("a-0", "Succeeded")
    reported(c, {"a_1": [0, 1]}, {"a_0": [2, 3]})
    c.wait(1.0).submit(make_pod("x", gpus=2)).run()
    assert c.numbers("x") == [2, 3]
    reported(c, {"a_1": [0, 1], "x": [2, 3]}, {"a_0": [2, 3]})
    c.wait(60.0)
    assert (c.numbers("a-0"), booked(c, "x")) == ([2, 3], [2, 3])


def test_the_nodes_word_of_an_ended_pod_may_come_before_the_api_servers() -> None:
    c = audited().submit(gang("a", pods=2, gpus=2)).run()
    reported(c, {"a_1": [0, 1]}, {"a_0": [2, 3]})
    c.wait(1.5)
    c.phase("a-0", "Succeeded").wait(3.0)
    assert (c.numbers("a-0"), c.numbers("a-1")) == ([2, 3], [0, 1])


def test_a_refused_patch_of_an_ended_pod_is_asked_again() -> None:
    c = audited().submit(gang("a", pods=2, gpus=2)).run()
    c.phase("a-0", "Succeeded").clear()
    c.patches = "0"
    reported(c, {"a_1": [0, 1]}, {"a_0": [2, 3]})
    c.wait(10.0)
    assert c.numbers("a-0") == [0, 1]
    n_asked = len(c.all(ef.PatchPod))
    assert 2 <= n_asked < 30
    reported(c, {}, {"a_0": [2, 3]})
    assert len([one for one in mismatches(c) if "it has ended" in one]) == 1, "it is told once"
    c.patches = "ok"
    c.wait(35.0)
    assert c.numbers("a-0") == [2, 3]


def test_without_the_right_to_patch_it_is_seldom_asked_for_an_ended_pod() -> None:
    c = audited().submit(gang("a", pods=2, gpus=2)).run()
    c.phase("a-0", "Succeeded").clear()
    c.patches = "403"
    reported(c, {"a_1": [0, 1]}, {"a_0": [2, 3]})
    c.wait(250.0)
    assert len([patch for patch in c.all(ef.PatchPod) if patch.name == "a-0"]) == 1
    c.patches = "ok"
    c.wait(60.0)
    assert c.numbers("a-0") == [2, 3]


def test_a_node_that_is_gone_in_the_turn_of_its_report_is_not_compared() -> None:
    c = audited().submit(gang("a", pods=2, gpus=2)).run().clear()
    meta = c.pod("a-0").metadata
    other = [PodDevices(meta.uid, meta.namespace, meta.name, {"main": {GPU: ("GPU-n0-7",)}})]
    node = make_node("n0", annotations={DEVICE_REPORT_KEY: report_annotation([GPU], other, [])})
    newer = replace(node, metadata=replace(node.metadata, resource_version="1000"))
    c.tell(ev.NodeUpdated(newer), ev.NodeDeleted(newer))
    assert booked(c, "a-0") == [0, 1]
    assert not mismatches(c)


def test_a_scheduler_that_starts_finds_what_is_left_to_say_of_ended_pods() -> None:
    c = audited().submit(gang("a", pods=2, gpus=2)).run()
    c.phase("a-0", "Succeeded")
    c.patches = "0"
    reported(c, {"a_1": [0, 1]}, {"a_0": [2, 3]})
    c.patches = "ok"
    c.restart().wait(1.0)
    assert (c.numbers("a-0"), c.numbers("a-1")) == ([2, 3], [0, 1])


def test_an_ended_pod_is_left_alone_where_annotations_are_not_repaired() -> None:
    c = audited(repair=False).submit(gang("a", pods=2, gpus=2)).run()
    c.phase("a-0", "Succeeded").clear()
    reported(c, {"a_1": [0, 1]}, {"a_0": [2, 3]})
    c.wait(60.0)
    assert c.numbers("a-0") == [0, 1]
    assert not c.all(ef.PatchPod)
    c.delete("a-0").wait(60.0)


def test_of_ended_pods_whose_node_is_gone_nothing_is_kept() -> None:
    c = audited(repair=False).submit(gang("a", pods=2, gpus=2)).run()
    c.phase("a-0", "Succeeded")
    reported(c, {"a_1": [0, 1]}, {"a_0": [2, 3]})
    ended = c.scheduler.audit._ended_pods.pods
    assert list(ended) == [c.pod("a-0").metadata.uid]
    c.drop_node("n0").delete("a-0", "a-1")
    assert not ended


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize("repair", [True, False])
def test_a_pod_that_has_ended_is_none_of_those_with_other_devices_than_it_says(
    repair: bool, phase: str
) -> None:
    c = audited(repair=repair).submit(make_pod("x", gpus=2)).run()
    c.patches = "403"
    given(c, x=[2, 3])
    assert sum(c.scheduler.audit.statistics().values()) == 1
    c.phase("x", phase)
    assert sum(c.scheduler.audit.statistics().values()) == 0


def test_devices_that_kubelet_gave_are_not_promised_again() -> None:
    c = audited(gpus=4).submit(make_pod("x", gpus=2)).run()
    given(c, x=[2, 3])
    c.wait(1.0).submit(make_pod("y", gpus=2)).run()
    assert c.numbers("y") == [0, 1]


def test_the_report_may_come_before_the_answer_to_the_bind() -> None:
    c = audited()
    c.answer = lambda bind: "hold"
    c.submit(make_pod("x", gpus=1)).run()
    [bind] = c.held_binds
    given(c, x=[5])
    pod = c.commit(bind)
    c.tell(ev.BindSucceeded(bind.uid, bind.attempt), ev.PodUpdated(pod)).wait(1.0)
    assert (c.numbers("x"), booked(c, "x")) == ([5], [5])


def test_what_another_schedulers_pod_got_is_known_from_kubelet() -> None:
    c = audited(gpus=2)
    stranger = make_pod("s", gpus=1, scheduler=STRANGER)
    c.update(replace(stranger, spec=replace(stranger.spec, node_name="n0")))
    given(c, s=[0])
    c.submit(make_pod("x", gpus=1)).run()
    assert c.numbers("x") == [1]
    assert not c.all(ef.PatchPod), "and it is not ours to write to"


def test_two_pods_swap_plans_when_kubelet_gives_one_the_others_devices() -> None:
    """y is not admitted yet; kubelet gave what was planned for it to x."""
    c = audited(gpus=4).submit(make_pod("x", gpus=2)).run()
    c.submit(make_pod("y", gpus=2)).run()
    assert (c.numbers("x"), c.numbers("y")) == ([0, 1], [2, 3])
    given(c, x=[2, 3])
    assert (booked(c, "x"), booked(c, "y")) == ([2, 3], [0, 1])
    c.wait(1.0)
    assert (c.numbers("x"), c.numbers("y")) == ([2, 3], [0, 1])
    given(c, x=[2, 3], y=[0, 1])
    assert not any(drift(c).values())


def test_in_exchange_a_pod_gets_what_nobody_has_been_given_and_gives_up_what_it_had() -> None:
    """kubelet gave x what was planned for y, and z what was planned for x."""
    c = audited(gpus=3)
    for name in "xyz":
        c.submit(make_pod(name, gpus=1)).run()
    assert [c.numbers(name) for name in "xyz"] == [[2], [0], [1]]
    given(c, x=[0], z=[2])
    assert [booked(c, name) for name in "xyz"] == [[0], [1], [2]]
    c.wait(1.0).delete("x").run().submit(make_pod("next", gpus=1)).run()
    assert c.numbers("next") == [0]


def test_an_exchange_while_the_bind_is_on_the_way_is_written_when_it_is_there() -> None:
    c = audited(gpus=4).submit(make_pod("x", gpus=2)).run()
    c.answer = lambda bind: "hold"
    c.submit(make_pod("y", gpus=2)).run()
    given(c, x=[2, 3])
    [bind] = c.held_binds
    c.tell(ev.BindSucceeded(bind.uid, bind.attempt), ev.PodUpdated(c.commit(bind)))
    c.wait(1.0)
    assert (c.numbers("y"), booked(c, "y")) == ([0, 1], [0, 1])
    assert not any(drift(c).values())


def test_a_device_given_to_another_has_one_holder_also_if_none_is_left_in_exchange() -> None:
    """What x was planned to have has become unhealthy meanwhile."""
    c = audited(on_mismatch="evict", gpus=2).submit(make_pod("x", gpus=1)).run()
    c.submit(make_pod("y", gpus=1)).run()
    assert (c.numbers("x"), c.numbers("y")) == ([0], [1])
    sick = inventory("n0", 2, unhealthy=[0])
    c.node(make_node("n0", gpus=2, annotations={INVENTORY_KEY: sick}))
    given(c, x=[1])
    assert (booked(c, "x"), booked(c, "y")) == ([1], [])
    told = [
        said
        for said in mismatches(c)
        if "kubelet gave GPU-n0-1, which was planned for it, to another pod" in said
    ]
    assert told
    assert "it is evicted" in told[0]
    c.wait(1.0)
    assert [pod.metadata.name for pod in c.pods.values()] == ["x"], "that pod alone is evicted"
    assert not any(drift(c).values())


def test_a_pod_whose_device_went_to_another_before_it_was_bound_is_evicted_once_it_is() -> None:
    c = audited(on_mismatch="evict", gpus=2).submit(make_pod("x", gpus=1)).run()
    c.answer = lambda bind: "hold"
    c.submit(make_pod("y", gpus=1)).run()
    [bind] = c.held_binds
    c.node(make_node("n0", gpus=2, annotations={INVENTORY_KEY: inventory("n0", 2, unhealthy=[0])}))
    given(c, x=[1])
    c.wait(1.0)
    assert drift(c)["unusable"] == 1
    assert not c.all(ef.EvictPod), "it is not bound yet"
    c.tell(ev.BindSucceeded(bind.uid, bind.attempt), ev.PodUpdated(c.commit(bind))).wait(1.0)
    assert [pod.metadata.name for pod in c.pods.values()] == ["x"]
    assert not any(drift(c).values())


def test_a_pod_whose_devices_kubelet_has_given_on_keeps_its_annotation() -> None:
    """x has ended on its node, which kubelet has not told the API server, and y has got what x had."""
    c = audited(on_mismatch="evict", gpus=4).submit(make_pod("x", gpus=2)).run()
    given(c, x=[0, 1])
    c.submit(make_pod("y", gpus=1)).run()
    given(c, y=[0])
    c.wait(1.0)
    assert (c.numbers("x"), c.numbers("y")) == ([0, 1], [0]), "x had it, y has it"
    assert booked(c, "x") == [1]
    assert sorted(pod.metadata.name for pod in c.pods.values()) == ["x", "y"], "nobody is evicted"
    assert not any(drift(c).values())
    c.submit(make_pod("z", gpus=1)).run()
    assert c.numbers("z") == [2]
    c.delete("y")
    devices = c.ledger().columns[GPU]
    assert devices.at[0].held.keys() == {"GPU-n0-1", "GPU-n0-2"}, "nobody has it any more"


def test_a_pod_in_the_middle_of_its_admission_is_listed_in_part() -> None:
    """Its containers come one after the other; the first may have got what the second was planned to have."""
    asks = ResourceRequirements(requests={GPU: 1})
    pod = make_pod("x", gpus=1)
    both = [*pod.spec.containers, Container(name="second", resources=asks)]
    c = audited().submit(replace(pod, spec=replace(pod.spec, containers=both))).run()
    given(c, x=[0])
    assert not any(drift(c).values())
    given(c, x=[1])
    c.wait(1.0)
    allocation = parse_allocation((c.pod("x").metadata.annotations or {})[ALLOCATED_KEY])
    assert allocation == {"main": {GPU: ("GPU-n0-1",)}, "second": {GPU: ("GPU-n0-0",)}}


def test_a_set_that_its_constraints_do_not_allow_is_reported_and_by_policy_evicted() -> None:
    wish = {CONSTRAINTS_KEY: '{"nvidia.com/gpu":{"linked":true}}'}
    for policy, left in (("none", ["x"]), ("evict", [])):
        c = audited(on_mismatch="none" if policy == "none" else "evict")
        c.submit(make_pod("x", gpus=2, annotations=wish)).run()
        given(c, x=[1, 2])
        c.wait(1.0)
        assert any("are not nvidia.com/gpu linked with each other" in said for said in mismatches(c))
        assert [pod.metadata.name for pod in c.pods.values()] == left
    assert drift(c)["unusable"] == 0


def unlinked(*, on_mismatch: Literal["none", "evict"] = "none", **answers: str) -> Cluster:
    """A pod that asks for linked devices and was just given others by kubelet; and the server's answers."""
    c = audited(on_mismatch=on_mismatch)
    c.submit(make_pod("x", gpus=2, annotations={CONSTRAINTS_KEY: '{"nvidia.com/gpu":{"linked":true}}'})).run()
    c.patches, c.evictions = answers.get("patches", "ok"), answers.get("evictions", "ok")
    given(c, x=[1, 2])
    return c.wait(1.0)


def test_what_a_pod_that_cannot_use_its_devices_has_is_written_also_after_a_conflict() -> None:
    c = unlinked(patches="409")
    assert drift(c) == {"edited": 0, "kubelet": 0, "unusable": 1}, "it counts once"
    c.patches = "ok"
    c.wait(60.0)
    assert c.numbers("x") == [1, 2]
    assert drift(c)["unusable"] == 1, "that does not change with what is written"
    c.clear().five_more_turns_change_nothing()


def test_an_edit_does_not_save_a_pod_that_cannot_use_its_devices_from_its_eviction() -> None:
    c = unlinked(on_mismatch="evict", evictions="429")
    assert c.numbers("x") == [1, 2]
    assert len(c.all(ef.EvictPod)) == 1
    edit(c, "x", visible="GPU-n0-7")
    c.wait(1.0)
    assert (c.pod("x").metadata.annotations or {})[VISIBLE_KEY] == "GPU-n0-1,GPU-n0-2", "it is undone"
    assert drift(c) == {"edited": 0, "kubelet": 0, "unusable": 1}
    c.evictions = "ok"
    c.wait(30.0)
    assert not c.pods


def test_a_pod_that_cannot_use_its_devices_stays_and_says_so_while_evictions_are_off() -> None:
    c = audited(on_mismatch="evict", allow_eviction=False)
    c.submit(make_pod("x", gpus=2, annotations={CONSTRAINTS_KEY: '{"nvidia.com/gpu":{"linked":true}}'})).run()
    given(c, x=[1, 2])
    c.wait(100.0)
    assert any("allowEviction is off, so it is left alone" in said for said in mismatches(c))
    assert not any("it is evicted" in said for said in mismatches(c))
    assert not c.all(ef.EvictPod)


def test_a_pod_that_got_devices_that_it_can_use_after_all_is_not_evicted() -> None:
    c = unlinked(on_mismatch="evict", evictions="429")
    given(c, x=[2, 3])
    c.clear().wait(100.0)
    assert c.numbers("x") == [2, 3]
    assert not any(drift(c).values())
    assert not c.all(ef.EvictPod)


def test_a_gang_that_waits_holds_what_is_left_or_gives_back() -> None:
    for healthy in (True, False):
        c = audited(gpus=4).submit(make_pod("x", gpus=1)).run()
        c.submit(with_annotations(gang("a", pods=2, gpus=1), {"gangsched.io/total-members": "3"})).run()
        assert c.state("a") == "waiting"
        taken = booked(c, "a-0")
        if not healthy:
            c.node(make_node("n0", gpus=4, annotations={INVENTORY_KEY: inventory("n0", 4, unhealthy=[0])}))
        given(c, x=taken)
        assert c.state("a") == ("waiting" if healthy else "backoff")
        c.wait(5.0)
        assert c.state("a") == "waiting"
        assert not set(taken) & {*booked(c, "a-0"), *booked(c, "a-1")}


def test_kubelet_does_not_list_plain_init_containers() -> None:
    asks = ResourceRequirements(requests={GPU: 1})
    pod = make_pod("x", gpus=2)
    first = Container(name="first", resources=asks)
    c = audited().submit(replace(pod, spec=replace(pod.spec, init_containers=[first]))).run()
    given(c, x=[0, 1])
    assert not any(drift(c).values())
    given(c, x=[4, 5])
    c.wait(1.0)
    allocation = parse_allocation((c.pod("x").metadata.annotations or {})[ALLOCATED_KEY])
    assert set(allocation["first"][GPU]) < set(allocation["main"][GPU]) == {"GPU-n0-4", "GPU-n0-5"}


def test_a_report_that_cannot_be_read_is_reported_on_its_node() -> None:
    c = audited().submit(make_pod("x", gpus=1)).run()
    given(c, x=[3])
    node = c.nodes["n0"]
    spoilt = {**(node.metadata.annotations or {}), DEVICE_REPORT_KEY: "{"}
    c.node(replace(node, metadata=replace(node.metadata, annotations=spoilt))).wait(1.0)
    assert "InvalidDeviceReport" in c.reasons()
    assert booked(c, "x") == [3], "what was known is kept"


# -- edits ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "edited",
    [
        {"allocated": '{"main":{"nvidia.com/gpu":["GPU-n0-7"]}}'},
        {"allocated": "{"},
        {"allocated": None},
        {"visible": "GPU-n0-7"},
        {"allocated": None, "visible": None},
    ],
    ids=str,
)
def test_somebodys_edit_is_found_reported_and_undone(edited: dict[str, str | None]) -> None:
    c = audited().submit(make_pod("x", gpus=1)).run()
    before = c.pod("x").metadata.annotations
    edit(c, "x", **edited)
    assert booked(c, "x") == [0], "the books stay as they are"
    assert drift(c)["edited"] == 1
    c.wait(1.0)
    assert c.pod("x").metadata.annotations == before
    assert not any(drift(c).values())
    assert len(mismatches(c)) == 1
    assert "it was given main: nvidia.com/gpu GPU-n0-0" in mismatches(c)[0]


def test_other_words_for_the_same_devices_are_no_edit() -> None:
    c = audited().submit(make_pod("x", gpus=2)).run().clear()
    edit(c, "x", allocated='{"main": {"nvidia.com/gpu": ["GPU-n0-1", "GPU-n0-0"]}}')
    assert not any(drift(c).values())
    c.wait(1.0)
    assert not c.effects


def test_without_the_right_to_patch_it_is_reported_and_stays_reported() -> None:
    c = audited(repair=False).submit(make_pod("x", gpus=1)).run()
    edit(c, "x", visible="GPU-n0-7")
    c.wait(60.0)
    assert drift(c)["edited"] == 1
    assert "repairAnnotations is off" in mismatches(c)[0]
    assert not c.all(ef.PatchPod)
    edit(c, "x", visible="GPU-n0-0")
    assert drift(c)["edited"] == 0, "somebody has put it right"


def test_a_refused_patch_says_which_verb_is_missing_and_is_not_repeated_at_once() -> None:
    c = audited().submit(make_pod("x", gpus=1)).run()
    c.patches = "403"
    edit(c, "x", visible="GPU-n0-7")
    c.wait(60.0)
    assert len(c.all(ef.PatchPod)) == 1
    assert any("the verb is patch on pods" in said for said in mismatches(c))
    c.patches = "ok"
    c.wait(300.0)
    assert drift(c)["edited"] == 0


def test_a_patch_of_an_old_version_is_made_again() -> None:
    c = audited().submit(make_pod("x", gpus=1)).run()
    c.patches = "409"
    edit(c, "x", visible="GPU-n0-7")
    c.wait(1.0)
    c.patches = "ok"
    c.wait(1.0)
    assert drift(c)["edited"] == 0
    assert 2 <= len(c.all(ef.PatchPod)) <= 5


def test_a_follower_takes_over_what_its_leader_repairs() -> None:
    """M4: what a leader writes must be known to whoever leads next."""
    leader = audited().submit(gang("a", pods=2, gpus=2)).run()
    follower = Cluster(leader.settings, synced=False)
    follower.nodes, follower.pods = leader.nodes, leader.pods
    follower.tell(*(ev.NodeAdded(node) for node in leader.nodes.values()))
    follower.tell(*(ev.PodAdded(pod) for pod in leader.pods.values()))
    given(leader, a_0=[2, 3], a_1=[0, 1])
    leader.wait(1.0)
    follower.tell(*(ev.PodUpdated(pod) for pod in leader.pods.values()))
    assert (booked(follower, "a-0"), booked(follower, "a-1")) == ([2, 3], [0, 1])
    follower.tell(*(ev.KindSynced(kind) for kind in follower.scheduler.kinds))
    assert not any(drift(follower).values())


def test_each_container_gets_the_names_of_its_own_devices() -> None:
    asks = ResourceRequirements(requests={GPU: 1})
    pod: Pod = make_pod("x", gpus=1)
    second = Container(name="second", resources=asks)
    c = (
        audited()
        .submit(replace(pod, spec=replace(pod.spec, containers=[*pod.spec.containers, second])))
        .run()
    )
    own = c.pod("x").metadata.annotations or {}
    key = "gpu.nvidia.com.visible-devices.gangsched.io"
    assert (own[f"{key}/main"], own[f"{key}/second"]) == ("GPU-n0-0", "GPU-n0-1")
    assert own[VISIBLE_KEY] == "GPU-n0-0,GPU-n0-1"
    forged = {**own, f"{key}/main": "GPU-n0-5"}
    c.update(c.pod("x"), metadata=replace(c.pod("x").metadata, annotations=forged)).wait(1.0)
    assert c.pod("x").metadata.annotations == own


def test_a_resource_handed_off_by_count_has_no_ids() -> None:
    settings = Settings(devices=DeviceSettings(hand_off={GPU: "count"}))
    view = Cluster(settings).node(make_node("n0")).view()
    assert view.inventory(0, GPU) is None
    assert audited().view().inventory(0, GPU) is not None


@pytest.mark.parametrize("at_once", [True, False], ids=["with its devices", "after its devices"])
def test_a_pod_whose_group_is_edited_keeps_the_devices_that_it_was_given(*, at_once: bool) -> None:
    """Its annotation of them was taken away, which cannot be repaired."""
    c = audited(repair=False).submit(gang("a", pods=1, gpus=4)).run()
    had, meta = c.ids("a-0"), c.pod("a-0").metadata
    [other] = gang("b", pods=1)
    own = {key: text for key, text in (meta.annotations or {}).items() if key != ALLOCATED_KEY}
    if not at_once:
        c.update(c.pod("a-0"), metadata=replace(c.pod("a-0").metadata, annotations=own))
    c.update(c.pod("a-0"), metadata=replace(meta, annotations=own, labels=other.metadata.labels))
    assert c.state("b") == "bound"
    assert c.scheduler.statistics()["device_drift"]["edited"] == 1
    c.submit(make_pod("next", gpus=4)).run()
    assert c.ids("next").isdisjoint(had)


@pytest.mark.parametrize("answer", ["BindSucceeded", "PodRead"])
def test_devices_that_are_taken_away_before_the_watch_shows_the_bind_are_still_the_pods(answer: str) -> None:
    c = audited()
    c.answer = lambda bind: "hold"
    c.submit(gang("a", pods=1, gpus=4)).run()
    [bind] = c.held_binds
    bound = c.commit(bind)
    own = {k: text for k, text in (bound.metadata.annotations or {}).items() if k not in NAMED}
    c.store(bound, metadata=replace(bound.metadata, annotations=own))
    if answer == "BindSucceeded":
        c.tell(ev.BindSucceeded(bind.uid, bind.attempt), ev.PodUpdated(c.pod("a-0")))
    else:
        c.tell(ev.BindUnknown(bind.uid, bind.attempt, "timed out")).read("a-0")
    c.answer = lambda bind: "ok"
    c.submit(make_pod("next", gpus=4)).wait(5.0).run()
    assert c.numbers("a-0") == [0, 1, 2, 3], "written again"
    assert c.numbers("next") == [4, 5, 6, 7]
