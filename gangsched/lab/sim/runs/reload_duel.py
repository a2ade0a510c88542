"""ReloadDuel: two schedulers that take over each new configuration some time apart.

A process that starts meanwhile begins with it; a paused one takes it over when it wakes. Called by
lab.sim.runs.reload_mix.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from gangsched.config import Settings
from gangsched.core.scheduler import Scheduler
from gangsched.lab.sim.runs.configurations import Drawn, draw
from gangsched.lab.sim.runs.duel import Duel, Replica
from gangsched.lab.sim.runs.reloads import BETWEEN_S
from gangsched.lab.sim.runs.taking_over import TakingOver
from gangsched.lab.sim.workloads.arrivals import Workload
from gangsched.lab.sim.world.weather import Rates
from gangsched.model import effects as ef
from gangsched.plugins import build_profiles

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
