"""Budget: how long an out-of-tree plugin may hold up the scheduler before it is stopped and named.

While such a plugin runs, an interval timer samples every 50 ms which plugin it is, and adds up its time in
one turn of the scheduler, over all nodes and all of its methods. Over the budget an exception is raised in
the plugin's own code, never in ours, so no table of the core is left half written; nor in what Python runs
there while it collects garbage, where an exception is printed and lost. In-tree plugins are not
sampled and cost nothing; an out-of-tree one costs about 0.2 us a call, and one called for thousands of nodes
pays it once for all of them (core.framework.filters.per_node). Only the main thread is sampled, which is
where the scheduler runs. Not here: what a failed plugin means for its pod.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import signal
import threading
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable
from typing import Any, TypeVar

from gangsched.core.cache.queues.tree import Place
from gangsched.core.framework.plugin_calls import PluginError, blamed
from gangsched.extension.signatures import HOOKS

AnswerT = TypeVar("AnswerT")

TICK_S = 0.05
# Each costs the budget, and a turn has few of them.
_MAX_STOPPED = 1000


class _OverBudgetError(BaseException):
    """Not an Exception, so that a plugin that catches Exception is stopped all the same."""


class TurnBudget:
    """Which plugin is running, and how often each was sampled since the turn began."""

    def __init__(self, budget_s: float) -> None:
        self.budget_s = budget_s
        self.running: str | None = None
        self.n_calls = 0
        """Calls of plugins so far."""
        self._stopped: deque[int] = deque(maxlen=_MAX_STOPPED)
        self._seen: dict[str, int] = {}
        self._is_armed = False
        self._is_collecting = False
        self._before: Any = None
        self._timer_before = (0.0, 0.0)

    def arm(self) -> None:
        """Start sampling, at the first call of an out-of-tree plugin in a turn."""
        if not self._is_armed and threading.current_thread() is threading.main_thread():
            self._is_armed = True
            self._before = signal.signal(signal.SIGALRM, self._look)
            self._timer_before = signal.setitimer(signal.ITIMER_REAL, TICK_S, TICK_S)
            gc.callbacks.insert(0, self._begins)
            gc.callbacks.append(self._ends)

    def stopped_since(self, n_calls: int) -> list[int]:
        """Returns the numbers of the calls after the first `n_calls` that were stopped."""
        return [n for n in self._stopped if n > n_calls]

    def turn_ended(self) -> None:
        """No plugin runs until the next turn; reset their samples."""
        if self._is_armed:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, self._before)
            if self._timer_before[0]:  # another user of the alarm, in a test mostly
                signal.setitimer(signal.ITIMER_REAL, *self._timer_before)
            gc.callbacks.remove(self._begins)
            gc.callbacks.remove(self._ends)
            self._is_armed = self._is_collecting = False
            self._seen.clear()

    def _begins(self, phase: str, _: dict[str, int]) -> None:
        self._is_collecting |= phase == "start"

    def _ends(self, phase: str, _: dict[str, int]) -> None:
        self._is_collecting &= phase != "stop"

    def _look(self, _: int, frame: types.FrameType | None) -> None:
        if self.running is None:
            return
        seen = self._seen[self.running] = self._seen.get(self.running, 0) + 1
        ours = frame is None or str(frame.f_globals.get("__name__", "")).startswith("gangsched.")
        if seen * TICK_S > self.budget_s and not ours and not self._is_collecting:
            self._seen[self.running] = 0
            raise _OverBudgetError

    def call(
        self, plugin: str, point: str, method: Callable[..., AnswerT], *args: Any, **kwargs: Any
    ) -> AnswerT:
        """Returns the method's answer. Raises: PluginError if it was stopped, or would end more than itself.

        A SystemExit (a command line's parser raises it) is meant for another program than this one. Only a
        person's Ctrl-C ends both.
        """
        before = self.running
        self.n_calls += 1
        n = self.n_calls
        try:
            self.running = plugin
            if not self._is_armed:
                self.arm()
            return method(*args, **kwargs)
        except _OverBudgetError:
            self._stopped.append(n)
            raise self.over_budget(plugin, point) from None
        except (Exception, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise blamed(plugin, point, error) from error
        finally:
            self.running = before

    def over_budget(self, plugin: str, point: str) -> PluginError:
        return PluginError(plugin, point, f"took longer than {self.budget_s:g} s")

    async def steps(self, plugin: str, point: str, coroutine: Coroutine[Any, Any, AnswerT]) -> AnswerT:
        """Awaits the coroutine: an `async def` hook's own, or the one that a plain hook returns."""
        return await self._step(plugin, point, coroutine)

    @types.coroutine
    def _step(
        self, plugin: str, point: str, coroutine: Coroutine[Any, Any, AnswerT]
    ) -> Generator[Any, Any, AnswerT]:
        """Awaits the coroutine, sampling how long each of its steps holds the loop."""
        resume: Callable[[], Any] = functools.partial(coroutine.send, None)
        while True:
            try:
                waits_for, end = self.call(plugin, point, _stepped, resume)
            except StopIteration as done:
                answer: AnswerT = done.value
                return answer
            finally:
                self.turn_ended()
            if end is not None:
                raise end
            try:
                resume = functools.partial(coroutine.send, (yield waits_for))
            except BaseException as error:  # cancellation too: the plugin may clean up
                resume = functools.partial(coroutine.throw, error)


def _stepped(resume: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """Returns what a coroutine waits for next; if it was cancelled or closed, its end, which is no fault."""
    try:
        return resume(), None
    except (asyncio.CancelledError, GeneratorExit) as end:
        return None, end


# Called in a loop over nodes by core.framework.filters.per_node, which has the whole loop sampled:
# `over_nodes`.
_IN_LOOPS = ("filter_node", "score_node")


def budgeted(kind: type[Any], name: str, hooks: Iterable[str], budget: TurnBudget) -> type[Any]:
    """The same class with these hooks sampled; `async def` hooks are sampled step by step."""
    made: dict[str, Any] = {"__doc__": kind.__doc__, "__module__": kind.__module__}
    made["over_nodes"] = staticmethod(functools.partial(budget.call, name))
    for hook in hooks:
        if hook not in _IN_LOOPS:
            made[hook] = _watched(kind, hook, name, budget)
    return type(kind.__name__, (kind,), made)


# Their answers may be generators, whose code runs only while they are read.
_LISTED = ("reasons", "topology_keys")


def _read_here(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def read(*args: Any, **kwargs: Any) -> Any:
        answer = method(*args, **kwargs)
        return list(answer) if inspect.isgenerator(answer) else answer

    return read


def _watched(kind: type[Any], hook: str, name: str, budget: TurnBudget) -> Callable[..., Any]:
    point = HOOKS[hook].point
    method = getattr(kind, hook)
    own = inspect.getattr_static(kind, hook)
    skip = 1 if isinstance(own, staticmethod | classmethod) else 0  # they are called without self

    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def steps(*args: Any, **kwargs: Any) -> Any:
            return await budget.steps(name, point, method(*args[skip:], **kwargs))

        return steps

    if hook in _LISTED:
        method = _read_here(method)
    at_edge = HOOKS[hook].may_be_async and hook not in ("permit", "pre_enqueue")

    @functools.wraps(method)
    def calls(*args: Any, **kwargs: Any) -> Any:
        try:
            answer = budget.call(name, point, method, *args[skip:], **kwargs)
        finally:
            if at_edge:  # there is no turn of the core that would end it
                budget.turn_ended()
        return budget.steps(name, point, answer) if at_edge and inspect.iscoroutine(answer) else answer

    if hook in ("sort_key", "lane_key", "passing_key"):
        return _checked_sort(calls, name, may_be_none=hook == "passing_key")
    return calls


def _checked_sort(sort_key: Callable[..., Any], name: str, *, may_be_none: bool) -> Callable[..., Any]:
    """Keys are compared with each other in a heap: all must be tuples of the same types."""
    shape: list[str] = []

    @functools.wraps(sort_key)
    def checked(*args: Any) -> Any:
        key = sort_key(*args)
        if key is None and may_be_none:
            return None
        if not isinstance(key, tuple) or not all(isinstance(one, _COMPARABLE) for one in key):
            problem = f"answered {repr(key)[:80]}, expected a tuple of numbers and texts"
            raise PluginError(name, "QueueSort", problem)
        kinds = "".join("p" if isinstance(one, Place) else "nt"[isinstance(one, str)] for one in key)
        shape[:] = shape or [kinds]
        if kinds != shape[0]:
            problem = f"answered {repr(key)[:80]}, which is not like its other keys"
            raise PluginError(name, "QueueSort", problem)
        return key

    return checked


_COMPARABLE = (int, float, str, Place)
