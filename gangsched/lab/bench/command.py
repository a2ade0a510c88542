"""`gangsched bench`: the options and what they lead to. Called by command.cli."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from rich.console import Console

from gangsched.command import printing
from gangsched.command.arguments import add_output_flag
from gangsched.errors import ConfigError, GangschedError
from gangsched.lab.bench.progress import Progress
from gangsched.lab.bench.rounds import contenders
from gangsched.whole_file import check_file, put_file

T = TypeVar("T")
# Into a file or a pipe: wide enough that no cell is cut.
_PIPE_COLUMNS = 150
# A task ends by itself a while after that.
_MAX_REAL_S = 600.0


# By the flag that asks for them.
_BESIDE = {"fence": contenders.FENCED, "record": contenders.RECORDED}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.description = (
        "Measures gangsched beside a null binder and kube-scheduler, on a real control plane, in one run."
    )
    _add_benches(parser)
    _add_queueing(parser)
    parser.add_argument(
        "--picture",
        metavar="FILE",
        default="",
        help="with --load-balance or --queueing: write it as an SVG, too",
    )
    parser.add_argument(
        "--real",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="with --load-balance: also on three cgroups of this machine, where the tasks really run for so"
        " long (60 takes 7 minutes, and root)",
    )
    parser.add_argument(
        "--kubelets",
        action="store_true",
        help="with --real: the workers are real kubelets, and the tasks their pods (containerd and runc too)",
    )
    parser.add_argument("--nodes", type=int, metavar="N", help="default: 1000; with --queueing 16")
    parser.add_argument("--gangs", type=int, metavar="N", help="default: 875; with --latency 60")
    parser.add_argument("--gang-size", type=int, default=8, metavar="N", help="pods, of one GPU each")
    parser.add_argument("--gpus", type=int, default=8, metavar="N", help="of each node")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="of each scheduler, alternating")
    parser.add_argument(
        "--schedulers",
        metavar="NAME,...",
        help=f"some of {', '.join((*contenders.ALL, *_BESIDE.values()))} (default: all but the last two)",
    )
    parser.add_argument(
        "--fence",
        action="store_true",
        help=f"{contenders.FENCED} as well: gangsched with the fence that it has under leader election, round"
        " by round beside the one without; also with --latency",
    )
    parser.add_argument(
        "--record",
        action="store_true",
        help=f"{contenders.RECORDED} as well: gangsched with its journal, round by round beside it without",
    )
    parser.add_argument("--gogc", type=int, default=400, help="kube-apiserver's GOGC (default 400)")
    parser.add_argument(
        "--no-warm-up", dest="warm_up", action="store_false", help="leave out the first round"
    )
    parser.add_argument("--keep-going", action="store_true", help="go on after a round that was wrong")
    add_output_flag(parser, "text", "json")


def _add_benches(parser: argparse.ArgumentParser) -> None:
    """Adds the benches that run instead of the comparison on a real control plane."""
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--latency", action="store_true", help="one gang at a time on idle nodes, instead")
    what.add_argument("--core", action="store_true", help="decisions in memory, without an API, instead")
    what.add_argument(
        "--dashboard",
        action="store_true",
        help="what the dashboard costs the scheduler's loop: off, on, and with ten viewers, instead",
    )
    what.add_argument(
        "--load-balance",
        action="store_true",
        help="how evenly six algorithms load unequal workers, simulated and on an embedded API server",
    )
    what.add_argument(
        "--queueing",
        action="store_true",
        help="how long jobs wait under the real core in virtual time, beside first fit, strict FCFS, EASY,"
        " conservative backfilling and shortest first",
    )


def _add_queueing(parser: argparse.ArgumentParser) -> None:
    of = parser.add_argument_group("with --queueing")
    of.add_argument(
        "--workload",
        action="append",
        metavar="NAME",
        help="lublin, the model of Lublin and Feitelson (default), or a file: .swf of the Parallel Workloads"
        " Archive, .csv with arrival_s, run_s, devices, .sacct of Slurm's sacct -P; or the directory of a"
        " journal; several are run one after the other",
    )
    of.add_argument("--jobs", type=int, default=500, metavar="N", help="of each workload (default 500)")
    of.add_argument("--seeds", type=int, default=5, metavar="N", help="each shakes it anew (default 5)")
    of.add_argument(
        "--speed",
        action="store_true",
        help="instead: how long a turn and the plan of a claim last on 5,000 full nodes (--nodes) with 10,000"
        " pods in line and 64 claims, in CPU time; takes minutes",
    )
    of.add_argument(
        "--fairness",
        action="store_true",
        help="instead: what two teams get of a cluster over a day and after a week's rest, and how soon what"
        " is guaranteed is held",
    )
    of.add_argument("--load", type=float, default=0.75, metavar="SHARE", help="of the devices (default 0.75)")


def run(args: argparse.Namespace) -> int:
    """Runs the requested bench; returns 0, or 1 if something was wrong in a round."""
    if not 0 <= args.real <= _MAX_REAL_S:
        raise ConfigError(f"--real {args.real:g} is not within 0 to {_MAX_REAL_S:g} seconds")
    if args.kubelets and not args.real:
        raise ConfigError("--kubelets needs --real SECONDS: they run real tasks")
    if args.rounds < 1:
        raise ConfigError(f"--rounds {args.rounds} is less than 1")
    progress = Progress()
    try:
        if args.core:
            return _core(args, progress)
        if args.dashboard:
            return _dashboard(args, progress)
        if args.load_balance:
            return _load_balance(args, progress)
        if args.queueing:
            return _queueing(args, progress)
        args.nodes = 1000 if args.nodes is None else args.nodes
        if args.latency:
            return _latency(args, progress)
        return _main_job(args, progress)
    except ConfigError:
        raise
    except GangschedError as error:
        print(f"gangsched bench: {error}", file=sys.stderr)
        return 1


def chosen(args: argparse.Namespace, offered: Sequence[str]) -> list[str]:
    """Returns the requested schedulers, in their order. Raises: ConfigError for one that is not offered."""
    if not args.schedulers:
        return [each for name in offered for each in _beside(name, args)]
    offered = [*offered, *_BESIDE.values()]
    names = [name.strip() for name in args.schedulers.split(",")]
    for name in names:
        if name not in offered:
            raise ConfigError(f"--schedulers: {name!r} is not one of {', '.join(offered)}")
    return list(dict.fromkeys(each for name in names for each in _beside(name, args)))


def _beside(name: str, args: argparse.Namespace) -> Sequence[str]:
    if name != contenders.GANGSCHED:
        return (name,)
    return (name, *(other for flag, other in _BESIDE.items() if getattr(args, flag)))


def _main_job(args: argparse.Namespace, progress: Progress) -> int:
    from gangsched.lab.bench import tables
    from gangsched.lab.bench.rounds import main_job

    args.gangs = 875 if args.gangs is None else args.gangs
    done = main_job.run(args, chosen(args, contenders.ALL), progress)
    _print(args, done, tables.print_report)
    return main_job.exit_code(done)


def _latency(args: argparse.Namespace, progress: Progress) -> int:
    from gangsched.lab.bench import latency

    args.gangs = 60 if args.gangs is None else args.gangs
    done = latency.run(
        args, chosen(args, [name for name in contenders.ALL if name != contenders.NULL]), progress
    )
    _print(args, done, latency.print_report)
    return 0


def _core(args: argparse.Namespace, progress: Progress) -> int:
    from gangsched.lab.bench.speed import core_speed

    done = core_speed.run(args.rounds, progress)
    _print(args, done, core_speed.print_report)
    return 0


def _dashboard(args: argparse.Namespace, progress: Progress) -> int:
    from gangsched.lab.bench.speed import dashboard_speed

    done = dashboard_speed.run(args.rounds, progress)
    _print(args, done, dashboard_speed.print_report)
    return 0


def _load_balance(args: argparse.Namespace, progress: Progress) -> int:
    from gangsched.lab.bench.balance import report
    from gangsched.lab.bench.balance.picture import picture

    if args.picture:
        check_file(args.picture)  # before measuring, which takes minutes
    done = report.run(progress, real_s=args.real, on_kubelets=args.kubelets)
    _print(args, done, report.print_report)
    if args.picture:
        put_file(args.picture, picture(done))
    return 0


def _queueing(args: argparse.Namespace, progress: Progress) -> int:
    from gangsched.lab.bench.queueing import fairness, report, speed
    from gangsched.lab.bench.queueing.picture import picture

    if args.speed and args.fairness:
        raise ConfigError("--speed and --fairness: one of the two")
    if args.fairness:
        n_nodes = 16 if args.nodes is None else args.nodes
        shared = fairness.measure(progress, n_nodes=n_nodes, gpus=args.gpus, n_seeds=args.seeds)
        _print(args, shared, fairness.print_fairness)
        return 0
    if args.speed:
        measured = speed.measure(progress, n_nodes=5000 if args.nodes is None else args.nodes)
        _print(args, measured, speed.print_speed)
        return 0
    if args.picture:
        check_file(args.picture)  # before measuring, which takes minutes
    plan = report.Plan(
        args.workload or [report.LUBLIN],
        n_jobs=args.jobs,
        n_seeds=args.seeds,
        load=args.load,
        n_nodes=16 if args.nodes is None else args.nodes,
        gpus=args.gpus,
    )
    done, drawn = report.run(plan, progress)
    _print(args, done, report.print_report)
    if args.picture:
        put_file(args.picture, picture(drawn))
    return 1 if any(runs.problems for runs in done.workloads) else 0


def _print(args: argparse.Namespace, done: T, print_report: Callable[[T, Console], None]) -> None:
    if args.output == "json":
        printing.print_json(done)
    else:
        print_report(done, printing.console(_PIPE_COLUMNS, highlight=True))
