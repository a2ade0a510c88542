"""After the plan: every kind of answer to a bind, half-bound gangs, restarts, evictions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.core.explaining.explain import explain
from gangsched.lab.sim.objects import STRANGER, inventory, make_pod, make_pod_group
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.devices.annotations import ALLOCATED_KEY, INVENTORY_KEY
from gangsched.model.pod_group import (
    ATTEMPT_KEY,
    COSCHEDULING_LABEL,
    GANG_KEY,
    GROUPS_KEY,
    MIN_MEMBERS_KEY,
    RANK_KEY,
    START_KEY,
)
from tests.support.scenario import Cluster, cluster, gang, with_annotations


def answers(c: Cluster, **by_pod: str) -> Callable[[ef.BindPod], str]:
    """Pods named here (a_1 for a-1) are answered so, once; everybody else is bound."""
    left = {name.replace("_", "-"): said for name, said in by_pod.items()}
    return lambda bind: left.pop(bind.name, "ok")


def test_one_write_carries_node_devices_gang_rank_and_attempt() -> None:
    c = cluster().submit(gang("a", pods=3, gpus=8)).run()
    binds = c.all(ef.BindPod)
    assert [bind.annotations[RANK_KEY] for bind in binds] == ["0", "1", "2"]
    assert {bind.annotations[GANG_KEY] for bind in binds} == {"d/a"}
    assert {bind.annotations[ATTEMPT_KEY] for bind in binds} == {"1"}
    assert all(bind.uid == c.pod(bind.name).metadata.uid for bind in binds)
    assert len(c.effects) == 4  # three Bindings and one event: nothing else is written


def test_a_pod_that_has_run_and_failed_before_its_bind_is_answered_names_its_node() -> None:
    c = cluster(nodes=1)
    c.answer = lambda bind: "hold"
    c.submit(make_pod("a", gpus=1)).run()
    [bind] = c.held_binds
    c.commit(bind)
    c.phase("a", "Failed").tell(ev.BindSucceeded(bind.uid, bind.attempt)).run()
    [event] = c.all(ef.RecordEvent)
    assert event.message == "Successfully assigned d/a to n0"


@pytest.mark.parametrize("is_seen", [False, True], ids=["the bind is not seen yet", "the bind has been seen"])
def test_a_version_without_a_node_frees_no_device(*, is_seen: bool) -> None:
    """Not even where its number says that it is newer than the bind."""
    c = cluster(nodes=1)
    if not is_seen:
        c.answer = lambda bind: "hold"
    c.submit(make_pod("a", gpus=8)).run()
    for bind in c.held_binds:
        c.commit(bind)
        c.tell(ev.BindSucceeded(bind.uid, bind.attempt)).run()
    bound = c.pod("a")
    assert bound.spec.node_name
    c.update(bound, spec=replace(bound.spec, node_name="")).run()
    c.submit(make_pod("b", gpus=8)).run()
    assert [bind.name for bind in c.all(ef.BindPod)] == ["a"]


@pytest.mark.parametrize("code", ["403", "422", "404"])
def test_a_refused_bind_with_nothing_bound_goes_to_backoff(code: str) -> None:
    c = cluster(nodes=1)
    c.answer = answers(c, a=code)
    c.submit(make_pod("a")).run()
    assert c.scheduler.statistics()["reservations"] == 0
    assert c.state("a") == "backoff"
    if code == "404":
        assert not c.all(ef.WritePodCondition), "there may be no pod any more to write to"
        return
    assert f"{code} no" in c.said("a")
    assert ("admission policy or webhook" in c.said("a")) is (code == "403")
    assert c.wait(1.5).pod("a").spec.node_name


@pytest.mark.parametrize(
    ("refusal", "cure"),
    [
        (
            'pods "a" is forbidden: User "x" cannot create resource "pods/binding" in API group ""',
            "the scheduler's role needs the verb create on pods/binding",
        ),
        (
            "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'gangsched-reserved-keys-binding' with"
            " binding 'gangsched-reserved-keys-binding' denied request: only the scheduler (x) writes y",
            "run the scheduler as that service account",
        ),
        (
            "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'theirs' with binding 'b' denied request: no",
            "an admission policy or webhook refused it, not RBAC",
        ),
        (
            'pods "a" is forbidden: unable to create new content in namespace d because it is being'
            " terminated",
            "its namespace is being deleted",
        ),
    ],
)
def test_a_refusal_is_reported_with_the_cure_of_what_refused(refusal: str, cure: str) -> None:
    c = cluster(nodes=1)
    c.answer = lambda _: "hold"
    c.submit(make_pod("a")).run()
    [bind] = c.all(ef.BindPod)
    c.tell(ev.BindFailed(bind.uid, bind.attempt, 403, "Forbidden", refusal))
    assert refusal in c.said("a")
    assert cure in c.said("a")


def test_a_failed_member_is_planned_again_first_in_line() -> None:
    c = cluster(nodes=2)
    c.answer = answers(c, a_1="422")
    c.submit(gang("a", pods=2, gpus=8)).run()
    assert c.placed("a", on=2)
    assert "GangAborted" in c.reasons()
    assert not c.all(ef.EvictPod)
    c.five_more_turns_change_nothing()


def test_by_policy_a_half_bound_gang_is_unwound_at_once() -> None:
    c = cluster(nodes=2, settings=Settings(on_partial_bind="unwind"))
    c.answer = answers(c, a_1="422")
    c.submit(gang("a", pods=2, gpus=8)).run()
    assert [e.name for e in c.all(ef.EvictPod)] == ["a-0"]
    assert c.scheduler.statistics()["reservations"] == 0


def test_the_gangs_own_policy_wins() -> None:
    c = cluster(nodes=2)
    c.answer = answers(c, a_1="422")
    c.submit(with_annotations(gang("a", pods=2, gpus=8), {"gangsched.io/on-partial-bind": "unwind"})).run()
    assert [e.name for e in c.all(ef.EvictPod)] == ["a-0"]


def test_without_the_right_to_evict_unwinding_gives_way_to_completing() -> None:
    c = cluster(nodes=2, settings=Settings(on_partial_bind="unwind", allow_eviction=False))
    c.answer = answers(c, a_1="422")
    c.submit(gang("a", pods=2, gpus=8)).run().wait(5.0)
    assert not c.all(ef.EvictPod)
    assert c.placed("a")


def test_what_is_not_sent_yet_is_taken_back_when_one_fails() -> None:
    c = cluster(nodes=4)
    c.answer = lambda bind: "422" if bind.name == "a-0" else "hold"
    c.submit(gang("a", pods=4, gpus=8)).run()
    assert len(c.all(ef.CancelBinds)) == 1
    c.tell(*(ev.BindCancelled(bind.uid, bind.attempt) for bind in c.held_binds))
    assert c.state("a") == "backoff"
    assert c.scheduler.statistics()["reservations"] == 0


@pytest.mark.parametrize("truth", ["bound", "unbound", "gone", "elsewhere", "leaving"])
def test_an_unknown_bind_is_decided_by_a_read(truth: str) -> None:
    c = cluster(nodes=2)
    c.answer = lambda bind: "unknown"
    c.submit(gang("a", pods=1, gpus=8)).run()
    assert [e.uid for e in c.all(ef.GetPod)] == [c.pod("a-0").metadata.uid]
    assert c.scheduler.statistics()["reservations"] == 1
    c.wait(3600.0)
    assert c.scheduler.statistics()["reservations"] == 1, "a promise never expires"
    bind, pod = c.held_binds[0], c.pod("a-0")
    c.answer = lambda bind: "ok"
    if truth == "bound":
        c.tell(ev.PodRead(bind.uid, c.commit(bind)))
    elif truth == "elsewhere":
        other = "n1" if bind.node == "n0" else "n0"
        c.tell(ev.PodRead(bind.uid, c.store(pod, spec=replace(pod.spec, node_name=other))))
    elif truth == "unbound":
        c.tell(ev.PodRead(bind.uid, pod))
        c.wait(0.2)
    elif truth == "leaving":
        c.leave("a-0").tell(ev.PodRead(bind.uid, c.pod("a-0")))
    else:
        c.tell(ev.PodRead(bind.uid, None)).delete("a-0")
    assert c.scheduler.statistics()["reservations"] == 0
    sent = c.all(ef.BindPod)
    assert len(sent) == (2 if truth == "unbound" else 1)
    assert all(one == bind for one in sent), "a repetition is the same bind"
    if truth in ("bound", "unbound", "elsewhere"):
        assert c.state("a") == "bound"


def test_a_bind_is_not_repeated_with_a_device_that_somebody_else_has_taken_since() -> None:
    """Between a bind that came to nothing and its repetition another scheduler gives out the same device."""
    c = cluster(nodes=1)
    c.answer = lambda bind: "unknown"
    c.submit(gang("a", pods=1, gpus=1)).run()
    [bind] = c.held_binds
    own = {ALLOCATED_KEY: bind.annotations[ALLOCATED_KEY]}
    thief = make_pod("thief", gpus=1, scheduler=STRANGER, annotations=own)
    c.submit(replace(thief, spec=replace(thief.spec, node_name=bind.node)))
    c.answer = lambda bind: "ok"
    c.tell(ev.PodRead(bind.uid, c.pod("a-0"))).wait(5.0)
    assert c.placed("a")
    assert not c.ids("a-0") & c.ids("thief")


def test_an_answer_that_overtakes_the_watch_is_not_taken_back_by_it() -> None:
    c = cluster(nodes=1)
    c.answer = lambda bind: "hold"
    c.submit(gang("a", pods=1, gpus=8)).run()
    bind, before = c.held_binds[0], c.store(c.pod("a-0"))
    bound = c.commit(bind)
    c.tell(ev.BindSucceeded(bind.uid, bind.attempt), ev.PodUpdated(before))
    c.five_more_turns_change_nothing()
    c.tell(ev.PodUpdated(bound)).submit(make_pod("b", gpus=1)).run()
    assert not c.pod("b").spec.node_name


def test_doubled_and_late_answers_change_nothing() -> None:
    c = cluster(nodes=1).submit(gang("a", pods=2)).run()
    bind = c.all(ef.BindPod)[0]
    c.clear().tell(
        ev.BindSucceeded(bind.uid, bind.attempt),
        ev.BindUnknown(bind.uid, bind.attempt, "late"),
        ev.BindFailed(bind.uid, bind.attempt, 409, "Conflict", "late"),
        ev.PodRead(bind.uid, None),
        ev.BindCancelled(bind.uid, bind.attempt),
    )
    assert not c.effects
    assert c.state("a") == "bound"


@pytest.mark.parametrize("what", ["deleted", "cordoned", "shrunk", "device"])
def test_a_promise_that_breaks_while_binding_is_not_sent_again(what: str) -> None:
    c = cluster(nodes=2)
    c.answer = lambda bind: "unknown" if bind.name == "a-1" else "ok"
    c.submit(gang("a", pods=2, gpus=8)).run()
    bind = c.held_binds[0]
    node = c.nodes[bind.node]
    if what == "deleted":
        c.drop_node(bind.node)
    elif what == "cordoned":
        c.node(replace(node, spec=replace(node.spec, unschedulable=True)))
    elif what == "shrunk":
        c.node(
            replace(node, status=replace(node.status, allocatable={"cpu": 64, "memory": "1Gi", "pods": 9}))
        )
    else:
        bad = inventory(bind.node, 8, unhealthy=range(8))
        c.node(replace(node, metadata=replace(node.metadata, annotations={INVENTORY_KEY: bad})))
    assert len(c.all(ef.CancelBinds)) == 1
    c.answer = lambda bind: "ok"
    c.tell(ev.PodRead(bind.uid, c.pod("a-1"))).wait(1.0)
    assert [one.name for one in c.all(ef.BindPod)].count("a-1") == 1
    assert c.scheduler.statistics()["reservations"] == 0
    c.wait(20.0)
    assert [e.name for e in c.all(ef.EvictPod)] == ["a-0"], "nowhere to go: given back within the limit"


def half_bound(c: Cluster) -> Cluster:
    """Killed after one of two members was bound."""
    c.answer = lambda bind: "ok" if bind.name == "a-0" else "hold"
    c.submit(gang("a", pods=2, gpus=8)).run()
    c.answer = lambda bind: "ok"
    return c


def test_after_a_restart_a_half_bound_gang_is_completed_ahead_of_everybody() -> None:
    rich = gang("rich", pods=1, gpus=8, priority=1000, preempts=False)
    c = half_bound(cluster(nodes=2)).submit(rich)
    c.restart().run()
    assert c.placed("a")
    assert c.untouched("rich")


def test_after_a_restart_a_half_bound_gang_is_completed_without_the_rest_of_its_set() -> None:
    """Its set had started. One group of it is through and gone, and one was made again and waits for that."""
    own = {GROUPS_KEY: '["a", "b", "gone"]'}
    c = cluster(nodes=2)
    taken = make_pod("other", gpus=8, scheduler=STRANGER)
    bound, rest = with_annotations(gang("a", pods=2, gpus=4), own)
    c.submit(
        replace(taken, spec=replace(taken.spec, node_name="n0")),
        replace(bound, spec=replace(bound.spec, node_name="n1")),
        rest,
    )
    c.node(replace(c.nodes["n1"], spec=replace(c.nodes["n1"].spec, unschedulable=True)))
    c.restart().run()
    assert c.state("a") == "unschedulable", "in the only node with room it may not start"
    c.delete("other").run()
    assert c.placed("a"), "room that would do ends its backoff"
    c.submit(with_annotations(gang("b", pods=1, gpus=4), own)).run().wait(5.0)
    assert c.placed("a")
    assert c.state("b") == "waiting"
    assert "group d/gone does not exist" in c.said("b-0")


def test_after_a_restart_a_gang_that_cannot_be_completed_is_given_back_in_time() -> None:
    c = half_bound(cluster(nodes=2))
    free = ({"n0", "n1"} - {c.pod("a-0").spec.node_name}).pop()
    taken = make_pod("other", gpus=8, scheduler=STRANGER)
    c.submit(replace(taken, spec=replace(taken.spec, node_name=free))).restart().run()
    assert not c.all(ef.EvictPod)
    c.wait(c.settings.settle_s)
    assert [e.name for e in c.all(ef.EvictPod)] == ["a-0"]
    assert c.scheduler.statistics()["partial_gangs"] == 0


def test_an_object_that_is_found_late_after_a_restart_still_finds_the_gang_half_bound() -> None:
    c = cluster(nodes=1)
    mark = {COSCHEDULING_LABEL: "a"}
    bound = make_pod("a-0", gpus=8, labels=mark)
    c.submit(replace(bound, spec=replace(bound.spec, node_name="n0")), make_pod("a-1", gpus=8, labels=mark))
    c.restart().object("coscheduling", make_pod_group("a", spec={"minMember": 2}))
    c.wait(c.settings.settle_s + 5.0)
    assert [e.name for e in c.all(ef.EvictPod)] == ["a-0"]


def test_a_member_that_leaves_without_a_node_is_one_that_the_gang_never_had() -> None:
    """Deleted while the scheduler was away: the bound one must not run alone for good."""
    c = half_bound(cluster(nodes=2))
    c.leave("a-1").restart().run()
    assert not c.group("a").has_started
    c.wait(c.settings.settle_s + 1.0)
    assert [e.name for e in c.all(ef.EvictPod)] == ["a-0"]


@pytest.mark.parametrize(
    "said",
    [{"gangsched.io/disruption-mode": '{"": null}'}, {MIN_MEMBERS_KEY: "1"}, {MIN_MEMBERS_KEY: "many"}],
)
@pytest.mark.parametrize("is_new", [False, True], ids=["same process", "after a restart"])
def test_a_half_bound_gang_whose_rest_may_not_start_as_it_is_written_is_given_back_in_time(
    said: dict[str, str], is_new: bool
) -> None:
    """Somebody edits the waiting member, so it disagrees with the bound one: only an edit can complete it."""
    c = half_bound(cluster(nodes=2))
    if not is_new:
        bind = c.held_binds[0]
        c.tell(ev.BindFailed(bind.uid, bind.attempt, 422, "Invalid", "no"))
    c.update(with_annotations([c.pod("a-1")], said)[0])
    if is_new:
        c.restart()
    c.run()
    assert not c.group("a").has_started
    assert not c.all(ef.EvictPod)
    assert "members disagree" in c.said("a-1")
    c.wait(c.settings.settle_s + 5.0)
    assert [e.name for e in c.all(ef.EvictPod)] == ["a-0"]


def test_a_half_bound_gang_is_completed_once_its_members_agree_again() -> None:
    c = half_bound(cluster(nodes=2))
    before = c.pod("a-1")
    c.update(with_annotations([before], {MIN_MEMBERS_KEY: "3"})[0]).restart().run().wait(2.0)
    assert c.state("a") == "unschedulable"
    c.update(before).run()
    assert c.placed("a", on=2)
    c.wait(c.settings.settle_s + 5.0)
    assert not c.all(ef.EvictPod)


@pytest.mark.parametrize("is_at_once", [False, True])
def test_how_many_are_missing_is_reported_alike_whether_members_that_disagree_come_at_once_or_not(
    is_at_once: bool,
) -> None:
    """It was of 1 if nobody had been heard alone."""
    c = cluster(nodes=1)
    pods = [make_pod(f"odd-{k}", group="odd", min_members=n) for k, n in enumerate((2, 3))]
    if is_at_once:
        c.tell(*(ev.PodAdded(c.store(pod)) for pod in pods)).run()
    else:
        c.submit(*pods).run()
    assert "members disagree" in c.said("odd-0")
    assert c.group("odd").start_count == 2


def test_with_an_object_too_the_bound_members_say_what_they_were_bound_by() -> None:
    c = cluster(nodes=1).object("coscheduling", make_pod_group("a", spec={"minMember": 2}))
    mark = {COSCHEDULING_LABEL: "a"}
    noted = {GANG_KEY: "d/a", START_KEY: '{"together":2,"needs":2,"newest":4000000000}'}
    bound = make_pod("a-0", gpus=8, labels=mark, annotations=noted)
    edited = make_pod("a-1", gpus=8, labels=mark, annotations={"gangsched.io/topology": "{"})
    c.submit(edited, replace(bound, spec=replace(bound.spec, node_name="n0"))).restart().run()
    assert not c.all(ef.EvictPod)
    c.wait(c.settings.settle_s + 5.0)
    assert [e.name for e in c.all(ef.EvictPod)] == ["a-0"]


def test_where_nothing_may_be_evicted_it_is_completed_whenever_its_members_agree() -> None:
    c = half_bound(cluster(nodes=2, settings=Settings(allow_eviction=False, settle_s=30.0)))
    before = c.pod("a-1")
    c.update(with_annotations([before], {MIN_MEMBERS_KEY: "3"})[0]).restart().run().wait(200.0)
    assert c.state("a") == "unschedulable"
    told = [e.message for e in c.all(ef.RecordEvent) if e.reason == "GangAborted"]
    assert told == [
        "gang d/a is bound in part (1 of 2) and cannot be given back: allowEviction is off"
    ] * len(told)
    assert len(told) > 3
    c.update(before).run()
    assert c.placed("a", on=2)


def test_an_edit_of_one_that_waits_evicts_nobody_of_a_gang_that_is_whole() -> None:
    """Two of three are enough; a new process reads what the bound ones state."""
    c = cluster(nodes=2).submit(gang("a", pods=3, min_members=2, gpus=8)).run()
    [rest] = [name for name in ("a-0", "a-1", "a-2") if not c.pod(name).spec.node_name]
    c.update(with_annotations([c.pod(rest)], {MIN_MEMBERS_KEY: "3"})[0]).restart().run()
    c.wait(c.settings.settle_s + 5.0)
    assert not c.all(ef.EvictPod)
    assert c.group("a").has_started


def test_an_edit_of_bound_members_evicts_nobody_of_a_gang_that_is_whole() -> None:
    c = cluster(nodes=2).submit(gang("a", pods=3, min_members=2, gpus=8)).run()
    [one, _] = [name for name in ("a-0", "a-1", "a-2") if c.pod(name).spec.node_name]
    c.update(with_annotations([c.pod(one)], {MIN_MEMBERS_KEY: "3"})[0]).restart().run()
    c.wait(c.settings.settle_s + 5.0)
    assert not c.all(ef.EvictPod)


def test_a_member_that_fails_before_the_last_bind_is_answered_has_started_with_its_gang() -> None:
    c = cluster(nodes=2)
    c.answer = lambda bind: "ok" if bind.name == "a-0" else "hold"
    c.submit(gang("a", pods=2, gpus=8)).run()
    c.phase("a-0", "Failed").run()
    assert c.state("a") == "binding"
    [bind] = c.held_binds
    c.tell(ev.BindSucceeded(bind.uid, bind.attempt), ev.PodUpdated(c.commit(bind))).run()
    assert c.state("a") == "bound"
    assert c.reasons() == ["GangScheduled", "LostMembers"]
    c.wait(100.0)
    assert c.all(ef.EvictPod) == []


def test_those_that_failed_before_do_not_count_for_their_successors() -> None:
    c = cluster(nodes=2, settings=Settings(on_partial_bind="unwind")).submit(gang("a", pods=2, gpus=8)).run()
    c.phase("a-0", "Failed").phase("a-1", "Failed").run()
    c.answer = lambda bind: "422" if bind.name == "a-3" else "ok"
    c.submit(gang("a", pods=2, gpus=8, first=2)).run()
    assert [e.name for e in c.all(ef.EvictPod)] == ["a-2"]


def gone_while_binding(c: Cluster, *, needed: int) -> Cluster:
    """Of a gang's members, as many as needed and one more or not, the last is deleted before its bind."""
    c.answer = lambda bind: "ok" if bind.name != "a-1" else "hold"
    c.submit(gang("a", pods=2, gpus=8, min_members=needed)).run()
    [bind] = c.held_binds
    gone = c.pods.pop(bind.uid)
    c.tell(ev.BindFailed(bind.uid, bind.attempt, 404, "NotFound", "no"), ev.PodDeleted(gone))
    return c.run()


def test_a_gang_bound_in_part_says_that_it_waits_for_a_member_that_is_gone() -> None:
    c = gone_while_binding(cluster(nodes=2), needed=2)
    assert c.state("a") == "gathering"
    c.wait(6.0)
    assert c.group("a").message == "gang d/a waits for members: 1 of 2 exist"
    c.submit(gang("a", pods=1, min_members=2, gpus=8, first=2)).run()
    assert c.placed("a", on=2)


def test_a_further_member_that_is_deleted_before_its_bind_is_owed_nothing() -> None:
    c = gone_while_binding(cluster(nodes=2), needed=1)
    assert c.state("a") == "bound"
    assert c.reasons() == ["GangScheduled"]
    assert [one.message for one in c.all(ef.WritePodCondition)] == []


def test_a_gang_that_is_given_back_in_time_is_given_back_once_however_long_that_takes() -> None:
    c = cluster(nodes=2)
    c.evictions = "429"
    c.answer = lambda bind: "422" if bind.name == "a-1" else "ok"
    c.submit(gang("a", pods=2, gpus=8)).run().wait(c.settings.settle_s)
    assert c.state("a") == "unwinding"
    c.wait(120.0)
    assert c.state("a") == "unwinding"
    assert c.count("groups_unwound") == 1


def test_a_refused_eviction_is_asked_again() -> None:
    c = cluster(nodes=2, settings=Settings(on_partial_bind="unwind"))
    c.evictions = "429"
    c.answer = answers(c, a_1="422")
    c.submit(gang("a", pods=2, gpus=8)).run().wait(5.0)
    assert len(c.all(ef.EvictPod)) > 1
    assert c.state("a") == "unwinding"
    c.evictions = "ok"
    c.wait(4.0)
    assert c.state("a") == "gathering"
    c.submit(gang("a", pods=1, min_members=2, gpus=8, first=5)).run().wait(5.0)
    assert c.placed("a")


@pytest.mark.parametrize("state", ["gathering", "unschedulable", "binding", "bound"])
def test_a_member_deleted_in_any_state_leaves_nothing_behind(state: str) -> None:
    c = cluster(nodes=2)
    if state == "binding":
        c.answer = lambda bind: "hold"
    n = {"gathering": 1, "unschedulable": 3, "binding": 2, "bound": 2}[state]
    c.submit(gang("a", pods=n, gpus=8, min_members=2 if state == "gathering" else n)).run()
    assert c.state("a") == state
    for k in range(n):
        c.delete(f"a-{k}").run()
    statistics = c.scheduler.statistics()
    assert statistics["pods"] == statistics["reservations"] == 0
    assert not c.groups()
    c.answer = lambda bind: "ok"
    assert c.submit(gang("b", pods=2, gpus=8)).run().placed("b")


@pytest.mark.parametrize("said", ["refused", "taken back"])
def test_a_pod_that_began_to_leave_with_its_bind_on_the_way_is_not_placed_again(said: str) -> None:
    """A finalizer keeps it; its successor is there."""
    c = cluster(nodes=2)
    c.answer = lambda bind: "hold"
    c.submit(gang("a", pods=2, gpus=8)).run()
    first, other = c.held_binds
    c.leave("a-0")
    if said == "refused":
        c.tell(ev.BindFailed(first.uid, first.attempt, 403, "Forbidden", "no"))
    else:
        c.tell(ev.BindCancelled(first.uid, first.attempt))
    c.answer = lambda bind: "403" if bind.name == "a-0" else "ok"
    c.tell(ev.BindSucceeded(other.uid, other.attempt), ev.PodUpdated(c.commit(other)))
    c.submit(gang("a", pods=1, first=2, min_members=2, gpus=8)).run()
    assert c.state("a") == "bound"
    assert [bind.name for bind in c.all(ef.BindPod)] == ["a-0", "a-1", "a-2"]


def test_a_pod_relabelled_while_its_bind_is_on_the_way_keeps_its_room() -> None:
    c = cluster(nodes=1)
    c.answer = lambda bind: "unknown"
    c.submit(gang("a", pods=1, gpus=8)).run()
    pod = c.pod("a-0")
    c.update(pod, metadata=replace(pod.metadata, labels={**(pod.metadata.labels or {}), "x": "y"}))
    c.submit(gang("b", pods=1, gpus=1)).run()
    assert c.untouched("b")


def test_a_pod_recreated_under_its_name_starts_over() -> None:
    c = cluster(nodes=1)
    c.answer = lambda bind: "hold"
    c.submit(gang("a", pods=1, gpus=8)).run()
    old = c.held_binds[0]
    c.delete("a-0").submit(make_pod("a-0", uid="new", group="a", min_members=1, gpus=8))
    c.answer = lambda bind: "ok"
    c.tell(ev.BindSucceeded(old.uid, old.attempt)).run()
    assert [bind.uid for bind in c.all(ef.BindPod)] == [old.uid, "new"]


def with_one_of_two_bound(settings: Settings | None = None) -> Cluster:
    """A gang of two by its object: a-0 is bound, the bind of a-1 is not answered."""
    c = cluster(nodes=2, settings=settings)
    c.object("coscheduling", make_pod_group("a", spec={"minMember": 2}))
    c.answer = lambda bind: "ok" if bind.name == "a-0" else "hold"
    mark = {COSCHEDULING_LABEL: "a"}
    return c.submit(make_pod("a-0", gpus=8, labels=mark), make_pod("a-1", gpus=8, labels=mark)).run()


def test_a_deleted_object_does_not_make_a_half_bound_gang_whole() -> None:
    c = with_one_of_two_bound()
    c.drop_object("coscheduling", "a")
    bind = c.held_binds[0]
    c.tell(ev.BindFailed(bind.uid, bind.attempt, 422, "Invalid", "no"))
    c.wait(c.settings.settle_s + 5.0)
    assert [e.name for e in c.all(ef.EvictPod)] == ["a-0"]


def test_an_object_that_becomes_unreadable_does_not_make_a_half_bound_gang_whole() -> None:
    c = with_one_of_two_bound()
    c.object("coscheduling", make_pod_group("a", spec={"minMember": [[]]}))
    bind = c.held_binds[0]
    c.tell(ev.BindFailed(bind.uid, bind.attempt, 422, "Invalid", "no"))
    assert not c.group("a").has_started
    c.wait(c.settings.settle_s + 5.0)
    assert [e.name for e in c.all(ef.EvictPod)] == ["a-0"]


@pytest.mark.parametrize("policy", ["complete", "unwind"])
def test_what_makes_a_gang_impossible_while_it_is_bound_is_reported_once_that_has_failed(policy: Any) -> None:
    """It stayed "binding", where nobody may be evicted for ever, and its pods were told nothing."""
    c = with_one_of_two_bound(Settings(allow_eviction=False, on_partial_bind=policy))
    c.object("coscheduling", make_pod_group("a", spec={"minMember": [[]]}))
    bind = c.held_binds[0]
    c.tell(ev.BindFailed(bind.uid, bind.attempt, 422, "Invalid", "no"))
    assert c.state("a") == "unschedulable"
    assert c.said("a-1") == "PodGroup d/a: spec.minMember: '[[]]' is not a whole number from 1 to 100000"
    c.answer = lambda bind: "ok"
    c.wait(c.settings.settle_s + 5.0).object("coscheduling", make_pod_group("a", spec={"minMember": 2})).run()
    assert c.placed("a", on=2)
    c.five_more_turns_change_nothing()


def test_a_bind_that_is_always_refused_is_not_hammered() -> None:
    c = cluster(nodes=2)
    c.answer = lambda bind: "403" if bind.name == "a-1" else "ok"
    c.submit(gang("a", pods=2, gpus=8)).run().wait(14.0)
    assert len(c.all(ef.BindPod)) < 10
    c.wait(16.0)
    assert "a-0" in [e.name for e in c.all(ef.EvictPod)]


@pytest.mark.parametrize("grows", [True, False], ids=["grown", "from the beginning"])
def test_a_further_member_whose_bind_is_always_refused_is_not_hammered_either(*, grows: bool) -> None:
    """It was sent again in the same moment, as a gang that has started did not rest."""
    c = cluster(nodes=3)
    c.answer = lambda bind: "403" if bind.name == "a-2" else "ok"
    more = gang("a", pods=1, min_members=2, gpus=8, first=2)
    c.submit(gang("a", pods=2, gpus=8), [] if grows else more).run()
    c.submit(more if grows else []).run().wait(30.0)
    assert [bind.name for bind in c.all(ef.BindPod)].count("a-2") < 8
    assert c.said("a-2").startswith("gang d/a has started without all of its members: binding d/a-2 to n")
    assert c.reasons().count("GangScheduled") == 1
    assert not c.all(ef.EvictPod)
    c.answer = lambda bind: "ok"
    assert c.wait(10.0).placed("a", on=3)


def test_what_failed_before_a_gang_has_started_makes_no_later_rest_longer() -> None:
    c = cluster(nodes=3)
    c.answer = lambda bind: "403"
    c.submit(gang("a", pods=2, gpus=8)).run().wait(20.0)
    c.answer = lambda bind: "ok"
    assert c.wait(10.0).placed("a")
    c.answer = lambda bind: "403"
    c.clear().submit(gang("a", pods=1, min_members=2, gpus=8, first=2)).run()
    assert len(c.all(ef.BindPod)) == 1
    assert len(c.wait(1.1).all(ef.BindPod)) == 2


@pytest.mark.parametrize(("code", "told"), [("403", True), ("404", False), ("429", False)])
def test_only_failed_evictions_that_time_does_not_mend_are_reported(*, code: str, told: bool) -> None:
    c = cluster(nodes=2, settings=Settings(on_partial_bind="unwind"))
    c.answer, c.evictions = answers(c, a_1="422"), code
    c.submit(gang("a", pods=2, gpus=8)).run().wait(3.0)
    assert [e.name for e in c.all(ef.EvictPod)] == ["a-0"] * 2
    said = [e.message for e in c.all(ef.RecordEvent) if e.reason == "GangAborted"]
    assert (f"evicting d/a-0: {code} refused" in said) is told


def test_without_the_right_to_evict_that_is_asked_ever_more_rarely_until_it_is_there() -> None:
    c = cluster(nodes=2, settings=Settings(on_partial_bind="unwind"))
    c.answer, c.evictions = answers(c, a_1="422"), "403"
    c.submit(gang("a", pods=2, gpus=8)).run().wait(600.0)
    assert 10 <= len(c.all(ef.EvictPod)) <= 15
    said = explain(c.scheduler, c.group("a"), c.now_s).answer
    assert said == "It is being taken back: 1 pod of it still to go. evicting d/a-0: 403 refused"
    c.evictions = "ok"
    c.wait(300.0)
    assert (c.state("a"), c.group("a").n_bound) == ("gathering", 0)


def test_a_started_gang_that_gets_one_of_two_successors_is_not_bound_in_part() -> None:
    c = cluster(nodes=3, settings=Settings(on_partial_bind="unwind")).submit(gang("a", pods=3, gpus=8)).run()
    c.delete("a-1", "a-2").submit(gang("a", pods=1, min_members=3, gpus=8, first=3)).run().wait(100.0)
    assert c.placed("a", on=2)
    assert "GangAborted" not in c.reasons()


def half_bound_for_good() -> Cluster:
    """Eviction is off; a-0 is bound, a-1 was refused, and somebody else has taken the room meanwhile."""
    c = cluster(nodes=2, settings=Settings(allow_eviction=False, settle_s=30.0))

    def answer(bind: ef.BindPod) -> str:
        if bind.name != "a-1":
            return "ok"
        taker = make_pod("taker", gpus=8, scheduler=STRANGER)
        c.update(replace(taker, spec=replace(taker.spec, node_name=bind.node)))
        return "422"

    c.answer = answer
    c.submit(gang("a", pods=2, gpus=8)).run()
    c.answer = lambda bind: "ok"
    return c


def test_a_member_whose_binding_is_refused_again_and_again_says_so_while_its_gang_is_bound_in_part() -> None:
    c = cluster(nodes=2).object("coscheduling", make_pod_group("a", spec={"minMember": 2}))
    c.answer = lambda bind: "ok" if bind.name == "a-0" else "422"
    pods = [make_pod(f"a-{k}", gpus=8, labels={COSCHEDULING_LABEL: "a"}) for k in range(2)]
    c.submit(pods).run().wait(3.0)
    refused = "binding d/a-1 to n1: 422 no"
    assert c.said("a-1") == f"gang d/a is bound in part (1 of 2): {refused}"
    why = [w.name for w in c.all(ef.WritePodCondition) if w.type == "PodScheduled"]
    assert why == ["a-1"], "not of the one that runs, and once"
    assert f"The last attempt said: {refused}" in explain(c.scheduler, c.group("a"), c.now_s).answer
    c.wait(c.settings.settle_s)
    told = [e.message for e in c.all(ef.RecordEvent) if e.reason == "GangAborted"]
    said = "gang d/a was bound in part (1 of 2) and could not be completed"
    assert told[-1] == f"{said}: {refused}; its bound members are evicted"


def test_what_may_not_be_evicted_is_completed_first_in_line_however_late_there_is_room() -> None:
    """Before a gang that is more important and has waited for the same room."""
    c = half_bound_for_good()
    c.submit(gang("high", pods=1, gpus=8, priority=1000)).run().wait(600.0)
    assert not c.all(ef.EvictPod)
    assert c.pod("a-0").spec.node_name
    assert not c.pod("a-1").spec.node_name
    first, *later = [e.message for e in c.all(ef.RecordEvent) if e.reason == "GangAborted"]
    assert first == "gang d/a is bound in part (1 of 2): binding d/a-1 to n1: 422 no"
    assert set(later) == {"gang d/a is bound in part (1 of 2) and cannot be given back: allowEviction is off"}
    c.delete("taker").run().wait(15.0)
    assert c.placed("a", on=2)
    assert c.untouched("high")
    c.five_more_turns_change_nothing()


def test_completing_is_tried_for_as_long_as_it_lasts_although_nothing_is_heard() -> None:
    """It rested until something changed, or for the five minutes of the flush."""
    c = half_bound_for_good()
    for _ in range(20):
        before = c.group("a").attempts
        c.wait(30.0)
        assert c.group("a").attempts > before
        assert c.group("a").is_completing
    c.restart().run()
    for _ in range(20):
        before = c.group("a").attempts
        c.wait(30.0)
        assert c.group("a").attempts > before


def test_a_half_bound_gang_without_the_rest_stays_and_takes_new_members() -> None:
    c = half_bound_for_good().delete("a-1").wait(300.0)
    assert c.pod("a-0").spec.node_name
    c.delete("taker").submit(gang("a", pods=1, gpus=8, first=2, min_members=2)).run().wait(31.0)
    assert c.placed("a", on=2)
