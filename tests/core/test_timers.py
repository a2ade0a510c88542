"""The heap of deadlines names the earliest that holds, and gives every kind its own, whatever they do."""

from __future__ import annotations

from random import Random

import pytest

from gangsched.core.state.timers import DeadlineKind, Deadlines, Retries, Timers
from gangsched.core.turns.overdue import DEADLINES
from gangsched.core.types.group import NEVER_S

KINDS = (DeadlineKind.REFUSALS, DeadlineKind.WALLTIME, DeadlineKind.LOST_MEMBERS)


@pytest.mark.parametrize("seed", range(20))
def test_the_next_deadline_is_the_least_of_all_kinds_after_any_changes(seed: int) -> None:
    rng, timers = Random(seed), Timers()
    kinds: list[Deadlines[int]] = [Deadlines(timers, kind) for kind in KINDS]
    expected: list[dict[int, float]] = [{} for _ in kinds]
    for now_s in range(300):
        at, key = rng.randrange(3), rng.randrange(6)
        match rng.randrange(4):
            case 0:
                assert kinds[at].drop(key) == (key in expected[at])
                expected[at].pop(key, None)
            case 1:
                kinds[at].set_if_absent(key, now_s + 5.0)
                expected[at].setdefault(key, now_s + 5.0)
            case _:
                when_s = rng.choice((NEVER_S, now_s + 1.0, now_s + rng.random() * 20))
                kinds[at].set(key, when_s)
                expected[at][key] = when_s
        assert timers.next_s() == min((w for own in expected for w in own.values()), default=NEVER_S)
        for own, model in zip(kinds, expected, strict=True):
            assert own.due(now_s) == [key for key, when_s in model.items() if when_s <= now_s]
            assert list(own) == list(model)


def test_a_deadline_that_nobody_handles_stays_due() -> None:
    timers = Timers()
    settle: Deadlines[str] = Deadlines(timers, KINDS[0])
    settle.set("a", 3.0)
    assert settle.due(2.9) == []
    assert settle.due(4.0) == settle.due(5.0) == ["a"]
    assert timers.next_s() == 3.0
    settle.set("a", NEVER_S)
    assert "a" in settle
    assert timers.next_s() == NEVER_S


def test_taking_what_is_due_leaves_the_entries_of_others() -> None:
    timers = Timers()
    retries, others = Retries(timers), Deadlines[str](timers, KINDS[0])
    retries.add(2.0, "pod-b", 1)
    others.set("first", 1.0)
    retries.add(2.0, "pod-a", 1)
    retries.add(9.0, "pod-c", 1)
    assert retries.take(5.0) == [(2.0, "pod-a", 1), (2.0, "pod-b", 1)]
    assert retries.take(5.0) == []
    assert ("pod-a" in retries, "pod-c" in retries) == (False, True)
    assert timers.next_s() == 1.0
    others.drop("first")
    assert timers.next_s() == 9.0


def test_a_kind_that_is_forgotten_leaves_no_entries() -> None:
    timers = Timers()
    one, other = Deadlines[str](timers, KINDS[0]), Deadlines[str](timers, KINDS[1])
    one.set("a", 1.0)
    other.set("b", 2.0)
    timers.forget(KINDS[0])
    assert timers.next_s() == 2.0


def test_each_kind_is_done_in_one_row() -> None:
    done = [kind for row in DEADLINES for kind in row.kinds]
    assert sorted(done, key=[*DeadlineKind].index) == [*DeadlineKind]
