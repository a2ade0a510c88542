"""NodeConditions: keeps new pods off nodes whose conditions report trouble.

For clusters in which nothing turns conditions into taints (normally the node lifecycle controller and the
admission plugin TaintNodesByCondition do). Elsewhere TaintToleration has the same effect, and pods can
tolerate it, so this plugin is off by default. Under memory pressure only BestEffort pods are rejected, since
eviction would begin with them. Source: kubernetes 1.11 `pkg/scheduler/algorithm/predicates/predicates.go`
(CheckNodeCondition, CheckNodeMemoryPressure, CheckNodeDiskPressure, CheckNodePIDPressure), and its messages
in `error.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from gangsched.core.cache.nodes.usage_trackers import NOTHING_NEW, UsageNews
from gangsched.core.cache.trial import ClusterView
from gangsched.core.cache.view.rows import RowQueries
from gangsched.core.framework.interface import (
    SKIP,
    SUCCESS,
    BoolArray,
    Change,
    ClusterChange,
    CycleState,
    Status,
)
from gangsched.core.types.group import PodInfo
from gangsched.core.types.templates.per_template import PerTemplate
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.errors import ParseError
from gangsched.model.objects import Node, PodSpec
from gangsched.model.resources import CPU, MEMORY, parse_quantities
from gangsched.model.stated.load import ReportedUsage

_MEMORY = "MemoryPressure"
# (condition, its healthy status, the reason for a node with another status), in kube-scheduler's old order.
_CONDITIONS = (
    ("Ready", "True", "node(s) were not ready"),
    ("NetworkUnavailable", "False", "node(s) had unavailable network"),
    (_MEMORY, "False", "node(s) had memory pressure"),
    ("DiskPressure", "False", "node(s) had disk pressure"),
    ("PIDPressure", "False", "node(s) had pid pressure"),
)
_BY_TYPE = {name: (k, well) for k, (name, well, _) in enumerate(_CONDITIONS)}


class ConditionBook:
    """Which nodes are in trouble, by row: bool[5, n]. A missing condition counts as healthy."""

    def __init__(self) -> None:
        self._unwell: BoolArray = np.zeros((len(_CONDITIONS), 0), dtype=np.bool_)
        self.n_unwell = 0

    def unwell(self, n_rows: int) -> BoolArray:
        """bool[5, n_rows], as in _CONDITIONS; read-only."""
        self._fit(n_rows)
        return self._unwell[:, :n_rows]

    def put_node(self, row: int, node: Node, now_s: float) -> UsageNews:
        self._fit(row + 1)
        now = np.zeros(len(_CONDITIONS), dtype=np.bool_)
        for condition in node.status.conditions or ():
            known = _BY_TYPE.get(condition.type)
            if known is not None:
                now[known[0]] = condition.status != known[1]
        before = self._unwell[:, row].copy()
        self._set(row, now)
        return UsageNews(is_news=bool((before & ~now).any()))

    def put_usage(self, row: int, usage: ReportedUsage, now_s: float) -> UsageNews:
        """Usage changes no condition."""
        return NOTHING_NEW

    def remove_node(self, row: int) -> None:
        self._fit(row + 1)
        self._set(row, np.zeros(len(_CONDITIONS), dtype=np.bool_))

    def enter(self, infos: Iterable[PodInfo], row: int, now_s: float) -> None:
        """Pods change no condition."""

    def leave(self, info: PodInfo, row: int, now_s: float) -> None:
        """Nor does their removal."""

    def advance(self, now_s: float) -> Iterable[int]:
        """Nor does time."""
        return ()

    def _set(self, row: int, now: BoolArray) -> None:
        self.n_unwell += int(now.any()) - int(self._unwell[:, row].any())
        self._unwell[:, row] = now

    def _fit(self, n_rows: int) -> None:
        missing = n_rows - self._unwell.shape[1]
        if missing > 0:
            extra = np.zeros((len(_CONDITIONS), max(missing, 64)), dtype=np.bool_)
            self._unwell = np.concatenate([self._unwell, extra], axis=1)


class NodeConditions:
    """Filter on the conditions of nodes."""

    name = "NodeConditions"
    cured_by = Change.NODE_ADDED | Change.NODE_REPORT

    def __init__(self) -> None:
        self.usage_tracker = ConditionBook()
        self._best_effort: PerTemplate[bool] = PerTemplate()

    def pre_filter(self, state: CycleState, template: PodTemplate, view: ClusterView) -> Status:
        """Skips when every node is healthy."""
        return SUCCESS if self.usage_tracker.n_unwell else SKIP

    def filter(self, state: CycleState, template: PodTemplate, view: RowQueries) -> BoolArray | None:
        out = np.zeros(view.n_rows, dtype=np.bool_)
        for _, rows in self.reasons(state, template, view):
            out |= rows
        return ~out

    def reasons(
        self, state: CycleState, template: PodTemplate, view: RowQueries
    ) -> Sequence[tuple[str, BoolArray]]:
        unwell = self.usage_tracker.unwell(view.n_rows)
        return [
            (reason, unwell[k])
            for k, (name, _, reason) in enumerate(_CONDITIONS)
            if name != _MEMORY or self._is_best_effort(template)
        ]

    def cures(self, change: ClusterChange, template: PodTemplate | None, view: RowQueries) -> bool:
        if template is None or change.row < 0:
            return True
        at = change.row
        return not any(rows[at] for _, rows in self.reasons(CycleState(), template, view))

    def _is_best_effort(self, template: PodTemplate) -> bool:
        answer = self._best_effort.get(template)
        if answer is None:
            answer = self._best_effort.put(template, is_best_effort(template.spec))
        return answer


def is_best_effort(spec: PodSpec) -> bool:
    """Whether no container, nor the pod as a whole, requests or limits cpu or memory.

    Source: kubernetes `pkg/apis/core/v1/helper/qos/qos.go`.
    """
    everyone = [one.resources for one in (*spec.containers, *(spec.init_containers or ()))]
    for resources in (*everyone, spec.resources):
        for listed in (resources.requests, resources.limits) if resources is not None else ():
            try:
                amounts = parse_quantities(listed)
            except ParseError:
                return False  # a pod with an invalid quantity is rejected elsewhere
            if amounts.get(CPU) or amounts.get(MEMORY):
                return False
    return True
