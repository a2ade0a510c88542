"""Dialects, numbers that come late or wrong, strangers, and the words that people get to read."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from gangsched.core.scheduler import Scheduler
from gangsched.lab.sim.making import usual_config
from gangsched.lab.sim.objects import STRANGER, make_node, make_pod, make_pod_group
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.devices.annotations import ALLOCATED_KEY, INVENTORY_KEY
from gangsched.model.objects import CustomObject, Pod, SchedulingGroup
from gangsched.model.pod_group import COSCHEDULING_LABEL, COSCHEDULING_OLD_LABEL, GROUP_LABEL
from gangsched.plugins import build_profiles
from tests.support.scenario import Cluster, cluster, gang, with_annotations


def core_pod(name: str, group: str, *, gpus: int = 8) -> Pod:
    pod = make_pod(name, gpus=gpus)
    return replace(pod, spec=replace(pod.spec, scheduling_group=SchedulingGroup(group)))


def core_spec(n: int) -> dict[str, object]:
    return {"schedulingPolicy": {"gang": {"minCount": n}}}


@pytest.mark.parametrize("label", [COSCHEDULING_LABEL, COSCHEDULING_OLD_LABEL])
def test_coscheduling_gangs_wait_for_their_object_which_gets_their_phase(label: str) -> None:
    c = cluster().submit(*(make_pod(f"a-{k}", gpus=8, labels={label: "a"}) for k in range(2))).run()
    c.wait(6.0)
    assert c.said("a-0") == "gang d/a waits for its PodGroup object, which does not exist (yet)"
    c.object("coscheduling", make_pod_group("a", spec={"minMember": 2})).run()
    assert c.placed("a", on=2)
    assert c.all(ef.WritePodGroupStatus)[-1].status["phase"] == "Scheduled"


def test_core_gangs_get_the_condition_of_their_api_version() -> None:
    c = cluster(nodes=1).object("core", make_pod_group("a", spec=core_spec(2)))
    c.submit(core_pod("a-0", "a"), core_pod("a-1", "a")).run()
    (condition,) = c.all(ef.WritePodGroupStatus)[-1].status["conditions"]
    assert (condition["type"], condition["status"]) == ("PodGroupInitiallyScheduled", "False")
    c.node(make_node("n9")).wait(2.0)
    (condition,) = c.all(ef.WritePodGroupStatus)[-1].status["conditions"]
    assert (condition["status"], condition["reason"]) == ("True", "Scheduled")
    assert {e.kind for e in c.all(ef.RecordEvent)} == {"PodGroup"}


def test_lightweight_labels_are_enough() -> None:
    name = "pod-group.scheduling.sigs.k8s.io/name"
    marks = {name: "a", "pod-group.scheduling.sigs.k8s.io/min-available": "2"}
    c = cluster().submit(make_pod("a-0", labels=marks)).run()
    assert c.untouched("a")
    assert c.submit(make_pod("a-1", labels=marks)).run().placed("a")


def test_a_node_label_copied_onto_a_bound_pod_moves_nothing() -> None:
    """kube-apiserver does that to every pod it binds (KEP-4742), so it must cost next to nothing."""
    c = cluster(nodes=2).submit(gang("a", pods=2, gpus=8)).run()
    held = c.pod_infos()
    for name in ("a-0", "a-1"):
        meta = c.pod(name).metadata
        labels = {**(meta.labels or {}), "topology.kubernetes.io/zone": "z"}
        c.update(c.pod(name), metadata=replace(meta, labels=labels))
    assert all(c.pod_infos()[uid] is info for uid, info in held.items())
    assert c.placed("a", on=2)
    c.five_more_turns_change_nothing()


def test_a_pod_that_is_given_another_groups_label_is_that_groups() -> None:
    c = cluster().submit(gang("a", pods=2, gpus=1), gang("b", pods=3, gpus=1)[:2]).run()
    assert c.placed("a")
    assert c.untouched("b")
    meta = c.pod("a-1").metadata
    c.update(c.pod("a-1"), metadata=replace(meta, labels={**(meta.labels or {}), GROUP_LABEL: "b"})).run()
    assert [len(c.group(name).members) for name in ("a", "b")] == [1, 3]


def test_a_lone_pod_is_a_gang_of_one() -> None:
    c = cluster(nodes=1).submit(make_pod("a", gpus=8)).run()
    assert c.pod("a").spec.node_name == "n0"
    assert c.reasons() == ["Scheduled"]
    c.submit(make_pod("b", gpus=1)).run()
    assert c.said("b").startswith("0/1 nodes are available: 1 Insufficient")


def test_groups_are_per_namespace() -> None:
    c = cluster().submit(gang("a", pods=1, min_members=2))
    c.submit(make_pod("a-9", group="a", min_members=2, namespace="other")).run()
    assert c.untouched("a")
    assert len(c.groups()) == 2


def test_a_condition_is_not_written_again_when_nothing_changed() -> None:
    c = cluster(nodes=1).submit(gang("a", pods=2, gpus=8)).run()
    assert len(c.all(ef.WritePodCondition)) == 2
    assert len(c.all(ef.RecordEvent)) == 1
    c.clear().wait(1000.0)
    assert c.group("a").attempts > 2
    assert not c.effects


# -- bad input ----------------------------------------------------------------------------------------------


def refused(c: Cluster, pods: list[Pod], *said: str) -> Cluster:
    """Nobody of them is bound, every one has the reason, and the next gang is bound as ever."""
    c.submit(pods).run()
    for pod in pods:
        if pod.spec.scheduler_name != STRANGER:
            for words in said:
                assert words in c.said(pod.metadata.name)
            assert not c.pod(pod.metadata.name).spec.node_name
    assert c.submit(gang("fine", pods=2)).run().placed("fine")
    return c


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("gangsched.io/min-members", "many", "gangsched.io/min-members: 'many' is not a whole number"),
        ("gangsched.io/min-members", "-1", "gangsched.io/min-members: '-1' is not a whole number"),
        ("gangsched.io/min-members", "0", "is not a whole number from 1"),
        ("gangsched.io/min-members", "99999999", "is not a whole number from 1 to 100000"),
        ("gangsched.io/total-members", "1", "gangsched.io/total-members: 1 is less than"),
        ("gangsched.io/schedule-timeout", "soon", "'soon' is not a duration"),
        ("gangsched.io/schedule-timeout", "0s", "is not a positive duration"),
        ("gangsched.io/groups", "b", "is not a JSON list of groups"),
        ("gangsched.io/on-partial-bind", "maybe", "'maybe' is neither complete nor unwind"),
    ],
)
def test_an_annotation_that_does_not_parse_is_named(key: str, value: str, said: str) -> None:
    refused(cluster(), with_annotations(gang("a", pods=2), {key: value}), said)


def test_members_that_disagree_are_reported_with_the_difference() -> None:
    pods = [*gang("a", pods=1, min_members=2), *gang("a", pods=1, min_members=3, first=1)]
    refused(cluster(), pods, "members disagree on gangsched.io/min-members", "'2' (a-0)", "'3' (a-1)")


def test_two_dialects_that_name_different_groups() -> None:
    pod = make_pod("a-0", labels={GROUP_LABEL: "a", COSCHEDULING_LABEL: "b"})
    c = refused(cluster(), [pod], "the pod names different groups", "'a'", "'b'")
    c.update(c.pod("a-0"), metadata=replace(c.pod("a-0").metadata, labels={})).run().wait(15.0)
    assert c.pod("a-0").spec.node_name, "mended by its user"


def test_members_of_two_schedulers() -> None:
    pods = [*gang("a", pods=1, min_members=2), *gang("a", pods=1, min_members=2, first=1, scheduler=STRANGER)]
    c = refused(cluster(), pods, "members name different schedulers (default-scheduler, gangsched)")
    assert not [e for e in c.effects if getattr(e, "name", "") == "a-1"]


def ends(c: Cluster) -> None:
    c.phase("a-2", "Succeeded")


def leaves(c: Cluster) -> None:
    c.update(c.pod("a-2"), metadata=make_pod("a-2").metadata)


def goes(c: Cluster) -> None:
    c.delete("a-2")


@pytest.mark.parametrize("mended", [ends, leaves, goes])
def test_a_gang_starts_when_the_member_of_another_scheduler_is_none_any_more(
    mended: Callable[[Cluster], None],
) -> None:
    strange = gang("a", pods=1, min_members=2, first=2, scheduler=STRANGER)
    said = "members name different schedulers (default-scheduler, gangsched)"
    c = refused(cluster(), [*gang("a", pods=2), *strange], said)
    mended(c)
    c.run().wait(15.0)
    assert all(c.pod(name).spec.node_name for name in ("a-0", "a-1"))


def test_a_pod_of_another_scheduler_that_joins_a_gang_later_keeps_it_from_starting() -> None:
    c = cluster().submit(make_pod("other", scheduler=STRANGER)).submit(gang("a", pods=1, min_members=2))
    other = gang("a", pods=1, min_members=2, first=1)[0]
    meta = replace(other.metadata, name="other", uid=c.pod("other").metadata.uid)
    c.update(c.pod("other"), metadata=meta).submit(gang("a", pods=1, min_members=2, first=2)).run()
    assert "members name different schedulers" in c.said("a-0")


def test_more_members_asked_for_than_exist() -> None:
    c = cluster().submit(gang("a", pods=2, min_members=5)).run().wait(6.0)
    assert c.said("a-1") == "gang d/a waits for members: 2 of 5 exist"


def test_an_inventory_with_a_device_twice_is_reported_on_the_node_and_gives_nothing() -> None:
    text = '{"nvidia.com/gpu":[{"id":"A"},{"id":"A"}]}'
    c = cluster(nodes=1).node(make_node("bad", annotations={INVENTORY_KEY: text}))
    (event,) = c.all(ef.RecordEvent)
    assert (event.kind, event.name, event.reason) == ("Node", "bad", "InvalidDeviceInventory")
    assert "lists the ID 'A' twice" in event.message
    c.submit(gang("a", pods=8)).run()
    assert {c.pod(f"a-{k}").spec.node_name for k in range(8)} == {"n0"}
    c.submit(make_pod("b")).run()
    assert not c.pod("b").spec.node_name


def test_a_request_that_does_not_parse_is_refused_with_its_reason() -> None:
    refused(cluster(), gang("a", pods=1, cpu="lots"), "cpu", "lots")


def test_text_from_strangers_is_shown_escaped() -> None:
    pods = with_annotations(gang("a", pods=1), {"gangsched.io/min-members": "\x1b[31m\n<b>"})
    c = refused(cluster(), pods, "is not a whole number")
    assert all(symbol not in c.said("a-0") for symbol in ("\x1b", "\n"))


def test_an_object_that_does_not_parse_is_reported_on_the_pods() -> None:
    c = cluster().submit(make_pod("a-0", labels={COSCHEDULING_LABEL: "a"}))
    c.object("coscheduling", make_pod_group("a", spec={"minMember": "x"})).run()
    assert "PodGroup d/a: spec.minMember: 'x' is not a whole number" in c.said("a-0")
    c.object("coscheduling", make_pod_group("a", spec={"minMember": 1})).run().wait(15.0)
    assert c.placed("a")


def test_a_refused_object_spoils_no_other_dialects_group_of_that_name() -> None:
    c = cluster().object("core", make_pod_group("a", spec=core_spec(1)))
    c.tell(ev.ObjectRefused("PodGroup", "d", "a", "uid", "not an object"))
    assert c.submit(core_pod("a-0", "a")).run().placed("a")


# -- strangers ----------------------------------------------------------------------------------------------


def test_other_schedulers_pods_are_counted_and_never_written_to() -> None:
    c = cluster(nodes=1)
    other = make_pod("other", gpus=6, scheduler=STRANGER)
    c.submit(replace(other, spec=replace(other.spec, node_name="n0")))
    c.submit(make_pod("pending", gpus=8, scheduler=STRANGER)).run()
    c.submit(gang("a", pods=2, gpus=2)).run()
    assert c.untouched("a")
    assert {e.name for e in c.all(ef.WritePodCondition)} == {"a-0", "a-1"}
    assert not c.all(ef.BindPod)


def test_nominated_pods_of_no_lower_priority_keep_their_room() -> None:
    c = cluster(nodes=1)
    other = make_pod("other", gpus=6, scheduler=STRANGER, priority=10)
    c.submit(replace(other, status=replace(other.status, nominated_node_name="n0")))
    c.submit(make_pod("low", gpus=4), make_pod("high", gpus=4, priority=11)).run()
    assert c.pod("high").spec.node_name
    assert not c.pod("low").spec.node_name


def test_a_forged_device_annotation_is_reported_and_its_devices_are_not_given_again() -> None:
    c = cluster(nodes=1).submit(make_pod("a", gpus=4)).run()
    mine = (c.pod("a").metadata.annotations or {})[ALLOCATED_KEY]
    forged = make_pod("forged", gpus=4, scheduler=STRANGER, annotations={ALLOCATED_KEY: mine})
    c.submit(replace(forged, spec=replace(forged.spec, node_name="n0")))
    assert "DeviceMismatch" in c.reasons()


def test_a_waiting_gang_is_looked_at_again_beside_a_nominated_pod() -> None:
    pods = with_annotations(gang("a", pods=2, min_members=1), {"gangsched.io/groups": '["a","b"]'})
    c = cluster().submit(pods).run()
    other = make_pod("other", scheduler=STRANGER)
    c.submit(replace(other, status=replace(other.status, nominated_node_name="n3")))
    c.leave("a-1").run()
    assert c.state("a") == "waiting"
    assert c.scheduler.statistics()["reservations"] == 1


# -- two names on one pod ------------------------------------------------------------------------------


def basic(name: str) -> CustomObject:
    """As the Job controller of 1.37 makes it for a Job that says nothing of scheduling."""
    return make_pod_group(name, spec={"schedulingPolicy": {"basic": {}}})


def pods_with_two_groups(name: str, core: str, *, pods: int, gpus: int = 8) -> list[Pod]:
    made = gang(name, pods=pods, gpus=gpus)
    return [replace(p, spec=replace(p.spec, scheduling_group=SchedulingGroup(core))) for p in made]


@pytest.mark.parametrize("core", ["a", "a-x7f"], ids=["of one name", "of two names"])
@pytest.mark.parametrize("order", ["object first", "pods first", "in between"])
def test_the_users_own_name_goes_before_a_basic_pod_group(core: str, order: str) -> None:
    c = cluster(nodes=2)
    pods = pods_with_two_groups("a", core, pods=2)
    if order == "object first":
        c.object("core", basic(core))
    c.submit(pods[:1]).run()
    if order == "in between":
        c.object("core", basic(core)).run()
    assert c.untouched("a")
    c.submit(pods[1:]).run()
    if order == "pods first":
        assert c.untouched("a")
        assert c.state(core) == "gathering"
        c.object("core", basic(core)).run()
    assert c.placed("a", on=2)
    assert {bind.group for bind in c.all(ef.BindPod)} == {"d/a"}
    c.five_more_turns_change_nothing()


def test_a_gang_beside_a_basic_pod_group_that_does_not_fit_is_not_bound_in_part() -> None:
    pods = pods_with_two_groups("a", "a-x7f", pods=3)
    c = cluster(nodes=2).object("core", basic("a-x7f")).submit(pods).run()
    assert c.untouched("a")
    assert c.node(make_node("n2")).wait(11.0).placed("a", on=3)


def test_two_names_that_both_ask_for_a_gang_are_refused() -> None:
    c = cluster().submit(pods_with_two_groups("a", "b", pods=2)).run()
    c.object("core", make_pod_group("b", spec=core_spec(2))).run()
    assert c.untouched("a")
    said = "gangsched.io/pod-group names 'a', spec.schedulingGroup.podGroupName names 'b'; keep one"
    assert c.said("a-0") == f"the pod names different groups: {said}"
    c.object("core", basic("b")).run()
    assert c.placed("a")


def test_one_name_for_a_gang_in_both_is_the_core_groups() -> None:
    c = cluster().object("core", make_pod_group("a", spec=core_spec(3)))
    c.submit(pods_with_two_groups("a", "a", pods=2)).run()
    assert c.untouched("a")
    assert c.submit(replace(core_pod("a-2", "a"))).run().placed("a", on=3)


@pytest.mark.parametrize("object_is_there", [True, False])
def test_a_restart_finds_a_running_gang_with_two_names_as_it_is(*, object_is_there: bool) -> None:
    c = cluster().object("core", basic("a-x7f")).submit(pods_with_two_groups("a", "a-x7f", pods=2)).run()
    assert c.placed("a")
    if not object_is_there:
        c.drop_object("core", "a-x7f")
    c.clear().restart().run().wait(60.0)
    assert not c.all(ef.EvictPod)
    assert c.placed("a")
    c.five_more_turns_change_nothing()


def test_the_last_pod_with_two_names_leaves_nothing_behind() -> None:
    c = cluster().object("core", basic("a-x7f")).submit(pods_with_two_groups("a", "a-x7f", pods=2)).run()
    c.delete("a-0", "a-1")
    assert not c.scheduler.membership._two_groups._uids


def test_a_follower_forgets_groups_whose_pods_are_gone() -> None:
    """It follows for weeks, and each lone pod is a group."""
    c = Cluster(make=lambda settings: Scheduler(build_profiles(usual_config()), settings, leading=False))
    c.node(make_node("n0", gpus=8))
    for i in range(3):
        c.submit(gang(f"g{i}", pods=2), make_pod(f"p{i}"))
        c.update(c.pod(f"g{i}-0"), spec=replace(c.pod(f"g{i}-0").spec, node_name="n0"))
        c.delete(f"g{i}-0", f"g{i}-1", f"p{i}")
    c.submit(gang("still", pods=2))
    assert c.group_names() == ["d/still"]
    assert not c.scheduler.shared.marked_groups
    c.tell(ev.LeadershipGained()).run()
    assert c.placed("still")
