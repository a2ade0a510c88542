"""Profile: one scheduler name's plugins, run in order, their answers merged.

Built by plugins.build_profiles, called by core.cycle, core.queue and core.scheduler. A plugin that raises
or answers with the wrong shape is named in a PluginError and costs its group this attempt, nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

import numpy as np

from gangsched.core.framework import (
    EVERYWHERE,
    MAX_SCORE,
    SUCCESS,
    BoolArray,
    CapacityPlugin,
    ClusterChange,
    CuringPlugin,
    CycleState,
    FilterPlugin,
    FloatArray,
    IntArray,
    PermitPlugin,
    Plugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    QueueSortPlugin,
    Rows,
    ScorePlugin,
    Status,
)
from gangsched.core.group import Group
from gangsched.core.snapshot import ClusterView, Trial
from gangsched.core.template import PodTemplate
from gangsched.errors import GangschedError
from gangsched.model.objects import Pod

T = TypeVar("T")
P = ParamSpec("P")
# What is kept per template may take this much of each kind; beyond it all is dropped and made anew.
_MAX_KEPT_BYTES = 32 * 2**20
NO_LIMIT = 2**62
# Asking for a few rows is cheaper than keeping scores of all up to date.
_FEW_ROWS = 16


class PluginError(GangschedError):
    """A plugin raised or answered nonsense."""

    def __init__(self, plugin: str, point: str, problem: str) -> None:
        self.plugin = plugin
        super().__init__(f"plugin {plugin} failed in {point}: {problem}")


class _Kept:
    """Capacities of one template, right up to `mark` of the journal, under one mask."""

    __slots__ = ("mark", "mask", "values")

    def __init__(self, mask: BoolArray, values: IntArray, mark: int) -> None:
        self.mask = mask
        self.values = values
        self.mark = mark


class _KeptScores:
    """Scores of one template by plugins that score by row, summed up, but for `stale` rows right up to
    `mark` of the journal."""

    __slots__ = ("mark", "stale", "values")

    def __init__(self, n_rows: int, mark: int) -> None:
        self.values: FloatArray = np.zeros(n_rows, dtype=np.float64)
        self.stale: BoolArray = np.ones(n_rows, dtype=np.bool_)
        self.mark = mark


class Profile:
    """The plugins of one schedulerName, by extension point, in the order of the configuration."""

    def __init__(
        self,
        scheduler_name: str,
        *,
        queue_sort: QueueSortPlugin,
        pre_enqueue: Sequence[PreEnqueuePlugin] = (),
        pre_filter: Sequence[PreFilterPlugin] = (),
        filters: Sequence[FilterPlugin] = (),
        capacities: Sequence[CapacityPlugin] = (),
        scores: Sequence[tuple[ScorePlugin, float]] = (),
        permits: Sequence[PermitPlugin] = (),
    ) -> None:
        self.scheduler_name = scheduler_name
        self.queue_sort = queue_sort
        self.pre_enqueue = tuple(pre_enqueue)
        self.pre_filter = tuple(pre_filter)
        self.filters = tuple(filters)
        self.capacities = tuple(capacities)
        self.scores = tuple(scores)
        self._by_row = tuple(one for one in scores if getattr(one[0], "score_by_row", False))
        self._not_by_row = tuple(one for one in scores if one not in self._by_row)
        self.permits = tuple(permits)
        everyone: list[Plugin] = [*pre_enqueue, *pre_filter, *filters, *capacities, *permits]
        everyone += [plugin for plugin, _ in scores]
        self._by_name: dict[str, Plugin] = {plugin.name: plugin for plugin in everyone}
        self._masks: dict[int, tuple[int, BoolArray]] = {}
        self._capacities: dict[int, _Kept] = {}
        self._scores: dict[int, _KeptScores] = {}

    def run_pre_enqueue(self, pod: Pod) -> Status:
        """The first "no" gates the pod."""
        for plugin in self.pre_enqueue:
            try:  # what _guarded does, without its call: this is asked for every pod
                status = plugin.pre_enqueue(pod)
            except GangschedError:
                raise
            except Exception as error:
                raise _blamed(plugin.name, "PreEnqueue", error) from error
            if status is not SUCCESS and not status.is_success:
                return status
        return SUCCESS

    def run_pre_filter(self, state: CycleState, template: PodTemplate, view: ClusterView) -> Status:
        for plugin in self.pre_filter:
            status = _guarded(plugin.name, "PreFilter", plugin.pre_filter, state, template, view)
            if not status.is_success:
                return Status(status.code, status.reason, status.plugin or plugin.name)
        return SUCCESS

    def feasible(self, state: CycleState, template: PodTemplate, view: ClusterView) -> BoolArray:
        """All Filter masks merged, kept per template until a node changes. Shape: bool[n_rows]."""
        found = self._masks.get(template.serial)
        if found is not None and found[0] == view.static_revision and len(found[1]) == view.n_rows:
            return found[1]
        mask = view.live.copy()
        for plugin in self.filters:
            own = _guarded(plugin.name, "Filter", plugin.filter, state, template, view)
            if own is not None:
                _check_shape(plugin.name, "Filter", own, mask.shape, "b")
                mask &= own
        if len(self._masks) > _n_kept(view.n_rows):
            self._masks.clear()
        self._masks[template.serial] = (view.static_revision, mask)
        return mask

    def admits(self, template: PodTemplate, view: ClusterView, row: int) -> bool:
        """Whether a node's own properties (not its room) still let the template in."""
        return bool(self.feasible(CycleState(), template, view)[row])

    def capacity(self, state: CycleState, template: PodTemplate, view: ClusterView) -> IntArray:
        """How many more pods of this template each node takes, infeasible nodes 0. Shape: int64[n_rows].

        Not to be written to: the cache's own answer is kept, and only rows that changed are asked again.
        """
        mask = self.feasible(state, template, view)
        kept = self._capacities.get(template.serial)
        mark = view.journal_end
        changed = view.changed_since(kept.mark) if kept is not None and kept.mask is mask else None
        if kept is None or changed is None or len(changed) * 4 > len(mask):
            base = view.base() if isinstance(view, Trial) else view
            kept = _Kept(mask, self._ask_capacity(state, template, base, mask, EVERYWHERE), mark)
            if len(self._capacities) > _n_kept(view.n_rows):
                self._capacities.clear()
            self._capacities[template.serial] = kept
        elif len(changed):
            base = view.base() if isinstance(view, Trial) else view
            kept.values[changed] = self._ask_capacity(state, template, base, mask, changed)
            kept.mark = mark
        if isinstance(view, Trial) and view.touched:
            mine = kept.values.copy()
            touched = np.fromiter(view.touched, dtype=np.int64)
            mine[touched] = self._ask_capacity(state, template, view, mask, touched)
            return mine
        return kept.values

    def _ask_capacity(
        self, state: CycleState, template: PodTemplate, view: ClusterView, mask: BoolArray, rows: Rows
    ) -> IntArray:
        feasible = mask[rows]
        total: IntArray | None = None
        for plugin in self.capacities:
            own = _guarded(plugin.name, "Filter", plugin.capacity, state, template, view, rows)
            if own is not None:
                _check_shape(plugin.name, "Filter", own, feasible.shape, "iu")
                total = own if total is None else np.minimum(total, own)
        if total is None:
            total = np.full(feasible.shape, NO_LIMIT, dtype=np.int64)
        return np.where(feasible, total, 0)

    def score(
        self, state: CycleState, template: PodTemplate, view: ClusterView, rows: IntArray
    ) -> FloatArray | None:
        """Weighted sum of all Score plugins for `rows`; None when none has anything to say.

        Rows that a Trial has placed on are scored as the cache has them: a gang's own opened nodes are
        chosen before scores are asked for.
        """
        if not self._by_row or len(rows) <= _FEW_ROWS:
            return self._ask_scores(self.scores, state, template, view, rows)
        kept = self._kept_scores(state, template, view, rows)
        others = self._ask_scores(self._not_by_row, state, template, view, rows)
        return kept if others is None else kept + others

    def _kept_scores(
        self, state: CycleState, template: PodTemplate, view: ClusterView, rows: IntArray
    ) -> FloatArray:
        kept = self._scores.get(template.serial)
        mark = view.journal_end
        changed = view.changed_since(kept.mark) if kept is not None else None
        if kept is None or changed is None or len(kept.values) != view.n_rows:
            if len(self._scores) > _n_kept(view.n_rows):
                self._scores.clear()
            kept = self._scores[template.serial] = _KeptScores(view.n_rows, mark)
        else:
            kept.stale[changed] = True
            kept.mark = mark
        stale = kept.stale[rows]
        if stale.any():
            # Rows that filled up since are not among those asked about, and are not scored for nothing.
            asked = rows[stale]
            base = view.base() if isinstance(view, Trial) else view
            values = self._ask_scores(self._by_row, state, template, base, asked)
            kept.values[asked] = 0.0 if values is None else values
            kept.stale[asked] = False
        return kept.values[rows]

    def _ask_scores(
        self,
        plugins: Iterable[tuple[ScorePlugin, float]],
        state: CycleState,
        template: PodTemplate,
        view: ClusterView,
        rows: IntArray,
    ) -> FloatArray | None:
        total: FloatArray | None = None
        for plugin, weight in plugins:
            own = self._ask_score(plugin, state, template, view, rows)
            if own is not None:
                total = own * weight if total is None else total + own * weight
        return total

    def _ask_score(
        self, plugin: ScorePlugin, state: CycleState, template: PodTemplate, view: ClusterView, rows: IntArray
    ) -> FloatArray | None:
        own = _guarded(plugin.name, "Score", plugin.score, state, template, view, rows)
        if own is not None:
            _check_shape(plugin.name, "Score", own, rows.shape, "f")
            if len(own) and not (own.min() >= 0.0 and own.max() <= MAX_SCORE):  # NaN fails both
                raise PluginError(plugin.name, "Score", f"a score is not within 0..{MAX_SCORE:.0f}")
        return own

    def reasons(
        self, state: CycleState, template: PodTemplate, view: ClusterView
    ) -> list[tuple[str, str, BoolArray]]:
        """Why nodes are out: (plugin, reason, rows), each plugin only for rows that came as far as it."""
        left = view.live.copy()
        found: list[tuple[str, str, BoolArray]] = []
        staged: list[FilterPlugin | CapacityPlugin] = [*self.filters, *self.capacities]
        for plugin in staged:
            said = _guarded(plugin.name, "Filter", plugin.reasons, state, template, view)
            out = np.zeros(view.n_rows, dtype=np.bool_)
            for reason, rows in said:
                mine = rows & left
                if mine.any():
                    found.append((plugin.name, reason, mine))
                    out |= mine
            left &= ~out
        return found

    def run_permit(self, group: Group, siblings: Mapping[str, Group]) -> Status:
        """The first "no" wins; else the first "wait", with the shortest timeout that a plugin gave."""
        waits: list[Status] = []
        for plugin in self.permits:
            status = _guarded(plugin.name, "Permit", plugin.permit, group, siblings)
            status = Status(status.code, status.reason, status.plugin or plugin.name, status.timeout_s)
            if status.code.name == "WAIT":
                waits.append(status)
            elif not status.is_success:
                return status
        if not waits:
            return SUCCESS
        timeouts = [status.timeout_s for status in waits if status.timeout_s is not None]
        return Status(
            waits[0].code,
            "; ".join(status.reason for status in waits),
            waits[0].plugin,
            min(timeouts) if timeouts else None,
        )

    def cures(
        self,
        change: ClusterChange,
        rejected_by: Iterable[tuple[str, PodTemplate | None]],
        view: ClusterView,
    ) -> bool:
        """Whether one of the plugins that said no may say yes after this change."""
        for name, template in rejected_by:
            plugin = self._by_name.get(name)
            if not isinstance(plugin, CuringPlugin):
                return True
            if change.what & plugin.cured_by and plugin.cures(change, template, view):
                return True
        return False


def _n_kept(n_rows: int) -> int:
    return max(8, _MAX_KEPT_BYTES // (8 * max(n_rows, 1)))


def _guarded(plugin: str, point: str, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    try:
        return call(*args, **kwargs)
    except GangschedError:
        raise
    except Exception as error:
        raise _blamed(plugin, point, error) from error


def _blamed(plugin: str, point: str, error: Exception) -> PluginError:
    return PluginError(plugin, point, f"{type(error).__name__}: {error}")


def _check_shape(plugin: str, point: str, own: Any, shape: tuple[int, ...], kinds: str) -> None:
    """`kinds` are NumPy's letters: b bool, i and u integers, f floats."""
    if getattr(own, "shape", None) != shape or own.dtype.kind not in kinds:
        got = f"{getattr(own, 'dtype', type(own).__name__)}{getattr(own, 'shape', '')}"
        raise PluginError(
            plugin, point, f"answered {got}, expected an array of kind {kinds!r} and shape {shape}"
        )
