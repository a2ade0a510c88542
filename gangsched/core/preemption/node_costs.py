"""NodeCosts: what each node would have to give up for one more pod, by resources alone, for all nodes at
once.

kube-scheduler's rule for one node (remove all potential victims; then spare the most important ones as long
as the pod still fits) runs here on arrays, one step for the k-th most important pod of all nodes together.
Only resources and numbers of devices count: the result is exact if no other Filter matters, and otherwise a
lower bound of a node's cost, good enough to decide where to look first. Called by core.preemption.search,
by_node and by_domain. Source of the rule: kube-scheduler 1.37 `plugins/defaultpreemption`,
SelectVictimsOnNode.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec
import numpy as np

from gangsched.core.cache.trial import ClusterView
from gangsched.core.preemption.costs import OFFSET
from gangsched.core.preemption.victims import is_leaving, priority_of
from gangsched.core.types.arrays import NO_LIMIT, BoolArray, FloatArray, IntArray
from gangsched.core.types.group import MemberState, PodInfo
from gangsched.core.types.templates.pod_template import PodTemplate

_ASSUMED = MemberState.ASSUMED


class NodeCosts(msgspec.Struct, frozen=True, gc=False):
    """Nodes that could take the pod if all potential victims left, the cheapest first; ties: row.

    rows int64[n]; room int64[n]: how many such pods they take then; keys: the cost of one pod, in the order
    of costs.Cost.
    """

    rows: IntArray
    room: IntArray
    keys: Sequence[tuple[float, ...]]


class OnNodes:
    """Potential victims by node, with the facts about each that do not depend on the pod to place.

    on_row: by row; guarded: UIDs of those protected by a disruption budget; last: of those that go only if
    all others are not enough.
    """

    def __init__(
        self, on_row: Mapping[int, Sequence[PodInfo]], guarded: Collection[str], last: Collection[str] = ()
    ) -> None:
        self.rows = np.fromiter(on_row, dtype=np.int64, count=len(on_row))
        self.counts = np.fromiter((len(here) for here in on_row.values()), dtype=np.int64, count=len(on_row))
        self.at = np.repeat(np.arange(len(self.rows)), self.counts)
        """For each victim, the index of its node in `rows`."""
        victims = [info for here in on_row.values() for info in here]
        n = len(victims)
        self.priorities = np.array([priority_of(info) for info in victims], dtype=np.float64)
        started = [info.pod.status.start_time for info in victims]
        self.starts = np.full(n, np.inf)
        if any(started):
            self.starts[:] = [np.inf if time is None else time.timestamp() for time in started]
        free = np.array([info.state is _ASSUMED or is_leaving(info) for info in victims], dtype=np.bool_)
        self.costly = ~free
        self.against = np.zeros(n, dtype=np.bool_)
        if guarded:
            self.against[:] = [info.uid in guarded for info in victims]
            self.against &= self.costly
        self.last = np.zeros(n, dtype=np.bool_)
        if last:
            self.last[:] = [info.uid in last for info in victims]
            self.last &= self.costly
        self.order = np.lexsort(
            (self.starts, -self.priorities, ~self.costly, ~self.against, ~self.last, self.at)
        )
        """Node by node, the most important first."""
        templates = {info.template.serial: info.template for info in victims}
        places = {serial: place for place, serial in enumerate(templates)}
        self._templates = list(templates.values())
        self._which = np.array([places[info.template.serial] for info in victims], dtype=np.int64)

    def held(self, columns: Sequence[tuple[str, int]]) -> IntArray:
        """What each victim holds in each column: int64[n_victims, c]."""
        amounts = []
        for template in self._templates:
            own = dict(zip(template.columns, template.amounts, strict=True))
            amounts.append([own.get(column, 0) for _, column in columns])
        table = np.array(amounts, dtype=np.int64).reshape(len(amounts), len(columns))
        return table[self._which]


def rank(view: ClusterView, template: PodTemplate, victims: OnNodes) -> NodeCosts:
    """Computes what each node would have to give up for one pod of the template, and ranks the nodes."""
    rows, at, counts = victims.rows, victims.at, victims.counts
    needs, has, columns = _asked(template, view, rows)
    held = victims.held(columns)
    empty = has.copy()
    np.add.at(empty, at, held)
    room = (empty // needs).min(axis=1) if needs.size else np.full(len(rows), NO_LIMIT)
    goes = _not_reprieved(empty, needs, held, victims.order, counts)
    costs = goes & victims.costly
    keys = _keys(costs, at, len(rows), victims)
    takes = np.flatnonzero(room > 0)
    ranked = takes[np.lexsort((rows[takes], *(column[takes] for column in reversed(keys))))]
    listed = np.stack([column[ranked] for column in keys], axis=1)
    return NodeCosts(rows[ranked], room[ranked], [tuple(key) for key in listed.tolist()])


def _asked(
    template: PodTemplate, view: ClusterView, rows: IntArray
) -> tuple[IntArray, IntArray, list[tuple[str, int]]]:
    """Returns the template's requests: amounts [c], free room [n, c], and each column as (name, column).

    On nodes that list devices, free devices are counted.
    """
    columns = list(zip(template.names, template.columns, strict=True))
    needs = np.array(template.amounts, dtype=np.int64)
    if not columns:
        return needs, np.zeros((len(rows), 0), dtype=np.int64), columns
    free = view.room_at(template.column_array, rows)[1].T.copy()
    for k, (name, _) in enumerate(columns):
        listed = view.device_free(name)
        if listed is not None:
            own = listed[rows]
            free[:, k] = np.where(own >= 0, np.minimum(own, free[:, k]), free[:, k])
    return needs, free, columns


def _not_reprieved(
    empty: IntArray, needs: IntArray, held: IntArray, order: IntArray, counts: IntArray
) -> BoolArray:
    """Returns the pods that cannot be spared, bool[n_victims]; `order`: by node, each's most important
    first."""
    goes = np.zeros(len(order), dtype=np.bool_)
    first = np.concatenate(([0], np.cumsum(counts)[:-1])) if len(counts) else counts
    left = empty
    for k in range(int(counts.max(initial=0))):
        nodes = np.flatnonzero(counts > k)
        pods = order[first[nodes] + k]
        with_them = left[nodes] - held[pods]
        stays = (with_them >= needs).all(axis=1)
        goes[pods] = ~stays
        left[nodes[stays]] = with_them[stays]
    return goes


def _keys(costs: BoolArray, at: IntArray, n_rows: int, victims: OnNodes) -> list[FloatArray]:
    """Returns a column for each part of costs.Cost, in its order."""
    where, priorities, starts = at[costs], victims.priorities, victims.starts
    highest = np.full(n_rows, -float(OFFSET))
    np.maximum.at(highest, where, priorities[costs])
    first = np.full(n_rows, np.inf)
    top = costs & (priorities == highest[at])
    np.minimum.at(first, at[top], starts[top])
    any_goes = np.bincount(where, minlength=n_rows) > 0
    return [
        np.bincount(at[costs & victims.last], minlength=n_rows).astype(np.float64),
        np.bincount(at[costs & victims.against], minlength=n_rows).astype(np.float64),
        highest,
        np.bincount(where, weights=priorities[costs] + OFFSET, minlength=n_rows),
        np.bincount(where, minlength=n_rows).astype(np.float64),
        np.where(any_goes, -first, -np.inf),
    ]
