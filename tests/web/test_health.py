"""Probes: which checks there are, when each fails, and what the pages say of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from gangsched.process.loop import Inbox
from gangsched.web.metrics.measures import Measures
from gangsched.web.serving import checks
from gangsched.web.serving.health import Check, Health
from gangsched.web.serving.service import Pulse


@dataclass
class Watched:
    last_heard_s: float = 0.0
    watching: bool = True
    is_missing: bool = False


@dataclass
class Lease:
    has_lost: bool = False


@dataclass
class Wrong:
    """Checks whose problem can be set."""

    why: dict[str, str] = field(default_factory=dict)

    def health(self, *names: str) -> Health:
        return Health("readyz", [Check(name, lambda name=name: self.why.get(name, "")) for name in names])  # type: ignore[misc]


def test_ok_is_all_that_a_probe_needs() -> None:
    page = Wrong().health("watch").page()
    assert (page.code, page.text) == (200, "ok")


def test_verbose_names_every_check() -> None:
    page = Wrong().health("watch", "inbox").page(verbose=True)
    assert page.text == "[+]ping ok\n[+]watch ok\n[+]inbox ok\nreadyz check passed\n"


def test_a_failure_is_named_to_everybody_and_its_reason_to_who_may_ask() -> None:
    wrong = Wrong({"watch": "pods is not watched"})
    health = wrong.health("watch", "inbox")
    page = health.page()
    assert page.code == 500
    assert page.text == "[+]ping ok\n[-]watch failed: reason withheld\n[+]inbox ok\nreadyz check failed\n"
    one = health.one("watch")
    assert one is not None
    assert (one.code, one.text) == (500, "internal server error: pods is not watched\n")
    assert health.one("nonsense") is None


def test_a_check_can_be_excluded_and_an_unknown_one_is_reported() -> None:
    page = Wrong({"watch": "x"}).health("watch").page(verbose=True, exclude=["watch", "y\x1b[31m"])
    assert page.code == 200
    assert "[+]watch excluded: ok\n" in page.text
    assert 'no matches for "y\\x1b[31m"\n' in page.text


def test_failing_checks_are_logged_once_and_clients_cannot_cause_more_lines() -> None:
    wrong = Wrong({"watch": "pods is not watched for 46 s"})
    health = wrong.health("watch", "inbox")
    with capture_logs() as lines:
        health.page()
        wrong.why["watch"] = "pods is not watched for 47 s"
        for exclude in ([], ["watch"], ["inbox"], []):
            health.page(exclude=exclude)
        wrong.why.clear()
        health.page()
    assert [line["event"] for line in lines] == ["readyz fails", "readyz is well again"]
    assert lines[0]["why"] == "watch: pods is not watched for 46 s"


def problem(check: Check) -> str:
    return check.problem()


def test_a_lost_lease_fails() -> None:
    lease = Lease()
    check = checks.lease_check(lease)
    assert not problem(check)
    lease.has_lost = True
    assert "lease" in problem(check)


def test_lists_that_are_not_in_yet_are_named() -> None:
    assert problem(checks.sync_check(lambda: {"pods", "nodes"})) == "not listed yet: nodes, pods"
    assert not problem(checks.sync_check(set))


@pytest.mark.parametrize(
    ("reflector", "now_s", "says"),
    [
        (Watched(0.0, watching=True), 60.0, ""),
        (Watched(0.0, watching=False), 10.0, ""),
        (Watched(0.0, watching=False), 60.0, "pods is not watched"),
        (Watched(0.0, watching=True), 301.0, "pods has been silent"),
        (Watched(0.0, watching=False, is_missing=True), 1000.0, ""),
        (Watched(-math.inf, watching=False), 1000.0, ""),
    ],
)
def test_a_kind_without_a_working_watch_fails_after_a_while(
    reflector: Watched, now_s: float, says: str
) -> None:
    said = problem(checks.watch_check({"pods": reflector}, lambda: now_s))
    assert says in said
    assert bool(said) is bool(says)


def test_a_held_up_loop_is_remembered_for_half_a_minute() -> None:
    pulse = Pulse(Measures(), Inbox())
    check = checks.loop_check(pulse.worst_lag_s)
    pulse.beat(10.2, 10.0)
    assert not problem(check), "a slip"
    pulse.beat(20.0, 11.0)
    assert problem(check) == "the event loop was held up for 9.0 s"
    pulse.beat(49.0, 49.0)
    assert problem(check)
    pulse.beat(51.0, 51.0)
    assert not problem(check)


def test_an_inbox_that_stays_full_fails(monkeypatch: Any) -> None:
    inbox: Any = SimpleNamespace(is_full=True)
    pulse = Pulse(Measures(), inbox)
    check = checks.inbox_check(pulse.full_for_s)
    monkeypatch.setattr("gangsched.web.serving.service.time.monotonic", lambda: 115.0)
    pulse.beat(110.0, 110.0)
    assert not problem(check)
    pulse.beat(100.0, 100.0)
    monkeypatch.setattr("gangsched.web.serving.service.time.monotonic", lambda: 130.0)
    assert problem(check) == "full for 20 s"
    inbox.is_full = False
    pulse.beat(130.0, 130.0)
    assert not problem(check)


def test_credentials_that_cannot_be_renewed_are_reported() -> None:
    assert problem(checks.credentials_check(lambda: "the plugin failed")) == "the plugin failed"


def test_a_process_that_ends_is_not_ready() -> None:
    assert problem(checks.shutdown_check(lambda: True)) == "process is shutting down"
    assert not problem(checks.shutdown_check(lambda: False))
