"""`bench --dashboard`: what the dashboard costs the scheduler's loop, off, without and with viewers.

The core on 5,000 nodes with 50,000 pods takes 100 gangs a second, in the loop that also serves the pages, as
in the scheduler's process; the viewers are another process. The load has a time of its own, which advances by
half a second at once, so that a busy machine changes nothing. In each step its gangs are decided on and
bound, the feed sends changes to its viewers, and the CPU time of the loop's thread is counted, that of the
gangs apart. Off and on alternate in every round. Last comes how long a what-if question holds the loop up.
Run by lab.bench.command; the process is `python -m gangsched.lab.bench.speed.dashboard_speed NODES PODS RATE
VIEWERS SECONDS ROUNDS`, which prints its figures as JSON.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import islice

import anyio
import msgspec
from rich.console import Console
from rich.table import Table

from gangsched.certificates import self_signed, server_context
from gangsched.core.scheduler import Scheduler
from gangsched.errors import GangschedError
from gangsched.lab.bench.figures import Spread, spread
from gangsched.lab.bench.progress import Progress
from gangsched.lab.bench.rounds import meters
from gangsched.lab.bench.speed.dashboard_load import N_WAITING, SIZE, Load, filled
from gangsched.lab.bench.tables import of_spread, print_conditions, print_targets
from gangsched.lab.bench.targets import Target, at_most
from gangsched.model import events as ev
from gangsched.model.objects import Pod
from gangsched.process.garbage_collection import as_in_a_scheduler
from gangsched.web.access import Access
from gangsched.web.board.feed import ROWS_AT_ONCE, TICK_S, Feed
from gangsched.web.board.history import History
from gangsched.web.board.pages import Board
from gangsched.web.board.whatif import WhatIf
from gangsched.web.listening import WebSettings, listen, port_of
from gangsched.web.metrics.measures import Measures
from gangsched.web.pages.explanations import Explanations
from gangsched.web.pages.queue import Queue
from gangsched.web.pages.reservations import Reservations
from gangsched.web.pages.stories import Stories
from gangsched.web.pages.waiting import Waiting
from gangsched.web.serving.server import Server
from gangsched.web.top.page import Top
from gangsched.whatif.cluster import Classes

OFF, NOBODY, WATCHED = "off", "on, no viewer", "on, with viewers"
MODES = (OFF, NOBODY, WATCHED)
N_NODES, N_PODS, RATE, N_VIEWERS, SECONDS = 5000, 50_000, 100, 10, 10
# A gang is gone after this many later ones.
_LASTS = 400
_QUESTIONS = 7
_TIMER_S = 0.001
_FLUSH_S = 0.05
_TIMEOUT_S = 900.0
_JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: asked}
spec:
  parallelism: 8
  completions: 8
  template:
    metadata:
      labels: {gangsched.io/pod-group: asked}
      annotations: {gangsched.io/min-members: "8"}
    spec:
      schedulerName: gangsched
      restartPolicy: Never
      containers:
      - {name: main, image: i, resources: {limits: {nvidia.com/gpu: 8}}}
"""


class Phase(msgspec.Struct):
    """One mode in one round, as shares of the load's time. gangs: receiving them, deciding, binding; rest:
    everything else that the loop's thread does."""

    gangs: float
    rest: float


class Questions(msgspec.Struct):
    """Milliseconds, a value per question. copied: time of the loop's thread to make the copy; computed: CPU
    time of the copy; late: the longest delay of a timer of a millisecond until the answer; quiet: the same
    without a question."""

    copied: list[float]
    computed: list[float]
    late: list[float]
    quiet: list[float]
    answered: list[float]


class DashboardCost(msgspec.Struct):
    """What the process measured; by mode, a value a round."""

    phases: dict[str, list[Phase]]
    questions: Questions
    memory_mib: float


class DashboardReport(msgspec.Struct):
    """The whole run. costs: percent of the loop's time beyond that with it off, by mode, round by round."""

    conditions: dict[str, str | int | float]
    cost: DashboardCost
    costs: dict[str, Spread]
    targets: list[Target]


def run(n_rounds: int, progress: Progress) -> DashboardReport:
    """Runs the process. Raises: GangschedError if it fails."""
    numbers = (N_NODES, N_PODS, RATE, N_VIEWERS, SECONDS, n_rounds)
    command = [sys.executable, "-m", "gangsched.lab.bench.speed.dashboard_speed", *map(str, numbers)]
    with progress.phase(f"{RATE} gangs a second with the dashboard off and on: {n_rounds} rounds"):
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S)
    if done.returncode != 0:
        raise GangschedError(f"dashboard_speed failed:\n{done.stderr.decode()[-2000:]}")
    return assemble(msgspec.json.decode(done.stdout, type=DashboardCost), n_rounds)


def assemble(cost: DashboardCost, n_rounds: int) -> DashboardReport:
    """Computes the report from what was measured."""
    costs: dict[str, Spread] = {}
    for mode in MODES[1:]:
        pairs = zip(cost.phases[mode], cost.phases[OFF], strict=True)
        if (found := spread([(on.rest - off.rest) * 100 for on, off in pairs])) is not None:
            costs[mode] = found
    targets = [
        at_most(f"the loop's time with {N_VIEWERS} viewers, more than off", 1, costs.get(WATCHED), "%"),
        at_most("the copy that answers what if, of the loop's time", 50, spread(cost.questions.copied), "ms"),
    ]
    conditions: dict[str, str | int | float] = {
        "cores": meters.n_cores(),
        "python": sys.version.split()[0],
        "rounds": n_rounds,
        "nodes": N_NODES,
        "pods": N_PODS,
        "gangs a second": f"{RATE} of {SIZE} pods of one GPU, each gone after {_LASTS / RATE:g} s",
        "viewers": f"{N_VIEWERS} event streams over TLS, in another process",
        "each phase": f"{SECONDS} s of the load's time",
        "waiting": f"{N_WAITING} gangs",
    }
    return DashboardReport(conditions, cost, costs, targets)


def print_report(done: DashboardReport, console: Console) -> None:
    """Prints the tables and the promises."""
    print_conditions(done.conditions, console)
    table = Table(title="the scheduler's loop: median (min..max) of all rounds", title_justify="left")
    for column in ("dashboard", "gangs, %", "the rest, %", "more than off, %"):
        table.add_column(column, justify="left" if column == "dashboard" else "right")
    for mode, phases in done.cost.phases.items():
        gangs, rest = spread([one.gangs * 100 for one in phases]), spread([one.rest * 100 for one in phases])
        table.add_row(mode, of_spread(gangs), of_spread(rest), of_spread(done.costs.get(mode)))
    console.print(table)
    asked = done.cost.questions
    console.print(
        f"a question of what if, at {RATE} gangs a second, {done.cost.memory_mib:.0f} MiB: the copy takes"
        f" {of_spread(spread(asked.copied))} ms of the loop's time and computes for"
        f" {of_spread(spread(asked.computed))} ms beside it; the answer comes after"
        f" {of_spread(spread(asked.answered))} ms. A timer is late by {of_spread(spread(asked.late))} ms at"
        f" most until then, {of_spread(spread(asked.quiet))} ms without a question."
    )
    print_targets(done.targets, console)


# -- the process --------------------------------------------------------------------------------------------


class _NoReviews:
    """Asks for no reviews: the dashboard is open here."""

    async def post(self, path: str, body: bytes, *, timeout_s: float = 0.0) -> bytes:
        raise GangschedError(f"{path} is asked for")


@asynccontextmanager
async def dashboard(scheduler: Scheduler, load: Load) -> AsyncIterator[tuple[str, Board]]:
    """Serves the pages as the scheduler does: (address, board)."""
    queue, stories, explanations = Queue(scheduler), Stories(scheduler), Explanations(scheduler)
    history = History(scheduler, n_attempts=lambda: load.n_attempts)
    feed = Feed(scheduler, history, queue, clock_s=lambda: load.now_s)
    whatif = WhatIf(scheduler, priorities=_no_priorities, limit_s=_TIMEOUT_S)
    board = Board(scheduler, feed, stories=stories, explanations=explanations, whatif=whatif)
    sockets = listen(WebSettings(0, "127.0.0.1"))
    server = Server(
        sockets,
        server_context(self_signed("gangsched", hosts=["127.0.0.1"])),
        access=Access(_NoReviews(), always_allow=("/dashboard",)),
        health={},
        metrics=_no_metrics,
        configz=lambda: b"",
        waiting=Waiting(scheduler, put_nowait=list[ev.Event]().append, may_act=lambda: True),
        stories=stories,
        queue=queue,
        explanations=explanations,
        reservations=Reservations(scheduler),
        top=Top(scheduler, queue, Measures()),
        board=board,
    )
    async with anyio.create_task_group() as group:
        group.start_soon(server.run)
        yield f"https://127.0.0.1:{port_of(sockets)}", board
        group.cancel_scope.cancel()
    for one in sockets:
        one.close()


async def _no_priorities() -> Classes:
    return {}


async def _no_metrics(_: str) -> bytes:
    return b""


@asynccontextmanager
async def viewers(address: str, n: int) -> AsyncIterator[None]:
    """Runs n viewers that follow, each with the whole map. Raises: GangschedError."""
    command = (sys.executable, "-m", "gangsched.lab.bench.speed.dashboard_viewers", address, str(n))
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        if await process.stdout.readline() != b"following\n":
            raise GangschedError("the viewers do not follow")
        yield
    finally:
        process.stdin.close()
        await process.wait()


async def measure(n_nodes: int, n_pods: int, rate: int, n: int, seconds: int, n_rounds: int) -> DashboardCost:
    """Measures in this process."""
    scheduler = filled(n_nodes, n_pods)
    lasts = min(_LASTS, n_nodes // 4)
    load = Load(scheduler, rate, lasts)
    for pods in load.gangs(lasts):
        load.turn(pods)
    with as_in_a_scheduler() as load.garbage:
        phases: dict[str, list[Phase]] = {mode: [] for mode in MODES}
        for number in range(n_rounds + 1):
            # Rotated, so that no mode always follows the same other one.
            for mode in (*MODES[number % 3 :], *MODES[: number % 3]):
                found = await _phase(scheduler, load, mode, rate * seconds, n)
                if number:  # the first one warms up
                    phases[mode].append(found)
        questions = await _questions(scheduler, load, rate)
    memory_mib = meters.peak_memory_bytes(os.getpid()) / 2**20
    return DashboardCost(phases, questions, memory_mib)


async def _phase(scheduler: Scheduler, load: Load, mode: str, n_gangs: int, n_viewers: int) -> Phase:
    gangs = load.gangs(n_gangs)
    if mode == OFF:
        return await _timed(load, gangs, None)
    async with dashboard(scheduler, load) as (address, board):
        if mode == NOBODY:
            return await _timed(load, gangs, board.feed)
        async with viewers(address, n_viewers):
            # The map of a large cluster comes in parts.
            for _ in range(scheduler.shared.cache.nodes.n_live // ROWS_AT_ONCE + 2):
                board.feed.tick()
                await anyio.sleep(_FLUSH_S)
            found = await _timed(load, gangs, board.feed)
            if board.feed.n_viewers != n_viewers:
                raise GangschedError(f"{board.feed.n_viewers} of {n_viewers} viewers have kept up")
            return found


async def _timed(load: Load, gangs: Sequence[list[Pod]], feed: Feed | None) -> Phase:
    gc.collect()
    began_s, all_s, gangs_s = load.now_s, time.thread_time(), 0.0
    left = iter(gangs)
    while load.now_s < began_s + len(gangs) / load.rate - TICK_S / 2:
        cpu_s = time.thread_time()
        for pods in islice(left, round(load.rate * TICK_S)):
            load.turn(pods)
        gangs_s += time.thread_time() - cpu_s
        if feed is not None:
            feed.tick()
        await anyio.sleep(_FLUSH_S)  # the server writes
    lasted_s = load.now_s - began_s
    return Phase(gangs_s / lasted_s, (time.thread_time() - all_s - gangs_s) / lasted_s)


async def _questions(scheduler: Scheduler, load: Load, rate: int) -> Questions:
    found = Questions([], [], [], [], [])
    body = msgspec.json.encode({"yaml": _JOB})
    gangs = iter(load.gangs(rate * (_QUESTIONS * 4 + 10)))
    async with dashboard(scheduler, load) as (_, board), anyio.create_task_group() as group:

        async def go_on() -> None:
            while some := list(islice(gangs, rate)):
                await load.run(some)

        group.start_soon(go_on)
        await anyio.sleep(1.0)
        for _ in range(_QUESTIONS):
            with anyio.move_on_after(0.5):
                await _ticked(found.quiet)
            began_s = time.perf_counter()
            before_s = _children_s()
            async with anyio.create_task_group() as ticking:
                ticking.start_soon(_ticked, found.late)
                answer = await board.whatif.answer(body)
                found.answered.append((time.perf_counter() - began_s) * 1e3)
                await anyio.sleep(0.05)
                ticking.cancel_scope.cancel()
            found.copied.append(answer.copied_s * 1e3)
            found.computed.append((_children_s() - before_s) * 1e3)
        group.cancel_scope.cancel()
    return found


def _children_s() -> float:
    """CPU time of processes of ours that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def _ticked(longest: list[float]) -> None:
    """Adds, once cancelled, the longest that a timer was late, in milliseconds."""
    late_s = 0.0
    try:
        while True:
            due_s = time.perf_counter() + _TIMER_S
            await anyio.sleep(_TIMER_S)
            late_s = max(late_s, time.perf_counter() - due_s)
    finally:
        longest.append(late_s * 1e3)


def main(arguments: Sequence[str]) -> int:
    """The process."""
    n_nodes, n_pods, rate, n_viewers, seconds, n_rounds = (int(value) for value in arguments)
    found = anyio.run(measure, n_nodes, n_pods, rate, n_viewers, seconds, n_rounds)
    sys.stdout.buffer.write(msgspec.json.encode(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
