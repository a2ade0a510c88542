"""PodLog: which pods came to nodes and went, by class, and the terms whose counts are read from it.

Kept by core.cache.pods.index, which rewrites it when it has grown long.
"""

from __future__ import annotations

from array import array

import numpy as np

from gangsched.core.types.arrays import BoolArray, IntArray
from gangsched.model.selectors import PodTerm

# So many entries are read one by one: after a gang, its members.
_FEW = 16


class Counted:
    """A queried term. Shapes: counts int64[at least n_rows], means bool[classes that it was compared with].

    n_read: entries of the log that are counted.
    """

    __slots__ = ("counts", "means", "n_read", "term")

    def __init__(self, term: PodTerm, n_rows: int) -> None:
        self.term = term
        self.counts: IntArray = np.zeros(n_rows, dtype=np.int64)
        self.means: BoolArray = np.zeros(0, dtype=np.bool_)
        self.n_read = 0

    def grow(self, n_rows: int) -> None:
        if n_rows > len(self.counts):
            self.counts = np.concatenate([self.counts, np.zeros(n_rows - len(self.counts), dtype=np.int64)])


class PodLog:
    """Which pods came (1) and went (-1): parallel arrays of classes, rows and signs."""

    __slots__ = ("classes", "rows", "signs")

    def __init__(self) -> None:
        self.classes, self.rows, self.signs = array("i"), array("i"), array("b")

    def __len__(self) -> int:
        return len(self.signs)

    def add(self, number: int, row: int, sign: int) -> None:
        self.classes.append(number)
        self.rows.append(row)
        self.signs.append(sign)

    def count(self, counted: Counted) -> None:
        """Adds to the counts what is new; `counted.means` covers all classes."""
        at, means = counted.n_read, counted.means
        counted.n_read = len(self)
        # Slices are copies: an array cannot grow while NumPy looks at its memory.
        classes, rows, signs = self.classes[at:], self.rows[at:], self.signs[at:]
        if len(signs) <= _FEW:
            for number, row, sign in zip(classes, rows, signs, strict=True):
                if means[number]:
                    counted.grow(row + 1)
                    counted.counts[row] += sign
            return
        chosen = means[np.frombuffer(classes, dtype=np.int32)]
        there = np.frombuffer(rows, dtype=np.int32)[chosen]
        if len(there):
            counted.grow(int(there.max()) + 1)
            weights = np.frombuffer(signs, dtype=np.int8)[chosen]
            more = np.bincount(there, weights=weights, minlength=len(counted.counts))
            counted.counts += more.astype(np.int64)
