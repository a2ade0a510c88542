"""One scheduling cycle: the members of one group, or of groups that start together, placed all or nothing.

Works on a Trial and answers with a Plan or a FitError; what becomes of either is core.scheduler's. Members
of one template are one problem: how many fit on each node is an array, and choosing nodes is arithmetic on
it. A gang is packed: fewest nodes, then fewest racks (a configurable label), then the tightest fit, then
the highest score, then the lowest row. A lone pod goes to the highest score; of several such nodes to the
one that `pick` says: handed in with its seed where equal nodes shall be used evenly, else the lowest row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import permutations

import msgspec
import numpy as np

from gangsched.core.allotment import reserve_devices, settle
from gangsched.core.framework import CycleState, FloatArray, IntArray
from gangsched.core.group import PodInfo
from gangsched.core.nodes import CodeArray
from gangsched.core.plan import Demand, FitError, Placement, Plan
from gangsched.core.runtime import Profile
from gangsched.core.snapshot import ClusterView, Trial
from gangsched.core.template import PodTemplate
from gangsched.model.device_constraints import CONSTRAINTS_KEY

# Members with different templates compete; when the tightest-first order fails, others are tried.
_MAX_ORDERS = 6
# Of groups that start together: a set of 64 that does not fit must not cost 64 times as much.
_MAX_ROTATIONS = 12
GANG = "GangScheduling"
_NOT_NAMED = f"metadata.annotations: {CONSTRAINTS_KEY}: the plugin Devices is off in this pod's profile"


class _Shortage(msgspec.Struct, gc=False):
    demand: Demand
    template: PodTemplate
    n_placed: int
    n_wanted: int
    trial: Trial
    templates: list[PodTemplate]


_Batch = tuple[PodTemplate, list[PodInfo]]


def run_cycle(
    demands: Sequence[Demand], view: ClusterView, *, topology_key: str, nominated: Sequence[PodInfo] = ()
) -> Plan | FitError:
    """Places all demands on one Trial, or none; several are tried in other orders too before it is "no".

    nominated: other schedulers' pods that hold a promise on a node; those of equal or higher priority
    take their room first (kube-scheduler does the same in RunFilterPluginsWithNominatedPods). The reason is
    that of the order given.
    """
    refused: FitError | None = None
    for order in _orders(demands):
        answer = _place_all(order, view, topology_key, nominated)
        if isinstance(answer, Plan):
            return answer
        refused = refused or answer
    return refused or Plan([])


def _orders(demands: Sequence[Demand]) -> Iterator[Sequence[Demand]]:
    """The order given first; groups that fit together may fit in one order of filling the nodes only.

    All orders of up to four groups; of more, each group first once, forwards and backwards.
    """
    if len(demands) <= 4:
        yield from permutations(demands)
        return
    for ring in (demands, demands[::-1]):
        for i in range(min(len(ring), _MAX_ROTATIONS)):
            yield [*ring[i:], *ring[:i]]


def _place_all(
    demands: Sequence[Demand], view: ClusterView, topology_key: str, nominated: Sequence[PodInfo]
) -> Plan | FitError:
    plan = Plan([])
    trial = Trial(view)
    if nominated and demands:
        _reserve_nominated(trial, min(demand.group.priority for demand in demands), nominated)
    for demand in demands:
        placed = _place_group(demand, trial, topology_key, plan)
        if isinstance(placed, FitError):
            return placed
        trial, placed_here = placed
        plan.placements += placed_here
    if trial.repacked:
        settle(trial, plan.placements)
    return plan


def _reserve_nominated(trial: Trial, priority: int, nominated: Iterable[PodInfo]) -> None:
    for pod in nominated:
        row = trial.row_of(pod.pod.status.nominated_node_name)
        if row is not None and (pod.pod.spec.priority or 0) >= priority:
            trial.place(row, pod.template)


def _place_group(
    demand: Demand, trial: Trial, topology_key: str, plan: Plan
) -> tuple[Trial, list[Placement]] | FitError:
    batches: dict[int, _Batch] = {}
    for info in demand.members:
        refused = demand.profile.refuses(info.template)
        if refused:
            return FitError(demand.group, refused, ((GANG, None),))
        if info.template.constraints and not demand.profile.names_devices:
            return FitError(demand.group, _NOT_NAMED, ((GANG, None),))
        batches.setdefault(info.template.serial, (info.template, []))[1].append(info)
    states = {serial: CycleState(demand.group) for serial in batches}
    plan.states.update(((demand.group.key, serial), state) for serial, state in states.items())
    for serial, (template, _) in batches.items():
        status = demand.profile.run_pre_filter(states[serial], template, trial)
        if not status.is_success:
            return FitError(demand.group, status.reason, ((status.plugin, template),), status.code)
    order = list(batches.values())
    if len(order) == 1:
        outcome = _place_batches(demand, order, states, trial.fork(), topology_key)
    else:
        order.sort(key=lambda batch: _slack(demand.profile, states[batch[0].serial], batch, trial))
        for attempt in list(permutations(order))[:_MAX_ORDERS] if len(order) <= 4 else [order, order[::-1]]:
            outcome = _place_batches(demand, list(attempt), states, trial.fork(), topology_key)
            if not isinstance(outcome, _Shortage):
                break
    if isinstance(outcome, _Shortage):
        return _explain(outcome, states[outcome.template.serial])
    return outcome


def _slack(profile: Profile, state: CycleState, batch: _Batch, view: ClusterView) -> int:
    """Room to spare for a template; the least goes first."""
    template, members = batch
    capacity = profile.capacity(state, template, view)
    return int(np.minimum(capacity, len(members)).sum()) - len(members)


def _place_batches(
    demand: Demand,
    batches: Sequence[_Batch],
    states: Mapping[int, CycleState],
    trial: Trial,
    topology_key: str,
) -> tuple[Trial, list[Placement]] | _Shortage:
    placements: list[Placement] = []
    used: list[int] = []
    n_left = len(demand.members)
    shortage: _Shortage | None = None
    for template, members in _in_turns(demand.profile, batches, states):
        state = states[template.serial]
        capacity = demand.profile.capacity(state, template, trial)
        if len(demand.members) == 1 and not demand.group.is_gang:
            chosen = _best_scored(demand, state, template, trial, capacity)
        else:
            chosen = _pack(demand.profile, state, template, trial, capacity, len(members), used, topology_key)
        n_placed = sum(count for _, count in chosen)
        if n_placed < len(members):
            n_left -= len(members) - n_placed
            if shortage is None:
                before = sum(placement.info.template is template for placement in placements)
                wanted = sum(info.template is template for info in demand.members)
                templates = [t for t, _ in batches]
                shortage = _Shortage(demand, template, before + n_placed, wanted, trial, templates)
        listed = []
        if demand.profile.names_devices:
            listed = [(r, n) for r, n in template.requests.items() if trial.device_free(r) is not None]
        if n_left < demand.n_needed and shortage is not None:
            for row, count in chosen:  # so that the reasons count what siblings take
                reserve_devices(trial, row, template, listed, count)
                trial.place(row, template, count)
            return shortage
        waiting = iter(members)
        for row, count in chosen:
            allocations = reserve_devices(trial, row, template, listed, count)
            placements += [Placement(next(waiting), row, allocation) for allocation in allocations]
            trial.place(row, template, count)
        used += [row for row, _ in chosen if row not in used]
    return trial, placements


def _in_turns(
    profile: Profile, batches: Iterable[_Batch], states: Mapping[int, CycleState]
) -> Iterator[_Batch]:
    """Members of one template together; one at a time where a filter depends on where the others are."""
    for template, members in batches:
        if profile.sees_pods(states[template.serial]):
            yield from ((template, [info]) for info in members)
        else:
            yield template, members


def _best_scored(
    demand: Demand, state: CycleState, template: PodTemplate, view: ClusterView, capacity: IntArray
) -> list[tuple[int, int]]:
    rows = np.flatnonzero(capacity > 0)
    if not len(rows):
        return []
    scores = demand.profile.score(state, template, view, rows)
    best = rows if scores is None else rows[scores == scores.max()]
    return [(int(best[demand.pick(len(best)) if len(best) > 1 else 0]), 1)]


def _pack(
    profile: Profile,
    state: CycleState,
    template: PodTemplate,
    view: ClusterView,
    capacity: IntArray,
    n_members: int,
    used: list[int],
    topology_key: str,
) -> list[tuple[int, int]]:
    """(row, count) for up to n_members of one template, nodes the gang has already opened first."""
    chosen: list[tuple[int, int]] = []
    left = n_members
    for row in used:
        here = min(int(capacity[row]), left)
        if here:
            chosen.append((row, here))
            left -= here
    if used:
        capacity = capacity.copy()
        capacity[used] = 0
    largest = int(capacity.max(initial=0))
    if not left or not largest:
        return chosen
    racks, _ = view.label(topology_key)
    if largest >= left:
        pick = _tightest(profile, state, template, view, capacity, left, racks, used)
        return [*chosen, (pick, left)]
    rows = np.flatnonzero(capacity > 0)
    room = np.minimum(capacity[rows], left)
    # A node without the label is a rack of its own to nobody: all such nodes count as one.
    return chosen + _pack_many(profile, state, template, view, rows, room, racks[rows], left)


def _tightest(
    profile: Profile,
    state: CycleState,
    template: PodTemplate,
    view: ClusterView,
    capacity: IntArray,
    n_members: int,
    racks: CodeArray,
    used: list[int],
) -> int:
    """One node that takes all: in a rack the gang is in, then least room left over, then score, then row."""
    rows = np.flatnonzero(capacity >= n_members)
    if used:
        near = rows[np.isin(racks[rows], racks[used])]
        rows = near if len(near) else rows
    room = capacity[rows]
    best = rows[room == room.min()]
    if len(best) > 1:
        scores = profile.score(state, template, view, best)
        if scores is not None:
            return int(best[int(np.argmax(scores))])
    return int(best[0])


def _pack_many(
    profile: Profile,
    state: CycleState,
    template: PodTemplate,
    view: ClusterView,
    rows: IntArray,
    room: IntArray,
    rack: CodeArray,
    n_members: int,
) -> list[tuple[int, int]]:
    """Several nodes: the fewest there are, from the fewest racks that allow that number (greedy by rack)."""
    scores = profile.score(state, template, view, rows)
    rank = np.zeros(len(rows)) if scores is None else -scores
    by_room = np.lexsort((rows, rank, -room))
    total = np.cumsum(room[by_room])
    if total[-1] <= n_members:
        return [(int(rows[i]), int(room[i])) for i in by_room]
    n_nodes = int(np.searchsorted(total, n_members)) + 1
    order = _by_rack(by_room, room, rack, n_nodes, n_members)
    picked: list[tuple[int, int]] = []
    left = n_members
    for i in order[:-1]:
        picked.append((int(rows[i]), int(room[i])))
        left -= int(room[i])
    last = int(order[-1])
    if int(room[last]) > left:
        last = _last_node(order, rows, room, rack, rank, left)
    return [*picked, (int(rows[last]), left)]


def _by_rack(by_room: IntArray, room: IntArray, rack: CodeArray, n_nodes: int, n_members: int) -> IntArray:
    """The first n_nodes positions that hold n_members, from as few racks as the greedy order finds.

    A rack that can do it alone wins (the one with the least room left in it); else racks are taken by how
    much their best n_nodes nodes hold, as long as the number of nodes stays the least possible.
    """
    racks = rack[by_room]
    if (racks == racks[0]).all():
        return by_room[:n_nodes]
    by_rack = by_room[np.argsort(racks, kind="stable")]
    sorted_racks = rack[by_rack]
    starts = np.flatnonzero(np.r_[True, sorted_racks[1:] != sorted_racks[:-1]])
    place = np.arange(len(by_rack)) - np.repeat(starts, np.diff(np.r_[starts, len(by_rack)]))
    held = np.where(place < n_nodes, room[by_rack], 0)
    best_of = np.add.reduceat(held, starts)
    everything = np.add.reduceat(room[by_rack], starts)
    enough = np.flatnonzero(best_of >= n_members)
    if len(enough):
        one = int(enough[int(np.argmin(everything[enough]))])
        return by_rack[starts[one] :][:n_nodes]
    ends = np.r_[starts[1:], len(by_rack)]
    taken: list[int] = []
    missing = n_members
    for one in np.argsort(-best_of, kind="stable"):
        mine = by_rack[starts[one] : ends[one]][: n_nodes - len(taken)]
        for i in mine:
            if missing > 0:
                taken.append(int(i))
                missing -= int(room[i])
        if missing <= 0:
            return np.array(taken, dtype=np.int64)
        if len(taken) >= n_nodes:
            break
    return by_room[:n_nodes]


def _last_node(
    order: IntArray, rows: IntArray, room: IntArray, rack: CodeArray, rank: FloatArray, n_left: int
) -> int:
    """The last node need not be full: the tightest that takes the rest, in racks already opened if any."""
    free = np.ones(len(rows), dtype=np.bool_)
    free[order[:-1]] = False
    fits = np.flatnonzero(free & (room >= n_left))
    opened = rack[order]
    far = ~np.isin(rack[fits], opened)
    best = np.lexsort((rows[fits], rank[fits], room[fits], far))
    return int(fits[best[0]])


def _explain(shortage: _Shortage, state: CycleState) -> FitError:
    """kube-scheduler's sentence, after one that says what that means for the gang."""
    demand, template, view = shortage.demand, shortage.template, shortage.trial
    profile, group = demand.profile, demand.group
    counted: dict[str, int] = {}
    plugins: list[str] = []
    for plugin, reason, rows in profile.reasons(state, template, view):
        counted[reason] = counted.get(reason, 0) + int(rows.sum())
        if plugin not in plugins:
            plugins.append(plugin)
    told = ", ".join(f"{n} {reason}" for reason, n in sorted(counted.items(), key=lambda x: (-x[1], x[0])))
    sentence = f"0/{view.n_nodes} nodes are available" + (f": {told}." if told else ".")
    if group.is_gang:
        wanted = demand.n_needed + group.n_bound + group.n_assumed
        alike = [info for info in demand.members if info.template is template]
        unplaced = alike[min(shortage.n_placed, len(alike) - 1)]
        fit = group.n_bound + group.n_assumed + _n_fit(shortage)
        member = unplaced.pod.metadata.name
        sentence = f"gang {group.key}: {fit} of {wanted} fit; member {member}: {sentence}"
    # Room that helps only a sibling may let that one move away: any of the templates may be the cure.
    rejected: list[tuple[str, PodTemplate | None]] = [(p, t) for p in plugins for t in shortage.templates]
    # Where nobody is named as the reason, any change may help.
    return FitError(group, sentence, tuple(rejected) or (("", None),))


def _n_fit(shortage: _Shortage) -> int:
    others = len(shortage.demand.members) - shortage.n_wanted
    return min(shortage.n_placed + others, shortage.demand.n_needed - 1)
