"""Which show a terminal gets: the table where it can be drawn, else lines, and one line saying why.

Called by gangsched.lab.demo.command.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TextIO

from rich.console import Console

from gangsched.lab.demo.shows.screen import MIN_HEIGHT, MIN_WIDTH, PLAIN, Look
from gangsched.lab.demo.shows.show import Lines, Table


def choose(file: TextIO, environ: Mapping[str, str], *, lines: bool = False) -> tuple[Table | Lines, str]:
    """Returns the show, and why it is not the table ("" if it is, or if no table is expected)."""
    if hasattr(file, "reconfigure"):
        file.reconfigure(errors="replace")  # a terminal that lacks a character shows "?", and goes on
    if lines or not file.isatty():
        return Lines(file), ""
    instead = "a line for each change instead of the table"
    console = Console(file=file, highlight=False, emoji=False, markup=False)
    if console.is_dumb_terminal or not environ.get("TERM"):
        return Lines(file), f"TERM={environ.get('TERM', '')} cannot move the cursor: {instead}"
    width, height = console.size
    if width < MIN_WIDTH or height < MIN_HEIGHT:
        needs = f"the table needs {MIN_WIDTH} x {MIN_HEIGHT}"
        return Lines(file), f"the terminal has {width} x {height} cells, {needs}: {instead}"
    return Table(console, _look(console)), ""


def _look(console: Console) -> Look:
    colours = console.color_system is not None and not console.no_color
    try:
        "".join((Look().bound, Look().reserved, Look().free, Look().sick)).encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return Look(
            colours=colours, bound=PLAIN.bound, reserved=PLAIN.reserved, free=PLAIN.free, sick=PLAIN.sick
        )
    return Look(colours=colours)
