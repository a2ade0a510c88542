"""`bench --queueing --speed`: how long a turn and a plan last on a large cluster with claims.

The real core on 5,000 nodes of 8 GPUs, each held by a pod with a stated end; 64 gangs of 8 whole nodes with
claims; 10,000 lone pods that wait. Then pods end one by one, and turns and plans are timed, in CPU time.
Garbage is collected as in a scheduler that is never idle: between turns; that time is reported too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import msgspec
from rich.console import Console

from gangsched.config import default_config
from gangsched.config.queueing import QueueingSettings
from gangsched.core.kept.claim_plans import ClaimPlans
from gangsched.core.queueing.claims import Claims
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.claim import StartClaim
from gangsched.core.types.group import Group
from gangsched.lab.bench.figures import percentile
from gangsched.lab.bench.progress import Progress
from gangsched.lab.bench.rounds.workload import NAMESPACE, node, node_name
from gangsched.lab.bench.tables import print_targets
from gangsched.lab.bench.targets import Target, at_least, at_most
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Pod
from gangsched.model.pod_group import GROUP_LABEL, MIN_MEMBERS_KEY
from gangsched.model.walltime import WALLTIME_KEY
from gangsched.plugins import IN_TREE, build_profiles
from gangsched.process.garbage_collection import GarbageCollection, as_in_a_scheduler

_GPUS = 8
_GPU = "nvidia.com/gpu"
_GANG_SIZE = 8
_N_ENDS = 120
_TOLD_EVERY = 20
_LIMIT_MS = 10.0


class Speed(msgspec.Struct):
    """CPU milliseconds."""

    n_nodes: int
    n_pending: int
    n_claims: int
    turns_ms: list[float]
    plans_ms: list[float]
    between_ms: list[float]
    """Times that collections of garbage took, between turns."""

    @property
    def targets(self) -> list[Target]:
        """The targets of both figures."""
        return [
            at_least("claims that stand", 64, float(self.n_claims)),
            at_most("a turn, p99", _LIMIT_MS, _share(self.turns_ms, 0.99), "ms"),
            at_most("a turn, p50", _LIMIT_MS, _share(self.turns_ms, 0.5), "ms"),
            at_most("the plan of a claim, p99", _LIMIT_MS, _share(self.plans_ms, 0.99), "ms"),
            at_most("the plan of a claim, p50", _LIMIT_MS, _share(self.plans_ms, 0.5), "ms"),
        ]


def _share(values: list[float], share: float) -> float | None:
    return percentile(values, share) if values else None


def measure(
    progress: Progress,
    *,
    n_nodes: int = 5000,
    n_pending: int = 10_000,
    n_claims: int = 64,
    n_ends: int = _N_ENDS,
) -> Speed:
    """Measures in this process; takes some minutes."""
    core = _Core(n_nodes)
    progress.say(f"{n_nodes} nodes with {n_nodes * _GPUS} pods")
    for i in range(n_claims):
        core.submit(core.gang(i))
    core.settle()
    for i in range(n_pending):
        core.submit([core.lone(i)])
    core.settle()
    progress.say(f"{n_pending} pods and {n_claims} gangs wait")
    with as_in_a_scheduler() as core.garbage:
        return _measured(core, progress, n_nodes, n_pending, n_claims, n_ends)


def _measured(
    core: _Core, progress: Progress, n_nodes: int, n_pending: int, n_claims: int, n_ends: int
) -> Speed:
    for _ in range(4 * n_claims):
        if core.n_claims() >= n_claims:
            break
        core.end(1)
    progress.say(f"{core.n_claims()} claims stand")
    core.turns_ms.clear()
    core.between_ms.clear()
    for n in range(0, n_ends, _TOLD_EVERY):
        progress.say(f"{n} of {n_ends} pods have ended, {len(core.turns_ms)} turns")
        core.end(min(_TOLD_EVERY, n_ends - n))
    return Speed(n_nodes, n_pending, core.n_claims(), core.turns_ms, core.plans_ms, core.between_ms)


def print_speed(speed: Speed, console: Console) -> None:
    """Prints the figures beside their targets."""
    console.print(
        f"{speed.n_nodes} nodes, {speed.n_pending} pods in line, {speed.n_claims} claims;"
        f" {len(speed.turns_ms)} turns, {len(speed.plans_ms)} plans, CPU time",
        highlight=False,
    )
    console.print(
        f"garbage is collected between turns only: {len(speed.between_ms)} times,"
        f" {max(speed.between_ms, default=0.0):.1f} ms at most, {sum(speed.between_ms):.0f} ms in all",
        highlight=False,
    )
    print_targets(speed.targets, console)


class _Core:
    def __init__(self, n_nodes: int) -> None:
        config = default_config(IN_TREE)
        queueing = QueueingSettings(1, mode="hard")
        settings = msgspec.structs.replace(config.settings, queueing=queueing)
        self._core = Scheduler(build_profiles(config), settings, node_capacity=n_nodes)
        self._core.handle([ev.NodeAdded(node(i, _GPUS)) for i in range(n_nodes)], 0.0)
        random = Random(1)
        self._running: list[Pod] = []
        self._pods: dict[str, Pod] = {}
        for i in range(n_nodes):
            pods = [
                _pod(f"runs-{i}-{k}", 1, random.uniform(3600.0, 86_400.0), on=node_name(i))
                for k in range(_GPUS)
            ]
            self._core.handle([ev.PodAdded(pod) for pod in pods], 0.0)
            self._running += pods
        random.shuffle(self._running)
        self._core.handle([ev.KindSynced(kind) for kind in self._core.kinds], 0.0)
        self._now_s = 1.0
        self.turns_ms: list[float] = []
        self.plans_ms: list[float] = []
        self.between_ms: list[float] = []
        self.garbage = GarbageCollection()
        plans = self._core.attempts.kept.claiming.plans
        plans.made = _TimedPlans(plans, self.plans_ms)  # type: ignore[method-assign]

    def gang(self, number: int) -> list[Pod]:
        name = f"gang-{number}"
        return [_pod(f"{name}-{k}", _GPUS, 7200.0, gang=name) for k in range(_GANG_SIZE)]

    def lone(self, number: int) -> Pod:
        return _pod(f"lone-{number}", 1, 600.0)

    def n_claims(self) -> int:
        claims = self._core.shared.claims
        return len(claims) if claims is not None else 0

    def submit(self, pods: list[Pod]) -> None:
        self._pods.update((pod.metadata.uid, pod) for pod in pods)
        self._carry_out(self._handle([ev.PodAdded(pod) for pod in pods]))

    def settle(self) -> None:
        """Runs turns until the line is empty."""
        while True:
            effects = self._timed(lambda: self._core.schedule_next(self._now_s))
            if effects is None:
                return
            self._carry_out(effects)

    def end(self, n: int) -> None:
        """Ends this many pods, one a second."""
        for _ in range(n):
            self._now_s += 1.0
            deadline_s = self._core.next_deadline_s()
            if deadline_s is not None and deadline_s <= self._now_s:
                self._carry_out(self._timed(lambda: self._core.advance(self._now_s)) or [])
            self._carry_out(self._handle([ev.PodDeleted(self._running.pop())]))
            self.settle()

    def _handle(self, events: Sequence[ev.Event]) -> list[ef.Effect]:
        return self._timed(lambda: self._core.handle(events, self._now_s)) or []

    def _timed(self, turn: Callable[[], list[ef.Effect] | None]) -> list[ef.Effect] | None:
        """Times a turn: events, a deadline, or a group that is tried; None: there was nothing to do."""
        began_s = time.process_time()
        effects = turn()
        if effects is not None:
            self.turns_ms.append((time.process_time() - began_s) * 1000.0)
            self._between_turns()
        return effects

    def _between_turns(self) -> None:
        began_s = time.process_time()
        was_due = self.garbage.is_young_due
        self.garbage.between_turns()
        if self.garbage.look(idle_s=0.0) or was_due:
            self.between_ms.append((time.process_time() - began_s) * 1000.0)

    def _carry_out(self, effects: list[ef.Effect]) -> None:
        while effects:
            events = [event for one in effects if isinstance(one, ef.BindPod) for event in self._bind(one)]
            effects = self._handle(events) if events else []

    def _bind(self, bind: ef.BindPod) -> Iterator[ev.Event]:
        pod = self._pods.pop(bind.uid)
        annotations = {**(pod.metadata.annotations or {}), **bind.annotations}
        metadata = msgspec.structs.replace(pod.metadata, annotations=annotations, resource_version="2")
        spec = msgspec.structs.replace(pod.spec, node_name=bind.node)
        yield ev.BindSucceeded(bind.uid, bind.attempt)
        yield ev.PodUpdated(msgspec.structs.replace(pod, metadata=metadata, spec=spec))


class _TimedPlans:
    """ClaimPlans.made, with each call timed."""

    def __init__(self, plans: ClaimPlans, plans_ms: list[float]) -> None:
        self._made = plans.made
        self._plans_ms = plans_ms

    def __call__(
        self, claims: Claims, unit: list[Group], *, to_all: bool = False, by_s: float = math.inf
    ) -> StartClaim | None:
        began_s = time.process_time()
        found = self._made(claims, unit, to_all=to_all, by_s=by_s)
        self._plans_ms.append((time.process_time() - began_s) * 1000.0)
        return found


def _pod(name: str, gpus: int, walltime_s: float, *, gang: str = "", on: str = "") -> Pod:
    metadata: dict[str, Any] = {"name": name, "namespace": NAMESPACE, "uid": name, "resourceVersion": "1"}
    metadata["annotations"] = {WALLTIME_KEY: f"{walltime_s:.0f}s"}
    if gang:
        metadata["labels"] = {GROUP_LABEL: gang}
        metadata["annotations"][MIN_MEMBERS_KEY] = str(_GANG_SIZE)
    resources = {"requests": {"cpu": "100m", "memory": "128Mi", _GPU: str(gpus)}}
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "task", "resources": resources}]}
    spec |= {"schedulerName": "another", "nodeName": on} if on else {"schedulerName": "gangsched"}
    return msgspec.convert({"metadata": metadata, "spec": spec}, Pod)
