"""Plugins that look at one node at a time, made to answer for all nodes: NodeFilter and NodeScore.

A Python call for each of 5,000 nodes is what makes such plugins slow, so a call that would say the same
again is not made: of a plugin that no PreFilter tells anything, an answer holds for its template and node
until the node or its pods change (the cache's journal says which); else it holds for the cycle. On a Trial
only the nodes that it has touched are asked again. Made and called by core.runtime.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, cast

import numpy as np

from gangsched.core.framework import (
    SUCCESS,
    BoolArray,
    Code,
    CycleState,
    FloatArray,
    FollowingPlugin,
    IntArray,
    NodeFilterPlugin,
    NodeScorePlugin,
    Status,
)
from gangsched.core.guard import PluginError, checked_status
from gangsched.core.node_info import NodeInfo
from gangsched.core.snapshot import ClusterView, Trial
from gangsched.core.template import PodTemplate
from gangsched.model.objects import Pod

_ANSWERS = frozenset((Code.SUCCESS, Code.UNSCHEDULABLE, Code.UNRESOLVABLE, Code.PENDING))
_MAX_KEPT = 200


def sign_metadata(pod: Pod) -> Hashable:
    """What a plugin that does not say what it reads may read: labels, annotations and owners."""
    meta = pod.metadata
    return (
        tuple(sorted((meta.labels or {}).items())),
        tuple(sorted((meta.annotations or {}).items())),
        tuple(owner.uid for owner in meta.owner_references or ()),
    )


class NodeInfos:
    """A NodeInfo for each row of the cache, made anew for rows that changed."""

    def __init__(self) -> None:
        self._mark = -1
        self._infos: list[NodeInfo | None] = []

    def of(self, view: ClusterView) -> list[NodeInfo | None]:
        """By row, None where there is no node; of the cache, without what a Trial has placed."""
        if self._mark == view.journal_end and len(self._infos) == view.n_rows:
            return self._infos
        changed = view.changed_since(self._mark) if self._infos else None
        base = view.base() if isinstance(view, Trial) else view
        if changed is None:
            self._infos = [_info(base, row) for row in range(view.n_rows)]
        else:
            self._infos += [None] * (view.n_rows - len(self._infos))
            for row in changed.tolist():
                self._infos[row] = _info(base, row)
        self._mark = view.journal_end
        return self._infos


def _info(view: ClusterView, row: int) -> NodeInfo | None:
    node = view.node(row)
    return None if node is None else NodeInfo(view, row, node)


class _Answers:
    """What one plugin says of one template, by row. Shapes: known bool[n_rows], values float64[n_rows]."""

    __slots__ = ("known", "mark", "values")

    def __init__(self, n_rows: int, mark: int) -> None:
        self.known: BoolArray = np.zeros(n_rows, dtype=np.bool_)
        self.values: FloatArray = np.zeros(n_rows, dtype=np.float64)
        self.mark = mark


class _PerNode:
    """Which rows of which template need not be asked again."""

    def __init__(self, name: str, infos: NodeInfos, *, is_told: bool, follows: bool) -> None:
        self.name = name
        self._infos = infos
        self._is_told = is_told
        self._follows = follows
        self._kept: dict[int, _Answers] = {}

    def _answers(self, state: CycleState, template: PodTemplate, view: ClusterView) -> _Answers:
        mark, n_rows = view.journal_end, view.n_rows
        if self._follows:
            return _Answers(n_rows, mark)
        if self._is_told:
            key = (_PerNode, self.name)
            kept = state.data.get(key)
            if kept is None or kept.mark != mark:
                kept = state.data[key] = _Answers(n_rows, mark)
            return kept
        kept = self._kept.get(template.serial)
        changed = view.changed_since(kept.mark) if kept is not None else None
        if kept is None or changed is None or len(kept.known) != n_rows:
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            kept = self._kept[template.serial] = _Answers(n_rows, mark)
        else:
            kept.known[changed] = False
            kept.mark = mark
        return kept

    def _shown(self, view: ClusterView, rows: Sequence[int]) -> list[NodeInfo]:
        infos = self._infos.of(view)
        # Feasible rows are nodes: no test for each of thousands.
        return cast("list[NodeInfo]", [infos[row] for row in rows])


class PerNodeFilter(_PerNode):
    """A NodeFilterPlugin over all nodes that are still feasible."""

    def __init__(self, plugin: NodeFilterPlugin, infos: NodeInfos, *, is_told: bool) -> None:
        follows = isinstance(plugin, FollowingPlugin)
        super().__init__(plugin.name, infos, is_told=is_told, follows=follows)
        self.sees_pods: bool = follows or getattr(plugin, "sees_pods", True)
        self._filter_node = plugin.filter_node

    @property
    def is_local(self) -> bool:
        """A pod that is placed on one node changes nothing for the others."""
        return not self._follows

    def allowed(
        self, state: CycleState, template: PodTemplate, view: ClusterView, rows: IntArray
    ) -> BoolArray:
        """bool[len(rows)]: which of the feasible `rows` the plugin lets the template onto."""
        answers = self._answers(state, template, view)
        fresh = rows[~answers.known[rows]]
        fresh = fresh[~self._is_touched(view, fresh)] if len(fresh) else fresh
        if len(fresh):
            self._ask(state, template.pod, fresh, self._shown(view, fresh.tolist()), answers.values)
            answers.known[fresh] = True
        allowed: BoolArray = answers.values[rows] > 0
        if isinstance(view, Trial) and self.sees_pods and view.touched:
            at = np.flatnonzero(self._is_touched(view, rows))
            if len(at):
                mine = np.zeros(view.n_rows)
                infos = [info for row in rows[at] if (info := _info(view, int(row))) is not None]
                self._ask(state, template.pod, rows[at], infos, mine)
                allowed[at] = mine[rows[at]] > 0
        return allowed

    def allows(self, state: CycleState, template: PodTemplate, view: Trial, row: int) -> bool:
        """One node, as it is on the Trial."""
        info = _info(view, row)
        if info is None:
            return False
        status = self._filter_node(state, template.pod, info)
        return status is SUCCESS or checked_status(self.name, "Filter", status, _ANSWERS).is_success

    def _is_touched(self, view: ClusterView, rows: IntArray) -> BoolArray:
        if not isinstance(view, Trial) or not self.sees_pods or not view.touched:
            return np.zeros(len(rows), dtype=np.bool_)
        if len(rows) == 1:
            return np.array([int(rows[0]) in view.touched])
        touched = np.zeros(view.n_rows, dtype=np.bool_)
        touched[list(view.touched)] = True
        found: BoolArray = touched[rows]
        return found

    def _ask(
        self, state: CycleState, pod: Pod, rows: IntArray, infos: Sequence[NodeInfo], values: FloatArray
    ) -> list[tuple[int, Status]]:
        """Writes 1 or 0 into `values` for each of the nodes; answers with (row, why not)."""
        filter_node = self._filter_node
        said = [filter_node(state, pod, info) for info in infos]
        refused = []
        for at, status in [(i, one) for i, one in enumerate(said) if one is not SUCCESS]:
            checked = checked_status(self.name, "Filter", status, _ANSWERS)
            if not checked.is_success:
                refused.append((infos[at].row, checked))
        values[rows] = 1.0
        values[[row for row, _ in refused]] = 0.0
        return refused

    def reasons(
        self, state: CycleState, template: PodTemplate, view: ClusterView, rows: IntArray
    ) -> Sequence[tuple[str, BoolArray]]:
        """Why not, of the nodes that came as far as this plugin. Shape of each: bool[n_rows]."""
        infos = [info for row in rows if (info := _info(view, int(row))) is not None]
        found: dict[str, BoolArray] = {}
        for row, status in self._ask(state, template.pod, rows, infos, np.zeros(view.n_rows)):
            found.setdefault(status.reason, np.zeros(view.n_rows, dtype=np.bool_))[row] = True
        return list(found.items())


class PerNodeScore(_PerNode):
    """A NodeScorePlugin over the feasible nodes."""

    def __init__(self, plugin: NodeScorePlugin, infos: NodeInfos, *, is_told: bool) -> None:
        super().__init__(plugin.name, infos, is_told=is_told, follows=isinstance(plugin, FollowingPlugin))
        self._score_node = plugin.score_node
        if hasattr(plugin, "normalize"):
            self.normalize = plugin.normalize

    def score(
        self, state: CycleState, template: PodTemplate, view: ClusterView, rows: IntArray
    ) -> FloatArray | None:
        answers = self._answers(state, template, view)
        fresh = rows[~answers.known[rows]]
        if len(fresh):
            answers.values[fresh] = self._ask(state, template.pod, self._shown(view, fresh.tolist()))
            answers.known[fresh] = True
        scores: FloatArray = answers.values[rows]
        if isinstance(view, Trial) and view.touched:
            at = np.flatnonzero(np.isin(rows, np.fromiter(view.touched, dtype=np.int64)))
            if len(at):
                infos = [info for row in rows[at] if (info := _info(view, int(row))) is not None]
                scores[at] = self._ask(state, template.pod, infos)
        return scores

    def _ask(self, state: CycleState, pod: Pod, infos: Sequence[NodeInfo]) -> FloatArray:
        score_node = self._score_node
        said: list[Any] = [score_node(state, pod, info) for info in infos]
        try:
            return np.array(said, dtype=np.float64)
        except (TypeError, ValueError):
            wrong = next(one for one in said if not isinstance(one, int | float))
            raise PluginError(
                self.name, "Score", f"answered {type(wrong).__name__}, expected a number"
            ) from None
