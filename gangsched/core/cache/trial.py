"""Trial: a copy of a ClusterView on which Reserve acts; this module exports both.

A Trial copies a resource's column on its first write and never touches the cache; dropping it is the undo.
Sizes: one column of 5,000 nodes is 40 kB, a few microseconds to copy.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import islice
from typing import cast

import numpy as np

from gangsched.core.cache.cluster_view import ClusterView, Following, FollowingT
from gangsched.core.cache.moves import Moves, moves_of
from gangsched.core.cache.pods.volume_users import claims_of
from gangsched.core.cache.trial_devices import FEW, TrialDevices
from gangsched.core.cache.view.rows import shown
from gangsched.core.types.arrays import BoolArray, IntArray
from gangsched.core.types.group import NO_ROW, PodInfo
from gangsched.core.types.templates.affinity_terms import Carried
from gangsched.core.types.templates.pod_template import HostPort, PodTemplate
from gangsched.model.selectors import PodTerm
from gangsched.model.text.quantity import saturated

# Up to this many changes are summed one by one; up to FEW that is faster than copying a column.
_MANY = 32


class Trial(TrialDevices):
    """A copy to place pods on, then dropped or applied to the cache (assume).

    Placements are recorded, and written into a copy of a column when that column is read: a gang of one
    template, the usual case, never copies anything.
    """

    __slots__ = (
        "_against",
        "_counts",
        "_free",
        "_kept",
        "_moves",
        "_placed",
        "_ports",
        "expected",
    )

    def __init__(self, view: ClusterView) -> None:
        super().__init__(view)
        self._placed: list[tuple[int, PodTemplate, int]] = []
        self.expected: list[tuple[int, PodTemplate]] = []
        self._counts: dict[PodTerm, tuple[int, int, IntArray]] = {}
        self._against: dict[int, tuple[int, int, dict[Carried, dict[int, int]] | None]] = {}
        self._free: dict[int, tuple[int, IntArray, IntArray]] = {}
        """By column: how many of `_placed` are in it, the array, and the read-only view of it."""
        self._ports: dict[int, Mapping[HostPort, int]] | None = None
        self._moves: Moves | None = None
        self._kept: dict[Hashable, tuple[int, Following]] = {}

    def fork(self) -> Trial:
        """Returns a second trial that starts from this one; from now on they are independent."""
        other = Trial(self)
        self._copy_devices(other)
        other._placed = list(self._placed)
        other.expected = list(self.expected)
        # Reuse the sums: a search forks a Trial with thousands of changes.
        for column, (n, own, _) in self._free.items():
            if n > FEW:
                copied = own.copy()
                other._free[column] = (n, copied, shown(copied[:]))
        other._counts = {of: (n, gone, own.copy()) for of, (n, gone, own) in self._counts.items() if n > FEW}
        for of, (n, gone, by) in self._against.items():
            if n > FEW and by is not None:
                other._against[of] = (n, gone, {stated: dict(rows) for stated, rows in by.items()})
        if self._ports is not None:
            other._ports = dict(self._ports)
        return other

    def is_touched(self, rows: IntArray) -> BoolArray:
        """bool[len(rows)]: rows that differ from the cache."""
        touched = np.zeros(self.n_rows, dtype=np.bool_)
        touched[list(self.touched)] = True
        return cast("BoolArray", touched[rows])

    def free(self, column: int) -> IntArray:
        placed = self._placed
        if not placed:
            return shown(self._nodes.free[column, : self._nodes.n_rows])
        known = self._free.get(column)
        if known is None:
            done, mine = 0, super().free(column).copy()
            mine_shown = shown(mine[:])
        else:
            done, mine, mine_shown = known
        if done < len(placed):
            if len(placed) - done <= _MANY or not self._subtract(mine, column, done):
                for row, template, count in placed[done:]:
                    amount = template.by_column.get(column)
                    if amount:
                        left = mine.item(row) - amount * count
                        if (column, row) in self._nodes.beyond:
                            left = self._exact_free(column, row)
                        mine[row] = saturated(left)
            self._free[column] = (len(placed), mine, mine_shown)
        return mine_shown

    def _subtract(self, free: IntArray, column: int, done: int) -> bool:
        """Subtracts all that was placed after the first `done` from a copy of a column, at once. Returns
        False, with nothing done, if that is not possible."""
        if self._nodes.beyond:
            return False
        if self._moves is None or len(self._moves.rows) != len(self._placed):
            self._moves = moves_of(self._placed)
        return self._moves.subtract(free, column, done)

    def _exact_free(self, column: int, row: int) -> int:
        """Returns the exact free amount, with everything placed and removed on this trial."""
        changes = [
            template.by_column.get(column, 0) * count for at, template, count in self._placed if at == row
        ]
        return self._nodes.exact_free(column, row) - sum(changes)

    def room_at(self, columns: IntArray, rows: IntArray) -> tuple[IntArray, IntArray]:
        if not self._placed:
            return super().room_at(columns, rows)
        return self._nodes.allocatable[columns[:, np.newaxis], rows], self.free_at(columns, rows)

    def free_at(self, columns: IntArray, rows: IntArray) -> IntArray:
        if not self._placed:
            return super().free_at(columns, rows)
        found: IntArray = np.empty((len(columns), len(rows)), dtype=np.int64)
        for at, column in enumerate(columns.tolist()):
            found[at] = self.free(column)[rows]
        return found

    def free_on(self, columns: Sequence[int], row: int) -> list[int]:
        placed = self._placed
        if row not in self.touched:
            return super().free_on(columns, row)
        if len(placed) > FEW or self._nodes.beyond:
            return [self.free(column).item(row) for column in columns]
        free = super().free_on(columns, row)
        for at, template, count in placed:
            if at == row:
                amount_of = template.by_column.get
                for i, column in enumerate(columns):
                    free[i] = saturated(free[i] - amount_of(column, 0) * count)
        return free

    def _row_of_free(self, row: int) -> IntArray:
        free = super()._row_of_free(row)
        if row not in self.touched:
            return free
        return np.array([[self.free(column).item(row)] for column in range(len(free))], dtype=np.int64)

    def padding_at(self, rows: IntArray) -> IntArray | None:
        padding = super().padding_at(rows)
        for row, template, count in self._placed:
            if template.padding is not None:
                if padding is None:
                    padding = np.zeros((2, len(rows)), dtype=np.int64)
                padding[:, rows == row] += np.array(template.padding).reshape(2, 1) * count
        return padding

    def ports(self) -> Mapping[int, Mapping[HostPort, int]]:
        return super().ports() if self._ports is None else self._ports

    def pods_on(self, row: int) -> Iterable[PodInfo]:
        return [info for info in super().pods_on(row) if info.uid not in self._gone]

    @property
    def lacks_pods(self) -> bool:
        """Whether pods were removed: then it is a what-if of preemption."""
        return bool(self._gone)

    @property
    def placed(self) -> Sequence[tuple[int, PodTemplate, int]]:
        return [one for one in self._placed if one[2] > 0]

    @property
    def moved(self) -> Sequence[tuple[int, PodTemplate, int]]:
        return self._placed

    def kept(self, key: Hashable, make: Callable[[], FollowingT]) -> FollowingT:
        n_known, mine = self._kept.get(key, (0, None))
        for row, template, count in self._placed[n_known:]:
            if mine is None or count < 0:
                mine = None
                break
            mine.add(self, row, template, count)
        known = make() if mine is None else cast("FollowingT", mine)
        self._kept[key] = (len(self._placed), known)
        return known

    def matching(self, term: PodTerm) -> IntArray:
        counts = super().matching(term)
        if not self._placed:
            return counts
        n_placed, n_gone, mine = self._counts.get(term, (0, 0, None))
        if mine is None:
            mine = counts.copy()
        for row, template, count in self._placed[n_placed:]:
            if count > 0 and self.means(term, template):
                mine[row] += count
        for info in islice(self._gone.values(), n_gone, None):
            mine[info.row] -= self.means_pod(term, info.pod)
        self._counts[term] = (len(self._placed), len(self._gone), mine)
        return mine

    def carried_against(self, template: PodTemplate) -> Iterable[tuple[Carried, Mapping[int, int]]]:
        if not self._index.terms_about(template):
            return ()
        n_placed, n_gone, mine = self._against.get(template.serial, (0, 0, None))
        changed = [(info.row, info.template, -1) for info in islice(self._gone.values(), n_gone, None)]
        changed += [one for one in self._placed[n_placed:] if one[2] > 0]
        changed = [one for one in changed if one[1].affinity_terms]
        if mine is None and changed:
            mine = {stated: dict(rows) for stated, rows in super().carried_against(template)}
        self._against[template.serial] = (len(self._placed), len(self._gone), mine)
        if mine is None:
            return super().carried_against(template)
        meant: dict[Carried, bool] = {}
        for row, one, count in changed:
            for stated in one.affinity_terms:
                if stated not in meant:
                    meant[stated] = self.means(stated[1].term, template)
                if meant[stated]:
                    at = mine.setdefault(stated, {})
                    at[row] = at.get(row, 0) + count
                    if not at[row]:
                        del at[row]
        return list(mine.items())

    def volume_users(self) -> Mapping[int, Iterable[PodTemplate]]:
        return self._index.volumes.after(self.placed, self._gone)

    def claim_users(self, claim: tuple[str, str]) -> int:
        n = super().claim_users(claim)
        n += sum(count for _, template, count in self.placed if claim in claims_of(template))
        return n - sum(claim in claims_of(info.template) for info in self._gone.values())

    def place(self, row: int, template: PodTemplate, count: int = 1) -> None:
        """Reserves resources and ports for `count` pods of one template; take_devices reserves devices."""
        self.touched[row] = None
        self._placed.append((row, template, count))
        if template.host_ports:
            self._count_ports(row, template, count)

    def expect(self, row: int, template: PodTemplate) -> None:
        """Keeps room for a pod that is to come: as `place`, but it is not there yet (`expected`)."""
        self.place(row, template)
        self.expected.append((row, template))

    def remove(self, *infos: PodInfo) -> None:
        """Removes pods counted on nodes: their resources, ports and devices are free again.

        A device that another pod holds or has claimed stays taken. Removing a pod twice changes nothing.
        """
        gone = [info for info in infos if info.uid not in self._gone and info.row != NO_ROW]
        alike: dict[tuple[int, int], tuple[PodTemplate, int]] = {}
        for info in gone:
            self._gone[info.uid] = info
            at = (info.row, info.template.serial)
            alike[at] = (info.template, alike.get(at, _NONE_ALIKE)[1] + 1)
        for (row, _), (template, n) in alike.items():
            self.touched[row] = None
            self._placed.append((row, template, -n))
            if template.host_ports:
                self._count_ports(row, template, -n)
        self._give_back_all(gone)

    def _count_ports(self, row: int, template: PodTemplate, count: int) -> None:
        if self._ports is None:
            self._ports = dict(super().ports())
        # A row's ports are replaced, never changed: forks and the cache have them too.
        at = self._ports[row] = dict(self._ports.get(row, {}))
        for port in template.host_ports:
            at[port] = at.get(port, 0) + count
            if at[port] <= 0:
                del at[port]


_NONE_ALIKE: tuple[None, int] = (None, 0)


__all__ = ["ClusterView", "Trial"]
