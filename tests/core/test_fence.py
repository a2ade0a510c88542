"""Binds behind a fence: the version they carry, a pod that changes under them, and giving one up."""

from __future__ import annotations

from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Pod
from tests.support.scenario import Cluster

FENCED = Settings(fence=True)


def sent(settings: Settings = FENCED) -> tuple[Cluster, ef.BindPod]:
    """A pod whose bind is on its way to the one node."""
    c = Cluster(settings)
    c.answer = lambda bind: "hold"
    c.node(make_node("n0"))
    c.submit(make_pod("a", gpus=8)).run()
    (bind,) = c.all(ef.BindPod)
    return c, bind


def version_of(pod: Pod) -> str:
    return pod.metadata.resource_version


def holds(c: Cluster) -> bool:
    return c.scheduler.is_on_its_way(c.pod("a").metadata.uid)


def given_up() -> tuple[Cluster, ef.BindPod]:
    """Its outcome is unknown, and its node does not take it any more."""
    c, bind = sent()
    c.node(replace(c.nodes["n0"], spec=replace(c.nodes["n0"].spec, unschedulable=True)))
    c.tell(ev.BindUnknown(bind.uid, bind.attempt, "timed out")).read("a").wait(1.0)
    return c, bind


def test_a_bind_carries_the_version_that_was_known_and_without_a_fence_none() -> None:
    c, bind = sent()
    assert bind.resource_version == version_of(c.pod("a"))
    _, bare = sent(Settings())
    assert not bare.resource_version


def test_a_pod_that_changed_is_bound_at_once_with_what_was_read() -> None:
    c, first = sent()
    now = c.store(c.pod("a"), metadata=replace(c.pod("a").metadata, labels={"x": "y"}))
    c.tell(ev.BindUnknown(first.uid, first.attempt, "409 Conflict")).read("a").wait(0.01)
    _, second = c.all(ef.BindPod)
    assert second == replace(first, resource_version=version_of(now))


def test_a_bind_of_unknown_outcome_is_given_up_only_when_it_cannot_land() -> None:
    c, bind = given_up()
    (bump,) = c.all(ef.BumpPod)
    assert (bump.uid, bump.namespace, bump.name) == (bind.uid, bind.namespace, bind.name)
    assert holds(c), "its room is not free yet"
    c.tell(ev.PodBumped(bind.uid, c.store(c.pod("a"))))
    assert not holds(c)
    assert c.state("a") == "backoff"


def test_a_second_answer_to_a_bump_frees_nothing_that_was_sent_since() -> None:
    c, bind = given_up()
    bumped = ev.PodBumped(bind.uid, c.store(c.pod("a")))
    c.tell(bumped).tell(bumped)
    assert c.state("a") == "backoff"
    c.node(make_node("n0")).wait(5.0)
    again = c.all(ef.BindPod)[-1]
    assert again.resource_version == version_of(c.pod("a")), "the version that the bump has made"
    c.tell(bumped)
    assert holds(c)
    c.tell(ev.BindSucceeded(again.uid, again.attempt))
    assert c.state("a") == "bound"


def test_a_bind_that_was_faster_than_its_bump_has_bound() -> None:
    c, bind = given_up()
    c.tell(ev.PodBumped(bind.uid, c.commit(bind)))
    assert c.state("a") == "bound"


def test_a_pod_that_is_gone_by_then_holds_nothing() -> None:
    c, bind = given_up()
    c.tell(ev.PodBumped(bind.uid, None))
    assert not holds(c)
    c.clear().node(make_node("n0")).run().wait(9.0)
    assert not c.all(ef.BindPod), "nobody is there to be bound"


def test_a_watch_that_lags_behind_a_bump_shows_a_pod_bound_that_is_gone() -> None:
    """Its first bind took effect and it was deleted; the answer to the bump says so before the watch does."""
    c, bind = sent()
    c.tell(ev.BindUnknown(bind.uid, bind.attempt, "timed out")).read("a").wait(1.0)
    bound = c.commit(bind)
    del c.pods[bind.uid]
    c.tell(ev.BindFailed(bind.uid, bind.attempt, 404, "NotFound", 'pods "a" not found'))
    c.tell(ev.PodBumped(bind.uid, None))
    c.answer = lambda bind: "ok"
    c.submit(make_pod("b", gpus=8)).run()
    assert c.pod("b").spec.node_name
    c.tell(ev.PodUpdated(bound))
    c.tell(ev.PodDeleted(bound))
    assert c.ids("b") == {f"GPU-n0-{k}" for k in range(8)}


def test_a_refusal_says_nothing_of_a_bind_that_was_sent_before() -> None:
    c, bind = sent()
    c.tell(ev.BindUnknown(bind.uid, bind.attempt, "timed out")).read("a").wait(1.0)
    assert len(c.all(ef.BindPod)) == 2
    c.tell(ev.BindFailed(bind.uid, bind.attempt, 403, "Forbidden", "no"))
    assert c.all(ef.BumpPod)
    assert holds(c)


def test_a_refusal_of_the_only_bind_frees_its_room_at_once() -> None:
    c, bind = sent()
    c.tell(ev.BindFailed(bind.uid, bind.attempt, 403, "Forbidden", "no"))
    assert not c.all(ef.BumpPod)
    assert not holds(c)


def test_without_a_fence_nothing_is_bumped() -> None:
    c, bind = sent(Settings())
    c.node(replace(c.nodes["n0"], spec=replace(c.nodes["n0"].spec, unschedulable=True)))
    c.tell(ev.BindUnknown(bind.uid, bind.attempt, "timed out")).read("a").wait(1.0)
    assert not c.all(ef.BumpPod)
    assert not holds(c)
