"""Runs every policy on every workload, judges each run, and reports medians over the seeds."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec
from rich.console import Console
from rich.table import Table

from gangsched.errors import ConfigError
from gangsched.lab.bench.figures import Spread, spread
from gangsched.lab.bench.progress import Progress
from gangsched.lab.bench.queueing import judge, live, policies
from gangsched.lab.bench.queueing.judge import Figures
from gangsched.lab.bench.queueing.policies import EASY, FIRST_FIT, POLICIES, Starts
from gangsched.lab.bench.queueing.traces.jobs import Workload, at_load, shaken, with_limits
from gangsched.lab.bench.queueing.traces.lublin import lublin
from gangsched.lab.bench.queueing.traces.traces import read_trace, readable
from gangsched.lab.bench.tables import print_conditions, print_targets, text
from gangsched.lab.bench.targets import Target, at_least, at_most, nothing_wrong

LUBLIN = "lublin"
OURS = "gangsched"
CLAIMS = "gangsched with claims"
SHORTEST = "the same, shortest first"
_HARD = "queueing: {bound: {groups: auto, mode: hard}}\n"
# The real core, by the name of how it is configured.
CONTENDERS: Mapping[str, str] = {
    OURS: "queueing: {bound: {mode: off}}\n",
    CLAIMS: _HARD,
    SHORTEST: _HARD + 'queues: [{name: all, order: shortest, namespaces: ["*"]}]\n',
}


class _Limits(msgspec.Struct, frozen=True):
    """The most that slowdown and longest wait may be, as multiples of EASY's, and the longest wait as a
    multiple of first fit's; None: unlimited."""

    mean: float
    p95: float
    longest: float
    by_first_fit: float | None = None


_LIMITS: Mapping[str, _Limits] = {
    CLAIMS: _Limits(mean=1.05, p95=1.05, longest=1.15, by_first_fit=1.05),
    SHORTEST: _Limits(mean=0.7, p95=0.6, longest=1.25),
}
_UTILISATION_POINTS, _CLAIMED_IDLE, _PROMISES_KEPT = -0.02, 0.03, 0.99
_MIN_DEVICES = 8

# Title, figure, and its unit.
_COLUMNS: tuple[tuple[str, str, float], ...] = (
    ("slowdown", "mean_slowdown", 1.0),
    ("its p95", "p95_slowdown", 1.0),
    ("longest wait, h", "longest_wait_s", 3600.0),
    ("wide jobs wait, h", "wide_wait_s", 3600.0),
    ("most passed", "most_passed", 1.0),
    ("utilisation", "utilisation", 1.0),
    ("of its bound", "of_bound", 1.0),
    ("promises kept", "promises_kept", 1.0),
    ("claimed idle", "claimed_idle", 1.0),
)


class Plan(msgspec.Struct, frozen=True):
    """What to run. workloads: lublin, or paths of traces. load: requested share of the devices, for each."""

    workloads: Sequence[str]
    n_jobs: int
    n_seeds: int
    load: float
    n_nodes: int
    gpus: int

    @property
    def n_devices(self) -> int:
        """Devices of the whole cluster."""
        return self.n_nodes * self.gpus

    def check(self) -> None:
        """Checks the options. Raises: ConfigError."""
        for option, value in (("jobs", self.n_jobs), ("seeds", self.n_seeds), ("nodes", self.n_nodes)):
            if value < 1:
                raise ConfigError(f"--{option} {value} is less than 1")
        if self.n_jobs < 2:
            raise ConfigError("--jobs 1: a queue needs at least 2")
        if self.n_devices < _MIN_DEVICES:
            raise ConfigError(f"--nodes and --gpus make {self.n_devices} devices: at least {_MIN_DEVICES}")
        if not 0.05 <= self.load <= 2.0:
            raise ConfigError(f"--load {self.load:g} is not within 0.05 to 2")


class Runs(msgspec.Struct):
    """One workload: by policy, the figures of each seed in order. n_left_out: jobs that cannot run here."""

    name: str
    n_jobs: int
    n_left_out: int
    figures: dict[str, list[Figures]]
    problems: list[str]

    def spread(self, policy: str, figure: str, unit: float = 1.0) -> Spread | None:
        """One figure for each seed; None: the policy has no such figure."""
        found = [getattr(one, figure) for one in self.figures[policy]]
        return spread([one / unit for one in found if one is not None])

    def late(self, policy: str) -> dict[str, int]:
        """Promised starts that came late, by cause, over all seeds."""
        found = Counter[str]()
        for one in self.figures[policy]:
            found.update(one.late)
        return dict(sorted(found.items()))

    def beside(self, policy: str, other: str, figure: str) -> Spread | None:
        """One policy's figure divided by another's, seed by seed."""
        pairs = zip(self.figures[policy], self.figures[other], strict=True)
        ratios = ((getattr(ours, figure), getattr(theirs, figure)) for ours, theirs in pairs)
        return spread([ours / theirs for ours, theirs in ratios if theirs])

    def above(self, policy: str, other: str, figure: str) -> Spread | None:
        """One policy's figure less another's, seed by seed."""
        pairs = zip(self.figures[policy], self.figures[other], strict=True)
        return spread([getattr(ours, figure) - getattr(theirs, figure) for ours, theirs in pairs])


class QueueingReport(msgspec.Struct):
    """The whole run, without single starts."""

    conditions: dict[str, str | int | float]
    workloads: list[Runs]
    targets: list[Target]


class Drawn(msgspec.Struct):
    """What the picture shows: one seed of one workload, under each policy."""

    workload: Workload
    starts: dict[str, Starts]


def run(plan: Plan, progress: Progress) -> tuple[QueueingReport, Drawn]:
    """Runs everything in turn. Raises: ConfigError for a trace; GangschedError for lost jobs."""
    plan.check()
    drawn: Drawn | None = None
    done = []
    for name in plan.workloads:
        runs = Runs(readable(name), plan.n_jobs, 0, {}, [])
        seeds, runs.n_left_out = _seeds_of(name, plan)
        runs.n_jobs = len(seeds[0].jobs)
        for workload in seeds:
            starts = {}
            for policy, replay in _contenders(plan).items():
                began_s = time.monotonic()
                starts[policy] = replay(workload)
                wrong = judge.problems(workload, starts[policy])
                runs.problems += [f"{workload.source}, {policy}: {problem}" for problem in wrong]
                runs.figures.setdefault(policy, []).append(judge.figures(workload, starts[policy]))
                if policy in CONTENDERS:
                    progress.say(f"{workload.source}: {policy} {time.monotonic() - began_s:.0f} s")
            drawn = drawn or Drawn(workload, starts)  # the first seed of the first workload
        done.append(runs)
    assert drawn is not None
    return QueueingReport(_conditions(plan), done, _targets(done)), drawn


def _contenders(plan: Plan) -> dict[str, Callable[[Workload], Starts]]:
    found: dict[str, Callable[[Workload], Starts]] = {
        policy.name: partial(policies.replay, policy=policy) for policy in POLICIES
    }
    for name, config in CONTENDERS.items():
        found[name] = partial(live.replay, n_nodes=plan.n_nodes, gpus=plan.gpus, config=config)
    return found


def _seeds_of(name: str, plan: Plan) -> tuple[list[Workload], int]:
    """The workload, shaken by each seed, at the load asked for, every job with a limit."""
    if name == LUBLIN:
        made = [lublin(plan.n_jobs, plan.n_devices, seed) for seed in range(plan.n_seeds)]
        n_left_out = 0
    else:
        trace = read_trace(name, plan.n_jobs, plan.n_devices)
        n_left_out = trace.n_left_out
        made = [
            msgspec.structs.replace(
                shaken(trace.workload, seed), source=f"{trace.workload.source}, shaken by seed {seed}"
            )
            for seed in range(plan.n_seeds)
        ]
    return [with_limits(at_load(one, plan.load), seed) for seed, one in enumerate(made)], n_left_out


def _conditions(plan: Plan) -> dict[str, str | int | float]:
    return {
        "python": sys.version.split()[0],
        "cluster": f"{plan.n_nodes} nodes of {plan.gpus} devices; a job is a gang of pods of one device",
        "load": plan.load,
        "seeds": plan.n_seeds,
        "limits": "a job that states none: the next round number above 1 to 10 times its run time",
    }


def _targets(workloads: Sequence[Runs]) -> list[Target]:
    impossible = [problem for one in workloads for problem in one.problems]
    targets = [nothing_wrong("what the judge finds impossible", impossible)]
    for one in workloads:
        ratio = one.beside(OURS, FIRST_FIT.name, "mean_slowdown")
        targets.append(at_most(f"{one.name}: mean slowdown of {OURS}, by first fit's", 1.05, ratio, "x"))
        for policy, limits in _LIMITS.items():
            targets += _of_claims(one, policy, limits)
    return targets


def _of_claims(runs: Runs, policy: str, limits: _Limits) -> list[Target]:
    """The targets of the real core with claims on one workload, relative to EASY and first fit."""

    def target(what: str, limit: float, by: str, figure: str) -> Target:
        text = f"{runs.name}: {what} of {policy}, by {by}'s"
        return at_most(text, limit, runs.beside(policy, by, figure), "x")

    most, kept = runs.spread(policy, "of_bound"), runs.spread(policy, "promises_kept")
    name = f"{runs.name}, {policy}"
    found = [
        at_most(f"{name}: passed, of the bound", 1.0, None if most is None else most.high, "x"),
        target("mean slowdown", limits.mean, EASY.name, "mean_slowdown"),
        target("p95 slowdown", limits.p95, EASY.name, "p95_slowdown"),
        target("longest wait", limits.longest, EASY.name, "longest_wait_s"),
    ]
    if limits.by_first_fit is not None:
        found.append(target("longest wait", limits.by_first_fit, FIRST_FIT.name, "longest_wait_s"))
    used = runs.above(policy, FIRST_FIT.name, "utilisation")
    found.append(at_least(f"{name}: utilisation above first fit's", _UTILISATION_POINTS, used))
    found.append(at_most(f"{name}: claimed idle", _CLAIMED_IDLE, runs.spread(policy, "claimed_idle")))
    found.append(at_least(f"{name}: promises kept within 60 s, but for overruns", _PROMISES_KEPT, kept))
    return found


def print_report(done: QueueingReport, console: Console) -> None:
    """Prints a table for each workload."""
    print_conditions(done.conditions, console)
    for runs in done.workloads:
        left_out = f", {runs.n_left_out} left out that cannot run here" if runs.n_left_out else ""
        title = f"{runs.name}: {runs.n_jobs} jobs{left_out}; medians over the seeds"
        table = Table(title=title, title_justify="left")
        table.add_column("", min_width=max(len(word) for name in runs.figures for word in name.split()))
        for column, _, _ in _COLUMNS:
            table.add_column(column, justify="right")
        for policy in runs.figures:
            found = [runs.spread(policy, figure, unit) for _, figure, unit in _COLUMNS]
            cells = ["" if one is None else text(one.median) for one in found]
            table.add_row(policy, *cells)
        console.print(table)
        for policy in runs.figures:
            if late := runs.late(policy):
                causes = ", ".join(f"{n} by {cause}" for cause, n in late.items())
                console.print(f"{policy}: promised starts that came late: {causes}", highlight=False)
        for problem in runs.problems:
            console.print(f"impossible: {problem}", highlight=False, markup=False, soft_wrap=True)
    print_targets(done.targets, console)
