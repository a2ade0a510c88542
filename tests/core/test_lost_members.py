"""A gang that runs with fewer members than it needs says so at once, in every form, and runs on."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.core.explaining.explain import explain
from gangsched.core.explaining.reports import view_group
from gangsched.core.types.lost_members import lacks
from gangsched.lab.sim.objects import RACK, make_node, make_pod, make_pod_group
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Pod
from tests.core.test_start_records import runs, started
from tests.support.scenario import Cluster, cluster, gang

MESSAGE = "gang d/a has lost members: 1 of 2 members run"


def events(c: Cluster, reason: str) -> list[str]:
    return [event.message for event in c.all(ef.RecordEvent) if event.reason == reason]


def two(**more: Any) -> Cluster:
    c = cluster(nodes=2, settings=Settings(**more)).submit(gang("a", pods=2, gpus=8)).run()
    started(c)
    c.now_s += 10.0
    return c


def test_a_loss_is_reported_at_once_and_only_once_and_evicts_nothing() -> None:
    c = two().delete("a-1")
    assert events(c, "LostMembers") == [MESSAGE]
    [mark] = [one for one in c.all(ef.WritePodCondition) if one.type == "gangsched.io/GangWhole"]
    assert (mark.name, mark.status, mark.reason, mark.message) == ("a-0", "False", "LostMembers", MESSAGE)
    assert lacks(c.group("a"))
    assert "lost members" in view_group(c.group("a")).why
    c.tell().wait(3600.0)
    assert events(c, "LostMembers") == [MESSAGE]
    assert runs(c) == ["a-0"]


@pytest.mark.parametrize("has_failed", [True, False], ids=["it failed", "it was deleted"])
@pytest.mark.parametrize("is_answered", [True, False], ids=["binds answered", "answers late"])
def test_a_loss_heard_in_the_turn_of_the_last_bind_is_one_of_a_gang_that_started(
    *, is_answered: bool, has_failed: bool
) -> None:
    """A busy process hears in one turn that all are bound and run, and that one of them is gone."""
    c = cluster(nodes=3)
    c.answer = lambda bind: "hold"
    c.submit(gang("a", pods=3, gpus=8)).run()
    heard: list[ev.Event] = []
    for bind in c.held_binds:
        pod = c.commit(bind)
        heard += [ev.BindSucceeded(bind.uid, bind.attempt)] if is_answered else []
        heard += [ev.PodUpdated(pod)]
    gone = c.pods.pop(c.pod("a-1").metadata.uid)
    if has_failed:
        meta = replace(gone.metadata, resource_version=f"{gone.metadata.resource_version}0")
        gone = replace(gone, metadata=meta, status=replace(gone.status, phase="Failed"))
        heard.append(ev.PodUpdated(gone))
    c.tell(*heard, ev.PodDeleted(gone)).run()
    assert events(c, "LostMembers") == ["gang d/a has lost members: 2 of 3 members run"]
    assert "GangScheduled" in c.reasons()
    c.wait(600.0)
    assert runs(c) == ["a-0", "a-2"]
    assert not c.all(ef.EvictPod)


def test_explain_says_what_is_missing() -> None:
    c = two().delete("a-1")
    told = explain(c.scheduler, c.group("a"), c.now_s)
    assert "1 of 2 members run" in told.answer
    assert "lost members" in told.answer


def test_it_is_reported_when_the_gang_has_enough_members_again() -> None:
    c = two().delete("a-1").clear()
    c.submit(gang("a", pods=1, gpus=8, first=2, min_members=2)).run()
    assert not lacks(c.group("a"))
    assert "GangScheduled" in c.reasons()
    mark = [one for one in c.all(ef.WritePodCondition) if one.type == "gangsched.io/GangWhole"][-1]
    assert (mark.status, mark.reason) == ("True", "Whole")


def test_members_that_have_succeeded_are_not_lost() -> None:
    c = two().phase("a-1", "Succeeded")
    assert not events(c, "LostMembers")
    c.phase("a-0", "Succeeded")
    assert not events(c, "LostMembers")


def test_a_gang_that_has_ended_lacks_no_members() -> None:
    c = two().delete("a-1").delete("a-0")
    assert len(events(c, "LostMembers")) == 1


def test_a_gang_that_starts_together_again_has_not_got_back_what_it_lost() -> None:
    c = two().delete("a-1").submit(gang("a", pods=2, gpus=16, first=2)).delete("a-0").clear()
    assert not c.group("a").lost
    c.node(make_node("large", gpus=32)).run()
    assert runs(c) == ["a-2", "a-3"]
    assert len(events(c, "GangScheduled")) == 1


def test_surplus_members_are_not_lost() -> None:
    c = cluster(nodes=3).submit(gang("a", pods=3, gpus=8, min_members=2)).run()
    started(c).delete("a-2")
    assert not events(c, "LostMembers")


def member(name: str, task: str) -> Pod:
    own = {"scheduling.k8s.io/group-name": "a", "volcano.sh/task-spec": task}
    return make_pod(name, gpus=1, annotations=own)


def of_two_roles() -> Cluster:
    c = cluster(nodes=2)
    spec = {"minMember": 4, "minTaskMember": {"a": 2, "b": 2}}
    c.object("volcano", make_pod_group("a", spec=spec))
    c.submit(*(member(f"{task}-{k}", task) for task in ("a", "b") for k in range(2))).run()
    started(c)
    c.now_s += 10.0
    return c


def test_a_role_below_its_minimum_is_named() -> None:
    c = of_two_roles()
    assert len(runs(c)) == 4
    c.submit(member("a-2", "a")).run()
    c.delete("b-0")
    [message] = events(c, "LostMembers")
    assert message == "gang d/a has lost members: 4 of 4 members run; role b: 1 of 2"
    status = c.all(ef.WritePodGroupStatus)[-1].status
    assert status["phase"] == "Unknown"
    assert status["running"] == 3
    assert [one["reason"] for one in status["conditions"] if one["type"] == "Unschedulable"] == [
        "LostMembers"
    ]


@pytest.mark.parametrize(
    ("dialect", "spec", "field"),
    [
        ("coscheduling", {"minMember": 2}, {"phase": "Unknown", "running": 1}),
        ("kai", {"minMember": 2}, {"running": 1}),
    ],
)
def test_the_gangs_object_says_so_in_its_own_words(
    dialect: str, spec: dict[str, Any], field: dict[str, Any]
) -> None:
    c = cluster(nodes=2).object(dialect, make_pod_group("a", spec=spec))
    labels = {"scheduling.x-k8s.io/pod-group": "a"} if dialect == "coscheduling" else {}
    notes = {} if dialect == "coscheduling" else {"pod-group-name": "a"}
    c.submit(*(make_pod(f"a-{k}", gpus=8, labels=labels, annotations=notes) for k in range(2))).run()
    started(c)
    assert len(runs(c)) == 2
    c.delete("a-1")
    status = c.all(ef.WritePodGroupStatus)[-1].status
    assert {key: status[key] for key in field} == field
    if dialect == "kai":
        assert [one["reason"] for one in status["schedulingConditions"]] == ["LostMembers"]


def test_after_the_stated_time_the_rest_is_evicted_counted_from_the_first_loss_and_over_a_restart() -> None:
    c = cluster(nodes=3, settings=Settings(recover_within_s=60.0))
    c.submit(gang("a", pods=3, gpus=8)).run()
    started(c)
    c.now_s += 10.0
    c.delete("a-2").wait(40.0)
    c.delete("a-1").wait(5.0)
    c.restart().run().wait(10.0)
    assert runs(c) == ["a-0"]
    c.wait(10.0)
    assert runs(c) == []
    assert events(c, "NotRecovered")


def test_a_gang_that_recovers_in_time_is_not_evicted() -> None:
    c = two(recover_within_s=60.0).delete("a-1").wait(30.0)
    c.submit(gang("a", pods=1, gpus=8, first=2, min_members=2)).run().wait(300.0)
    assert runs(c) == ["a-0", "a-2"]
    assert not c.all(ef.EvictPod)


def test_nothing_is_evicted_where_evictions_are_off() -> None:
    c = two(recover_within_s=60.0, allow_eviction=False).delete("a-1").wait(600.0)
    assert runs(c) == ["a-0"]


def test_a_small_node_for_a_successor_is_used_at_once() -> None:
    c = two().drop_node("n1").delete("a-1")
    c.submit(gang("a", pods=1, gpus=8, first=2, min_members=2)).run()
    assert runs(c) == ["a-0"]
    c.node(replace(make_node("n9"))).run().wait(15.0)
    assert runs(c) == ["a-0", "a-2"]


# -- a gang's own words about it ---------------------------------------------------------------------------

WITHIN, IF_NOT = "gangsched.io/recover-within", "gangsched.io/if-not-recovered"


def wounded(nodes: int, words: dict[str, str], **settings: Any) -> Cluster:
    """A gang of two, of which one is gone, on two of these nodes of 8 GPUs."""
    c = cluster(nodes=nodes, settings=Settings(**settings))
    c.submit(gang("a", pods=2, gpus=8, annotations=words)).run()
    started(c)
    c.now_s += 10.0
    return c.delete("a-1")


def test_a_gangs_own_time_counts_before_the_configurations() -> None:
    c = wounded(2, {WITHIN: "2m"}, recover_within_s=60.0).wait(100.0)
    assert runs(c) == ["a-0"]
    assert events(c, "LostMembers") == [f"{MESSAGE}; 120 s after the first loss the rest is evicted"]
    c.wait(20.0)
    assert runs(c) == []
    assert events(c, "NotRecovered")


def test_a_gang_that_says_so_stays_whatever_the_configuration_says() -> None:
    c = wounded(2, {IF_NOT: "stay"}, recover_within_s=60.0).wait(3600.0)
    assert runs(c) == ["a-0"]
    assert events(c, "LostMembers") == [MESSAGE]


def test_a_gang_that_moves_is_evicted_only_once_all_of_it_would_start_again() -> None:
    c = wounded(2, {WITHIN: "1m", IF_NOT: "move"})
    c.submit(make_pod("other", gpus=8)).run()  # takes the lost one's place
    c.wait(300.0)
    assert runs(c) == ["a-0", "other"]
    [told] = events(c, "CannotMove")
    assert told.startswith("gang d/a has not recovered in time and stays where it is: ")
    assert "CannotMove" not in told
    said = explain(c.scheduler, c.group("a"), c.now_s)
    assert "has not recovered in time and stays where it is" in str(said)
    c.node(make_node("n9")).run().wait(40.0)
    assert runs(c) == ["other"]
    assert events(c, "NotRecovered")[-1].endswith("; all of it would start again now")


def test_where_a_gang_moves_to_its_own_places_count_as_free() -> None:
    c = wounded(2, {WITHIN: "1m", IF_NOT: "move"}).wait(65.0)
    assert runs(c) == []


def test_a_gang_that_moves_recovers_by_a_successor_before_that() -> None:
    c = wounded(2, {WITHIN: "1m", IF_NOT: "move"})
    c.submit(make_pod("other", gpus=8)).run().wait(120.0)
    c.delete("other")
    c.submit(
        gang("a", pods=1, gpus=8, first=2, min_members=2, annotations={WITHIN: "1m", IF_NOT: "move"})
    ).run()
    assert runs(c) == ["a-0", "a-2"]
    c.wait(600.0)
    assert not c.all(ef.EvictPod)
    assert not c.scheduler.reconciler.losses.cannot_move


def test_a_gang_of_a_rack_moves_to_another_rack() -> None:
    words = {WITHIN: "1m", IF_NOT: "move", "gangsched.io/topology": f"required: {RACK}"}
    c = cluster(nodes=0)
    for k in range(2):
        c.node(make_node(f"x{k}", rack="x"))
    c.submit(gang("a", pods=2, gpus=8, annotations=words)).run()
    started(c)
    c.now_s += 10.0
    c.drop_node("x1").delete("a-1")
    c.node(make_node("y0", rack="y")).run().wait(120.0)
    assert runs(c) == ["a-0"]
    assert events(c, "CannotMove")
    c.node(make_node("y1", rack="y")).run().wait(40.0)
    assert runs(c) == []


@pytest.mark.parametrize(
    ("lost", "fits"), [(("b-0",), True), (("b-0", "b-1"), False)], ids=["one of a role", "all of it"]
)
def test_a_lost_member_is_stood_for_by_one_of_its_role(lost: tuple[str, ...], *, fits: bool) -> None:
    c = cluster(nodes=2)
    spec = {"minMember": 4, "minTaskMember": {"a": 2, "b": 2}}
    group = make_pod_group("a", spec=spec)
    own = {**(group.metadata.annotations or {}), WITHIN: "1m", IF_NOT: "move"}
    c.object("volcano", replace(group, metadata=replace(group.metadata, annotations=own)))
    c.submit(*(member(f"{task}-{k}", task) for task in ("a", "b") for k in range(2))).run()
    started(c)
    c.now_s += 10.0
    for name in lost:
        c.delete(name)
    c.wait(100.0)
    assert (runs(c) == []) == fits
    told = [
        "no member of role 'b' is left to tell what the next one needs" in one
        for one in events(c, "CannotMove")
    ]
    assert told == ([] if fits else [True])


def test_a_member_that_is_being_deleted_counts_as_one_to_come() -> None:
    c = wounded(2, {WITHIN: "1m", IF_NOT: "move"})
    c.leave("a-0").wait(100.0)
    assert not events(c, "CannotMove")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ({WITHIN: "soon"}, f"{WITHIN}: 'soon' is not a duration; examples: 90s, 5m, 1h30m"),
        ({WITHIN: "0s"}, f"{WITHIN}: '0s' is not a positive duration"),
        ({IF_NOT: "leave"}, f"{IF_NOT}: 'leave' is not one of stay, move, give-back"),
    ],
)
def test_a_word_that_cannot_be_read_is_named_and_nothing_starts(words: dict[str, str], problem: str) -> None:
    c = cluster(nodes=2).submit(gang("a", pods=2, gpus=8, annotations=words)).run()
    assert runs(c) == []
    assert problem in view_group(c.group("a")).why
