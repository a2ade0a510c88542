"""A run's results: the document of `-o json`, and its summary by scheduler. No printing
(lab.bench.tables).
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from gangsched import __version__
from gangsched.lab.bench.figures import Spread, pair_ratios, spread
from gangsched.lab.bench.rounds import contenders, meters
from gangsched.lab.bench.rounds.rounds import Round
from gangsched.lab.bench.rounds.workload import Shape
from gangsched.lab.bench.targets import Target
from gangsched.lab.controlplane.assets import KUBERNETES_VERSION

FIGURES: Mapping[str, Callable[[Round], float]] = {
    "pods/s, first to last bind": lambda r: r.pods_per_s,
    "pods/s, start to last bind": lambda r: r.pods_per_s_from_start,
    "first bind, s": lambda r: r.first_bind_s,
    "last bind, s": lambda r: r.last_bind_s,
    "scheduler CPU, us/pod": lambda r: r.cpu_us_per_pod.get("scheduler", 0.0),
    "API server CPU, us/pod": lambda r: r.cpu_us_per_pod.get("apiserver", 0.0),
    "etcd CPU, us/pod": lambda r: r.cpu_us_per_pod.get("etcd", 0.0),
    "watcher CPU, us/pod": lambda r: r.cpu_us_per_pod.get("watcher", 0.0),
    # No run on an idle machine can beat cores / this.
    "CPU of all these, us/pod": lambda r: sum(r.cpu_us_per_pod.values()),
    "API writes/pod": lambda r: r.writes_per_pod,
    "peak memory, MiB": lambda r: r.peak_memory_mib,
    "gang span p50, ms": lambda r: r.gangs.span_p50_ms if r.gangs else 0.0,
    "gang span p99, ms": lambda r: r.gangs.span_p99_ms if r.gangs else 0.0,
    "gangs open at once": lambda r: float(r.gangs.most_open) if r.gangs else 0.0,
    "others' load, cores": lambda r: r.others_cores,
}
RATIOS = ("pods/s, first to last bind", "pods/s, start to last bind", "scheduler CPU, us/pod")


class Summary(msgspec.Struct):
    """Each figure of one scheduler over its rounds: all of them, and those that nothing disturbed."""

    n_rounds: int
    n_disturbed: int
    n_problems: int
    all_rounds: dict[str, Spread]
    undisturbed: dict[str, Spread]


class Report(msgspec.Struct):
    """The whole run."""

    conditions: dict[str, str | int | float]
    shape: Shape
    rounds: list[Round]
    summaries: dict[str, Summary]
    ratios: dict[str, dict[str, Spread]]
    ratios_undisturbed: dict[str, dict[str, Spread]]
    targets: list[Target]


def conditions(shape: Shape, *, gogc: int, fsync: bool, order: Sequence[str]) -> dict[str, str | int | float]:
    """Returns what is needed to repeat the run."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": meters.n_cores(),
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        # Two builds of one version differ by a quarter in CPU: which one it is belongs to the figures.
        "python": f"{platform.python_version()}, {os.path.realpath(sys.executable)}",
        "gangsched": __version__,
        "kubernetes": KUBERNETES_VERSION,
        "kube-apiserver GOGC": gogc,
        "etcd fsync": "on" if fsync else "off",
        "kube-scheduler client": "qps {qps}, burst {burst}".format(**contenders.KUBE_CLIENT),
        "credentials": "one administrator's token for all: no priority and fairness",
        "null binder": f"{contenders.N_CONNECTIONS} warm connections",
        "nodes": shape.n_nodes,
        "pods": shape.n_pods,
        "gangs": f"{shape.n_gangs} of {shape.gang_size}",
        "GPUs per node": shape.gpus,
        "order of rounds": ", ".join(order),
        "disturbed": f"other processes above {meters.DISTURBED_CORES} cores",
    }


def counted(rounds: Sequence[Round], scheduler: str, *, undisturbed: bool = False) -> list[Round]:
    """Returns the rounds of a scheduler that count for figures: no warm-ups."""
    return [
        r
        for r in rounds
        if r.scheduler == scheduler and not r.warm_up and not (undisturbed and r.disturbed) and r.n_bound
    ]


def summarize(rounds: Sequence[Round], scheduler: str) -> Summary:
    """One scheduler's figures."""
    own = [r for r in rounds if r.scheduler == scheduler and not r.warm_up]
    return Summary(
        n_rounds=len(own),
        n_disturbed=sum(r.disturbed for r in own),
        n_problems=sum(len(r.problems) for r in own),
        all_rounds=_spreads(counted(rounds, scheduler)),
        undisturbed=_spreads(counted(rounds, scheduler, undisturbed=True)),
    )


def ratios(
    rounds: Sequence[Round], schedulers: Sequence[str], *, undisturbed: bool = False
) -> dict[str, dict[str, Spread]]:
    """Ratios of gangsched to each other scheduler, by pairs of the same turn."""
    found: dict[str, dict[str, Spread]] = {}
    ours = {r.number: r for r in counted(rounds, contenders.GANGSCHED, undisturbed=undisturbed)}
    for other in schedulers:
        if other == contenders.GANGSCHED:
            continue
        theirs = {r.number: r for r in counted(rounds, other, undisturbed=undisturbed)}
        for name in RATIOS:
            of = FIGURES[name]
            ratio = pair_ratios({n: of(r) for n, r in ours.items()}, {n: of(r) for n, r in theirs.items()})
            if ratio is not None:
                found.setdefault(other, {})[name] = ratio
    return found


def _spreads(rounds: Sequence[Round]) -> dict[str, Spread]:
    found = {name: spread([of(r) for r in rounds]) for name, of in FIGURES.items()}
    return {name: value for name, value in found.items() if value is not None}
