"""Who waits in Permit is listed, and let go or sent back by those who may say so."""

from __future__ import annotations

import json

import pytest

from gangsched.certificates import Pair
from gangsched.model.events import Event, GroupRejected
from gangsched.model.text.printable import clean
from gangsched.plugin import Status
from gangsched.web.pages.waiting import Waiting
from tests.core.plugins import Permitter, with_plugins
from tests.core.test_permit import together
from tests.support.scenario import Cluster, gang
from tests.web.test_access import Server as ApiServer
from tests.web.test_server import serving


def cluster_with_a_wait() -> Cluster:
    approval = Permitter("Approval", lambda group: Status.wait("nobody has approved it", timeout_s=30.0))
    return with_plugins(approval).submit(gang("train", pods=2)).run()


def pages(c: Cluster, events: list[Event], *, leads: bool = True) -> Waiting:
    return Waiting(c.scheduler, put_nowait=events.append, may_act=lambda: leads, clock_s=lambda: c.now_s)


def test_the_list_has_each_wait_its_reason_and_its_length() -> None:
    c = cluster_with_a_wait().wait(10.0)
    (one,) = json.loads(pages(c, []).listed())["waiting"]
    assert one == {
        "group": "d/train",
        "scheduler": "gangsched",
        "reserved": 2,
        "waitsFor": {"Approval": "nobody has approved it"},
        "secondsWaited": 10.0,
        "secondsLeft": 20.0,
    }


def test_a_decision_becomes_an_event_that_the_gang_follows() -> None:
    c, events = cluster_with_a_wait(), list[Event]()
    assert pages(c, events).decide("d/train", word="allow", by="alice", reason="")[0] == 200
    c.tell(*events).run()
    assert c.placed("train")


def test_a_rejection_carries_its_reason_to_the_pods() -> None:
    c, events = cluster_with_a_wait(), list[Event]()
    said = pages(c, events).decide("d/train", word="reject", by="alice", reason="over\x1b budget")
    assert said == (200, "d/train gives back what it holds")
    c.tell(*events)
    assert "rejected by an operator: over\\x1b budget" in c.said("train-0")
    assert "rejected by alice" in clean(c.group("train").message)


def test_a_group_that_does_not_wait_is_answered_as_such() -> None:
    assert pages(cluster_with_a_wait(), []).decide("d/other", word="allow", by="a", reason="")[0] == 404


def test_a_replica_that_does_not_lead_reports_that() -> None:
    waiting = pages(cluster_with_a_wait(), [], leads=False)
    assert waiting.decide("d/train", word="allow", by="alice", reason="")[0] == 503


def test_what_the_gang_itself_asks_for_is_not_overruled() -> None:
    c = with_plugins().submit(together("a", "b")).run()
    code, said = pages(c, []).decide("d/a", word="allow", by="alice", reason="")
    assert code == 409
    assert "group d/b does not exist" in said


async def test_over_https_with_a_right_of_its_own(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    path = "/permit/d/train/allow"
    api, events = ApiServer(), list[Event]()
    monkeypatch.setattr("tests.web.test_server.ApiServer", lambda: api)
    api.may |= {("prometheus", "/permit"), ("prometheus", path)}
    async with serving(pair, waiting=pages(cluster_with_a_wait(), events)) as client:
        code, listed = await client.ask("/permit", token="good")
        assert code == 200
        assert json.loads(listed)["waiting"][0]["group"] == "d/train"
        assert (await client.ask(path, method="POST"))[0] == 403
        assert (await client.ask(path, method="POST", token="good"))[0] == 403
        assert (await client.ask(path, token="good"))[0] == 405
        assert not events
        api.may_post.add(("prometheus", "/permit/d/train/reject"))
        code, said = await client.ask("/permit/d/train/reject", method="POST", token="good")
        assert (code, said) == (200, "d/train gives back what it holds\n")
        assert (await client.ask("/permit/d/train/shred", method="POST", token="good"))[0] == 404
    assert len(events) == 1


async def test_a_reason_that_is_no_text_is_the_callers_mistake(pair: Pair) -> None:
    path = "/permit/d/train/reject"
    api, events = ApiServer(), list[Event]()
    api.may_post.add(("prometheus", path))
    async with serving(pair, api=api, waiting=pages(cluster_with_a_wait(), events)) as client:
        bodies = ((b"\xff\xfe", ""), (b"\x1f\x8b", "text/plain"), (b"\xff", "text/plain; charset=utf-16"))
        for body, kind in bodies:
            code, said = await client.ask(path, method="POST", token="good", body=body, kind=kind)
            assert (code, said) == (400, "the reason is not UTF-8 text\n")
        assert not events
        for kind in ("text/plain; charset=nonsense", "text/plain; charset=undefined"):
            code, _ = await client.ask(path, method="POST", token="good", body=b"maintenance", kind=kind)
            assert code == 200
    assert [one.reason for one in events if isinstance(one, GroupRejected)] == ["maintenance"] * 2
