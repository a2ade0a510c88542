"""The assembly: reflectors, the async queue, the core, the dispatcher and the lease around one loop.

Data flows one way: reflectors and dispatcher put events into the inbox; the queue passes them to the core in
batches between cycles, and has it schedule one group after the other; the core's effects go through the
outbox to the dispatcher. No decisions here.
Called by command.scheduler; the bench and end-to-end tests start it as a process.

| with leader election | the core | what leaves the process | then |
|---|---|---|---|
| following | receives everything, decides nothing | nothing | |
| the lease is gained | as above | kube.take_over: the fence, bumps, reads | all received: LeadershipGained |
| leading | decides | its effects | |
| the lease or the fence is lost, or expired unnoticed | is no longer called | nothing | exit code 1 |
| SIGTERM | no new binds; takes answers only | writes begun, the last fence | lease released, exit code 0 |
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import anyio
import structlog
from anyio.abc import TaskGroup

from gangsched.config import SchedulerConfig
from gangsched.core.framework.observer import Observer
from gangsched.core.framework.plan import first_of
from gangsched.core.framework.profile import Profile
from gangsched.core.scheduler import Scheduler
from gangsched.extension.edge import Edge
from gangsched.kube.access.credentials import Credentials
from gangsched.kube.client import ApiClient
from gangsched.kube.effects.dispatcher import Dispatcher
from gangsched.kube.metrics_server import MetricsServer
from gangsched.model.effects import Effect
from gangsched.model.events import Event, LeadershipGained
from gangsched.plugins import build_profiles, metrics_server_s
from gangsched.process import optional
from gangsched.process.defects import Defects
from gangsched.process.following import Following
from gangsched.process.forecasting import Forecasting
from gangsched.process.garbage_collection import GarbageCollection
from gangsched.process.leadership import Leadership
from gangsched.process.loop import Decider, GroupQueue, Inbox, Outbox
from gangsched.process.recording import Recorded, Recording

if TYPE_CHECKING:
    from gangsched.extension.budget import TurnBudget
    from gangsched.extension.source import ConfigSource
    from gangsched.journal.state import BuildCore
    from gangsched.shadow.published import Reports, ShadowSettings
    from gangsched.telemetry.service import Tracing
    from gangsched.web.listening import WebSettings
    from gangsched.web.metrics.measures import Measures
    from gangsched.web.serving.service import Web

_log = structlog.get_logger(__name__)

# glibc returns a freed block to the kernel at once if it is larger than any freed before (128 KiB at first),
# and then every 4 KiB of the next block cause a page fault. Freeing one large block raises that threshold for
# pages of lists.
_KEPT_BYTES = 4 * 2**20


class SchedulerApp:
    """One scheduler process."""

    def __init__(
        self,
        config: SchedulerConfig,
        credentials: Credentials,
        *,
        seed: int | None = None,
        even_ties: bool = True,
        web: WebSettings | None = None,
        tracing: Tracing | None = None,
        shadow: ShadowSettings | None = None,
        source: ConfigSource | None = None,
        recording: Recording | None = None,
        garbage: GarbageCollection | None = None,
    ) -> None:
        """`even_ties`: lone pods use equally good nodes evenly, instead of always the first.

        `web`: the port of health and metrics, which is bound here. Raises: ConfigError, if that fails.
        `tracing` must be closed by the caller after `run`. `source`: where the configuration is reread from,
        and the origin of its out-of-tree plugins; None: never reread. `shadow`: decide and write nothing;
        gangsched.shadow must have prepared the configuration. `recording`: the journal of the core's inputs;
        closed by the caller. Not with `shadow`.
        """
        rng = Random(seed)
        instance = os.uname().nodename
        self.client = ApiClient(credentials)
        self.inbox = Inbox()
        self._defects = Defects()
        self._tracing = tracing
        measures = optional.measures(tracing) if web is not None else None
        self.config = config
        self._plugins = source.plugins if source is not None else None
        self._acts = shadow is None
        self._budget: TurnBudget | None = None
        self._asking, extenders = optional.extenders(config, self.client, self.inbox.put)
        self._extenders = extenders
        pick: Callable[[int], int] = rng.randrange if even_ties else first_of
        leads = not config.leader_election.leader_elect and not config.settings.fence
        self.scheduler = self._new_scheduler(leads, pick, optional.observer(measures, tracing))
        self.leadership = self._new_leadership(instance, rng)
        self.dispatcher = self._new_dispatcher(instance, rng)
        may_act = self.leadership.may_act
        self._forecasting = Forecasting(self.scheduler, self.inbox.put, may_act=may_act)
        self.edge = Edge(self.scheduler, self.client, emit_nowait=self.inbox.put_nowait, may_act=may_act)
        self.reload = optional.reload(source, self) if source is not None and shadow is None else None
        self.recording = recording or Recording()
        self.may_record = self.recording.prepare
        self._recorded = Recorded(self.scheduler, self._core_like, leads, self._plugins)
        decider: Decider = self.recording.begin(self._recorded, config)
        self._reports: Reports | None = None
        if shadow is not None:
            decider, self._reports = optional.shadow(self.scheduler, self.build(config), shadow)
        # Requests to extenders only read, so a follower sends its own too.
        through = [self._turn_ended, *([] if self._asking is None else [self._asking.taken])]
        self.outbox = Outbox(self.dispatcher.submit, may_act=may_act, through=through)
        self._garbage = garbage or GarbageCollection()
        self.queue = self._new_queue(decider)
        watches, kinds = self.scheduler.watches, self.scheduler.kinds
        self.following = Following(
            self.client, self.inbox.put, rng=rng, watches=watches, needed=kinds, replaced=self._lost
        )
        period_s = metrics_server_s(self.scheduler.shared.profiles)
        self._metrics_server = MetricsServer(self.client, self.inbox.put, period_s=period_s)
        self._rng = rng
        self.is_stopping = False
        self._everything: TaskGroup | None = None
        self._web = self._pages(web, measures) if web is not None and measures is not None else None

    def _new_scheduler(self, leads: bool, pick: Callable[[int], int], observer: Observer | None) -> Scheduler:
        return Scheduler(
            self.build(self.config),
            self.config.settings,
            leading=leads,
            observer=observer,
            pick=pick,
            extenders=self._extenders,
            guard=self._defects.tell,
            wall_ahead_s=round(time.time() - time.monotonic(), 3),
        )

    def _core_like(self, config: SchedulerConfig) -> BuildCore:
        """Returns a builder of cores like ours, for readers of what ours has recorded."""
        leads = not config.leader_election.leader_elect and not config.settings.fence
        more: dict[str, Any] = {"leading": leads, "extenders": self._extenders}
        return lambda given: Scheduler(self.build(config), config.settings, **given._asdict(), **more)

    def _new_leadership(self, instance: str, rng: Random) -> Leadership:
        return Leadership(
            self.client,
            self.config,
            instance=instance,
            rng=rng,
            acts=self._acts,
            is_on_its_way=self.scheduler.is_on_its_way,
            in_line=self.scheduler.in_line,
            claims_of=self.scheduler.claims_of,
            ended=self._lost,
            queues=self.scheduler.shared.queues,
            put=self.inbox.put,
        )

    def _new_dispatcher(self, instance: str, rng: Random) -> Dispatcher:
        settings = self.config.settings
        return Dispatcher(
            self.client,
            emit_nowait=self.inbox.put_nowait,
            rng=rng,
            controller=settings.reporting_controller,
            instance=instance,
            n_binds=settings.parallelism,
            may_send=self.leadership.may_act,
            to_plugins=lambda effect: self.edge.take(effect),
            fence=self.leadership.fence,
        )

    def _new_queue(self, decider: Decider) -> GroupQueue:
        return GroupQueue(
            decider,
            self.inbox,
            self.outbox,
            before_events=_nothing if self._tracing is None else self._tracing.note_events,
            after_events=self._events_handled,
            n_binds_waiting=lambda: self.dispatcher.n_binds_ahead,
            garbage=self._garbage,
            foresees=self.leadership.foresees,
        )

    @property
    def web_port(self) -> int:
        """The port of the pages; 0: none."""
        return 0 if self._web is None else self._web.port

    def _pages(self, settings: WebSettings, measures: Measures) -> Web:
        from gangsched.web.serving.service import Web

        return Web(settings, measures, self)

    async def run(self, *, grace_s: float = 10.0, on_signals: bool = True) -> int:
        """Schedules until SIGTERM or SIGINT, then stops within `grace_s`; until `stop` without `on_signals`.

        Returns the exit code: 1 when the lease was lost, as kube-scheduler does; a fresh start is the one way
        to follow again that is exercised every day. Raises: ConfigError (the API server is too old for the
        configuration).
        """
        self._garbage.begin()
        bytes(_KEPT_BYTES)  # never touched, and freed at once
        if self._acts and self.config.settings.devices.in_labels:
            await optional.require_binding_labels(self.client, self._rng, source=self.config.source)
        async with anyio.create_task_group() as everything:
            self._everything = everything
            if on_signals:
                everything.start_soon(self._stop_on_signal, grace_s)
            await self.following.look_for_newer_fields()
            self.following.start(everything)
            everything.start_soon(self._metrics_server.run)
            everything.start_soon(self.dispatcher.run)
            everything.start_soon(self.leadership.remember)
            everything.start_soon(self.leadership.notice_others)
            everything.start_soon(self._forecasting.run)
            everything.start_soon(self._garbage.run, lambda: self.queue.idle_s(time.monotonic()))
            if self._reports is not None:
                everything.start_soon(self._reports.run)
            elif (elector := self.leadership.elector) is not None:
                everything.start_soon(self.leadership.elect, elector, self._gained)
            elif self.leadership.fence is not None:
                self._gained()
            else:
                self.dispatcher.warm()
            if self._asking is not None:
                everything.start_soon(self._asking.run)
            if self.reload is not None:
                everything.start_soon(partial(self.reload.run, on_signals=on_signals))
            everything.start_soon(self.queue.run)
            if self._web is not None:
                everything.start_soon(self._web.run)
        await self.edge.close()
        self.client.close()
        self.recording.stop()
        if self._reports is not None:
            self._reports.say()
        if self._tracing is not None:
            self._tracing.note_events(self.inbox.take())  # answers after the last decision
        return 1 if self.leadership.has_lost or self.following.is_of_another else 0

    async def _stop_on_signal(self, grace_s: float) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for number in signals:
                _log.info("stopping", signal=signal.Signals(number).name, grace_s=grace_s)
                break
        await self.stop(grace_s)

    async def stop(self, grace_s: float) -> None:
        """Stops deciding, waits up to `grace_s` for requests in flight; then `run` ends."""
        self.is_stopping = True
        self.queue.close()
        until_s = time.monotonic() + grace_s
        ran = await self.edge.drain(grace_s)
        done = await self._settle(until_s) and ran
        is_settled = done or (ran and self.inbox.is_empty and self.dispatcher.is_settled)
        await self.leadership.give_up(is_settled=is_settled)
        _log.info("stopped", everything_answered=done)
        self._cancel()

    async def _settle(self, until_s: float) -> bool:
        """Waits for answers and, if they leave a bind in doubt, for the core's reads about it."""
        while await self.dispatcher.drain(until_s - time.monotonic()):
            if not self.queue.apply_events(time.monotonic()):
                return True
        return False

    # -- the configuration ---------------------------------------------------------------------------

    def build(self, config: SchedulerConfig) -> dict[str, Profile]:
        """Profiles with all their plugins. Raises: ConfigError."""
        known = self._plugins
        outside = known.factories if known is not None else {}
        profiles = build_profiles(config, outside, extenders=self._extenders, with_hooks=self._acts)
        if known is not None and outside:
            self._budget = known.budget
            known.budget.budget_s = config.settings.plugin_budget_s
        return profiles

    def reconfigure(
        self, profiles: dict[str, Profile], config: SchedulerConfig
    ) -> tuple[Sequence[Effect], Sequence[str]]:
        """Makes the core decide by these from now on; returns effects, and further kinds to follow."""
        self.config = config
        now_s, recorder = time.monotonic(), self.recording.recorder
        text = (
            self.scheduler.reconfigure(profiles, config.settings, now_s)
            if recorder is None
            else recorder.reconfigure(profiles, config, now_s)
        )
        self.queue.scheduler = self.recording.change(self._recorded, config)
        return text

    def wake(self) -> None:
        """Lets the scheduling loop look for a group to try, without an event."""
        self.inbox.wake()

    def follow(self, kinds: Sequence[str]) -> None:
        """Follow these kinds too; no decisions are made until they are listed."""
        self.following.unlisted |= {*kinds}
        self.following.add(kinds)

    async def may_follow(self, kinds: Sequence[str]) -> None:
        """Raises: ConfigError, if the API server does not let us list one of them."""
        await self.following.may_follow(kinds)

    def ask_metrics_server(self, period_s: float) -> None:
        """Poll metrics-server this often from now on; 0: not at all."""
        self._metrics_server.ask_every(period_s)

    def emit_all_pods(self) -> None:
        """Emit all pods again: some that were skipped belong to a new profile."""
        self.following.reflectors["pods"].emit_all()

    # -- what goes in and out --------------------------------------------------------------------------

    def submit(self, effects: Sequence[Effect]) -> None:
        """Sends effects from outside a turn: those of a new configuration."""
        self.outbox.put(effects)

    def _turn_ended(self, effects: Sequence[Effect]) -> Sequence[Effect]:
        if self._budget is not None:
            self._budget.turn_ended()
        return effects if self._tracing is None else self._tracing.turn_ended(effects)

    def _events_handled(self, events: Sequence[Event]) -> None:
        """Logs when the first lists are complete."""
        if self._web is not None:
            self._web.note_events(events)
        more = self.scheduler.newly_watched()
        self.following.unlisted |= self.scheduler.unlisted & set(more)
        self.following.add(more)
        if not self.following.note_lists(events):
            return
        self._garbage.settle()
        decides = self.scheduler.is_synced
        _log.info("synced, scheduling" if decides else "synced, following", **_sizes(self.scheduler))

    # -- leading ---------------------------------------------------------------------------------------

    def _gained(self) -> None:
        if self._everything is not None and not self.is_stopping:
            self.dispatcher.warm()
            self._everything.start_soon(self._take_over)

    async def _take_over(self) -> None:
        """Leads once no earlier leader's bind can succeed, and the watch has shown those that did."""
        following = self.following
        await self.leadership.take_over(following.pods, lambda: following.claims, self.dispatcher.bumps)
        await self.inbox.put([LeadershipGained()])
        _log.info("leading", **_sizes(self.scheduler))

    def _lost(self) -> None:
        """From here on no bind, nor anything else, leaves the process."""
        self.dispatcher.cancel_all()
        self.edge.cancel_all()
        self._cancel()

    def _cancel(self) -> None:
        if self._everything is not None:
            self._everything.cancel_scope.cancel()


def _nothing(_: Sequence[Event]) -> None:
    """Ignores notifications."""


def _sizes(scheduler: Scheduler) -> dict[str, int]:
    statistics = scheduler.statistics()
    return {
        "nodes": statistics["nodes"],
        "pods": statistics["pods"],
        "groups": sum(statistics["groups"].values()),
    }
