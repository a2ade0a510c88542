"""The bug museum's room of waiting groups: states in which a group is no longer woken by what would let it
start.

Each mistake must be caught within a bound of seeds, and the unbroken scheduler must come through the seed
that caught it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gangsched.core.state.line.early_turns import EarlyTurns
from gangsched.core.state.line.queue import SchedulingQueue
from gangsched.core.state.line.waking import _Cures
from tests.support.breaking import assert_caught

MAX_SEEDS = 60
Patch = pytest.MonkeyPatch


def a_group_that_waits_for_victims_is_not_woken(patch: Patch) -> None:
    patch.setattr(_Cures, "is_news", lambda self, group: False)


def a_backoff_keeps_the_first_from_room(patch: Patch) -> None:
    patch.setattr(EarlyTurns, "_heads", lambda self, waiting, n, lanes: [])


def nothing_cures_what_was_refused(patch: Patch) -> None:
    wake = SchedulingQueue.wake_cured

    def hear(self: SchedulingQueue, changes: object, now_s: float) -> None:
        unschedulable, self._unschedulable = self._unschedulable, {}
        try:
            wake(self, changes, now_s)  # type: ignore[arg-type]
        finally:
            self._unschedulable = {**unschedulable, **self._unschedulable}

    patch.setattr(SchedulingQueue, "wake_cured", hear)


# The mistake, the storm, and the beginning of what the checkers say of it.
EXHIBITS: dict[str, tuple[Callable[[Patch], None], str, str]] = {
    "a group that waits for victims is not woken": (
        a_group_that_waits_for_victims_is_not_woken,
        "preempting",
        "overtaking: ",
    ),
    "a backoff keeps the first": (a_backoff_keeps_the_first_from_room, "preempting", "overtaking: "),
    "nothing cures": (nothing_cures_what_was_refused, "storm", "free-room-used: "),
}


@pytest.mark.parametrize("exhibit", EXHIBITS)
def test_the_mistake_is_caught(exhibit: str) -> None:
    mistake, storm, begins = EXHIBITS[exhibit]
    assert_caught(exhibit, mistake, storm, begins, n_seeds=MAX_SEEDS)
