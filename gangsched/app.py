"""The assembly: reflectors, the async queue, the core and the dispatcher around one loop.

The one direction: reflectors and dispatcher put events into the inbox; the queue hands them to the core in
batches between cycles and gives out the group whose turn it is; its effects go to the dispatcher. Nothing
here decides anything. Called by cli.py; the bench and end-to-end tests start it as a process.
"""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Sequence
from random import Random

import anyio
import structlog

from gangsched.config import SchedulerConfig
from gangsched.core.group import Group
from gangsched.core.scheduler import Scheduler
from gangsched.kube.client import ApiClient
from gangsched.kube.credentials import Credentials
from gangsched.kube.decode import all_kinds
from gangsched.kube.dispatcher import Dispatcher
from gangsched.kube.watch import Reflector
from gangsched.model.events import Event
from gangsched.plugins import build_profiles

_log = structlog.get_logger(__name__)

# Reflectors wait when this many events are not handled yet; outcomes of effects are never refused, they
# are bounded by what is in flight.
_INBOX_LIMIT = 10_000
# Decisions run ahead of the binds by this many pods and no further: a later decision knows more, and the
# first bind leaves at once even when thousands of gangs are waiting.
_BINDS_AHEAD = 64
# Outcomes of binds are not urgent: handled this much later, many at a time.
_OUTCOMES_DELAY_S = 0.004
# The longest the loop works without letting the sockets have a turn.
_MAX_TURN_S = 0.005


class Inbox:
    """Events on their way to the core, in order; bounded for the reflectors."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._wake = anyio.Event()
        self._drained = anyio.Event()
        self._lazy = False

    async def put(self, events: Sequence[Event]) -> None:
        """For reflectors: waits while the inbox is full."""
        while len(self._events) >= _INBOX_LIMIT:
            self._drained = anyio.Event()
            await self._drained.wait()
        self._events += events
        self._wake.set()

    def put_nowait(self, event: Event) -> None:
        """For outcomes of effects; noticed a little later, so that many are handled in one turn."""
        self._events.append(event)
        self._lazy = True

    def take(self) -> list[Event]:
        """Everything that has come since the last take."""
        events, self._events = self._events, []
        self._lazy = False
        if events:
            self._drained.set()
        return events

    def wake(self) -> None:
        """Lets a sleeper look."""
        self._wake.set()

    async def wait(self, timeout_s: float | None) -> None:
        """Returns when events are there, or after the timeout."""
        if self._lazy:
            timeout_s = _OUTCOMES_DELAY_S if timeout_s is None else min(timeout_s, _OUTCOMES_DELAY_S)
        self._wake = anyio.Event()
        if not self._events or self._lazy:
            with anyio.move_on_after(timeout_s):
                await self._wake.wait()


class GroupQueue:
    """The async queue of pod groups: `await pop()` sleeps until a group may be tried."""

    def __init__(self, scheduler: Scheduler, inbox: Inbox, dispatcher: Dispatcher) -> None:
        self._scheduler = scheduler
        self._inbox = inbox
        self._dispatcher = dispatcher
        self._yield_at_s = 0.0

    async def pop(self) -> Group:
        """The next group in QueueSort order; applies events and deadlines while it waits."""
        while True:
            now_s = time.monotonic()
            if now_s >= self._yield_at_s:
                await anyio.lowlevel.checkpoint()
                now_s = time.monotonic()
                self._yield_at_s = now_s + _MAX_TURN_S
            events = self._inbox.take()
            if events:
                self._dispatcher.submit(self._scheduler.handle(events, now_s))
            deadline_s = self._scheduler.next_deadline_s()
            if deadline_s is not None and deadline_s <= now_s:
                self._dispatcher.submit(self._scheduler.advance(now_s))
                continue
            if self._dispatcher.n_binds_waiting < _BINDS_AHEAD:
                group = self._scheduler.pop()
                if group is not None:
                    return group
            await self._inbox.wait(None if deadline_s is None else deadline_s - now_s)
            self._yield_at_s = time.monotonic() + _MAX_TURN_S


class SchedulerApp:
    """One scheduler process."""

    def __init__(self, config: SchedulerConfig, credentials: Credentials, *, seed: int | None = None) -> None:
        rng = Random(seed)
        self._client = ApiClient(credentials)
        self.inbox = Inbox()
        self.scheduler = Scheduler(build_profiles(config), config.settings)
        self.dispatcher = Dispatcher(
            self._client,
            emit_nowait=self._outcome,
            rng=rng,
            controller=config.settings.reporting_controller,
            instance=os.uname().nodename,
            n_binds=config.settings.parallelism,
        )
        self.queue = GroupQueue(self.scheduler, self.inbox, self.dispatcher)
        self._reflectors = [
            Reflector(self._client.pool(limit=4), kind, self.inbox.put, rng=rng) for kind in all_kinds()
        ]
        self._stopping = False

    async def run(self, *, grace_s: float = 10.0) -> None:
        """Schedules until SIGTERM or SIGINT, then finishes what is in flight within `grace_s`."""
        async with anyio.create_task_group() as everything:
            everything.start_soon(self._stop_on_signal, everything.cancel_scope, grace_s)
            for reflector in self._reflectors:
                everything.start_soon(reflector.run)
            everything.start_soon(self.dispatcher.run)
            self.dispatcher.warm()
            everything.start_soon(self._schedule)
        await self._client.aclose()

    async def _schedule(self) -> None:
        synced = False
        while True:
            group = await self.queue.pop()
            if not synced:
                synced = True
                # What was listed at the start lives long: the collector need not look at it again.
                gc.collect()
                gc.freeze()
                _log.info("synced, scheduling", **_sizes(self.scheduler))
            if self._stopping:
                return
            self.dispatcher.submit(self.scheduler.schedule(group, time.monotonic()))

    async def _stop_on_signal(self, scope: anyio.CancelScope, grace_s: float) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for number in signals:
                _log.info("stopping", signal=signal.Signals(number).name, grace_s=grace_s)
                break
        self._stopping = True
        done = await self.dispatcher.drain(grace_s)
        _log.info("stopped", everything_answered=done)
        scope.cancel()

    def _outcome(self, event: Event) -> None:
        self.inbox.put_nowait(event)


def _sizes(scheduler: Scheduler) -> dict[str, int]:
    statistics = scheduler.statistics()
    return {
        "nodes": statistics["nodes"],
        "pods": statistics["pods"],
        "groups": sum(statistics["groups"].values()),
    }
