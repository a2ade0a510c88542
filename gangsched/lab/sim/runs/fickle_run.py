"""FickleSimulation: a storm in which out-of-tree plugins change their answers, beside claims, failing
devices, queues, preemption and evictions that are refused.

A seed draws which of these occur, and how the cluster is configured. Not here: the plugins
(lab.sim.faults.fickle_plugins), their spells (lab.sim.faults.plugin_spells), what else goes wrong
(lab.sim.world.weather, lab.sim.faults.mischief).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import partial
from random import Random
from typing import Any, Literal

from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.config.devices import DeviceSettings
from gangsched.config.queueing import QueueingSettings
from gangsched.core.framework.interface import Code
from gangsched.core.scheduler import Scheduler
from gangsched.core.state.pending_hooks import PRE_ENQUEUE
from gangsched.core.types.group import Group, MemberState
from gangsched.lab.sim.faults.fickle_plugins import FickleGate, FicklePlugin, FickleReserve, some_kinds
from gangsched.lab.sim.faults.plugin_spells import Refusals, Spells
from gangsched.lab.sim.judges.gangs.starts import reserved_by
from gangsched.lab.sim.making import make_scheduler
from gangsched.lab.sim.reading.received import Received
from gangsched.lab.sim.runs.driver import Simulation
from gangsched.lab.sim.workloads.arrivals import Workload, preempting_workload, random_workload
from gangsched.lab.sim.workloads.queues import guaranteed as guaranteed_queues
from gangsched.lab.sim.workloads.walltimes import overtime_workload, walltimes_workload
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.pod_group import GroupKey

LOOKED_AGAIN_S = 315.0
"""An unschedulable group is retried after 300 s, whatever has changed; then a backoff ends."""
_NO = (Code.UNSCHEDULABLE.value, Code.UNRESOLVABLE.value, Code.ERROR.value)
_OVERRUN: tuple[Literal["none", "yield", "evict"], ...] = ("none", "yield", "evict")
_WORKLOADS = (
    partial(walltimes_workload, n_arrivals=24),
    partial(overtime_workload),
    guaranteed_queues.queue_guarantees_workload,
    partial(preempting_workload, stubborn=False),
    random_workload,
)


def fickle_workload(seed: int) -> Workload:
    """Returns the workload of another storm."""
    return _WORKLOADS[seed % len(_WORKLOADS)](seed)


def _has_queues(seed: int) -> bool:
    return _WORKLOADS[seed % len(_WORKLOADS)] is guaranteed_queues.queue_guarantees_workload


def draw_settings(seed: int, settings: Settings) -> Settings:
    """Returns the settings with what else a seed draws."""
    rng = Random(f"{seed}-settings")
    bound: int | None = rng.choice((1, 1, 2, None))
    queueing = QueueingSettings(bound, mode="hard", on_overrun=rng.choice(_OVERRUN))
    if _has_queues(seed):
        settings = replace(settings, queues=guaranteed_queues.SETTINGS.queues)
    return replace(
        settings,
        devices=draw_devices(rng),
        on_partial_bind=rng.choice(("complete", "unwind")),
        permit_wait_s=rng.choice((3.0, 15.0)),
        queueing=queueing if rng.random() < 0.85 else None,
    )


def draw_devices(rng: Random) -> DeviceSettings:
    """Draws what happens to pods whose device fails."""
    return DeviceSettings(
        on_failure=rng.choice(("none", "evictGang", "evictMember")),
        failure_grace_s=rng.choice((0.0, 5.0)),
    )


class _ReceivedWithHooks(Received):
    """Also records groups that a plugin at the edge has refused."""

    def __init__(self, refusals: Refusals) -> None:
        super().__init__()
        self._asked: dict[int, ef.RunHook] = {}
        self._refusals = refusals

    def apply(self, events: Iterable[ev.Event]) -> None:
        super().apply(events)
        for event in events:
            if isinstance(event, ev.GroupRejected):
                self._refused(event.group)
            elif isinstance(event, ev.HookAnswered) and (asked := self._asked.pop(event.ticket, None)):
                self._answered(asked, event.code)

    def asks(self, effect: ef.RunHook) -> None:
        """Records that the process has this hook called."""
        self._asked[effect.ticket] = effect
        if effect.point == PRE_ENQUEUE and effect.pod is not None:
            self._refusals.let_in.discard(effect.pod.metadata.uid)

    def _answered(self, asked: ef.RunHook, code: str) -> None:
        if asked.point == PRE_ENQUEUE and asked.pod is not None:
            if code == Code.SUCCESS.value:
                self._refusals.let_in.add(asked.pod.metadata.uid)
        elif code in _NO:
            self._refused(asked.group)

    def _refused(self, key: GroupKey) -> None:
        for group in self._refusals.groups():
            if group.key == key:
                self._refusals.refused(group, n_more=1)  # in the turn that this answer gives it


class WithFicklePlugins(Simulation):
    """A simulation in which plugins refuse, raise and wait in spells.

    Schedulers get the plugins of `_make_plugins`, except in `_fresh`: by then they agree to everything, some
    only once the edge has answered.
    """

    refusals: Refusals
    """Refusals of the present process."""

    def _begin(self, workload: Workload) -> None:
        self._kinds = some_kinds(self.seed)
        spells = (Spells(one.name, self.seed, self.timeline, self.weather) for one in self._kinds)
        self._spells = {spells.name: spells for spells in spells}
        self._has_plugins = True
        self.unasked: set[str] = set()
        """UIDs of pods that were reserved while no plugin kept a record."""
        self.watchers += [_judge_refusals, _judge_record]
        super()._begin(workload)

    def _make_plugins(self, kinds: Iterable[type[FicklePlugin]], *, salt: int = 0) -> list[FicklePlugin]:
        """Makes plugins of these kinds for one profile."""
        return [kind(self._spells[kind.name], self.refusals, salt) for kind in kinds]

    def _fresh(self) -> Scheduler:
        self._has_plugins = False
        try:
            return super()._fresh()
        finally:
            self._has_plugins = True

    def _start_process(self, **named: Any) -> None:
        self.unasked.clear()
        self.refusals = Refusals(self.timeline, has_gate=FickleGate in self._kinds)
        super()._start_process(**named)
        self.refusals.groups = self.scheduler.shared.groups.values
        self.received = self._received = _ReceivedWithHooks(self.refusals)
        others = self.judges.excuses
        self.judges.excuses = lambda group: others(group) or self._may_be_refused(group)

    def _may_be_refused(self, group: Group) -> bool:
        """Whether it may wait for a plugin that has refused it."""
        is_over = self.calm_since_s and self.timeline.now_s > self.calm_since_s
        return not is_over and self.refusals.waits_since(group)

    def _send(self, effect: ef.Effect) -> None:
        if isinstance(effect, ef.RunHook):
            self._received.asks(effect)
        super()._send(effect)

    def settle(self) -> None:
        """Settles as other storms do, once whatever plugins refused has been retried in calm weather."""
        self.weather.clear()
        self.mischief.repair()
        self.run_for(LOOKED_AGAIN_S)
        super().settle()


class FickleSimulation(WithFicklePlugins):
    """The same, with settings drawn from the seed."""

    def __init__(self, seed: int, workload: Workload, *, settings: Settings, **named: Any) -> None:
        settings = draw_settings(seed, settings)
        super().__init__(seed, workload, settings=settings, **{**named, "make": self._make_with_plugins})

    def _make_with_plugins(self, settings: Settings) -> Scheduler:
        make = guaranteed_queues.make_with_queues if _has_queues(self.seed) else make_scheduler
        return make(settings, *(self._make_plugins(self._kinds) if self._has_plugins else ()))


def _judge_refusals(sim: Simulation) -> Iterator[str]:
    """no-endless-refusals: no group is refused over and over again."""
    assert isinstance(sim, WithFicklePlugins)
    yield from sim.refusals.too_many


def _judge_record(sim: Simulation) -> Iterator[str]:
    """nothing-leaks: a plugin's record of reservations agrees with the cache."""
    assert isinstance(sim, WithFicklePlugins)
    if sim.unasked:
        sim.unasked &= reserved_by(sim.scheduler)
    for name, profile in sim.scheduler.shared.profiles.items():
        plugin: Any = profile.plugin(FickleReserve.name)
        if plugin is not None:
            yield from _differences(sim, name, plugin.held)


def _differences(sim: WithFicklePlugins, profile: str, recorded: Collection[str]) -> Iterator[str]:
    pods = sim.scheduler.shared.cache.pods
    mine = [info for info in pods.values() if info.pod.spec.scheduler_name == profile]
    held = {info.uid for info in mine if info.state is MemberState.ASSUMED}
    ran = (MemberState.BOUND, MemberState.DONE)
    known = {
        info.uid
        for info in mine
        if info.uid in recorded and info.state not in ran and not info.pod.spec.node_name
    }
    if (held ^ known) - sim.unasked:
        yield f"nothing-leaks: reserved {sorted(held)}, in the plugin's record {sorted(known)}"
