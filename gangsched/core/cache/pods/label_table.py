"""LabelTable: many sets of labels, so that a selector is compared with all of them in a few array operations.

A row is a namespace, or a class of pods (core.cache.pods.index). A label becomes a column of codes the first
time a selector looks at it, filled from the rows that have the label; the latest columns are kept.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from gangsched.core.types.arrays import BoolArray
from gangsched.model.selectors import Requirement, Selector

# Of 50,000 rows a column is 200 KB.
_MAX_COLUMNS = 64
_MISSING = -1


class _Column:
    """One label. Shape: codes int32[at least n_rows]. n_read: entries of its index read so far."""

    __slots__ = ("codes", "n_read", "values")

    def __init__(self, n_rows: int) -> None:
        self.codes: npt.NDArray[np.int32] = np.full(n_rows, _MISSING, dtype=np.int32)
        self.values: dict[str, int] = {}
        self.n_read = 0


class LabelTable:
    """Rows are added and never change."""

    __slots__ = ("_columns", "_having", "_labels")

    def __init__(self) -> None:
        self._labels: list[Mapping[str, str]] = []
        self._having: dict[str, list[int]] = {}
        """By label: the rows that have it."""
        self._columns: dict[str, _Column] = {}

    def __len__(self) -> int:
        return len(self._labels)

    def add(self, labels: Mapping[str, str]) -> int:
        """Adds a row; returns its number."""
        row = len(self._labels)
        self._labels.append(labels)
        for key in labels:
            rows = self._having.get(key)
            if rows is None:
                rows = self._having[key] = []
            rows.append(row)
        return row

    def matches(self, selector: Selector, first: int = 0) -> BoolArray:
        """bool[number of rows - first]: as Selector.matches, from row `first` on. A fresh array."""
        mask: BoolArray = np.ones(len(self._labels) - first, dtype=np.bool_)
        for one in selector.requirements:
            mask &= self._holds(one, first)
        return mask

    def _holds(self, one: Requirement, first: int) -> BoolArray:
        column = self._column(one.key)
        codes = column.codes[first : len(self._labels)]
        mask: BoolArray
        match one.operator:
            case "Exists":
                mask = codes != _MISSING
            case "DoesNotExist":
                mask = codes == _MISSING
            case "In" | "NotIn":
                found = [column.values[value] for value in one.values if value in column.values]
                # One entry more than there are values: a missing label indexes the last one.
                table = np.zeros(len(column.values) + 1, dtype=np.bool_)
                table[found] = True
                mask = table[codes] if one.operator == "In" else ~table[codes]
            case _:
                mask = np.zeros(len(codes), dtype=np.bool_)
        return mask

    def _column(self, key: str) -> _Column:
        n_rows = len(self._labels)
        column = self._columns.pop(key, None)
        if column is None:
            column = _Column(n_rows)
            if len(self._columns) >= _MAX_COLUMNS:
                del self._columns[next(iter(self._columns))]
        self._columns[key] = column  # most recently used last
        if len(column.codes) < n_rows:
            more = np.full(max(n_rows - len(column.codes), len(column.codes)), _MISSING, dtype=np.int32)
            column.codes = np.concatenate([column.codes, more])
        rows = self._having.get(key, ())
        if column.n_read < len(rows):
            values, labels = column.values, self._labels
            fresh = rows[column.n_read :]
            column.codes[fresh] = [values.setdefault(labels[row][key], len(values)) for row in fresh]
            column.n_read = len(rows)
        return column


__all__ = ["LabelTable"]
