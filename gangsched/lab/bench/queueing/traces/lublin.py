"""The workload model of Lublin and Feitelson: sizes, run times and arrivals of rigid parallel jobs.

Source: "The workload on parallel supercomputers: modeling the characteristics of rigid jobs", Journal of
Parallel and Distributed Computing 63(11), 2003. The figures are those for all jobs together, without the
distinction of batch and interactive ones.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from gangsched.lab.bench.queueing.traces.jobs import Job, Workload, in_order

# Sizes: one device with the first probability, a power of two with the second; log2 is two-stage uniform.
_SERIAL, _POWER_OF_TWO = 0.244, 0.576
_LOWEST, _MIDDLE_BELOW_HIGHEST, _LOW_STAGE = 0.8, 2.5, 0.86
# Run times: e to the power of a hyper-gamma number, whose first part is likelier the smaller the job is.
_SHORT, _LONG = (4.2, 0.94), (312.0, 0.03)
_SLOPE, _AT_ZERO = -0.0054, 0.78
_LONGEST_LOG_S = 12.0
# Arrivals: e to the power of a gamma number of seconds in the rush hour, stretched by the hour of the day.
_BETWEEN, _RUSH_TO_ALL = (10.2303, 0.4871), 1.0225
_DAY_CYCLE = (8.1737, 3.9631)
# In half hours; the model's day begins at the eleventh.
_N_SLOTS, _DAY_BEGINS_AT = 48, 11
_SLOT_S = 1800.0
_LONGEST_LOG_GAP_S = 13.0


def lublin(n_jobs: int, n_devices: int, seed: int) -> Workload:
    """The model's first jobs on a machine of `n_devices` devices, at least 8."""
    random = np.random.default_rng(seed)
    sizes = _sizes(random, n_jobs, math.log2(n_devices))
    sizes = np.minimum(sizes, n_devices)
    runs_s = _run_times(random, sizes)
    arrivals_s = _arrivals(random, n_jobs)
    rows = zip(arrivals_s.tolist(), runs_s.tolist(), sizes.tolist(), strict=True)
    jobs = [Job(i, arrival_s, run_s, n) for i, (arrival_s, run_s, n) in enumerate(rows)]
    return Workload(f"lublin, seed {seed}", in_order(jobs), n_devices)


def _sizes(random: np.random.Generator, n: int, highest: float) -> NDArray[np.int64]:
    kind = random.random(n)
    middle = highest - _MIDDLE_BELOW_HIGHEST
    is_low = random.random(n) <= _LOW_STAGE
    log2 = np.where(is_low, random.uniform(_LOWEST, middle, n), random.uniform(middle, highest, n))
    log2 = np.where(kind <= _SERIAL + _POWER_OF_TWO, np.floor(log2 + 0.5), log2)
    return np.where(kind <= _SERIAL, 1, np.floor(2.0**log2 + 0.5)).astype(np.int64)


def _run_times(random: np.random.Generator, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    is_short = random.random(len(sizes)) <= np.clip(_SLOPE * sizes + _AT_ZERO, 0.0, 1.0)
    log_s = np.full(len(sizes), np.inf)
    while (again := np.flatnonzero(log_s > _LONGEST_LOG_S)).size:
        short, long = (random.gamma(shape, scale, again.size) for shape, scale in (_SHORT, _LONG))
        log_s[again] = np.where(is_short[again], short, long)
    runs_s: NDArray[np.float64] = np.maximum(np.floor(np.exp(log_s)), 1.0)
    return runs_s


def _arrivals(random: np.random.Generator, n: int) -> NDArray[np.float64]:
    """Draws gaps as in the rush hour, then stretches them by the weight of each half hour of the day."""
    shape, scale = _BETWEEN
    log_s = np.full(n, np.inf)
    while (again := np.flatnonzero(log_s > _LONGEST_LOG_GAP_S)).size:
        log_s[again] = random.gamma(shape * _RUSH_TO_ALL, scale, again.size)
    weighted = np.cumsum(np.exp(log_s)) / _SLOT_S
    weights = _day()
    days, rest = np.divmod(weighted, _N_SLOTS)
    within = np.interp(rest, np.concatenate(([0.0], np.cumsum(weights))), np.arange(_N_SLOTS + 1.0))
    arrivals_s: NDArray[np.float64] = (days * _N_SLOTS + within) * _SLOT_S
    return arrivals_s


def _day() -> NDArray[np.float64]:
    """The weight of each half hour from midnight on, with a mean of 1."""
    shape, scale = _DAY_CYCLE
    fine = np.arange(0.0, 2.0 * _N_SLOTS, 0.01) + 0.005
    density = np.exp((shape - 1.0) * np.log(fine) - fine / scale)  # of a gamma number, but for a factor
    below = np.concatenate(([0.0], np.cumsum(density * 0.01)))
    slots = np.arange(_DAY_BEGINS_AT, _DAY_BEGINS_AT + _N_SLOTS)
    ends = np.interp(slots + 0.5, np.arange(len(below)) * 0.01, below)
    begins = np.interp(slots - 0.5, np.arange(len(below)) * 0.01, below)
    weights: NDArray[np.float64] = np.empty(_N_SLOTS)
    weights[(slots - 1) % _N_SLOTS] = ends - begins
    weights /= weights.mean()
    return weights
