"""Cores that are broken on purpose, and what storms find in them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from gangsched.core.queueing.claims import Claims
from gangsched.core.types.group import Group
from gangsched.sim.storms import Storm, case


def keep_behind_claims(patch: pytest.MonkeyPatch, is_kept: Callable[[Group], bool]) -> None:
    """No unit with such a group starts before a claim in its room: it is taken to run for ever."""
    holding_up = Claims.holding_up

    def stricter(self: Claims, unit: Any, from_s: float, until_s: float, *more: Any, **named: Any) -> Any:
        if any(is_kept(group) for group in unit):
            until_s = math.inf
        return holding_up(self, unit, from_s, until_s, *more, **named)

    patch.setattr(Claims, "holding_up", stricter)


def found(storm: Storm, seeds: Iterable[int]) -> Iterator[str]:
    """What the judges say of these seeds, each of which is played when it is asked for."""
    broken = (case(storm, seed).failure() for seed in seeds)
    return (one.problem for one in broken if one is not None)
