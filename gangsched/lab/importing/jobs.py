"""A workload's jobs on nodes, decided by the real core in virtual time, with its events written down.

A workload knows when jobs came and how long they ran, not which node they were on; so the nodes are given,
and starts are this scheduler's own. Called by the command.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from gangsched.config import default_config
from gangsched.core.scheduler import Scheduler
from gangsched.errors import ConfigError, InvariantError
from gangsched.journal.records import WORKLOAD_OVER
from gangsched.journal.state import BuildCore
from gangsched.lab.bench.queueing.live import Cluster
from gangsched.lab.bench.queueing.traces.jobs import Job, in_order
from gangsched.lab.bench.rounds.workload import RESOURCE
from gangsched.lab.counterfactual.reading import MAX_DAYS
from gangsched.lab.importing.writing import JournalFile, VirtualRecorder
from gangsched.model.objects import Node
from gangsched.model.text.quantity import to_int, to_milli
from gangsched.plugins import IN_TREE, build_profiles

# The beginning of a workload without a date.
_NO_DATE_S = 946_684_800.0
# Smaller times count from the beginning of a log.
_FIRST_DATE_S = 100_000_000.0
# The year 9000: days beyond have no date in a journal.
_LAST_DATE_S = 221_845_392_000.0
# The most of any amount on a node.
_MOST = 2**62
NO_RUN = "jobs without a run time"
TOO_LONG = f"jobs that ran for more than {MAX_DAYS:,} days"
NO_SIZE = "jobs that request nothing"
TOO_LARGE = "jobs that no node, or the whole cluster, has room for"


class Taken(msgspec.Struct, frozen=True):
    """The jobs that can be decided, in order, and how many lines were left out, by reason. has_date: arrivals
    are in seconds since 1970."""

    jobs: Sequence[Job]
    left_out: Counter[str]
    began_s: float
    has_date: bool


def taken(read: Iterable[Job | str], nodes: Sequence[Node], n_jobs: int) -> Taken:
    """Returns the first `n_jobs` that these nodes have room for. Raises: ConfigError (there is none)."""
    room = _Room(nodes)
    jobs: list[Job] = []
    left_out: Counter[str] = Counter()
    for one in read:
        why = one if isinstance(one, str) else room.problem(one)
        if why:
            left_out[why] += 1
        elif len(jobs) < n_jobs and not isinstance(one, str):
            jobs.append(one)
        else:
            left_out[f"jobs after the first {n_jobs:,}"] += 1
    if not jobs:
        text = ", ".join(f"{n:,} {what}" for what, n in left_out.items()) or "nothing is in it"
        raise ConfigError(f"has no job for these nodes: {text}")
    first_s = min(job.arrival_s for job in jobs)
    days = (max(job.arrival_s for job in jobs) - first_s) / 86_400.0
    if days > MAX_DAYS:
        raise ConfigError(
            f"has jobs that come {days:,.0f} days apart, more than {MAX_DAYS:,}: a time in it is wrong, or"
            " one file has dates and another one has none"
        )
    if first_s > _LAST_DATE_S:
        raise ConfigError("has jobs that come after the year 9000: its times are no seconds since 1970")
    has_date = first_s >= _FIRST_DATE_S
    return Taken(in_order(jobs), left_out, first_s if has_date else _NO_DATE_S, has_date)


class _Room:
    """What the nodes have, at most and together."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        offered = [one.status.allocatable or {} for one in nodes]
        found = [
            (
                to_int(str(one["pods"])),
                to_int(str(one.get(RESOURCE, "0"))),
                to_milli(str(one["cpu"])),
                to_int(str(one["memory"])) // 2**20,
            )
            for one in offered
        ]
        self._nodes = np.array(found, dtype=np.int64)

    def problem(self, job: Job) -> str:
        """Returns why it cannot be taken; "": it can."""
        if job.run_s <= 0:
            return NO_RUN
        if job.run_s > MAX_DAYS * 86_400.0:
            return TOO_LONG
        if job.n_devices < 0 or job.n_pods < 1:
            return NO_SIZE
        each = (1, job.n_devices // job.n_pods, job.cpu_milli, job.memory_mib)
        places = [self._nodes[:, at] // min(amount, _MOST) for at, amount in enumerate(each) if amount > 0]
        return TOO_LARGE if int(np.min(places, axis=0).sum()) < job.n_pods else ""


class Written(msgspec.Struct, frozen=True):
    """What became of the jobs."""

    n_started: int
    n_waiting: int
    lasted_s: float


def write_jobs(of: Taken, nodes: Sequence[Node], file: JournalFile) -> Written:
    """Writes the whole day, until the last job has started, or no waiting one ever will."""
    recorder = VirtualRecorder(file, of.began_s)
    config = default_config(IN_TREE)
    core = Scheduler(build_profiles(config), config.settings, pick=recorder.picks, wall_ahead_s=of.began_s)
    recorder.begin(core, config, no_state, leading=True)
    cluster = Cluster(of.jobs, nodes, core, recorder)
    while not cluster.is_over and not cluster.is_stuck:
        cluster.step()
    recorder.end(WORKLOAD_OVER, cluster.now_s)
    return Written(cluster.n_started, len(of.jobs) - cluster.n_started, cluster.now_s)


def no_state(_: object) -> BuildCore:
    """Stands in for what a recorder builds cores with, which it does for a second segment alone."""
    raise InvariantError("a journal of one segment has no state")
