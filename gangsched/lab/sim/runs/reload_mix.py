"""What the storm of reloads draws for a seed: a workload of another storm, and what runs beside it.

Most seeds have a scheduler as in other storms; some have out-of-tree plugins, which are switched on and off
and get other arguments, volumes, both, or two schedulers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, NamedTuple

from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.core.scheduler import Scheduler
from gangsched.lab.sim.faults.fickle_plugins import FickleGate, FicklePlugin, FickleReserve
from gangsched.lab.sim.judges.gangs.starts import reserved_by
from gangsched.lab.sim.making import scheduler_by, with_plugins
from gangsched.lab.sim.objects import OURS
from gangsched.lab.sim.runs.configurations import OTHER, Drawn
from gangsched.lab.sim.runs.driver import Simulation
from gangsched.lab.sim.runs.duel import Duel
from gangsched.lab.sim.runs.fickle_run import WithFicklePlugins, draw_devices
from gangsched.lab.sim.runs.reloads import Profiles, ReloadDuel, ReloadSimulation
from gangsched.lab.sim.runs.volume_run import VolumeSimulation
from gangsched.lab.sim.workloads.arrivals import Workload, preempting_workload, random_workload
from gangsched.lab.sim.workloads.queues import guaranteed as guaranteed_queues
from gangsched.lab.sim.workloads.queues.guaranteed import lending_workload
from gangsched.lab.sim.workloads.queues.limited import queue_limits_workload
from gangsched.lab.sim.workloads.racks import topology_workload
from gangsched.lab.sim.workloads.volumes import volumes_workload
from gangsched.lab.sim.workloads.walltimes import overtime_workload, walltimes_workload
from gangsched.plugins import build_profiles

_OTHER_SHARE = 0.15
_STAYS_ON = 0.75
_N_ARGUMENTS = 3


class FickleReloads(ReloadSimulation, WithFicklePlugins):
    """Reloads with out-of-tree plugins, which a reload switches on or off, or gives other arguments."""

    def __init__(self, seed: int, workload: Workload, *, settings: Settings, **named: Any) -> None:
        self._plugin_rng = Random(f"{seed}-moody-reloads")
        self._present: list[type[FicklePlugin]] | None = None
        self._salt = 0
        devices = draw_devices(Random(f"{seed}-devices"))
        super().__init__(seed, workload, settings=replace(settings, devices=devices), **named)

    def _make_now(self, settings: Settings) -> Scheduler:
        if not self._has_plugins:
            return super()._make_now(settings)
        return scheduler_by(self._profiles(), settings)

    def _profiles(self) -> Profiles:
        profiles = build_profiles(self._drawn.config)
        if not self._has_plugins:
            return profiles
        kinds = self._kinds if self._present is None else self._present
        self.refusals.has_gate = FickleGate in kinds
        return {
            name: with_plugins(profile, self._make_plugins(kinds, salt=self._salt))
            for name, profile in profiles.items()
        }

    def _take(self, drawn: Drawn) -> None:
        before = self._kinds if self._present is None else self._present
        self._present = [kind for kind in self._kinds if self._plugin_rng.random() < _STAYS_ON]
        self._salt = self._plugin_rng.randrange(_N_ARGUMENTS)
        if FickleReserve not in before:
            self.unasked |= reserved_by(self.scheduler)
        self.refusals.kept_out.clear()  # all are asked again
        super()._take(drawn)


class VolumeReloads(ReloadSimulation, VolumeSimulation):
    """Reloads with volumes."""


class FickleVolumeReloads(FickleReloads, VolumeSimulation):
    """Reloads with both."""


class Mixed(NamedTuple):
    """What a seed runs. workload: that of another storm."""

    workload: Callable[[int], Workload]
    simulation: Callable[..., Simulation | Duel] = ReloadSimulation


_SMALL = partial(walltimes_workload, n_arrivals=24)
_PREEMPTING = partial(preempting_workload, stubborn=False)
_ALONE = (
    Mixed(_SMALL),
    Mixed(overtime_workload),
    Mixed(guaranteed_queues.queue_guarantees_workload),
    Mixed(partial(lending_workload, over_s=45.0)),
    Mixed(partial(queue_limits_workload, over_s=45.0)),
    Mixed(_PREEMPTING),
    Mixed(random_workload),
)
BESIDE = (
    Mixed(topology_workload),
    Mixed(volumes_workload, VolumeReloads),
    Mixed(random_workload, ReloadDuel),
    Mixed(_SMALL, FickleReloads),
    Mixed(_PREEMPTING, partial(ReloadDuel, foresees=True)),
    Mixed(random_workload, FickleReloads),
    Mixed(volumes_workload, FickleVolumeReloads),
    Mixed(guaranteed_queues.queue_guarantees_workload, FickleReloads),
    Mixed(topology_workload, FickleReloads),
    Mixed(_PREEMPTING, FickleReloads),
)
"""What three seeds of eight run."""
_OF, _BESIDE = 8, (2, 3, 4)


def mixed(seed: int) -> Mixed:
    """Returns what this seed draws."""
    nth, rest = divmod(seed, _OF)
    if rest not in _BESIDE:
        return _ALONE[seed % len(_ALONE)]
    return BESIDE[(nth * len(_BESIDE) + _BESIDE.index(rest)) % len(BESIDE)]


def reloads_workload(seed: int) -> Workload:
    """Returns another storm's workload, with some groups of the profile that comes and goes."""
    return with_others(mixed(seed).workload(seed), seed)


def start_reloads(seed: int, workload: Workload, **named: Any) -> Simulation | Duel:
    """Starts what runs it."""
    return mixed(seed).simulation(seed, workload, **named)


def with_others(workload: Workload, seed: int) -> Workload:
    """Returns the workload with some groups moved to the profile that comes and goes."""
    rng, arrivals = Random(f"{seed}-profiles"), []
    for one in workload.arrivals:
        if rng.random() < _OTHER_SHARE and all(pod.spec.scheduler_name == OURS for pod in one.pods):
            pods = (replace(pod, spec=replace(pod.spec, scheduler_name=OTHER)) for pod in one.pods)
            one = replace(one, pods=tuple(pods))
        arrivals.append(one)
    return replace(workload, arrivals=tuple(arrivals))
