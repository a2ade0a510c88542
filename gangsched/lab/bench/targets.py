"""What gangsched promises about its speed, and whether a run shows it. Computed, never assumed. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from gangsched.lab.bench.figures import Spread


class Target(msgspec.Struct, frozen=True):
    """One promise beside the figure measured; `met` is None where the run has no such figure."""

    text: str
    limit: float
    measured: float | None
    met: bool | None
    unit: str = ""


def at_least(text: str, limit: float, measured: Spread | float | None, unit: str = "") -> Target:
    """Met by a median that is not below the limit."""
    return _target(text, limit, measured, unit, lambda value: value >= limit)


def at_most(text: str, limit: float, measured: Spread | float | None, unit: str = "") -> Target:
    """Met by a median that is not above the limit."""
    return _target(text, limit, measured, unit, lambda value: value <= limit)


def nothing_wrong(text: str, problems: Sequence[str] | None) -> Target:
    """Met by no problem at all; None where nothing was checked."""
    return at_most(text, 0, None if problems is None else float(len(problems)), "problems")


def verdict(target: Target) -> Literal["met", "not met", "not measured"]:
    """Returns the verdict in words."""
    if target.met is None:
        return "not measured"
    return "met" if target.met else "not met"


def _target(
    text: str, limit: float, measured: Spread | float | None, unit: str, holds: Callable[[float], bool]
) -> Target:
    value = measured.median if isinstance(measured, Spread) else measured
    return Target(text, limit, value, None if value is None else holds(value), unit)
