"""RowQueries: which nodes there are, in which row each is, and which rows have changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np

from gangsched.core.cache.nodes.table import NodeTable
from gangsched.core.types.arrays import BoolArray, IntArray

_ArrayT = TypeVar("_ArrayT", bound=np.ndarray[Any, Any])


def shown(array: _ArrayT) -> _ArrayT:
    """Makes the array read-only: these are the cache's own arrays, and plugins are foreign code."""
    array.setflags(write=False)  # faster than the attribute
    return array


class RowQueries:
    """Every node has a row in all arrays. Rows without a node have live False and no room."""

    __slots__ = ()
    _nodes: NodeTable

    @property
    def n_rows(self) -> int:
        return self._nodes.n_rows

    @property
    def n_nodes(self) -> int:
        """The number of nodes."""
        return self._nodes.n_live

    @property
    def live(self) -> BoolArray:
        return shown(self._nodes.live[: self._nodes.n_rows])

    def name(self, row: int) -> str:
        return self._nodes.names[row]

    def row_of(self, name: str) -> int | None:
        return self._nodes.row_of.get(name)

    def has_all(self, names: Iterable[str]) -> bool:
        """Whether there are nodes of all these names."""
        return self._nodes.row_of.keys() >= set(names)

    @property
    def static_revision(self) -> int:
        """Changes whenever a node appears, goes, or changes labels, taints or spec.unschedulable."""
        return self._nodes.static_revision

    @property
    def journal_end(self) -> int:
        """Changes with every change of any node row of the cache."""
        return self._nodes.journal_end

    def changed_since(self, mark: int) -> IntArray | None:
        """Rows of the cache that changed since journal_end was `mark`; None: too long ago to know."""
        return self._nodes.changed_since(mark)

    def rows_since(self, mark: int) -> set[int] | None:
        """As changed_since, as a set: for followers that look at few rows, one by one."""
        return self._nodes.rows_since(mark)
