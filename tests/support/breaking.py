"""Cores that are broken on purpose, for tests of what finds them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from gangsched.core.queueing.claims import Claims
from gangsched.core.types.group import Group


def let_none_start_before_claims(patch: pytest.MonkeyPatch, whom: Callable[[Group], bool]) -> None:
    """A unit with such a group is taken to run for ever where a claim's room is concerned."""
    leaves_room = Claims.holding_up

    def closed(self: Claims, unit: Any, from_s: float, until_s: float, *more: Any, **named: Any) -> Any:
        until_s = math.inf if any(whom(group) for group in unit) else until_s
        return leaves_room(self, unit, from_s, until_s, *more, **named)

    patch.setattr(Claims, "holding_up", closed)
