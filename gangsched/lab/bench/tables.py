"""How a report looks on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from gangsched.lab.bench.figures import Spread
from gangsched.lab.bench.rounds.report import Report, Summary
from gangsched.lab.bench.targets import Target, verdict


def text(value: float) -> str:
    """Three significant digits, without an exponent."""
    if value == 0:
        return "0"
    magnitude = abs(value)
    return f"{value:,.0f}" if magnitude >= 100 else f"{value:.1f}" if magnitude >= 10 else f"{value:.2f}"


def of_spread(value: Spread | None) -> str:
    """The median, and the range where there is one."""
    if value is None:
        return "-"
    if value.n == 1:
        return text(value.median)
    return f"{text(value.median)} ({text(value.low)}..{text(value.high)})"


def print_report(report: Report, console: Console) -> None:
    """Prints everything but the single rounds, which were printed as they ended."""
    print_conditions(report.conditions, console)
    console.print(_figures("median (min..max) of all rounds", report.summaries, disturbed=True))
    if any(0 < summary.n_disturbed < summary.n_rounds for summary in report.summaries.values()):
        console.print(_figures("without disturbed rounds", report.summaries, disturbed=False))
    if report.ratios:
        console.print(_ratios("gangsched / other, by round", report.ratios))
        if report.ratios_undisturbed and report.ratios_undisturbed != report.ratios:
            console.print(_ratios("gangsched / other, without disturbed rounds", report.ratios_undisturbed))
    _writes(report, console)
    print_targets(report.targets, console)


def print_conditions(conditions: Mapping[str, str | int | float], console: Console) -> None:
    """Prints what the figures hold for."""
    for name, value in conditions.items():
        console.print(f"{name}: {value}", highlight=False, markup=False, soft_wrap=True)


def print_targets(targets: Sequence[Target], console: Console) -> None:
    """Prints each promise in one line."""
    table = Table(title="targets", title_justify="left")
    for column in ("target", "limit", "measured", ""):
        table.add_column(column)
    for target in targets:
        measured = "-" if target.measured is None else f"{text(target.measured)} {target.unit}"
        table.add_row(target.text, f"{text(target.limit)} {target.unit}", measured, verdict(target))
    console.print(table)


def _figures(title: str, summaries: Mapping[str, Summary], *, disturbed: bool) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("")
    chosen = {
        name: summary.all_rounds if disturbed else summary.undisturbed for name, summary in summaries.items()
    }
    for name, summary in summaries.items():
        n = summary.n_rounds if disturbed else summary.n_rounds - summary.n_disturbed
        table.add_column(f"{name}\n{n} rounds", justify="right")
    rows = dict.fromkeys(row for figures in chosen.values() for row in figures)
    for row in rows:
        table.add_row(row, *(of_spread(figures.get(row)) for figures in chosen.values()))
    if disturbed:
        table.add_row("disturbed rounds", *(str(summary.n_disturbed) for summary in summaries.values()))
        table.add_row("problems", *(str(summary.n_problems) for summary in summaries.values()))
    return table


def _ratios(title: str, ratios: Mapping[str, Mapping[str, Spread]]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for other in ratios:
        table.add_column(other, justify="right")
    for row in dict.fromkeys(row for figures in ratios.values() for row in figures):
        table.add_row(row, *(of_spread(figures.get(row)) for figures in ratios.values()))
    return table


def _writes(report: Report, console: Console) -> None:
    last = {r.scheduler: r for r in report.rounds if not r.warm_up}
    for name, done in last.items():
        parts = [f"{key} {n / max(done.n_pods, 1):.3f}" for key, n in list(done.writes.items())[:6]]
        leases = sum(done.lease_writes.values())
        line = f"writes a pod, {name}: {', '.join(parts)}; leases in all: {leases}"
        console.print(line, highlight=False, markup=False, soft_wrap=True)
