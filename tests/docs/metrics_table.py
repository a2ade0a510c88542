"""The metrics as a table: from the families that /metrics is made of, with everything on that has some."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from prometheus_client.core import Metric

from gangsched.config import Settings
from gangsched.config.queueing import QueueingSettings
from gangsched.journal.counted import Counted
from gangsched.lab.sim.making import make_scheduler
from gangsched.web.metrics import page as metrics
from gangsched.web.metrics import reading
from gangsched.web.metrics.measures import Measures
from gangsched.web.pages.answers import QueueShare, QueuesPage


class Described(NamedTuple):
    """kind: as in /metrics' TYPE; text: as in its HELP."""

    kind: str
    labels: tuple[str, ...]
    text: str


def described_metrics() -> dict[str, Described]:
    """By the name in /metrics, without a histogram's endings."""
    found = {}
    for family in _families():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels: tuple[str, ...] = tuple(family._labelnames)  # type: ignore[attr-defined]
        found[name] = Described(family.type, labels, family.documentation)
    return found


def _families() -> list[Metric]:
    scheduler = make_scheduler(Settings(queueing=QueueingSettings(1, mode="hard")))
    totals = asyncio.run(reading.read_groups(scheduler, 0.0, 0.0))
    read = reading.Reading(
        pending=totals.pending,
        oldest_s=totals.oldest_s,
        unschedulable={},
        n_nodes=0,
        n_pods=0,
        n_assumed=0,
        n_partial_gangs=0,
        device_free=(),
        device_drift={},
        counters={},
        reloads=(0, 0, True),
        watch_age_s={},
        leader={},
        n_bind_unknown=0,
        requests={},
        doubtful_answers={},
        host="",
        queues=QueuesPage((QueueShare("q", 0, 1.0, {}, {}, {}, {}, 0, 0.0, 0.0, 0.0, 0),)),
        queueing=reading.read_queueing(scheduler, totals),
        journal=Counted(0, 0, 0, 0, 0, True),
    )
    return [*metrics.measured(Measures()), *metrics._read(read)]


def table() -> str:
    """Ours with their kind, labels and the help of /metrics, and the same of kube-scheduler's."""
    described = described_metrics()
    ours = {name: one for name, one in described.items() if name.startswith("gangsched_")}
    theirs = {name: one for name, one in described.items() if name not in ours}
    told = "Those that kube-scheduler has too, under its names and with its labels and buckets:"
    return f"{_rows(ours)}\n{told}\n\n{_rows(theirs)}"


def _rows(described: dict[str, Described]) -> str:
    rows = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for name, (kind, labels, text) in sorted(described.items()):
        rows.append(f"| `{name}` | {kind} | {', '.join(f'`{one}`' for one in labels)} | {text} |")
    return "\n".join(rows) + "\n"
