"""A fault of ours at any place of the core, once a turn: whatever was done by half, every promise holds.

Any method of the core's rooms is made to raise as it begins or as it ends, while ordinary gangs come, wait,
are bound, preempted, unwound and go. With no more faults everybody starts: nobody has been lost.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.config import default_config
from gangsched.core.binding.bind_sender import BindSender
from gangsched.core.binding.binder import Binder
from gangsched.core.binding.fenced_binds import FencedBinds
from gangsched.core.binding.group_outcome import GroupOutcome
from gangsched.core.binding.pre_bind import PreBind
from gangsched.core.binding.staggered_bind import StaggeredBind
from gangsched.core.cache.cache import Cache
from gangsched.core.cache.devices.ledger import DeviceLedger
from gangsched.core.cache.nodes.images import ImageTable
from gangsched.core.cache.nodes.table import NodeTable
from gangsched.core.cache.nodes.usage_trackers import UsageTrackers
from gangsched.core.cache.pods.index import PodIndex
from gangsched.core.cache.recount import take_out
from gangsched.core.cache.template_table import TemplateTable
from gangsched.core.device_audit.device_health import DeviceHealth
from gangsched.core.device_audit.drift import DriftAudit
from gangsched.core.groups.attempts.attempts import Attempts
from gangsched.core.groups.attempts.commits import Commits
from gangsched.core.groups.attempts.permits import Permits
from gangsched.core.groups.attempts.placer import Placer
from gangsched.core.groups.attempts.reservations import Reservations
from gangsched.core.groups.group_spec import GroupSpecs
from gangsched.core.groups.members.membership import Membership
from gangsched.core.groups.members.pod_similarity import SimilarPods
from gangsched.core.groups.owners import Owners
from gangsched.core.groups.reconciler import Reconciler
from gangsched.core.kept.nominations import Nominations
from gangsched.core.scheduler import Scheduler
from gangsched.core.state.line.queue import SchedulingQueue
from gangsched.core.state.reporter import Reporter
from gangsched.core.state.state import SharedState
from gangsched.core.turns import containment, refused_pods
from gangsched.core.turns.containment import Containment
from gangsched.core.turns.invariants import find_broken
from gangsched.core.turns.steps import Defect
from gangsched.core.types.group import Group, GroupState
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.core.units import Units
from gangsched.lab.sim.objects import STRANGER, at, make_node, make_pod
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.devices.labels import allocation_of
from gangsched.model.objects import Pod
from gangsched.model.pod_group import GROUP_LABEL, MIN_MEMBERS_KEY
from gangsched.plugins import IN_TREE, build_profiles
from tests.support.inside import Inside
from tests.support.scenario import gang

ROOMS: tuple[type, ...] = (
    *(
        UsageTrackers,
        Attempts,
        Commits,
        Placer,
        DriftAudit,
        Binder,
        BindSender,
        FencedBinds,
        GroupOutcome,
        Cache,
        DeviceHealth,
        DeviceLedger,
        Reconciler,
        Group,
        ImageTable,
    ),
    *(
        Membership,
        Owners,
        NodeTable,
        Nominations,
        GroupSpecs,
        Permits,
        PodIndex,
        PodTemplate,
        PreBind,
        Reservations,
        SimilarPods,
    ),
    *(Reporter, SchedulingQueue, TemplateTable, StaggeredBind, SharedState, Units),
)
# What clearing up after a fault is made of, or what the loop asks between turns: not a step of any object's.
NOT_STEPS = {
    *("set_time", "due", "rebuild", "_line_up", "due_s", "pop_active"),
    *("emit", "count", "mark_group", "profile_of", "configure", "take_effects"),
}


class Fault(Exception):
    """Ours."""


class Faults:
    """Raises once a turn at most, in one of `chance` calls."""

    def __init__(self, rng: Random, chance: int) -> None:
        self._rng = rng
        self._chance = chance
        self.is_on = False
        self.raised: list[str] = []

    def due(self, where: str) -> None:
        if self.is_on and self._rng.randrange(self._chance) == 0:
            self.is_on = False
            self.raised.append(where)
            raise Fault(where)

    def off_in(self, real: Any) -> Any:
        """What clears up is not made to fail as well."""

        def calm(*args: Any) -> Any:
            was_on, self.is_on = self.is_on, False
            try:
                return real(*args)
            finally:
                self.is_on = was_on

        return calm

    def wrapped(self, where: str, real: Any) -> Any:
        def faulty(*args: Any, **more: Any) -> Any:
            self.due(f"{where} begins")
            done = real(*args, **more)
            self.due(f"{where} ends")
            return done

        return faulty


def _ids(pod: Pod) -> Iterator[str]:
    """The devices that its annotation says it has."""
    if pod.spec.node_name:
        for sets in allocation_of(pod)[0].values():
            for ids in sets.values():
                yield from ids


def _is_a_step(name: str, real: Any) -> bool:
    if name in NOT_STEPS or name.startswith("__"):
        return False
    return inspect.isfunction(real) and not inspect.isgeneratorfunction(real)


@contextmanager
def faults_in(rng: Random, chance: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faults]:
    faults = Faults(rng, chance)
    with monkeypatch.context() as patched:
        for room in ROOMS:
            for name, real in list(vars(room).items()):
                if _is_a_step(name, real):
                    patched.setattr(room, name, faults.wrapped(f"{room.__name__}.{name}", real))
        for module in (containment, refused_pods):
            patched.setattr(module, "take_out", faults.off_in(take_out))
        patched.setattr(Containment, "_answered", faults.off_in(Containment._answered))
        yield faults


class Town:
    """A guarded scheduler, a server that answers a bind as it likes, and gangs that come and go.

    Behind a fence a bind without an answer may land at any later time, unless its pod has changed, and bumps
    take a while.
    """

    def __init__(self, seed: int, faults: Faults, *, fence: bool) -> None:
        self.rng = Random(seed)
        self.faults = faults
        self.defects: list[Defect] = []
        self.version, self.now_s = 0, 1.0
        self.pods: dict[str, Pod] = {}
        self.late: list[ef.BindPod] = []
        self.bumps: list[ef.BumpPod] = []
        config = default_config(IN_TREE)
        settings = replace(config.settings, fence=fence)
        self.scheduler = Scheduler(build_profiles(config), settings, guard=self.defects.append)
        self.turn(lambda: self.scheduler.handle([ev.KindSynced(k) for k in self.scheduler.kinds], self.now_s))
        for i in range(4):
            self.node(f"n{i}")

    def turn(self, do: Any, *, faulty: bool = True) -> None:
        self.faults.is_on = faulty
        try:
            effects = do()
        finally:
            self.faults.is_on = False
        broken = find_broken(self.scheduler.shared)
        assert not broken, (self.faults.raised[-2:], [d.story[-700:] for d in self.defects[-1:]], broken)
        for effect in effects or ():
            self.answer(effect)

    def answer(self, effect: ef.Effect) -> None:
        if isinstance(effect, ef.BindPod) and effect.uid in self.pods:
            said = self.rng.randrange(4 if self.is_fenced else 10)
            if said == 0:
                self.tell(ev.BindFailed(effect.uid, effect.attempt, 500, "", "no"))
            elif said == 1:
                if self.is_fenced:
                    self.late.append(effect)
                self.tell(ev.BindUnknown(effect.uid, effect.attempt, "timed out"))
            elif (bound := self.landed(effect)) is not None:
                self.tell(ev.BindSucceeded(effect.uid, effect.attempt), ev.PodUpdated(bound))
            else:
                self.tell(ev.BindUnknown(effect.uid, effect.attempt, "409 Conflict"))
        elif isinstance(effect, ef.BumpPod):
            self.bumps.append(effect)
        elif isinstance(effect, ef.GetPod):
            self.tell(ev.PodRead(effect.uid, self.pods.get(effect.uid)))
        elif isinstance(effect, ef.EvictPod | ef.DeletePod) and effect.uid in self.pods:
            self.tell(ev.EvictionSucceeded(effect.uid), ev.PodDeleted(self.pods.pop(effect.uid)))
        elif isinstance(effect, ef.WritePodCondition) and effect.uid in self.pods and self.rng.random() < 0.5:
            self.tell(ev.PodUpdated(self.stored(self.pods[effect.uid])))  # the echo

    @property
    def is_fenced(self) -> bool:
        return self.scheduler.shared.settings.fence

    def bump(self) -> None:
        pod = self.pods.get(uid := self.bumps.pop(0).uid)
        self.tell(ev.PodBumped(uid, pod if pod is None or pod.spec.node_name else self.stored(pod)))

    def landed(self, bind: ef.BindPod) -> Pod | None:
        """The pod as bound; None: its version is another, or it has a node."""
        pod = self.pods.get(bind.uid)
        if pod is None or pod.spec.node_name:
            return None
        if bind.resource_version and bind.resource_version != pod.metadata.resource_version:
            return None
        notes = {**(pod.metadata.annotations or {}), **bind.annotations}
        meta, spec = replace(pod.metadata, annotations=notes), replace(pod.spec, node_name=bind.node)
        pod = self.stored(replace(pod, metadata=meta, spec=spec))
        owner: dict[tuple[str, str], str] = {}
        for other in self.pods.values():
            for device_id in () if other.is_terminal else _ids(other):
                first = owner.setdefault((other.spec.node_name, device_id), other.key)
                assert first == other.key, f"{device_id} is with {first} and {other.key}"
        return pod

    def tell(self, *events: ev.Event) -> None:
        self.turn(lambda: self.scheduler.handle(events, self.now_s))

    def stored(self, pod: Pod) -> Pod:
        self.version += 1
        pod = replace(pod, metadata=replace(pod.metadata, resource_version=str(self.version)))
        self.pods[pod.metadata.uid] = pod
        return pod

    def node(self, name: str) -> None:
        node = make_node(name, gpus=self.rng.choice((4, 8)), rack=f"r{self.rng.randrange(2)}")
        self.version += 1
        meta = replace(node.metadata, resource_version=str(self.version))
        self.tell(ev.NodeUpdated(replace(node, metadata=meta)))

    def live(self, steps: int) -> None:
        for step in range(steps):
            self.now_s += self.rng.choice((0.0, 0.1, 2.0, 20.0))
            self.happen(step)
            for _ in range(3):
                self.turn(lambda: self.scheduler.schedule_next(self.now_s))
            due_s = self.scheduler.next_deadline_s()
            if due_s is not None and due_s <= self.now_s:
                self.turn(lambda: self.scheduler.advance(self.now_s))

    def happen(self, step: int) -> None:
        rng = self.rng
        if self.bumps and rng.random() < 0.3:
            self.bump()
        if self.late and rng.random() < 0.3:
            late = self.landed(self.late.pop(rng.randrange(len(self.late))))
            if late is not None:
                self.tell(ev.PodUpdated(late))
        what = rng.randrange(8)
        if what <= 2:
            members = gang(
                f"g{step}",
                pods=rng.choice((1, 2, 4)),
                gpus=rng.choice((1, 2, 4)),
                priority=rng.choice((0, 0, 9)),
            )
            self.tell(*(ev.PodAdded(self.stored(self.dated(pod))) for pod in members))
        elif what == 3:
            pod = make_pod(f"s{step}", gpus=1, scheduler=STRANGER)
            self.tell(
                ev.PodAdded(
                    self.stored(replace(pod, spec=replace(pod.spec, node_name=f"n{rng.randrange(5)}")))
                )
            )
        elif what == 4:
            self.node(f"n{rng.randrange(5)}")
        elif self.pods:
            uid = rng.choice(sorted(self.pods))
            pod = self.pods[uid]
            if what == 5:
                self.tell(ev.PodDeleted(self.pods.pop(uid)))
            elif what == 6 and pod.spec.node_name and not pod.is_terminal:
                status = replace(pod.status, phase=rng.choice(("Running", "Succeeded", "Failed")))
                self.tell(ev.PodUpdated(self.stored(replace(pod, status=status))))
            else:
                labels = {**(pod.metadata.labels or {}), "x": str(step)}
                self.tell(
                    ev.PodUpdated(self.stored(replace(pod, metadata=replace(pod.metadata, labels=labels))))
                )

    def dated(self, pod: Pod) -> Pod:
        return replace(pod, metadata=replace(pod.metadata, creation_timestamp=at(self.now_s)))

    def everybody_starts(self) -> None:
        """With room for all and no more faults: nobody has been lost."""
        for i in range(40):
            self.node(f"late{i}")
        for pod in list(self.pods.values()):
            self.tell(ev.PodUpdated(self.stored(pod)))
        for _ in range(60):
            self.now_s += 5.0
            while self.bumps:
                self.bump()
            for _ in range(10):
                self.turn(lambda: self.scheduler.schedule_next(self.now_s), faulty=False)
            self.turn(lambda: self.scheduler.advance(self.now_s), faulty=False)
        there = Counter((pod.metadata.labels or {}).get(GROUP_LABEL) for pod in self.pods.values())
        waiting = [
            pod.key
            for pod in self.pods.values()
            if not pod.spec.node_name
            and there[(pod.metadata.labels or {})[GROUP_LABEL]]
            >= int((pod.metadata.annotations or {})[MIN_MEMBERS_KEY])
        ]
        groups = [(str(g.key), g.state, g.message) for g in Inside(self.scheduler).groups()]
        assert not waiting, (waiting, [one for one in groups if one[1] is not GroupState.BOUND])
        assert not Inside(self.scheduler).unanswered()


def play(seed: int, monkeypatch: pytest.MonkeyPatch, *, steps: int = 40) -> Town:
    rng = Random(f"{seed}-faults")
    with faults_in(rng, chance=rng.choice((30, 100, 400)), monkeypatch=monkeypatch) as faults:
        town = Town(seed, faults, fence=bool(seed % 2))
        try:
            town.live(steps)
            faults._chance = 10**12
            town.everybody_starts()
        except BaseException as error:
            error.add_note(f"seed {seed}; raised: {faults.raised[-3:]}")
            raise
    return town


@pytest.mark.parametrize("seed", range(8))
def test_a_fault_anywhere_leaves_every_promise_standing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    town = play(seed, monkeypatch)
    assert town.faults.raised
    assert town.defects
