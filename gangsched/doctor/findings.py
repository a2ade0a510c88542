"""What a check finds: a value for people and for programs. Printed by doctor.command."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

import msgspec

from gangsched.model.text.printable import clean, several

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


class Work(msgspec.Struct, frozen=True):
    """What schedulers of the served names have done: pods that they bound, the last one when, and pods that
    none of them has looked at."""

    n_bound: int = 0
    last: datetime | None = None
    n_unseen: int = 0

    def goes_on(self, since: datetime | None = None) -> bool:
        """Whether pods are bound (after `since`), and none waits unseen."""
        return self.last is not None and not self.n_unseen and (since is None or self.last > since)

    def text(self, now: datetime) -> str:
        """As "4 pods are bound, the last one 12 s ago"."""
        if self.last is None:
            return "no pod is bound"
        ago_s = max((now - self.last).total_seconds(), 0.0)
        are = "is" if self.n_bound == 1 else "are"
        return f"{several(self.n_bound, 'pod')} {are} bound, the last one {_ago(ago_s)}"


def _ago(ago_s: float) -> str:
    for size_s, unit in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if ago_s >= 2 * size_s:
            return f"{ago_s / size_s:.0f} {unit} ago"
    return f"{ago_s:.0f} s ago"


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
