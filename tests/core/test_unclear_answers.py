"""Answers that may be wrong or are none: what is reserved stays, what was given up wrongly comes back, and
people are told.
"""

from __future__ import annotations

import pytest

from gangsched.core.types.group import MemberState
from gangsched.lab.sim.objects import make_pod
from gangsched.model import effects as ef
from gangsched.model import events as ev
from tests.support.scenario import Cluster, cluster, gang


def reported_gone(answer: str) -> Cluster:
    """A gang of two whose second pod, which lives, is said to be gone."""
    c = cluster(nodes=2)
    c.answer = lambda bind: "ok" if bind.name == "a-0" else answer
    c.submit(gang("a", pods=2, gpus=8)).run()
    if answer == "unknown":
        c.tell(ev.PodRead(c.pod("a-1").metadata.uid, None))
    c.answer = lambda bind: "ok"
    assert c.group("a").counts[MemberState.LEAVING] == 1
    return c


@pytest.mark.parametrize("answer", ["404", "unknown"])
def test_a_later_version_brings_a_pod_back_that_was_reported_gone(answer: str) -> None:
    c = reported_gone(answer)
    c.update(c.pod("a-1")).run().wait(2.0)
    assert c.placed("a", on=2)
    assert not c.all(ef.EvictPod)


@pytest.mark.parametrize("answer", ["404", "unknown"])
def test_a_pod_that_was_reported_gone_and_never_changes_is_looked_for(answer: str) -> None:
    c = reported_gone(answer).clear()
    c.wait(11.0)
    assert [e.name for e in c.all(ef.GetPod)] == ["a-1"]
    c.read("a-1").run().wait(1.0)
    assert c.placed("a", on=2)
    assert not c.all(ef.EvictPod)


def test_a_pod_that_is_gone_is_looked_for_now_and_then_until_the_watch_confirms_it() -> None:
    c = cluster(nodes=1)
    c.answer = lambda bind: "404"
    c.submit(gang("a", pods=1, gpus=8)).run()
    c.wait(11.0)
    for _ in range(3):
        assert len(c.all(ef.GetPod)) == 1
        c.clear().tell(ev.PodRead(c.pod("a-0").metadata.uid, None)).wait(55.0)
        assert not c.all(ef.GetPod)
        c.wait(10.0)
    c.clear().delete("a-0").wait(300.0)
    assert not c.effects
    assert not c.groups()


def test_a_pod_that_is_found_bound_by_another_is_counted_where_it_is() -> None:
    c = cluster(nodes=1)
    c.answer = lambda bind: "404"
    c.submit(gang("a", pods=1, gpus=8)).run()
    c.wait(11.0)
    bound = c.commit(c.all(ef.BindPod)[0])
    c.tell(ev.PodRead(bound.metadata.uid, bound))
    assert c.state("a") == "bound"


def test_a_gang_bound_in_part_that_waits_for_its_members_reports_that() -> None:
    c = reported_gone("404").clear()
    c.wait(6.0)
    assert "waits for members: 1 of 2 exist" in c.group("a").message


def test_a_bind_that_a_webhook_denies_gives_up_soon_and_gives_the_reason() -> None:
    c = cluster(nodes=1)
    c.answer = lambda bind: "denied"
    c.submit(gang("a", pods=1, gpus=8)).run()
    for _ in range(3):
        assert c.scheduler.statistics()["reservations"] == 1, "only a read can end it"
        c.read("a-0").wait(0.25)
    assert len(c.all(ef.BindPod)) == 3
    assert c.scheduler.statistics()["reservations"] == 0
    assert "did not take effect after 3 tries: 400: denied by a webhook" in c.said("a-0")


def test_each_attempt_has_all_of_its_tries() -> None:
    c = cluster(nodes=1)
    c.answer = lambda bind: "denied"
    c.submit(gang("a", pods=1, gpus=8)).run()
    for attempt in (1, 2):
        for n_tries in (1, 2, 3):
            assert [bind.attempt for bind in c.all(ef.BindPod)] == [attempt] * n_tries
            c.read("a-0").wait(0.25)
        assert c.scheduler.statistics()["reservations"] == 0
        c.clear().wait(3.0)


def test_a_bind_without_effect_is_repeated_ever_more_rarely() -> None:
    c = cluster(nodes=1)
    c.answer = lambda bind: "unknown"
    c.submit(gang("a", pods=1, gpus=8)).run()
    for pause_s in (0.1, 0.2, 0.4, 0.8):
        c.clear().read("a-0").wait(0.9 * pause_s)
        assert not c.all(ef.BindPod)
        c.wait(0.2 * pause_s)
        assert len(c.all(ef.BindPod)) == 1


def test_the_answer_to_an_earlier_question_says_nothing_of_a_bind_that_was_sent_since() -> None:
    c = reported_gone("404")
    c.wait(11.0)
    asked = c.all(ef.GetPod)
    assert [read.name for read in asked] == ["a-1"]
    c.answer = lambda bind: "hold"
    c.clear().update(c.pod("a-1")).run().wait(2.0)
    c.read("a-1").wait(2.0)
    assert len(c.all(ef.BindPod)) == 1, "its own answer is still to come"


def test_binds_that_stay_unclear_are_reported_on_the_gang() -> None:
    c = cluster(nodes=1)
    c.answer = lambda bind: "unknown"
    c.submit(gang("a", pods=1, gpus=8)).run()
    for _ in range(3):
        assert "AnswerUnclear" not in c.reasons()
        c.read("a-0").wait(1.0)
    assert c.reasons().count("AnswerUnclear") == 1
    assert c.scheduler.statistics()["reservations"] == 1
    c.answer = lambda bind: "ok"
    c.read("a-0").wait(2.0)
    assert c.placed("a")
    assert c.group("a").message == ""


def test_a_read_that_stays_unanswered_is_reported_once_on_the_gang() -> None:
    c = cluster(nodes=1)
    c.answer = lambda bind: "unknown"
    c.submit(gang("a", pods=1, gpus=8)).run()
    uid = c.pod("a-0").metadata.uid
    for _ in range(3):
        c.tell(ev.PodUnread(uid, "404 page not found")).wait(30.0)
    [told] = [e for e in c.all(ef.RecordEvent) if e.reason == "AnswerUnclear"]
    assert "404 page not found" in told.message
    assert c.scheduler.statistics()["reservations"] == 1
    c.read("a-0").tell(ev.PodUnread(uid, "late")).wait(0.0)
    assert len([e for e in c.all(ef.RecordEvent) if e.reason == "AnswerUnclear"]) == 1


def test_a_watch_that_lags_behind_a_read_shows_a_pod_bound_that_is_gone() -> None:
    """Its bind took effect and it was deleted before the watch told of either; its devices are given on."""
    c = cluster(nodes=1)
    c.answer = lambda bind: "unknown" if bind.name == "a-0" else "ok"
    c.submit(gang("a", pods=1, gpus=8)).run()
    [bind] = c.held_binds
    bound = c.commit(bind)
    del c.pods[bind.uid]
    c.tell(ev.PodRead(bind.uid, None))
    c.submit(make_pod("b", gpus=8)).run()
    assert c.pod("b").spec.node_name
    c.tell(ev.PodUpdated(bound))
    c.tell(ev.PodDeleted(bound))
    assert c.ids("b") == {f"GPU-n0-{k}" for k in range(8)}
    assert c.scheduler.statistics()["reservations"] == 0
