"""FilledNode: one node with 0, 1, 2, ... more pods of a template, for plugins that score by row."""

from __future__ import annotations

from dataclasses import dataclass

from gangsched.core.types.arrays import IntArray


@dataclass(frozen=True, slots=True)
class FilledNode:
    """A node with 0 to n - 1 more pods of a template, by resource column and number of pods.

    Shapes: allocatable int64[n_columns, 1]; free int64[n_columns, n]; padding, cpu and memory that scores
    count beyond requests (see ClusterView.padding_at), int64[2, n], None: none.
    """

    allocatable: IntArray
    free: IntArray
    padding: IntArray | None
