"""Filtering: which nodes suit a template, and how many of its pods they take, by all Filter plugins.

Answers fall into three kinds, by how long they hold. Fixed properties of a node: a mask, kept until a node
changes. Free capacity (capacity plugins): kept, and only changed rows are recomputed. Answers that depend on
where pods are, or on PreFilter's results: computed each time. Plugins that look at nodes one by one come
last, and see only the nodes that the others left. Made and called by core.framework.profile, and by
core.cycle.placing between a gang's members.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from gangsched.core.cache.trial import ClusterView, Trial
from gangsched.core.framework.filters.joint_room import JointRoom
from gangsched.core.framework.filters.per_node import NodeInfos, PerNodeFilter
from gangsched.core.framework.filters.row_cache import n_kept
from gangsched.core.framework.interface import (
    EVERYWHERE,
    BoolArray,
    CapacityPlugin,
    CycleState,
    FilterPlugin,
    IntArray,
    NodeFilterPlugin,
    Rows,
)
from gangsched.core.framework.plugin_calls import CallPlugin, PluginError, check_count, check_shape, converted
from gangsched.core.framework.supports import (
    SupportsAtMost,
    SupportsCapacityOn,
    SupportsSeesPods,
    SupportsTopologyKeys,
    serves,
)
from gangsched.core.types.arrays import NO_LIMIT
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.core.why import Because, Why

_ONE_ROW = (1,)
# Up to this many rows are asked one by one: for so few, arrays cost more than the rows.
_FEW_ROWS = 2


_Said = tuple[str, Sequence[tuple[Why, BoolArray]]]
"""A plugin's name, and its reasons with the rows that each applies to."""


class _Kept:
    """Capacities of one template, current up to `mark` of the journal, under one mask."""

    __slots__ = ("mark", "mask", "values")

    def __init__(self, mask: BoolArray, values: IntArray, mark: int) -> None:
        self.mask = mask
        self.values = values
        self.mark = mark


class Filtering:
    """The Filter plugins of one profile, in order; `is_observed`: those that have a PreFilter."""

    def __init__(
        self,
        filters: Iterable[FilterPlugin | NodeFilterPlugin],
        capacities: Iterable[CapacityPlugin],
        *,
        is_observed: frozenset[str],
        infos: NodeInfos,
        ask: CallPlugin,
    ) -> None:
        self._ask = ask
        self.capacities = tuple(capacities)
        self._counts_on = tuple((plugin, _counting_on(plugin)) for plugin in self.capacities)
        fixed: list[FilterPlugin] = []
        by_cycle: list[FilterPlugin] = []
        seeing: list[FilterPlugin] = []
        per_node: list[PerNodeFilter] = []
        self._place: dict[str, int] = {}
        for plugin in filters:
            self._place[plugin.name] = len(self._place)
            if not serves(plugin, FilterPlugin):
                per_node.append(PerNodeFilter(plugin, infos, is_observed=plugin.name in is_observed))
            elif serves(plugin, SupportsSeesPods) and plugin.sees_pods:
                seeing.append(plugin)
            else:
                (by_cycle if plugin.name in is_observed else fixed).append(plugin)
        self.fixed = tuple(fixed)
        self.by_cycle = tuple(by_cycle)
        self.seeing = tuple(seeing)
        self.per_node = tuple(per_node)
        self.joint_room = JointRoom((*self.capacities, *self.seeing), ask)
        self._names_of_seeing = [one.name for one in seeing]
        self._bounding = tuple(one for one in seeing if serves(one, SupportsAtMost))
        self._telling_apart: tuple[FilterPlugin | PerNodeFilter, ...] = (
            *seeing,
            *(one for one in per_node if one.sees_pods),
        )
        self._seeing_names = self._names_of_seeing + [one.name for one in per_node if one.sees_pods]
        self._masks: dict[int, tuple[int, BoolArray]] = {}
        self._fixed_reasons: dict[int, tuple[BoolArray, list[_Said]]] = {}
        """By template, with the mask that the reasons belong to."""
        self._capacities: dict[int, _Kept] = {}

    def feasible(self, state: CycleState, template: PodTemplate, view: ClusterView) -> BoolArray:
        """The mask of fixed node properties, kept per template until a node changes: bool[n_rows]."""
        found = self._masks.get(template.serial)
        if found is not None and found[0] == view.static_revision and len(found[1]) == view.n_rows:
            return found[1]
        mask = view.live.copy()
        for plugin in self.fixed:
            own = self._mask(plugin, state, template, view)
            if own is not None:
                mask &= own
        if len(self._masks) > n_kept(view.n_rows):
            self._masks.clear()
        self._masks[template.serial] = (view.static_revision, mask)
        return mask

    @property
    def depends_on_placed(self) -> bool:
        """Whether any Filter of the profile may answer differently after pods were placed."""
        return bool(self.seeing or self.by_cycle or self.per_node)

    def sees_pods(self, state: CycleState) -> bool:
        """Whether a Filter takes part that depends on where pods are: then members are placed one by one."""
        return not state.skipped.issuperset(self._seeing_names)

    def names_seeing(self, state: CycleState) -> list[str]:
        """The plugins that make sees_pods true."""
        return [name for name in self._seeing_names if name not in state.skipped]

    def refusing_plugins(self, state: CycleState) -> list[str]:
        """The plugins that may refuse a node for this template."""
        names = dict.fromkeys([*self._place, *(one.name for one in self.capacities)])
        return [name for name in names if name not in state.skipped]

    def is_local(self, state: CycleState) -> bool:
        """Whether placing a pod changes Filters' answers for that node alone: only it is recomputed."""
        return all(one.name in state.skipped for one in self.seeing) and all(
            one.is_local or one.name in state.skipped for one in self.per_node
        )

    def capacity(
        self,
        state: CycleState,
        template: PodTemplate,
        view: ClusterView,
        *,
        ceiling: IntArray | None = None,
        looks: bool = True,
    ) -> IntArray:
        """How many more pods of this template each node takes, infeasible nodes 0. Shape: int64[n_rows].

        Read-only: the cached array is returned, and only changed rows are recomputed. If sees_pods, it counts
        by resources alone, on the nodes where one pod may go now. ceiling: of the same view, if known.
        Without `looks`, plugins that look at nodes one by one are not called.
        """
        room = self.static_capacity(state, template, view) if ceiling is None else ceiling
        open_to = self.open_to(state, template, view)
        if open_to is not None:
            room = np.where(open_to, room, 0)
        if looks and self.per_node:
            rows = np.flatnonzero(room)
            lets = self.allowed_one_by_one(state, template, view, rows)
            if not lets.all():
                room = room.copy()
                room[rows[~lets]] = 0
        return room

    def open_to(self, state: CycleState, template: PodTemplate, view: ClusterView) -> BoolArray | None:
        """bool[n_rows]: where Filters that see pods allow one pod now; None: everywhere. A fresh array."""
        mask: BoolArray | None = None
        if state.skipped.issuperset(self._names_of_seeing):
            return None
        for plugin in self.seeing:
            if plugin.name not in state.skipped:
                own = self._mask(plugin, state, template, view)
                if own is not None:
                    mask = own if mask is None else mask & own
        return mask

    def has_node_plugins(self, state: CycleState) -> bool:
        """Whether a plugin that looks at nodes one by one takes part."""
        return any(plugin.name not in state.skipped for plugin in self.per_node)

    def allowed_one_by_one(
        self, state: CycleState, template: PodTemplate, view: ClusterView, rows: IntArray
    ) -> BoolArray:
        """bool[len(rows)]: where the plugins that look at nodes one by one allow one pod.

        `rows`: those that all other Filters allow.
        """
        lets = np.ones(len(rows), dtype=np.bool_)
        for plugin in self.per_node:
            if plugin.name not in state.skipped and len(rows):
                own = self._ask(plugin.name, "Filter", plugin.allowed, state, template, view, rows)
                lets[lets] = own
                rows = rows[own]
        return lets

    def static_capacity(self, state: CycleState, template: PodTemplate, view: ClusterView) -> IntArray:
        """Capacity without the Filters that see pods: it cannot grow in this cycle, whatever is placed."""
        room = self.room(state, template, view)
        if state.subset is not None:
            room = np.where(state.subset, room, 0)
        for plugin in self.by_cycle:
            if plugin.name not in state.skipped:
                own = self._mask(plugin, state, template, view)
                if own is not None:
                    room = np.where(own, room, 0)
        return room

    def at_most(
        self,
        state: CycleState,
        template: PodTemplate,
        view: ClusterView,
        others: Sequence[PodTemplate],
        n: int,
        ceiling: IntArray | None = None,
    ) -> int:
        """Upper bound of how many of `n` members can still be placed, whichever `others` are placed too.
        ceiling: of the same view, if known."""
        room = np.minimum(self.static_capacity(state, template, view) if ceiling is None else ceiling, n)
        room.flags.writeable = False
        most = min(int(np.add.reduce(room)), n)
        for plugin in self._bounding:
            if most and plugin.name not in state.skipped:
                asked = (state, template, view, room, others)
                most = min(most, self._ask(plugin.name, "Filter", converted, plugin.at_most, int, *asked))
        return most

    def topology_keys(
        self, state: CycleState, template: PodTemplate, view: ClusterView
    ) -> Sequence[str] | None:
        """The labels by which nodes differ for Filters that see pods; None: one Filter declares none."""
        found: list[str] = []
        for plugin in self._telling_apart:
            if plugin.name in state.skipped:
                continue
            own = None
            if serves(plugin, SupportsTopologyKeys):
                asked = (state, template, view)
                own = self._ask(plugin.name, "Filter", converted, plugin.topology_keys, _keys, *asked)
            if own is None:
                return None
            found += own
        return found

    def static_capacity_on(self, state: CycleState, template: PodTemplate, view: Trial, row: int) -> int:
        """Returns the ceiling of one node on which the Trial has just placed such a pod."""
        if state.subset is not None and not state.subset[row]:
            return 0
        mask = self.feasible(state, template, view)
        return self._ask_capacity_on(state, template, view, mask, row)

    def capacity_on(self, state: CycleState, template: PodTemplate, view: Trial, row: int) -> int:
        """Returns the capacity of one node on which the Trial has just placed such a pod, if is_local."""
        n = self.static_capacity_on(state, template, view, row)
        return n if n and self.allowed_on(state, template, view, row) else 0

    def allowed_on(self, state: CycleState, template: PodTemplate, view: Trial, row: int) -> bool:
        """Does as `lets`, for one node."""
        return all(
            self._ask(plugin.name, "Filter", plugin.allows, state, template, view, row)
            for plugin in self.per_node
            if plugin.name not in state.skipped
        )

    def _mask(
        self, plugin: FilterPlugin, state: CycleState, template: PodTemplate, view: ClusterView
    ) -> BoolArray | None:
        own = self._ask(plugin.name, "Filter", plugin.filter, state, template, view)
        if own is not None:
            check_shape(plugin.name, "Filter", own, (view.n_rows,), "b")
        return own

    def room(self, state: CycleState, template: PodTemplate, view: ClusterView) -> IntArray:
        """Capacity by fixed properties and free resources: it cannot grow while a gang is placed."""
        mask = self.feasible(state, template, view)
        kept = self._capacities.get(template.serial)
        mark = view.journal_end
        changed: Collection[int] | None = None
        if kept is not None and kept.mask is mask:
            changed = () if kept.mark == mark else view.rows_since(kept.mark)
        touched = view.touched if isinstance(view, Trial) else None
        base = view.base() if touched else view
        if kept is None or changed is None or len(changed) > max(len(mask) // 4, _FEW_ROWS):
            kept = _Kept(mask, self._ask_capacity(state, template, base, mask, EVERYWHERE), mark)
            if len(self._capacities) > n_kept(view.n_rows):
                self._capacities.clear()
            self._capacities[template.serial] = kept
        elif changed:
            self._ask_again(kept.values, state, template, base, mask, changed)
            kept.mark = mark
        if touched:
            mine = kept.values.copy()
            self._ask_again(mine, state, template, view, mask, touched)
            return mine
        return kept.values

    def _ask_again(
        self,
        values: IntArray,
        state: CycleState,
        template: PodTemplate,
        view: ClusterView,
        mask: BoolArray,
        changed: Collection[int],
    ) -> None:
        """Recomputes the capacities of a few rows: after every gang, those where its members are."""
        if len(changed) <= _FEW_ROWS:
            for row in changed:
                values[row] = self._ask_capacity_on(state, template, view, mask, row)
        else:
            rows = np.array(sorted(changed), dtype=np.int64)
            values[rows] = self._ask_capacity(state, template, view, mask, rows)

    def reaching(self, plugin: str, state: CycleState, template: PodTemplate, view: ClusterView) -> BoolArray:
        """Where all Filters but this plugin's allow one pod, those that look at nodes one by one left out:
        bool[n_rows]."""
        mask = self.feasible(state, template, view)
        if state.subset is not None:
            mask = mask & state.subset
        for one in (*self.by_cycle, *self.seeing):
            if one.name != plugin and one.name not in state.skipped:
                own = self._mask(one, state, template, view)
                mask = mask if own is None else mask & own
        for counting in self.capacities:
            if counting.name != plugin and counting.name not in state.unconcerned:
                n = self._ask(counting.name, "Filter", counting.capacity, state, template, view, EVERYWHERE)
                mask = mask if n is None else mask & (n > 0)
        return mask

    def is_cached(self, template: PodTemplate, capacity: IntArray) -> bool:
        """Whether `capacity` is the cached array itself: the capacity of the cache's own nodes."""
        kept = self._capacities.get(template.serial)
        return kept is not None and kept.values is capacity

    def _ask_capacity(
        self, state: CycleState, template: PodTemplate, view: ClusterView, mask: BoolArray, rows: Rows
    ) -> IntArray:
        feasible = mask[rows]
        total: IntArray | None = None
        for plugin in self.capacities:
            if plugin.name in state.unconcerned:
                continue
            own = self._ask(plugin.name, "Filter", plugin.capacity, state, template, view, rows)
            if own is not None:
                check_shape(plugin.name, "Filter", own, feasible.shape, "iu")
                total = own if total is None else np.minimum(total, own)
        if total is None:
            total = np.full(feasible.shape, NO_LIMIT, dtype=np.int64)
        return np.where(feasible, total, 0)

    def _ask_capacity_on(
        self, state: CycleState, template: PodTemplate, view: ClusterView, mask: BoolArray, row: int
    ) -> int:
        """Does as _ask_capacity, for one row."""
        if not mask.item(row):
            return 0
        least = NO_LIMIT
        for plugin, count_on in self._counts_on:
            if plugin.name not in state.unconcerned:
                own = self._ask(plugin.name, "Filter", count_on, state, template, view, row)
                if own is not None:
                    check_count(plugin.name, "Filter", own)
                    least = min(least, own)
        return least

    def reasons(
        self, state: CycleState, template: PodTemplate, view: ClusterView
    ) -> list[tuple[str, Why, BoolArray]]:
        """Why nodes are excluded: (plugin, reason, rows), each plugin only for the rows that reached it."""
        left = view.live.copy()
        found: list[tuple[str, Why, BoolArray]] = []
        for name, narrowed in state.subset_reasons:
            mine = left & ~narrowed.mask
            if mine.any():
                found.append((name, narrowed.reason, mine))
                left &= narrowed.mask
        staged: list[FilterPlugin | CapacityPlugin]
        staged = [one for one in self.capacities if one.name not in state.unconcerned]
        others = [one for one in (*self.by_cycle, *self.seeing) if one.name not in state.skipped]
        staged += sorted(others, key=lambda one: self._place[one.name])
        fixed = self._reasons_of_fixed(state, template, view)
        for name, reasons in chain(fixed, self._ask_reasons(staged, state, template, view)):
            out: BoolArray | None = None
            for reason, rows in reasons:
                mine = rows & left
                if np.count_nonzero(mine):
                    found.append((name, reason, mine))
                    out = mine if out is None else out | mine
            if out is not None:
                left &= ~out
                if not np.count_nonzero(left):  # nothing is left to exclude
                    return found
        for one in self.per_node:
            if one.name not in state.skipped and left.any():
                asked = np.flatnonzero(left)
                for reason, mine in self._ask(one.name, "Filter", one.reasons, state, template, view, asked):
                    found.append((one.name, reason, mine))
                    left &= ~mine
        return found

    def _reasons_of_fixed(self, state: CycleState, template: PodTemplate, view: ClusterView) -> list[_Said]:
        """The reasons by fixed properties of nodes, kept as long as the mask: a pod that does not fit is
        refused again and again, mostly by the same taints and labels."""
        mask = self.feasible(state, template, view)
        kept = self._fixed_reasons.get(template.serial)
        if kept is None or kept[0] is not mask:
            answers = self._ask_reasons(self.fixed, state, template, view)
            kept = (mask, [(name, reasons) for name, some in answers if (reasons := tuple(some))])
            if len(self._fixed_reasons) > n_kept(view.n_rows):
                self._fixed_reasons.clear()
            self._fixed_reasons[template.serial] = kept
        return kept[1]

    def _ask_reasons(
        self,
        plugins: Iterable[FilterPlugin | CapacityPlugin],
        state: CycleState,
        template: PodTemplate,
        view: ClusterView,
    ) -> Iterator[_Said]:
        """Yields each plugin's reasons, calling it on demand. Raises: PluginError."""
        for plugin in plugins:
            asked = (plugin.reasons, list, state, template, view)
            answers: list[Any] = self._ask(plugin.name, "Filter", converted, *asked)
            for one in answers:
                _check_reason(plugin.name, one, view.n_rows)
            yield plugin.name, answers


def _check_reason(plugin: str, one: object, n_rows: int) -> None:
    """Raises: PluginError."""
    if not isinstance(one, tuple | list) or len(one) != 2 or not isinstance(one[0], str | Because):
        raise PluginError(plugin, "Filter", f"reasons has {type(one).__name__}, expected (text, array)")
    check_shape(plugin, "Filter", one[1], (n_rows,), "b")


def _keys(answer: Any) -> list[str] | None:
    return None if answer is None else [str(key) for key in answer]


def _counting_on(
    plugin: CapacityPlugin,
) -> Callable[[CycleState, PodTemplate, ClusterView, int], int | None]:
    """Returns a function that asks the plugin about a single row."""
    if serves(plugin, SupportsCapacityOn):
        return plugin.capacity_on

    def count_on(state: CycleState, template: PodTemplate, view: ClusterView, row: int) -> int | None:
        own = plugin.capacity(state, template, view, np.array([row], dtype=np.int64))
        if own is not None:
            check_shape(plugin.name, "Filter", own, _ONE_ROW, "iu")
        return None if own is None else int(own.item())

    return count_on
