"""What a check finds: a value for people and for programs. Printed by doctor.command."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from gangsched.core.state.reporter import clean

Level = Literal["ok", "warning", "problem", "unknown"]
PROBLEM_CODE = 3
UNKNOWN_CODE = 4


class Finding(msgspec.Struct, frozen=True):
    """check: which one; cure: what mends it, a command where there is one, "" where all is well.

    problem: something does not work, or will not; warning: it works and is not as it should be; unknown: we
    could not look.
    """

    check: str
    level: Level
    text: str
    cure: str = ""


def found(check: str, level: Level, text: str, cure: str = "") -> Finding:
    """A finding whose text may have names of others in it."""
    return Finding(check, level, clean(text), clean(cure))


def exit_code(findings: Iterable[Finding]) -> int:
    """0: nothing is wrong; 3: a problem; 4: no problem was found, and not everything could be looked at."""
    levels = {finding.level for finding in findings}
    if "problem" in levels:
        return PROBLEM_CODE
    return UNKNOWN_CODE if "unknown" in levels else 0
