"""Stand-ins for a running core's observers, in a core that is otherwise built the same way.

Called by state and replaying.
"""

from __future__ import annotations

from typing import Any

from gangsched.core.framework.observer import Observer, PluginObserver
from gangsched.core.framework.status import Code


class Unobserved:
    """A stand-in for an observer; it does nothing."""

    def moved(self, *_: Any) -> None: ...
    def attempt_began(self, *_: Any) -> None: ...
    def point_began(self, *_: Any) -> None: ...
    def point_ended(self, *_: Any) -> None: ...
    def gave_back(self, *_: Any) -> None: ...
    def preempted(self, *_: Any) -> None: ...
    def reported(self, *_: Any) -> None: ...


class UnobservedCalls(Unobserved):
    """A stand-in for an observer that also observes plugins' calls."""

    def plugin_began(self) -> None: ...
    def plugin_ended(self, plugin: str, point: str, code: Code) -> None: ...


def observer_like(observer: Observer | None) -> Observer | None:
    """Returns the stand-in for this observer in a core that is otherwise built the same way."""
    if observer is None:
        return None
    return observer_of("calls" if isinstance(observer, PluginObserver) else "yes")


def observer_of(observed: str) -> Observer | None:
    """Returns the stand-in for a journal's value: no, yes, or calls of plugins too."""
    return {"no": None, "yes": Unobserved(), "calls": UnobservedCalls()}[observed]
