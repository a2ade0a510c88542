"""The turn: the order of its phases, what each may leave for others, and that nothing is left at its end."""

from __future__ import annotations

import pytest

from gangsched.core.kept.limits import KeptInLimits
from gangsched.core.turns.dirty import AFTER_A_TURN, Mark
from gangsched.core.turns.overdue import DEADLINES
from gangsched.core.turns.turn import FIRST, LAST, OF_GROUPS, PHASES, Phase
from gangsched.errors import InvariantError
from gangsched.lab.sim.objects import make_node, make_pod
from tests.support.scenario import Cluster, cluster, gang


def test_the_phases_come_in_this_order() -> None:
    assert [phase.name for phase in FIRST] == [
        *("late moves", "PreEnqueue", "device reports", "failed devices", "reservations"),
        *("prepared units", "held members", "labels"),
    ]
    assert [phase.name for phase in OF_GROUPS] == [
        "numbers",
        "state",
        "claims of members",
        "walltime",
        "device policy",
    ]
    assert [phase.name for phase in LAST] == [
        *("walltimes", "claims", "limits", "borrowing", "wake", "problems"),
    ]


def test_what_is_due_is_done_in_this_order() -> None:
    assert [one.name for one in DEADLINES] == [
        *(
            "pods",
            "resource claims",
            "left claims",
            "binding conditions",
            "claimed devices",
            "half bound",
            "states",
            "claims",
            "foreign nominations",
            "holes",
        ),
        *("device repairs",),
        *("failed devices", "refusals", "lost members", "prepared units", "held members", "walltimes"),
    ]


def taken_too_early(phases: tuple[Phase, ...]) -> list[str]:
    """Phases that may mark what no later one takes, nor the next round of groups, nor somebody afterwards."""
    found = []
    for at, phase in enumerate(phases):
        later = {one.clears for one in phases[at + 1 :]}
        if phase in (*FIRST, *OF_GROUPS):
            later.add(Mark.GROUPS)
        found += [f"{phase.name}: {mark.value}" for mark in phase.marks if mark not in later | AFTER_A_TURN]
    return found


def test_what_a_phase_may_mark_is_taken_by_a_later_one_or_after_the_turn() -> None:
    assert not taken_too_early(PHASES)
    assert taken_too_early(tuple(reversed(PHASES)))


def without(name: str, mark: Mark) -> list[Phase]:
    """The phases, of which one does not declare this mark."""
    return [
        one._replace(marks=tuple(other for other in one.marks if other is not mark))
        if one.name == name
        else one
        for one in PHASES
    ]


def a_gang_comes(c: Cluster) -> None:
    c.node(make_node("n0")).submit(gang("g", pods=2, gpus=2)).run()


def test_a_phase_that_marks_what_it_does_not_declare_is_found() -> None:
    c = cluster(nodes=0)
    c.scheduler.check_marks(without("state", Mark.LINE))
    with pytest.raises(InvariantError, match="state has marked line, which it does not declare"):
        a_gang_comes(c)
    a_gang_comes(cluster(nodes=0))


def test_each_scheduler_of_the_simulation_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def announces(limits: KeptInLimits) -> None:
        for group in limits._shared.groups.values():
            limits._shared.mark_group(group)

    monkeypatch.setattr(KeptInLimits, "announce", announces)
    with pytest.raises(InvariantError, match="limits has marked groups, which it does not declare"):
        a_gang_comes(cluster(nodes=0))


def test_a_deadline_that_marks_what_it_does_not_declare_is_found() -> None:
    c = cluster(nodes=1)
    c.scheduler.check_marks(deadlines=[one._replace(marks=()) for one in DEADLINES])
    c.submit(make_pod("large", gpus=64)).run()
    with pytest.raises(InvariantError, match="states has marked"):
        c.wait(c.settings.unschedulable_flush_s + 1.0)


def test_a_group_that_is_marked_too_late_in_a_turn_is_found() -> None:
    c = cluster(nodes=1)
    c.submit(make_pod("a")).run()
    group = c.group("a")
    late = [
        one._replace(marks=tuple(Mark), do=lambda on: lambda: on.shared.mark_group(group))
        if one.name == "problems"
        else one
        for one in PHASES
    ]
    c.scheduler.check_marks(late)
    with pytest.raises(InvariantError, match="1 groups are left at the end of a turn"):
        c.submit(make_pod("b")).run()
