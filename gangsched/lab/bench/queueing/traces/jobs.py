"""Jobs as submitted: when, how large, how long, and with which limit. Values only."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from random import Random

import msgspec
from msgspec.structs import replace

# Limits that people write: 1, 5, 15, 30 minutes, 1, 2, 4, 8, 12 hours, 1, 2, 4, 7 days.
_ROUND_S = tuple(60.0 * minutes for minutes in (1, 5, 15, 30, 60, 120, 240, 480, 720, 1440, 2880, 5760))
_LONGEST_S = 604_800.0
# A user's jobs that follow one another within that time are one session.
_SESSION_GAP_S = 1200.0


class Job(msgspec.Struct, frozen=True):
    """`stated_s`: the limit that its user gave; 0: none. `number`: its place in the order of arrival.

    pods: the number that share its devices evenly; 0: one per device. cpu_milli, memory_mib: of each pod, if
    known.
    """

    number: int
    arrival_s: float
    run_s: float
    n_devices: int
    stated_s: float = 0.0
    user: str = ""
    pods: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0

    @property
    def n_pods(self) -> int:
        return self.pods or self.n_devices


class Workload(msgspec.Struct, frozen=True):
    """Jobs in order of arrival. `source`: a description with the seed."""

    source: str
    jobs: Sequence[Job]
    n_devices: int

    @property
    def load(self) -> float:
        """Requested device-seconds, as a share of those available until the last arrival."""
        span_s = self.jobs[-1].arrival_s - self.jobs[0].arrival_s
        return sum(job.run_s * job.n_devices for job in self.jobs) / (self.n_devices * span_s)


def in_order(jobs: Sequence[Job]) -> list[Job]:
    """The jobs sorted by arrival, counted from 0, and renumbered."""
    ordered = sorted(jobs, key=lambda job: (job.arrival_s, job.number))
    first_s = ordered[0].arrival_s
    return [replace(job, number=i, arrival_s=job.arrival_s - first_s) for i, job in enumerate(ordered)]


def at_load(workload: Workload, load: float) -> Workload:
    """The same jobs, arriving faster or slower, so that they request this share of the cluster."""
    factor = workload.load / load
    jobs = [replace(job, arrival_s=job.arrival_s * factor) for job in workload.jobs]
    return replace(workload, jobs=jobs)


def with_limits(workload: Workload, seed: int) -> Workload:
    """A job without a limit gets the next round number above 1 to 10 times its run time.

    Users overestimate so: Tsafrir, Etsion, Feitelson, "Modeling user runtime estimates" (JSSPP 2005).
    """
    random = Random(f"{seed}-limits")
    jobs = []
    for job in workload.jobs:
        stated_s = job.stated_s
        if not stated_s:
            wanted_s = job.run_s * random.uniform(1.0, 10.0)
            k = bisect_left(_ROUND_S, wanted_s)
            stated_s = _ROUND_S[k] if k < len(_ROUND_S) else max(_LONGEST_S, job.run_s)
        jobs.append(replace(job, stated_s=stated_s))
    return replace(workload, jobs=jobs)


def shaken(workload: Workload, seed: int, *, by_s: float = 600.0) -> Workload:
    """The same day with each user session moved by up to `by_s`, earlier or later.

    One order of arrival proves little: Tsafrir, Ouaknine, Feitelson, "Reducing performance evaluation
    sensitivity and variability by input shaking" (MASCOTS 2007).
    """
    random = Random(f"{seed}-shaken")
    last_s: dict[str, float] = {}
    offset_s: dict[str, float] = {}
    jobs = []
    for job in workload.jobs:
        user = job.user or str(job.number)
        if job.arrival_s - last_s.get(user, -_SESSION_GAP_S - 1.0) > _SESSION_GAP_S:
            offset_s[user] = random.uniform(-by_s, by_s)
        last_s[user] = job.arrival_s
        jobs.append(replace(job, arrival_s=job.arrival_s + offset_s[user]))
    return replace(workload, jobs=in_order(jobs))
