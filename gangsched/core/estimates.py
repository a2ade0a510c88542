"""Estimates: when waiting groups will start, if running pods end as expected and nothing else arrives.

A pure function of the scheduler's present state, computed on demand; nothing is written and no counter moves.
Simulates the queue: whenever something ends, everything that fits then starts, in order (list scheduling).
Counts resources only, each template alone: ports, device locality and terms about other pods are ignored.
Groups that need one domain, or start together with other groups, get no estimate. Room of claims counts as
taken. So it is a forecast, and never a promise (core.queueing.claims). Called by gangsched.web.pages.queue.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Generator, Iterable, Sequence
from itertools import chain, islice

import msgspec
import numpy as np

from gangsched.core.cache.cluster_view import ClusterView
from gangsched.core.cycle.domains.topology import requires_domain
from gangsched.core.cycle.shortage import room_of
from gangsched.core.framework.profile import Demand
from gangsched.core.queueing.kept_from import kept_until
from gangsched.core.queueing.needs import open_to
from gangsched.core.scheduler import Scheduler
from gangsched.core.state.state import SharedState
from gangsched.core.types.arrays import IntArray
from gangsched.core.types.group import Group, GroupState, MemberState
from gangsched.core.types.states import IN_LINE
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.model.pod_group import GroupKey

# Only the first groups in the queue get an estimate.
_MAX_GROUPS = 100
# Limit on placement tries. Each looks at all nodes that a template may use: 50 us for 5,000 nodes.
_MAX_LOOKS = 1_000
# Sized so that a step takes about 1 ms of CPU.
_PODS_AT_ONCE = 200
_GROUPS_AT_ONCE = 1_000
# Ends are rounded up to steps of a fiftieth of the time until then.
_STEP = 0.02
_LEAST_STEP_S = 1.0

_Taken = tuple[PodTemplate, IntArray, IntArray]
"""A template, rows, and how many copies are on each row."""


class _Need(msgspec.Struct, eq=False):
    """`n` copies of a template, to be placed on these rows."""

    template: PodTemplate
    rows: IntArray
    n: int


class _Waiting(msgspec.Struct, eq=False):
    group: Group
    needs: list[_Need]
    walltime_s: float

    @property
    def kind(self) -> tuple[tuple[int, int], ...]:
        """Equal for groups with equal needs: if one does not fit, neither do the rest."""
        return tuple((one.template.serial, one.n) for one in self.needs)


def estimated_starts(scheduler: Scheduler, now_s: float) -> dict[GroupKey, float]:
    """Start times on the core's clock. Groups that cannot be estimated or have claims are missing."""
    steps = in_steps(scheduler, now_s)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: dict[GroupKey, float] = done.value
            return found


def in_steps(scheduler: Scheduler, now_s: float) -> Generator[None, None, dict[GroupKey, float]]:
    """As estimated_starts, in steps of some milliseconds.

    Events between two steps may be missed, but after a change of the configuration it begins again.
    """
    shared = scheduler.shared
    while shared.ends is not None and shared.walltimes is not None and scheduler.is_synced:
        profiles, settings = shared.profiles, shared.settings
        steps = _steps(shared, now_s)
        while shared.profiles is profiles and shared.settings is settings:
            try:
                next(steps)
            except StopIteration as done:
                found: dict[GroupKey, float] = done.value
                return found
            yield
    return {}


def _steps(shared: SharedState, now_s: float) -> Generator[None, None, dict[GroupKey, float]]:
    """The simulation, under one configuration."""
    waiting = yield from _waiting(shared)
    if not waiting:
        return {}
    room = _Room(shared.cache.view, [need.template for one in waiting for need in one.needs])
    ends = yield from _ends(shared, room, now_s)
    found: dict[GroupKey, float] = {}
    n_looks, at_s = 0, now_s
    while waiting and n_looks < _MAX_LOOKS:
        refused: set[object] = set()
        left = []
        for one in waiting:
            took = None
            if one.kind not in refused:
                n_looks += 1
                yield
                took = room.place(one.needs)
            if took is None:
                refused.add(one.kind)
                left.append(one)
                continue
            if at_s == now_s and one.group.state is GroupState.UNSCHEDULABLE:
                # It fits and still waits, so it waits for something that is not simulated here.
                room.give_back(took)
                continue
            found[one.group.key] = at_s
            if math.isfinite(one.walltime_s):
                end_s = now_s + _rounded(at_s + one.walltime_s - now_s)
                heapq.heappush(ends, (end_s, -n_looks, took))
        waiting = left
        if not ends:
            break
        at_s = ends[0][0]
        yield
        while ends and ends[0][0] <= at_s:
            room.give_back(heapq.heappop(ends)[2])
    return found


def _rounded(in_s: float) -> float:
    """Rounds up, so that pods that end at about the same time end together."""
    if in_s <= _LEAST_STEP_S:
        return _LEAST_STEP_S
    return max(math.ceil(in_s), (1.0 + _STEP) ** math.ceil(math.log(in_s) / math.log1p(_STEP)))


class _Room:
    """What is free of the requested resources; of devices with an inventory only the healthy ones.

    Shape: int64[n_resources, n_rows]."""

    def __init__(self, view: ClusterView, templates: Iterable[PodTemplate]) -> None:
        columns = sorted({column for template in templates for column in template.columns})
        names = view.table.names
        self.n_rows = view.n_rows
        self._index = {column: i for i, column in enumerate(columns)}
        self.free: IntArray = np.zeros((len(columns), view.n_rows), dtype=np.int64)
        for at, column in enumerate(columns):
            self.free[at] = room_of(view, names[column], column)

    def place(self, needs: Sequence[_Need]) -> list[_Taken] | None:
        """Takes room for all needs, on as few nodes as possible each; takes none and returns None if one does
        not fit."""
        done: list[_Taken] = []
        for need in needs:
            at = np.array([self._index[column] for column in need.template.columns], dtype=np.int64)
            amounts = np.array(need.template.amounts, dtype=np.int64)[:, np.newaxis]
            fits = np.maximum((self.free[np.ix_(at, need.rows)] // amounts).min(axis=0), 0)
            order = np.argsort(-fits, kind="stable")
            summed = fits[order].cumsum()
            n = int(np.searchsorted(summed, need.n)) + 1
            if not len(summed) or n > len(summed):
                self.give_back(done)
                return None
            counts = fits[order[:n]].copy()
            counts[-1] -= summed[n - 1] - need.n
            done.append((need.template, need.rows[order[:n]], counts))
            self.take(done[-1], 1)
        return done

    def give_back(self, taken: Iterable[_Taken]) -> None:
        for one in taken:
            self.take(one, -1)

    def take(self, taken: _Taken, sign: int) -> None:
        """Takes the room, or returns it with sign -1. Rows must be distinct."""
        template, rows, counts = taken
        for column, amount in zip(template.columns, template.amounts, strict=True):
            if (at := self._index.get(column)) is not None:
                self.free[at, rows] -= sign * amount * counts


def _waiting(shared: SharedState) -> Generator[None, None, list[_Waiting]]:
    """The first waiting groups in queue order, with what each needs."""
    claims = shared.claims
    groups: list[tuple[object, GroupKey, Group]] = []
    known = iter(list(shared.groups.values()))
    while part := list(islice(known, _GROUPS_AT_ONCE)):
        yield
        groups += [
            (shared.sort_key(group)[0], group.key, group)
            for group in part
            if group.state in IN_LINE
            and group.is_complete
            and not group.problem
            and not group.start_together
            and (claims is None or claims.claim(group) is None)
        ]
        groups = heapq.nsmallest(_MAX_GROUPS, groups)
    view, found = shared.cache.view, []
    n_rows = view.n_rows
    for _, _, group in groups:
        yield
        members = group.in_state(MemberState.PENDING)
        n_needed = min(group.n_needed, len(members))
        demand = Demand(group, shared.profile_of(group).quiet, members, n_needed)
        if not members or requires_domain([demand]):
            continue
        needs = [
            _Need(template, np.flatnonzero(open_to(demand, template, view)[:n_rows]), n)
            for template, infos in demand.by_template().values()
            if (n := n_needed - len(members) + len(infos)) > 0 and not template.missing
        ]
        if needs and shared.walltimes is not None:
            found.append(_Waiting(group, needs, shared.walltimes.walltime(group).seconds))
    return found


def _ends(
    shared: SharedState, room: _Room, now_s: float
) -> Generator[None, None, list[tuple[float, int, list[_Taken]]]]:
    """A heap of what ends when. Takes what claims and nominations keep out of `room`."""
    view, one_copy = shared.cache.view, np.ones(1, dtype=np.int64)
    found: list[tuple[float, int, list[_Taken]]] = []
    ends = shared.ends
    assert ends is not None
    # By their requests: a template that names a node has just one pod.
    alike: dict[tuple[float, object, object], tuple[PodTemplate, list[int]]] = {}
    # Pods that arrive or leave meanwhile may be missed.
    infos = chain.from_iterable([*there.values()] for there in list(shared.cache.by_node.values()))
    for i, info in enumerate(infos):
        if i % _PODS_AT_ONCE == 0:
            yield
        end_s = ends.expected(info, now_s, shared.wall_ahead_s).at_s
        if 0 <= info.row < room.n_rows and math.isfinite(end_s) and info.uid not in shared.stuck:
            until_s = _rounded(max(end_s - now_s, 0.0)) + now_s
            template = info.template
            key = until_s, tuple(template.columns), tuple(template.amounts)
            alike.setdefault(key, (template, []))[1].append(info.row)
    for i, ((end_s, _, _), (template, at)) in enumerate(alike.items()):
        if i % _PODS_AT_ONCE == 0:
            yield
        rows, counts = np.unique(np.array(at), return_counts=True)
        found.append((end_s, len(found), [(template, rows, counts)]))
    for end_s, one in kept_until(shared, now_s):
        if (row := view.row_of(one.node_name)) is not None and row < room.n_rows:
            own = one.template, np.array([row]), one_copy
            room.take(own, 1)
            if math.isfinite(end_s):
                found.append((end_s, len(found), [own]))
    heapq.heapify(found)
    return found
