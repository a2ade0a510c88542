"""Scoring: PreScore, Score, NormalizeScore and weights of one profile, summed for the feasible nodes.

Scores of plugins that score by row are kept per template, and only changed rows are recomputed. If only the
best node is wanted, plugins that look at nodes one by one are called for no more nodes than needed to find
it. Made and called by core.framework.profile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec
import numpy as np

from gangsched.core.cache.trial import ClusterView, Trial
from gangsched.core.framework.filters.per_node import NodeInfos, PerNodeScore
from gangsched.core.framework.filters.row_cache import RowCache, n_kept
from gangsched.core.framework.interface import (
    MAX_SCORE,
    BoolArray,
    Code,
    CycleState,
    FloatArray,
    IntArray,
    NodeScorePlugin,
    PreScorePlugin,
    ScorePlugin,
)
from gangsched.core.framework.plugin_calls import (
    CallPlugin,
    PluginError,
    blamed,
    check_range,
    check_shape,
    checked_status,
    guarded,
)
from gangsched.core.framework.scores.filled_scores import FilledScores
from gangsched.core.framework.supports import (
    SupportsIsStated,
    SupportsNormalize,
    SupportsOnlyRepels,
    SupportsPreferredCapacity,
    SupportsScoreByRow,
    SupportsSpreads,
    SupportsStatesOfNodes,
    SupportsTellsByTemplate,
    serves,
)
from gangsched.core.types.templates.pod_template import PodTemplate

# For up to this many rows, computing is cheaper than keeping scores of all rows current.
_FEW_ROWS = 16
_MAX_REMEMBERED = 2000
# The first batch of nodes for plugins that look at them one by one, and its growth factor.
_FIRST_LOOK = 16
_WIDER = 4
_GO_OR_SKIP = frozenset((Code.SUCCESS, Code.SKIP))


class Query(msgspec.Struct, frozen=True, gc=False):
    """What plugins are asked about: the nodes of a view, for pods of one template. state: from its
    PreFilter."""

    state: CycleState
    template: PodTemplate
    view: ClusterView


class Scoring:
    """The Score plugins of one profile with their weights; `is_observed`: those that have a PreFilter."""

    def __init__(
        self,
        scores: Iterable[tuple[ScorePlugin | NodeScorePlugin, float]],
        pre_scores: Iterable[PreScorePlugin],
        *,
        is_observed: frozenset[str],
        infos: NodeInfos,
        ask: CallPlugin,
    ) -> None:
        self._ask = ask
        self.pre_scores = tuple(pre_scores)
        is_pre_scored = {plugin.name for plugin in self.pre_scores}
        is_observed |= is_pre_scored
        self.scores: tuple[tuple[ScorePlugin, float], ...] = tuple(
            (one, weight)
            if serves(one, ScorePlugin)
            else (PerNodeScore(one, infos, is_observed=one.name in is_observed), weight)
            for one, weight in scores
        )
        self._normalizers: dict[str, Callable[..., FloatArray]] = {
            plugin.name: plugin.normalize for plugin, _ in self.scores if serves(plugin, SupportsNormalize)
        }
        self._by_row = tuple(
            (one, weight)
            for one, weight in self.scores
            if serves(one, SupportsScoreByRow)
            and one.score_by_row
            and (
                one.name not in is_observed
                or (serves(one, SupportsTellsByTemplate) and one.tells_by_template)
            )
            and one.name not in is_pre_scored
            and one.name not in self._normalizers
        )
        self._not_by_row = tuple(one for one in self.scores if one not in self._by_row)
        self._one_by_one = tuple(
            one
            for one in self._not_by_row
            if isinstance(one[0], PerNodeScore) and one[0].name not in self._normalizers
        )
        self._at_once = tuple(one for one in self._not_by_row if one not in self._one_by_one)
        self.goes_by_row = bool(self._by_row) and not self.pre_scores and not self._one_by_one
        """Whether only plugins that score by row may have to be called; their scores are kept."""
        self._stating = tuple((one, weight) for one, weight in self.scores if serves(one, SupportsIsStated))
        plugins = [plugin for plugin, _ in self.scores]
        self._repelling = {p.name for p in plugins if serves(p, SupportsOnlyRepels) and p.only_repels}
        self._of_nodes = {p.name for p in plugins if serves(p, SupportsStatesOfNodes) and p.states_of_nodes}
        self._hoping = tuple(plugin for plugin in plugins if serves(plugin, SupportsPreferredCapacity))
        self._spreading = tuple(plugin for plugin in plugins if serves(plugin, SupportsSpreads))
        # The concerned plugins of _not_by_row, by the set of unconcerned ones: one entry per such set.
        self._others: dict[frozenset[str], tuple[tuple[ScorePlugin, float], ...]] = {}
        self._sums_by_row = RowCache(n_kept)
        self._spreads_alone: dict[int, bool] = {}
        self._filled = FilledScores([one for one, _ in self._by_row], ask)

    def has_stated(self, state: CycleState, template: PodTemplate, view: ClusterView) -> bool:
        """Whether the pod itself states a preference that a plugin scores by."""
        unconcerned = state.unconcerned
        for plugin, _ in self._stating:
            if plugin.name not in unconcerned:
                try:  # guarded() inlined: this is asked for every gang
                    if plugin.is_stated(template, view):
                        return True
                except PluginError:
                    raise
                except Exception as error:
                    raise blamed(plugin.name, "Score", error) from error
        return False

    def only_repelled(self, template: PodTemplate, view: ClusterView) -> bool:
        """Whether what the pod states can only lower a node's score, so that nodes it does not name are the
        best."""
        return all(plugin.name in self._repelling for plugin, _ in self._stated_by(template, view))

    def only_of_nodes(self, template: PodTemplate, view: ClusterView) -> frozenset[str]:
        """Returns the only plugin by which the pod states a preference, if there is one and its scores change
        only with the labels and taints of nodes; else empty.

        The plugin gives the same score to nodes that `stated` does not distinguish, and to any part of them.
        """
        stated = self._stated_by(template, view)
        if len(stated) != 1 or stated[0][0].name not in self._of_nodes:
            return frozenset()
        return frozenset((stated[0][0].name,))

    def _stated_by(self, template: PodTemplate, view: ClusterView) -> list[tuple[ScorePlugin, float]]:
        return [
            (plugin, weight)
            for plugin, weight in self._stating
            if guarded(plugin.name, "Score", plugin.is_stated, template, view)
        ]

    def stated(
        self, state: CycleState, template: PodTemplate, view: ClusterView, rows: IntArray
    ) -> FloatArray | None:
        """As score, by only the preferences that the pod states; None when they do not distinguish the
        rows."""
        rows.flags.writeable = False
        skipped = self._run_pre_score(state, template, view, rows) if self.pre_scores else frozenset()
        found = self._ask_scores(self._stated_by(template, view), state, template, view, rows, skipped)
        return None if found is None or not len(found) or found.min() == found.max() else found

    def preferred_room(
        self, state: CycleState, template: PodTemplate, view: ClusterView, room: IntArray, n_members: int
    ) -> IntArray:
        """Returns the part of `room` that gives n_members all that they hope for; `room` itself if that part
        is too little for all of them, or if they hope for nothing."""
        narrowed = room
        for plugin in self._hoping:
            if plugin.name not in state.unconcerned:
                own = self._ask(plugin.name, "Score", plugin.preferred_capacity, state, template, view)
                if own is not None:
                    check_shape(plugin.name, "Score", own, room.shape, "iu")
                    narrowed = np.minimum(narrowed, own)
        if narrowed is room or int(np.minimum(narrowed, n_members).sum()) < n_members:
            return room
        return narrowed

    def spreads(self, template: PodTemplate, members: Sequence[PodTemplate]) -> bool:
        """Whether a plugin wants the template's pods to be apart from other `members`."""
        if not self._spreading:
            return False
        alone = len(members) == 1 and members[0] is template
        if alone and template.serial in self._spreads_alone:
            return self._spreads_alone[template.serial]
        answer = any(
            self._ask(plugin.name, "Score", plugin.spreads, template, members) for plugin in self._spreading
        )
        if alone:
            if len(self._spreads_alone) >= _MAX_REMEMBERED:
                self._spreads_alone.clear()
            self._spreads_alone[template.serial] = answer
        return answer

    def score(
        self,
        state: CycleState,
        template: PodTemplate,
        view: ClusterView,
        rows: IntArray,
        at: IntArray | None = None,
    ) -> FloatArray | None:
        """Weighted sum of all Score plugins for `rows`, float64; None when none has an opinion.

        at: which of `rows` are wanted, by position; the others are input to scores that depend on all of
        them. PreScore runs first, each time: whether it skips may depend on the rows.
        """
        rows.flags.writeable = False
        if at is not None and len(at) < len(rows):
            sums = self._scores_at_once(state, template, view, rows, rows[at])
            if sums is not None:
                own = self._ask_scores(self._one_by_one, state, template, view, rows[at])
                return sums if own is None else sums + own
            scores = self.score(state, template, view, rows)
            return None if scores is None else scores[at]
        return self.sums(state, template, view, rows)[0]

    def sums(
        self,
        state: CycleState,
        template: PodTemplate,
        view: ClusterView,
        rows: IntArray,
        but: frozenset[str] = frozenset(),
    ) -> tuple[FloatArray | None, bool]:
        """As score of all `rows`, without the plugins in `but`; and whether each row's sum depends only on
        that row: then it stays valid while the row is unchanged and is_decided_by_rows holds for these rows.
        """
        rows.flags.writeable = False
        skipped = self._run_pre_score(state, template, view, rows) if self.pre_scores else frozenset()
        skipped |= but
        if not self._by_row or len(rows) <= _FEW_ROWS:
            return self._ask_scores(self.scores, state, template, view, rows, skipped), False
        kept = self._kept_scores(state, template, view, rows)
        others = self._ask_scores(self._not_by_row, state, template, view, rows, skipped)
        return (kept, self.goes_by_row) if others is None else (kept + others, False)

    def is_decided_by_rows(
        self,
        state: CycleState,
        template: PodTemplate,
        view: ClusterView,
        rows: IntArray,
        but: frozenset[str] = frozenset(),
    ) -> bool:
        """Whether only plugins that score by row, and those in `but`, have an opinion on the rows or any
        subset of them."""
        others = self._others.get(state.unconcerned)
        if others is None:
            others = tuple(one for one in self._not_by_row if one[0].name not in state.unconcerned)
            self._others[state.unconcerned] = others
        for plugin, _ in others:
            if plugin.name in but:
                continue
            own = self._ask_score(plugin, state, template, view, rows)
            if own is not None:
                return False
        return True

    def by_row(
        self, state: CycleState, template: PodTemplate, view: ClusterView, rows: IntArray
    ) -> FloatArray:
        """As score, by only the plugins that score by row."""
        return self._kept_scores(state, template, view, rows)

    def filled(
        self, state: CycleState, template: PodTemplate, view: ClusterView, row: int, n: int
    ) -> FloatArray | None:
        """As by_row of one node, float64[n]: as it is, and with 1 to n - 1 more of these pods; None: a plugin
        cannot tell."""
        unconcerned = state.unconcerned
        concerned = [one for one in self._by_row if one[0].name not in unconcerned]
        return self._filled.score(concerned, state, template, view, row, n)

    def best(
        self,
        state: CycleState,
        template: PodTemplate,
        view: ClusterView,
        rows: IntArray,
        lets: Callable[[IntArray], BoolArray] | None = None,
    ) -> int | None:
        """Returns the best of the ascending `rows` that `lets` allows; ties: the lowest row.

        lets: the Filters that look at nodes one by one, bool[len(rows)]; without it all rows are allowed.
        """
        if len(rows) > _FEW_ROWS and (lets is not None or self._one_by_one):
            sums = self._scores_at_once(state, template, view, rows, rows)
            if sums is not None:
                return self._best_first(state, template, view, rows, sums, lets)
        if lets is not None:
            rows = rows[lets(rows)]
        if len(rows) < 2:
            return int(rows[0]) if len(rows) else None
        scores = self.score(state, template, view, rows)
        return int(rows[0 if scores is None else scores.argmax()])

    def _scores_at_once(
        self,
        state: CycleState,
        template: PodTemplate,
        view: ClusterView,
        rows: IntArray,
        wanted: IntArray,
    ) -> FloatArray | None:
        """Returns sums of all but `_one_by_one` for the `wanted` rows; None if they may depend on which
        `rows` are queried, or on how few."""
        if self.pre_scores or len(rows) <= _FEW_ROWS:
            return None
        rows.flags.writeable = False
        # A plugin without an opinion on these rows has none on a subset either.
        if self._ask_scores(self._at_once, state, template, view, rows) is not None:
            return None
        return self._kept_scores(state, template, view, wanted) if self._by_row else np.zeros(len(wanted))

    def _best_first(
        self,
        state: CycleState,
        template: PodTemplate,
        view: ClusterView,
        rows: IntArray,
        sums: FloatArray,
        lets: Callable[[IntArray], BoolArray] | None,
    ) -> int | None:
        """Does as best: queries first the rows that lead by the other scores, until no other row can win.

        Sums are added in the order of `score`: rounding is the same, and is monotonic.
        """
        lift = 0.0
        for plugin, weight in self._one_by_one:
            if plugin.name not in state.unconcerned:
                lift += MAX_SCORE * weight
        ahead = np.argsort(-sums, kind="stable")
        best, best_at, n = -np.inf, -1, _FIRST_LOOK
        while len(ahead):
            some, ahead = ahead[:n], ahead[n:]
            if lets is not None:
                some = some[lets(rows[some])]
            if len(some):
                own = self._ask_scores(self._one_by_one, state, template, view, rows[some])
                totals = sums[some] if own is None else sums[some] + own
                most = totals.max()
                at = int(some[totals == most].min())
                if most > best or (most == best and at < best_at):
                    best, best_at = most, at
            if best_at >= 0:
                could_be = sums[ahead] + lift
                ahead = ahead[(could_be > best) | ((could_be == best) & (ahead < best_at))]
            n *= _WIDER
        return int(rows[best_at]) if best_at >= 0 else None

    def _run_pre_score(
        self, state: CycleState, template: PodTemplate, view: ClusterView, rows: IntArray
    ) -> frozenset[str]:
        """Returns the plugins that skip. A "no" here is the plugin's fault: all of these nodes are
        feasible."""
        skipped: frozenset[str] = frozenset()
        for plugin in self.pre_scores:
            answer = self._ask(plugin.name, "PreScore", plugin.pre_score, state, template, view, rows)
            if checked_status(plugin.name, "PreScore", answer, _GO_OR_SKIP).code is Code.SKIP:
                skipped |= {plugin.name}
        return skipped

    def _kept_scores(
        self, state: CycleState, template: PodTemplate, view: ClusterView, rows: IntArray
    ) -> FloatArray:
        """Sums of plugins that score by row, for the cache's rows."""
        kept = self._sums_by_row.answers(template, view)
        asked = rows[~kept.known[rows]]
        if len(asked):
            # Rows that have filled up since are not queried, so they are not rescored in vain.
            base = view.base() if isinstance(view, Trial) and view.touched else view
            values = self._ask_scores(self._by_row, state, template, base, asked)
            kept.values[asked] = 0.0 if values is None else values
            kept.known[asked] = True
        answer: FloatArray = kept.values[rows]
        if isinstance(view, Trial) and view.touched:
            at = np.flatnonzero(view.is_touched(rows))
            if len(at):
                own = self._ask_scores(self._by_row, state, template, view, rows[at])
                answer[at] = 0.0 if own is None else own
        return answer

    def _ask_scores(
        self,
        plugins: Iterable[tuple[ScorePlugin, float]],
        state: CycleState,
        template: PodTemplate,
        view: ClusterView,
        rows: IntArray,
        skipped: frozenset[str] = frozenset(),
    ) -> FloatArray | None:
        if not len(rows):  # say in the rack that the gang is in already: plugins are asked about nodes only
            return None
        total: FloatArray | None = None
        for plugin, weight in plugins:
            if plugin.name in skipped or plugin.name in state.unconcerned:
                continue
            own = self._ask_score(plugin, state, template, view, rows)
            if own is not None:
                total = own * weight if total is None else total + own * weight
        return total

    def _ask_score(
        self, plugin: ScorePlugin, state: CycleState, template: PodTemplate, view: ClusterView, rows: IntArray
    ) -> FloatArray | None:
        own = self._ask(plugin.name, "Score", plugin.score, state, template, view, rows)
        if own is None:
            return None
        check_shape(plugin.name, "Score", own, rows.shape, "f")
        if plugin.name in self._normalizers:
            normalize = self._normalizers[plugin.name]
            own = self._ask(plugin.name, "NormalizeScore", normalize, state, template, own)
            check_shape(plugin.name, "NormalizeScore", own, rows.shape, "f")
        check_range(plugin.name, own)
        return own
