"""Health: named checks and the pages made of them, in the format of kube-apiserver and kube-scheduler.

Lives here: a check, the text of a page. Not here: the individual checks (checks.py), HTTP (server.py).
Source of the texts: k8s.io/apiserver `pkg/server/healthz`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import structlog

from gangsched.model.text.printable import one_line

_log = structlog.get_logger(__name__)


class Check(NamedTuple):
    """One health check. `problem` returns what is wrong, "" if nothing is."""

    name: str
    problem: Callable[[], str]


class Page(NamedTuple):
    """Status code and text of an answer."""

    code: int
    text: str


class Health:
    """One of livez, readyz, healthz: all of its checks, or one of them."""

    def __init__(self, name: str, checks: Sequence[Check]) -> None:
        self.name = name
        self._checks = (Check("ping", lambda: ""), *checks)
        self._logged = ""

    def problems(self) -> dict[str, str]:
        """Failing checks with their reasons."""
        return {check.name: why for check in self._checks if (why := check.problem())}

    def page(self, *, verbose: bool = False, exclude: Collection[str] = ()) -> Page:
        """Returns all checks. Reasons go only to the log: this page is readable without authorization."""
        lines: list[str] = []
        wrong: dict[str, str] = {}
        for check in self._checks:
            if check.name in exclude:
                lines.append(f"[+]{check.name} excluded: ok")
            elif why := check.problem():
                wrong[check.name] = why
                lines.append(f"[-]{check.name} failed: reason withheld")
            else:
                lines.append(f"[+]{check.name} ok")
        unknown = sorted(set(exclude) - {check.name for check in self._checks})
        if unknown:
            names = ",".join(f'"{one_line(name[:100])}"' for name in unknown)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {names}")
        if not exclude:  # a client's choice of exclusions must not cause log lines
            self._say(wrong)
        if wrong:
            return Page(500, "\n".join([*lines, f"{self.name} check failed"]) + "\n")
        return Page(200, "\n".join([*lines, f"{self.name} check passed"]) + "\n" if verbose else "ok")

    def one(self, name: str) -> Page | None:
        """Returns a single check, with its reason; None: there is no such check."""
        for check in self._checks:
            if check.name == name:
                why = check.problem()
                return Page(500, f"internal server error: {why}\n") if why else Page(200, "ok")
        return None

    def _say(self, wrong: dict[str, str]) -> None:
        text = "; ".join(f"{name}: {why}" for name, why in wrong.items())
        # Reasons may contain changing numbers: log only when the set of failing checks changes.
        if ",".join(wrong) != self._logged:
            self._logged = ",".join(wrong)
            if wrong:
                _log.warning(f"{self.name} fails", why=text)
            else:
                _log.info(f"{self.name} is well again")
