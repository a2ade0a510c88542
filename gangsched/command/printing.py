"""The output for people and for scripts: standard output through rich, showing texts unchanged, or as JSON.

Lives here: its width, turning off replacements by rich, how tables look. Not here: what is printed. Called by
the commands.
"""

from __future__ import annotations

import shutil
import sys
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table


class _Output(Console):
    def on_broken_pipe(self) -> None:
        """Lets cli end the command, as for all other output. Rich itself would exit with code 1, which means
        that a decision differs for `replay`, and that the scheduler cannot be reached for `queue`.
        """
        self.quiet = True
        raise  # re-raises the error for which rich calls this


def console(
    piped_width: int = 0, *, width: int | None = None, highlight: bool = False, soft_wrap: bool = False
) -> Console:
    """Returns standard output, as wide as its terminal. piped_width: for a file or pipe; 0: from COLUMNS.
    width: overrides both.

    Without emoji: rich takes the `:ab:` of the device 0000:ab:00.0 for one, and shows another ID. Not with
    the width that rich finds: COLUMNS=0 gives empty lines, COLUMNS=² a traceback.
    """
    columns, lines = shutil.get_terminal_size()
    if width is None:
        width = piped_width if piped_width and not sys.stdout.isatty() else columns
    return _Output(width=width, height=lines, highlight=highlight, soft_wrap=soft_wrap, emoji=False)


def table(**options: Any) -> Table:
    """Returns an empty table without lines, as kubectl prints them."""
    return Table(box=None, pad_edge=False, header_style="bold", **options)


def print_json(document: object) -> None:
    """Prints an object as JSON."""
    print_page(msgspec.json.encode(document))


def print_page(body: bytes) -> None:
    """Prints what is JSON already, for people to read."""
    sys.stdout.buffer.write(msgspec.json.format(body, indent=2) + b"\n")
