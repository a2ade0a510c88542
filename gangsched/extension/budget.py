"""Budget: how long an outside plugin may hold up the scheduler before it is stopped and named.

An interval timer looks every 50 ms, while there is something to look at, whose code is running, and adds it
up: what a plugin has used in one turn of the scheduler, over all nodes and all of its methods. Over the
budget an exception is raised in the plugin's own code, never in ours, so no table of the core is left half
written. In-tree plugins are not looked at and pay nothing; an outside one pays about 0.2 us a call. Only the
main thread is looked at, which is where the scheduler runs. Not here: what a failed plugin costs its pod.
"""

from __future__ import annotations

import functools
import signal
import threading
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

from gangsched.core.guard import PluginError

AnswerT = TypeVar("AnswerT")

TICK_S = 0.05
# What the framework calls of a plugin: method -> extension point, for the message.
HOOKS = {
    "sign": "sign",
    "pre_enqueue": "PreEnqueue",
    "sort_key": "QueueSort",
    "pre_filter": "PreFilter",
    "add_pod": "PreFilter",
    "remove_pod": "PreFilter",
    "filter": "Filter",
    "filter_node": "Filter",
    "capacity": "Filter",
    "reasons": "Filter",
    "topology_keys": "Filter",
    "at_most": "Filter",
    "post_filter": "PostFilter",
    "pre_score": "PreScore",
    "score": "Score",
    "score_node": "Score",
    "normalize": "NormalizeScore",
    "spreads": "Score",
    "reserve": "Reserve",
    "unreserve": "Unreserve",
    "permit": "Permit",
    "pre_bind_pre_flight": "PreBindPreFlight",
    "pre_bind": "PreBind",
    "bind": "Bind",
    "post_bind": "PostBind",
    "cures": "EventsToRegister",
}


class _OverBudgetError(BaseException):
    """Not an Exception: a plugin that catches everything it can think of is stopped all the same."""


class Budget:
    """Who is running, and how often they were seen running since the turn began."""

    def __init__(self, budget_s: float) -> None:
        self.budget_s = budget_s
        self.running: str | None = None
        self._seen: dict[str, int] = {}
        self._is_armed = False
        self._before: Any = None

    def arm(self) -> None:
        """From the first call of an outside plugin in a turn."""
        if not self._is_armed and threading.current_thread() is threading.main_thread():
            self._is_armed = True
            self._before = signal.signal(signal.SIGALRM, self._look)
            signal.setitimer(signal.ITIMER_REAL, TICK_S, TICK_S)

    def turn_ended(self) -> None:
        """Nobody of them is asked until the next turn; what they used is forgotten."""
        if self._is_armed:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, self._before)
            self._is_armed = False
            self._seen.clear()

    def _look(self, _: int, frame: types.FrameType | None) -> None:
        if self.running is None:
            return
        seen = self._seen[self.running] = self._seen.get(self.running, 0) + 1
        ours = frame is None or str(frame.f_globals.get("__name__", "")).startswith("gangsched.")
        if seen * TICK_S > self.budget_s and not ours:
            self._seen[self.running] = 0
            raise _OverBudgetError

    def call(
        self, plugin: str, point: str, method: Callable[..., AnswerT], *args: Any, **kwargs: Any
    ) -> AnswerT:
        """The method's answer. Raises: PluginError, when it was stopped."""
        before = self.running
        try:
            self.running = plugin
            if not self._is_armed:
                self.arm()
            return method(*args, **kwargs)
        except _OverBudgetError:
            raise PluginError(plugin, point, f"took longer than {self.budget_s:g} s") from None
        finally:
            self.running = before

    @types.coroutine
    def step(
        self, plugin: str, point: str, coroutine: Coroutine[Any, Any, AnswerT]
    ) -> Generator[Any, Any, AnswerT]:
        """Awaits the coroutine, looking at how long each of its steps keeps the loop."""
        resume: Callable[[], Any] = functools.partial(coroutine.send, None)
        while True:
            try:
                waits_for = self.call(plugin, point, resume)
            except StopIteration as done:
                answer: AnswerT = done.value
                return answer
            finally:
                self.turn_ended()
            try:
                resume = functools.partial(coroutine.send, (yield waits_for))
            except BaseException as error:  # a cancellation too: the plugin may clean up
                resume = functools.partial(coroutine.throw, error)


def budgeted(kind: type[Any], name: str, budget: Budget) -> type[Any]:
    """The same class with its hooks looked at; `async def` hooks are looked at step by step."""
    made: dict[str, Any] = {"__doc__": kind.__doc__, "__module__": kind.__module__}
    for hook, point in HOOKS.items():
        method = getattr(kind, hook, None)
        if callable(method):
            made[hook] = _watched(method, name, point, budget)
    return type(kind.__name__, (kind,), made)


def _watched(method: Callable[..., Any], name: str, point: str, budget: Budget) -> Callable[..., Any]:
    if is_async(method):

        @functools.wraps(method)
        async def steps(*args: Any, **kwargs: Any) -> Any:
            return await budget.step(name, point, method(*args, **kwargs))

        return steps

    @functools.wraps(method)
    def calls(*args: Any, **kwargs: Any) -> Any:
        return budget.call(name, point, method, *args, **kwargs)

    return calls


def is_async(method: object) -> bool:
    """Whether calling it gives something to be awaited."""
    import inspect

    return inspect.iscoroutinefunction(method)
