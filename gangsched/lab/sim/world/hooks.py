"""SimHooks: hooks of plugins at the edge, in virtual time: they answer, refuse, fail, or come too late.

A plugin's body is not simulated, except for Bind, which is a Binding like any other, and for PreBind if
`bodies` is set. A cancelled hook is not answered, as at the real edge (extension.runner); a Bind that fails
may have taken effect. Called by lab.sim.world.api.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from gangsched.core.framework.interface import Code
from gangsched.core.state.pending_hooks import BIND, PERMIT, PRE_BIND, PRE_ENQUEUE
from gangsched.lab.sim.timeline import Timeline
from gangsched.lab.sim.world.hook_bodies import HookBodies
from gangsched.lab.sim.world.weather import CALM, HookFate, Weather
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.pod_group import ATTEMPT_KEY

HOOK_DEADLINE_S = 5.0
BODY_DEADLINE_S = 60.0
"""Deadline of a plugin's own body, as a profile may set it (bindTimeoutSeconds of VolumeBinding)."""
_LONGEST_WAIT_S = 8.0
_ASKS_AGAIN_S = 2.0


class SimHooks:
    """Hooks under way, by ticket."""

    def __init__(
        self,
        timeline: Timeline,
        weather: Weather,
        answer: Callable[[ev.Event], None],
        commit: Callable[[ef.BindPod], tuple[int, str]],
    ) -> None:
        """`commit`: what the API server does with a Binding, and the code it answers with."""
        self._timeline = timeline
        self._weather = weather
        self._answer = answer
        self._commit = commit
        self._open: dict[tuple[int, int], ef.RunHook] = {}
        self._process = 0
        self.bodies: HookBodies | None = None

    @property
    def n_open(self) -> int:
        """Hooks without an answer."""
        return len(self._open)

    def run(self, effect: ef.RunHook) -> None:
        """Runs one hook, with the outcome that the weather draws."""
        ticket = (self._process, effect.ticket)
        self._open[ticket] = effect
        fate = self._weather.hook_fate()
        delay_s = HOOK_DEADLINE_S if fate is HookFate.LATE else self._weather.latency_s()
        self._timeline.after(min(delay_s, HOOK_DEADLINE_S), partial(self._end, ticket, fate))

    def cancel(self, tickets: Iterable[int]) -> None:
        for ticket in tickets:
            self._open.pop((self._process, ticket), None)

    def forget(self) -> None:
        """Drops the hooks of a process that is gone; their work takes effect or not."""
        for effect in self._open.values():
            bind = as_bind(effect)
            if bind is not None and self._weather.coin():
                self._commit(bind)
        self._open.clear()
        self._process += 1

    def _end(self, ticket: tuple[int, int], fate: HookFate) -> None:
        if self._runs(ticket, fate):
            return
        effect = self._open.pop(ticket, None)
        if effect is None:
            return
        if fate is HookFate.REFUSES and effect.point == PRE_ENQUEUE:
            self._say(effect, Code.WAIT, "the weather is bad", _ASKS_AGAIN_S)  # a "no" would be for good
        elif fate is HookFate.REFUSES:
            self._say(effect, Code.UNSCHEDULABLE, "the weather is bad")
        elif fate is not HookFate.ANSWERS:
            bind = as_bind(effect)
            if bind is not None and self._weather.coin():
                self._commit(bind)
            self._say(effect, Code.ERROR, fate.value)
        elif effect.point == BIND:
            self._bind(effect)
        elif effect.point == PERMIT and self._weather.coin():
            self._wait(effect)
        else:
            self._say(effect, Code.SUCCESS)

    def _runs(self, ticket: tuple[int, int], fate: HookFate) -> bool:
        """Runs the hook's own body, if it decides how the hook ends; returns whether it does."""
        effect = self._open.get(ticket)
        if self.bodies is None or fate is not HookFate.ANSWERS or effect is None or effect.point != PRE_BIND:
            return False
        is_open, end = (lambda: ticket in self._open), partial(self._done, ticket)
        if not self.bodies.run(effect, is_open=is_open, end=end):
            return False
        self._timeline.after(BODY_DEADLINE_S, partial(self._too_late, ticket))
        return True

    def _too_late(self, ticket: tuple[int, int]) -> None:
        """Ends a body at its deadline, as the edge does: what it waits for may never come."""
        if (effect := self._open.pop(ticket, None)) is not None:
            self._say(effect, Code.ERROR, HookFate.LATE.value)

    def _done(self, ticket: tuple[int, int], code: Code, reason: str) -> None:
        """Answers a hook whose body has ended."""
        self._say(self._open.pop(ticket), code, reason)

    def _bind(self, effect: ef.RunHook) -> None:
        bind = as_bind(effect)
        if bind is None or self._weather.coin():
            self._say(effect, Code.SKIP)
            return
        code, message = self._commit(bind)
        self._say(effect, Code.ERROR if code else Code.SUCCESS, message)

    def _wait(self, effect: ef.RunHook) -> None:
        """Answers Wait; mostly a release follows.

        In good weather it comes within the shortest window: a set of gangs that each wait for two such
        releases would hardly ever have all of them at once otherwise.
        """
        wait_s = _LONGEST_WAIT_S * (0.5 if self._weather.coin() else 1.0)
        self._say(effect, Code.WAIT, "for somebody's word", wait_s)
        process = self._process
        decision: ev.Event = ev.GroupAllowed(effect.group, effect.plugin, "the simulation")
        if self._weather.coin() and self._weather.rates.hook_refuses:
            decision = ev.GroupRejected(effect.group, "the simulation", "it may not")

        def decide() -> None:
            if process == self._process:
                self._answer(decision)

        window_s = _LONGEST_WAIT_S * 0.5 if self._weather.rates is CALM else wait_s
        self._timeline.after(window_s * 0.7, decide)

    def _say(self, effect: ef.RunHook, code: Code, reason: str = "", timeout_s: float | None = None) -> None:
        self._answer(ev.HookAnswered(effect.ticket, code.value, reason, timeout_s))


def as_bind(effect: ef.Effect) -> ef.BindPod | None:
    """The Binding that this effect may result in."""
    if isinstance(effect, ef.BindPod):
        return effect
    if isinstance(effect, ef.RunHook) and effect.point == BIND and effect.pod is not None:
        meta = effect.pod.metadata
        return ef.BindPod(
            meta.uid,
            meta.namespace,
            meta.name,
            effect.node_name,
            effect.annotations,
            str(effect.group),
            int(effect.annotations[ATTEMPT_KEY]),
            effect.cause_id,
        )
    return None
