"""SimFence: the fence of one process in virtual time, over the real state machine (kube.election.fence).

Lives here: the one object, requests to it that are late, lost or answered by a front end, and the bumps of a
new leader. Not here: what an answer means (kube.election.fence), bumps that the core asks for
(lab.sim.world.api). A request that its client gave up on may still take effect, as with binds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from gangsched.core.state.pending_hooks import BIND, PRE_BIND
from gangsched.kube.election.fence import Fence, Fenced, FenceRecord, FenceState, Step
from gangsched.kube.election.fence_list import CLAIMS, Line
from gangsched.kube.election.steps import Create, Get, Update
from gangsched.lab.sim.timeline import Timeline
from gangsched.lab.sim.world.weather import BindFate, Weather
from gangsched.model.effects import (
    BindPod,
    BumpClaim,
    BumpPod,
    CancelBinds,
    CancelHooks,
    Effect,
    PatchClaim,
    RunHook,
)
from gangsched.model.events import BindCancelled, ClaimCancelled, Event

# Small, so that the list is written while binds are in flight too.
_MAX_AHEAD = 8
# Shorter than in kube.election.fence_keeper, so that processes that die often get any work done.
_TIMEOUT_S = 1.0
_AGAIN_S = 0.05
_LOST = (BindFate.LOST_BEFORE, BindFate.LOST_AFTER, BindFate.LATE)


class FenceObject:
    """The one object, in the server's state."""

    def __init__(self) -> None:
        self.record: FenceRecord | None = None
        self.version = 0

    def write(self, step: Create[FenceRecord] | Update[FenceRecord]) -> bool:
        """Compare-and-swap; returns whether it was done."""
        if self.version != (int(step.version) if isinstance(step, Update) else 0):
            return False
        self.record, self.version = step.record, self.version + 1
        return True


class SimFence:
    """One process's fence, from its start to its end."""

    def __init__(
        self,
        identity: str,
        there: FenceObject,
        timeline: Timeline,
        weather: Weather,
        *,
        is_on_its_way: Callable[[str], bool],
        bump: Callable[[BumpPod | BumpClaim, Callable[[], None]], None],
        taken: Callable[[], None],
        release: Callable[[Sequence[Fenced]], None],
        deposed: Callable[[], None] = lambda: None,
        line: Line = tuple,
    ) -> None:
        """`bump` calls back when it is done; `taken`: no write of an earlier leader can land any more."""
        self.fence = Fence(identity, is_on_its_way=is_on_its_way, line=line, max_ahead=_MAX_AHEAD)
        self._there = there
        self._timeline = timeline
        self._weather = weather
        self._bump = bump
        self._taken = taken
        self._release = release
        self._deposed = deposed
        self._is_asking = False
        self._n_to_bump = -1
        self._is_over = False

    @property
    def is_quiet(self) -> bool:
        """Whether nothing waits for it, and no request is on its way."""
        return not (self._is_asking or self.fence.n_waiting)

    def begin(self) -> None:
        """Swaps the epoch, bumps the listed pods and claims, and is then ready."""
        self._go_on()

    def end(self) -> None:
        """Ends it with its process: its requests may still arrive, and are not answered."""
        self._is_over = True

    def submit(self, effect: Fenced) -> None:
        self.fence.submit(effect)
        self._release_listed()
        self._go_on()

    def expect(self) -> bool:
        """Lists the pods first in line before they are placed."""
        is_asked = self.fence.expect()
        self._go_on()
        return is_asked

    def _release_listed(self) -> None:
        released = self.fence.take_released()
        if released:
            self._release(released)

    def holds_back(self, effect: Effect, answer: Callable[[Event], None]) -> bool:
        """Whether the effect waits here, as in kube.effects.dispatcher; an effect that withdraws others
        withdraws them here too."""
        if isinstance(effect, BindPod | PatchClaim):
            self.submit(effect)
            return True
        if isinstance(effect, RunHook) and effect.point in (PRE_BIND, BIND):
            self.submit(effect)
            return True
        taken: Sequence[Fenced] = ()
        if isinstance(effect, CancelBinds):
            cause = effect.cause_id
            taken = self.fence.take_back(
                lambda one: isinstance(one, BindPod | PatchClaim) and one.cause_id == cause
            )
        elif isinstance(effect, CancelHooks):
            tickets = effect.tickets
            taken = self.fence.take_back(lambda one: isinstance(one, RunHook) and one.ticket in tickets)
        for one in taken:
            if isinstance(one, BindPod):
                answer(BindCancelled(one.uid, one.attempt))
            elif isinstance(one, PatchClaim):
                answer(ClaimCancelled(one.uid, one.ticket))
        return False

    def _go_on(self) -> None:
        if self._is_over or self._is_asking:
            return
        step = self.fence.next()
        if step is not None:
            self._is_asking = True
            self._ask(step)
        elif self.fence.state is FenceState.OWNED and self.fence.n_waiting:
            self._timeline.after(_AGAIN_S, self._go_on)  # it is full

    def _ask(self, step: Step) -> None:
        fate, there_s = self._weather.bind_fate(), self._weather.latency_s()
        timeout_s = min(self._weather.timeout_s(), _TIMEOUT_S)
        if fate in _LOST or there_s > timeout_s:
            if fate is not BindFate.LOST_BEFORE and not isinstance(step, Get):
                late_s = there_s + (timeout_s if fate is BindFate.LATE else 0.0)
                self._timeline.after(late_s, partial(self._there.write, step))
            self._timeline.after(timeout_s, partial(self._answered, self.fence.unanswered))
        elif fate is BindFate.ARRIVES:
            self._timeline.after(there_s, partial(self._arrived, step))
        else:
            if fate is BindFate.PROXIED and self._weather.coin() and not isinstance(step, Get):
                self._timeline.after(there_s, partial(self._there.write, step))
            self._timeline.after(there_s + _AGAIN_S, partial(self._answered, self.fence.unanswered))

    def _arrived(self, step: Step) -> None:
        fence, there = self.fence, self._there
        answer: Callable[[], None] = fence.unanswered
        if not isinstance(step, Get):
            if there.write(step):
                answer = partial(fence.written, str(there.version))
        elif there.record is None:
            answer = fence.absent
        else:
            answer = partial(fence.found, there.record, str(there.version))
        self._timeline.after(self._weather.latency_s(), partial(self._answered, answer))

    def _answered(self, answer: Callable[[], None]) -> None:
        if self._is_over:
            return
        self._is_asking = False
        answer()
        if self.fence.state is FenceState.DEPOSED:
            self.end()
            self._deposed()
            return
        if self.fence.state is FenceState.TAKEN and self._n_to_bump < 0:
            self._bump_inherited()
        self._release_listed()
        self._go_on()

    def _bump_inherited(self) -> None:
        assert self.fence.inherited is not None, "nobody spoils the list here"
        listed = list(self.fence.inherited.values())
        self._n_to_bump = len(listed)
        for one in listed:
            make = BumpClaim if one.kind == CLAIMS else BumpPod
            self._bump(make(one.uid, one.namespace, one.name, "takeover"), self._bumped)
        if not listed:
            self._ready()

    def _bumped(self) -> None:
        self._n_to_bump -= 1
        if not self._n_to_bump and not self._is_over:
            self._ready()

    def _ready(self) -> None:
        self.fence.bumped()
        self._taken()
        self._go_on()
