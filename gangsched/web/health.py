"""Health: named checks and the pages made of them, as kube-apiserver and kube-scheduler answer probes.

Lives here: a check, what a page says. Not here: what is checked (checks.py), HTTP (server.py).
Source of the texts: k8s.io/apiserver `pkg/server/healthz`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import structlog

_log = structlog.get_logger(__name__)


class Check(NamedTuple):
    """One thing that must be well. `problem` answers with what is wrong, "" when nothing is."""

    name: str
    problem: Callable[[], str]


class Page(NamedTuple):
    """What is answered."""

    code: int
    text: str


class Health:
    """One of livez, readyz, healthz: all of its checks, or one of them."""

    def __init__(self, name: str, checks: Sequence[Check]) -> None:
        self.name = name
        self._checks = (Check("ping", lambda: ""), *checks)
        self._said = ""

    def problems(self) -> dict[str, str]:
        """What is wrong now, by check."""
        return {check.name: why for check in self._checks if (why := check.problem())}

    def page(self, *, verbose: bool = False, exclude: Collection[str] = ()) -> Page:
        """All checks. Why one fails is for the log: this page is open to everybody."""
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
            names = ",".join(f'"{_printable(name)}"' for name in unknown)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {names}")
        if not exclude:  # what others leave out, as often as they like, is no news
            self._say(wrong)
        if wrong:
            return Page(500, "\n".join([*lines, f"{self.name} check failed"]) + "\n")
        return Page(200, "\n".join([*lines, f"{self.name} check passed"]) + "\n" if verbose else "ok")

    def one(self, name: str) -> Page | None:
        """A single check, with its reason; None: there is no such check."""
        for check in self._checks:
            if check.name == name:
                why = check.problem()
                return Page(500, f"internal server error: {why}\n") if why else Page(200, "ok")
        return None

    def _say(self, wrong: dict[str, str]) -> None:
        said = "; ".join(f"{name}: {why}" for name, why in wrong.items())
        # Reasons may carry numbers that move: news is another set of checks that fail.
        if ",".join(wrong) != self._said:
            self._said = ",".join(wrong)
            if wrong:
                _log.warning(f"{self.name} fails", why=said)
            else:
                _log.info(f"{self.name} is well again")


def _printable(text: str) -> str:
    shown = text[:100]
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in shown)
