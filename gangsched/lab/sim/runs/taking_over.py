"""TakingOver: lets scheduler processes take over another configuration, as they do live.

Lives here: the order of a reload (extension.reload) in virtual time, whatever runs the process. Not here:
which configurations there are (lab.sim.runs.configurations), when one comes (lab.sim.runs.reloads).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any, Protocol

from gangsched.config import Settings
from gangsched.core.framework.profile import Profile
from gangsched.core.scheduler import Scheduler
from gangsched.lab.sim.reading.received import Received
from gangsched.lab.sim.timeline import Timeline
from gangsched.lab.sim.world.api import SimApi
from gangsched.model import effects as ef
from gangsched.model import events as ev

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
