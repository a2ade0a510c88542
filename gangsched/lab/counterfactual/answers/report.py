"""How an answer looks on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gangsched.command import printing
from gangsched.journal.replay.times import time_text
from gangsched.lab.counterfactual.answers.answer import Answer
from gangsched.lab.counterfactual.answers.compare import SAME_S, Difference, Range
from gangsched.lab.counterfactual.answers.words import duration, points, share
from gangsched.lab.counterfactual.gangs import SHAKEN_BY_SHARE
from gangsched.model.text.printable import clean, several

_MAX_NAMED = 10
_Form = Callable[[float], str]


def print_answer(found: Answer, console: Console, *, n_rows: int) -> None:
    """Prints figures first, then gangs, then what is not known."""
    ended_s = found.began_wall_s + found.length_s
    console.print(
        f"{time_text(found.began_wall_s)} to {time_text(ended_s)} UTC:"
        f" {several(found.n_gangs, 'gang')} or lone pods, {several(found.n_pods, 'pod')} in all.",
        soft_wrap=True,
    )
    console.print(f"What if: {escape('; '.join(found.changes))}.\n", soft_wrap=True)
    console.print(_figures(found))
    _print_error(found, console)
    _print_moves(found, console)
    if n_rows and found.gangs:
        console.print(_gangs(found.gangs[:n_rows], len(found.gangs)))
    _print_only("without the changes", found.only_without, console)
    _print_only("with the changes", found.only_with, console)
    n = next(iter(found.changed_by.values())).n
    if n:
        console.print(
            f"\nIn brackets: the least and the most over {several(n, 'day')} in which each gang comes up to"
            f" {duration(found.shaken_by_s)} earlier or later and runs up to"
            f" {100 * SHAKEN_BY_SHARE:.0f} % longer or shorter.",
            soft_wrap=True,
        )
    console.print("\n[bold]What this cannot know[/bold]")
    for one in found.not_known:
        console.print(f"- {escape(clean(one))}", soft_wrap=True)


def _table(title: str, columns: Sequence[str], n_left: int = 1) -> Table:
    table = printing.table(title=title, title_justify="left")
    for at, heading in enumerate(columns):
        table.add_column(heading, justify="left" if at < n_left else "right", overflow="fold")
    return table


def _figures(found: Answer) -> Table:
    n = next(iter(found.changed_by.values())).n
    over = f"\n(over {several(n, 'shaken day')})" if n else ""
    columns = ("", "recorded", "recorded,\nin the model", "changed,\nin the model", f"difference{over}")
    table = _table("", columns)
    rows: tuple[tuple[str, str, _Form, _Form], ...] = (
        ("mean wait", "mean_wait_s", duration, duration),
        ("wait, 95th percentile", "p95_wait_s", duration, duration),
        ("started", "n_started", _count, _count),
        ("did not start", "n_not_started", _count, _count),
        ("pods evicted", "n_evicted", _count, _count),
        ("in use", "used", share, points),
        ("free on nodes in use", "split", share, points),
    )
    for words, name, form, by in rows:
        sides = (getattr(one, name) for one in (found.recorded, found.model, found.changed))
        table.add_row(words, *(form(one) for one in sides), _range(found.changed_by[name], by))
    return table


def _print_error(found: Answer, console: Console) -> None:
    error = found.error
    console.print(
        "\n[bold]The model's own error[/bold], the recorded configuration against the recording: of"
        f" {several(error.n_both, 'gang')} {100 * error.within_1s:.0f} % start within {SAME_S:.0f} s of"
        f" when they did, half within {duration(error.median_s)}, 95 % within {duration(error.p95_s)}, all"
        f" within {duration(error.largest_s)}. A smaller difference of one gang says little; for the day"
        " as a whole, compare the first two columns.",
        soft_wrap=True,
    )
    _print_only("in the recording", error.only_recorded, console)
    _print_only("in the model", error.only_model, console)


def _print_moves(found: Answer, console: Console) -> None:
    moves = found.distribution
    console.print(
        f"\n[bold]Earlier[/bold] {several(moves.n_earlier, 'gang')}, {duration(moves.earlier_s)} in all;"
        f" [bold]later[/bold] {moves.n_later:,}, {duration(moves.later_s)} in all; the same, within"
        f" {SAME_S:.0f} s: {moves.n_same:,}. Of all differences the 5th percentile is"
        f" {_signed(moves.p5_s, duration)}, the median {_signed(moves.median_s, duration)}, the 95th"
        f" {_signed(moves.p95_s, duration)}.\n",
        soft_wrap=True,
    )


def _gangs(rows: Sequence[Difference], n: int) -> Table:
    columns = ("GANG", "PODS", "CAME", "WAITED", "IN THE MODEL", "CHANGED", "DIFFERENCE")
    table = _table(f"The largest differences, {len(rows)} of {n:,} gangs", columns)
    for one in rows:
        sides = (one.recorded, one.model, one.changed)
        table.add_row(
            *(escape(clean(one.gang)), str(one.n_pods), f"+{duration(one.came_s)}"),
            *("not started" if side.started_s is None else duration(side.wait_s) for side in sides),
            _range(one.by_s, duration),
        )
    return table


def _print_only(where: str, names: Sequence[str], console: Console) -> None:
    if names:
        more = f" and {len(names) - _MAX_NAMED:,} more" if len(names) > _MAX_NAMED else ""
        shown = ", ".join(clean(name) for name in names[:_MAX_NAMED])
        console.print(f"Started {where} only: {escape(shown)}{more}.", soft_wrap=True)


def _range(by: Range, form: Callable[[float], str]) -> str:
    text = _signed(by.value, form)
    return f"{text} ({_signed(by.low, form)}..{_signed(by.high, form)})" if by.n else text


def _signed(value: float, form: Callable[[float], str]) -> str:
    text = form(abs(value))
    if text == form(0.0):
        return text
    return f"{'-' if value < 0 else '+'}{text}"


def _count(value: float) -> str:
    return f"{value:,.0f}"
