"""Garbage with cycles is looked for between turns and when idle, and is bounded in one that never is."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from gangsched.process.garbage_collection import GarbageCollection, as_in_a_scheduler, collect_rarely

YOUNG, FULL = 1, 2


class Process:
    """What the policy is told about a process, and what it has collected."""

    def __init__(self) -> None:
        self.n_new = 0
        self.n_found = 0
        self.memory = 1000
        self.collected: list[int] = []
        self.garbage = GarbageCollection(
            n_new=lambda: self.n_new, collect=self._collect, peak_memory=lambda: self.memory
        )

    def _collect(self, generation: int) -> int:
        self.collected.append(generation)
        self.n_new = 0
        return self.n_found

    def turns(self, n: int) -> None:
        """So many that each make 50,000 objects which stay."""
        for _ in range(n):
            self.n_new += 50_000
            self.garbage.between_turns()


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


@pytest.fixture
def process() -> Process:
    found = Process()
    found.garbage.begin()
    found.garbage.settle()
    return found


def test_until_the_first_lists_are_in_nothing_is_collected_between_turns() -> None:
    process = Process()
    process.garbage.begin()
    process.turns(100)
    assert process.collected == []
    process.garbage.settle()
    process.turns(1)
    assert process.collected == [YOUNG]


def test_between_turns_only_what_has_come_is_collected_and_only_if_it_is_much(process: Process) -> None:
    process.n_new = 49_999
    process.garbage.between_turns()
    assert process.collected == []
    process.n_new += 1
    assert process.garbage.is_young_due
    process.garbage.between_turns()
    process.garbage.between_turns()
    assert process.collected == [YOUNG]


def test_all_is_collected_when_much_has_come_and_nothing_was_tried_for_a_second(process: Process) -> None:
    process.turns(4)
    assert not process.garbage.look(idle_s=3600.0)
    process.turns(1)
    assert not process.garbage.look(idle_s=0.9)
    assert FULL not in process.collected
    assert process.garbage.look(idle_s=1.0)
    assert process.collected[-1] == FULL
    assert not process.garbage.look(idle_s=3600.0)


def test_a_process_that_is_never_idle_collects_everything_only_when_it_has_grown(process: Process) -> None:
    process.turns(1000)
    process.memory = 1249
    assert not process.garbage.look(idle_s=0.0)
    process.memory = 1250
    assert process.garbage.look(idle_s=0.0)
    process.turns(25)
    process.memory = 1500
    assert not process.garbage.look(idle_s=0.0)
    process.memory = 1563
    assert process.garbage.look(idle_s=0.0)
    assert process.collected.count(FULL) == 2


def test_growth_that_was_garbage_is_not_taken_for_the_process_s_own(process: Process) -> None:
    process.memory, process.n_found = 1250, 100_000
    for _ in range(3):
        process.turns(25)
        assert process.garbage.look(idle_s=0.0)
    process.n_found = 0
    process.turns(25)
    assert process.garbage.look(idle_s=0.0)
    process.turns(25)
    assert not process.garbage.look(idle_s=0.0), "it is that large"


class _Cycle:
    """Is held for a while, and then by itself alone."""

    def __init__(self) -> None:
        self.itself = self
        self.more: list[list[int]] = [[] for _ in range(500)]


def test_garbage_with_cycles_is_bounded_in_a_process_that_is_never_idle() -> None:
    alive: weakref.WeakSet[_Cycle] = weakref.WeakSet()
    most = 0
    with as_in_a_scheduler():
        garbage = GarbageCollection(peak_memory=lambda: 1000 + most)
        garbage.begin()
        garbage.settle()
        held: list[_Cycle] = []
        for _ in range(60):
            # They live until after their young collection, which does not visit them again.
            for _ in range(110):
                held.append(one := _Cycle())
                alive.add(one)
            garbage.between_turns()
            n_left = gc.get_count()[0]
            assert n_left < 1000, "it has collected"
            del one
            held.clear()
            most = max(most, len(alive))
            garbage.look(idle_s=0.0)
    assert most < 10 * 110


def test_python_by_itself_never_visits_what_is_old() -> None:
    collect_rarely()
    assert gc.get_threshold()[0] == 200_000
    with as_in_a_scheduler():
        young, middle, old = gc.get_threshold()
        assert young == 200_000
        assert min(middle, old) > 10**9
    assert gc.get_freeze_count() == 0
