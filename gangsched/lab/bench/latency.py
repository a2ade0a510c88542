"""`bench --latency`: one gang at a time on idle nodes, from its last pod's creation to its last bind.

Blocks of the schedulers alternate. Times of binds are the watcher's. Times of creations are taken at the
request and at its answer: the answer's counts, and the request's is reported too.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from rich.console import Console
from rich.table import Table

from gangsched.errors import GangschedError
from gangsched.lab.bench.figures import percentile
from gangsched.lab.bench.progress import Progress
from gangsched.lab.bench.rounds import contenders, meters, report
from gangsched.lab.bench.rounds.cluster import Cluster, Created
from gangsched.lab.bench.rounds.main_job import control_plane
from gangsched.lab.bench.rounds.rounds import Bench
from gangsched.lab.bench.rounds.watch_log import WatchProcess, first_binds
from gangsched.lab.bench.rounds.workload import PodRef, Shape, pod_document
from gangsched.lab.bench.tables import print_conditions, print_targets, text
from gangsched.lab.bench.targets import Target, at_most

N_WARM_UP = 5
GANG_S = 60.0
POLL_PERIOD_S = 0.005
PAUSE_S = 0.15
"""Pause after a gang, for what its scheduler still has to write: an empty queue is measured."""


class Latency(msgspec.Struct):
    """One gang: milliseconds to its last bind in the watch."""

    from_answer_ms: float
    from_request_ms: float
    slow_syncs: int = 0
    """How often etcd's disk was slow (meters.SLOW_SYNC_S) from the gang's first creation to its last bind."""


class Block(msgspec.Struct):
    """Some gangs of one scheduler, one after the other, without the warm-up."""

    number: int
    scheduler: str
    gangs: list[Latency]
    others_cores: float
    disturbed: bool


class LatencySummary(msgspec.Struct):
    """One scheduler's gangs of all blocks."""

    n_gangs: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    n_slow_disk: int
    """Gangs with a slow sync of etcd's log in them; `p99_quick_disk_ms` covers those without."""
    p99_quick_disk_ms: float | None
    from_request_p50_ms: float
    from_request_p99_ms: float
    blocks_disturbed: int


class LatencyReport(msgspec.Struct):
    """The whole run."""

    conditions: dict[str, str | int | float]
    blocks: list[Block]
    summaries: dict[str, LatencySummary]
    targets: list[Target]


def run(args: argparse.Namespace, schedulers: Sequence[str], progress: Progress) -> LatencyReport:
    """Runs all blocks; `args.gangs` are measured for each scheduler. Raises: GangschedError for a lost
    gang."""
    per_block = -(-args.gangs // args.rounds)
    shape = Shape(n_nodes=args.nodes, n_gangs=per_block + N_WARM_UP, gang_size=args.gang_size, gpus=args.gpus)
    shape.check()
    turns = [(number, name) for number in range(1, args.rounds + 1) for name in schedulers]
    order = [f"{number} {name}" for number, name in turns]
    conditions = report.conditions(shape, gogc=args.gogc, fsync=True, order=order)
    conditions |= {"gangs": f"{per_block} of {shape.gang_size} a block, after {N_WARM_UP} to warm up"}
    del conditions["pods"], conditions["null binder"]
    blocks: list[Block] = []
    with (
        control_plane(args, schedulers) as cp,
        Cluster(cp) as cluster,
        tempfile.TemporaryDirectory(prefix="gangsched-bench-") as folder,
    ):
        bench = Bench(cp, cluster, shape, Path(folder), progress)
        bench.set_up()
        for number, name in turns:
            block = _block(bench, name, number)
            blocks.append(block)
            progress.say(_describe(block))
            cluster.clear()
    summaries = {name: _summary([b for b in blocks if b.scheduler == name]) for name in schedulers}
    return LatencyReport(conditions, blocks, summaries, judge(summaries))


def judge(summaries: Mapping[str, LatencySummary]) -> list[Target]:
    """The promises, given for a gang of 8 on 1,000 idle nodes."""
    ours, fenced = summaries.get(contenders.GANGSCHED), summaries.get(contenders.FENCED)
    return [
        at_most("gang latency p50", 20, ours.p50_ms if ours else None, "ms"),
        at_most("gang latency p99", 45, ours.p99_ms if ours else None, "ms"),
        *(
            [at_most("p50 more with the fence", 4, fenced.p50_ms - ours.p50_ms, "ms")]
            if ours and fenced
            else []
        ),
    ]


def _block(bench: Bench, scheduler: str, number: int) -> Block:
    prefix = f"l{number}-{scheduler}"
    _, version = bench.cluster.pods()
    watcher = WatchProcess(bench.cp, bench.folder, version)
    try:
        submitted, others = _submit(bench, scheduler, prefix, watcher)
        binds = first_binds(watcher.finish())
    finally:
        watcher.kill()
    times = {uid: seen.at_ns for uid, seen in binds.items()}
    gangs = [_latency(made, times, slow_syncs) for made, slow_syncs in submitted[N_WARM_UP:]]
    return Block(number, scheduler, gangs, others, meters.is_disturbed(others))


class _Submitted(NamedTuple):
    """When the pods of a gang were created, and how often the disk was slow meanwhile."""

    created: list[Created]
    slow_syncs: int


def _submit(
    bench: Bench, scheduler: str, prefix: str, watcher: WatchProcess
) -> tuple[list[_Submitted], float]:
    """Submits gang after gang; returns also the cores that other processes used meanwhile."""
    started = contenders.start(scheduler, bench.cp, bench.folder)
    submitted: list[_Submitted] = []
    try:
        pids = bench.pids() | {"watcher": watcher.daemon.pid, "scheduler": started.daemon.pid}
        meters.wait_quiet(pids, timeout_s=20.0)
        before = meters.sample(pids)
        with bench.progress.bar(f"{prefix}: gangs", bench.shape.n_gangs) as advance:
            for gang in range(bench.shape.n_gangs):
                n_slow = meters.count_slow_syncs(bench.cp.etcd_metrics())
                created = _one_gang(bench, scheduler, prefix, gang)
                _wait(watcher, started, n_bound=(gang + 1) * bench.shape.gang_size)
                n_slow_after = meters.count_slow_syncs(bench.cp.etcd_metrics())
                submitted.append(_Submitted(created, n_slow_after - n_slow))
                time.sleep(PAUSE_S)
                advance()
        after = meters.sample(pids)
    finally:
        contenders.stop(started, bench.cp)
    return submitted, meters.others_cores(before, after)


def _one_gang(bench: Bench, scheduler: str, prefix: str, gang: int) -> list[Created]:
    size = bench.shape.gang_size
    bench.cluster.create_groups(prefix, [gang], size)
    name = contenders.SCHEDULER_NAMES[scheduler]
    documents = [pod_document(prefix, PodRef(gang, rank), name) for rank in range(size)]
    return bench.cluster.create_at_once(documents)


def _wait(watcher: WatchProcess, started: contenders.Started, *, n_bound: int) -> None:
    deadline_s = time.monotonic() + GANG_S
    while watcher.n_bound < n_bound:
        if not started.daemon.running:
            raise GangschedError(f"{started.daemon.name} has ended:\n{started.daemon.tail()}")
        if time.monotonic() > deadline_s:
            raise GangschedError(
                f"{started.daemon.name} did not bind a gang in {GANG_S:.0f} s:\n{started.daemon.tail()}"
            )
        time.sleep(POLL_PERIOD_S)


def _latency(made: Sequence[Created], bound_ns: Mapping[str, int], slow_syncs: int) -> Latency:
    last_ns = max(bound_ns[one.uid] for one in made)
    return Latency(
        from_answer_ms=(last_ns - max(one.answered_ns for one in made)) / 1e6,
        from_request_ms=(last_ns - max(one.sent_ns for one in made)) / 1e6,
        slow_syncs=slow_syncs,
    )


def _summary(blocks: Sequence[Block]) -> LatencySummary:
    gangs = [gang for block in blocks for gang in block.gangs]
    answered = [gang.from_answer_ms for gang in gangs]
    sent = [gang.from_request_ms for gang in gangs]
    quick = [gang.from_answer_ms for gang in gangs if not gang.slow_syncs]
    return LatencySummary(
        n_gangs=len(answered),
        p50_ms=percentile(answered, 0.5),
        p99_ms=percentile(answered, 0.99),
        max_ms=max(answered),
        n_slow_disk=len(gangs) - len(quick),
        p99_quick_disk_ms=percentile(quick, 0.99) if quick else None,
        from_request_p50_ms=percentile(sent, 0.5),
        from_request_p99_ms=percentile(sent, 0.99),
        blocks_disturbed=sum(block.disturbed for block in blocks),
    )


def _describe(block: Block) -> str:
    times = [gang.from_answer_ms for gang in block.gangs]
    mark = f" [DISTURBED by {block.others_cores:.2f} cores]" if block.disturbed else ""
    return (
        f"block {block.number} {block.scheduler}: p50 {percentile(times, 0.5):.1f} ms,"
        f" p99 {percentile(times, 0.99):.1f} ms, {len(times)} gangs{mark}"
    )


def print_report(done: LatencyReport, console: Console) -> None:
    """Prints the table, the conditions and the promises."""
    print_conditions(done.conditions, console)
    table = Table(title="last pod's creation answered to last bind, ms", title_justify="left")
    table.add_column("scheduler")
    for column in (
        *("gangs", "p50", "p99", "max", "slow disk", "p99 without", "from request p50", "p99"),
        "disturbed blocks",
    ):
        table.add_column(column, justify="right")
    for name, one in done.summaries.items():
        quick_ms = "-" if one.p99_quick_disk_ms is None else text(one.p99_quick_disk_ms)
        table.add_row(
            *(name, str(one.n_gangs), text(one.p50_ms), text(one.p99_ms), text(one.max_ms)),
            *(str(one.n_slow_disk), quick_ms),
            *(text(one.from_request_p50_ms), text(one.from_request_p99_ms), str(one.blocks_disturbed)),
        )
    console.print(table)
    console.print(
        f"slow disk: gangs in which etcd waited over {meters.SLOW_SYNC_S * 1000:.0f} ms for its log to be"
        " written, from the first creation on; every scheduler waits for that",
        highlight=False,
        soft_wrap=True,
    )
    print_targets(done.targets, console)
