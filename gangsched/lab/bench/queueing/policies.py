"""Published policies on a machine of equal devices, for comparison: when each would start every job.

First fit is what gangsched does without a bound. EASY: Lifka, "The ANL/IBM SP scheduling system" (JSSPP
1995); conservative backfilling: Mu'alem and Feitelson (IEEE TPDS 12(6), 2001).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from gangsched.lab.bench.queueing.profile import Profile
from gangsched.lab.bench.queueing.traces.jobs import Job, Workload

# A job that runs longer than stated is taken to end a minute from now.
_OVERRUN_S = 60.0
# Conservative backfilling plans every job; beyond this many in front no promise is made.
_EVERYBODY = 64


class Policy(msgspec.Struct, frozen=True):
    """`n_claims`: how many of the jobs that do not fit get a start time that others may not delay.
    `may_pass`: whether a job that fits starts before one in front of it that does not."""

    name: str
    n_claims: int = 0
    may_pass: bool = True
    order: Literal["arrival", "shortest"] = "arrival"


FIRST_FIT = Policy("first fit")
EASY = Policy("EASY", n_claims=1)
POLICIES = (
    FIRST_FIT,
    Policy("strict FCFS", may_pass=False),
    EASY,
    Policy("conservative", n_claims=_EVERYBODY),
    Policy("shortest first", order="shortest"),
)


class Starts(msgspec.Struct, frozen=True):
    """When each job started, by number; and on which devices, if the policy knows devices.

    If the policy bounds and promises: of_bound: the most of its bound that any job was passed before room was
    kept for it; promises_kept: the share of promised starts that were kept, where pods ended as stated; late:
    promised starts that came late, by cause; claimed_idle: the share of all devices until the last arrival
    that jobs in line would have got without claims.
    """

    at_s: Sequence[float]
    devices: Sequence[Sequence[str]] = ()
    of_bound: float | None = None
    promises_kept: float | None = None
    claimed_idle: float | None = None
    late: Mapping[str, int] = {}


def replay(workload: Workload, policy: Policy) -> Starts:
    """Replays all jobs until the last has started; each has a limit and fits the machine."""
    machine = _Machine(workload.jobs, workload.n_devices, policy)
    while machine.step():
        pass
    return Starts(machine.at_s)


class _Machine:
    def __init__(self, jobs: Sequence[Job], n_devices: int, policy: Policy) -> None:
        self.at_s = [0.0] * len(jobs)
        self._jobs = jobs
        self._policy = policy
        self._n_free = n_devices
        self._n_arrived = 0
        self._waiting: list[Job] = []
        self._running: list[tuple[float, int]] = []

    def step(self) -> bool:
        """Advances to the next arrival or end and starts jobs; False when all have started."""
        more = self._n_arrived < len(self._jobs)
        if not more and not self._waiting:
            return False
        arrival_s = self._jobs[self._n_arrived].arrival_s if more else float("inf")
        end_s = self._running[0][0] if self._running else float("inf")
        now_s = min(arrival_s, end_s)
        while self._running and self._running[0][0] <= now_s:
            self._n_free += self._jobs[heapq.heappop(self._running)[1]].n_devices
        while self._n_arrived < len(self._jobs) and self._jobs[self._n_arrived].arrival_s <= now_s:
            self._waiting.append(self._jobs[self._n_arrived])
            self._n_arrived += 1
        if self._waiting and self._n_free:
            self._start_those_that_may(now_s)
        return True

    def _start_those_that_may(self, now_s: float) -> None:
        policy, waiting = self._policy, self._waiting
        profile = Profile(now_s, self._n_free, self._ends(now_s)) if policy.n_claims else None
        if policy.order == "shortest":
            waiting = sorted(waiting, key=lambda job: (job.stated_s * job.n_devices, job.number))
        n_claims = 0
        left = []
        for k, job in enumerate(waiting):
            fits = job.n_devices <= self._n_free
            if fits and profile is not None:
                fits = profile.fits_now(job.n_devices, job.stated_s)
            if fits:
                self._start(job, now_s)
                if profile is not None:
                    profile.take(now_s, job.stated_s, job.n_devices)
                continue
            left.append(job)
            if not policy.may_pass:
                left += waiting[k + 1 :]
                break
            if profile is not None and n_claims < policy.n_claims:
                n_claims += 1
                begin_s = profile.earliest_s(job.n_devices, job.stated_s)
                profile.take(begin_s, job.stated_s, job.n_devices)
        self._waiting = sorted(left, key=lambda job: job.number)

    def _start(self, job: Job, now_s: float) -> None:
        self.at_s[job.number] = now_s
        self._n_free -= job.n_devices
        heapq.heappush(self._running, (now_s + job.run_s, job.number))

    def _ends(self, now_s: float) -> list[tuple[float, int]]:
        running = (self._jobs[number] for _, number in self._running)
        stated = ((self.at_s[job.number] + job.stated_s, job.n_devices) for job in running)
        return sorted((end_s if end_s > now_s else now_s + _OVERRUN_S, n) for end_s, n in stated)
