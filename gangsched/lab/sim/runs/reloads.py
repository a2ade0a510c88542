"""Runs in which the configuration changes while everything else goes wrong too.

TakingOver has scheduler processes take over another configuration as they do live: the order of a reload
(extension.reload) in virtual time. Every few seconds another configuration takes effect; when the storm is
over, a last one, which allows evictions. In a ReloadDuel two schedulers take each over some time apart: a
process that starts meanwhile begins with it, a paused one takes it over when it wakes. Not here: which
configurations there are (lab.sim.runs.configurations), and what runs beside them (lab.sim.runs.reload_mix).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any, Protocol

from gangsched.config import Settings
from gangsched.core.framework.profile import Profile
from gangsched.core.scheduler import Scheduler
from gangsched.lab.sim.judges.gangs.starts import reserved_by
from gangsched.lab.sim.judges.step_judges import StepJudges
from gangsched.lab.sim.making import scheduler_by
from gangsched.lab.sim.reading.received import Received
from gangsched.lab.sim.runs.configurations import UNJUDGED, Drawn, draw
from gangsched.lab.sim.runs.driver import Simulation
from gangsched.lab.sim.runs.duel import Duel, Replica
from gangsched.lab.sim.timeline import Timeline
from gangsched.lab.sim.workloads.arrivals import Workload
from gangsched.lab.sim.world.api import SimApi
from gangsched.lab.sim.world.weather import Rates
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.plugins import build_profiles

Profiles = Mapping[str, Profile]
_LEAVES_S = 0.05


class Process(Protocol):
    """What runs the process that takes it over: a simulation, or a replica of a duel."""

    scheduler: Scheduler
    received: Received
    inbox: list[ev.Event]
    api: SimApi


class TakingOver:
    """Takes a configuration over, and again once no gang of a profile that it removes is on its way."""

    def __init__(
        self,
        process: Process,
        timeline: Timeline,
        rng: Random,
        *,
        step: Callable[[Callable[[], list[ef.Effect]]], Any],
        note: Callable[..., None],
        wakes_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """wakes_s: until then the process is paused."""
        self._process = process
        self._timeline = timeline
        self._rng = rng
        self._step = step
        self._note = note
        self._wakes_s = wakes_s
        self._taken: tuple[Profiles, Settings] | None = None
        self._unlisted: Scheduler | None = None
        """The scheduler that lists all pods again, while it has not received them."""

    @property
    def is_over(self) -> bool:
        """Whether the whole configuration is in effect."""
        scheduler = self._process.scheduler
        return self._unlisted is not scheduler and not scheduler.is_retiring

    def take(self, profiles: Profiles, settings: Settings) -> None:
        """Puts these into effect."""
        scheduler = self._process.scheduler
        if scheduler.shared.profiles.keys() != profiles.keys():  # some pods had no profile until now
            self._unlisted = scheduler
            self._timeline.after(self._rng.uniform(0.0, 1.0), partial(self._list_pods_again, scheduler))
        self._taken = profiles, settings
        self._step(partial(self._reconfigured, profiles, settings))
        self._leave(self._taken)

    def _list_pods_again(self, scheduler: Scheduler) -> None:
        """Delivers a list as one batch, behind the events received before."""
        process, now_s = self._process, self._timeline.now_s
        if scheduler is process.scheduler and now_s < self._wakes_s():
            self._timeline.at(self._wakes_s(), partial(self._list_pods_again, scheduler))
            return
        self._unlisted = None
        if scheduler is process.scheduler:
            process.received.apply(process.inbox)
            batch = [*process.inbox, *map(ev.PodUpdated, process.received.pods.values())]
            process.inbox = []
            self._note("receives again", batch)
            self._step(partial(scheduler.handle, batch, now_s))

    def _leave(self, taken: tuple[Profiles, Settings]) -> None:
        scheduler, (profiles, settings) = self._process.scheduler, taken
        if taken is not self._taken or not scheduler.is_retiring:
            return
        if self._timeline.now_s < self._wakes_s() or scheduler.unfinished(profiles):
            self._timeline.after(_LEAVES_S, partial(self._leave, taken))
        else:
            self._note("a profile is gone", ())
            self._step(partial(self._reconfigured, profiles, settings))

    def _reconfigured(self, profiles: Profiles, settings: Settings) -> list[ef.Effect]:
        process = self._process
        effects, more = process.scheduler.reconfigure(profiles, settings, self._timeline.now_s)
        process.inbox += [ev.KindMissing(kind) for kind in more if kind not in process.api.streams]
        return effects


BETWEEN_S = (1.0, 12.0)
"""Time from one configuration to the next."""


class ReloadSimulation(Simulation):
    """A simulation in which the configuration changes."""

    def __init__(self, seed: int, workload: Workload, *, settings: Settings, **named: Any) -> None:
        self._draws = Random(f"{seed}-reloads")
        self._fixed = settings
        self._drawn = draw(self._draws)
        first = self._drawn.applied(settings)
        self._is_last = False
        self.n_reloads = 0
        super().__init__(seed, workload, settings=first, **{**named, "make": self._make_now})

    def _make_now(self, settings: Settings) -> Scheduler:
        return scheduler_by(self._profiles(), settings)

    def _profiles(self) -> Profiles:
        """Builds the present configuration's profiles, with all of their plugins."""
        return build_profiles(self._drawn.config)

    def _begin(self, workload: Workload) -> None:
        self._taking = TakingOver(self, self.timeline, self._draws, step=self._step, note=self._note)
        self.timeline.after(self._draws.uniform(*BETWEEN_S), self._next)
        super()._begin(workload)

    def _next(self) -> None:
        if not self._is_last:
            self._take(draw(self._draws))
            self.timeline.after(self._draws.uniform(*BETWEEN_S), self._next)

    def _take(self, drawn: Drawn) -> None:
        settings = drawn.applied(self._fixed)
        self._drawn, self.settings = drawn, settings
        self.n_reloads += 1
        reserved = reserved_by(self.scheduler)
        self.judges.take(settings, knows_queues=drawn.tree not in UNJUDGED, reserved=reserved)
        self._note(f"reloads {drawn}")
        self._taking.take(self._profiles(), settings)

    @property
    def _is_quiet(self) -> bool:
        return self._taking.is_over and super()._is_quiet

    def _new_judges(self) -> StepJudges:
        judges = StepJudges(self.settings, follows=True, knows_queues=self._drawn.tree not in UNJUDGED)
        judges.excuses = lambda group: group.scheduler_name in self.scheduler.shared.retiring
        return judges

    def _send(self, effect: ef.Effect) -> None:
        if isinstance(effect, ef.EvictPod | ef.DeletePod) and not self.settings.allow_eviction:
            self._judge(
                [f"evictions-allowed: {effect.name} is evicted, which the configuration does not allow"]
            )
        super()._send(effect)

    def settle(self) -> None:
        """Settles as other storms do, with a configuration that allows evictions."""
        self._is_last = True
        self._take(draw(self._draws, is_last=True))
        super().settle()


_APART_S = 2.0


class ReloadDuel(Duel):
    """A duel in which the configuration changes."""

    def __init__(
        self, seed: int, workload: Workload, rates: Rates, *, settings: Settings, **named: Any
    ) -> None:
        self._draws = Random(f"{seed}-reloads")
        self._fixed = settings
        self._drawn = draw(self._draws)
        self.n_reloads = 0
        first = self._drawn.applied(settings)
        super().__init__(seed, workload, rates, settings=first, **{**named, "make": self._make_now})
        self._takings = [self._taking_of(replica) for replica in self.replicas]
        self.timeline.after(self._draws.uniform(*BETWEEN_S), self._next)

    def _make_now(self, settings: Settings) -> Scheduler:
        return Scheduler(build_profiles(self._drawn.config), settings, node_capacity=4, leading=False)

    def _taking_of(self, replica: Replica) -> TakingOver:
        return TakingOver(
            replica,
            self.timeline,
            self._draws,
            step=partial(self._step, replica),
            note=partial(self.note, replica.name),
            wakes_s=lambda: replica.paused_until_s,
        )

    def _next(self) -> None:
        if self.calm_since_s:
            return
        self._change(draw(self._draws))
        for which, replica in enumerate(self.replicas):
            late = partial(self._take, which, self._drawn, replica.n_processes)
            self.timeline.after(self._draws.uniform(0.0, _APART_S), late)
        self.timeline.after(self._draws.uniform(*BETWEEN_S), self._next)

    def _change(self, drawn: Drawn) -> None:
        """Changes the file."""
        self.n_reloads += 1
        self._drawn, self.settings = drawn, drawn.applied(self._fixed)

    def _take(self, which: int, drawn: Drawn, process: int) -> None:
        replica = self.replicas[which]
        if drawn is not self._drawn or process != replica.n_processes:
            return
        if self.timeline.now_s < replica.paused_until_s:
            self.timeline.at(replica.paused_until_s, partial(self._take, which, drawn, process))
            return
        self.note(replica.name, f"reloads {drawn}", ())
        self._takings[which].take(build_profiles(drawn.config), self.settings)

    def _step(self, replica: Replica, call: Callable[[], list[ef.Effect]]) -> None:
        replica.do(call())

    def settle(self) -> None:
        """Settles as other storms do, with a configuration that allows evictions."""
        self._change(draw(self._draws, is_last=True))
        super().settle()
