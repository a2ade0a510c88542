"""RowCache: answers about a template, each kept until its node changes.

The node table's journal lists the rows that changed since; plugins are called again only for these.
Called by core.framework.filters.per_node and core.framework.scores.scoring. Not here: capacities
(core.framework.filters.filtering), which hold under one mask and are recomputed at once, as a search for the
fullest node reads all of them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gangsched.core.cache.view.rows import RowQueries
from gangsched.core.types.arrays import BoolArray, FloatArray
from gangsched.core.types.templates.pod_template import PodTemplate

# Memory limit of each kind of per-template cache; beyond it the whole cache is dropped and rebuilt.
_MAX_BYTES = 32 * 2**20


def n_kept(n_rows: int) -> int:
    """Number of templates whose arrays are kept."""
    return max(8, _MAX_BYTES // (8 * max(n_rows, 1)))


class RowAnswers:
    """Answers for one template, up to `mark` of the journal: `values` holds them where `known`.

    Shapes: known bool[n_rows], values float64[n_rows].
    """

    __slots__ = ("known", "mark", "values")

    def __init__(self, n_rows: int, mark: int) -> None:
        self.known: BoolArray = np.zeros(n_rows, dtype=np.bool_)
        self.values: FloatArray = np.zeros(n_rows, dtype=np.float64)
        self.mark = mark


class RowCache:
    """RowAnswers by template, for `limit(n_rows)` templates; beyond it all are dropped."""

    def __init__(self, limit: Callable[[int], int]) -> None:
        self._limit = limit
        self._kept: dict[int, RowAnswers] = {}

    def answers(self, template: PodTemplate, view: RowQueries) -> RowAnswers:
        """Returns the answers that still hold for the cache's own state; a Trial's changes are not
        considered."""
        mark, n_rows = view.journal_end, view.n_rows
        kept = self._kept.get(template.serial)
        if kept is None or len(kept.known) != n_rows:
            return self._begin(template, n_rows, mark)
        if kept.mark != mark:
            changed = view.changed_since(kept.mark)
            if changed is None:
                return self._begin(template, n_rows, mark)
            kept.known[changed] = False
            kept.mark = mark
        return kept

    def _begin(self, template: PodTemplate, n_rows: int, mark: int) -> RowAnswers:
        if len(self._kept) >= self._limit(n_rows):
            self._kept.clear()
        answers = self._kept[template.serial] = RowAnswers(n_rows, mark)
        return answers
