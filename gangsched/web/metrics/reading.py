"""Reading: a snapshot of the scheduler's state, as numbers for /metrics.

Lives here: one walk over groups and devices. Not here: counts of events (measures.py), names and text
(page.py). The walk yields to the loop every few milliseconds, so in a very large cluster the numbers are
from slightly different moments.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import islice

import msgspec

from gangsched.core.explaining.reports import first_late_at
from gangsched.core.queueing.claims import CAUSES, Claims
from gangsched.core.queueing.walltimes import Walltimes
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import NEVER_S, Group, GroupState, MemberState
from gangsched.core.types.lost_members import lacks
from gangsched.journal.counted import Counted
from gangsched.model.text.printable import clean
from gangsched.model.walltime import SOURCES
from gangsched.web.metrics.loads import Loads
from gangsched.web.pages.answers import QueuesPage

# About a millisecond each.
_GROUPS_AT_ONCE = 1000
_DEVICES_AT_ONCE = 2000
# Resource names come from nodes' inventories.
_MAX_RESOURCES = 64

_QUEUES = {
    GroupState.ACTIVE: "active",
    GroupState.ASKING: "active",
    # Members that were not bound with the others.
    GroupState.BINDING: "active",
    GroupState.BACKOFF: "backoff",
    GroupState.UNSCHEDULABLE: "unschedulable",
    # Members that wait for victims, or for bound siblings, to go first.
    GroupState.WAITING: "unschedulable",
    GroupState.UNWINDING: "unschedulable",
    GroupState.GATHERING: "incomplete",
}


class Reading(msgspec.Struct, frozen=True):
    """pending: pods by kube-scheduler's queue; oldest_s: 0 for an empty queue.

    unschedulable: pods by (plugin, profile); device_free: healthy and free, by (node, resource);
    device_drift: pods by kind (core.device_audit.drift). leader: 1 or 0 by the Lease's name, empty without
    election. requests: by (code, method), at `host`.
    """

    pending: Mapping[str, int]
    oldest_s: Mapping[str, float]
    unschedulable: Mapping[tuple[str, str], int]
    n_nodes: int
    n_pods: int
    n_assumed: int
    n_partial_gangs: int
    device_free: Sequence[tuple[str, str, int]]
    device_drift: Mapping[str, int]
    counters: Mapping[str, int]
    reloads: tuple[int, int, bool] | None
    """Configurations applied and rejected; whether the last one read was valid."""
    watch_age_s: Mapping[str, float]
    leader: Mapping[str, int]
    n_bind_unknown: int
    requests: Mapping[tuple[str, str], int]
    doubtful_answers: Mapping[str, int]
    host: str
    loads: Loads = Loads()
    queueing: QueueingReading | None = None
    queues: QueuesPage = QueuesPage(())
    journal: Counted | None = None
    n_wounded_gangs: int = 0


class QueueingReading(msgspec.Struct, frozen=True):
    """Present if the configuration has `queueing`. at_start: groups by core.queueing.bypasses' BUCKETS;
    walltimes: groups that have not ended, by the source of their walltime; ratios: starts by
    core.groups.attempts.forecasts' RATIOS; overruns: pods evicted for their walltime, by whether for a
    claim."""

    at_start: tuple[int, ...]
    total_at_start: int
    most: int
    n_claimed: int
    n_claimed_now: int
    walltimes: Mapping[str, int]
    ratios: tuple[int, ...]
    total_ratio: float
    overruns: Mapping[str, int]
    claims: ClaimsReading | None = None


class ClaimsReading(msgspec.Struct, frozen=True):
    """Present if bounds are enforced. errors: promised starts by core.queueing.claims' ERRORS_S; promises: by
    kept, else by what made them late; idle: by resource, the share of the cluster that is claimed and free;
    n_too_idle: groups at their bound that wait because of mode budget.
    """

    n_promised: int
    n_estimated: int
    promises: Mapping[str, int]
    errors: tuple[int, ...]
    total_error_s: float
    idle: Mapping[str, float] = {}
    n_too_idle: int = 0


class Totals(msgspec.Struct):
    """Sums over the groups at `now_s`, on the core's clock; wall_s: the same in seconds since 1970."""

    now_s: float
    wall_s: float
    pending: dict[str, int]
    oldest_s: dict[str, float]
    unschedulable: dict[tuple[str, str], int]
    n_assumed: int = 0
    n_partial_gangs: int = 0
    n_wounded_gangs: int = 0
    walltimes: dict[str, int] = {}

    def add_walltime(self, group: Group, walltimes: Walltimes) -> None:
        if group.n_existing > group.counts[MemberState.DONE]:
            source = walltimes.walltime(group).source
            self.walltimes[source] = self.walltimes.get(source, 0) + 1

    def add(self, group: Group) -> None:
        self.n_assumed += group.n_assumed
        self.n_partial_gangs += group.is_half_bound and group.state is not GroupState.BINDING
        self.n_wounded_gangs += bool(lacks(group))
        gated = group.counts[MemberState.GATED]
        if gated:
            self.pending["gated"] += gated
            self._aged("gated", group)
        n = group.n_pending
        queue = _QUEUES.get(group.state)
        if not n or queue is None:
            return
        self.pending[queue] += n
        self._aged(queue, group)
        if group.state is GroupState.UNSCHEDULABLE:
            for plugin in dict.fromkeys(plugin for plugin, _ in group.rejected_by):
                key = (plugin, group.scheduler_name)
                self.unschedulable[key] = self.unschedulable.get(key, 0) + n

    def _aged(self, queue: str, group: Group) -> None:
        late_at, complete_s = first_late_at(group), group.first_complete_s
        # A group found at the start is queued by an age from before this clock: its age counts from that.
        since_s = complete_s if 0 <= complete_s < NEVER_S else group.since_s
        age_s = self.now_s - since_s if late_at is None else self.wall_s - late_at
        self.oldest_s[queue] = max(self.oldest_s[queue], age_s)


async def read_groups(scheduler: Scheduler, now_s: float, wall_s: float) -> Totals:
    """Counts every group, in slices. wall_s: now, in seconds since 1970."""
    queues = ("active", "backoff", "unschedulable", "gated", "incomplete")
    totals = Totals(now_s, wall_s, dict.fromkeys(queues, 0), dict.fromkeys(queues, 0.0), {})
    walltimes = scheduler.shared.walltimes
    if walltimes is not None:
        totals.walltimes = dict.fromkeys(SOURCES, 0)
    groups = iter(list(scheduler.shared.groups.values()))
    while part := list(islice(groups, _GROUPS_AT_ONCE)):
        for group in part:
            totals.add(group)
            if walltimes is not None:
                totals.add_walltime(group, walltimes)
        await asyncio.sleep(0)
    return totals


def read_queueing(scheduler: Scheduler, totals: Totals) -> QueueingReading | None:
    """Reads bypasses and walltimes, if they are counted."""
    bypasses = scheduler.shared.queue.bypasses
    if bypasses is None:
        return None
    return QueueingReading(
        tuple(bypasses.at_start),
        bypasses.total_at_start,
        bypasses.most(),
        bypasses.n_claimed,
        bypasses.n_claimed_now(),
        totals.walltimes,
        tuple(scheduler.attempts.forecasts.ratios),
        scheduler.attempts.forecasts.total_ratio,
        {
            "claim": scheduler.shared.counters["overrun_victims"],
            "walltime": scheduler.shared.counters["overrun_evictions"],
        },
        _claims(scheduler.shared.claims),
    )


def _claims(claims: Claims | None) -> ClaimsReading | None:
    if claims is None:
        return None
    n_promised = sum(claim.is_promise for claim in claims.all)
    return ClaimsReading(
        n_promised,
        len(claims) - n_promised,
        dict.fromkeys(CAUSES, 0) | claims.promises,
        tuple(claims.errors),
        claims.total_error_s,
        claims.idle(),
        len(claims.too_idle),
    )


async def read_devices(scheduler: Scheduler) -> list[tuple[str, str, int]]:
    """Free devices by (node, resource), for nodes with an inventory, in slices."""
    cache = scheduler.shared.cache
    found: list[tuple[str, str, int]] = []
    for resource in sorted(cache.ledger.columns)[:_MAX_RESOURCES]:
        label, column = clean(resource), cache.ledger.columns[resource]
        rows = iter(sorted(column.at))
        while part := list(islice(rows, _DEVICES_AT_ONCE)):
            for row in part:
                free, name = int(column.free[row]), cache.nodes.names[row]
                if name and free >= 0:  # not a row that was emptied meanwhile, or lists nothing now
                    found.append((name, label, free))
            await asyncio.sleep(0)
    return found
