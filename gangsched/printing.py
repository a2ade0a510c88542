"""Where commands print for people: standard output, as a rich console that shows texts as they are.

Lives here: its width, and what rich would replace. Not here: what is printed. Called by the commands.
"""

from __future__ import annotations

import sys

from rich.console import Console


def console(piped_width: int, *, highlight: bool = False, soft_wrap: bool = False) -> Console:
    """Standard output, as wide as its terminal. piped_width: into a file or a pipe.

    Without emoji: rich takes the `:ab:` of the device 0000:ab:00.0 for one, and shows another ID.
    """
    width = None if sys.stdout.isatty() else piped_width
    return Console(width=width, highlight=highlight, soft_wrap=soft_wrap, emoji=False)
