"""FilledScores: scores of one node with 0, 1, 2, ... more pods of a template, by plugins that score by row.

Most see a FilledNode and nothing else, so their scores are kept for all nodes that look the same. Called by
core.framework.scores.scoring.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from gangsched.core.cache.trial import ClusterView
from gangsched.core.cache.view.room import RoomQueries
from gangsched.core.framework.interface import CycleState, FilledNode, FloatArray, IntArray, ScorePlugin
from gangsched.core.framework.plugin_calls import CallPlugin, check_range, check_shape
from gangsched.core.framework.supports import (
    SupportsIgnoresPlaced,
    SupportsScoreFilled,
    SupportsScoreFilledAt,
    serves,
)
from gangsched.core.types.templates.pod_template import PodTemplate

# Sums of pods up to here are far from overflowing.
_MAX_AMOUNT = 2**60
_MAX_KEPT, _MAX_KEPT_PODS = 4096, 64


class FilledScores:
    """Scores of a node as it fills, for plugins that have score_filled, score_filled_at or ignores_placed."""

    def __init__(self, plugins: Iterable[ScorePlugin], ask: CallPlugin) -> None:
        plugins = tuple(plugins)
        self._ask = ask
        self._of = {p.name: p.score_filled for p in plugins if serves(p, SupportsScoreFilled)}
        self._at = {p.name: p.score_filled_at for p in plugins if serves(p, SupportsScoreFilledAt)}
        self._ignoring = {p.name for p in plugins if serves(p, SupportsIgnoresPlaced) and p.ignores_placed}
        self._telling = self._of.keys() | self._at.keys() | self._ignoring
        self._kept: dict[tuple[int, int, bytes, bytes, bytes], list[FloatArray | None]] = {}

    def score(
        self,
        plugins: Sequence[tuple[ScorePlugin, float]],
        state: CycleState,
        template: PodTemplate,
        view: ClusterView,
        row: int,
        n: int,
    ) -> FloatArray | None:
        """float64[n]: the weighted sum for a node as it is, and with 1 to n - 1 more pods; None: unknown."""
        if not all(one.name in self._telling for one, _ in plugins):
            return None
        found = self._of_filled([one for one, _ in plugins], template, view, row, n)
        if found is None:
            return None
        total, rows = np.zeros(n), np.array([row])
        for (plugin, weight), own in zip(plugins, found, strict=True):
            if plugin.name in self._ignoring:
                own = self._ask(plugin.name, "Score", plugin.score, state, template, view, rows)
                _check(plugin, own, 1)
            elif (score_at := self._at.get(plugin.name)) is not None:
                own = self._ask(plugin.name, "Score", score_at, state, template, view, row, n)
                _check(plugin, own, n)
            if own is not None:
                total += own * weight
        return total

    def _of_filled(
        self, plugins: Sequence[ScorePlugin], template: PodTemplate, view: RoomQueries, row: int, n: int
    ) -> list[FloatArray | None] | None:
        """Returns each plugin's score_filled result."""
        allocatable, free = view.room_on(row)
        padding = view.padding_at(np.array([row]))
        own = b"" if padding is None else padding.tobytes()
        seen = (template.serial, n, allocatable.tobytes(), free.tobytes(), own)
        known = self._kept.get(seen)
        if known is not None and len(known) == len(plugins):
            return known
        node = _filled(template, allocatable, free, padding, n)
        if node is None:
            return None
        found = [self._ask_one(plugin, template, node, n) for plugin in plugins]
        if n <= _MAX_KEPT_PODS:
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            self._kept[seen] = found
        return found

    def _ask_one(
        self, plugin: ScorePlugin, template: PodTemplate, node: FilledNode, n: int
    ) -> FloatArray | None:
        score_filled = self._of.get(plugin.name)
        if score_filled is None:
            return None
        own: FloatArray | None = self._ask(plugin.name, "Score", score_filled, template, node)
        _check(plugin, own, n)
        return own


def _check(plugin: ScorePlugin, own: FloatArray | None, n: int) -> None:
    if own is not None:
        check_shape(plugin.name, "Score", own, (n,), "f")
        check_range(plugin.name, own)


def _filled(
    template: PodTemplate, allocatable: IntArray, free: IntArray, padding: IntArray | None, n: int
) -> FilledNode | None:
    """Returns None if amounts are too large for this."""
    largest = max(template.amounts, default=0)
    if largest > _MAX_AMOUNT // n or np.abs(free).max(initial=0) > _MAX_AMOUNT:
        return None
    steps = np.arange(n)
    each = np.zeros_like(allocatable)
    each[template.column_array] = template.amount_array
    if template.padding is not None:
        more = np.multiply.outer(np.array(template.padding, dtype=np.int64), steps)
        padding = more if padding is None else padding + more
    elif padding is not None:
        padding = padding.repeat(n, axis=1)
    return FilledNode(allocatable, free - each * steps, padding)
