"""Dirty: what one step of a turn may leave for others to take, and the check that it leaves nothing else.

Declared by the phases (core.turns.turn) and by what deadlines do (core.turns.overdue). The check runs in
simulation and in tests, never live: it compares what lies there before and after each step.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection
from functools import wraps
from typing import Any

from gangsched.core.state.state import SharedState
from gangsched.errors import InvariantError


class Mark(enum.Enum):
    """What a step may mark, in the words of the docs."""

    # Looked up for each step that is checked; Enum's own hash is a call into Python.
    __hash__ = object.__hash__

    GROUPS = "groups"
    RESERVATIONS = "reservations"
    CHANGES = "changes"
    PROBLEMS = "problems"
    LINE = "line"
    DEADLINES = "deadlines"
    EFFECTS = "effects"


AFTER_A_TURN = frozenset((Mark.LINE, Mark.DEADLINES, Mark.EFFECTS))
"""Taken once the turn is over: by `pop` and `schedule`, by `advance`, and by whoever carries out effects."""

_MEANINGS = {
    Mark.GROUPS: ("groups whose members, numbers, object or binds have changed", "the phases of each group"),
    Mark.RESERVATIONS: ("groups with a reservation that does not hold", "the phase *reservations*"),
    Mark.CHANGES: ("what has changed in the cluster, and may cure groups that wait", "the phase *wake*"),
    Mark.PROBLEMS: ("what is wrong in the reports of nodes and devices", "the phase *problems*"),
    Mark.LINE: ("groups put in line", "the next `pop` and `schedule`"),
    Mark.DEADLINES: ("work to do at a time", "`advance`, at that time"),
    Mark.EFFECTS: ("what is to be done outside", "the edge, after the turn"),
}


class Watch:
    """Compares what each step marks with what it declares."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared

    def over(
        self, name: str, marks: Collection[Mark], do: Callable[..., Any], *, clears: Mark | None = None
    ) -> Callable[..., None]:
        """Wraps a step so that its marks are checked after it. clears: the mark that it takes entirely.

        It raises: InvariantError (the step has marked what it does not declare).
        """

        @wraps(do)
        def checked(*args: Any) -> None:
            before = self._counts()
            do(*args)
            after = self._counts()
            if after == before and clears is None:
                return
            for mark, was, now in zip(Mark, before, after, strict=True):
                if now > (0 if mark is clears else was) and mark not in marks:
                    raise InvariantError(f"{name} has marked {mark.value}, which it does not declare")

        return checked

    def all_taken(self) -> None:
        """Raises: InvariantError (something is left that the turn itself should have taken)."""
        for mark, n in zip(Mark, self._counts(), strict=True):
            if n and mark not in AFTER_A_TURN:
                raise InvariantError(f"{n} {mark.value} are left at the end of a turn")

    def _counts(self) -> tuple[int, ...]:
        """Returns how much of each lies there, or was ever marked, in the order of Mark."""
        shared = self._shared
        cache, queue = shared.cache, shared.queue
        claims = shared.claims
        return (
            len(shared.marked_groups),
            len(shared.broken_reservations),
            len(shared.changes) + len(cache.index.changes) + (len(claims.freed) if claims is not None else 0),
            len(cache.clashes) + len(cache.claims.clashes) + len(cache.bad_reports),
            queue.n_lined_up,
            shared.timers.n_pushed,
            len(shared.effects),
        )


def marks_text(marks: Collection[Mark]) -> str:
    """Returns the marks in words, in their order."""
    return ", ".join(mark.value for mark in Mark if mark in marks) or "nothing"


def drawn() -> str:
    """Draws what can be marked, for docs/architecture.md."""
    lines = ["| mark | what is marked | taken by |", "|---|---|---|"]
    lines += [f"| {mark.value} | {what} | {taker} |" for mark, (what, taker) in _MEANINGS.items()]
    return "\n".join(lines)
