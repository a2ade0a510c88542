"""ClaimSimulation and ClaimDuel: run a workload with resource claims, and with all that happens to these."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

from gangsched.core.scheduler import Scheduler
from gangsched.lab.sim.judges.places.resource_claims import ClaimRules, at_rest, unserved
from gangsched.lab.sim.runs.driver import Simulation
from gangsched.lab.sim.runs.duel import Duel
from gangsched.lab.sim.timeline import Timeline
from gangsched.lab.sim.workloads.arrivals import Workload
from gangsched.lab.sim.workloads.resource_claims import devices_of, shared_claims
from gangsched.lab.sim.world.actors import Kubelets
from gangsched.lab.sim.world.api import SimApi
from gangsched.lab.sim.world.resource_claims.controllers import ClaimControllers
from gangsched.lab.sim.world.resource_claims.objects import KINDS
from gangsched.lab.sim.world.resource_claims.trouble import ClaimTrouble
from gangsched.lab.sim.world.weather import Weather
from gangsched.model import events as ev


class ClaimWorld:
    """All that there is in a cluster for resource claims."""

    def __init__(
        self,
        seed: int,
        workload: Workload,
        api: SimApi,
        timeline: Timeline,
        weather: Weather,
        kubelets: Kubelets,
    ) -> None:
        """To be called before anything is listed."""
        first = devices_of(workload, seed)
        api.serve(KINDS)
        for kind, item in first:
            api.put_object(kind, item)
        self._api = api
        self.controllers = ClaimControllers(
            api, timeline, weather, Random(f"{seed}-claim-controllers"), first
        )
        self.trouble = ClaimTrouble(
            api,
            timeline,
            weather,
            Random(f"{seed}-claim-trouble"),
            self.controllers,
            shared_claims(workload),
        )
        self.rules = ClaimRules(api)
        kubelets.is_prepared = self.controllers.is_prepared
        self.controllers.start()
        self.trouble.start()

    def events(self) -> list[ev.Event]:
        """Returns all objects, as a new process receives them."""
        return [ev.ObjectPut(kind, item) for kind in KINDS for item in self._api.objects[kind].values()]


class _Asked:
    """The kinds that a process asks for once there is a class of devices: it decides nothing before it has
    their lists, which the store's streams may have delivered already."""

    def __init__(self) -> None:
        self._listed: dict[Scheduler, set[str]] = {}

    def after(self, scheduler: Scheduler, batch: Sequence[ev.Event]) -> list[ev.Event]:
        """Returns the ends of lists that the process has had before it asked for them."""
        listed = self._listed.setdefault(scheduler, set())
        listed.update(one.kind for one in batch if isinstance(one, ev.KindSynced))
        return [ev.KindSynced(kind) for kind in scheduler.newly_watched() if kind in listed]


class ClaimSimulation(Simulation):
    """A simulation of a workload with resource claims."""

    def _begin(self, workload: Workload) -> None:
        self.claims = ClaimWorld(self.seed, workload, self.api, self.timeline, self.weather, self.kubelets)
        self.watchers.append(lambda _: self.claims.rules.check(self.sent, self.scheduler))
        self._asked = _Asked()
        super()._begin(workload)

    def _follow_more(self, batch: Sequence[ev.Event]) -> None:
        self.inbox[:0] = self._asked.after(self.scheduler, batch)

    def settle(self) -> None:
        self.weather.clear()
        self.claims.trouble.repair()
        super().settle()
        self._judge(at_rest(self.api, [self.scheduler]))
        self._judge(unserved(self.scheduler, self._fresh, self.timeline.now_s))

    @property
    def _is_quiet(self) -> bool:
        """Devices of pods that went without having ended are free a while later; kubelets here do not say
        that a deleted pod has ended."""
        return super()._is_quiet and not self.scheduler.claimed_devices.held_s

    def _fresh(self) -> Scheduler:
        make: Callable[..., Scheduler] = self._make

        def with_claims(settings: Any) -> Scheduler:
            scheduler = make(settings)
            scheduler.handle(self.claims.events(), self.timeline.now_s)
            return scheduler

        self._make = with_claims
        try:
            return super()._fresh()
        finally:
            self._make = make


class ClaimDuel(Duel):
    """A duel over a workload with resource claims."""

    def _prepare(self, workload: Workload) -> None:
        self.claims = ClaimWorld(self.seed, workload, self.api, self.timeline, self.weather, self.kubelets)
        self._asked = _Asked()

    def follow_more(self, scheduler: Scheduler, batch: Sequence[ev.Event], inbox: list[ev.Event]) -> None:
        inbox[:0] = self._asked.after(scheduler, batch)

    def broken(self) -> Iterator[str]:
        yield from super().broken()
        yield from self.claims.rules.check({}, None)

    def settle(self) -> None:
        self.weather.clear()
        self.claims.trouble.repair()
        super().settle()
        self.judge(at_rest(self.api, [self.replicas[0].scheduler]))
