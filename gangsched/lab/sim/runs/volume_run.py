"""VolumeSimulation: runs a workload with volumes, and with all that happens to these."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from gangsched.core.scheduler import Scheduler
from gangsched.lab.sim.judges.places.volumes import VolumeRules, unserved
from gangsched.lab.sim.runs.driver import Simulation
from gangsched.lab.sim.workloads.arrivals import Workload
from gangsched.lab.sim.workloads.volumes import storage_of
from gangsched.lab.sim.world.hook_bodies import HookBodies
from gangsched.lab.sim.world.storage import Storage
from gangsched.model import effects as ef
from gangsched.plugins.volumes.volume_binding import VolumeBinding


class VolumeSimulation(Simulation):
    """A simulation of a workload with volumes."""

    def _begin(self, workload: Workload) -> None:
        first = storage_of(workload, self.seed)
        self.storage = Storage(
            self.api, self.timeline, self.weather, Random(f"{self.seed}-storage-actors"), first
        )
        self.api.hooks.bodies = HookBodies(self.timeline, self.weather, self._plugin, self.storage.answer)
        self.storage.start()
        rules = VolumeRules()
        self.watchers.append(lambda _: rules.check(self.api, self.received, self.sent, self.timeline.now_s))
        super()._begin(workload)

    def _plugin(self, effect: ef.RunHook) -> Any:
        is_ours = effect.plugin == VolumeBinding.name
        return self.scheduler.shared.profiles[effect.profile].plugin(effect.plugin) if is_ours else None

    def settle(self) -> None:
        self.weather.clear()
        self.storage.repair()
        super().settle()
        self._judge(unserved(self.scheduler, self.received, self.api.objects, self.judges.is_kept_out))

    def _fresh(self) -> Scheduler:
        make: Callable[..., Scheduler] = self._make

        def with_storage(settings: Any) -> Scheduler:
            scheduler = make(settings)
            scheduler.handle(list(self.storage.events()), self.timeline.now_s)
            return scheduler

        self._make = with_storage
        try:
            return super()._fresh()
        finally:
            self._make = make
