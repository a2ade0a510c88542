"""A device fails under a running pod: who is told, what is done, and who comes back when."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.config.devices import DeviceSettings, OnFailure
from gangsched.lab.sim.objects import OURS, inventory, make_node, make_pod, make_pod_group
from gangsched.lab.sim.world.actors import reborn
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.devices.annotations import INVENTORY_KEY
from gangsched.model.objects import CustomObject, OwnerReference, Pod
from gangsched.model.owners import ORDERED
from gangsched.model.pod_group import ON_DEVICE_FAILURE_KEY
from gangsched.model.resource_claims.objects import TAINT_RULES, DeviceTaintRule
from tests import controllers as made
from tests.core.claims import ClaimCluster, gpus, wish
from tests.support.scenario import Cluster, gang, with_annotations


def watched(policy: OnFailure = "none", *, grace_s: float = 30.0, nodes: int = 1, **more: Any) -> Cluster:
    settings = Settings(devices=DeviceSettings(on_failure=policy, failure_grace_s=grace_s), **more)
    c = Cluster(settings)
    for k in range(nodes):
        c.node(make_node(f"n{k}"))
    return c


def fail(c: Cluster, *numbers: int, node: str = "n0") -> None:
    """The devices of these numbers are unhealthy, all others are well."""
    now = c.nodes[node]
    own = {**(now.metadata.annotations or {}), INVENTORY_KEY: inventory(node, 8, unhealthy=numbers)}
    c.node(replace(now, metadata=replace(now.metadata, annotations=own)))


def told(c: Cluster, reason: str) -> list[ef.RecordEvent]:
    return [event for event in c.all(ef.RecordEvent) if event.reason == reason]


def controlled(pod: Pod, owner: str) -> Pod:
    reference = OwnerReference("apps/v1", "ReplicaSet", owner, f"uid-{owner}", controller=True)
    return replace(pod, metadata=replace(pod.metadata, owner_references=[reference]))


# -- told ----------------------------------------------------------------------------------------------


def test_the_event_names_pod_device_and_node() -> None:
    c = watched().submit(make_pod("x", gpus=2)).run()
    fail(c, 1)
    [event] = told(c, "DeviceFailed")
    assert (event.kind, event.name, event.type) == ("Pod", "x", "Warning")
    assert event.message == "device GPU-n0-1 of nvidia.com/gpu on node n0 has failed under pod d/x"
    c.wait(600.0)
    assert c.evicted() == [], "the policy is none"
    fail(c)
    assert [event.name for event in told(c, "DeviceRecovered")] == ["x"]


def test_devices_that_the_pod_does_not_hold_do_not_concern_it() -> None:
    c = watched("evictMember").submit(make_pod("x", gpus=2)).run()
    fail(c, 2, 3)
    c.wait(100.0)
    assert not told(c, "DeviceFailed")
    assert c.evicted() == []


def test_a_groups_object_says_it_in_a_condition() -> None:
    c = watched()
    c.object("core", make_pod_group("a", spec={"schedulingPolicy": {"gang": {"minCount": 2}}}))
    c.submit([replace(pod, spec=replace(pod.spec, scheduling_group=_names("a"))) for pod in _plain(2)]).run()
    fail(c, 1)
    status = c.all(ef.WritePodGroupStatus)[-1].status
    kinds = {condition["type"]: condition for condition in status["conditions"]}
    assert kinds["DevicesHealthy"]["status"] == "False"
    assert (
        "GPU-n0-1 of nvidia.com/gpu on node n0 has failed under pod d/a-1"
        in kinds["DevicesHealthy"]["message"]
    )
    assert len(kinds) == 2, "beside the one that says it was scheduled"
    assert {event.kind for event in told(c, "DeviceFailed")} == {"Pod", "PodGroup"}
    fail(c)
    status = c.all(ef.WritePodGroupStatus)[-1].status
    assert [o["status"] for o in status["conditions"] if o["type"] == "DevicesHealthy"] == ["True"]


def _names(group: str) -> Any:
    from gangsched.model.objects import SchedulingGroup

    return SchedulingGroup(pod_group_name=group)


def _plain(n: int) -> list[Pod]:
    return [make_pod(f"a-{k}", gpus=1) for k in range(n)]


def test_a_restart_finds_what_has_failed() -> None:
    c = watched("evictMember", grace_s=10.0).submit(make_pod("x", gpus=2)).run()
    fail(c, 0)
    c.restart().clear()
    c.wait(11.0)
    assert c.evicted() == ["x"]


def test_bindings_hand_on_when_their_gang_was_last_evicted() -> None:
    """Each process tells the next one by the pods that it binds, as the first of them may be gone by then."""
    c = watched("evictMember").submit(gang("a", pods=3, gpus=1)).run()
    fail(c, 0)
    c.wait(31.0)
    assert c.evicted() == ["a-0"]
    for name in ("a-3", "a-4"):
        c.submit(gang("a", pods=1, gpus=1, min_members=3, first=int(name[-1]))).run()
        assert c.pod(name).spec.node_name
        c.restart()
    c.delete("a-3").restart().clear()
    fail(c, 0, 1, 2)
    c.wait(60.0)
    assert c.evicted() == [], "not again within ten minutes"


# -- done ----------------------------------------------------------------------------------------------


def test_evict_member_takes_that_pod_after_the_grace() -> None:
    c = watched("evictMember").submit(gang("a", pods=3, gpus=2)).run()
    fail(c, 2)
    c.wait(29.0)
    assert c.evicted() == []
    c.wait(2.0)
    assert c.evicted() == ["a-1"]
    assert "pod d/a-1 is evicted: device GPU-n0-2" in told(c, "DeviceEviction")[0].message
    c.submit(reborn(make_pod("a-1", group="a", min_members=3, gpus=2), "r1", c.now_s)).run()
    assert c.placed("a")
    assert "GPU-n0-2" not in c.ids("a-1")


@pytest.mark.parametrize("invalid", ["nothing", "counts"])
@pytest.mark.parametrize(
    "text", ["{", '{"nvidia.com/gpu": [{"id": "a"}, {"id": "a"}]}'], ids=["cut off", "an ID twice"]
)
def test_a_list_that_cannot_be_read_is_no_evidence_that_a_device_has_failed(text: str, invalid: Any) -> None:
    c = Cluster(Settings(devices=DeviceSettings(on_failure="evictGang"), invalid_inventory=invalid))
    c.node(make_node("n0")).submit(gang("a", pods=3, gpus=2)).run()
    node = c.nodes["n0"]
    own = {**(node.metadata.annotations or {}), INVENTORY_KEY: text}
    c.node(replace(node, metadata=replace(node.metadata, annotations=own))).wait(300.0)
    assert (c.evicted(), told(c, "DeviceFailed")) == ([], [])
    fail(c, 2)
    c.wait(31.0)
    assert sorted(set(c.evicted())) == ["a-0", "a-1", "a-2"], "what can be read counts again"


def test_evict_gang_takes_all_of_it_and_it_starts_together_again() -> None:
    c = watched("evictGang", nodes=2).submit(gang("a", pods=3, gpus=2)).run()
    fail(c, 2)
    c.evictions = "silent"
    c.wait(31.0)
    assert sorted(set(c.evicted())) == ["a-0", "a-1", "a-2"]
    fresh = [reborn(pod, "r1", c.now_s) for pod in gang("a", pods=3, gpus=2)]
    for pod in fresh[:2]:
        c.delete(pod.metadata.name).submit(pod).run()
    assert not any(c.pods[pod.metadata.uid].spec.node_name for pod in fresh[:2]), (
        "not while the old one is there"
    )
    c.delete("a-2").submit(fresh[2]).run()
    c.wait(15.0)
    assert c.placed("a")


def test_all_members_whose_devices_failed_together_are_evicted() -> None:
    """As where a node's GPUs all fail: the limit is for what fails after an eviction."""
    c = watched("evictMember").submit(gang("a", pods=3, gpus=2)).run()
    fail(c, 0, 2)
    c.wait(31.0)
    assert c.evicted() == ["a-0", "a-1"]
    fail(c, 0, 2, 4)
    c.wait(60.0)
    assert c.evicted() == ["a-0", "a-1"], "not again within ten minutes"


def test_a_flapping_device_evicts_no_pod() -> None:
    c = watched("evictGang").submit(gang("a", pods=2, gpus=2)).run()
    for _ in range(50):
        fail(c, 0)
        c.wait(20.0)
        fail(c)
        c.wait(1.0)
    assert c.evicted() == []


def test_one_group_is_not_evicted_again_and_again() -> None:
    """Each place it comes to fails under it; it is left where it is for ten minutes all the same."""
    c = watched("evictMember", grace_s=5.0)
    c.submit(gang("a", pods=1, gpus=1)).run()
    for n in range(1, 9):
        [device_id] = c.ids("a-0")
        fail(c, int(device_id.rpartition("-")[2]))
        c.wait(20.0)
        if not c.pods:
            c.submit(reborn(make_pod("a-0", group="a", min_members=1, gpus=1), f"r{n}", c.now_s)).run()
    assert len(c.evicted()) == 1
    c.wait(600.0)
    assert len(c.evicted()) == 2


def test_a_refused_eviction_is_asked_again_while_the_device_is_sick() -> None:
    c = watched("evictMember", grace_s=5.0).submit(make_pod("x", gpus=1)).run()
    c.evictions = "429"
    fail(c, 0)
    c.wait(26.0)
    assert c.evicted() == ["x", "x", "x"]
    c.evictions = "ok"
    c.wait(10.0)
    assert not c.pods


def test_a_refused_eviction_is_not_asked_again_once_the_device_is_well() -> None:
    c = watched("evictMember", grace_s=5.0).submit(make_pod("x", gpus=1)).run()
    c.evictions = "429"
    fail(c, 0)
    c.wait(8.0)
    assert c.evicted() == ["x"]
    fail(c)
    c.evictions = "ok"
    c.wait(700.0)
    assert c.evicted() == ["x"]
    assert c.pods, "its device works again"
    assert len(told(c, "DeviceRecovered")) == 1


def test_an_eviction_that_was_refused_is_no_eviction_and_another_device_has_its_own_grace() -> None:
    c = watched("evictMember", grace_s=5.0).submit(make_pod("x", gpus=2)).run()
    c.evictions = "429"
    fail(c, 0)
    c.wait(8.0)
    assert c.evicted() == ["x"]
    c.evictions = "ok"
    fail(c, 1)
    c.wait(4.0)
    assert c.evicted() == ["x"], "not before the grace of the second"
    c.wait(2.0)
    assert not c.pods, "and not ten minutes later"


def test_without_the_right_to_evict_it_is_asked_ever_more_rarely_and_reported_once() -> None:
    c = watched("evictMember", grace_s=5.0).submit(make_pod("x", gpus=1)).run()
    c.evictions = "403"
    fail(c, 0)
    c.wait(5.0 + 3600.0)
    assert len(c.evicted()) in range(18, 24), "every five minutes, in the end"
    assert [event.message for event in told(c, "DeviceFailed")][1:] == ["evicting d/x: 403 refused"]
    c.evictions = "429"
    c.wait(600.0)
    assert [event.message for event in told(c, "DeviceFailed")][2:] == ["evicting d/x: 429 refused"]
    c.evictions = "ok"
    c.wait(300.0)
    assert not c.pods


def test_a_second_device_that_fails_while_the_gang_is_being_evicted_begins_nothing_new() -> None:
    """A budget refuses for longer than it takes until the same group may be evicted again."""
    c = watched("evictGang").submit(gang("a", pods=2, gpus=2)).run()
    c.evictions = "429"
    fail(c, 0)
    c.wait(5.0)
    fail(c, 0, 2)
    c.wait(700.0)
    assert c.state("a") == "unwinding"
    assert len(told(c, "DeviceEviction")) == 1
    c.evictions = "ok"
    c.wait(300.0)
    assert not c.pods


def half_bound(c: Cluster) -> Cluster:
    c.answer = lambda bind: "ok" if bind.name == "a-0" else "403"
    c.evictions = "429"
    c.submit(gang("a", pods=2, gpus=2)).run()
    assert [pod.metadata.name for pod in c.pods.values() if pod.spec.node_name] == ["a-0"]
    return c


def test_a_device_that_fails_under_a_gang_that_is_unwound_begins_nothing_new() -> None:
    c = half_bound(watched("evictGang", on_partial_bind="unwind"))
    fail(c, *range(8))
    c.wait(60.0)
    assert c.state("a") == "unwinding"
    assert c.group("a").attempts == 2
    c.evictions = "ok"
    c.wait(64.0)
    assert [pod.metadata.name for pod in c.pods.values()] == ["a-1"]


def test_a_gang_bound_in_part_that_is_evicted_for_a_device_is_not_unwound_too() -> None:
    c = half_bound(watched("evictGang", grace_s=5.0))
    fail(c, *range(8))
    c.wait(6.0)
    attempts = c.group("a").attempts
    assert c.state("a") == "unwinding"
    c.wait(60.0)
    assert c.state("a") == "unwinding"
    assert c.group("a").attempts == attempts
    c.evictions = "ok"
    c.wait(64.0)
    assert [pod.metadata.name for pod in c.pods.values()] == ["a-1"]


def test_a_gang_that_waits_for_victims_keeps_no_room_once_it_is_evicted_itself() -> None:
    c = watched("evictGang", grace_s=5.0).submit(gang("a", pods=2, gpus=2, priority=5)).run()
    c.submit(make_pod("low", gpus=4)).run()
    c.evictions = "slow"
    c.submit(make_pod("a-2", gpus=4, group="a", min_members=2, priority=5)).run()
    assert c.state("a") == "waiting"
    fail(c, *range(4))
    c.wait(6.0)
    assert c.state("a") == "unwinding"
    assert not c.nominated()
    c.delete("low").run()
    c.submit(make_pod("other", gpus=4)).run()
    assert c.pod("other").spec.node_name
    c.delete("a-0", "a-1").run().wait(20.0)
    assert c.state("a") == "gathering"


def test_without_evictions_it_is_reported_and_left() -> None:
    c = watched("evictGang", allow_eviction=False).submit(make_pod("x", gpus=1)).run()
    fail(c, 0)
    c.wait(60.0)
    assert c.evicted() == []
    assert "allowEviction is off" in told(c, "DeviceFailed")[-1].message


@pytest.mark.parametrize(
    ("asked", "expected"), [("evictMember", ["x"]), ("none", []), ("sometimes", ["x"])], ids=str
)
def test_a_pods_own_word_goes_before_the_settings(asked: str, expected: list[str]) -> None:
    c = watched("none" if asked == "evictMember" else "evictMember")
    c.submit(with_annotations([make_pod("x", gpus=1)], {ON_DEVICE_FAILURE_KEY: asked})).run()
    fail(c, 0)
    c.wait(31.0)
    assert c.evicted() == expected
    if asked == "sometimes":
        assert (
            "'sometimes' is not one of none, evictMember, evictGang, so evictMember applies"
            in told(c, "DeviceFailed")[0].message
        )


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [("evictMember", "none", []), ("evictGang", "none", []), ("none", "evictMember", ["a-1"])],
)
def test_a_pods_word_counts_as_it_is_once_the_grace_is_over(
    before: OnFailure, after: OnFailure, expected: list[str]
) -> None:
    c = watched(before).submit(gang("a", pods=2, gpus=2)).run()
    fail(c, 2)
    c.wait(5.0)
    [pod] = with_annotations([c.pod("a-1")], {ON_DEVICE_FAILURE_KEY: after})
    c.update(pod).wait(24.0)
    assert c.evicted() == []
    c.wait(60.0)
    assert c.evicted() == expected


def test_a_word_that_comes_after_the_grace_counts_at_once() -> None:
    c = watched().submit(gang("a", pods=2, gpus=2)).run()
    fail(c, 2)
    c.wait(100.0)
    [pod] = with_annotations([c.pod("a-1")], {ON_DEVICE_FAILURE_KEY: "evictMember"})
    c.update(pod).wait(0.1)
    assert c.evicted() == ["a-1"]


def test_so_does_the_word_of_a_groups_object() -> None:
    def asked(policy: str) -> CustomObject:
        annotations = {ON_DEVICE_FAILURE_KEY: policy}
        spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
        return make_pod_group("a", spec=spec, annotations=annotations)

    c = watched().object("core", asked("none"))
    c.submit([replace(pod, spec=replace(pod.spec, scheduling_group=_names("a"))) for pod in _plain(2)]).run()
    fail(c, 1)
    c.wait(100.0).object("core", asked("evictGang")).wait(0.1)
    assert c.evicted() == ["a-0", "a-1"]


def test_an_eviction_that_is_refused_is_not_repeated_once_the_pod_says_none() -> None:
    c = watched("evictMember").submit(make_pod("x", gpus=2)).run()
    fail(c, 0)
    c.evictions = "429"
    c.wait(45.0)
    assert c.evicted() == ["x", "x"]
    c.update(with_annotations([c.pod("x")], {ON_DEVICE_FAILURE_KEY: "none"})[0]).wait(60.0)
    assert c.evicted() == ["x", "x"]


def test_each_device_has_its_own_grace() -> None:
    c = watched("evictMember").submit(make_pod("x", gpus=2)).run()
    fail(c, 0)
    c.wait(25.0)
    fail(c, 0, 1)
    c.wait(2.0)
    fail(c, 1)
    c.wait(27.0)
    assert c.evicted() == [], "neither has been unhealthy for as long"
    c.wait(2.0)
    assert c.evicted() == ["x"]


# -- back again ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["evictMember", "evictGang"])
def test_what_replaces_it_goes_ahead_of_newer_work(policy: OnFailure) -> None:
    c = watched(policy, grace_s=5.0).submit(gang("a", pods=1, gpus=8)).run()
    c.wait(100.0).submit(gang("newer", pods=1, gpus=8)).run()
    assert c.untouched("newer")
    fail(c, 0)
    c.wait(6.0)
    assert c.evicted() == ["a-0"]
    c.submit(reborn(make_pod("a-0", group="a", min_members=1, gpus=8), "r1", c.now_s)).run()
    c.wait(20.0)
    assert c.untouched("newer"), "seven devices are left"
    fail(c)
    c.run().wait(20.0)
    assert c.placed("a")
    assert c.untouched("newer")


def test_a_lone_pods_successor_is_known_by_its_controller() -> None:
    c = watched("evictMember", grace_s=5.0).submit(controlled(make_pod("web-1", gpus=8), "web")).run()
    c.wait(100.0).submit(make_pod("newer", gpus=8)).run()
    fail(c, 0)
    c.wait(6.0)
    assert c.evicted() == ["web-1"]
    c.submit(controlled(make_pod("web-2", gpus=8), "web")).run()
    fail(c)
    c.run().wait(20.0)
    assert c.placed("web")
    assert not c.pod("newer").spec.node_name


def test_the_next_attempt_at_a_job_set_goes_ahead_of_newer_work_and_is_not_evicted_at_once() -> None:
    """Its pods say which attempt they are of, and so its gang has another name."""
    c = watched("evictGang", grace_s=5.0, infer_gangs={OURS: ORDERED})
    roles = {"worker": (1, 1)}
    c.tell(ev.OwnerPut(made.owner(made.job_set("a", roles))))
    first, second = (made.decoded(made.job_set_pods("a", roles, attempt=k)) for k in (0, 1))
    c.submit(first).run().wait(100.0).submit(gang("newer", pods=1, gpus=8)).run()
    fail(c, 0)
    c.wait(6.0)
    assert c.evicted() == ["a-worker-0-0-a0"]
    c.submit(second).run()
    fail(c)
    c.run().wait(20.0)
    assert c.untouched("newer")
    assert c.pod("a-worker-0-0-a1").spec.node_name
    fail(c, 0)
    c.wait(60.0)
    assert c.evicted() == ["a-worker-0-0-a0"]


# -- devices of resource claims ------------------------------------------------------------------------


def taint(c: ClaimCluster, node: str, *numbers: int, effect: str = "NoExecute") -> None:
    """The driver taints the devices of these numbers, and no others."""
    spec = gpus(node, 8)
    for number in numbers:
        spec["devices"][number]["taints"] = [{"key": "gpu.example.com/xid", "effect": effect}]
    c.slice(f"slice-{node}", spec)


def claiming(policy: OnFailure, **request: Any) -> ClaimCluster:
    """A gang of two that runs on node n, with a device each: gpu-0 and gpu-1."""
    c = ClaimCluster(settings=Settings(devices=DeviceSettings(on_failure=policy))).offer("n")
    c.submit([c.want(f"a-{i}", wish(**request), group="a", min_members=2) for i in range(2)]).run()
    assert c.n_bound() == 2
    return c


def test_a_tainted_device_of_a_claim_takes_the_gang_with_it() -> None:
    """Kubernetes evicts the one pod, and would leave the gang in part."""
    c = claiming("evictGang")
    taint(c, "n", 1)
    c.run()
    [event] = told(c, "DeviceFailed")
    failed = (
        "device gpu.example.com/n/gpu-1 (taint gpu.example.com/xid) of resource claim d/a-1-gpu on node n"
    )
    assert event.message == f"{failed} has failed under pod d/a-1"
    assert c.evicted() == []
    c.wait(31.0)
    assert {*c.evicted()} == {"a-0", "a-1"}


def test_a_gang_whose_devices_taint_goes_in_time_stays() -> None:
    c = claiming("evictGang")
    taint(c, "n", 1)
    c.wait(20.0)
    taint(c, "n")
    c.run()
    assert [one.name for one in told(c, "DeviceRecovered")] == ["a-1"]
    c.wait(600.0)
    assert c.evicted() == []


@pytest.mark.parametrize(
    ("request_", "numbers", "effect"),
    [
        ({}, (5,), "NoExecute"),
        ({}, (0,), "NoSchedule"),
        ({"tolerations": [{"key": "gpu.example.com/xid", "operator": "Exists"}]}, (0,), "NoExecute"),
    ],
    ids=["of another", "for later pods", "tolerated"],
)
def test_a_taint_that_does_not_concern_the_claim_evicts_nobody(
    request_: dict[str, Any], numbers: tuple[int, ...], effect: str
) -> None:
    c = claiming("evictGang", **request_)
    taint(c, "n", *numbers, effect=effect)
    c.wait(600.0)
    assert not told(c, "DeviceFailed")
    assert c.evicted() == []


def test_a_rule_taints_devices_under_running_pods() -> None:
    c = claiming("evictMember")
    spec = {
        "deviceSelector": {"driver": "gpu.example.com", "device": "gpu-0"},
        "taint": {"key": "bad", "effect": "NoExecute"},
    }
    c.put(TAINT_RULES, {"metadata": {"name": "rule", "uid": "uid-rule"}, "spec": spec}, DeviceTaintRule)
    c.wait(31.0)
    assert c.evicted() == ["a-0"]
