"""The experiment's results: H by algorithm and worker, judged in every mode, as tables.

The most even algorithm is the one with the smallest median spread over all orders of arrival in simulation,
whichever it is. Each mode has its own H, so each its own verdict.
"""

from __future__ import annotations

import time
from statistics import median

import msgspec
from rich.console import Console
from rich.table import Table

from gangsched.lab.bench.balance import embedded, real, simulated
from gangsched.lab.bench.balance.model import (
    ALGORITHMS,
    AS_PRINTED,
    BASELINE,
    GIGA,
    KINDS,
    OURS,
    WORKERS,
    Kind,
    Worker,
    arrivals,
    by_kind,
    judge,
)
from gangsched.lab.bench.figures import Spread, spread
from gangsched.lab.bench.progress import Progress
from gangsched.model.stated.evenness import MODES, Evenness, Mode

N_ORDERS = 20


class Outcome(msgspec.Struct):
    """One algorithm's results, by mode of H. placed: tasks by worker and kind, in the first order of
    arrival."""

    algorithm: str
    placed: dict[str, dict[str, int]]
    simulated: dict[Mode, Evenness]
    spreads: dict[Mode, list[float]]
    embedded: dict[Mode, Evenness]
    embedded_s: float

    def over_orders(self, mode: Mode) -> Spread:
        """The spread of H over all orders of arrival."""
        found = spread(self.spreads[mode])
        assert found is not None
        return found


class BalanceReport(msgspec.Struct):
    """The whole experiment; most_even and verdict (in words) by mode.

    real: on request, of the paper's two algorithms and ours.
    """

    workers: tuple[Worker, ...]
    tasks: tuple[Kind, ...]
    n_orders: int
    outcomes: list[Outcome]
    most_even: dict[Mode, str]
    verdict: dict[Mode, str]
    real: list[real.RealOutcome] = []


def run(progress: Progress, *, real_s: float = 0.0, on_kubelets: bool = False) -> BalanceReport:
    """Runs all algorithms on the same arrivals. real_s: also on real processes, which run for that long;
    on_kubelets: these are pods of real kubelets.

    Raises: GangschedError.
    """
    orders = [arrivals(seed) for seed in range(N_ORDERS)]
    outcomes = []
    for algorithm in ALGORITHMS:
        with progress.phase(f"{algorithm.name}: simulated, {N_ORDERS} orders of arrival"):
            placed = [simulated.place(algorithm, order) for order in orders]
        with progress.phase(f"{algorithm.name}: on the embedded API server"):
            began_s = time.perf_counter()
            served = embedded.place(algorithm, orders[0])
            took_s = time.perf_counter() - began_s
        outcomes.append(
            Outcome(
                algorithm.name,
                {worker: by_kind(tasks) for worker, tasks in placed[0].items()},
                {mode: judge(placed[0], mode) for mode in MODES},
                {mode: [judge(one, mode).spread for one in placed] for mode in MODES},
                {mode: judge(served, mode) for mode in MODES},
                took_s,
            )
        )
    report = assemble(outcomes)
    if real_s:
        for algorithm in ALGORITHMS:
            if algorithm.name in (BASELINE, AS_PRINTED, OURS):
                what = "real kubelets" if on_kubelets else "real processes"
                with progress.phase(f"{algorithm.name}: on {what}, {real_s:g} s"):
                    found = real.place(algorithm, WORKERS, orders[0], seconds=real_s, on_kubelets=on_kubelets)
                    report.real.append(found)
    return report


def assemble(outcomes: list[Outcome]) -> BalanceReport:
    """Computes the report from the outcomes."""
    best = {mode: min(outcomes, key=lambda one: median(one.spreads[mode])) for mode in MODES}
    return BalanceReport(
        WORKERS,
        KINDS,
        N_ORDERS,
        outcomes,
        {mode: one.algorithm for mode, one in best.items()},
        {mode: _verdict(best[mode], [o for o in outcomes if o is not best[mode]], mode) for mode in MODES},
    )


def _verdict(best: Outcome, others: list[Outcome], mode: Mode) -> str:
    served = all(best.embedded[mode].spread < other.embedded[mode].spread for other in others)
    mine = best.spreads[mode]
    wins = sum(all(own < other.spreads[mode][i] for other in others) for i, own in enumerate(mine))
    where = "and on the API server" if served else "but not on the API server"
    return (
        f"H {mode}: {best.algorithm} is the most even by the median, the only one in {wins} of {len(mine)}"
        f" orders of arrival, {where}"
    )


def print_report(report: BalanceReport, console: Console) -> None:
    """Prints the assumptions, the tables and the verdicts."""
    print_model(report.workers, report.tasks, console)
    names = [worker.name for worker in report.workers]
    for mode in MODES:
        table = _table(f"H of each worker, mode {mode}: 1 is even", "", "where", *names)
        for name in ("spread", f"spread over {report.n_orders} orders"):
            table.add_column(name, justify="right")
        for one in report.outcomes:
            over = one.over_orders(mode)
            text = f"{over.median:.3f} ({over.low:.3f}..{over.high:.3f})"
            table.add_row(one.algorithm, "simulation", *_h(one.simulated[mode]), text)
            table.add_row("", "API server", *_h(one.embedded[mode]), "")
        console.print(table)
    tasks = _table("tasks of each kind, in simulation", "", *names)
    for one in report.outcomes:
        tasks.add_row(one.algorithm, *(_told(one.placed[name]) for name in names))
    console.print(tasks)
    if report.real:
        print_real(report, console)
    for mode in MODES:
        console.print(report.verdict[mode], style="bold")


def print_real(report: BalanceReport, console: Console) -> None:
    """Prints what agents measured of real processes, beside the simulation, and what else happened."""
    names = [worker.name for worker in report.workers]
    for mode in MODES:
        table = _table(f"H on real processes, mode {mode}", "", "where", *names, "spread")
        for one in report.real:
            (other,) = (found for found in report.outcomes if found.algorithm == one.algorithm)
            table.add_row(one.algorithm, "simulation", *_h(other.simulated[mode]))
            table.add_row("", "measured", *_h(one.evenness[mode]))
            table.add_row("", "stated for the same places", *_h(one.stated_evenness[mode]))
        console.print(table)
    for one in report.real:
        used = "; ".join(
            f"{name} {', '.join(f'{share:.0%}' for share in one.used[name].terms)}"
            f" (stated {', '.join(f'{share:.0%}' for share in one.stated[name].terms)})"
            for name in names
        )
        console.print(f"{one.algorithm}: cpu, memory, network, disk of {used}", style="dim")
        console.print(
            f"  {one.seconds:g} s with all tasks; the machine's load average at the end was"
            f" {one.load_average:.1f}",
            style="dim",
        )
        for text in one.ended:
            console.print(f"  a task has ended early: {text}", style="yellow")


def print_model(workers: tuple[Worker, ...], tasks: tuple[Kind, ...], console: Console) -> None:
    """Prints the tables of workers and tasks: an assumption, as the published ones are not available."""
    table = _table("workers (assumed)", "", "cores", "GHz", "memory, GB", "network, MB/s", "disk, MB/s")
    for worker in workers:
        can = worker.performance
        known = (can.cores, can.mhz / 1000, can.memory_bytes / GIGA, can.network_mbps, can.disk_mbps)
        table.add_row(worker.name, *(f"{value:g}" for value in known))
    console.print(table)
    table = _table(
        "tasks (assumed)",
        *("", "number", "cpu asked", "memory asked"),
        *("uses GHz", "memory, GB", "network, MB/s", "disk, MB/s"),
    )
    for kind in tasks:
        used = (kind.cpu_ghz, kind.memory_bytes / GIGA, kind.network_mbps, kind.disk_mbps)
        asked = (str(kind.n_tasks), kind.cpu_request, kind.memory_request)
        table.add_row(kind.name, *asked, *(f"{value:g}" for value in used))
    console.print(table)


def _table(title: str, first: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(first)
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "where" else "right")
    return table


def _h(found: Evenness) -> list[str]:
    return [*(f"{h:.2f}" for h in found.h), f"{found.spread:.3f}"]


def _told(counts: dict[str, int]) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in counts.items() if n) or "none"
