"""FilledScores: what plugins that score by row say of one node with more and more pods of a template on it.

They see a FilledNode and nothing else, so answers are kept for all nodes that look the same. Called by
core.framework.scoring.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gangsched.core.cache.trial import ClusterView
from gangsched.core.framework.interface import FilledNode, FloatArray, IntArray, ScorePlugin
from gangsched.core.framework.plugin_calls import CallPlugin, check_range, check_shape
from gangsched.core.types.pod_template import PodTemplate

# Sums of pods up to here are far from overflowing.
_MAX_AMOUNT = 2**60
_MAX_KEPT, _MAX_KEPT_PODS = 4096, 64


class FilledScores:
    """Scores of nodes as they are filled; what plugins without score_filled would say is unknown."""

    def __init__(self, ask: CallPlugin) -> None:
        self._ask = ask
        self._kept: dict[tuple[int, int, bytes, bytes, bytes], FloatArray] = {}

    def of(
        self,
        plugins: Sequence[tuple[ScorePlugin, float]],
        template: PodTemplate,
        view: ClusterView,
        row: int,
        n: int,
    ) -> FloatArray | None:
        """float64[n]: the weighted sum for a node as it is, and with 1 to n - 1 more pods; None: unknown."""
        allocatable, free = view.room_on(row)
        padding = view.padding_at(np.array([row]))
        own = b"" if padding is None else padding.tobytes()
        seen = (template.serial, n, allocatable.tobytes(), free.tobytes(), own)
        scores = self._kept.get(seen)
        if scores is None and (node := _filled(template, allocatable, free, padding, n)) is not None:
            scores = self._scores(plugins, template, node, n)
            if scores is not None and n <= _MAX_KEPT_PODS:
                if len(self._kept) >= _MAX_KEPT:
                    self._kept.clear()
                self._kept[seen] = scores
        return scores

    def _scores(
        self, plugins: Sequence[tuple[ScorePlugin, float]], template: PodTemplate, node: FilledNode, n: int
    ) -> FloatArray | None:
        total = np.zeros(n)
        for plugin, weight in plugins:
            score_filled = getattr(plugin, "score_filled", None)
            if score_filled is None:
                return None
            own = self._ask(plugin.name, "Score", score_filled, template, node)
            if own is not None:
                check_shape(plugin.name, "Score", own, (n,), "f")
                check_range(plugin.name, own)
                total += own * weight
        return total


def _filled(
    template: PodTemplate, allocatable: IntArray, free: IntArray, padding: IntArray | None, n: int
) -> FilledNode | None:
    """None: amounts are too large for this."""
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
