"""Runs the real core in virtual time: jobs arrive as pods, are bound by the core, run, and disappear.

The API server answers at once and nothing fails, so only the order of starts is measured.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from gangsched.config import SchedulerConfig, default_config, parse_config
from gangsched.config.documents import file_with
from gangsched.core.queueing.claims import KEPT, OVERRUN
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import Group
from gangsched.errors import GangschedError
from gangsched.lab.bench.queueing.policies import Starts
from gangsched.lab.bench.queueing.traces.jobs import Job, Workload
from gangsched.lab.bench.rounds.workload import NAMESPACE, RESOURCE, PodRef, node, pod_document, pod_name
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.devices.annotations import ALLOCATED_KEY, ids_of, parse_allocation
from gangsched.model.objects import Node, Pod
from gangsched.model.pod_group import GROUP_LABEL, MIN_MEMBERS_KEY
from gangsched.model.walltime import WALLTIME_KEY
from gangsched.plugins import IN_TREE, build_profiles

_PREFIX = "job"
# No job waits this long; a core that rests with jobs in it has lost them.
_MAX_REST_S = 30 * 86_400.0
# Longer than any backoff.
_STUCK_S = 3600.0


class Core(Protocol):
    """What receives the events: a scheduler, or something placed in front of one."""

    def handle(self, events: Sequence[ev.Event], now_s: float) -> list[ef.Effect]: ...
    def advance(self, now_s: float) -> list[ef.Effect]: ...
    def next_deadline_s(self) -> float | None: ...
    def pop(self) -> Group | None: ...
    def schedule(self, group: Group, now_s: float) -> list[ef.Effect]: ...


def replay(workload: Workload, *, n_nodes: int, gpus: int, config: str = "") -> Starts:
    """Runs all jobs until the last has started; each is a gang of pods of one device.

    config: fields of the GangschedConfiguration. Raises: GangschedError.
    """
    read = config_of(config)
    core = Scheduler(build_profiles(read), read.settings)
    cluster = Cluster(workload.jobs, [node(i, gpus) for i in range(n_nodes)], core, core)
    while cluster.n_started < len(workload.jobs):
        cluster.step()
    return Starts(cluster.at_s, cluster.devices, *cluster.bounded(), cluster.late)


def config_of(ours: str) -> SchedulerConfig:
    """The default configuration with these fields of the GangschedConfiguration."""
    if not ours:
        return default_config(IN_TREE)
    return parse_config(file_with(ours), source="bench", plugins=IN_TREE)


class Cluster:
    """Jobs and nodes that drive a core. told: what receives the events, by default the core itself."""

    def __init__(self, jobs: Sequence[Job], nodes: Sequence[Node], core: Scheduler, told: Core) -> None:
        self._core = core
        self._told = told
        told.handle([ev.NodeAdded(one) for one in nodes], 0.0)
        told.handle([ev.KindSynced(kind) for kind in core.kinds], 0.0)
        self._jobs = jobs
        self._n_arrived = 0
        self._pods: dict[str, Pod] = {}
        self._of_job: dict[int, list[str]] = {}
        self._job_of: dict[str, int] = {}
        self._n_unbound = [job.n_pods for job in jobs]
        self._ends: list[tuple[float, int]] = []
        self._version = len(nodes)
        self._now_s = self._busy_s = 0.0
        self._in_use: set[str] = set()
        self._first_waiting = 0
        self._idle_s = 0.0
        """Device-seconds that claims kept from jobs in line, until the last arrival."""
        self._n_devices = sum(int((one.status.allocatable or {}).get(RESOURCE, 0)) for one in nodes)
        self.at_s = [float("nan")] * len(jobs)
        self.devices: list[list[str]] = [[] for _ in jobs]
        self.n_started = 0

    @property
    def now_s(self) -> float:
        return self._now_s

    @property
    def is_over(self) -> bool:
        """Whether all jobs have started and ended."""
        return self.n_started == len(self._jobs) and not self._ends

    @property
    def is_stuck(self) -> bool:
        """Whether the waiting jobs will never start: all have arrived, and none has run for a while."""
        return self._is_idle and not self.is_over and self._now_s > self._busy_s + _STUCK_S

    @property
    def _is_idle(self) -> bool:
        return not self._ends and self._n_arrived == len(self._jobs)

    def step(self) -> None:
        """Advances to the next time at which anything happens."""
        now_s = self._next_s()
        last_s = self._jobs[-1].arrival_s
        self._idle_s += self._n_kept() * (min(now_s, last_s) - min(self._now_s, last_s))
        self._now_s = now_s
        events: list[ev.Event] = []
        while self._ends and self._ends[0][0] <= now_s:
            events += self._end(heapq.heappop(self._ends)[1])
        while self._n_arrived < len(self._jobs) and self._jobs[self._n_arrived].arrival_s <= now_s:
            events += self._arrive(self._jobs[self._n_arrived])
            self._n_arrived += 1
        if events:
            self._busy_s = now_s
            self._carry_out(self._told.handle(events, now_s))
        deadline_s = self._told.next_deadline_s()
        if deadline_s is not None and deadline_s <= now_s:
            self._carry_out(self._told.advance(now_s))
        while (group := self._told.pop()) is not None:
            self._carry_out(self._told.schedule(group, now_s))

    def bounded(self) -> tuple[float | None, float | None, float | None]:
        """Returns three shares: the most of a bound that was used up, promises kept where pods ended as
        stated, and devices kept idle for claims."""
        bypasses, claims = self._core.shared.queue.bypasses, self._core.shared.claims
        if bypasses is None or claims is None:
            return None, None, None
        promises = claims.promises
        n = promises.total() - promises[OVERRUN]
        kept = promises[KEPT] / n if n else None
        return bypasses.most_of_bound, kept, self._idle_s / (self._n_devices * self._jobs[-1].arrival_s)

    @property
    def late(self) -> dict[str, int]:
        """Promised starts that came late, by cause."""
        claims = self._core.shared.claims
        return {} if claims is None else {cause: n for cause, n in claims.promises.items() if cause != KEPT}

    def _n_kept(self) -> int:
        """How many devices first fit would give to waiting jobs if there were no claims."""
        claims = self._core.shared.claims
        while self._first_waiting < self._n_arrived and not self._n_unbound[self._first_waiting]:
            self._first_waiting += 1
        if claims is None or not claims.by_key:
            return 0
        kept = {
            f"{one.node_name}/{device_id}"
            for claim in claims.all
            for one in claim.held
            for device_id in one.ids.get(RESOURCE, ())
        }
        n_free = self._n_devices - len(self._in_use)
        n_kept = len(kept - self._in_use)
        n_refused = 0
        for number in range(self._first_waiting, self._n_arrived):
            if self._n_unbound[number] and self._jobs[number].n_devices <= n_free - n_refused:
                n_refused += self._jobs[number].n_devices
        return min(n_kept, n_refused)

    def _next_s(self) -> float:
        times = [self._ends[0][0]] if self._ends else []
        if self._n_arrived < len(self._jobs):
            times.append(self._jobs[self._n_arrived].arrival_s)
        deadline_s = self._told.next_deadline_s()
        if deadline_s is not None:
            times.append(deadline_s)
        if not times or (self._is_idle and min(times) > self._now_s + _MAX_REST_S):
            left = next(job.number for job in self._jobs if self._n_unbound[job.number])
            raise GangschedError(f"job {left} waits, and nothing will happen any more")
        return max(min(times), self._now_s)

    def _arrive(self, job: Job) -> Iterable[ev.Event]:
        pods = [self._pod(job, rank) for rank in range(job.n_pods)]
        self._of_job[job.number] = [pod.metadata.uid for pod in pods]
        for pod in pods:
            self._pods[pod.metadata.uid] = pod
            self._job_of[pod.metadata.uid] = job.number
            yield ev.PodAdded(pod)

    def _pod(self, job: Job, rank: int) -> Pod:
        ref = PodRef(job.number, rank)
        document: dict[str, Any] = pod_document(_PREFIX, ref, "gangsched")
        del document["spec"]["schedulingGroup"]
        self._version += 1
        annotations = {MIN_MEMBERS_KEY: str(job.n_pods)}
        if job.stated_s:
            annotations[WALLTIME_KEY] = f"{max(job.stated_s, 1.0):.0f}s"
        document["metadata"] |= {
            "uid": f"{NAMESPACE}-{pod_name(_PREFIX, ref)}",
            "resourceVersion": str(self._version),
            "labels": {GROUP_LABEL: f"{_PREFIX}-{job.number:05d}"},
            "annotations": annotations,
        }
        if job.pods or job.cpu_milli or job.memory_mib:
            amounts = _amounts(job)
            document["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
        return msgspec.convert(document, Pod)

    def _carry_out(self, effects: Iterable[ef.Effect]) -> None:
        """Carries binds out at once; ignores other effects."""
        queue = list(effects)
        while queue:
            binds = [effect for effect in queue if isinstance(effect, ef.BindPod)]
            events = [event for bind in binds for event in self._bind(bind)]
            queue = self._told.handle(events, self._now_s) if events else []

    def _bind(self, bind: ef.BindPod) -> Iterable[ev.Event]:
        pod = self._pods[bind.uid]
        self._version += 1
        metadata = replace(
            pod.metadata,
            annotations={**(pod.metadata.annotations or {}), **bind.annotations},
            resource_version=str(self._version),
        )
        bound = replace(pod, metadata=metadata, spec=replace(pod.spec, node_name=bind.node))
        self._pods[bind.uid] = bound
        number = self._job_of[bind.uid]
        ids = ids_of(parse_allocation(bind.annotations.get(ALLOCATED_KEY, "{}"))).get(RESOURCE, ())
        devices = [f"{bind.node}/{device_id}" for device_id in ids]
        self.devices[number] += devices
        self._in_use.update(devices)
        self._n_unbound[number] -= 1
        if not self._n_unbound[number]:
            self.at_s[number] = self._now_s
            self.n_started += 1
            heapq.heappush(self._ends, (self._now_s + self._jobs[number].run_s, number))
        return (ev.BindSucceeded(bind.uid, bind.attempt), ev.PodUpdated(bound))

    def _end(self, number: int) -> Iterable[ev.Event]:
        self._in_use.difference_update(self.devices[number])
        for uid in self._of_job.pop(number):
            del self._job_of[uid]
            yield ev.PodDeleted(self._pods.pop(uid))


def _amounts(job: Job) -> dict[str, str]:
    """The resource requests of each of its pods."""
    devices = job.n_devices // job.n_pods
    amounts = {"cpu": f"{job.cpu_milli or 1000}m", "memory": f"{job.memory_mib or 1024}Mi"}
    return amounts | ({RESOURCE: str(devices)} if devices else {})
