"""Where commands print for people: standard output, as a rich console that shows texts as they are.

Lives here: its width, and what rich would replace. Not here: what is printed. Called by the commands.
"""

from __future__ import annotations

import shutil
import sys

from rich.console import Console


class _Output(Console):
    def on_broken_pipe(self) -> None:
        """Let cli end the command, as for all other output: rich's own ends it with exit code 1, by which
        `replay` says that a decision differs, and `queue` that the scheduler cannot be reached."""
        self.quiet = True
        raise  # what rich has caught and calls this for


def console(
    piped_width: int = 0, *, width: int | None = None, highlight: bool = False, soft_wrap: bool = False
) -> Console:
    """Standard output, as wide as its terminal. piped_width: into a file or a pipe, 0: as COLUMNS says;
    width: in any case.

    Without emoji: rich takes the `:ab:` of the device 0000:ab:00.0 for one, and shows another ID. Not with
    the width that rich finds: of COLUMNS=0 it makes lines with nothing in them, of COLUMNS=² a traceback.
    """
    columns, lines = shutil.get_terminal_size()
    if width is None:
        width = piped_width if piped_width and not sys.stdout.isatty() else columns
    return _Output(width=width, height=lines, highlight=highlight, soft_wrap=soft_wrap, emoji=False)
