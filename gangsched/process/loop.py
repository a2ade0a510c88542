"""The one loop around the core: events in, one group after the other, effects out.

Events wait in the Inbox and are passed to the core in batches between cycles. The GroupQueue returns the next
group and has it scheduled; each turn's effects leave through the Outbox. Nothing here decides anything, or
knows where events come from and effects go. Called by app.py.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import anyio

from gangsched.core.types.group import Group
from gangsched.kube.transport.pace import Pace
from gangsched.model.effects import Effect
from gangsched.model.events import Event
from gangsched.process.garbage_collection import GarbageCollection

# Reflectors wait when this many events are unhandled; outcomes of effects never wait, since the number in
# flight is bounded.
_INBOX_LIMIT = 10_000
# Decisions run at most the second number of pods ahead of the binds: a later decision knows more, and the
# first bind leaves at once even when thousands of gangs wait. They resume when fewer than the first number
# are left: many gangs in one turn cost much less than a turn for each.
AHEAD = (128, 256)
# Outcomes of binds are not urgent: they are handled this much later, in batches; later still under load.
_OUTCOMES_DELAY_S = 0.01
_BUSY_DELAY_S = 0.04
_MANY_OUTCOMES = 64
# The longest the loop works before it lets the sockets have a turn.
_MAX_TURN_S = 0.005


class Inbox:
    """Events on their way to the core, in order; bounded for the reflectors.

    A timer and a future instead of a cancel scope and an event: this is the loop's heartbeat, a thousand
    times a second under load.
    """

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._pace = Pace(_BUSY_DELAY_S)
        self._delay_s = _OUTCOMES_DELAY_S
        self._urgent = False
        self._sleeper: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._drained = anyio.Event()
        self._turn = anyio.Lock()
        self._n_putting = 0

    async def put(self, events: Sequence[Event]) -> None:
        """Adds a reflector's events, waiting while the inbox is full, in order of arrival.

        LeadershipGained must come after everything a reflector had to report by then.
        """
        if not self.is_full and not self._n_putting:
            self._append(events)
            return
        self._n_putting += 1
        try:
            async with self._turn:
                while self.is_full:
                    self._drained = anyio.Event()
                    await self._drained.wait()
                self._append(events)
        finally:
            self._n_putting -= 1

    def _append(self, events: Sequence[Event]) -> None:
        self._events += events
        self._urgent = True
        self.wake()

    def put_nowait(self, event: Event) -> None:
        """Adds an outcome of an effect; handled a little later, so that many share one turn."""
        self._events.append(event)
        n_events = len(self._events)
        if n_events == 1 and self._sleeper is not None:
            self._wake_in(self._delay_s)
        elif n_events == _MANY_OUTCOMES:
            self.wake()

    @property
    def is_empty(self) -> bool:
        """Whether everything has been taken."""
        return not self._events

    @property
    def is_full(self) -> bool:
        """Whether reflectors have to wait."""
        return len(self._events) >= _INBOX_LIMIT

    def take(self) -> list[Event]:
        """Returns all events since the last take."""
        events, self._events = self._events, []
        self._urgent = False
        if events:
            self._drained.set()
            self._delay_s = self._pace.hold_s(len(events), time.monotonic()) or _OUTCOMES_DELAY_S
        return events

    def wake(self) -> None:
        """Wakes the sleeper."""
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    async def wait(self, timeout_s: float | None) -> None:
        """Returns when there are events (a little later for outcomes), or after the timeout."""
        if self._urgent:
            return
        if self._events:
            timeout_s = self._delay_s if timeout_s is None else min(timeout_s, self._delay_s)
        self._sleeper = asyncio.get_running_loop().create_future()
        if timeout_s is not None:
            self._wake_in(timeout_s)
        try:
            await self._sleeper
        finally:
            self._sleeper = None
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _wake_in(self, delay_s: float) -> None:
        """Wakes the sleeper after the delay, unless it is woken before."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + delay_s:
                return
            self._timer.cancel()
        self._timer = loop.call_later(delay_s, self.wake)


class Outbox:
    """Effects on their way out: nothing leaves a process that may not act."""

    def __init__(
        self,
        submit: Callable[[Sequence[Effect]], None],
        *,
        may_act: Callable[[], bool],
        through: Iterable[Callable[[Sequence[Effect]], Sequence[Effect]]] = (),
    ) -> None:
        """`through`: called in order once a turn with its effects, even if there are none; each returns the
        effects for the next one, the last those for `submit`.
        """
        self._submit = submit
        self._may_act = may_act
        self.through = list(through)

    def put(self, effects: Sequence[Effect]) -> None:
        """Ends a turn with these effects. Drops a follower's: its leader reports them."""
        for each in self.through:
            effects = each(effects)
        if effects and self._may_act():
            self._submit(effects)


class Decider(Protocol):
    """The core's interface to the loop: the Scheduler, or a wrapper of it."""

    def handle(self, events: Sequence[Event], now_s: float) -> list[Effect]: ...

    def advance(self, now_s: float) -> list[Effect]: ...

    def pop(self) -> Group | None: ...

    def schedule(self, group: Group, now_s: float) -> list[Effect]: ...

    def next_deadline_s(self) -> float | None: ...


class GroupQueue:
    """The async queue of pod groups: `await pop()` sleeps until a group may be tried."""

    def __init__(
        self,
        scheduler: Decider,
        inbox: Inbox,
        outbox: Outbox,
        *,
        before_events: Callable[[Sequence[Event]], None],
        after_events: Callable[[Sequence[Event]], None],
        n_binds_waiting: Callable[[], int],
        garbage: GarbageCollection,
        foresees: Callable[[], bool] | None = None,
    ) -> None:
        """`before_events` gets a turn's events before the core does, `after_events` after it.

        `foresees`: requests what the next group will need before it is tried; returns whether the sockets
        must have a turn for that.
        """
        self.scheduler = scheduler
        """May be replaced between two turns."""
        self._inbox = inbox
        self._outbox = outbox
        self._before_events = before_events
        self._after_events = after_events
        self._n_binds_waiting = n_binds_waiting
        self._garbage = garbage
        self._foresees = foresees
        self._tried_s = -math.inf
        self._is_waiting = False
        self._yield_at_s = 0.0
        self._goes_on = False
        self._is_closed = False

    def close(self) -> None:
        """Stops returning groups; a waiting `pop` goes on applying events and deadlines."""
        self._is_closed = True

    def idle_s(self, now_s: float) -> float:
        """Returns how long no group has been tried; 0 while work waits or is under way."""
        is_idle = self._is_waiting and self._inbox.is_empty and not self._n_binds_waiting()
        return now_s - self._tried_s if is_idle else 0.0

    async def run(self) -> None:
        """Schedules one group after the other, until cancelled."""
        while True:
            group = await self.pop()
            self._outbox.put(self.scheduler.schedule(group, time.monotonic()))

    def apply_events(self, now_s: float) -> bool:
        """Applies the events that have arrived so far; returns whether there were any."""
        events = self._inbox.take()
        if events:
            self._before_events(events)
            self._outbox.put(self.scheduler.handle(events, now_s))
            self._after_events(events)
        return bool(events)

    async def pop(self) -> Group:
        """Returns the next group in QueueSort order; applies events and, at least once a turn, deadlines."""
        while True:
            now_s = time.monotonic()
            if now_s >= self._yield_at_s or self._garbage.is_young_due:
                await anyio.lowlevel.checkpoint()
                # Not before: the last turn's decisions are on their way now.
                self._garbage.between_turns()
                now_s = time.monotonic()
                self._yield_at_s = now_s + _MAX_TURN_S
                self._advance(now_s)
            self.apply_events(now_s)
            if self._is_closed:
                self._goes_on = False
            elif self._n_binds_waiting() < AHEAD[self._goes_on]:
                if self._foresees is not None and self._foresees():
                    await anyio.lowlevel.checkpoint()
                    continue
                group = self.scheduler.pop()
                if group is not None:
                    self._goes_on = True
                    self._tried_s = now_s
                    return group
            self._goes_on = False
            if self._advance(now_s) or self._garbage.is_young_due:
                continue
            deadline_s = self.scheduler.next_deadline_s()
            self._is_waiting = True
            try:
                await self._inbox.wait(None if deadline_s is None else deadline_s - now_s)
            finally:
                self._is_waiting = False
            self._yield_at_s = time.monotonic() + _MAX_TURN_S

    def _advance(self, now_s: float) -> bool:
        """Handles due deadlines; returns whether there were any."""
        deadline_s = self.scheduler.next_deadline_s()
        if deadline_s is None or deadline_s > now_s:
            return False
        self._outbox.put(self.scheduler.advance(now_s))
        return True
