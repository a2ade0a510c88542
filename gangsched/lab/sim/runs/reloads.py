"""ReloadSimulation: a storm in which the configuration changes while everything else goes wrong too.

Every few seconds another configuration takes effect (lab.sim.runs.configurations); when the storm is over, a
last one, which allows evictions. Called by lab.sim.runs.reload_mix, which chooses what runs beside it.
"""

from __future__ import annotations

from random import Random
from typing import Any

from gangsched.config import Settings
from gangsched.core.scheduler import Scheduler
from gangsched.lab.sim.judges.gangs.starts import reserved_by
from gangsched.lab.sim.judges.step_judges import StepJudges
from gangsched.lab.sim.making import scheduler_by
from gangsched.lab.sim.runs.configurations import UNJUDGED, Drawn, draw
from gangsched.lab.sim.runs.driver import Simulation
from gangsched.lab.sim.runs.taking_over import Profiles, TakingOver
from gangsched.lab.sim.workloads.arrivals import Workload
from gangsched.model import effects as ef
from gangsched.plugins import build_profiles

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
