"""The bench's progress on stderr: bars on a terminal, one line a phase elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars


class Progress:
    """Shows the phases of a run as they go."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)

    def say(self, text: str) -> None:
        """Prints one line that stays."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    @contextmanager
    def phase(self, text: str) -> Iterator[None]:
        """Shows a phase that takes a while and cannot be counted."""
        started_s = time.monotonic()
        if self._console.is_terminal:
            with self._console.status(text):
                yield
        else:
            yield
            self.say(f"{text}: {time.monotonic() - started_s:.1f} s")

    @contextmanager
    def bar(self, text: str, total: int) -> Iterator[Callable[[], None]]:
        """Shows a phase that is counted; call the value once for each."""
        if not self._console.is_terminal:
            with self.phase(f"{text} ({total})"):
                yield lambda: None
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        # Few redraws: while binds are counted this process is part of what is measured.
        with Bars(*columns, console=self._console, transient=True, refresh_per_second=2) as bars:
            task = bars.add_task(text, total=total)
            yield lambda: bars.advance(task)
