"""Steps: wraps each step of the scheduler, and reports a step that raises.

PlainSteps lets every exception through; Faults counts and reports them. Not here: what happens to the object
that a step failed on (core.turns.containment). Called by core.scheduler.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import msgspec

from gangsched.core.state.state import SharedState
from gangsched.core.types.group import NEVER_S, Group
from gangsched.model import events as ev
from gangsched.model.text.printable import in_words

Take = Callable[[Iterator[Any]], None]
"""Reads events of one kind one by one, and applies them."""


class Defect(msgspec.Struct, frozen=True):
    """A bug of ours. where: the step; about: the object that triggered it; story: the traceback."""

    where: str
    about: str
    problem: str
    story: str


class Steps(Protocol):
    """Called around the scheduler's steps, each for one event, one group or one deadline.

    The scheduler runs most steps itself, and reports here, from within its `except`, those that raised.

    not_before_s: deadlines are not checked earlier. more_at_s: when there is more work to do.
    """

    not_before_s: float
    more_at_s: float

    def begin(self, now_s: float) -> None:
        """A turn begins."""
        ...

    def events_failed(self, take: Take, events: Sequence[ev.Event], n_left: int, error: Exception) -> bool:
        """`take` raised, with the last n_left events unread. Returns whether to go on with those."""
        ...

    def applied(self, events: Sequence[ev.Event]) -> None:
        """All events of one kind have been read."""
        ...

    def each(self, do: Callable[[], Any]) -> None:
        """Runs work that handles items one by one, removing each before it handles it."""
        ...

    def every(self, work: Sequence[Callable[[], Any]]) -> None:
        """Does so for one after the other."""
        ...

    def by_deadline(self, do: Callable[[], Any]) -> None:
        """Runs work that is due."""
        ...

    def end(self) -> None:
        """The turn ends."""
        ...

    def may_step(self, group: Group) -> bool:
        """Whether to run a step for the group now; else it waits for the next turn."""
        ...

    def group_failed(self, group: Group, where: str, error: Exception) -> None:
        """A step for the group raised."""
        ...

    def pod_failed(self, uid: str, where: str, error: Exception) -> None:
        """A step for the pod raised."""
        ...


class PlainSteps:
    """Raises every exception unchanged: tests and simulation need to see them."""

    not_before_s = 0.0
    more_at_s = NEVER_S

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared

    def begin(self, now_s: float) -> None:
        self._shared.set_time(now_s)

    def end(self) -> None: ...

    def events_failed(self, take: Take, events: Sequence[ev.Event], n_left: int, error: Exception) -> bool:
        raise error

    def applied(self, events: Sequence[ev.Event]) -> None: ...

    def each(self, do: Callable[[], Any]) -> None:
        do()

    def every(self, work: Sequence[Callable[[], Any]]) -> None:
        for do in work:
            do()

    by_deadline = each

    def may_step(self, group: Group) -> bool:
        return True

    def group_failed(self, group: Group, where: str, error: Exception) -> None:
        raise error

    def pod_failed(self, uid: str, where: str, error: Exception) -> None:
        raise error


class Faults:
    """Reports exceptions of our own code. is_shaken: the queue must be rebuilt after one."""

    def __init__(self, shared: SharedState, guard: Callable[[Defect], None]) -> None:
        self._shared = shared
        self._guard = guard
        self.is_shaken = False

    def tell(self, where: str, about: str, error: Exception) -> str:
        """Counts and reports the fault; returns what is told of it to people."""
        problem = in_words(error)[:500]
        self._shared.count("defects")
        self.is_shaken = True
        story = "".join(traceback.format_exception(error))
        self._guard(Defect(where, about, problem, story))
        return f"the scheduler itself failed on this object: {problem}"

    def step(self, do: Callable[[], Any]) -> bool:
        """Does one thing; if it raises, reports that and returns False."""
        try:
            do()
        except Exception as error:
            self.tell(name_of(do), "", error)
            return False
        return True


def name_of(do: Any) -> str:
    """The name by which a step is reported."""
    return str(getattr(getattr(do, "func", do), "__qualname__", do))
