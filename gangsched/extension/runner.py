"""HookRunner: carries out RunHook: a plugin's hook runs under its deadline, and its answer is an event.

Lives here: which hooks run, which wait, which are cancelled. Not here: which hook is called when, and what an
answer means (core.state.pending_hooks and its callers). A hook that misses its deadline gets an error as its
answer: it is cancelled, and nothing waits for the cancellation. Called by process.app, through the
dispatcher.

| point | at once | when the group is taken back | when the process is told to stop | when the lease is lost |
|---|---|---|---|---|
| PreEnqueue | 32 for each plugin | cancelled | cancelled | cancelled |
| Permit, PreBind | 64 each | cancelled | cancelled | cancelled |
| Bind | 64 | runs to its answer | runs to its answer, within the grace period | cancelled |
| PostBind | 64 | runs to its end | runs to its end, within the grace period | cancelled |
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import structlog

from gangsched.core.framework.interface import Code, QueueView, Status
from gangsched.core.framework.plugin_calls import bad_fields
from gangsched.core.framework.points.queueing import bad_raise
from gangsched.core.framework.supports import SupportsHookTimeout, serves
from gangsched.core.state.pending_hooks import BIND, PERMIT, POST_BIND, PRE_BIND, PRE_ENQUEUE
from gangsched.core.types.group import Group
from gangsched.errors import GangschedError
from gangsched.extension.handle import Handle
from gangsched.model.effects import CancelHooks, RunHook
from gangsched.model.events import Event, HookAnswered
from gangsched.model.text.printable import in_words

_log = structlog.get_logger(__name__)

_METHODS = {
    PRE_ENQUEUE: "pre_enqueue",
    PERMIT: "permit",
    PRE_BIND: "pre_bind",
    BIND: "bind",
    POST_BIND: "post_bind",
}
_NO = {Code.SUCCESS, Code.SKIP, Code.UNSCHEDULABLE, Code.UNRESOLVABLE, Code.PENDING}
_MAY_SAY = {PRE_ENQUEUE: _NO | {Code.WAIT}, PERMIT: _NO | {Code.WAIT}, PRE_BIND: _NO, BIND: _NO}
# A gang of ten thousand starts ten thousand hooks; this many run, the others wait as data.
MAX_RUNNING = 64
# The core asks each PreEnqueue plugin about a few pods at a time: one that hangs blocks no other.
_MOST_RUNNING = {PRE_ENQUEUE: 1024}
_MAX_REASON = 4096
_STOP_STEP_S = 0.01

Find = Callable[[RunHook], object | None]
Groups = Callable[[RunHook], tuple[Group, Mapping[str, Group]] | None]


class _Running:
    """A running hook; `is_over` once it has been answered or its answer is no longer needed."""

    __slots__ = ("effect", "is_over", "task", "timer")

    def __init__(self, effect: RunHook) -> None:
        self.effect = effect
        self.is_over = False
        self.task: asyncio.Task[Any] | None = None
        self.timer: asyncio.TimerHandle | None = None


class HookRunner:
    """Hooks by ticket: waiting, or running."""

    def __init__(
        self,
        *,
        emit_nowait: Callable[[Event], None],
        find: Find,
        groups: Groups,
        handle: Callable[[str], Handle],
        timeout_s: Callable[[], float],
        may_run: Callable[[], bool],
        view: Callable[[], QueueView | None] = lambda: None,
    ) -> None:
        """`find`: the plugin that an effect names, in the current profiles; `groups`: the group and its
        siblings, for Permit; `handle`: a plugin's handle, by name; `may_run`: whether this process may
        act; `view`: what PreEnqueue sees."""
        self._emit = emit_nowait
        self._find = find
        self._groups = groups
        self._handle = handle
        self._timeout_s = timeout_s
        self._may_run = may_run
        self._view = view
        self._waiting: dict[str, deque[RunHook]] = {point: deque() for point in _METHODS}
        self._running: dict[int, _Running] = {}
        self._n_running = dict.fromkeys(_METHODS, 0)
        self._is_stopping = False

    @property
    def n_busy(self) -> int:
        """Hooks that run or wait."""
        return len(self._running) + sum(map(len, self._waiting.values()))

    def submit(self, effect: RunHook | CancelHooks) -> None:
        """Take an effect; never blocks."""
        if isinstance(effect, CancelHooks):
            self._cancel(frozenset(effect.tickets))
        elif not self._is_stopping:
            self._waiting[effect.point].append(effect)
            self._start(effect.point)

    def _cancel(self, tickets: frozenset[int]) -> None:
        for point, waiting in self._waiting.items():
            if any(effect.ticket in tickets for effect in waiting):
                self._waiting[point] = deque(one for one in waiting if one.ticket not in tickets)
        for ticket in tickets:
            running = self._running.get(ticket)
            if running is not None:
                self._end(running)

    def cancel_all(self, points: tuple[str, ...] = tuple(_METHODS)) -> None:
        """Cancel all hooks of these points; no more answers are sent."""
        for point in points:
            self._waiting[point].clear()
        for running in [one for one in self._running.values() if one.effect.point in points]:
            self._end(running)  # no answer: nothing would receive it

    async def drain(self, grace_s: float) -> bool:
        """Start nothing new; hooks that cannot be undone (Bind, PostBind) may finish within `grace_s`.

        Returns whether no Bind hook was cancelled: the bind of one that was may still land.
        """
        self._is_stopping = True
        self.cancel_all((PRE_ENQUEUE, PERMIT, PRE_BIND))
        for waiting in self._waiting.values():
            waiting.clear()
        with anyio.move_on_after(grace_s):
            while self.n_busy:  # noqa: ASYNC110  (once per process)
                await anyio.sleep(_STOP_STEP_S)
        is_done = all(running.effect.point != BIND for running in self._running.values())
        self.cancel_all()
        return is_done

    # -- one hook --------------------------------------------------------------------------------------

    def _start(self, point: str) -> None:
        while self._waiting[point] and self._n_running[point] < _MOST_RUNNING.get(point, MAX_RUNNING):
            effect = self._waiting[point].popleft()
            if not self._may_run():
                return
            running = self._running[effect.ticket] = _Running(effect)
            self._n_running[point] += 1
            try:
                self._run(running)
            except Exception as error:
                self._failed(running, error)

    def _run(self, running: _Running) -> None:
        effect = running.effect
        plugin = self._find(effect)
        if plugin is None:
            self._answer(
                running, Status(Code.ERROR, f"profile {effect.profile} has no such plugin (any more)")
            )
            return
        answer = getattr(plugin, _METHODS[effect.point])(*self._arguments(effect))
        if not inspect.isawaitable(answer):
            self._said(running, answer)
            return
        loop = asyncio.get_running_loop()
        own_s = float(plugin.hook_timeout_s) if serves(plugin, SupportsHookTimeout) else 0.0
        limit_s = own_s or self._timeout_s()
        running.task = asyncio.ensure_future(answer)
        running.task.add_done_callback(lambda task: self._done(running, task))
        running.timer = loop.call_later(limit_s, self._late, running, limit_s)

    def _arguments(self, effect: RunHook) -> tuple[Any, ...]:
        handle = self._handle(effect.plugin)
        if effect.point == PERMIT:
            found = self._groups(effect)
            if found is None:
                raise LookupError(f"group {effect.group} is gone")
            return (*found, handle)
        if effect.point == PRE_ENQUEUE:
            return (effect.pod, self._view(), handle)
        if effect.point == BIND:
            return (effect.pod, effect.node_name, effect.annotations, handle)
        return (effect.pod, effect.node_name, handle)

    def _done(self, running: _Running, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            if not running.is_over:
                self._answer(running, Status(Code.ERROR, "it cancelled itself"))
            return
        error = task.exception()  # retrieved even if unused, else asyncio complains
        if running.is_over:
            return
        if error is not None:
            self._failed(running, error)
        else:
            self._said(running, task.result())

    def _late(self, running: _Running, limit_s: float) -> None:
        if not running.is_over:
            self._answer(running, Status(Code.ERROR, f"no answer in {limit_s:g} s"))

    def _failed(self, running: _Running, error: BaseException) -> None:
        why = str(error) if isinstance(error, GangschedError) else in_words(error)
        if not isinstance(error, Exception):
            _log.error(
                "a hook raised something other than an Exception", plugin=running.effect.plugin, err=why
            )
        self._answer(running, Status(Code.ERROR, why))

    def _said(self, running: _Running, answer: object) -> None:
        point = running.effect.point
        if point == POST_BIND:
            self._answer(running, Status())
        elif not isinstance(answer, Status):
            self._answer(running, Status(Code.ERROR, f"answered {type(answer).__name__}, expected a Status"))
        elif problem := bad_fields(answer) or (bad_raise(answer) if point == PRE_ENQUEUE else ""):
            self._answer(running, Status(Code.ERROR, problem))
        elif answer.code not in _MAY_SAY[point]:
            why = f"answered {answer.code.value}" + (f": {answer.reason}" if answer.reason else "")
            self._answer(running, Status(Code.ERROR, why))
        else:
            self._answer(running, answer)

    def _answer(self, running: _Running, status: Status) -> None:
        self._end(running)
        reason = status.reason[:_MAX_REASON]
        self._emit(
            HookAnswered(running.effect.ticket, status.code.value, reason, status.timeout_s, status.raise_by)
        )
        if not self._is_stopping:
            asyncio.get_running_loop().call_soon(self._start, running.effect.point)

    def _end(self, running: _Running) -> None:
        running.is_over = True
        if self._running.pop(running.effect.ticket, None) is not None:
            self._n_running[running.effect.point] -= 1
        if running.timer is not None:
            running.timer.cancel()
        if running.task is not None and not running.task.done():
            running.task.cancel()
