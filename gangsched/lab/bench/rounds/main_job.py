"""The default bench: the main job, in alternating rounds, on one control plane.

Called by lab.bench.command. What does not live here: one round (rounds.py) and how it looks
(lab.bench.tables).
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gangsched.lab.bench.figures import Spread, spread
from gangsched.lab.bench.progress import Progress
from gangsched.lab.bench.rounds import contenders, report
from gangsched.lab.bench.rounds.cluster import Cluster
from gangsched.lab.bench.rounds.report import Report
from gangsched.lab.bench.rounds.rounds import Bench, Round
from gangsched.lab.bench.rounds.workload import Shape
from gangsched.lab.bench.targets import Target, at_least, at_most, nothing_wrong
from gangsched.lab.controlplane.assets import find
from gangsched.lab.controlplane.processes import ControlPlane

SPEED = "pods/s, first to last bind"
SPEED_FROM_START = "pods/s, start to last bind"
CPU = "scheduler CPU, us/pod"
TARGET_SHAPE = (1000, 875, 8, 8)
# Rounds leave some 100 MB of history each behind, and etcd's default quota is 2 GiB.
ETCD_FLAGS = (f"--quota-backend-bytes={8 << 30}",)
# Only between rounds, but a round of the default size has 7,000 pods to delete.
APISERVER_FLAGS = ("--delete-collection-workers=8",)


def control_plane(args: argparse.Namespace, schedulers: Sequence[str]) -> ControlPlane:
    """Makes the one control plane of a run. Raises: MissingAssets, with the command that fetches them."""
    assets = find()
    if {contenders.KUBE, contenders.KUBE_GANG} & set(schedulers):
        assets.path("kube-scheduler")
    return ControlPlane(
        assets=assets, apiserver_gogc=args.gogc, etcd_flags=ETCD_FLAGS, apiserver_flags=APISERVER_FLAGS
    )


def run(args: argparse.Namespace, schedulers: Sequence[str], progress: Progress) -> Report:
    """Runs all rounds; without --keep-going a round with problems is the last."""
    shape = Shape(n_nodes=args.nodes, n_gangs=args.gangs, gang_size=args.gang_size, gpus=args.gpus)
    shape.check()
    turns = [(0, contenders.NULL, True)] if args.warm_up else []
    turns += [(number, name, False) for number in range(1, args.rounds + 1) for name in schedulers]
    order = [f"{name} (warm-up)" if warm_up else f"{number} {name}" for number, name, warm_up in turns]
    conditions = report.conditions(shape, gogc=args.gogc, fsync=True, order=order)
    if (shape.n_nodes, shape.n_gangs, shape.gang_size, shape.gpus) != TARGET_SHAPE:
        conditions["targets"] = "given for 875 gangs of 8 on 1,000 nodes of 8 GPUs; this run has another size"
    rounds: list[Round] = []
    with control_plane(args, schedulers) as cp, Cluster(cp) as cluster, _folder() as folder:
        bench = Bench(cp, cluster, shape, Path(folder), progress)
        bench.set_up()
        for number, name, warm_up in turns:
            done = bench.run(name, number, warm_up=warm_up)
            rounds.append(done)
            progress.say(describe(done))
            if done.problems and not args.keep_going:
                progress.say("stopping: this round is wrong (--keep-going would go on)")
                break
    return assemble(rounds, schedulers, shape, conditions)


def describe(done: Round) -> str:
    """Describes a finished round in one line, and its problems in further ones."""
    marks = [
        mark
        for mark, is_set in (
            ("warm-up", done.warm_up),
            (f"DISTURBED by {done.others_cores:.2f} cores", done.disturbed),
            ("did not come to rest", not done.rested),
        )
        if is_set
    ]
    line = (
        f"round {done.number} {done.scheduler}: {done.n_bound}/{done.n_pods} bound, {done.pods_per_s:.0f}/s,"
        f" {done.pods_per_s_from_start:.0f}/s from start, first bind {done.first_bind_s:.2f} s,"
        f" {done.cpu_us_per_pod.get('scheduler', 0.0):.0f} us CPU and {done.writes_per_pod:.2f} writes a pod,"
        f" {done.peak_memory_mib:.0f} MiB"
    )
    text = line + (f" [{', '.join(marks)}]" if marks else "")
    problems = [f"  PROBLEM: {problem}" for problem in done.problems]
    tail = [f"  | {line}" for line in done.log_tail.splitlines()] if done.problems else []
    return "\n".join([text, *problems, *tail])


def assemble(
    rounds: Sequence[Round],
    schedulers: Sequence[str],
    shape: Shape,
    conditions: dict[str, str | int | float],
) -> Report:
    """Computes the report from the rounds."""
    ratios = report.ratios(rounds, schedulers)
    return Report(
        conditions=conditions,
        shape=shape,
        rounds=list(rounds),
        summaries={name: report.summarize(rounds, name) for name in schedulers},
        ratios=ratios,
        ratios_undisturbed=report.ratios(rounds, schedulers, undisturbed=True),
        targets=judge(rounds, ratios, shape),
    )


def judge(rounds: Sequence[Round], ratios: dict[str, dict[str, Spread]], shape: Shape) -> list[Target]:
    """The main job's promises; they are given for 875 gangs of 8 on 1,000 nodes."""
    own = [r for r in rounds if r.scheduler == contenders.GANGSCHED]
    figures = report.summarize(rounds, contenders.GANGSCHED).all_rounds
    problems = [problem for r in own for problem in r.problems]

    def ratio(other: str, name: str) -> Spread | None:
        return ratios.get(other, {}).get(name)

    return [
        nothing_wrong("every check of every gangsched round", problems if own else None),
        at_most("API writes a pod", 1 + 2 / shape.gang_size, figures.get("API writes/pod")),
        at_least(
            "speed / null binder, start to last bind", 0.7, ratio(contenders.NULL, SPEED_FROM_START), "x"
        ),
        at_least("speed / null binder, first to last bind", 0.7, ratio(contenders.NULL, SPEED), "x"),
        at_least(
            "speed / kube-scheduler, start to last bind", 4, ratio(contenders.KUBE, SPEED_FROM_START), "x"
        ),
        at_least("speed / kube-scheduler, first to last bind", 4, ratio(contenders.KUBE, SPEED), "x"),
        at_least(
            "speed / kube-scheduler's gang scheduling, start to last bind",
            10,
            ratio(contenders.KUBE_GANG, SPEED_FROM_START),
            "x",
        ),
        at_most("scheduler CPU a pod, start-up included", 300, figures.get(CPU), "us"),
        # The same on any machine: where the limit above was set kube-scheduler took 2,800 us.
        at_most("scheduler CPU a pod / kube-scheduler's", 0.1, ratio(contenders.KUBE, CPU), "x"),
        at_most("first bind after the process starts", 1.5, figures.get("first bind, s"), "s"),
        at_most("peak memory", 250, figures.get("peak memory, MiB"), "MiB"),
        *_with_fence(rounds, ratio(contenders.FENCED, SPEED)),
        *_with_journal(rounds, ratio(contenders.RECORDED, SPEED)),
    ]


def _with_fence(rounds: Sequence[Round], without: Spread | None) -> list[Target]:
    """Returns the targets for the fence's cost, if it was measured."""
    if not any(r.scheduler == contenders.FENCED for r in rounds):
        return []
    writes = report.summarize(rounds, contenders.FENCED).all_rounds.get("API writes/pod")
    return [
        at_most("speed without the fence / with it, first to last bind", 1 / 0.93, without, "x"),
        at_most("API writes a pod with the fence, its own among them", 1.25, writes),
    ]


def _with_journal(rounds: Sequence[Round], without: Spread | None) -> list[Target]:
    """Returns the targets for the cost of recording, if measured; CPU by pairs of neighbouring rounds."""
    recorded = {r.number: r for r in report.counted(rounds, contenders.RECORDED)}
    if not recorded:
        return []
    plain = {r.number: r for r in report.counted(rounds, contenders.GANGSCHED)}
    pairs = [(plain[number], with_it) for number, with_it in recorded.items() if number in plain]
    more_us = [b.cpu_us_per_pod["scheduler"] - a.cpu_us_per_pod["scheduler"] for a, b in pairs]
    journal_bytes = spread([r.journal_bytes_per_pod for r in recorded.values()])
    return [
        at_most("speed without the journal / with it, first to last bind", 1.03, without, "x"),
        at_most("scheduler CPU a pod more with the journal", 20, spread(more_us), "us"),
        at_most("bytes of journal a pod", 1000, journal_bytes, "bytes"),
    ]


def exit_code(done: Report) -> int:
    """Returns 1 if anything was wrong; a target that is not met is a finding and no failure."""
    return 1 if any(r.problems for r in done.rounds) else 0


def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="gangsched-bench-")
