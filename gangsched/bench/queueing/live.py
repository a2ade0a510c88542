"""The real core in virtual time: jobs arrive as pods, are bound when the core binds them, run, and are gone.

The API server answers at once and nothing fails: what is measured is the order of starts, nothing else.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from gangsched.bench.queueing.jobs import Job, Workload
from gangsched.bench.queueing.policies import Starts
from gangsched.bench.workload import NAMESPACE, RESOURCE, PodRef, node, pod_document, pod_name
from gangsched.config import default_config
from gangsched.config.queueing import QueueingSettings
from gangsched.core.queueing.claims import KEPT
from gangsched.core.scheduler import Scheduler
from gangsched.errors import GangschedError
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.devices import ALLOCATED_KEY, ids_of, parse_allocation
from gangsched.model.objects import Pod
from gangsched.model.pod_group import GROUP_LABEL, MIN_MEMBERS_KEY
from gangsched.model.walltime import WALLTIME_KEY
from gangsched.plugins import IN_TREE, build_profiles

_PREFIX = "job"
# No job waits this long; a core that rests with jobs in it has lost them.
_MAX_REST_S = 30 * 86_400.0


def replay(
    workload: Workload, *, n_nodes: int, gpus: int, queueing: QueueingSettings | None = None
) -> Starts:
    """All jobs until the last has started; each is a gang of pods of one device. Raises: GangschedError."""
    cluster = _Cluster(workload.jobs, n_nodes, gpus, queueing)
    while cluster.n_started < len(workload.jobs):
        cluster.step()
    return Starts(cluster.at_s, cluster.devices, *cluster.bounded())


class _Cluster:
    def __init__(
        self, jobs: Sequence[Job], n_nodes: int, gpus: int, queueing: QueueingSettings | None
    ) -> None:
        config = default_config(IN_TREE)
        self._core = Scheduler(build_profiles(config), replace(config.settings, queueing=queueing))
        self._core.handle([ev.NodeAdded(node(i, gpus)) for i in range(n_nodes)], 0.0)
        self._core.handle([ev.KindSynced(kind) for kind in self._core.kinds], 0.0)
        self._jobs = jobs
        self._n_arrived = 0
        self._pods: dict[str, Pod] = {}
        self._of_job: dict[int, list[str]] = {}
        self._job_of: dict[str, int] = {}
        self._n_unbound = [job.n_devices for job in jobs]
        self._ends: list[tuple[float, int]] = []
        self._version = n_nodes
        self._now_s = 0.0
        self.at_s = [float("nan")] * len(jobs)
        self.devices: list[list[str]] = [[] for _ in jobs]
        self.n_started = 0

    def step(self) -> None:
        """The next moment at which anything happens."""
        now_s = self._now_s = self._next_s()
        events: list[ev.Event] = []
        while self._ends and self._ends[0][0] <= now_s:
            events += self._end(heapq.heappop(self._ends)[1])
        while self._n_arrived < len(self._jobs) and self._jobs[self._n_arrived].arrival_s <= now_s:
            events += self._arrive(self._jobs[self._n_arrived])
            self._n_arrived += 1
        if events:
            self._carry_out(self._core.handle(events, now_s))
        deadline_s = self._core.next_deadline_s()
        if deadline_s is not None and deadline_s <= now_s:
            self._carry_out(self._core.advance(now_s))
        while (effects := self._core.schedule_next(now_s)) is not None:
            self._carry_out(effects)

    def bounded(self) -> tuple[float | None, float | None]:
        """The worst share of a bound that was used up, and the share of promises that were kept."""
        queue = self._core.shared.queue
        if queue.bypasses is None or queue.claims is None:
            return None, None
        n = queue.claims.promises.total()
        return queue.bypasses.most_of_bound, queue.claims.promises[KEPT] / n if n else None

    def _next_s(self) -> float:
        times = [self._ends[0][0]] if self._ends else []
        if self._n_arrived < len(self._jobs):
            times.append(self._jobs[self._n_arrived].arrival_s)
        deadline_s = self._core.next_deadline_s()
        if deadline_s is not None:
            times.append(deadline_s)
        if not times or min(times) > self._now_s + _MAX_REST_S:
            left = next(job.number for job in self._jobs if self._n_unbound[job.number])
            raise GangschedError(f"job {left} waits, and nothing will happen any more")
        return max(min(times), self._now_s)

    def _arrive(self, job: Job) -> Iterable[ev.Event]:
        pods = [self._pod(job, rank) for rank in range(job.n_devices)]
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
        annotations = {MIN_MEMBERS_KEY: str(job.n_devices)}
        if job.stated_s:
            annotations[WALLTIME_KEY] = f"{max(job.stated_s, 1.0):.0f}s"
        document["metadata"] |= {
            "uid": f"{NAMESPACE}-{pod_name(_PREFIX, ref)}",
            "resourceVersion": str(self._version),
            "labels": {GROUP_LABEL: f"{_PREFIX}-{job.number:05d}"},
            "annotations": annotations,
        }
        return msgspec.convert(document, Pod)

    def _carry_out(self, effects: Iterable[ef.Effect]) -> None:
        """Binds are done at once; other effects are ignored."""
        queue = list(effects)
        while queue:
            binds = [effect for effect in queue if isinstance(effect, ef.BindPod)]
            events = [event for bind in binds for event in self._bind(bind)]
            queue = self._core.handle(events, self._now_s) if events else []

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
        ids = ids_of(parse_allocation(bind.annotations[ALLOCATED_KEY]))[RESOURCE]
        self.devices[number] += [f"{bind.node}/{device_id}" for device_id in ids]
        self._n_unbound[number] -= 1
        if not self._n_unbound[number]:
            self.at_s[number] = self._now_s
            self.n_started += 1
            heapq.heappush(self._ends, (self._now_s + self._jobs[number].run_s, number))
        return (ev.BindSucceeded(bind.uid, bind.attempt), ev.PodUpdated(bound))

    def _end(self, number: int) -> Iterable[ev.Event]:
        for uid in self._of_job.pop(number):
            del self._job_of[uid]
            yield ev.PodDeleted(self._pods.pop(uid))
