"""Pods that our own code failed on: what they held is free for others, and what may land is asked about."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.config.queueing import QueueingSettings
from gangsched.core.groups.members.membership import Membership
from gangsched.lab.sim.objects import make_pod
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.devices.annotations import is_device_key
from gangsched.model.objects import ContainerPort, Pod
from tests.core.test_containment import Guarded, fails
from tests.core.test_reconfigure import DEFAULT, profiles_of, reconfigured
from tests.support.scenario import Cluster


def refused(c: Cluster, event: ev.Event) -> None:
    """Our code fails on the event."""
    with pytest.MonkeyPatch.context() as broken:
        for method in ("_state_of", "_remove", "_enter_group"):
            broken.setattr(Membership, method, fails)
        c.tell(event)


def unanswered(*, at_s: float = 30.0) -> Guarded:
    """A pod was refused while its bind is on its way to the one node."""
    guarded = Guarded(nodes=1, settings=Settings(settle_s=at_s))
    c = guarded.cluster
    c.answer = lambda bind: "hold"
    c.submit(make_pod("bad", gpus=8)).run()
    refused(c, ev.PodUpdated(c.store(c.pod("bad"))))
    return guarded


def test_who_waits_for_the_room_of_a_pod_that_is_gone_and_refused_gets_it() -> None:
    c = Guarded(nodes=1).cluster
    c.submit(make_pod("bad", gpus=8)).run().submit(make_pod("next", gpus=8)).run()
    refused(c, ev.PodDeleted(c.pods.pop(c.pod("bad").metadata.uid)))
    c.wait(2.0)
    assert c.pod("next").spec.node_name


def test_a_refused_pod_is_expected_to_end_when_it_was_before() -> None:
    c = Guarded(nodes=1, settings=Settings(queueing=QueueingSettings())).cluster
    c.answer = lambda bind: "hold"
    c.submit(make_pod("bad", gpus=8)).run().wait(100.0)
    [bind] = c.held_binds
    c.tell(ev.BindSucceeded(bind.uid, bind.attempt), ev.PodUpdated(c.commit(bind)))
    before = c.end_s(c.pod_info("bad"))
    refused(c, ev.PodUpdated(c.store(c.pod("bad"))))
    assert c.end_s(c.pod_info("bad")) == before


def test_the_host_port_of_a_refused_pod_is_taken() -> None:
    c = Guarded(nodes=1).cluster
    pod = make_pod("bad", gpus=1)
    [own] = pod.spec.containers
    ported = replace(own, ports=[ContainerPort(container_port=80, host_port=8080)])
    c.submit(replace(pod, spec=replace(pod.spec, containers=[ported]))).run()
    refused(c, ev.PodUpdated(c.store(c.pod("bad"))))
    c.submit(replace(make_pod("next"), spec=replace(pod.spec, containers=[ported]))).run()
    assert not c.pod("next").spec.node_name
    assert c.submit(make_pod("other", gpus=7)).run().pod("other").spec.node_name


def test_who_waits_for_a_victim_that_is_gone_and_refused_gets_its_turn() -> None:
    c = Guarded(nodes=1).cluster
    c.evictions = "slow"
    c.submit(make_pod("bad", gpus=8)).run().submit(make_pod("high", gpus=8, priority=10)).run()
    refused(c, ev.PodDeleted(c.pods.pop(c.pod("bad").metadata.uid)))
    assert c.run().pod("high").spec.node_name


def test_room_that_was_made_for_a_refused_pod_is_free_for_others() -> None:
    c = Guarded(nodes=1).cluster
    c.evictions = "slow"
    c.submit(make_pod("low", gpus=8)).run().submit(make_pod("bad", gpus=8, priority=10)).run()
    assert c.state("bad") == "waiting"
    refused(c, ev.PodUpdated(c.store(c.pod("bad"))))
    c.delete("low").submit(make_pod("next", gpus=8)).run()
    assert c.pod("next").spec.node_name


def test_a_bind_without_an_answer_is_asked_about_until_there_is_one() -> None:
    c = unanswered(at_s=30.0).cluster
    assert not c.wait(29.0).all(ef.GetPod)
    for n in (1, 2, 3):
        assert [one.name for one in c.wait(30.0).all(ef.GetPod)] == ["bad"] * n
    c.read("bad").wait(100.0)
    assert len(c.all(ef.GetPod)) == 3
    assert c.unanswered() == {}


def test_a_refused_pod_that_is_bound_is_not_bound_again_for_a_version_from_before() -> None:
    guarded = unanswered(at_s=30.0)
    c, (bind,) = guarded.cluster, guarded.cluster.held_binds
    older = c.store(c.pod("bad"))
    c.answer = lambda bind: "ok"
    c.tell(ev.BindSucceeded(bind.uid, bind.attempt)).submit(make_pod("thief", gpus=8)).run()
    c.tell(ev.PodUpdated(older)).run()
    assert [one.name for one in c.all(ef.BindPod)] == ["bad"]
    c.tell(ev.PodUpdated(c.commit(bind))).run().wait(100.0)
    assert guarded.n_free() == 0
    assert c.unanswered() == {}
    assert not c.all(ef.GetPod)


def test_a_refused_pod_whose_bind_has_no_answer_keeps_its_room_while_its_profile_goes_and_is_back() -> None:
    guarded = unanswered()
    c, [bind] = guarded.cluster, guarded.cluster.held_binds
    reconfigured(c, profiles_of("profiles: [{schedulerName: other}]"))
    reconfigured(c, profiles_of(DEFAULT)).submit(make_pod("thief", gpus=8)).run()
    assert [one.name for one in c.all(ef.BindPod)] == ["bad"]
    assert guarded.n_free() == 0
    c.answer = lambda bind: "ok"
    c.tell(ev.BindFailed(bind.uid, bind.attempt, 422, "Invalid", "no")).run().wait(5.0)
    assert guarded.n_free() == 0
    assert {c.pod(name).spec.node_name for name in ("bad", "thief")} == {"", "n0"}


def test_a_refused_pod_that_is_bound_is_read_where_the_watch_does_not_tell_of_it() -> None:
    guarded = unanswered(at_s=30.0)
    c, (bind,) = guarded.cluster, guarded.cluster.held_binds
    c.commit(bind)
    c.tell(ev.BindSucceeded(bind.uid, bind.attempt)).wait(31.0).read("bad").run()
    assert (c.state("bad"), guarded.n_free()) == ("bound", 0)
    assert c.unanswered() == {}


def test_a_refused_pod_whose_bind_has_failed_is_tried_again() -> None:
    c = unanswered(at_s=30.0).cluster
    [bind] = c.held_binds
    c.answer = lambda bind: "ok"
    c.tell(ev.BindFailed(bind.uid, bind.attempt, 422, "Invalid", "no")).run().wait(5.0)
    assert c.pod("bad").spec.node_name
    assert len(c.all(ef.BindPod)) == 2


@pytest.mark.parametrize("is_taken_back", [True, False])
def test_behind_a_fence_a_refused_pod_whose_bind_has_failed_is_bumped_first(is_taken_back: bool) -> None:
    guarded = Guarded(nodes=1, settings=Settings(fence=True))
    c = guarded.cluster
    c.answer = lambda bind: "hold"
    c.submit(make_pod("bad", gpus=8)).run()
    refused(c, ev.PodUpdated(c.store(c.pod("bad"))))
    [bind] = c.held_binds
    c.answer = lambda bind: "ok"
    answer = ev.BindFailed(bind.uid, bind.attempt, 500, "InternalError", "no")
    c.tell(ev.BindCancelled(bind.uid, bind.attempt) if is_taken_back else answer).run().wait(5.0)
    assert [one.uid for one in c.all(ef.BumpPod)] == [bind.uid]
    assert len(c.all(ef.BindPod)) == 1
    c.tell(ev.PodBumped(bind.uid, c.store(c.pod("bad")))).run().wait(5.0)
    assert len(c.all(ef.BindPod)) == 2
    assert c.pod("bad").spec.node_name


def test_an_answer_about_another_pod_costs_nothing_while_a_refused_one_has_none() -> None:
    guarded = Guarded(nodes=2)
    c = guarded.cluster
    c.answer = lambda bind: "hold"
    c.submit(make_pod("bad", gpus=8), make_pod("good", gpus=8)).run()
    refused(c, ev.PodUpdated(c.store(c.pod("bad"))))
    n = guarded.count("defects")
    good = next(bind for bind in c.held_binds if bind.name == "good")
    c.tell(ev.BindUnknown(good.uid, good.attempt, "timed out")).read("good").wait(1.0)
    assert (guarded.count("defects"), [one.name for one in c.all(ef.GetPod)]) == (n, ["good"])


def test_nothing_is_asked_about_a_pod_that_is_shown_on_its_node_when_it_is_refused() -> None:
    guarded = Guarded(nodes=1)
    c = guarded.cluster
    c.answer = lambda bind: "hold"
    c.submit(make_pod("bad", gpus=8)).run()
    [bind] = c.held_binds
    refused(c, ev.PodUpdated(c.commit(bind)))
    assert c.unanswered() == {}
    c.tell(ev.BindSucceeded(bind.uid, bind.attempt)).wait(100.0)
    assert not c.all(ef.GetPod)
    assert guarded.n_free() == 0
    c.delete("bad")
    assert guarded.n_free() == 8


def test_a_refused_pod_is_none_of_those_whose_devices_differ() -> None:
    c = Guarded(nodes=1).cluster
    c.submit(make_pod("bad", gpus=2)).run()
    now = c.pod("bad")
    edited = {**(now.metadata.annotations or {}), "gangsched.io/allocated-devices": "{}"}
    c.update(now, metadata=replace(now.metadata, annotations=edited))
    assert sum(c.scheduler.audit.statistics().values()) == 1
    refused(c, ev.PodDeleted(c.pods.pop(now.metadata.uid)))
    assert sum(c.scheduler.audit.statistics().values()) == 0


def test_the_rest_of_a_gang_waits_for_another_in_place_of_a_refused_member() -> None:
    c = Guarded().cluster
    pods = [make_pod(f"g-{k}", group="g", min_members=2, gpus=8) for k in range(2)]
    c.submit(make_pod("holds", gpus=8)).run().submit(pods).run()
    assert c.state("g") == "unschedulable"
    refused(c, ev.PodUpdated(c.store(c.pod("g-1"))))
    assert c.state("g") == "gathering"


def without_its_devices(c: Cluster, name: str) -> Pod:
    """The version by which somebody takes its device annotations away."""
    meta = c.pod(name).metadata
    own = {key: text for key, text in (meta.annotations or {}).items() if not is_device_key(key)}
    return c.store(c.pod(name), metadata=replace(meta, annotations=own))


@pytest.mark.parametrize("edited", ["before", "by this version"])
def test_a_refused_pod_keeps_the_devices_that_it_was_given(edited: str) -> None:
    """Its annotations do not name them any more, nor once it is read again."""
    c = Guarded(nodes=1).cluster.submit(make_pod("bad", gpus=4)).run()
    had, now = c.ids("bad"), without_its_devices(c, "bad")
    if edited == "before":
        c.tell(ev.PodUpdated(now))
        now = c.store(now)
    refused(c, ev.PodUpdated(now))
    assert c.submit(make_pod("next", gpus=2)).run().ids("next").isdisjoint(had)
    refused(c, ev.PodUpdated(c.store(c.pod("bad"))))
    c.update(c.pod("bad")).submit(make_pod("last", gpus=2), make_pod("more")).run()
    assert c.state("bad") == "bound"
    assert c.ids("last").isdisjoint(had)
    assert len(c.ids("last")) == 2
    assert not c.pod("more").spec.node_name
    assert c.delete("bad").wait(20.0).ids("more") <= had


def test_the_overhead_of_a_refused_pod_counts() -> None:
    c = Guarded(nodes=1).cluster
    pod = make_pod("bad", cpu="1")
    c.submit(replace(pod, spec=replace(pod.spec, overhead={"cpu": "60"}))).run()
    refused(c, ev.PodUpdated(c.store(c.pod("bad"))))
    assert not c.submit(make_pod("next", cpu="10")).run().pod("next").spec.node_name
