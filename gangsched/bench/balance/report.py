"""The experiment's results: H by algorithm and worker, and the most even algorithm, as tables.

LoadAware is reported as the most even only if it is: the smallest median spread over all orders of arrival in
simulation, and the smallest spread on the API server.
"""

from __future__ import annotations

import time
from statistics import median

import msgspec
from rich.console import Console
from rich.table import Table

from gangsched.bench.balance import embedded, simulated
from gangsched.bench.balance.model import ALGORITHMS, KINDS, OURS, WORKERS, Kind, arrivals, judge, stated
from gangsched.bench.figures import Spread, spread
from gangsched.bench.progress import Progress
from gangsched.model.evenness import Evenness

N_ORDERS = 20


class Outcome(msgspec.Struct):
    """One algorithm's. placed: tasks by worker and kind, in the first order of arrival."""

    algorithm: str
    placed: dict[str, dict[str, int]]
    simulated: Evenness
    spreads: list[float]
    embedded: Evenness
    embedded_s: float

    @property
    def over_orders(self) -> Spread:
        """The spread of H over all orders of arrival."""
        found = spread(self.spreads)
        assert found is not None
        return found


class BalanceReport(msgspec.Struct):
    """The whole experiment; verdict: in words, whatever it is."""

    model: list[str]
    workers: list[str]
    n_orders: int
    outcomes: list[Outcome]
    verdict: str
    is_most_even: bool


def run(progress: Progress) -> BalanceReport:
    """All algorithms on the same arrivals. Raises: GangschedError."""
    orders = [arrivals(seed) for seed in range(N_ORDERS)]
    outcomes = []
    for algorithm in ALGORITHMS:
        with progress.phase(f"{algorithm.name}: simulated, {N_ORDERS} orders of arrival"):
            placed = [simulated.place(algorithm, order) for order in orders]
        with progress.phase(f"{algorithm.name}: on the embedded API server"):
            began_s = time.perf_counter()
            served = embedded.place(algorithm, orders[0])
            took_s = time.perf_counter() - began_s
        counts = {worker: _by_kind(tasks) for worker, tasks in placed[0].items()}
        spreads = [judge(one).spread for one in placed]
        outcomes.append(Outcome(algorithm.name, counts, judge(placed[0]), spreads, judge(served), took_s))
    return assemble(outcomes)


def assemble(outcomes: list[Outcome]) -> BalanceReport:
    """Everything that is computed from the outcomes."""
    (ours,) = (one for one in outcomes if one.algorithm == OURS)
    others = [one for one in outcomes if one.algorithm != OURS]
    in_orders = all(median(ours.spreads) < median(other.spreads) for other in others)
    served = all(ours.embedded.spread < other.embedded.spread for other in others)
    wins = sum(all(mine < other.spreads[i] for other in others) for i, mine in enumerate(ours.spreads))
    counted = f"in {wins} of {len(ours.spreads)} orders of arrival its H has the smallest spread"
    if in_orders and served:
        verdict = f"{OURS} is the most even: {counted}, and on the API server"
    elif in_orders or served:
        where = "in simulation" if in_orders else "on the API server"
        verdict = f"{OURS} is the most even {where} only: {counted}"
    else:
        verdict = f"{OURS} is not the most even: {counted}"
    workers = [worker.name for worker in WORKERS]
    return BalanceReport(stated(), workers, N_ORDERS, outcomes, verdict, in_orders and served)


def _by_kind(tasks: list[Kind]) -> dict[str, int]:
    return {kind.name: sum(task.name == kind.name for task in tasks) for kind in KINDS}


def print_report(report: BalanceReport, console: Console) -> None:
    """The model, the tables, the verdict."""
    for line in report.model:
        console.print(line, style="dim")
    table = Table(title="H of each worker: 1 is even", title_justify="left")
    table.add_column("")
    table.add_column("where")
    for worker in report.workers:
        table.add_column(worker, justify="right")
    for name in ("spread", f"spread over {report.n_orders} orders"):
        table.add_column(name, justify="right")
    for one in report.outcomes:
        over = one.over_orders
        told = f"{over.median:.3f} ({over.low:.3f}..{over.high:.3f})"
        table.add_row(one.algorithm, "simulation", *_h(one.simulated), told)
        table.add_row("", "API server", *_h(one.embedded), "")
    console.print(table)
    tasks = Table(title="tasks of each kind, in simulation", title_justify="left")
    tasks.add_column("")
    for worker in report.workers:
        tasks.add_column(worker, justify="right")
    for one in report.outcomes:
        tasks.add_row(one.algorithm, *(_told(one.placed[worker]) for worker in report.workers))
    console.print(tasks)
    console.print(report.verdict, style="bold")


def _h(found: Evenness) -> list[str]:
    return [*(f"{h:.2f}" for h in found.h), f"{found.spread:.3f}"]


def _told(counts: dict[str, int]) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in counts.items() if n) or "none"
