"""`gangsched import KIND FILE... OUT`: other schedulers' days as a journal. Called by command.cli."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from rich.markup import escape

from gangsched.command import printing
from gangsched.errors import ConfigError
from gangsched.lab.bench.queueing.traces.jobs import Job
from gangsched.lab.bench.queueing.traces.traces import jobs_of
from gangsched.lab.counterfactual.answers.words import duration
from gangsched.lab.importing.history import write_history
from gangsched.lab.importing.jobs import Written, taken, write_jobs
from gangsched.lab.importing.kubernetes import History, read_history
from gangsched.lab.importing.nodes import MAX_NODES, equal_nodes, listed_nodes
from gangsched.lab.importing.writing import JournalFile
from gangsched.model.text.printable import clean, several

_KUBERNETES = "kubernetes"
_KINDS = {
    "swf": "which node a job ran on, when it started, its memory, and its user",
    "csv": "which node a job ran on, when it started, shares of a device, and its user",
    "kubernetes": "PodGroups, other objects, device IDs, and changes of pods that wait",
    "sacct": "which node a job ran on, when it started, its partition, its state at the end, and its user",
}
"""What each kind does not contain, or what is not taken over."""
_N_NODES, _N_GPUS, _N_JOBS = 16, 8, 10_000
_MAX_GPUS = 64
_MAX_JOBS = 1_000_000
_MAX_BAD_SHOWN = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.description = (
        "Makes a journal of recorded jobs: they arrive when they did and run as long as they did, as gangs"
        " of pods; where and when they start is decided by this scheduler, on the nodes that are given, but"
        " for kubernetes, which has it."
        " gangsched replay, counterfactual and bench --queueing read it. A line that cannot be read is left"
        " out and named."
    )
    parser.add_argument(
        "kind",
        choices=sorted(_KINDS),
        metavar="KIND",
        help="swf (Standard Workload Format), csv (arrival_s, run_s, devices; or the openb trace's pods),"
        " sacct (what Slurm's sacct -P prints), or kubernetes (an audit log, kubectl get pods,nodes -A -o"
        " json, or both: pods are bound as they were)",
    )
    parser.add_argument("file", nargs="+", metavar="FILE", help="read one after the other")
    parser.add_argument("out", metavar="OUT", help="the journal's directory: an empty one, or a new one")
    parser.add_argument("--nodes", type=int, metavar="N", help=f"how many, all alike (default {_N_NODES})")
    parser.add_argument("--gpus", type=int, metavar="N", help=f"of each of these nodes (default {_N_GPUS})")
    parser.add_argument(
        "--node-list",
        default="",
        metavar="FILE",
        help="the nodes in place of equal ones: CSV with sn, cpu_milli, memory_mib, gpu, and model if known",
    )
    parser.add_argument("--jobs", type=int, metavar="N", help=f"take only the first N (default {_N_JOBS})")


class _Bad:
    """Lines that cannot be read: counted, and the first of them shown."""

    def __init__(self) -> None:
        self.n = 0
        self.shown: list[str] = []

    def __call__(self, error: ConfigError) -> None:
        self.n += 1
        if len(self.shown) < _MAX_BAD_SHOWN:
            self.shown.append(clean(str(error)))


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit code. Raises: ConfigError."""
    _check(args)
    bad = _Bad()
    try:
        _import(args, bad)
    except ConfigError as error:
        if error.source or error.path:
            raise
        first = f"; the first of {bad.n:,} bad lines: {bad.shown[0]}" if bad.n else ""
        raise ConfigError(f"{error.message}{first}", source=args.file[0]) from None
    return 0


def _import(args: argparse.Namespace, bad: _Bad) -> None:
    """Imports the files. Raises: ConfigError."""
    if args.kind == _KUBERNETES:
        history = History()
        for path in args.file:
            read_history(path, history, bad)
        with JournalFile(Path(args.out), f"import-{args.kind}") as file:
            done = write_history(history, file)
        _tell(args, history.missing, bad, done, file)
        return
    if args.node_list:
        nodes = listed_nodes(args.node_list, bad)
    else:
        nodes = equal_nodes(args.nodes or _N_NODES, args.gpus or _N_GPUS)
    jobs = chain.from_iterable(_jobs(path, args.kind, bad) for path in args.file)
    of = taken(jobs, nodes, args.jobs or _N_JOBS)
    with JournalFile(Path(args.out), f"import-{args.kind}") as file:
        done = write_jobs(of, nodes, file)
    _tell(args, of.left_out, bad, done, file, has_date=of.has_date)


def _check(args: argparse.Namespace) -> None:
    """Checks the flags. Raises: ConfigError."""
    for flag, value, most in (
        ("--nodes", args.nodes, MAX_NODES),
        ("--gpus", args.gpus, _MAX_GPUS),
        ("--jobs", args.jobs, _MAX_JOBS),
        ("--node-list", args.node_list or None, 0),
    ):
        if value is None:
            continue
        if args.kind == _KUBERNETES:
            raise ConfigError("is not for kubernetes: its pods and nodes are those of the file", path=flag)
        if most and not 1 <= value <= most:
            raise ConfigError(f"{value} is not within 1..{most}", path=flag)
        if args.node_list and flag in ("--nodes", "--gpus"):
            raise ConfigError("cannot be given with --node-list, which has the nodes", path=flag)


def _jobs(path: str, kind: str, bad: _Bad) -> Iterator[Job | str]:
    try:
        yield from jobs_of(path, kind, bad)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", source=path) from None


def _tell(
    args: argparse.Namespace,
    left_out: dict[str, int],
    bad: _Bad,
    done: Written,
    file: JournalFile,
    *,
    has_date: bool = True,
) -> None:
    console = printing.console(160)
    is_past = args.kind == _KUBERNETES
    what, how = ("pod", "were bound") if is_past else ("job", "started")
    n_all, lasted = done.n_started + done.n_waiting, duration(done.lasted_s)
    console.print(
        f"{several(n_all, what)} over {lasted} {'is' if n_all == 1 else 'are'} in {escape(args.out)}"
        f" ({several(file.n_records, 'record')}, {file.n_bytes / 1e6:,.2f} MB);"
        f" {done.n_started:,} of them {how}.",
        soft_wrap=True,
    )
    for name, n in sorted(left_out.items(), key=lambda one: (-one[1], one[0])):
        console.print(f"  {'missing' if is_past else 'left out'}: {escape(name)}{f': {n:,}' if n else ''}")
    if bad.n:
        what = "objects and lines" if is_past else "lines"
        console.print(f"  left out: {what} that cannot be read: {bad.n:,}")
        for one in bad.shown:
            console.print(f"    {escape(one)}", soft_wrap=True)
    if done.n_waiting and not is_past:
        why = "nothing that could start them happens any more"
        console.print(f"  jobs that wait to the end, as {why}: {done.n_waiting:,}")
    starts = "Binds are those of the past." if is_past else "Starts are this scheduler's own."
    console.print(f"  not in it: {_KINDS[args.kind]}. {starts}", soft_wrap=True)
    if not has_date:
        where = "; UnixStartTime in the header would say it" if args.kind == "swf" else ""
        console.print(f"  not in it: the date: its first job comes at 2000-01-01 00:00 UTC{where}.")
