"""RoomQueries: resources by columns of a table, and host ports; a Trial's placements are subtracted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gangsched.core.cache.view.rows import RowQueries, shown
from gangsched.core.types.arrays import BoolArray, IntArray
from gangsched.core.types.templates.pod_template import HostPort
from gangsched.model.resources import ResourceTable


class RoomQueries(RowQueries):
    """What there is on each node, and what is left of it. Amounts are in model.resources' units."""

    __slots__ = ()

    @property
    def table(self) -> ResourceTable:
        return self._nodes.table

    def allocatable(self, column: int) -> IntArray:
        """int64[n_rows] of one resource column."""
        return shown(self._nodes.allocatable[column, : self._nodes.n_rows])

    def free(self, column: int) -> IntArray:
        """int64[n_rows]: allocatable less used and reserved; below 0 where other schedulers overcommit."""
        return shown(self._nodes.free[column, : self._nodes.n_rows])

    def served_by_class(self, resource: str) -> BoolArray:
        """bool[n_rows]: where no device plugin offers the resource and a device class serves it."""
        return shown(self._nodes.served_by_class(resource)[: self._nodes.n_rows])

    def room_at(self, columns: IntArray, rows: IntArray) -> tuple[IntArray, IntArray]:
        """(allocatable, free) of some columns at some rows. Shapes: int64[len(columns), len(rows)]."""
        at = (columns[:, np.newaxis], rows)
        return self._nodes.allocatable[at], self._nodes.free[at]

    def free_at(self, columns: IntArray, rows: IntArray) -> IntArray:
        """The second part of room_at."""
        free: IntArray = self._nodes.free[columns[:, np.newaxis], rows]
        return free

    def room_on(self, row: int) -> tuple[IntArray, IntArray]:
        """allocatable and free of one node, int64[n_columns, 1] each."""
        return self._nodes.allocatable[:, row : row + 1], self._row_of_free(row)

    def _row_of_free(self, row: int) -> IntArray:
        """int64[n_columns, 1]: `free` of one node."""
        return self._nodes.free[:, row : row + 1]

    def free_on(self, columns: Sequence[int], row: int) -> list[int]:
        """free of some columns on one node."""
        free = self._nodes.free.item
        return [free(column, row) for column in columns]

    def padding_at(self, rows: IntArray) -> IntArray | None:
        """int64[2, len(rows)]: cpu and memory that scores count beyond requests; None: none anywhere."""
        return self._nodes.padding[:, rows] if self._nodes.n_padded else None

    def ports(self) -> Mapping[int, Mapping[HostPort, int]]:
        """row -> host ports taken there, with the number of pods; rows without any are absent."""
        return self._nodes.ports
