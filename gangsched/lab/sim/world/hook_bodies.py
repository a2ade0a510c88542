"""HookBodies: runs the real bodies of plugins' hooks in virtual time, one request after the other.

A body is a coroutine that asks its Handle for objects and waits; each request takes time and may be lost, as
the weather draws. Nothing here is asyncio: calls on the timeline resume a body. Called by
lab.sim.world.hooks; lab.sim.world.storage answers for the server.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator, Iterator
from functools import partial
from typing import Any, NamedTuple

from gangsched.core.framework.interface import Code, Status
from gangsched.errors import ApiError
from gangsched.lab.sim.timeline import Timeline
from gangsched.lab.sim.world.weather import BindFate, Weather
from gangsched.model import effects as ef
from gangsched.model.objects import Pod

Answer = Callable[[str, Any], Any]
"""The server's answer to a path: to a GET if there is no body, else to a patch. Raises: ApiError."""
_LOST = (BindFate.LOST_BEFORE, BindFate.LOST_AFTER, BindFate.LATE)
_TIMEOUT_S = 3.0


class _Request(NamedTuple):
    """A request of a body. sleep_s: a pause instead of one."""

    path: str = ""
    body: Any = None
    sleep_s: float | None = None


@types.coroutine
def _ask(request: _Request) -> Generator[_Request, Any, Any]:
    return (yield request)


class _Handle:
    """As much of a plugin's Handle as these bodies use."""

    async def get(self, path: str) -> Any:
        return await _ask(_Request(path))

    async def patch(self, path: str, body: Any) -> Any:
        return await _ask(_Request(path, body))

    async def sleep(self, seconds: float) -> None:
        await _ask(_Request(sleep_s=seconds))


class _Body(NamedTuple):
    pod: Pod
    steps: Coroutine[_Request, Any, Status]
    is_open: Callable[[], bool]
    end: Callable[[Code, str], None]


class HookBodies:
    """Runs the bodies of hooks."""

    def __init__(
        self,
        timeline: Timeline,
        weather: Weather,
        plugin_of: Callable[[ef.RunHook], Any],
        answer: Answer,
    ) -> None:
        self._timeline = timeline
        self._weather = weather
        self._plugin_of = plugin_of
        self._answer = answer
        self._patched: list[tuple[_Body, str, Any]] = []

    def under_way(self) -> Iterator[tuple[Pod, str, Any]]:
        """Yields the pod, the path and the patch of each request of the bodies that have not ended."""
        self._patched = [one for one in self._patched if one[0].is_open()]
        yield from ((body.pod, path, patch) for body, path, patch in self._patched)

    def run(
        self, effect: ef.RunHook, *, is_open: Callable[[], bool], end: Callable[[Code, str], None]
    ) -> bool:
        """Runs a PreBind's body; False if the plugin has none here. is_open: whether its end is still
        awaited."""
        plugin = self._plugin_of(effect)
        if plugin is None:
            return False
        steps = plugin.pre_bind(effect.pod, effect.node_name, _Handle())
        assert effect.pod is not None, "PreBind is asked for a pod"
        self._go_on(_Body(effect.pod, steps, is_open, end), None)
        return True

    def _go_on(self, body: _Body, answer: Any) -> None:
        if not body.is_open():
            body.steps.close()
            return
        try:
            request = body.steps.throw(answer) if isinstance(answer, ApiError) else body.steps.send(answer)
        except StopIteration as done:
            body.end(done.value.code, done.value.reason)
            return
        if request.sleep_s is not None:
            self._timeline.after(request.sleep_s, partial(self._go_on, body, None))
            return
        if request.body is not None:
            self._patched.append((body, request.path, request.body))
        fate = self._weather.bind_fate()
        if fate is BindFate.LOST_BEFORE:
            self._timeline.after(_TIMEOUT_S, partial(self._go_on, body, ApiError("no answer")))
            return
        self._timeline.after(self._weather.latency_s(), partial(self._reach, body, request, fate))

    def _reach(self, body: _Body, request: _Request, fate: BindFate) -> None:
        """Handles a request at the server, whether or not its process is still there."""
        answer: Any
        try:
            answer = self._answer(request.path, request.body)
        except ApiError as error:
            answer = error
        if fate in _LOST:
            answer = ApiError("no answer")
        delay_s = _TIMEOUT_S if fate in _LOST else self._weather.latency_s()
        self._timeline.after(delay_s, partial(self._go_on, body, answer))
