"""Whether a gang was whole is in its Bindings: a restart evicts none that ran, and leaves none in part."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.config.devices import DeviceSettings
from gangsched.lab.sim.objects import inventory, make_node, make_pod, make_pod_group
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.devices.annotations import INVENTORY_KEY
from gangsched.model.objects import Condition, ContainerEnd, ContainerState, ContainerStatus, Pod
from gangsched.model.pod_group import COSCHEDULING_LABEL, START_KEY
from tests.support.scenario import Cluster, cluster, gang, with_annotations


def runs(c: Cluster, *names: str) -> list[str]:
    """The names of pods that hold a node; by default of all."""
    live = [p.metadata.name for p in c.pods.values() if p.spec.node_name and not p.is_terminal]
    return sorted(name for name in live if not names or name in names)


def started(c: Cluster) -> Cluster:
    """Kubelets start what is bound."""
    for pod in list(c.pods.values()):
        if pod.spec.node_name and not pod.status.phase:
            c.update(pod, status=replace(pod.status, phase="Running"))
    return c


def refuse(c: Cluster, name: str, reason: str = "UnexpectedAdmissionError", *, ran: bool = False) -> Cluster:
    pod = c.pod(name)
    states = [ContainerStatus(state=ContainerState(terminated=ContainerEnd()))] if ran else None
    status = replace(pod.status, phase="Failed", reason=reason, container_statuses=states)
    return c.update(pod, status=status)


def record(c: Cluster, name: str) -> dict[str, int]:
    found = json.loads((c.pod(name).metadata.annotations or {})[START_KEY])
    assert isinstance(found, dict)
    return found


def four_that_lost_two() -> Cluster:
    """A gang of four ran for a minute; the node with two of its members is lost, and another has room for
    one."""
    c = cluster(nodes=2).submit(gang("a", pods=4, gpus=4)).run()
    started(c)
    c.now_s += 60.0
    node = c.pod("a-3").spec.node_name
    c.drop_node(node)
    lost = [pod.metadata.name for pod in c.pods.values() if pod.spec.node_name == node]
    assert len(lost) == 2
    return c.delete(*lost).node(make_node("small", gpus=4))


def successors(n: int) -> list[Pod]:
    return [make_pod(f"new-{k}", group="a", min_members=4, gpus=4) for k in range(n)]


def test_a_restart_evicts_no_gang_that_ran_whole_and_has_got_some_of_its_successors() -> None:
    c = four_that_lost_two()
    c.submit(successors(2)).run()
    before = runs(c)
    assert len(before) == 3
    c.now_s += 5.0
    for _ in range(2):
        c.restart().run().wait(120.0)
        assert runs(c) == before
    assert not c.all(ef.EvictPod)


@pytest.mark.parametrize("after_s", [0.0, 5.0], ids=["in the second of the last bind", "later"])
def test_a_successor_made_as_its_gang_was_bound_does_not_make_it_a_gang_in_part(after_s: float) -> None:
    c = four_that_lost_two()
    c.submit(successors(1)).run()
    c.now_s += after_s
    c.submit(make_pod("new-1", group="a", min_members=4, gpus=4)).run()
    before = runs(c)
    c.restart().run().wait(120.0)
    assert runs(c) == before


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_process_that_died_before_it_wrote_that_a_gang_is_whole_again_is_spoken_for(
    *, is_listed: bool
) -> None:
    c = four_that_lost_two()
    [marked, *_] = [pod for pod in c.pods.values() if pod.status.conditions]
    c.submit(successors(2)).node(make_node("large")).run()
    assert len(runs(c)) == 4
    bare = [replace(pod, status=replace(pod.status, conditions=None)) for pod in c.pods.values()]
    pod = c.pod(marked.metadata.name)
    c.store(pod, status=replace(pod.status, conditions=marked.status.conditions))
    there = c.pods
    if not is_listed:  # the list is from before, when none had a condition, and the watch shows this one
        c.pods = {**{f"before {pod.key}": pod for pod in bare}, **there}
    c.clear().restart()
    c.pods = there
    [said] = [one for one in c.run().all(ef.WritePodCondition) if one.type == ef.GANG_WHOLE]
    assert (said.name, said.status, said.reason) == (marked.metadata.name, "True", "Whole")


def says_in_part(c: Cluster, name: str, minute: int) -> Cluster:
    """A process that no longer leads writes, at that minute, that the gang is bound in part."""
    pod = c.pod(name)
    when = datetime(2026, 1, 1, 0, minute, tzinfo=UTC)
    mark = Condition(ef.GANG_WHOLE, "False", "BoundInPart", "1 of 4", last_transition_time=when)
    others = [one for one in pod.status.conditions or () if one.type != mark.type]
    return c.update(pod, status=replace(pod.status, conditions=[*others, mark]))


def answers(c: Cluster) -> list[tuple[str, str, str]]:
    written = [one for one in c.run().all(ef.WritePodCondition) if one.type == ef.GANG_WHOLE]
    c.clear()
    return [(one.name, one.status, one.reason) for one in written]


@pytest.mark.parametrize("has_lost", [False, True], ids=["whole", "has lost a member"])
def test_what_a_deposed_process_writes_of_a_gang_that_started_is_put_right_each_time(
    *, has_lost: bool
) -> None:
    c = cluster(nodes=4).submit(gang("a", pods=4, gpus=4)).run()
    started(c)
    if has_lost:
        c.delete("a-3").run()
    c.clear()
    right = ("a-1", "False", "LostMembers") if has_lost else ("a-1", "True", "Whole")
    for minute in (10, 11):
        assert answers(says_in_part(c, "a-1", minute)) == [right]
        assert answers(c.wait(60.0)) == []
    says_in_part(c, "a-0", 12).run()
    c.restart().run().wait(120.0)
    assert not c.all(ef.EvictPod)
    assert len(runs(c)) == (3 if has_lost else 4)


def test_a_process_that_finds_a_gang_with_a_loss_puts_right_every_member_that_says_otherwise() -> None:
    """It was in part, a second attempt completed it, and the process died before it wrote so. A loss is
    written on a few members only, and others would still say that it is in part."""
    c = cluster(nodes=4)
    c.answer = lambda bind: "422" if bind.attempt == 1 and bind.name in ("a-4", "a-5") else "ok"
    c.submit(gang("a", pods=6, gpus=4)).run().wait(60.0)
    started(c)
    status, mark = c.pod("a-2").status, Condition(ef.GANG_WHOLE, "False", "BoundInPart", "4 of 6")
    others = [one for one in status.conditions or () if one.type != mark.type]
    c.store(c.pod("a-2"), status=replace(status, conditions=[*others, mark]))
    c.pods.pop(c.pod("a-3").metadata.uid)
    c.clear().restart()
    found = [name for name, status, reason in answers(c) if (status, reason) == ("False", "LostMembers")]
    assert found == ["a-4", "a-5", "a-0", "a-2"]


def test_a_gang_whose_last_bind_landed_after_it_was_marked_as_in_part_has_been_whole() -> None:
    """The process that wrote so did not know yet how that bind ended, and died before it heard."""
    c = cluster(nodes=4).submit(gang("a", pods=4, gpus=4)).run()
    started(c)
    for name in ("a-0", "a-1", "a-3"):
        status = c.pod(name).status
        mark = Condition(ef.GANG_WHOLE, "False", "BoundInPart", "3 of 4")
        c.store(c.pod(name), status=replace(status, conditions=[*(status.conditions or ()), mark]))
    c.store(c.pod("a-2"), status=replace(c.pod("a-2").status, phase="Failed"))
    c.clear().restart().run().wait(600.0)
    assert not c.all(ef.EvictPod)
    assert {reason for _, _, reason in answers(c.clear().restart())} == {"LostMembers"}


@pytest.mark.parametrize("is_new", [False, True], ids=["the same process", "after a restart"])
def test_a_gang_that_lost_a_member_before_kubelet_refused_another_has_never_started(*, is_new: bool) -> None:
    c = cluster(nodes=1).submit(gang("a", pods=3, gpus=2)).run()
    c.delete("a-1").submit(gang("a", pods=1, gpus=2, first=3, min_members=3)).run()
    assert c.group("a").has_started
    refuse(c, "a-0").run()
    if is_new:
        c.restart().run()
    assert c.group("a").is_half_bound
    c.delete("a-0").submit(gang("a", pods=1, gpus=2, first=4, min_members=3)).run()
    assert c.group("a").has_started
    assert runs(c) == ["a-2", "a-3", "a-4"]


def test_a_gang_that_keeps_fewer_than_it_starts_with_says_that_it_runs_once_it_has_started() -> None:
    """It starts with four and keeps two. One that kubelet refused put it in part, its successor completed it,
    and the process died before it wrote so: three that run are enough."""
    total = {"gangsched.io/total-members": "4"}
    c = cluster(nodes=4)
    c.submit(with_annotations(gang("a", pods=4, gpus=4, min_members=2), total)).run()
    refuse(c, "a-3")
    c.run()
    new = with_annotations([make_pod("new", group="a", min_members=2, gpus=4)], total)
    c.submit(new).delete("a-3").run()
    started(c)
    mark = Condition(ef.GANG_WHOLE, "False", "BoundInPart", "3 of 4")
    pod = c.pod("a-1")
    c.store(pod, status=replace(pod.status, conditions=[mark]))
    c.pods.pop(c.pod("a-0").metadata.uid)
    c.clear().restart()
    assert answers(c) == [("a-1", "True", "Whole")]
    assert answers(says_in_part(c, "a-2", 11)) == [("a-2", "True", "Whole")]
    assert len(runs(c)) == 3


def test_a_gang_with_more_members_than_it_needs_survives_a_loss_and_a_restart() -> None:
    """Four of six run; the other two are as old as they are."""
    c = cluster(nodes=4)
    c.submit(gang("a", pods=6, gpus=8, min_members=4)).run()
    started(c)
    assert {**record(c, runs(c)[0]), "newest": 0} == {"together": 4, "needs": 4, "newest": 0, "leftOut": 2}
    c.now_s += 60.0
    node = c.pod(runs(c)[0]).spec.node_name
    c.drop_node(node).delete(runs(c)[0])
    before = runs(c)
    c.restart().run().wait(120.0)
    assert runs(c) == before


def test_a_gang_killed_between_two_binds_is_unwound_after_a_restart() -> None:
    c = cluster(nodes=2)
    c.answer = lambda bind: "ok" if bind.name == "a-0" else "hold"
    c.submit(gang("a", pods=2, gpus=8)).run()
    c.node(replace(c.nodes["n1"], spec=replace(c.nodes["n1"].spec, unschedulable=True)))
    c.now_s += 5.0
    c.answer = lambda _: "ok"
    c.restart().run().wait(60.0)
    assert runs(c) == []


def test_members_left_out_that_are_made_again_do_not_hide_that_the_gang_is_in_part() -> None:
    """The process that saw the bind fail has said so on the member that runs."""
    c = cluster(nodes=2)
    c.answer = lambda bind: "ok" if bind.name == "a-0" else "422"
    c.submit(gang("a", pods=2, gpus=8)).run()
    assert runs(c) == ["a-0"]
    c.node(replace(c.nodes["n1"], spec=replace(c.nodes["n1"].spec, unschedulable=True)))
    c.now_s += 3.0
    c.answer = lambda _: "ok"
    c.delete("a-1").submit(gang("a", pods=1, gpus=8, first=1, min_members=2))
    c.restart().run().wait(60.0)
    assert runs(c) == []


@pytest.mark.parametrize("how", ["deleted", "unreadable"])
def test_a_gang_in_part_is_unwound_though_its_object_went_while_nobody_looked(how: str) -> None:
    c = cluster(nodes=2)
    c.object("coscheduling", make_pod_group("a", spec={"minMember": 2}))
    c.answer = lambda bind: "ok" if bind.name == "a-0" else "hold"
    pods = [make_pod(f"a-{k}", gpus=8, labels={COSCHEDULING_LABEL: "a"}) for k in range(2)]
    c.submit(*pods).run()
    assert runs(c) == ["a-0"]
    del c.objects["coscheduling", "a"]
    if how == "unreadable":
        c.objects["coscheduling", "a"] = make_pod_group("a", spec={"minMember": "many"})
    c.now_s += 5.0
    c.answer = lambda _: "ok"
    c.restart().run().wait(60.0)
    assert runs(c) == []


@pytest.mark.parametrize("restarts", [False, True], ids=["", "restarted"])
def test_a_gang_that_runs_stays_though_its_object_is_gone(*, restarts: bool) -> None:
    c = cluster(nodes=2)
    c.object("coscheduling", make_pod_group("a", spec={"minMember": 2}))
    c.submit(*(make_pod(f"a-{k}", gpus=8, labels={COSCHEDULING_LABEL: "a"}) for k in range(2))).run()
    started(c)
    c.now_s += 5.0
    if restarts:
        del c.objects["coscheduling", "a"]
        c.restart()
    else:
        c.drop_object("coscheduling", "a")
    c.phase("a-0", "Failed")
    c.run().wait(60.0)
    assert runs(c) == ["a-1"]


@pytest.mark.parametrize("text", ["", "{", "[" * 5000, '{"together":-1}', '{"together":1e99}', '"x"'])
def test_an_unreadable_record_counts_as_none(text: str) -> None:
    c = cluster(nodes=2).submit(gang("a", pods=2, gpus=8)).run()
    started(c)
    c.now_s += 5.0
    for name in ("a-0", "a-1"):
        pod = with_annotations([c.pod(name)], {START_KEY: text})[0]
        c.store(pod)
    c.delete("a-1").submit(gang("a", pods=1, gpus=8, first=2, min_members=2))
    c.drop_node("n1")
    c.restart().run().wait(60.0)
    assert runs(c) == ["a-0"], "its successor was made after the last bind"


def test_a_record_that_a_pod_is_created_with_starts_no_gang() -> None:
    c = cluster(nodes=1)
    forged = {START_KEY: '{"together":0,"needs":1}', "gangsched.io/gang": "d/a", "gangsched.io/attempt": "1"}
    c.submit(with_annotations(gang("a", pods=2, gpus=8), forged)).run().wait(30.0)
    assert runs(c) == []


# -- kubelet's refusal ---------------------------------------------------------------------------------


@pytest.mark.parametrize("restarts", [False, True], ids=["", "restarted"])
@pytest.mark.parametrize("is_kept", [False, True], ids=["deleted", "kept"])
@pytest.mark.parametrize(
    "reason", ["UnexpectedAdmissionError", "OutOfcpu", "TopologyAffinityError", "Evicted"]
)
def test_a_member_that_kubelet_refuses_has_not_started(reason: str, *, restarts: bool, is_kept: bool) -> None:
    c = cluster(nodes=2).submit(gang("a", pods=2, gpus=8)).run()
    c.phase("a-0", "Running")
    refuse(c, "a-1", reason)
    c.drop_node(c.pod("a-1").spec.node_name)
    if not is_kept:
        c.delete("a-1")
    c.now_s += 2.0
    c.submit(gang("a", pods=1, gpus=8, first=2, min_members=2)).run()
    if restarts:
        c.restart().run()
    c.wait(60.0)
    assert runs(c) == [], "the other one was unwound"


def test_the_successor_of_a_refused_member_completes_its_gang() -> None:
    c = cluster(nodes=2).submit(gang("a", pods=2, gpus=8)).run()
    c.phase("a-0", "Running")
    refuse(c, "a-1")
    assert "refused" in " ".join(one.message for one in c.all(ef.RecordEvent))
    c.now_s += 2.0
    c.submit(gang("a", pods=1, gpus=8, first=2, min_members=2)).run()
    assert runs(c) == ["a-0", "a-2"]
    for _ in range(2):
        c.restart().run().wait(60.0)
        assert runs(c) == ["a-0", "a-2"]
    assert not c.all(ef.EvictPod)


def test_a_refused_member_without_a_successor_does_not_leave_the_others_alone() -> None:
    c = cluster(nodes=3).submit(gang("a", pods=3, gpus=8)).run()
    c.phase("a-0", "Running").phase("a-1", "Running")
    refuse(c, "a-2").wait(60.0)
    assert runs(c) == []


def completed(*, refuses: bool) -> Cluster:
    """A gang that was bound in part has been completed by an attempt with one bind; then no process runs, and
    kubelet ends the first member, before it has started or later."""
    c = cluster(nodes=2)
    c.answer = lambda bind: "422" if bind.name == "a-1" and bind.attempt == 1 else "ok"
    c.submit(gang("a", pods=2, gpus=8)).run().wait(5.0)
    assert runs(c) == ["a-0", "a-1"]
    assert [record(c, name)["together"] for name in runs(c)] == [2, 1]
    pod = c.phase("a-1", "Running").pod("a-0")
    status = replace(pod.status, phase="Failed", reason="UnexpectedAdmissionError" if refuses else "")
    c.store(pod, status=status)
    return c.restart().run().wait(60.0)


def test_a_gang_that_was_completed_beside_a_member_that_kubelet_then_refused_is_in_part() -> None:
    assert runs(completed(refuses=True)) == []
    assert runs(completed(refuses=False)) == ["a-1"], "it was whole, and one has failed"


def test_a_gang_that_was_completed_after_a_refusal_was_whole_though_the_others_are_gone() -> None:
    c = cluster(nodes=2).submit(gang("a", pods=2, gpus=8)).run()
    c.phase("a-0", "Running")
    refuse(c, "a-1")
    c.now_s += 2.0
    c.submit(gang("a", pods=1, gpus=8, first=2, min_members=2)).run().phase("a-2", "Running")
    assert runs(c) == ["a-0", "a-2"]
    del c.pods[c.pod("a-0").metadata.uid]
    c.restart().run().wait(60.0)
    assert runs(c) == ["a-2"]


def test_a_policy_to_unwind_holds_for_a_refused_member() -> None:
    c = cluster(nodes=2, settings=Settings(on_partial_bind="unwind"))
    c.submit(gang("a", pods=2, gpus=8)).run()
    refuse(c, "a-1")
    assert runs(c) == []


def test_a_member_refused_while_other_binds_are_on_their_way_is_a_bind_that_failed() -> None:
    c = cluster(nodes=2)
    c.answer = lambda bind: "hold" if bind.name == "a-1" else "ok"
    c.submit(gang("a", pods=2, gpus=8)).run()
    [bind] = c.held_binds
    c.commit(bind)
    refuse(c, "a-1").tell(ev.BindSucceeded(bind.uid, bind.attempt)).wait(60.0)
    assert runs(c) == []


@pytest.mark.parametrize("reason", ["", "Error", "Evicted"])
def test_a_member_that_ran_and_failed_costs_the_others_nothing(reason: str) -> None:
    c = cluster(nodes=2).submit(gang("a", pods=2, gpus=8)).run()
    started(c)
    refuse(c, "a-1", reason, ran=True).wait(60.0)
    c.restart().run().wait(60.0)
    assert runs(c) == ["a-0"]


def test_a_member_that_ran_and_is_not_admitted_again_after_a_reboot_costs_the_others_nothing() -> None:
    c = cluster(nodes=2).submit(gang("a", pods=2, gpus=8)).run()
    started(c)
    refuse(c, "a-1").wait(60.0)
    assert runs(c) == ["a-0"]


def test_a_refused_successor_of_a_gang_that_ran_costs_the_others_nothing() -> None:
    c = cluster(nodes=2).submit(gang("a", pods=2, gpus=8)).run()
    started(c)
    c.now_s += 5.0
    c.delete("a-1").submit(gang("a", pods=1, gpus=8, first=2, min_members=2)).run()
    refuse(c, "a-2").wait(60.0)
    assert runs(c) == ["a-0"]
    c.restart().run().wait(60.0)
    assert runs(c) == ["a-0"]


def test_a_gang_of_which_kubelets_refuse_all_starts_again_together() -> None:
    c = cluster(nodes=2).submit(gang("a", pods=2, gpus=8)).run()
    refuse(c, "a-0")
    refuse(c, "a-1").delete("a-0", "a-1").submit(gang("a", pods=1, gpus=8, first=2, min_members=2)).run()
    c.wait(30.0)
    assert runs(c) == []
    c.submit(gang("a", pods=1, gpus=8, first=3, min_members=2)).run()
    assert runs(c) == ["a-2", "a-3"]


def test_a_restart_does_not_bring_the_next_eviction_for_a_device_forward() -> None:
    settings = Settings(devices=DeviceSettings(on_failure="evictGang", failure_grace_s=2.0))
    c = cluster(nodes=2, settings=settings)
    c.submit(gang("a", pods=2, gpus=2)).run()
    started(c)
    node = c.pod("a-0").spec.node_name
    fail_device(c, c.pod("a-0")).wait(5.0)
    assert runs(c) == []
    c.submit(gang("a", pods=2, gpus=2, first=2)).run().wait(20.0)
    assert runs(c) == ["a-2", "a-3"]
    started(c)
    for _ in range(2):
        c.restart().run()
        fail_device(c, c.pod("a-2")).wait(100.0)
        assert runs(c) == ["a-2", "a-3"], node
    c.wait(600.0)
    assert runs(c) == []


def test_an_eviction_of_a_whole_gang_goes_on_after_a_restart() -> None:
    settings = Settings(devices=DeviceSettings(on_failure="evictGang", failure_grace_s=2.0))
    c = cluster(nodes=2, settings=settings)
    c.submit(gang("a", pods=3, gpus=2)).run()
    started(c)
    c.evictions = "429"
    fail_device(c, c.pod("a-0")).wait(5.0)
    c.delete("a-0")  # the budget let one go
    c.evictions = "ok"
    c.node(make_node(c.pod("a-1").spec.node_name))  # and its device is well again
    c.restart().run().wait(5.0)
    assert runs(c) == []


def fail_device(c: Cluster, pod: Pod) -> Cluster:
    node = c.nodes[pod.spec.node_name]
    number = int(min(c.ids(pod.metadata.name)).rpartition("-")[2])
    own = {INVENTORY_KEY: inventory(node.metadata.name, 8, unhealthy=[number])}
    return c.node(replace(node, metadata=replace(node.metadata, annotations=own)))


def test_a_gang_bound_in_part_twice_has_its_time_to_settle_twice() -> None:
    """In between its only bound member has succeeded, so that the others were to start together."""
    c = cluster(nodes=1)
    refused = {"a-1", "a-2", "a-3"}
    c.answer = lambda bind: "422" if bind.name in refused else "ok"
    c.submit(gang("a", pods=4, gpus=2)).run()
    began_s = c.now_s
    assert runs(c) == ["a-0"]
    c.wait(5.0)
    refused.discard("a-1")
    c.phase("a-0", "Succeeded").run()
    while not runs(c):
        c.wait(1.0)
    again_s = c.now_s
    c.wait(began_s + c.settings.settle_s / 2 + 1.0 - again_s)
    assert runs(c) == ["a-1"], "it is in part since the second attempt only"
    c.wait(again_s + c.settings.settle_s / 2 + 1.0 - c.now_s)
    assert runs(c) == [], "and is unwound in time all the same"
