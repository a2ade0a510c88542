"""The recorded day (tests/journal/day): 2,000 gangs are decided as they were, or it is said which is not."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import msgspec
import pytest

from gangsched.journal.records import Reconfigured, Record, Start, Turn, read_events
from gangsched.model import events as ev
from gangsched.model.dialects.dialect import GroupKey
from tests.journal.day import accept
from tests.journal.day.decisions import (
    DIRECTORY,
    Otherwise,
    compare,
    decisions,
    journals_in,
    read_kept,
    records_of,
)

PROCESSES = ("1-day", "2-day", "3-queues")


@cache
def kept() -> dict[str, list[str]]:
    return read_kept(DIRECTORY)


@cache
def records(name: str) -> list[Record]:
    return records_of(journals_in(DIRECTORY)[name])


@pytest.mark.parametrize("name", PROCESSES)
def test_the_day_is_decided_as_it_was(name: str) -> None:
    assert compare(name, records(name), kept()[name]) == len(kept()[name])


def test_everything_is_in_it() -> None:
    """A day that is made again must not come to lack something."""
    events: Counter[str] = Counter()
    groups: set[GroupKey] = set()
    n_configs = 0
    for name in PROCESSES:
        for one in records(name):
            n_configs += isinstance(one, Reconfigured)
            if isinstance(one, Turn):
                events.update(type(event).__name__ for event in read_events(one.events))
                groups |= set() if one.group is None else {one.group}
    dialects = {key.dialect for key in groups}
    print(events, dialects)
    assert len(groups) >= 2000
    assert n_configs == 1
    assert dialects >= {"gangsched", "core", "coscheduling", "volcano", "kai", "koordinator", "yunikorn"}
    assert dialects >= {"lightweight", "jobset", "leaderworkerset"}
    named = (ev.BindSucceeded, ev.BindFailed, ev.BindUnknown, ev.EvictionSucceeded, ev.ExtendersAnswered)
    more = (ev.LeadershipGained, ev.NodeDeleted, ev.NodeUpdated, ev.ObjectRefused, ev.OwnerGone, ev.PodRead)
    for kind in (*named, *more, ev.PodGroupDeleted, ev.KindMissing):
        assert events[kind.__name__], kind
    said = "\n".join(line for lines in kept().values() for line in lines)
    for what in ("is evicted", "is nominated", "is shown to extenders", "has to wait: unschedulable"):
        assert what in said, what
    assert any(b"Unhealthy" in bytes(one.events) for one in records("1-day") if isinstance(one, Turn))


# -- a change ------------------------------------------------------------------------------------------


def changed(name: str, old: str, new: str) -> list[Record]:
    """The day, with another configuration from its start: what a change of the code would do."""
    first, *others = records(name)
    assert isinstance(first, Start)
    assert old in first.config
    return [msgspec.structs.replace(first, config=first.config.replace(old, new)), *others]


def test_a_change_that_alters_a_decision_shows_which_when_and_for_whom() -> None:
    with pytest.raises(Otherwise) as caught:
        compare("1-day", changed("1-day", "type: LeastAllocated", "type: MostAllocated"), kept()["1-day"])
    said = str(caught.value)
    print(said)
    before, now = said.splitlines()[1:3]
    assert before.startswith("  kept: ")
    assert now.startswith("  now:  ")
    assert before.split()[1:3] == now.split()[1:3], "the same time and gang"
    assert before.split()[3:] != now.split()[3:]
    assert "`make day` makes the day again" in said


def test_another_order_names_both_groups() -> None:
    """An attempt that is not made when it was shows as the group that has its turn in its place."""
    several = list(records("3-queues"))
    at = next(n for n, one in enumerate(several) if isinstance(one, Turn) and one.do == "schedule")
    turn = several[at]
    assert isinstance(turn, Turn)
    several[at] = msgspec.structs.replace(turn, group=GroupKey("gangsched", "cv", "other", ""))
    with pytest.raises(Otherwise, match=f"schedule of cv/other: the next group is {turn.group}"):
        compare("3-queues", several, kept()["3-queues"])


def test_a_decision_that_is_missing_or_new_is_shown() -> None:
    some = records("1-day")[:100]
    lines = [str(one) for one in decisions(some)]
    assert compare("1-day", some, lines) == len(lines) > 5
    with pytest.raises(Otherwise, match="kept: no more decisions"):
        compare("1-day", some, lines[:-1])
    with pytest.raises(Otherwise, match="now:  no more decisions"):
        compare("1-day", some, [*lines, "02:59:59.00 d/g0 0 on n1"])


def test_a_day_recreated_is_accepted_and_reported(tmp_path: Path) -> None:
    """As `make day` does, with fewer gangs; without a change the same bytes come again."""
    one, other = tmp_path / "one", tmp_path / "other"
    for directory in (one, other):
        accept.make(directory, n_gangs=20, day_s=900.0)
    made = read_kept(one)
    for name, path in journals_in(one).items():
        assert path.read_bytes() == journals_in(other)[name].read_bytes()
        assert compare(name, records_of(path), made[name]) == len(made[name])
    assert all("all as before" in line for line in accept.compared(made, read_kept(other)))


def test_what_a_change_did_is_reported_gang_by_gang() -> None:
    before = {"p": ["00:00:01.00 d/a on n1", "00:00:02.00 d/b on n2", "00:00:03.00 d/x-1 is evicted"]}
    now = {"p": ["00:00:01.00 d/a on n3", "00:00:09.00 d/b on n2", "00:00:10.00 d/c on n4"]}
    told = "\n".join(accept.compared(before, now))
    assert "before: 00:00:01.00 d/a on n1\n  now:    00:00:01.00 d/a on n3" in told
    assert (
        "of 2 groups placed in both, 1 got other places, 0 came earlier and 1 later: +3.5 s a group" in told
    )
    assert "placed only now: d/c" in told
    assert "d/b: +7.0 s" in told
    assert "evicted: 1 pod before, 0 now" in told
