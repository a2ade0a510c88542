"""The picture of top: lines of a given width and height from given data. Pure.

Lives here: the layout, and what a small terminal leaves out. Not here: the terminal (terminal). Text of users
and servers is cleaned again, since any server may have sent it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from textwrap import wrap
from typing import NamedTuple

import msgspec
from rich.cells import cell_len, set_cell_size

from gangsched.model.text.printable import clean
from gangsched.web.commands.queue import duration
from gangsched.web.pages.answers import DeviceCounts, QueueRow, TopPage
from gangsched.web.top.rates import KINDS, Pace, Percentiles

MIN_WIDTH, MIN_HEIGHT = 40, 8
_MAX_RESOURCES = 4
_BAR_MOST = 60
# Its heading and two rows.
_LEAST_QUEUE = 3
_STYLES = {
    "": "",
    "title": "1",
    "soft": "2",
    "head": "7",
    "chosen": "1;7",
    "wrong": "1;31",
    "bound": "34",
    "reserved": "33",
    "free": "32",
    "unhealthy": "31",
}


class Span(NamedTuple):
    """A piece of a line; style: a key of _STYLES."""

    text: str
    style: str = ""


Line = tuple[Span, ...]


class View(msgspec.Struct):
    """What the user sees: the order, whether it is reversed or paused, and the selected gang.

    problem: why there is no newer data; "" if there is.
    """

    sort: str = "position"
    is_reversed: bool = False
    is_paused: bool = False
    chosen: str = ""
    delay_s: float = 2.0
    problem: str = ""


_SORTS: dict[str, Callable[[QueueRow], tuple[object, ...]]] = {
    "position": lambda row: (row.position,),
    "age": lambda row: (-(row.age_s if row.age_s is not None else -1.0), row.position),
    "size": lambda row: (-max(row.existing, row.needed or 0), row.position),
    "state": lambda row: (row.state, row.position),
    "gang": lambda row: (row.group, row.position),
    "tried": lambda row: (-row.attempts, row.position),
}
SORTS = tuple(_SORTS)


def ordered(rows: Sequence[QueueRow], view: View) -> list[QueueRow]:
    """Returns the rows in the view's order."""
    return sorted(rows, key=_SORTS[view.sort], reverse=view.is_reversed)


def draw(page: TopPage, pace: Pace, view: View, *, width: int, height: int, keys: bool = True) -> list[Line]:
    """Returns at most `height` lines, none wider than `width`. `keys`: with the line that lists the keys.

    Leaves out latencies first, then the selected gang's whole reason, then resources.
    """
    if width < MIN_WIDTH or height < MIN_HEIGHT:
        small = f"{MIN_WIDTH} x {MIN_HEIGHT} at least, this is {width} x {height}"
        return [_cut((Span(small, "wrong"),), width)][:height]
    head = [_title(page, view), _cluster(page)]
    if view.problem:
        head.insert(1, (Span(clean(view.problem), "wrong"),))
    foot: list[Line] = [_keys(view, width)] if keys else []
    rows = ordered(page.queue.rows, view)
    left = height - len(head) - len(foot) - _LEAST_QUEUE
    devices = _devices(page, width)[: max(left, 0)]
    left -= len(devices)
    why = [line for row in rows if row.group == view.chosen for line in _reason(row, width)][: max(left, 0)]
    left -= len(why)
    speeds = _speeds(pace, width)
    speeds = speeds if len(speeds) <= left else speeds[: min(max(left, 0), 1)]
    room = height - sum(len(part) for part in (head, devices, speeds, foot, why))
    lines = [*head, *devices, *speeds, *_queue(page, rows, view, width, room), *why]
    lines += [()] * (height - len(lines) - len(foot)) if keys else []
    return [_cut(line, width) for line in (*lines, *foot)][:height]


def text(line: Line) -> str:
    """Returns the line without styles."""
    return "".join(span.text for span in line).rstrip()


def ansi(line: Line, *, colour: bool = True) -> str:
    """Returns the line with the terminal's escape sequences. Without colour the selection still shows."""
    parts = []
    for span in line:
        code = _STYLES[span.style]
        if not colour and code not in ("1;7", "7", "1", "2"):
            code = ""
        parts.append(f"\x1b[{code}m{span.text}\x1b[0m" if code else span.text)
    return "".join(parts)


# -- the parts ----------------------------------------------------------------------------------------------


def _title(page: TopPage, view: View) -> Line:
    at = _clock(page.at)
    spans = [Span(f"gangsched {clean(page.version)}", "title"), Span(f"  {at}  every {view.delay_s:g} s  ")]
    if not page.leads:
        leader = clean(page.queue.leader)
        instead = f"{leader} leads, this replica" if leader else "this replica does not lead: it"
        spans.append(Span(f"{instead} decides nothing", "wrong"))
    if view.is_paused:
        spans.append(Span(" paused ", "chosen"))
    return tuple(spans)


def _clock(at_s: float) -> str:
    try:
        return datetime.fromtimestamp(at_s, UTC).strftime("%H:%M:%S UTC")
    except (OSError, OverflowError, ValueError):  # beyond the years 1 to 9999
        return "-"


def _cluster(page: TopPage) -> Line:
    states = sorted(page.queue.by_state.items(), key=lambda item: (-item[1], item[0]))
    by = ", ".join(f"{n} {clean(state)}" for state, n in states)
    waiting = f"Waiting {page.queue.n_waiting}" + f": {by}" * bool(by)
    cordoned = f", {page.nodes - page.nodes_open} cordoned" if page.nodes_open < page.nodes else ""
    return (Span(f"Nodes {page.nodes}{cordoned}  Pods {page.pods}  "), Span(waiting, "title"))


def _devices(page: TopPage, width: int) -> list[Line]:
    most = sorted(page.devices.items(), key=lambda item: (-item[1].total, item[0]))
    lines = [_bar(name, counts, width) for name, counts in most[:_MAX_RESOURCES]]
    if len(most) > _MAX_RESOURCES:
        lines.append((Span(f"and {len(most) - _MAX_RESOURCES} more resources", "soft"),))
    return lines


def _bar(name: str, counts: DeviceCounts, width: int) -> Line:
    parts = [
        (counts.bound, "bound", "|"),
        (counts.reserved, "reserved", "r"),
        (counts.unhealthy, "unhealthy", "x"),
        (counts.free, "free", "."),
    ]
    text = "  ".join(f"{n} {what}" for n, what, _ in parts)
    named = clean(name)
    room = min(_BAR_MOST, width - cell_len(named) - cell_len(text) - 6)
    spans = [Span(f"{named} ")]
    if room >= 10 and counts.total > 0:
        spans.append(Span("["))
        drawn = _shares([n for n, _, _ in parts], room)
        spans += [Span(sign * n, style) for n, (_, style, sign) in zip(drawn, parts, strict=True) if n]
        spans.append(Span("] "))
    return (*spans, Span(text))


def _shares(amounts: Sequence[int], room: int) -> list[int]:
    """Divides `room` by amounts: each above 0 gets at least 1, others 0; the first largest gets the rest."""
    amounts = [max(n, 0) for n in amounts]
    total = sum(amounts)
    drawn = [max(1, n * room // total) if n > 0 else 0 for n in amounts]
    largest = max(range(len(amounts)), key=lambda i: amounts[i])
    drawn[largest] = max(drawn[largest] + room - sum(drawn), 0)
    return drawn


def _speeds(pace: Pace, width: int) -> list[Line]:
    if pace.decisions is None or pace.binds is None:
        rates: Line = (Span("Decisions -  binds -", "title"), Span("  a second: at the next look", "soft"))
    else:
        rates = (
            Span(f"Decisions {pace.decisions:.1f}/s  binds {pace.binds:.1f}/s", "title"),
            Span(f"  over {duration(pace.over_s)}", "soft"),
        )
    wide = width >= 84
    over = f"last {duration(pace.over_s)}" if pace.over_s else "last -"
    head = f"{'Latency':<24}{over:>10}{'p50':>8}{'p90':>8}{'p99':>8}"
    if wide:
        head += f"{'since start':>14}{'p50':>8}{'p90':>8}{'p99':>8}"
    lines = [rates, (Span(head, "soft"),)]
    for kind, named in KINDS.items():
        line = f"{named:<24}" + _numbers(pace.recent.get(kind), 10)
        if wide:
            line += _numbers(pace.since_start.get(kind), 14)
        lines.append((Span(line),))
    return lines


def _numbers(found: Percentiles | None, n_wide: int) -> str:
    if found is None or not found.n:
        return f"{0:>{n_wide}}" + "       -" * 3
    return f"{found.n:>{n_wide}}" + "".join(f"{_short(one):>8}" for one in (found.p50, found.p90, found.p99))


def _short(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f}us"
    if seconds < 1:
        return f"{seconds * 1e3:.3g}ms"
    return duration(seconds)


def _queue(page: TopPage, rows: Sequence[QueueRow], view: View, width: int, room: int) -> list[Line]:
    """Returns the heading and as many rows as fit, including the selected one."""
    columns = _columns(width, rows)
    arrow = "^" if view.is_reversed else "v"
    heads = [f"{name}{arrow}" if key == view.sort else name for name, key, _, _ in columns]
    lines: list[Line] = [(Span(_aligned(heads, columns).ljust(width), "head"),)]
    if not rows:
        return [*lines, (Span("Nothing waits.", "soft"),)][: max(room, 1)]
    n_shown = max(room - 1, 0)
    more = page.queue.n_waiting - len(rows)
    if more > 0 and n_shown > 2:
        n_shown -= 1
    at = next((i for i, row in enumerate(rows) if row.group == view.chosen), 0)
    start = max(0, min(at - n_shown // 2, len(rows) - n_shown))
    for row in rows[start : start + n_shown]:
        cells = [say(row) for _, _, say, _ in columns]
        line, is_chosen = _aligned(cells, columns), row.group == view.chosen
        lines.append((Span(line.ljust(width), "chosen") if is_chosen else Span(line),))
    if more > 0 and room - 1 > 2:
        lines.append((Span(f"and {more} more behind them", "soft"),))
    return lines


# Heading, its sort, the text of a row, and its width in cells (negative: right-aligned; 0: the remaining
# width).
_Column = tuple[str, str, Callable[[QueueRow], str], int]


def _columns(width: int, rows: Sequence[QueueRow]) -> list[_Column]:
    """Returns the columns that fit: a narrow terminal keeps place, gang, state and age."""
    longest = max((cell_len(clean(row.group)) for row in rows), default=4)
    name = max(8, min(longest, width // 3))
    columns: list[_Column] = [
        ("POS", "position", lambda row: str(row.position), -5),
        ("GANG", "gang", lambda row: clean(row.group), name),
        ("PODS", "size", _size, -11),
        ("STATE", "state", lambda row: clean(row.state), 13),
        ("AGE", "age", lambda row: "-" if row.age_s is None else duration(row.age_s), -7),
    ]
    if width >= 90:
        columns.append(("TRIED", "tried", lambda row: str(row.attempts), -6))
        columns.append(("PRIO", "", lambda row: str(row.priority), -6))
    if width >= 70:
        columns.append(("WHY", "", lambda row: clean(row.why), 0))
    elif width < 56:
        del columns[2]
    return columns


def _size(row: QueueRow) -> str:
    if not row.is_gang:
        return "pod"
    return f"{row.existing}/{'?' if row.needed is None else row.needed}"


def _aligned(cells: Sequence[str], columns: Sequence[_Column]) -> str:
    parts = []
    for cell, (_, _, _, size) in zip(cells, columns, strict=True):
        if not size:
            parts.append(cell)
        elif size < 0:
            parts.append(
                " " * max(-size - cell_len(cell), 0) + set_cell_size(cell, min(cell_len(cell), -size))
            )
        else:
            parts.append(set_cell_size(cell, size))
    return " ".join(parts)


def _reason(row: QueueRow, width: int) -> list[Line]:
    """Returns the selected gang's whole reason, on a few lines."""
    text = f"{clean(row.group)}: {clean(row.why) or clean(row.state)}"
    return [(Span(part),) for part in wrap(text, width - 1)[:4]]


def _keys(view: View, width: int) -> Line:
    order = f"{view.sort}{' reversed' if view.is_reversed else ''}"
    keys = (
        f"q quit  space {'go on' if view.is_paused else 'pause'}  s sort: {order}  r reverse  up/down choose"
    )
    if cell_len(keys) > width:
        keys = f"q quit  space pause  s {order}  up/down"
    return (Span(keys.ljust(width), "head"),)


def _cut(line: Line, width: int) -> Line:
    """Cuts the line to the width."""
    left, spans = width, []
    for span in line:
        wide = cell_len(span.text)
        if wide > left:
            spans.append(Span(set_cell_size(span.text, max(left - 1, 0)) + "…" * (left > 0), span.style))
            break
        spans.append(span)
        left -= wide
    return tuple(spans)
