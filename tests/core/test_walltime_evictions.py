"""`onOverrun: evict`: what runs past the walltime that it states is evicted, whoever waits."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.config.queueing import QueueingSettings
from gangsched.core.explaining.explain import explain
from gangsched.core.queueing.claims import KEPT
from gangsched.lab.sim.objects import at, make_node, make_pod, make_pod_group
from gangsched.lab.sim.world.actors import reborn
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Condition, SchedulingGroup
from gangsched.model.pod_group import GROUPS_KEY
from gangsched.model.walltime import WALLTIME_KEY
from tests.support.scenario import Cluster, cluster, gang, lone, with_annotations

EVICT = QueueingSettings(on_overrun="evict")


def evicting(queueing: QueueingSettings | None = EVICT, *, nodes: int = 2, **more: Any) -> Cluster:
    return cluster(nodes=nodes, gpus=8, settings=Settings(queueing=queueing, **more))


def timed_gang(name: str, walltime: str = "600s", *, pods: int = 3, **more: Any) -> list[Any]:
    return with_annotations(gang(name, pods=pods, gpus=2, **more), {WALLTIME_KEY: walltime})


def switch(c: Cluster, queueing: QueueingSettings | None) -> None:
    c.reconfigure(replace(c.settings, queueing=queueing))


def restate(c: Cluster, walltime: str, *names: str) -> None:
    for name in names:
        pod = c.pod(name)
        own = {**(pod.metadata.annotations or {}), WALLTIME_KEY: walltime}
        c.update(pod, metadata=replace(pod.metadata, annotations=own)).run()


# -- when ------------------------------------------------------------------------------------------------


def test_it_goes_half_a_minute_after_its_end_and_not_before() -> None:
    c = evicting().submit(lone("a", 1, "600s")).run().wait(629.0)
    assert (c.evicted(), c.told("OverrunEviction")) == ([], [])
    c.wait(1.0)
    assert c.evicted() == ["a"]
    assert c.told("OverrunEviction") == [
        "pod d/a has run past its walltime, which was over at 2026-01-01 00:11 UTC, and is evicted"
    ]
    assert c.count("overrun_evictions") == 1
    assert "a" not in [pod.metadata.name for pod in c.pods.values()]
    c.five_more_turns_change_nothing()


@pytest.mark.parametrize("on_overrun", ["none", "yield"])
def test_nobody_goes_without_being_asked_for(on_overrun: Any) -> None:
    own = QueueingSettings(3, mode="hard", on_overrun=on_overrun)
    c = evicting(own).submit(lone("a", 1, "600s"), timed_gang("b")).run().wait(7200.0)
    assert c.evicted() == []


def test_who_states_nothing_stays_whatever_is_thought_of_it() -> None:
    c = evicting(replace(EVICT, default_walltime_s={"gangsched": 60.0}))
    c.submit(lone("default", 1)).run().wait(7200.0)
    assert c.evicted() == []


def test_a_deadline_that_kubelet_does_not_keep_is_kept_for_it() -> None:
    c = evicting()
    pod = make_pod("a", gpus=1)
    c.submit(replace(pod, spec=replace(pod.spec, active_deadline_seconds=100))).run().wait(129.0)
    assert c.evicted() == []
    c.wait(1.0)
    assert c.evicted() == ["a"]


def test_another_schedulers_pod_stays() -> None:
    c = evicting()
    pod = lone("theirs", 1, "600s", scheduler="other")[0]
    c.submit(replace(pod, spec=replace(pod.spec, node_name="n0"))).run().wait(7200.0)
    assert c.evicted() == []


def test_an_extension_before_the_end_moves_the_end_and_a_shorter_one_too() -> None:
    c = evicting().submit(lone("a", 1, "600s")).run().wait(500.0)
    restate(c, "1200s", "a")
    c.wait(729.0)
    assert c.evicted() == []
    c.wait(1.0)
    assert c.evicted() == ["a"]
    c = evicting().submit(lone("a", 1, "600s")).run().wait(10.0)
    restate(c, "100s", "a")
    c.wait(119.0)
    assert c.evicted() == []
    c.wait(1.0)
    assert c.evicted() == ["a"]


def test_an_end_that_was_moved_and_moved_back_is_one_end() -> None:
    c = evicting().submit(lone("a", 1, "600s")).run()
    restate(c, "900s", "a")
    restate(c, "600s", "a")
    c.wait(629.0)
    assert not c.evicted()
    c.wait(1.0)
    assert c.evicted() == ["a"]
    assert len(c.told("OverrunEviction")) == 1


def test_who_states_it_late_or_takes_it_back_is_heard() -> None:
    c = evicting().submit(lone("a", 1), lone("b", 1, "600s")).run().wait(300.0)
    restate(c, "400s", "a")
    restate(c, "", "b")
    c.wait(130.0)
    assert c.evicted() == ["a"]
    c.wait(7200.0)
    assert c.evicted() == ["a"]


def test_after_a_restart_it_counts_from_when_kubelet_started_it() -> None:
    c = evicting().submit(lone("a", 1, "600s")).run()
    c.wait(100.0)
    c.start("a")
    c.wait(300.0).restart().wait(329.0)
    assert c.evicted() == []
    c.wait(1.0)
    assert c.evicted() == ["a"]


def test_a_pod_that_waited_for_long_and_has_not_started_is_not_over_after_a_restart() -> None:
    c = evicting(nodes=1).submit(lone("before", 8)).run().submit(lone("a", 8, "600s")).run()
    c.wait(5000.0).delete("before").run()
    assert c.pod("a").spec.node_name
    bound = Condition("PodScheduled", "True", last_transition_time=at(c.now_s))
    c.update(c.pod("a"), status=replace(c.pod("a").status, conditions=[bound]))
    c.wait(10.0).restart().wait(600.0)
    assert c.evicted() == []
    c.wait(31.0)
    assert c.evicted() == ["a"]


# -- whole -----------------------------------------------------------------------------------------------


def test_a_gang_goes_whole_and_starts_together_again() -> None:
    c = evicting().submit(timed_gang("a")).run().wait(10.0)
    c.evictions = "slow"
    c.wait(621.0)
    assert c.evicted() == ["a-0", "a-1", "a-2"]
    assert len(c.told("OverrunEviction")) == 1
    fresh = [reborn(pod, "r1", c.now_s) for pod in timed_gang("a")]
    for pod in fresh[:2]:
        c.delete(pod.metadata.name).submit(pod).run()
    assert not any(c.pods[pod.metadata.uid].spec.node_name for pod in fresh[:2]), "an old one is there"
    c.delete("a-2").submit(fresh[2]).run()
    c.wait(15.0)
    assert c.placed("a")
    c.wait(600.0)
    assert len(c.evicted()) == 3
    c.wait(31.0)
    assert len(c.evicted()) == 6, "it had its whole time again"


def test_the_last_end_of_a_gang_counts() -> None:
    c = evicting().submit(timed_gang("a")).run().wait(300.0)
    c.delete("a-2").submit(reborn(timed_gang("a")[2], "r1", c.now_s)).run()
    assert c.placed("a")
    c.wait(629.0)
    assert c.evicted() == []
    c.wait(1.0)
    assert c.evicted() == ["a-0", "a-1", "a-2"]


def test_members_that_have_succeeded_are_not_owed_again() -> None:
    c = evicting().submit(timed_gang("a")).run()
    c.phase("a-0", "Succeeded").phase("a-1", "Succeeded").wait(631.0)
    assert c.evicted() == ["a-2"]
    c.submit(reborn(timed_gang("a")[2], "r1", c.now_s)).run().wait(15.0)
    assert c.pod("a-2").spec.node_name


def test_a_gangs_object_speaks_for_it_and_is_reported() -> None:
    c = evicting()
    item = make_pod_group("a", spec={"schedulingPolicy": {"gang": {"minCount": 2}}})
    own = {**(item.metadata.annotations or {}), WALLTIME_KEY: "600s"}
    c.object("core", replace(item, metadata=replace(item.metadata, annotations=own)))
    pods = [make_pod(f"a-{k}", gpus=1) for k in range(2)]
    c.submit([replace(p, spec=replace(p.spec, scheduling_group=SchedulingGroup("a"))) for p in pods]).run()
    c.wait(300.0)
    longer = replace(item, metadata=replace(item.metadata, annotations={**own, WALLTIME_KEY: "1200s"}))
    c.object("core", longer).wait(500.0)
    assert c.evicted() == []
    c.wait(431.0)
    assert c.evicted() == ["a-0", "a-1"]
    assert [one.kind for one in c.all(ef.RecordEvent) if one.reason == "OverrunEviction"] == ["PodGroup"]


# -- refused ---------------------------------------------------------------------------------------------


def test_a_budgets_refusal_is_asked_again_ever_more_rarely_and_explained() -> None:
    c = evicting().submit(lone("a", 1, "600s")).run()
    c.evictions = "429"
    c.wait(660.0)
    asked = len(c.evicted())
    assert 3 <= asked <= 6
    said = explain(c.scheduler, c.group("a"), c.now_s).answer
    assert said == (
        "It is being taken back: 1 pod of it still to go. pod d/a has run past its walltime, which was over"
        " at 2026-01-01 00:11 UTC. It is asked again, refused: evicting d/a: 429 refused"
    )
    c.wait(600.0)
    assert len(c.evicted()) - asked <= 5
    c.evictions = "ok"
    c.wait(300.0)
    assert "a" not in [pod.metadata.name for pod in c.pods.values()]
    assert len(c.told("OverrunEviction")) == 1


def test_why_a_gang_is_evicted_is_explained_until_it_is_over() -> None:
    c = evicting().submit(timed_gang("a")).run()
    c.evictions = "silent"
    c.phase("a-0", "Succeeded").wait(631.0)
    said = explain(c.scheduler, c.group("a"), c.now_s).answer
    assert said == (
        "It is being taken back: 2 pods of it still to go. gang d/a has run past its walltime, which was over"
        " at 2026-01-01 00:11 UTC."
    )
    c.delete("a-1", "a-2").run()
    assert c.group("a").message == ""


def test_another_refusal_is_reported() -> None:
    c = evicting().submit(timed_gang("a")).run()
    c.evictions = "403"
    c.wait(640.0)
    assert "evicting d/a-0: 403 refused" in c.told("GangAborted")


def test_where_nothing_may_be_evicted_that_is_reported_once() -> None:
    c = evicting(allow_eviction=False).submit(lone("a", 1, "600s")).run().wait(7200.0)
    assert c.evicted() == []
    assert c.told("OverrunStays") == [
        "pod d/a has run past its walltime, which was over at 2026-01-01 00:11 UTC, and stays: allowEviction"
        " is off"
    ]


# -- beside others -----------------------------------------------------------------------------------------


def blocked(mode: Any = "hard") -> Cluster:
    """A gang waits, with a claim, for the pod `holds`, which ends 600 s after 1.0."""
    c = evicting(QueueingSettings(1, mode=mode, on_overrun="evict"))
    c.submit(lone("holds", 8, "600s")).run()
    c.submit(gang("large", pods=2, gpus=8)).run()
    c.submit(lone("before", 8, "10s")).run()
    c.delete("before").run()
    return c.submit(lone("passes", 8, "2h")).run()


def test_a_claim_that_waits_for_it_starts_then() -> None:
    c = blocked()
    c.delete("passes").run().wait(628.0)
    assert c.evicted() == []
    c.wait(10.0)
    assert set(c.evicted()) == {"holds"}
    assert c.placed("large", on=2)
    assert c.claims().promises == {KEPT: 1}


@pytest.mark.parametrize("walltime", ["1800s", "for ever"])
def test_an_end_that_a_promise_rests_on_is_not_put_off(walltime: str) -> None:
    c = blocked().wait(100.0)
    restate(c, walltime, "holds")
    c.wait(540.0)
    assert set(c.evicted()) == {"holds"}


def test_who_fills_in_goes_at_the_end_that_it_stated_then_though_it_states_none_any_more() -> None:
    """The claim's gang cannot start yet, so it is the walltime alone that it goes for."""
    c = blocked()
    c.delete("passes").run().wait(100.0)
    c.submit(lone("fills", 8, "400s")).run()
    restate(c, "for ever", "fills")
    c.wait(428.0)
    assert c.evicted() == []
    c.wait(5.0)
    assert c.evicted() == ["fills"]


def test_an_end_is_put_off_once_the_promise_that_rests_on_it_is_gone() -> None:
    c = blocked().wait(100.0)
    restate(c, "1800s", "holds")
    c.wait(2.0).delete("large-0", "large-1").run().wait(700.0)
    assert c.evicted() == []
    c.wait(1027.0)
    assert c.evicted() == []
    c.wait(3.0)
    assert c.evicted() == ["holds"]


def test_it_begins_and_ends_with_the_configuration() -> None:
    c = evicting(QueueingSettings()).submit(lone("a", 1, "600s"), lone("b", 1, "900s")).run().wait(700.0)
    for own, gone in ((EVICT, ["a"]), (QueueingSettings(), ["a"]), (EVICT, ["a", "b"])):
        switch(c, own)
        c.wait(150.0)
        assert c.evicted() == gone


def test_time_does_not_count_from_before_the_start_for_who_was_reserved_before_it_was_switched_on() -> None:
    """A pod has waited for longer than it will run, and is being bound when somebody asks when it ends."""
    c = evicting(None).submit(lone("first", 8, "9000s"), lone("holds", 5, "9000s")).run()
    c.submit(lone("waits", 8, "600s")).run().wait(2000.0)
    c.answer = lambda bind: "hold" if bind.name == "waits" else "ok"
    c.delete("first").run().wait(2.0)
    [bind] = c.held_binds
    c.reconfigure(Settings(queueing=QueueingSettings(1, mode="hard", on_overrun="evict")))
    c.submit(gang("large", pods=2, gpus=8)).run()
    for name in ("before", "after"):
        c.submit(lone(name, 1, "9000s")).run()
    assert "d/waits" in [one.name for one in c.claims().all[0].blockers]
    c.answer = lambda bind: "ok"
    c.tell(ev.BindSucceeded(bind.uid, bind.attempt), ev.PodUpdated(c.commit(bind))).run().wait(600.0)
    assert c.evicted() == []
    c.wait(31.0)
    assert c.evicted() == ["waits"]


def test_who_is_reserved_while_it_is_off_has_not_run_since_an_earlier_time() -> None:
    c = evicting(permit_wait_s=100.0)
    set_of_two = {GROUPS_KEY: '["a","b"]'}
    c.submit(with_annotations(timed_gang("a", pods=1), set_of_two)).run().wait(100.0)
    assert c.state("a") != "waiting"  # what was reserved is given back
    switch(c, None)
    c.wait(2000.0).submit(with_annotations(timed_gang("b", pods=1), set_of_two)).run().wait(60.0)
    assert c.state("a") == "bound"
    switch(c, EVICT)
    assert c.wait(500.0).evicted() == []
    assert c.wait(100.0).evicted() == ["a-0", "b-0"]


@pytest.mark.parametrize("is_given_back", [True, False])
def test_who_is_bound_by_somebody_else_has_not_run_since_it_was_reserved_here(is_given_back: bool) -> None:
    """A member of a set that waits for the other group of it for longer than it will run."""
    c = evicting(permit_wait_s=100.0 if is_given_back else 9000.0)
    c.submit(with_annotations(timed_gang("a", pods=1), {GROUPS_KEY: '["a","b"]'})).run().wait(2.0)
    assert c.state("a") == "waiting"
    c.wait(98.0)
    assert (c.state("a") != "waiting") is is_given_back
    for node in ("n0", "n1") if is_given_back else ():
        c.drop_node(node)  # where it was reserved first
    c.node(make_node("n9")).wait(2000.0)
    pod, since = c.pod("a-0"), Condition("PodScheduled", "True", last_transition_time=at(c.now_s))
    c.update(pod, spec=replace(pod.spec, node_name="n9"), status=replace(pod.status, conditions=[since]))
    assert (c.run().wait(629.0).state("a"), c.evicted()) == ("bound", [])
    c.wait(2.0)
    assert c.evicted() == ["a-0"]


@pytest.mark.parametrize("queueing", [None, QueueingSettings(), QueueingSettings(on_overrun="yield")])
def test_a_refused_eviction_is_not_repeated_once_that_is_switched_off(queueing: Any) -> None:
    c = evicting().submit(timed_gang("a")).run()
    c.evictions = "429"
    c.wait(640.0)
    n = len(c.evicted())
    assert n > 3
    c.reconfigure(Settings(queueing=queueing))
    c.wait(600.0)
    assert len(c.evicted()) == n
    assert c.state("a") == "bound"


def test_a_running_pod_is_told_that_it_will_be_evicted() -> None:
    c = evicting().submit(lone("a", 1, "600s"), lone("b", 1)).run()
    c.start("a", "b")
    said = explain(c.scheduler, c.group("a"), c.now_s).answer
    ends = "It ends about 2026-01-01 00:10 UTC (by its walltime). It is evicted soon after that."
    assert said.endswith(ends)
    assert explain(c.scheduler, c.group("b"), c.now_s).answer == "It has started: 1 of 1 members are bound."
