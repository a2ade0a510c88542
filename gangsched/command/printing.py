"""The console for people: standard output through rich, showing texts unchanged.

Lives here: its width, and turning off replacements by rich. Not here: what is printed. Called by the
commands.
"""

from __future__ import annotations

import shutil
import sys

from rich.console import Console


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
