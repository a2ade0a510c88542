"""Tracks which sources have reported or fallen silent, and what silence means for a last report: pure.

Used by `reporter`; not here: merging the reports (`inventory`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from gangsched.agent.report.inventory import unhealthy
from gangsched.agent.report.notices import Notices
from gangsched.agent.report.reports import Place, Report, Silence

# A source that has not answered for this long counts as silent.
SILENT_S = 10.0


class SourceReports:
    """`sources`: their names in order of precedence, and what their silence means."""

    def __init__(self, sources: Mapping[str, Silence], notices: Notices) -> None:
        self._sources = dict(sources)
        self._waited_for = [name for name, silence in sources.items() if silence is not Silence.NORMAL]
        self._notices = notices
        self._reports: dict[str, Report] = {}
        self._reported_s: dict[str, float] = {}
        self._silent: frozenset[str] = frozenset()

    def take(self, report: Report, now_s: float) -> bool:
        """Take in a report; returns whether it is new."""
        self._reported_s[report.source] = now_s
        is_new = self._reports.get(report.source) != report
        self._reports[report.source] = report
        return is_new

    def note_silence(self, now_s: float) -> bool:
        """Record which sources fell silent and which answer again; returns whether there were any."""
        for name in self._waited_for:
            self._reported_s.setdefault(name, now_s)
        silent = frozenset(name for name in self._waited_for if now_s >= self._reported_s[name] + SILENT_S)
        for name in sorted(silent - self._silent):
            self._notices.say(f"silent {name}", "warning", f"{name} does not answer", silent_s=SILENT_S)
        for name in sorted(self._silent - silent):
            self._notices.cleared(f"silent {name}", f"{name} answers again")
        has_changed = silent != self._silent
        self._silent = silent
        return has_changed

    def next_deadline_s(self) -> float:
        """When the next source will have been silent for too long."""
        reported_s = [self._reported_s[name] for name in self._waited_for if name not in self._silent]
        return min(reported_s, default=math.inf) + SILENT_S

    @property
    def is_complete(self) -> bool:
        """Whether every source has reported or timed out."""
        return all(name in self._reports or name in self._silent for name in self._sources)

    @property
    def is_blind(self) -> bool:
        """Whether some source, whose silence means sick devices, never reported: devices may be unknown."""
        never = self._silent - set(self._reports)
        return any(self._sources[name] is Silence.SICKNESS for name in never)

    def reports(self) -> list[Report]:
        """Returns the reports that count now, one for each source, in order."""
        return [self._report_of(name, silence) for name, silence in self._sources.items()]

    def _report_of(self, name: str, silence: Silence) -> Report:
        report = self._reports.get(name)
        if report is None:
            return Report(name, looked=f"{name}: has not answered", whole=False)
        if name not in self._silent or silence is not Silence.SICKNESS:
            return report
        places = tuple(
            Place(place.name, {of: tuple(map(unhealthy, devices)) for of, devices in place.listed.items()})
            for place in report.places
        )
        return Report(name, places, report.problems, report.looked, report.whole)
