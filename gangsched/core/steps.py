"""Steps: how the scheduler takes them, and what is told of one that raises.

Here are the plain way, in which everything is raised as it is, and Faults, which tells of what is not. What
becomes of the object that a step failed on is core.containment's. Called by core.scheduler.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import msgspec

from gangsched.core.state.state import SharedState
from gangsched.core.types.group import NEVER_S, Group
from gangsched.model import events as ev


class Defect(msgspec.Struct, frozen=True):
    """A fault of ours. where: the step; about: the object that triggered it; story: the traceback."""

    where: str
    about: str
    problem: str
    story: str


class Steps(Protocol):
    """How the scheduler runs its steps: one event, one group, one deadline after the other.

    not_before_s: deadlines are not checked before. look_again_s: more work is left for that time.
    """

    not_before_s: float
    look_again_s: float

    def begin(self, now_s: float) -> None:
        """A turn begins."""
        ...

    def apply(self, take: Callable[[Iterator[Any]], None], run: Iterable[ev.Event]) -> None:
        """Passes `take` the events of one kind, which it reads one after the other."""
        ...

    def each(self, do: Callable[[], Any]) -> None:
        """Runs work that handles one item after the other, removing each before it handles it."""
        ...

    def by_deadline(self, do: Callable[[], Any]) -> None:
        """Runs what is due."""
        ...

    def end(self) -> None:
        """The turn ends."""
        ...

    def for_group(self, group: Group, do: Callable[[Group], Any]) -> None:
        """Runs a step for a group."""
        ...

    def for_pod(self, uid: str, do: Callable[[str], Any]) -> None:
        """Runs a step for a pod."""
        ...


class PlainSteps:
    """Contains nothing: tests and simulation need to see exceptions."""

    not_before_s = 0.0
    look_again_s = NEVER_S

    def __init__(self, shared: SharedState) -> None:
        self.begin = shared.set_time

    def end(self) -> None: ...

    def apply(self, take: Callable[[Iterator[Any]], None], run: Iterable[ev.Event]) -> None:
        take(iter(run))

    def each(self, do: Callable[[], Any]) -> None:
        do()

    by_deadline = each

    def for_group(self, group: Group, do: Callable[[Group], Any]) -> None:
        do(group)

    def for_pod(self, uid: str, do: Callable[[str], Any]) -> None:
        do(uid)


class Faults:
    """Tells of what our own code raised; is_shaken: it has, and nobody has looked at the queue since."""

    def __init__(self, shared: SharedState, guard: Callable[[Defect], None]) -> None:
        self._shared = shared
        self._guard = guard
        self.is_shaken = False

    def tell(self, where: str, about: str, error: Exception) -> str:
        """Counts and reports the fault; returns the message for people."""
        problem = f"{type(error).__name__}: {error}"[:500]
        self._shared.count("defects")
        self.is_shaken = True
        story = "".join(traceback.format_exception(error))
        self._guard(Defect(where, about, problem, story))
        return f"the scheduler failed on it, a fault of its own: {problem}; it is left out until it changes"

    def step(self, do: Callable[[], Any]) -> bool:
        """Do one thing; False when it raised, which is told."""
        try:
            do()
        except Exception as error:
            self.tell(name_of(do), "", error)
            return False
        return True


def name_of(do: Any) -> str:
    """What a step is called where a fault is told."""
    return str(getattr(getattr(do, "func", do), "__qualname__", do))
