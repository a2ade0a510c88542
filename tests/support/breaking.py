"""Cores that are broken on purpose, and what storms find in them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gangsched.core.queueing.claims import Claims
from gangsched.core.types.group import Group
from gangsched.lab.sim.runs.storms import STORMS, Storm, case

SHOWN_BY = {
    "bound before stated": 7,
    "attempts leave claims": 13,
    "w1_a_lost_answer_counts_as_a_no": 6,
    "w6_known_by_name": 5,
    "w7_a_410_within_a_stream_is_passed_over": 14,
    "w8_deletions_missed_meanwhile": 20,
    "w13_any_404_means_gone": 4,
    "what is free counts alone": 14,
    "one pod at most is given back": 24,
    "M1 assumed pods expire": 26,
    "M3 bind without a UID precondition": 18,
    "depth is not bounded": 17,
    "an edited annotation is not read again": 93,
    "a wait restarts with each member": 51,
    "victims are waited for without end": 12,
    "left unwritten": 64,
    "what the deposed wrote stays": 1083,
    "bound counts as started": 6,
    "a record is not read": 6,
    "every gang that is short is in part": 13,
    "a group that waits for victims is not woken": 43,
    "nothing cures": 15,
    "bound without a look": 11,
    "what is promised is free": 1,
    "bound before reserved": 1,
    "no finalizer": 1,
    "forgotten before shown": 14,
    "all entries are removed": 6,
    "nothing is swept": 19,
    "constraints are not read": 1,
}
"""By mistake: the seed that showed it last; any decision that changes may make it another."""


def searched(mistake: str, n_seeds: int) -> list[int]:
    """The seeds 0 to n-1 in the order in which they are tried: the likely one first, which saves a minute."""
    likely = SHOWN_BY.get(mistake, 0)
    return [likely, *(seed for seed in range(n_seeds) if seed != likely)]


@contextmanager
def broken_by(mistake: Callable[[pytest.MonkeyPatch], None]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        mistake(patch)
        yield


def assert_caught(
    exhibit: str, mistake: Callable[[pytest.MonkeyPatch], None], storm: str, begins: str, *, n_seeds: int
) -> None:
    """Asserts that a violation that begins so catches the mistake within so many seeds, and that nothing is
    wrong without it."""
    for seed in searched(exhibit, n_seeds):
        with broken_by(mistake):
            found = case(STORMS[storm], seed).failure()
        if found is not None and found.problem.split(" s: ", 1)[1].startswith(begins):
            assert case(STORMS[storm], seed).failure() is None, "broken without the mistake too"
            return
    pytest.fail(f"{exhibit}: not caught in {n_seeds} seeds")


def keep_behind_claims(patch: pytest.MonkeyPatch, is_kept: Callable[[Group], bool]) -> None:
    """No unit with such a group starts before a claim in its room: it is taken to run for ever."""
    holding_up = Claims.holding_up

    def stricter(self: Claims, unit: Any, from_s: float, until_s: float, *more: Any, **named: Any) -> Any:
        if any(is_kept(group) for group in unit):
            until_s = math.inf
        return holding_up(self, unit, from_s, until_s, *more, **named)

    patch.setattr(Claims, "holding_up", stricter)


def found(storm: Storm, seeds: Iterable[int]) -> Iterator[str]:
    """Yields the violations in these seeds, each of which is run when it is asked for."""
    broken = (case(storm, seed).failure() for seed in seeds)
    return (one.problem for one in broken if one is not None)
