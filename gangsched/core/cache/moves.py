"""What a Trial has placed and removed, as arrays: thousands of changes are summed at once. Called by
core.cache.trial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gangsched.core.types.arrays import IntArray
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.model.text.quantity import MAX_VALUE


class Moves(NamedTuple):
    """For each change: the row, the index of its template, and the number of pods, negative if removed."""

    rows: IntArray
    kinds: IntArray
    counts: IntArray
    templates: list[PodTemplate]

    def subtract(self, free: IntArray, column: int, done: int) -> bool:
        """Subtracts the changes after the first `done` from a column. Returns False, with nothing done, if a
        sum could leave the range of quantities."""
        of_kind = [one.by_column.get(column, 0) for one in self.templates]
        rows, counts = self.rows[done:], self.counts[done:]
        amounts = np.array(of_kind, dtype=np.int64)[self.kinds[done:]]
        moved = (amounts.astype(np.float64) * np.abs(counts)).sum()
        if np.abs(free[rows].astype(np.float64)).max() + moved >= MAX_VALUE:
            return False
        np.subtract.at(free, rows, amounts * counts)
        return True


def moves_of(placed: Sequence[tuple[int, PodTemplate, int]]) -> Moves:
    """Makes Moves of these changes, (row, template, count) each."""
    templates = {template.serial: template for _, template, _ in placed}
    kind_of = {serial: i for i, serial in enumerate(templates)}
    return Moves(
        np.array([row for row, _, _ in placed], dtype=np.int64),
        np.array([kind_of[template.serial] for _, template, _ in placed], dtype=np.int64),
        np.array([count for _, _, count in placed], dtype=np.int64),
        [*templates.values()],
    )
