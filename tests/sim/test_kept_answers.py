"""Answers of failed searches for victims that serve other pods, compared with a fresh search in storms.

A "no" that is wrong keeps a pod from its room for a minute, and no checker of a storm would see that.
"""

from __future__ import annotations

from typing import Any

import pytest

from gangsched.core.cache.trial import Trial
from gangsched.core.framework.interface import Status
from gangsched.core.groups.attempts.failed_searches import FailedSearches
from gangsched.core.groups.attempts.making_room import MakingRoom
from gangsched.lab.sim.runs.driver import Broken
from gangsched.lab.sim.runs.storms import STORMS, case


class Compared:
    """Runs the search beside each kept answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.n_kept = 0
        self._room: MakingRoom | None = None
        self._asked: tuple[Any, ...] = ()
        known, key_of = FailedSearches.known, FailedSearches.key_of
        make = MakingRoom.make

        def made(room: MakingRoom, unit: Any, error: Any, **more: Any) -> Any:
            self._room, self._asked = room, (unit, error)
            return make(room, unit, error, **more)

        def keyed(one: FailedSearches, demands: Any) -> Any:
            self._demands = demands
            return key_of(one, demands)

        def compared(one: FailedSearches, key: Any, dry_run: Any) -> Status | None:
            kept = known(one, key, dry_run)
            if kept is not None and self._room is not None:
                self.n_kept += 1
                trial = Trial(one._shared.cache.view)
                fresh = self._room._search(self._demands, trial, self._asked[1], dry_run)
                assert isinstance(fresh, Status), f"{self._asked[0]}: victims are found after all"
                assert (fresh.code, fresh.reason) == (kept.code, kept.reason)
            return kept

        monkeypatch.setattr(MakingRoom, "make", made)
        monkeypatch.setattr(FailedSearches, "key_of", keyed)
        monkeypatch.setattr(FailedSearches, "known", compared)


def in_storms(monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], seeds: range) -> int:
    compared = Compared(monkeypatch)
    for name in names:
        for seed in seeds:
            print(f"storm {name}, seed {seed}")
            case(STORMS[name], seed).run()
    return compared.n_kept


def test_a_kept_answer_is_the_one_that_a_search_would_give(monkeypatch: pytest.MonkeyPatch) -> None:
    assert in_storms(monkeypatch, ("queues", "lending", "limits"), range(59_000, 59_004)) > 50


def test_an_answer_that_is_kept_too_long_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FailedSearches, "_read", lambda self, dry_run: ())
    with pytest.raises((AssertionError, Broken)):
        in_storms(monkeypatch, ("lending", "queues"), range(59_000, 59_010))
