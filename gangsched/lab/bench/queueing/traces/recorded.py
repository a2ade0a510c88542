"""Reads jobs from a journal: gangs by arrival, with how long they ran. Called by traces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from pathlib import Path

from gangsched.errors import ConfigError, ParseError
from gangsched.journal.segments import segments_at
from gangsched.journal.unreadable import REPAIR
from gangsched.lab.bench.queueing.traces.jobs import Job
from gangsched.lab.bench.rounds.workload import RESOURCE
from gangsched.lab.counterfactual.day import Life
from gangsched.lab.counterfactual.reading import read_day
from gangsched.model.objects import Pod
from gangsched.model.pod_group import GANG_KEY
from gangsched.model.text.quantity import to_int
from gangsched.model.walltime import pod_walltime

NOT_OVER = "gangs that were not bound and over in the journal"


def journal_jobs(path: str) -> Iterator[Job | str]:
    """One job for each set of pods that was bound together, in order. Raises: ConfigError."""
    gangs: dict[str, list[Life]] = {}
    n_of_name: dict[str, int] = {}
    last: dict[str, str] = {}
    day = read_day(segments_at(Path(path)))
    if day.lost:
        raise ConfigError(f"not all of it could be read: {day.lost[0]}. {REPAIR}", source=path)
    for life in day.lives.values():
        placed = life.placed.metadata if life.placed is not None else life.pod.metadata
        name = (placed.annotations or {}).get(GANG_KEY) or life.pod.key
        key = last.get(name, "")
        # A name that comes again when all of its pods have ended is another gang.
        if not key or all(one.ended_s is not None and one.ended_s <= life.came_s for one in gangs[key]):
            n = n_of_name[name] = n_of_name.get(name, 0) + 1
            key = last[name] = f"{name}#{n}"
        gangs.setdefault(key, []).append(life)
    for number, lives in enumerate(gangs.values(), start=1):
        yield _job(number, lives)


def _job(number: int, lives: Sequence[Life]) -> Job | str:
    runs_s = [one.run_s for one in lives if one.run_s is not None]
    if len(runs_s) < len(lives):
        return NOT_OVER
    first = lives[0].pod
    stated_s = pod_walltime(first).seconds
    n_devices = sum(_n_devices(one.pod) for one in lives)
    came_s = min(one.came_s for one in lives)
    return Job(
        number,
        came_s,
        max(runs_s),
        n_devices,
        stated_s if isfinite(stated_s) else 0.0,
        first.metadata.namespace,
    )


def _n_devices(pod: Pod) -> int:
    """How many devices its containers use at the same time."""
    n = 0
    for container in pod.spec.containers:
        amounts = (
            (container.resources.requests or container.resources.limits) if container.resources else None
        )
        try:
            n += to_int(str((amounts or {}).get(RESOURCE, "0")))
        except ParseError:
            continue
    return n
