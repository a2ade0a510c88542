"""A state machine as a table: rows of (states before, cause, state after), as data and as drawn in the docs.

Here is what the tables of this room share. Each of them has its own states and causes, and one function that
moves along it.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TypeVar

State = TypeVar("State", bound=enum.Enum)
Cause = TypeVar("Cause", bound=enum.Enum)


def edges(rows: Sequence[tuple[Sequence[State], Cause, State | None]]) -> dict[tuple[State, Cause], State]:
    """Returns every possible move. A state after of None: it stays where it is."""
    return {(state, cause): to or state for states, cause, to in rows for state in states}


def draw(rows: Sequence[tuple[Sequence[State], Cause, State | None]], every: Sequence[State]) -> str:
    """Draws rows in Markdown. every: the states that are called "any" where a row has all of them."""
    lines = ["| cause | what happened | found | goes to |", "|---|---|---|---|"]
    for states, cause, to in rows:
        found = "any" if states is every else ", ".join(state.value for state in states)
        lines.append(f"| `{cause.name}` | {cause.value} | {found} | {to.value if to else 'stays'} |")
    return "\n".join(lines)
