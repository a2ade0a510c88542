"""Observers that stand for those of a running core, in one that is otherwise built as it was.

Called by state and replaying.
"""

from __future__ import annotations

from typing import Any

from gangsched.core.framework.observer import Observer, PluginObserver
from gangsched.core.framework.status import Code


class Unobserved:
    """An observer in the place of one: it looks at nothing."""

    def moved(self, *_: Any) -> None: ...
    def attempt_began(self, *_: Any) -> None: ...
    def point_began(self, *_: Any) -> None: ...
    def point_ended(self, *_: Any) -> None: ...
    def gave_back(self, *_: Any) -> None: ...
    def preempted(self, *_: Any) -> None: ...
    def told(self, *_: Any) -> None: ...


class UnobservedCalls(Unobserved):
    """The same, in the place of one that looks at plugins' calls too."""

    def plugin_began(self) -> None: ...
    def plugin_ended(self, plugin: str, point: str, code: Code) -> None: ...


def observer_like(observer: Observer | None) -> Observer | None:
    """What stands for it in a core that is otherwise built as the one that has it."""
    if observer is None:
        return None
    return observer_of("calls" if isinstance(observer, PluginObserver) else "yes")


def observer_of(observed: str) -> Observer | None:
    """As a journal says: no, yes, or calls of plugins too."""
    return {"no": None, "yes": Unobserved(), "calls": UnobservedCalls()}[observed]
