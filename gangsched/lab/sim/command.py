"""`python -m gangsched.lab.sim`: runs seeds of storms, reports progress and findings, minimized.

Lives here: flags, processes, output. Not here: storms and minimizing (lab.sim.runs.storms).
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import subprocess
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import count, islice
from pathlib import Path
from typing import TextIO

import msgspec
from msgspec.structs import replace

from gangsched.errors import ConfigError
from gangsched.lab.sim.runs.driver import Broken
from gangsched.lab.sim.runs.storms import STORMS, Case, case, shrink
from gangsched.process.garbage_collection import collect_rarely
from gangsched.whole_file import write_whole

_USAGE = """\
examples:
  python -m gangsched.lab.sim --seeds 0..999                   a thousand seeds of the full storm
  python -m gangsched.lab.sim --seeds commit --minutes 2       for two minutes, others for each commit
  python -m gangsched.lab.sim --storm hostile --seeds 17       one seed again
  python -m gangsched.lab.sim --seeds 0..199 --histories FILE  what was decided, to compare before and after
  make long-storm                                              20,000 seeds, by one scheduler and by two
exit status: 0 nothing found, 1 something found, 2 wrong usage, 130 interrupted"""
WIRE = "wire"
_HOUSE = Path(__file__).parents[2]
_BATCH = 4
_REPORT_EVERY_S = 15.0
_STORY_LINES = 25
_MAX_FOUND = 10
# Seeds from one commit's first to the next one's: more than any run takes, and far from those that people
# count from 0.
_APART = 10**5
# Steps between recounts. A wrong count nearly always stays wrong for longer than that, and a recount after
# every step costs as much as an eighth of all seeds.
_RECOUNT_EVERY = 4


class Found(msgspec.Struct, frozen=True):
    """What broke in one seed, in words."""

    storm: str
    seed: int
    text: str


class Batch(msgspec.Struct, frozen=True):
    """One process's results."""

    storm: str
    n_done: int
    cpu_s: float
    found: list[Found]
    histories: list[str]


def seeds_of(text: str) -> Iterable[int]:
    """`17`, `0..999` (both ends included), `500..` (for ever), `commit`. Raises: ConfigError."""
    if text == "commit":
        return count(first_of_commit())
    first, dots, last = text.partition("..")
    if not first.isdecimal() or not (last.isdecimal() or not last):
        raise ConfigError(f"{text!r} are no seeds; examples: 17, 0..999, 500.., commit", path="--seeds")
    if not dots:
        return (int(first),)
    if not last:
        return count(int(first))
    if int(last) < int(first):
        raise ConfigError(f"{text!r} ends before it begins; did you mean {last}..{first}?", path="--seeds")
    return range(int(first), int(last) + 1)


def first_of_commit() -> int:
    """Returns a seed from the hash of the current commit, or of this code if there is no repository."""
    code = _git("rev-parse", "HEAD")
    if not code:
        code = b"".join(path.read_bytes() for path in sorted(_HOUSE.rglob("*.py")))
    return (1 + int(hashlib.sha256(code).hexdigest()[:6], 16)) * _APART


def _git(*asked: str) -> bytes:
    """Returns git's output; empty if there is no repository."""
    try:
        return subprocess.run(("git", "-C", str(_HOUSE), *asked), capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return b""


def code_that_runs() -> str:
    """Names the commit, and whether the files differ from it."""
    commit = _git("rev-parse", "HEAD").decode().strip()
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", str(_HOUSE))
    return f"commit {commit or 'unknown'}{', with changes' if changed else ''}"


def run_batch(name: str, seeds: Sequence[int], with_histories: bool) -> Batch:
    """Runs a few seeds of one storm, in any process."""
    if name == WIRE:
        return _run_on_wire(seeds, with_histories)
    thresholds = gc.get_threshold()
    collect_rarely()  # a seed's objects, by the hundred thousand, live as long as it does
    try:
        return _run_in_storm(name, seeds, with_histories)
    finally:
        gc.set_threshold(*thresholds)


def _run_in_storm(name: str, seeds: Sequence[int], with_histories: bool) -> Batch:
    storm, began_s = STORMS[name], time.process_time()
    found, histories = [], []
    for seed in seeds:
        whole = case(storm, seed)
        try:
            history = replace(whole, recount_every=_RECOUNT_EVERY).run().history
        except Broken as broken:
            # Once more with a recount after every step, which names the step that counted wrong.
            found.append(Found(name, seed, _describe_failure(name, whole, whole.failure() or broken)))
            history = []
        except Exception:  # a bug of the simulation itself must not end the other runs
            found.append(Found(name, seed, f"{name}, seed {seed}: no verdict\n{traceback.format_exc()}"))
            history = []
        if with_histories:
            digest = hashlib.sha256(b"\n".join(history)).hexdigest()
            histories.append(f"{name} {seed} {len(history)} {digest}")
    return Batch(name, len(seeds), time.process_time() - began_s, found, histories)


def _run_on_wire(seeds: Sequence[int], with_histories: bool) -> Batch:
    """Runs whole processes on bytes in memory; imports lab.sim.wire only here, as it needs all that a
    scheduler needs."""
    from gangsched.lab.sim.wire import run_seed, shrink

    began_s = time.process_time()
    found, histories = [], []
    for seed in seeds:
        verdict = run_seed(seed)
        if verdict.problems:
            least = shrink(verdict)
            lines = [
                f"{WIRE}: {verdict.problems[0]}",
                f"  cut down: {least.verdict.problems[0]}",
                f"  with {least.n_gangs} gangs",
                f"  with these faults only: {', '.join(least.faults) or 'none'}",
                f"  again: python -m gangsched.lab.sim --storm {WIRE} --seeds {seed}",
                *(f"  | {line}" for line in least.verdict.story[-_STORY_LINES:]),
            ]
            found.append(Found(WIRE, seed, "\n".join(lines)))
        if with_histories:
            histories.append(f"{WIRE} {seed} {verdict.n_requests} {verdict.digest}")
    return Batch(WIRE, len(seeds), time.process_time() - began_s, found, histories)


def _describe_failure(name: str, whole: Case, broken: Broken) -> str:
    """Describes a failing seed, cut down, for people."""
    shrunk = shrink(whole, broken)
    left = shrunk.case.workload
    arrivals = ", ".join(arrival.pods[0].metadata.name for arrival in left.arrivals)
    lines = [
        f"{name}: {broken.problem}",
        f"  cut down in {shrunk.n_tries} tries: {shrunk.broken.problem}",
        f"  with {len(left.everything)} of {shrunk.size_before} arrivals: {arrivals or 'none'}"
        + (f", and {len(left.intrusions)} hostile objects" if left.intrusions else ""),
        f"  with these faults only: {', '.join(shrunk.faults) or 'none'}",
        f"  again: python -m gangsched.lab.sim --storm {name} --seeds {whole.seed}",
        *(f"  | {line}" for line in shrunk.broken.story[-_STORY_LINES:]),
    ]
    cause = broken.__cause__
    if cause is not None:
        lines.insert(1, f"  raised: {type(cause).__name__}: {str(cause)[:300]}")
    return "\n".join(lines)


class Run:
    """Hands out seeds to processes, and collects their results."""

    def __init__(self, args: argparse.Namespace, out: TextIO) -> None:
        self._args = args
        self._out = out
        self._began_s = time.monotonic()
        self._reported_s = self._began_s
        self._n_done = 0
        self._cpu_s = 0.0
        self._by_storm: dict[str, list[Batch]] = {}
        self.found: list[Found] = []
        self.histories: list[str] = []

    def go(self) -> int:
        """Runs all seeds; returns the exit status."""
        seeds = seeds_of(self._args.seeds)
        first = next(iter(seeds))
        names = ", ".join(self._args.storm)
        until = f"for {self._args.minutes:g} min" if self._args.minutes else "to the last of them"
        self._print(f"seeds {self._args.seeds} ({first}…) of {names}, {self._args.jobs} at a time, {until}")
        work = self._batches(iter(seeds))
        try:
            if self._args.jobs == 1:
                for batch in work:
                    self._take(run_batch(*batch))
            else:
                self._share_out(work)
        except KeyboardInterrupt:
            self._report("interrupted")
            return 130
        self._sum_up()
        self._report("done")
        return 1 if self.found else 0

    def _batches(self, seeds: Iterator[int]) -> Iterator[tuple[str, Sequence[int], bool]]:
        """Yields batches until the seeds or the time are over, or enough is found."""
        limit_s = self._args.minutes * 60.0 or float("inf")
        while batch := list(islice(seeds, _BATCH)):
            for name in self._args.storm:
                if time.monotonic() - self._began_s >= limit_s or len(self.found) >= _MAX_FOUND:
                    return
                slow = name == WIRE or STORMS[name].is_slow
                n = 1 if slow and len(self._args.storm) > 1 else len(batch)
                yield name, batch[:n], bool(self._args.histories)

    def _share_out(self, work: Iterator[tuple[str, Sequence[int], bool]]) -> None:
        with ProcessPoolExecutor(self._args.jobs) as pool:
            pending: set[Future[Batch]] = set()
            try:
                for batch in work:
                    pending.add(pool.submit(run_batch, *batch))
                    if len(pending) > self._args.jobs:
                        done, pending = wait(pending, return_when=FIRST_COMPLETED)
                        for future in done:
                            self._take(future.result())
                for future in pending:
                    self._take(future.result())
            except KeyboardInterrupt:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _take(self, batch: Batch) -> None:
        self._by_storm.setdefault(batch.storm, []).append(replace(batch, histories=[]))
        self._n_done += batch.n_done
        self._cpu_s += batch.cpu_s
        self.histories += batch.histories
        for found in batch.found:
            self.found.append(found)
            self._print(f"\n{found.text}\n")
        if time.monotonic() - self._reported_s >= _REPORT_EVERY_S:
            self._reported_s = time.monotonic()
            self._report("so far")

    def _sum_up(self) -> None:
        """Prints a line for each storm, and the commit that was run."""
        for name, batches in self._by_storm.items():
            n_done, cpu_s = sum(one.n_done for one in batches), sum(one.cpu_s for one in batches)
            n_found = sum(len(one.found) for one in batches)
            pace = n_done / cpu_s if cpu_s else 0.0
            progress = f"{pace:5.1f} a second of CPU, {n_found or 'nothing'} found"
            self._print(f"{name:12} {n_done:6} seeds, {progress}")
        self._print(code_that_runs())

    def _report(self, when: str) -> None:
        passed_s = time.monotonic() - self._began_s
        pace = self._n_done / self._cpu_s if self._cpu_s else 0.0
        self._print(
            f"{when}: {self._n_done} runs in {passed_s:.0f} s, {pace:.1f} a second of CPU,"
            f" {len(self.found) or 'nothing'} found"
        )

    def _print(self, text: str) -> None:
        print(text, file=self._out, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m gangsched.lab.sim",
        description="Runs the scheduler's core through storms of faults, by seeds, and judges each step.",
        epilog="storms:\n"
        + "\n".join(f"  {name:12} {storm.title}" for name, storm in STORMS.items())
        + f"\n  {WIRE:12} whole processes in virtual time, on bytes in memory\n{_USAGE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--seeds", metavar="A..B", default="0..99", help="17, 0..999, 500.., commit (default: 0..99)")
    add("--storm", action="append", metavar="NAME", help="one, more, or all (default: storm)")
    add("--jobs", type=int, metavar="N", default=1, help="processes (default: 1)")
    add("--minutes", type=float, metavar="M", default=0.0, help="begins no seed later than that")
    add("--histories", metavar="FILE", help="writes a digest of what each seed decided")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    args = _parser().parse_args(argv)
    args.storm = args.storm or ["storm"]
    if "all" in args.storm:
        args.storm = [*STORMS, WIRE]
    try:
        _check(args)
        run = Run(args, sys.stdout)
        status = run.go()
        if args.histories:
            histories = "\n".join(sorted(run.histories, key=_by_seed)) + "\n"
            write_whole(Path(args.histories), histories.encode())
    except (ConfigError, OSError) as error:
        print(f"gangsched.lab.sim: {error}", file=sys.stderr)
        return 2
    return status


def _check(args: argparse.Namespace) -> None:
    for name in args.storm:
        if name not in (*STORMS, WIRE):
            known = ", ".join((*STORMS, WIRE))
            raise ConfigError(f"no storm is called {name!r}; there are {known}", path="--storm")
    if args.jobs < 1:
        raise ConfigError(f"{args.jobs} processes do nothing; at least 1", path="--jobs")
    if args.minutes < 0:
        raise ConfigError(f"{args.minutes:g} minutes are over already; more than 0", path="--minutes")
    if (args.seeds == "commit" or args.seeds.endswith("..")) and not args.minutes:
        raise ConfigError(f"{args.seeds} never ends; say for how long with --minutes", path="--seeds")


def _by_seed(line: str) -> tuple[str, int]:
    name, seed, *_ = line.split()
    return name, int(seed)
