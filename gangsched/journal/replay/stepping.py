"""Stepping: shows a journal decision by decision, with a command line in between.

Called by the command for each call that has been replayed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from gangsched.command import printing
from gangsched.core.explaining.reports import view_groups
from gangsched.journal.records import Turn
from gangsched.journal.replay.replaying import Replay
from gangsched.journal.replay.times import time_text
from gangsched.journal.replay.watching import Watched, print_explanation, print_stories
from gangsched.model.effects import BindPod, Effect
from gangsched.model.text.printable import clean

_HELP = (
    "Enter: the next decision · t: the groups · s NAMESPACE/GANG: its story · e NAMESPACE/GANG: why it does"
    " not run · c: go on to the end · q: stop"
)
_MAX_ROWS = 40
_MAX_BINDS = 16


class Steps:
    """Stops after each attempt of a group until the user continues, journal after journal."""

    _replay: Replay

    def __init__(self, console: Console) -> None:
        self._console = console
        self._stops = True
        self.has_quit = False
        console.print(_HELP, markup=False)

    def took(self, replay: Replay, turn: Turn, effects: Sequence[Effect]) -> bool:
        """The call was made; returns whether to go on."""
        if turn.do != "schedule" or not self._stops:
            return True
        self._replay = replay
        self._show(turn, effects)
        while True:
            self._console.print("> ", end="")
            line = sys.stdin.readline()
            if not line or line.strip() == "q":
                self.has_quit = True
                return False
            if not line.strip():
                return True
            if line.strip() == "c":
                self._stops = False
                return True
            self._ask(line.split())

    def _ask(self, words: Sequence[str]) -> None:
        if words == ["t"]:
            self._table()
        elif len(words) == 2 and words[0] in ("s", "e"):
            name = words[1] if "/" in words[1] else f"default/{words[1]}"
            watched = Watched(name)
            watched.groups = [
                group for key, group in self._replay.scheduler.shared.groups.items() if str(key) == name
            ]
            tell = print_stories if words[0] == "s" else print_explanation
            if not tell(self._replay, watched, self._console):
                self._console.print(f"there is no gang and no pod named {escape(clean(name))} now")
        else:
            self._console.print(_HELP, markup=False)

    def _show(self, turn: Turn, effects: Sequence[Effect]) -> None:
        at = time_text(turn.now_s + self._replay.ago_s)
        binds = [effect for effect in effects if isinstance(effect, BindPod)]
        group = self._replay.scheduler.shared.groups.get(turn.group) if turn.group is not None else None
        state = "gone" if group is None else group.state.value
        self._console.print(f"[bold]{at}[/bold] {escape(clean(str(turn.group)))}: {state}")
        for bind in binds[:_MAX_BINDS]:
            self._console.print(f"  {escape(clean(bind.name))} on {escape(clean(bind.node))}")
        if len(binds) > _MAX_BINDS:
            self._console.print(f"  and {len(binds) - _MAX_BINDS} more")
        if not binds and group is not None and group.message:
            self._console.print(f"  {escape(clean(group.message))}", soft_wrap=True)

    def _table(self) -> None:
        table = printing.table()
        for heading in ("GROUP", "STATE", "MEMBERS", "BOUND"):
            table.add_column(heading)
        views = view_groups(self._replay.scheduler)
        for view in views[:_MAX_ROWS]:
            table.add_row(
                *map(escape, (view.name, view.state.value, str(view.n_existing), str(view.n_bound)))
            )
        self._console.print(table)
        if len(views) > _MAX_ROWS:
            self._console.print(f"and {len(views) - _MAX_ROWS} more")
