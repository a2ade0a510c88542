"""Shadow mode's findings, as data and as text.

Lives here: counting, gangs as wholes, sentences. Not here: writing files (process.app). Texts of other
programs are shown as one line each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

import msgspec

from gangsched.model.text.printable import several
from gangsched.shadow.records import PodRecord, Records, Verdict

# Enough for a terminal; the data has everything kept.
MAX_LINES = 200
_MAX_SAID = 500
_TOLD = (Verdict.OTHER, Verdict.ONLY_OURS, Verdict.ONLY_THEIRS, Verdict.NEITHER)


class GangReport(msgspec.Struct):
    """nodes: name -> how many members. span_s: from their first member bound to their last."""

    name: str
    n_members: int
    ours: dict[str, int]
    theirs: dict[str, int]
    ours_said: str
    span_s: float | None
    lead_s: float | None

    @property
    def is_same(self) -> bool:
        return bool(self.ours) and self.ours == self.theirs


def report_data(records: Records, *, names: Sequence[str], for_s: float) -> dict[str, Any]:
    """Plain data; lead_s above zero: we were earlier."""
    leads = _leads(records)
    return {
        "schedulerNames": list(names),
        "seconds": round(for_s, 3),
        "counts": {verdict.value: n for verdict, n in records.counts().items()},
        "notKept": sum(records.let_go.values()),
        "medianLeadSeconds": round(median(leads), 6) if leads else None,
        "gangs": [msgspec.to_builtins(gang) | {"same": gang.is_same} for gang in gangs(records)],
        "pods": [_pod(record) for record in records],
    }


def report_text(records: Records, *, names: Sequence[str], for_s: float) -> str:
    """A summary, then a line for each gang and for each lone pod with a different result."""
    counts = {verdict: n for verdict, n in records.counts().items() if n}
    total = sum(counts.values())
    listed = ", ".join(f"{n} {verdict.value}" for verdict, n in counts.items()) or "none"
    lines = [f"shadow of {', '.join(names)} for {for_s:.1f} s: {several(total, 'pod')}: {listed}"]
    leads = _leads(records)
    if leads:
        lines.append(
            f"decided {_lead(median(leads))} (median of {several(len(leads), 'pod')} that both placed)"
        )
    entries = [_gang_line(gang) for gang in gangs(records)]
    entries += [_pod_line(one) for one in records if not one.is_gang and one.verdict in _TOLD]
    lines += entries[:MAX_LINES]
    if len(entries) > MAX_LINES:
        lines.append(f"and {len(entries) - MAX_LINES} more; the JSON report has them")
    return "\n".join(lines)


def gangs(records: Iterable[PodRecord]) -> list[GangReport]:
    """Takes members together: a permutation of equal members is no difference."""
    members: dict[str, list[PodRecord]] = {}
    for record in records:
        if record.is_gang:
            members.setdefault(record.group, []).append(record)
    return [_gang(name, mine) for name, mine in members.items()]


def _gang(name: str, members: Sequence[PodRecord]) -> GangReport:
    ours, theirs = (
        dict(sorted(Counter(node for node in nodes if node).items()))
        for nodes in ([one.ours for one in members], [one.theirs for one in members])
    )
    bound_s = [one.theirs_s for one in members if one.theirs_s is not None]
    leads = _leads(members)
    reason = next((one.ours_said for one in members if one.ours_said), "")
    return GangReport(
        name,
        len(members),
        ours,
        theirs,
        reason,
        round(max(bound_s) - min(bound_s), 6) if bound_s else None,
        round(median(leads), 6) if leads else None,
    )


def _leads(records: Iterable[PodRecord]) -> list[float]:
    return [lead_s for one in records if (lead_s := one.lead_s) is not None]


def _pod(record: PodRecord) -> dict[str, Any]:
    lead_s = record.lead_s
    return {
        "pod": record.name,
        "group": record.group if record.is_gang else None,
        "verdict": record.verdict.value,
        "ours": record.ours or None,
        "theirs": record.theirs or None,
        "oursSaid": record.ours_said,
        "theirsSaid": record.theirs_said,
        "why": record.why,
        "leadSeconds": None if lead_s is None else round(lead_s, 6),
        "decisions": record.n_decisions,
        "deleted": record.is_gone,
    }


def _pod_line(record: PodRecord) -> str:
    match record.verdict:
        case Verdict.OTHER:
            lead_s = record.lead_s
            when = "" if lead_s is None else f" ({_lead(lead_s)})"
            return f"{record.name}: theirs {record.theirs}, ours {record.ours}: {record.why}{when}"
        case Verdict.ONLY_OURS:
            theirs = _one_line(record.theirs_said) or ("deleted before" if record.is_gone else "not placed")
            return f"{record.name}: theirs none ({theirs}), ours {record.ours}"
        case Verdict.ONLY_THEIRS:
            return f"{record.name}: theirs {record.theirs}, ours none: {_one_line(record.ours_said)}"
    return f"{record.name}: nobody placed it; ours: {_one_line(record.ours_said) or 'no turn yet'}"


def _gang_line(gang: GangReport) -> str:
    theirs, ours = _nodes(gang.theirs), _nodes(gang.ours)
    over = "" if not gang.span_s else f" over {gang.span_s:.3f} s"
    if gang.is_same:
        line = f"gang {gang.name}: the same nodes ({ours}), theirs{over or ' at once'}"
    else:
        reason = f" ({_one_line(gang.ours_said)})" if gang.ours_said else ""
        line = f"gang {gang.name}: theirs {theirs}{over}, ours {ours}{reason}"
    return line if gang.lead_s is None else f"{line} ({_lead(gang.lead_s)})"


def _nodes(nodes: dict[str, int]) -> str:
    return ", ".join(name if n == 1 else f"{n} on {name}" for name, n in nodes.items()) or "none"


def _lead(lead_s: float) -> str:
    return f"{abs(lead_s):.3f} s {'earlier' if lead_s >= 0 else 'later'}"


def _one_line(text: str) -> str:
    """Another program's text on one line; no control characters reach the terminal."""
    line = "".join(one if one.isprintable() else " " for one in text)
    return line if len(line) <= _MAX_SAID else line[: _MAX_SAID - 1] + "…"
