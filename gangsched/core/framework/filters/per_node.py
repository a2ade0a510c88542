"""Adapts plugins that look at one node at a time to all nodes: NodeFilter and NodeScore.

A Python call for each of 5,000 nodes makes such plugins slow, so calls with a known answer are skipped. If
the plugin has no PreFilter, an answer holds for its template and node until the node or its pods change (the
cache's journal has the changes); otherwise it holds for the cycle. On a Trial only the nodes that it has
touched are called for again. Overhead is paid once for all nodes: one guard around the loop, which finds out
afterwards at which node the plugin failed.

A sampled plugin (extension.budget) has `over_nodes(point, loop, *args)`, which runs such a loop. Made and
called by core.framework.profile.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import length_hint
from typing import Any

import numpy as np
import numpy.typing as npt

from gangsched.core.cache.node_info import NodeInfo
from gangsched.core.cache.trial import ClusterView, Trial
from gangsched.core.cache.view.rows import RowQueries
from gangsched.core.framework.filters.row_cache import RowAnswers, RowCache
from gangsched.core.framework.interface import (
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
from gangsched.core.framework.plugin_calls import PluginError, checked_status
from gangsched.core.framework.supports import (
    RunsOverNodes,
    SupportsIsStated,
    SupportsNormalize,
    SupportsSeesPods,
    serves,
)
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.errors import InvariantError
from gangsched.model.objects import Pod
from gangsched.model.text.printable import in_words

_ANSWERS = frozenset((Code.SUCCESS, Code.UNSCHEDULABLE, Code.UNRESOLVABLE, Code.PENDING))
_MAX_KEPT = 200


def sign_metadata(pod: Pod) -> Hashable:
    """Returns what a plugin without `sign` may read: labels, annotations and owners."""
    meta = pod.metadata
    return (
        tuple(sorted((meta.labels or {}).items())),
        tuple(sorted((meta.annotations or {}).items())),
        tuple(owner.uid for owner in meta.owner_references or ()),
    )


class NodeInfos:
    """A NodeInfo for each row of the cache, rebuilt for changed rows."""

    def __init__(self) -> None:
        self._mark = -1
        self._infos: npt.NDArray[np.object_] = np.empty(0, dtype=np.object_)

    def at(self, view: ClusterView, rows: IntArray) -> list[NodeInfo]:
        """Returns those of `rows`, which must be nodes, in the cache's state, without a Trial's
        placements."""
        if self._mark != view.journal_end or len(self._infos) != view.n_rows:
            self._refresh(view.base() if isinstance(view, Trial) else view)
        found: list[NodeInfo] = self._infos[rows].tolist()
        return found

    def _refresh(self, view: ClusterView) -> None:
        before, changed = self._infos, view.changed_since(self._mark)
        if changed is None or len(before) > view.n_rows:
            before, changed = before[:0], np.arange(view.n_rows)
        self._infos = np.empty(view.n_rows, dtype=np.object_)
        self._infos[: len(before)] = before
        for row in changed.tolist():
            self._infos[row] = _info(view, row)
        self._mark = view.journal_end


def _info(view: ClusterView, row: int) -> NodeInfo | None:
    node = view.node(row)
    return None if node is None else NodeInfo(view, row, node)


def _infos_on(view: ClusterView, rows: IntArray) -> list[NodeInfo]:
    """Returns NodeInfos in the state of this view."""
    return [info for row in rows.tolist() if (info := _info(view, row)) is not None]


class _PerNode:
    """Tracks which rows have known answers, by template, and calls the plugin for the rest."""

    def __init__(
        self, plugin: Any, point: str, ask: Callable[..., Any], infos: NodeInfos, *, is_observed: bool
    ) -> None:
        self.name: str = plugin.name
        self._point = point
        self._ask = ask
        self._run = plugin.over_nodes if serves(plugin, RunsOverNodes) else None
        self._infos = infos
        self._is_observed = is_observed
        self._follows = serves(plugin, FollowingPlugin)
        self._kept = RowCache(lambda _: _MAX_KEPT)

    def _answers(self, state: CycleState, template: PodTemplate, view: RowQueries) -> RowAnswers:
        mark, n_rows = view.journal_end, view.n_rows
        if self._follows:
            return RowAnswers(n_rows, mark)
        if self._is_observed:
            key = (_PerNode, self.name)
            kept: RowAnswers | None = state.data.get(key)
            if kept is None or kept.mark != mark:
                kept = state.data[key] = RowAnswers(n_rows, mark)
            return kept
        return self._kept.answers(template, view)

    def _said(self, state: CycleState, pod: Pod, infos: Sequence[NodeInfo]) -> list[Any]:
        """Returns the plugin's answer for each node. Raises: PluginError, which names the node."""
        left = iter(infos)
        try:
            if self._run is None:
                return _each(self._ask, state, pod, left)
            return self._run(self._point, _each, self._ask, state, pod, left)
        except (PluginError, InvariantError):
            raise
        except Exception as error:
            at = len(infos) - length_hint(left) - 1
            raise self._wrong(in_words(error), infos[at]) from error

    def _wrong(self, problem: str, info: NodeInfo) -> PluginError:
        return PluginError(self.name, self._point, f"{problem}, about node {info.name}")


def _each(
    ask: Callable[[CycleState, Pod, NodeInfo], Any], state: CycleState, pod: Pod, infos: Iterable[NodeInfo]
) -> list[Any]:
    return [ask(state, pod, info) for info in infos]


class PerNodeFilter(_PerNode):
    """A NodeFilterPlugin over all nodes that are still feasible."""

    def __init__(self, plugin: NodeFilterPlugin, infos: NodeInfos, *, is_observed: bool) -> None:
        super().__init__(plugin, "Filter", plugin.filter_node, infos, is_observed=is_observed)
        self.sees_pods: bool = self._follows or not serves(plugin, SupportsSeesPods) or plugin.sees_pods

    @property
    def is_local(self) -> bool:
        """Whether placing a pod on one node changes nothing for other nodes."""
        return not self._follows

    def allowed(
        self, state: CycleState, template: PodTemplate, view: ClusterView, rows: IntArray
    ) -> BoolArray:
        """bool[len(rows)]: the feasible `rows` that the plugin allows for the template."""
        answers = self._answers(state, template, view)
        fresh = rows[~answers.known[rows]]
        fresh = fresh[~self._is_touched(view, fresh)] if len(fresh) else fresh
        if len(fresh):
            answers.values[fresh] = self._verdicts(state, template.pod, self._infos.at(view, fresh))
            answers.known[fresh] = True
        allowed: BoolArray = answers.values[rows] > 0
        if isinstance(view, Trial) and self.sees_pods and view.touched:
            at = np.flatnonzero(self._is_touched(view, rows))
            if len(at):
                allowed[at] = self._verdicts(state, template.pod, _infos_on(view, rows[at]))
        return allowed

    def allows(self, state: CycleState, template: PodTemplate, view: Trial, row: int) -> bool:
        """Does as `allowed`, for one row."""
        if not self.sees_pods or row not in view.touched:
            return bool(self.allowed(state, template, view, np.array([row]))[0])
        info = _info(view, row)
        return info is not None and bool(self._verdicts(state, template.pod, [info])[0])

    def _is_touched(self, view: ClusterView, rows: IntArray) -> BoolArray:
        if not isinstance(view, Trial) or not self.sees_pods or not view.touched:
            return np.zeros(len(rows), dtype=np.bool_)
        return view.is_touched(rows)

    def _verdicts(self, state: CycleState, pod: Pod, infos: Sequence[NodeInfo]) -> BoolArray:
        answers = self._said(state, pod, infos)
        if answers.count(SUCCESS) == len(answers):
            return np.ones(len(answers), dtype=np.bool_)
        lets = (
            one is SUCCESS or self._checked(one, info).is_success
            for one, info in zip(answers, infos, strict=True)
        )
        return np.fromiter(lets, dtype=np.bool_, count=len(answers))

    def _checked(self, answer: Any, info: NodeInfo) -> Status:
        if type(answer) is Status and answer.code in _ANSWERS and type(answer.reason) is str:
            return answer
        try:
            return checked_status(self.name, self._point, answer, _ANSWERS)
        except PluginError as error:
            raise self._wrong(error.problem, info) from None

    def reasons(
        self, state: CycleState, template: PodTemplate, view: ClusterView, rows: IntArray
    ) -> Sequence[tuple[str, BoolArray]]:
        """Returns why not, for the nodes that reached this plugin. Shape of each: bool[n_rows]."""
        infos = _infos_on(view, rows)
        found: dict[str, BoolArray] = {}
        for answer, info in zip(self._said(state, template.pod, infos), infos, strict=True):
            status = self._checked(answer, info)
            if not status.is_success:
                found.setdefault(status.reason, np.zeros(view.n_rows, dtype=np.bool_))[info.row] = True
        return list(found.items())


class PerNodeScore(_PerNode):
    """A NodeScorePlugin over the feasible nodes."""

    def __init__(self, plugin: NodeScorePlugin, infos: NodeInfos, *, is_observed: bool) -> None:
        super().__init__(plugin, "Score", plugin.score_node, infos, is_observed=is_observed)
        if serves(plugin, SupportsNormalize):
            self.normalize = plugin.normalize
        if serves(plugin, SupportsIsStated):
            self.is_stated = plugin.is_stated

    def score(
        self, state: CycleState, template: PodTemplate, view: ClusterView, rows: IntArray
    ) -> FloatArray | None:
        answers = self._answers(state, template, view)
        fresh = rows[~answers.known[rows]]
        if len(fresh):
            answers.values[fresh] = self._numbers(state, template.pod, self._infos.at(view, fresh))
            answers.known[fresh] = True
        scores: FloatArray = answers.values[rows]
        if isinstance(view, Trial) and view.touched:
            at = np.flatnonzero(view.is_touched(rows))
            if len(at):
                scores[at] = self._numbers(state, template.pod, _infos_on(view, rows[at]))
        return scores

    def _numbers(self, state: CycleState, pod: Pod, infos: Sequence[NodeInfo]) -> FloatArray:
        answers = self._said(state, pod, infos)
        try:
            return np.fromiter(answers, dtype=np.float64, count=len(answers))
        except (TypeError, ValueError):
            at = next(i for i, one in enumerate(answers) if not isinstance(one, int | float))
            problem = f"answered {type(answers[at]).__name__}, expected a number"
            raise self._wrong(problem, infos[at]) from None
