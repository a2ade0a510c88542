"""Judges a run from its jobs and starts alone: whether it is possible, and how long jobs waited. Shares
nothing with the core, the policies or their simulated cluster.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

from gangsched.lab.bench.queueing.policies import Starts
from gangsched.lab.bench.queueing.traces.jobs import Job, Workload

# Shorter run times do not count for slowdowns: Feitelson et al. (JSSPP 1997).
_SHORTEST_S = 10.0
_WIDE_SHARE = 0.95


class Figures(msgspec.Struct, frozen=True):
    """Slowdowns are bounded ones: (wait + run) / max(run, 10 s), at least 1. Waits in seconds.

    most_passed: the most later jobs that started before one that waited. wide_wait_s: the mean wait of the
    largest 5 percent. utilisation: of all devices until the last arrival. of_bound, promises_kept,
    claimed_idle, late: as the policy reports them (Starts), if it bounds and promises.
    """

    mean_slowdown: float
    p95_slowdown: float
    mean_wait_s: float
    longest_wait_s: float
    wide_wait_s: float
    most_passed: int
    utilisation: float
    of_bound: float | None = None
    promises_kept: float | None = None
    claimed_idle: float | None = None
    late: Mapping[str, int] = {}


def problems(workload: Workload, starts: Starts) -> list[str]:
    """Returns what is impossible about the run, in words; empty for a sound run."""
    jobs = workload.jobs
    if len(starts.at_s) != len(jobs):
        return [f"{len(jobs)} jobs, {len(starts.at_s)} starts"]
    found = []
    for job, at_s in zip(jobs, starts.at_s, strict=True):
        if math.isnan(at_s):
            found.append(f"job {job.number} of {job.n_devices} never started")
        elif at_s < job.arrival_s:
            found.append(f"job {job.number} started {job.arrival_s - at_s:.1f} s before it arrived")
    if found:
        return found
    return _too_many_at_once(workload, starts) + _held_twice(jobs, starts)


def _too_many_at_once(workload: Workload, starts: Starts) -> list[str]:
    changes = []
    for job, at_s in zip(workload.jobs, starts.at_s, strict=True):
        changes += [(at_s, 1, job.n_devices), (at_s + job.run_s, 0, -job.n_devices)]
    n_held = 0
    for at_s, _, n in sorted(changes):  # ends before starts of the same moment
        n_held += n
        if n_held > workload.n_devices:
            return [f"{n_held} of {workload.n_devices} devices are held at {at_s:.1f} s"]
    return []


def _held_twice(jobs: Sequence[Job], starts: Starts) -> list[str]:
    found = []
    held: dict[str, list[tuple[float, float, int]]] = {}
    for job, devices in zip(jobs, starts.devices, strict=False):
        if len(set(devices)) != job.n_devices:
            found.append(f"job {job.number} asked for {job.n_devices} devices and has {len(set(devices))}")
        at_s = starts.at_s[job.number]
        for device in devices:
            held.setdefault(device, []).append((at_s, at_s + job.run_s, job.number))
    for device, spans in held.items():
        spans.sort()
        for (_, end_s, one), (begin_s, _, other) in pairwise(spans):
            if begin_s < end_s:
                found.append(f"{device} is held by jobs {one} and {other} at {begin_s:.1f} s")
    return found


def figures(workload: Workload, starts: Starts) -> Figures:
    """Computes the figures of a run in which every job started."""
    arrival, run, n = (
        np.array([getattr(job, name) for job in workload.jobs], dtype=np.float64)
        for name in ("arrival_s", "run_s", "n_devices")
    )
    start = np.array(starts.at_s)
    wait = start - arrival
    slowdown = np.maximum((wait + run) / np.maximum(run, _SHORTEST_S), 1.0)
    last = arrival[-1]
    busy = (np.minimum(start + run, last) - np.minimum(start, last)) * n
    wide = n >= np.quantile(n, _WIDE_SHARE)
    return Figures(
        mean_slowdown=float(slowdown.mean()),
        p95_slowdown=float(np.quantile(slowdown, 0.95)),
        mean_wait_s=float(wait.mean()),
        longest_wait_s=float(wait.max()),
        wide_wait_s=float(wait[wide].mean()),
        most_passed=_most_passed(start),
        utilisation=float(busy.sum() / (workload.n_devices * last)),
        of_bound=starts.of_bound,
        promises_kept=starts.promises_kept,
        claimed_idle=starts.claimed_idle,
        late=starts.late,
    )


def _most_passed(start: NDArray[np.float64]) -> int:
    """Jobs are numbered by arrival, so a higher number with an earlier start has passed the other."""
    return max((int((start[i + 1 :] < start[i]).sum()) for i in range(len(start))), default=0)
