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
    """check: its name; cure: what mends it, a command if there is one, "" if all is well. problem: something
    does not work, or will not; warning: it works, but not as it should; unknown: it could not be read.
    """

    check: str
    level: Level
    text: str
    cure: str = ""


def found(check: str, level: Level, text: str, cure: str = "") -> Finding:
    """Makes a finding; foreign names in its text are made safe to print."""
    return Finding(check, level, clean(text), clean(cure))


def exit_code(findings: Iterable[Finding]) -> int:
    """Returns 0: nothing is wrong; 3: a problem; 4: no problem was found, and not everything could be looked
    at."""
    levels = {finding.level for finding in findings}
    if "problem" in levels:
        return PROBLEM_CODE
    return UNKNOWN_CODE if "unknown" in levels else 0
