"""Claims: at its bound a gang gets room with a start time, and others fill in before it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.config.queueing import QueueingSettings
from gangsched.core.explaining.explain import explain
from gangsched.core.framework.status import SUCCESS
from gangsched.core.kept import claim_plans
from gangsched.core.kept.claim_plans import ClaimPlans
from gangsched.core.queueing.bypasses import Passed
from gangsched.core.queueing.claims import KEPT, OVERRUN
from gangsched.lab.sim.objects import at, make_node, make_pod, make_pod_group
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.effects import START_PROMISED
from gangsched.model.objects import (
    Affinity,
    LabelSelector,
    OwnerReference,
    PodAffinity,
    PodAffinityTerm,
    SchedulingGroup,
    Taint,
)
from gangsched.model.walltime import WALLTIME_KEY
from tests.core.plugins import AsyncPermitter, with_plugins
from tests.core.queued import queued, reconfigured
from tests.support.scenario import Cluster, cluster, gang, lone, with_annotations


def bounded(*, nodes: int = 2, gpus: int = 8, bound: int | None = 3, **more: Any) -> Cluster:
    settings = Settings(queueing=QueueingSettings(bound, mode="hard"), **more)
    return cluster(nodes=nodes, gpus=gpus, settings=settings)


def stream(c: Cluster, n: int, gpus: int, *, walltime: str = "", every_s: float = 1.0, lasts: int = 1) -> int:
    """Lone pods one after the other, each gone when `lasts` more have come; returns how many were bound."""
    for k in range(n):
        c.submit(lone(f"small-{k}", gpus, walltime)).run()
        if k >= lasts and c.pod(f"small-{k - lasts}").spec.node_name:
            c.delete(f"small-{k - lasts}").run()
        c.wait(every_s)
    return sum(pod.metadata.name.startswith("small-") and bool(pod.spec.node_name) for pod in c.pods.values())


def test_a_gang_of_eight_starts_within_its_bound_behind_an_endless_stream() -> None:
    c = bounded(nodes=8, gpus=1, bound=20)
    names = [f"first-{k}" for k in range(8)]
    c.submit([make_pod(name, gpus=1) for name in names]).run()
    c.submit(gang("large", pods=8, gpus=1)).run()
    n_before = 0
    for k in range(200):
        c.submit(make_pod(f"next-{k}", gpus=1)).run()
        if names:
            c.delete(names.pop(0)).run()
        bound = [pod.metadata.name for pod in c.pods.values() if pod.spec.node_name]
        names += [name for name in bound if name.startswith("next-") and name not in names]
        if c.placed("large"):
            break
        n_before = sum(name.startswith("next-") for name in c.bind_order())
        c.wait(8.0)
    assert c.placed("large", on=8)
    assert n_before <= 20
    assert not c.claims().by_key


def test_the_first_in_line_is_promised_a_start_before_anybody_passes_it() -> None:
    c = bounded(bound=None).submit(lone("holds", 8, "600s")).run()
    c.submit(gang("large", pods=2, gpus=8)).run().submit(gang("next", pods=2, gpus=8)).run()
    c.submit(lone("passes", 8, "2h")).run()
    assert not c.pod("passes").spec.node_name
    assert c.claim("large").start_s == 601.0
    assert c.claim("large").is_promise
    assert c.claims().claim(c.group("next")) is None, "only the first has one"
    c.submit(lone("fills", 8, "500s")).run()
    assert c.pod("fills").spec.node_name


def test_the_first_in_line_waits_for_its_bound_where_no_start_can_be_promised() -> None:
    c = bounded(bound=None).submit(lone("holds", 8)).run()
    c.submit(gang("large", pods=2, gpus=8)).run()
    c.submit(lone("passes", 8, "2h")).run()
    assert c.pod("passes").spec.node_name
    assert not c.claims().by_key


def test_where_the_shortest_goes_first_a_long_one_is_passed_by_those_that_came_later() -> None:
    c = queued(
        "queueing: {bound: {groups: 2, mode: hard}}\n"
        "queues: [{name: all, order: shortest, namespaces: ['*']}]",
        nodes=2,
    )
    c.submit(lone("holds", 8)).run()
    c.submit(with_annotations(gang("long", pods=2, gpus=8), {WALLTIME_KEY: "40h"})).run()
    for k in range(3):
        c.submit(lone(f"short-{k}", 8, "1h")).run()
        if k < 2:
            c.delete(f"short-{k}").run()
    assert c.claims().claim(c.group("long")) is not None
    assert not c.pod("short-2").spec.node_name


def claimed(*, fill: str = "", bound: int = 1) -> Cluster:
    """A gang of both nodes has a claim: one node is free, on the other a pod ends 600 s after it began."""
    c = bounded(bound=bound).submit(lone("holds", 8, "600s")).run()
    c.submit(gang("large", pods=2, gpus=8)).run()
    c.submit(lone("before", 8, "10s")).run()
    c.delete("before").run()
    return c.submit(lone("passes", 8, fill)).run()


def test_a_claim_names_the_nodes_and_the_moment_from_stated_ends() -> None:
    c = claimed(fill="2h")
    found = c.claim("large")
    assert found.nodes == ("n0", "n1") or found.nodes == ("n1", "n0")
    assert found.start_s == 601.0
    assert [(one.name, one.is_stated) for one in found.blockers] == [("d/holds", True)]
    assert found.is_promise
    assert not c.pod("passes").spec.node_name


def test_the_holder_starts_in_the_turn_in_which_its_room_is_whole() -> None:
    c = claimed(fill="500s").wait(500.0)
    c.delete("passes").run().wait(100.0)
    c.delete("holds").run()
    assert c.placed("large", on=2)
    assert not c.claims().by_key
    assert c.claims().promises == {KEPT: 1}


def deleted(c: Cluster, name: str, *, grace_s: float) -> None:
    pod = c.pod(name)
    c.update(pod, metadata=replace(pod.metadata, deletion_timestamp=at(c.now_s + grace_s)))


def test_who_is_deleted_with_hours_of_grace_is_not_waited_for_as_if_it_left_now() -> None:
    c = bounded(bound=1).submit(lone("graceful", 7), lone("holds", 8, "600s")).run()
    deleted(c, "graceful", grace_s=7200.0)
    c.submit(lone("large", 8)).run().submit(lone("passes", 1, "30m")).run()
    c.delete("passes").run().submit(lone("next", 1, "30m")).run()
    own = c.claim("large")
    assert [one.name for one in own.blockers] == ["d/holds"]
    assert own.is_promise
    assert 590.0 < own.start_s - c.now_s < 610.0
    assert c.pod("next").spec.node_name == c.pod("graceful").spec.node_name


def test_who_is_still_there_long_after_its_grace_is_late() -> None:
    c = bounded(nodes=1, bound=1).submit(lone("stays", 7)).run()
    deleted(c, "stays", grace_s=30.0)
    c.submit(lone("large", 8)).run().submit(lone("passes", 1, "10s")).run()
    c.delete("passes").run().submit(lone("next", 1, "10s")).run().delete("next").run()
    assert c.claim("large").is_promise
    c.wait(600.0)
    own = c.claim("large")
    assert not own.is_promise
    assert own.start_s > c.now_s + 100.0
    assert (own.because, own.n_slips) == ("overrun", 4)


def test_a_claim_that_is_late_by_more_than_its_gangs_walltime_still_keeps_its_room() -> None:
    """As it may be while its gang is in backoff: it is looked at when the gang is tried again."""
    c = claimed()
    found, passes = c.claim("large"), c.pod_info("passes").group
    assert passes is not None
    found.end_s = found.start_s + 5.0
    for late_s in (0.0, 4.0, 6.0, 60.0):
        now_s = c.scheduler.shared.clock.now_s = found.start_s + late_s
        assert c.claims().holding_up([passes], now_s, now_s + 1.0) == [found], f"{late_s} s late"
    assert c.claims().holding_up([passes], now_s + 5.0, now_s + 6.0) == []


def test_a_claim_on_a_lost_node_moves_to_the_one_that_is_free_next() -> None:
    c = bounded(nodes=3, bound=1)
    c.submit(lone("holds", 8, "600s"), lone("also", 8, "900s")).run()
    c.submit(gang("large", pods=2, gpus=8)).run()
    c.submit(lone("before", 8, "10s")).run()
    c.delete("before").run()
    c.submit(lone("passes", 8, "2h")).run()
    first, last = c.pod("holds").spec.node_name, c.pod("also").spec.node_name
    free = ({"n0", "n1", "n2"} - {first, last}).pop()
    assert set(c.claim("large").nodes) == {first, free}
    c.drop_node(free).run().wait(5.0)
    found = c.claim("large")
    assert set(found.nodes) == {first, last}
    assert (found.start_s, found.because) == (901.0, "node")
    c.delete("holds", "also").run().wait(1.0)
    assert c.placed("large")
    assert c.claims().promises == {KEPT: 1}


def test_a_gang_whose_priority_is_edited_has_room_kept_at_the_new_one() -> None:
    c = bounded(bound=1).submit(lone("holds", 8, "600s", priority=10)).run()
    numbers = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    c.object("core", make_pod_group("large", spec={**numbers, "priority": 10}))
    member = SchedulingGroup(pod_group_name="large")
    pods = [make_pod(f"large-{k}", gpus=8, priority=10) for k in range(2)]
    c.submit([replace(pod, spec=replace(pod.spec, scheduling_group=member)) for pod in pods]).run()
    c.submit(lone("before", 8, "10s", priority=10)).run().delete("before").run()
    c.submit(lone("passes", 8, "2h", priority=10)).run().wait(2.0)
    assert c.claim("large").priority == 10
    assert not c.pod("passes").spec.node_name
    item = c.objects["core", "large"]
    c.object("core", replace(item, spec={**numbers, "priority": 0})).run().wait(15.0)
    assert c.pod("passes").spec.node_name, "it is the more important one now"
    assert not any(one.priority == 10 for one in c.claims().all)
    c.delete("holds", "passes").run().wait(15.0)
    assert c.placed("large", on=2)


def elastic() -> Cluster:
    """A gang of three nodes has a claim, beside a gang of two members that runs."""
    c = bounded(nodes=3, bound=1).submit(gang("runs", pods=2, gpus=0)).run()
    c.submit(lone("holds", 8, "600s")).run()
    c.submit(gang("large", pods=3, gpus=7)).run()
    c.submit(lone("before", 8, "10s")).run().delete("before").run()
    c.submit(lone("passes", 8, "2h")).run()
    assert len(c.claim("large").nodes) == 3
    return c


def test_a_gang_that_grows_leaves_claims_their_room() -> None:
    c = elastic()
    c.submit(gang("runs", pods=2, gpus=8, min_members=2, first=2)).run().wait(30.0)
    assert not c.pod("runs-2").spec.node_name
    c.delete("holds").run()
    assert c.placed("large", on=3)


def test_the_successor_of_a_member_that_a_gang_needs_waits_for_no_claim() -> None:
    c = elastic()
    c.delete("runs-0").submit(gang("runs", pods=1, gpus=8, min_members=2, first=2)).run().wait(30.0)
    assert c.pod("runs-2").spec.node_name


def test_a_gang_that_grows_for_ever_passes_no_other_beyond_its_bound() -> None:
    """It came first, for the one member that it needs."""
    c = bounded(nodes=2, bound=3).submit(gang("runs", pods=1, gpus=1, min_members=1)).run()
    c.submit(gang("runs", pods=1, gpus=6, min_members=1, first=1)).run()
    c.submit(gang("large", pods=2, gpus=7)).run()
    n_bound = 0
    for k in range(2, 12):
        c.submit(gang("runs", pods=1, gpus=6, min_members=1, first=k)).run()
        c.delete(f"runs-{k - 1}").run().wait(15.0)
        n_bound += f"runs-{k}" in [effect.name for effect in c.all(ef.BindPod)]
        if c.placed("large"):
            break
    assert c.placed("large", on=2)
    assert n_bound <= 3


def test_the_user_is_told_the_promised_start() -> None:
    c = claimed(fill="2h").wait(12.0)
    assert "It starts by 2026-01-01 00:11 UTC: room is kept for it on 2 nodes." in c.said("large-0")
    assert "RoomClaimed" in c.reasons()


def test_a_groups_object_says_it_in_a_condition() -> None:
    c = bounded(bound=1).submit(lone("holds", 8, "600s")).run()
    c.object("core", make_pod_group("large", spec={"schedulingPolicy": {"gang": {"minCount": 2}}}))
    member = SchedulingGroup(pod_group_name="large")
    pods = [make_pod(f"large-{k}", gpus=8) for k in range(2)]
    c.submit([replace(pod, spec=replace(pod.spec, scheduling_group=member)) for pod in pods]).run()
    c.submit(lone("before", 8, "10s")).run()
    c.delete("before").run()
    c.submit(lone("passes", 8, "2h")).run().wait(2.0)
    said = condition(c)
    assert (said["status"], said["reason"]) == ("True", "Claimed")
    assert said["message"] == "It starts by 2026-01-01 00:11 UTC: room is kept for it on 2 nodes."
    c.wait(640.0)
    said = condition(c)
    assert (said["status"], said["reason"]) == ("False", "Estimated")
    c.delete("holds").run()
    assert c.placed("large")
    said = condition(c)
    assert (said["status"], said["reason"]) == ("False", "Started")


def test_the_next_leader_keeps_what_was_claimed() -> None:
    c = bounded(bound=50).submit(lone("holds", 8, "600s")).run()
    item = make_pod_group("large", spec={"schedulingPolicy": {"gang": {"minCount": 2}}})
    said = {"type": START_PROMISED, "status": "True", "reason": "Claimed", "message": "It starts by …"}
    c.object("core", replace(item, status={"conditions": [said]}))
    member = SchedulingGroup(pod_group_name="large")
    pods = [make_pod(f"large-{k}", gpus=8) for k in range(2)]
    c.submit([replace(pod, spec=replace(pod.spec, scheduling_group=member)) for pod in pods])
    c.restart().run()
    assert set(c.claim("large").nodes) == {"n0", "n1"}
    c.submit(lone("passes", 8, "2h")).run()
    assert not c.pod("passes").spec.node_name
    c.delete("holds").run().wait(1.0)
    assert c.placed("large", on=2)
    assert condition(c)["reason"] == "Started"


def test_a_condition_that_no_earlier_process_can_have_written_gives_no_claim() -> None:
    """The group came while this process decides; whoever may write its status has written the condition."""
    c = bounded(bound=50).submit(lone("holds", 8, "600s")).run()
    item = make_pod_group("forged", spec={"schedulingPolicy": {"gang": {"minCount": 2}}})
    said = {"type": START_PROMISED, "status": "True", "reason": "Claimed", "message": "It starts by …"}
    c.object("core", replace(item, status={"conditions": [said]}))
    member = SchedulingGroup(pod_group_name="forged")
    pods = [make_pod(f"forged-{k}", gpus=8) for k in range(2)]
    c.submit([replace(pod, spec=replace(pod.spec, scheduling_group=member)) for pod in pods]).run()
    assert c.group("forged").attempts == 1
    assert not c.claims().all
    c.submit(lone("passes", 8, "2h")).run()
    assert c.pod("passes").spec.node_name


def test_the_next_leader_takes_back_a_promise_that_has_come_true() -> None:
    c = bounded()
    item = make_pod_group("large", spec={"schedulingPolicy": {"gang": {"minCount": 1}}})
    said = {"type": START_PROMISED, "status": "True", "reason": "Claimed", "message": "It starts by …"}
    c.object("core", replace(item, status={"conditions": [said]}))
    pod = make_pod("large-0", gpus=8)
    c.submit(replace(pod, spec=replace(pod.spec, scheduling_group=SchedulingGroup(pod_group_name="large"))))
    c.run()
    assert condition(c)["reason"] == "Started"


def condition(c: Cluster) -> dict[str, Any]:
    status = c.all(ef.WritePodGroupStatus)[-1].status
    [found] = [dict(one) for one in status["conditions"] if one["type"] == START_PROMISED]
    return found


def test_where_no_more_claims_may_be_made_nobody_passes_who_is_at_its_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(claim_plans, "MAX_CLAIMS", 2)
    c = bounded(bound=1).submit(lone("holds", 8, "600s")).run()
    c.submit(gang("first", pods=2, gpus=8), gang("second", pods=2, gpus=8)).run()
    c.submit(lone("before", 8, "10s")).run().delete("before").run()
    c.submit(lone("fills", 8, "60s")).run()
    assert [str(key) for key in c.claims().by_key] == ["d/first"]
    assert "passed as often as allowed: room is kept for them first" in c.said("fills")
    c.wait(100.0).delete("holds").run()
    assert c.placed("first", on=2)
    c.delete("first-0", "first-1").wait(11.0)
    assert c.placed("second", on=2)
    assert not c.pod("fills").spec.node_name


def test_one_tenants_claims_leave_some_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two slots: the namespace d has one, and its further gang at its bound is passed by others alone."""
    monkeypatch.setattr(claim_plans, "MAX_CLAIMS", 2)
    c = bounded(bound=1).submit(lone("holds", 8, "600s")).run()
    for name, namespace in (("first", "d"), ("second", "d"), ("theirs", "e")):
        wide = gang(name, pods=2, gpus=8, namespace=namespace)
        c.submit(with_annotations(wide, {WALLTIME_KEY: "600s"})).run()
    c.submit(lone("before", 8, "10s")).run().delete("before").run()
    c.submit(lone("own", 8, "60s")).run()
    assert [str(key) for key in c.claims().by_key] == ["d/first"]
    assert not c.pod("own").spec.node_name
    c.submit(with_annotations([make_pod("other", gpus=8, namespace="e")], {WALLTIME_KEY: "60s"})).run()
    assert c.pod("other").spec.node_name, "a tenant's own groups wait for it, others do not"
    c.delete("other").run()
    c.submit(with_annotations([make_pod("last", gpus=8, namespace="f")], {WALLTIME_KEY: "60s"})).run()
    assert [str(key) for key in c.claims().by_key] == ["d/first", "e/theirs"]


def test_an_unknown_end_promises_nothing_and_still_holds_the_bound() -> None:
    c = bounded(bound=2).submit(lone("holds", 8)).run()
    c.submit(gang("large", pods=2, gpus=8)).run()
    n_bound = stream(c, 10, 8)
    assert not c.claim("large").is_promise
    assert n_bound <= 2
    assert "An estimate: it starts about" in c.said("large-0")
    c.delete("holds").run().wait(15.0)
    assert c.placed("large", on=2)
    assert not c.claims().promises


@pytest.mark.parametrize("standing", [False, True], ids=["no claim", "a claim"])
def test_who_waits_in_permit_starts_when_that_says_so(standing: bool) -> None:
    """All of it is reserved by then, and nothing is placed in that turn."""
    settings = Settings(queueing=QueueingSettings(1, mode="hard"))
    c = with_plugins(AsyncPermitter(), nodes=2, settings=settings)
    if standing:
        c.submit(lone("holds", 8, "600s")).run()
        c.submit(gang("large", pods=2, gpus=8)).run()
        c.submit(lone("before", 8, "10s")).run().delete("before").run()
        c.submit(lone("passes", 8, "2h")).run().delete("passes").run()
        assert c.claim("large").start_s == 601.0
    c.hook = lambda hook: None
    c.submit(with_annotations(gang("asks", pods=2, gpus=4), {WALLTIME_KEY: "10s"})).run()
    assert c.state("asks") == "waiting"
    c.say(c.held_hooks[0], SUCCESS).run()
    assert c.placed("asks", on=1)


def test_two_gangs_at_their_bound_do_not_wait_for_each_other() -> None:
    c = (
        bounded(nodes=3, bound=1)
        .submit(lone("a", 8, "100s"), lone("b", 8, "200s"), lone("c", 8, "300s"))
        .run()
    )
    c.submit(gang("first", pods=2, gpus=8)).run().wait(1.0)
    c.submit(gang("second", pods=2, gpus=8)).run()
    for k in range(8):
        c.submit(lone(f"x-{k}", 8, "10s")).run().wait(1.0)
    c.delete("a").run().wait(2.0)
    for k in range(8, 12):
        c.submit(lone(f"x-{k}", 8, "1000s")).run().wait(1.0)
    for name in ("b", "c"):
        c.delete(name).run().wait(20.0)
    for pod in [pod for pod in c.pods.values() if pod.metadata.name.startswith("x-") and pod.spec.node_name]:
        c.delete(pod.metadata.name).run().wait(2.0)
    assert c.placed("first")
    c.delete("first-0", "first-1").run().wait(20.0)
    assert c.placed("second")


def test_a_pod_goes_near_nobody_who_is_still_to_come() -> None:
    c = bounded(nodes=3, bound=1)
    for name, node in list(c.nodes.items()):
        c.node(replace(node, metadata=replace(node.metadata, labels={"host": name})))
    c.submit(lone("holds", 8, "600s")).run()
    c.submit(gang("large", pods=3, gpus=4, labels={"app": "large"}, cpu="60")).run()
    c.submit(lone("before", 1, "10s", cpu="60")).run()
    c.delete("before").run()
    c.submit(lone("passes", 1, "2h", cpu="60")).run()
    assert len(c.claim("large").nodes) == 3
    term = PodAffinityTerm(topology_key="host", label_selector=LabelSelector({"app": "large"}))
    wish = Affinity(pod_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=[term]))
    [pod] = lone("near", 1, "2h")
    c.submit(replace(pod, spec=replace(pod.spec, affinity=wish))).run().wait(15.0)
    assert "didn't match pod affinity rules" in c.said("near")
    assert not c.pod("near").spec.node_name
    c.delete("holds").run().wait(15.0)
    assert c.placed("large")
    assert c.pod("near").spec.node_name


def test_claims_end_when_the_configuration_says_so() -> None:
    c = claimed(fill="2h")
    assert not c.pod("passes").spec.node_name
    shadow = Settings(queueing=QueueingSettings(1))
    c.reconfigure(shadow).run().wait(15.0)
    assert c.scheduler.shared.claims is None
    assert c.pod("passes").spec.node_name


def test_without_its_queue_a_gang_that_backs_off_is_passed_no_more_often_than_its_bound() -> None:
    ours = "queueing: {bound: {groups: 2, mode: hard}}"
    c = queued(f"{ours}\nqueues: [{{name: all, namespaces: [d]}}]", nodes=2).submit(lone("holds", 8)).run()
    c.submit(gang("large", pods=2, gpus=8)).run()
    for name in ("first", "second"):
        c.submit(lone(name, 8)).run().delete(name).run()
    assert c.state("large") == "backoff"
    reconfigured(c, ours).submit(lone("third", 8)).run()
    assert c.bind_order() == ["holds", "first", "second"]
    assert len(c.claims()) == 1


def budgeted(*, percent: int = 10, n: int = 8, bound: int = 8) -> Cluster:
    """A gang of all nodes has come to its bound behind a stream of pods that never say when they end."""
    own = QueueingSettings(bound, mode="budget", idle_share=percent / 100)
    c = cluster(nodes=n, gpus=1, settings=Settings(queueing=own))
    c.submit([make_pod(f"small-{k}", gpus=1) for k in range(n)]).run()
    return c.submit(gang("large", pods=n, gpus=1)).run()


def keep_coming(c: Cluster, from_n: int, n: int, *, every_s: float = 8.0) -> tuple[int, float]:
    """One pod comes and one goes, until the gang starts: (how many came, GPU-seconds kept idle)."""
    idle = 0.0
    for k in range(from_n, from_n + n):
        c.submit(make_pod(f"small-{k}", gpus=1)).run()
        running = sorted(
            (pod for pod in c.pods.values() if pod.spec.node_name and "small" in pod.metadata.name),
            key=lambda pod: c.bind_order().index(pod.metadata.name),
        )
        if running:
            c.delete(running[0].metadata.name).run()
        if c.placed("large"):
            return k - from_n, idle
        c.wait(every_s)
        idle += (len(c.nodes) - sum(bool(pod.spec.node_name) for pod in c.pods.values())) * every_s
    return n, idle


def passed_large(c: Cluster) -> Passed:
    """How often that gang was passed."""
    bypasses = c.bypasses()
    passed = bypasses.count(c.group("large"))
    assert passed is not None
    return passed


def test_in_mode_budget_a_claim_waits_until_what_it_keeps_idle_is_earned() -> None:
    c = budgeted()
    keep_coming(c, 100, 20)
    passed = passed_large(c)
    assert passed.n > passed.bound
    assert passed.claimed_s is not None
    said = c.said("large-0")
    assert "It has reached its bound of 8, and room will be kept for it from about 2026-01-01" in said
    assert "until then that would keep too much nvidia.com/gpu idle" in said


def test_once_no_budget_limits_claims_who_yielded_to_it_is_passed_no_more() -> None:
    c = budgeted()
    keep_coming(c, 100, 20)
    before = passed_large(c)
    hard = Settings(queueing=QueueingSettings(8, mode="hard"))
    c.reconfigure(hard)
    keep_coming(c.run(), 200, 3)
    after = passed_large(c)
    assert after.n == before.n > after.bound
    assert [[str(group.key) for group in claim.unit] for claim in c.claims().all] == [["d/large"]]


def test_in_mode_budget_a_gang_still_starts_and_no_more_is_idle_than_earned() -> None:
    shown = {}
    for percent in (10, 40):
        c = budgeted(percent=percent)
        n_came, idle = keep_coming(c, 100, 400)
        assert c.placed("large", on=8), f"{percent} %: it starves"
        shown[percent] = n_came
        earned = percent / 100 * 8 * c.now_s
        assert idle <= earned, f"{percent} %: {idle} GPU-seconds were idle, {earned} were earned"
    assert shown[40] < shown[10]


def test_what_can_be_afforded_at_once_is_claimed_at_the_bound() -> None:
    own = QueueingSettings(1, mode="budget", idle_share=1.0)
    c = cluster(nodes=2, gpus=8, settings=Settings(queueing=own)).wait(3600.0)
    c.submit(lone("holds", 8, "600s")).run()
    c.submit(gang("large", pods=2, gpus=8)).run()
    c.submit(lone("before", 8, "10s")).run()
    c.delete("before").run()
    c.submit(lone("passes", 8, "2h")).run()
    assert c.claim("large").is_promise
    assert c.claims().idle()["nvidia.com/gpu"] == 0.5


def test_a_claim_that_costs_more_than_is_ever_saved_is_made_once_all_of_that_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Jobs of 1200 s end 300 s apart: until the last has, 450 s of the cluster would be idle."""
    monkeypatch.setattr("gangsched.core.queueing.idle._SAVED_FOR_S", 700.0)
    own = QueueingSettings(2, mode="budget", idle_share=0.1)
    c = cluster(nodes=4, gpus=1, settings=Settings(queueing=own))
    for k in range(4):
        c.submit(lone(f"job-{k}", 1, "1200s")).run().wait(300.0)
    c.submit(gang("large", pods=4, gpus=1)).run()
    for k in range(4, 14):
        c.submit(lone(f"job-{k}", 1, "1200s")).run().delete(f"job-{k - 4}").run().wait(300.0)
        if c.placed("large"):
            break
    assert c.placed("large", on=4)
    assert [k for k in range(4, 14) if f"job-{k}" in c.bind_order()] == [4, 5], "its bound was kept"
    budget = c.claims().budget
    assert budget is not None
    later = budget.too_idle({"nvidia.com/gpu": 60.0}, c.now_s)
    assert later is not None, "what was kept idle beyond that is earned before anything else is"
    assert later.from_s > c.now_s + 1000.0


def test_the_bound_of_a_queue_goes_before_that_of_all() -> None:
    c = queued(
        "queueing: {bound: {groups: 50, mode: hard}}\n"
        "queues:\n"
        "- name: top\n"
        "  bound: 2\n"
        "  queues: [{name: d, namespaces: [d]}, {name: e, namespaces: [e], bound: 9}]\n"
        "- {name: rest, namespaces: ['*']}\n",
        nodes=2,
    )
    c.submit(lone("holds", 8)).run()
    c.submit(gang("large", pods=2, gpus=8)).run()
    assert stream(c, 10, 8) <= 2
    tree = c.queue_book()
    found = [tree.tree.bound(make_pod("x", namespace=name)) for name in ("d", "e", "other")]
    assert found == [2, 9, None]


def overrunning(on_overrun: str = "yield", default_s: float | None = None, **more: Any) -> Cluster:
    """As `claimed`, and the pod that is in the way does not end."""
    defaults = {} if default_s is None else {"gangsched": default_s}
    own = QueueingSettings(1, mode="hard", on_overrun=on_overrun, default_walltime_s=defaults)  # type: ignore[arg-type]
    c = cluster(nodes=2, gpus=8, settings=Settings(queueing=own, **more))
    c.submit(lone("holds", 8, "600s")).run()
    c.submit(gang("large", pods=2, gpus=8)).run()
    c.submit(lone("before", 8, "10s")).run()
    c.delete("before").run()
    return c.submit(lone("passes", 8, "2h")).run()


def test_who_runs_past_its_walltime_is_evicted_for_the_claim_that_waits() -> None:
    c = overrunning().wait(625.0)
    assert c.evicted() == []
    c.wait(20.0)
    assert c.evicted() == ["holds"]
    assert "Preempted by gang d/large on node" in "\n".join(c.told())
    c.run().wait(2.0)
    assert c.placed("large", on=2)
    assert c.claims().promises == {KEPT: 1}


def test_an_eviction_for_a_claim_is_not_asked_again_once_overrunners_need_not_yield() -> None:
    c = overrunning()
    c.evictions = "silent"
    c.wait(645.0)
    n = len(c.evicted())
    assert c.state("large") == "waiting"
    own = QueueingSettings(1, mode="hard")
    c.reconfigure(Settings(queueing=own))
    c.wait(600.0)
    assert len(c.evicted()) == n
    assert not c.placed("large")


def test_a_start_that_waits_long_for_who_is_evicted_was_made_late_by_who_ran_on() -> None:
    c = overrunning()
    c.evictions = "slow"
    c.wait(645.0)
    assert c.evicted() == ["holds"]
    c.wait(20.0)
    c.delete("holds").run().wait(10.0)
    assert c.placed("large", on=2)
    assert c.claims().promises == {OVERRUN: 1}


def test_a_promise_to_a_gang_that_is_deleted_is_neither_kept_nor_late() -> None:
    c = claimed(fill="2h")
    assert c.claim("large").is_promise
    c.tell(*(ev.PodDeleted(c.pods.pop(c.pod(name).metadata.uid)) for name in ("large-0", "large-1"))).run()
    assert not c.claims().by_key
    assert not c.claims().promises


def test_nobody_is_evicted_for_its_walltime_unless_it_is_asked_for() -> None:
    for c in (overrunning("none"), overrunning(allow_eviction=False)):
        c.wait(3600.0)
        assert c.evicted() == []
        assert not c.placed("large")


def test_nobody_is_evicted_where_no_claim_waits_for_it_or_it_would_not_help() -> None:
    c = overrunning()
    c.delete("large-0", "large-1").run().wait(3600.0)
    assert c.evicted() == []
    c = overrunning()
    c.submit(lone("urgent", 8, "9000s", priority=10)).run().wait(3600.0)
    assert c.pod("urgent").spec.node_name
    assert c.evicted() == []


def extend(c: Cluster, name: str, walltime: str) -> None:
    pod = c.pod(name)
    own = {**(pod.metadata.annotations or {}), WALLTIME_KEY: walltime}
    c.update(pod, metadata=replace(pod.metadata, annotations=own)).run()


@pytest.mark.parametrize(
    ("on_overrun", "allows"),
    [
        ("none", True),
        pytest.param("yield", False, id="who overruns should yield, and nothing may be evicted"),
    ],
)
def test_an_extension_moves_the_claim_and_the_cause_is_reported(on_overrun: str, allows: bool) -> None:
    c = overrunning(on_overrun, allow_eviction=allows).wait(100.0)
    extend(c, "holds", "1800s")
    c.wait(2.0)
    found = c.claim("large")
    assert (found.start_s, found.because, found.is_promise) == (1801.0, "extended", True)
    c.wait(1690.0)
    c.delete("holds").run().wait(2.0)
    assert c.placed("large")
    assert c.claims().promises == {"extended": 1}


def test_where_overrunners_yield_a_promise_cannot_be_put_off() -> None:
    c = overrunning().wait(100.0)
    extend(c, "holds", "1800s")
    c.wait(2.0)
    found = c.claim("large")
    assert (found.start_s, found.is_promise) == (601.0, True)
    assert "its longer walltime does not count: the start of d/large was promised" in "\n".join(c.told())
    c.wait(550.0).run().wait(2.0)
    assert c.evicted() == ["holds"]
    assert c.placed("large", on=2)


@pytest.mark.parametrize("default_s", [None, 10.0, 5000.0])
def test_a_promise_is_not_put_off_by_stating_no_walltime_any_more(default_s: float | None) -> None:
    c = overrunning(default_s=default_s).wait(100.0)
    pod = c.pod("holds")
    c.update(pod, metadata=replace(pod.metadata, annotations={})).run().wait(2.0)
    found = c.claim("large")
    assert (found.start_s, found.is_promise) == (601.0, True)
    assert ("its longer walltime does not count" in "\n".join(c.told())) == (default_s != 10.0)
    c.wait(550.0).run().wait(2.0)
    assert c.evicted() == ["holds"]
    assert c.placed("large", on=2)


def test_who_fills_in_cannot_put_off_a_promise_by_a_longer_walltime_either() -> None:
    """A pod says what lets it go first, and once it runs, that it needs hours."""
    c = overrunning().wait(10.0)
    c.submit(lone("fills", 8, "300s")).run().wait(100.0)
    assert c.pod("fills").spec.node_name
    extend(c, "fills", "5h")
    c.wait(10.0)
    assert (c.claim("large").start_s, c.claim("large").is_promise) == (601.0, True)
    assert "its longer walltime does not count: the start of d/large was promised" in "\n".join(c.told())
    c.wait(480.0).delete("holds").run().wait(45.0)
    assert c.evicted() == ["fills"]
    assert c.placed("large", on=2)
    assert c.claims().promises == {KEPT: 1}


def test_a_claim_moves_as_soon_as_who_fills_in_says_that_it_needs_longer() -> None:
    c = overrunning("none").wait(10.0)
    c.submit(lone("fills", 8, "300s")).run().wait(100.0)
    extend(c, "fills", "1800s")
    c.wait(10.0)
    assert (c.claim("large").start_s, c.claim("large").because) == (1811.0, "extended")


def test_a_start_is_an_estimate_while_somebody_fills_in_whose_end_is_a_guess() -> None:
    c = cluster(
        nodes=2,
        settings=Settings(queueing=QueueingSettings(1, mode="hard", default_walltime_s={"gangsched": 300.0})),
    )
    c.submit(lone("holds", 8, "900s")).run()
    c.submit(with_annotations(gang("large", pods=2, gpus=8), {WALLTIME_KEY: "1h"})).run()
    c.submit(lone("before", 8, "10s")).run().delete("before").run()
    c.submit(lone("passes", 8, "2h")).run().wait(10.0)
    assert c.claim("large").is_promise
    c.submit(lone("fills", 8)).run().wait(40.0)
    assert c.pod("fills").spec.node_name
    assert "An estimate: it starts about" in c.said("large-0")
    c.delete("fills").run().wait(40.0)
    assert "It starts by 2026-01-01 00:16 UTC" in c.said("large-0")
    assert "1 pod there ends: d/holds" in str(explain(c.scheduler, c.group("large"), c.now_s))


def test_who_fills_in_again_after_its_bind_has_failed_is_waited_for_once() -> None:
    c = bounded(bound=1, pod_initial_backoff_s=0.05).submit(lone("holds", 8, "600s")).run()
    c.submit(gang("large", pods=2, gpus=7)).run()
    for name in ("before", "after"):
        c.submit(lone(name, 1, "10s")).run().delete(name)
    c.answer = lambda bind: "hold"
    c.submit(lone("fills", 1)).run()
    [bind] = c.held_binds
    c.tell(ev.BindFailed(bind.uid, bind.attempt, 403, "Forbidden", "not now")).wait(0.1)
    assert c.pod_info(bind.name).attempt == 2
    assert [one.name for one in c.claim("large").blockers] == ["d/fills", "d/holds"]
    c.wait(2.0)
    assert c.said("large-0").startswith("An estimate: ")
    assert "no end stated by 1 there." in c.said("large-0")


def test_what_was_on_its_nodes_all_the_time_is_not_why_a_claim_slips() -> None:
    """A DaemonSet's pods, which another scheduler has placed, and a more important pod beside the room."""
    c = bounded(bound=1)
    for name in ("n0", "n1"):
        pod = make_pod(f"daemon-{name}", gpus=0)
        owner = OwnerReference("apps/v1", "DaemonSet", "daemon", "uid-daemon", controller=True)
        c.submit(
            replace(
                pod,
                metadata=replace(pod.metadata, owner_references=[owner]),
                spec=replace(pod.spec, scheduler_name="default-scheduler", node_name=name),
            )
        )
    c.submit(make_pod("important", gpus=0, priority=50)).run()
    c.submit(lone("holds", 8, "600s")).run()
    c.submit(gang("large", pods=2, gpus=8)).run()
    c.submit(lone("before", 8, "10s")).run().delete("before").run()
    c.submit(lone("passes", 8, "2h")).run()
    c.wait(700.0)
    assert (c.claim("large").n_slips, c.claim("large").because) == (2, "overrun")
    [theirs] = lone("theirs", 8, "9000s")
    on = ({"n0", "n1"} - {c.pod("holds").spec.node_name}).pop()
    c.delete("holds").submit(
        replace(theirs, spec=replace(theirs.spec, scheduler_name="default-scheduler", node_name=on))
    )
    c.run().wait(40.0)
    assert c.claim("large").because == "other scheduler"


@pytest.mark.parametrize("how", ["tainted", "a device less", "gone"])
def test_a_claim_slips_because_of_a_node_that_no_longer_takes_its_gang(how: str) -> None:
    c = bounded(nodes=3, bound=1)
    c.submit(lone("holds", 8, "600s"), lone("also", 8, "900s")).run()
    c.submit(gang("large", pods=2, gpus=8)).run()
    c.submit(lone("before", 8, "10s")).run().delete("before").run()
    c.submit(lone("passes", 8, "2h")).run().wait(5.0)
    first, last = c.pod("holds").spec.node_name, c.pod("also").spec.node_name
    free = ({"n0", "n1", "n2"} - {first, last}).pop()
    taint = Taint("node.kubernetes.io/unreachable", effect="NoSchedule")
    node = make_node(free, gpus=7)
    if how == "tainted":
        node = replace(c.nodes[free], spec=replace(c.nodes[free].spec, taints=[taint]))
    _ = c.drop_node(free) if how == "gone" else c.node(node)
    c.run().wait(40.0)
    assert (c.claim("large").start_s, c.claim("large").because) == (901.0, "node")
    assert free not in c.claim("large").nodes


def test_an_extension_counts_again_once_no_promise_rests_on_it() -> None:
    c = overrunning().wait(100.0)
    extend(c, "holds", "1800s")
    c.delete("large-0", "large-1").run().wait(2.0)
    c.submit(gang("next", pods=2, gpus=8)).run()
    c.delete("passes").run()
    c.submit(lone("second", 8, "10s")).run()
    c.delete("second").run()
    c.submit(lone("third", 8, "2h")).run()
    assert c.claim("next").start_s == 1801.0


def test_a_running_pod_is_told_when_it_ends_and_who_starts_after_it() -> None:
    c = overrunning()
    pod = c.pod("holds")
    c.update(pod, status=replace(pod.status, start_time=pod.metadata.creation_timestamp)).run()
    said = explain(c.scheduler, c.group("holds"), c.now_s).answer
    assert said == (
        "It has started: 1 of 1 members are bound. It ends about 2026-01-01 00:10 UTC (by its walltime)."
        " Room is kept where it runs, and d/large starts after it."
    )


@pytest.mark.parametrize("walltime", ["1800s", "for ever"])
def test_a_running_pod_is_told_the_end_that_it_cannot_put_off(walltime: str) -> None:
    c = overrunning("evict")
    pod = c.pod("holds")
    c.update(pod, status=replace(pod.status, start_time=pod.metadata.creation_timestamp)).run()
    extend(c, "holds", walltime)
    assert explain(c.scheduler, c.group("holds"), c.now_s).answer == (
        "It has started: 1 of 1 members are bound. It ends about 2026-01-01 00:10 UTC (by the walltime that a"
        " promised start rests on). It is evicted soon after that. Room is kept where it runs,"
        " and d/large starts after it."
    )


@pytest.mark.parametrize("walltime", ["1800s", "for ever"])
def test_who_waits_for_room_is_told_the_end_that_its_holder_cannot_put_off(walltime: str) -> None:
    c = overrunning()
    pod = c.pod("holds")
    c.update(pod, status=replace(pod.status, start_time=pod.metadata.creation_timestamp)).run()
    extend(c, "holds", walltime)
    c.submit(lone("another", 8, "1h")).run()
    until = "until about 2026-01-01 00:10 UTC (by the walltime that a promised start rests on)"
    assert until in c.said("another")
    assert until in explain(c.scheduler, c.group("another"), c.now_s).answer


def test_an_end_can_be_put_off_again_once_overrunners_need_not_yield() -> None:
    c = overrunning().wait(100.0)
    extend(c, "holds", "1800s")
    c.wait(2.0)
    assert c.claim("large").start_s == 601.0
    c.reconfigure(Settings(queueing=QueueingSettings(1, mode="hard"))).run().wait(640.0)
    assert c.evicted() == []
    assert c.claim("large").start_s == 1801.0


def test_a_claim_that_can_stay_is_not_planned_for_starts_that_are_no_earlier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    c = bounded(nodes=4, bound=1)
    for k in range(4):
        c.submit(lone(f"holds-{k}", 8, f"{1000 * (k + 1)}s")).run()
    for name in ("first", "second"):
        c.submit(with_annotations(gang(name, pods=2, gpus=8), {WALLTIME_KEY: "5000s"})).run()
    c.delete("holds-0").run().submit(lone("before", 8, "5000s")).run()
    c.delete("before").run().submit(lone("passes", 8, "5000s")).run()
    c.submit(lone("fills", 8, "500s")).run()
    starts = [c.claim(name).start_s for name in ("first", "second")]
    assert starts == [2001.0, 4001.0]
    tried: list[float] = []
    plan = ClaimPlans._try

    def noted(self: ClaimPlans, *args: Any, **more: Any) -> Any:
        tried.append(args[1])
        return plan(self, *args, **more)

    monkeypatch.setattr(ClaimPlans, "_try", noted)
    c.wait(70.0).delete("holds-2").run()
    c.wait(70.0).run()
    assert [c.claim(name).start_s for name in ("first", "second")] == starts
    standing = [2001.0, 4001.0]
    assert tried == [*standing * 3, 2001.0, 501.0, 4001.0], "where each stands, and one earlier moment"


def test_a_start_is_no_promise_while_another_schedulers_pod_has_to_go_first() -> None:
    """What it states no end of came to a claimed node after the promise, and leaves too little there."""
    c = claimed().wait(2.0)
    assert c.said("large-0").startswith("It starts by ")
    foreign = make_pod("foreign", gpus=1, scheduler="default-scheduler")
    c.submit(replace(foreign, spec=replace(foreign.spec, node_name=c.pod("holds").spec.node_name)))
    c.run().wait(2.0)
    assert [one.name for one in c.claim("large").blockers] == ["d/foreign", "d/holds"]
    assert c.said("large-0").startswith("An estimate: it starts about ")
    assert "no end stated by 1 there." in c.said("large-0")
    c.delete("foreign").run().wait(2.0)
    assert c.said("large-0").startswith("It starts by ")
    c.submit(replace(foreign, spec=replace(foreign.spec, node_name=c.pod("holds").spec.node_name)))
    c.run().wait(590.0).delete("holds").run().wait(60.0)
    assert c.claim("large").because == "other scheduler"
