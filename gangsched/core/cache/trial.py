"""Trial: a copy of a ClusterView on which Reserve acts; this module exports both.

A Trial copies a resource's column on its first write and never touches the cache; dropping it is the undo.
Sizes: one column of 5,000 nodes is 40 kB, a few microseconds to copy. Not here: which devices a pod gets
(core.cycle.device_allocation).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, cast

import numpy as np

from gangsched.core.cache.cluster_view import ClusterView, Following, FollowingT
from gangsched.core.cache.pods.volume_users import claims_of
from gangsched.core.cache.view.devices import Wishes
from gangsched.core.cache.view.rows import shown
from gangsched.core.resource_claims.candidates import Cluster
from gangsched.core.types.arrays import BoolArray, IntArray
from gangsched.core.types.group import NO_ROW, PodInfo
from gangsched.core.types.templates.affinity_terms import Carried
from gangsched.core.types.templates.pod_template import HostPort, PodTemplate
from gangsched.model.devices.annotations import DeviceInventory
from gangsched.model.selectors import PodTerm
from gangsched.model.text.quantity import MAX_VALUE, saturated

# Up to _MANY changes are summed one by one; up to _FEW that is faster than copying a column.
_FEW, _MANY = 8, 32


class Trial(ClusterView):
    """A copy to place pods on, then dropped or applied to the cache (assume).

    Placements are recorded, and written into a copy of a column when that column is read: a gang of one
    template, the usual case, never copies anything.
    """

    __slots__ = (
        *("_against", "_claimed", "_counts", "_device_free", "_free", "_gone", "_is_released", "_kept"),
        *("_kept_back", "_learnt", "_lifted", "_masks", "_moves", "_placed", "_ports", "_taken", "_wishes"),
        *("expected", "given_up", "repacked", "touched"),
    )

    def __init__(self, view: ClusterView) -> None:
        super().__init__(view._nodes, view._ledger, view._by_node, view._index, view._objects, view.claims)
        self.touched: dict[int, None] = {}
        """Rows that differ from the cache."""
        self._gone: dict[str, PodInfo] = {}
        self._claimed: tuple[int, Cluster] | None = None
        """How many of `_gone` are in it, and `claimed`."""
        self._is_released = False
        """Whether claims count as given back once their pods are gone, as they are soon after."""
        self._placed: list[tuple[int, PodTemplate, int]] = []
        self.expected: list[tuple[int, PodTemplate]] = []
        self._counts: dict[PodTerm, tuple[int, int, IntArray]] = {}
        self._against: dict[int, tuple[int, int, dict[Carried, dict[int, int]] | None]] = {}
        self._free: dict[int, tuple[int, IntArray, IntArray]] = {}
        """By column: how many of `_placed` are in it, the array, and the read-only view of it."""
        self._ports: dict[int, Mapping[HostPort, int]] | None = None
        self._moves: Moves | None = None
        self._kept: dict[Hashable, tuple[int, Following]] = {}
        self._lifted: dict[str, None] = {}
        self._taken: list[tuple[int, str, int]] = []
        self._device_free: dict[str, tuple[int, IntArray]] = {}
        self._masks: dict[tuple[int, str], int] = {}
        self._kept_back: dict[tuple[int, str], int] = {}
        """(row, resource) -> devices that no pod placed here gets, even when their holders release them."""
        self._learnt: dict[tuple[int, str], None] = {}
        """(row, resource) whose free devices are known here, as the pods without known IDs were removed."""
        self._wishes: dict[tuple[int, str], tuple[int, Wishes]] = {}
        self.repacked: dict[tuple[int, str], None] = {}
        """(row, resource) where pods placed before got other devices (core.cycle.device_allocation)."""
        self.given_up: dict[tuple[int, str], None] = {}
        """(row, resource) where a search for device sets ended at its budget, here or in a fork."""

    def fork(self) -> Trial:
        """Returns a second trial that starts from this one; from now on they are independent."""
        other = Trial(self)
        other.touched = dict(self.touched)
        other._gone = dict(self._gone)
        other._claimed, other._is_released = self._claimed, self._is_released
        other._placed = list(self._placed)
        other.expected = list(self.expected)
        # Reuse the sums: a search forks a Trial with thousands of changes.
        for column, (n, own, _) in self._free.items():
            if n > _FEW:
                copied = own.copy()
                other._free[column] = (n, copied, shown(copied[:]))
        other._counts = {of: (n, gone, own.copy()) for of, (n, gone, own) in self._counts.items() if n > _FEW}
        for of, (n, gone, by) in self._against.items():
            if n > _FEW and by is not None:
                other._against[of] = (n, gone, {stated: dict(rows) for stated, rows in by.items()})
        if self._ports is not None:
            other._ports = dict(self._ports)
        other._lifted = dict(self._lifted)
        other._taken = list(self._taken)
        other._masks = dict(self._masks)
        other._kept_back = dict(self._kept_back)
        other._learnt = dict(self._learnt)
        other._device_free = {r: (n, own.copy()) for r, (n, own) in self._device_free.items() if n > _FEW}
        other._wishes = dict(self._wishes)
        other.repacked = dict(self.repacked)
        other.given_up = self.given_up
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
        if len(placed) > _FEW or self._nodes.beyond:
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
    def claimed(self) -> Cluster:
        if not self._gone and not self._is_released:
            return self.claims.cluster
        if self._claimed is None or self._claimed[0] != len(self._gone):
            gone = [info.pod for info in self._gone.values()]
            self._claimed = len(self._gone), self.claims.without(gone, released=self._is_released)
        return self._claimed[1]

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

    def release_claims(self) -> None:
        """Counts claims as given back whose pods are gone: soon they will be."""
        self._is_released = True
        names = self.claims.nodes_left_behind()
        rows = range(self.n_rows) if "" in names else (self.row_of(name) for name in names)
        self.touched.update((row, None) for row in rows if row is not None)

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

    # -- devices -----------------------------------------------------------------------------------------

    def device_free(self, resource: str) -> IntArray | None:
        shared = super().device_free(resource)
        if shared is None or not self._taken:
            return shared
        done, mine = self._device_free.get(resource, (0, None))
        if mine is None:
            mine = shared.copy()
        for row, own, count in self._taken[done:]:
            if own == resource:
                mine[row] -= count
        self._device_free[resource] = (len(self._taken), mine)
        return shown(mine[:])

    def device_free_on(self, resource: str, row: int) -> int | None:
        if not self._taken:
            return super().device_free_on(resource, row)
        free = self.device_free(resource)
        return None if free is None else free.item(row)

    def inventory(self, row: int, resource: str) -> DeviceInventory | None:
        is_learnt = (row, resource) in self._learnt
        return self._ledger.listed(row, resource) if is_learnt else super().inventory(row, resource)

    def device_mask(self, row: int, resource: str) -> int:
        found = self._masks.get((row, resource))
        return super().device_mask(row, resource) if found is None else found

    def keep_back(self, row: int, ids: Mapping[str, tuple[str, ...]]) -> None:
        """Keeps these devices from all pods placed from now on, even if their holders are removed later."""
        for resource, some in ids.items():
            listed = self._ledger.listed(row, resource)
            if listed is None:
                continue
            at, mask = (row, resource), listed.mask_of(some)
            self._kept_back[at] = self._kept_back.get(at, 0) | mask
            self.touched[row] = None
            free = self.device_mask(row, resource)
            if free & mask:
                self._masks[at] = free & ~mask
                self._taken.append((row, resource, (free & mask).bit_count()))

    def _give_back_all(self, gone: Iterable[PodInfo]) -> None:
        """Frees the devices of pods that were removed."""
        for info in gone:
            for resource, ids in info.ids.items():
                self._give_back(info.row, resource, ids)
        for row in dict.fromkeys(info.row for info in gone):
            for resource in self._ledger.lists(row):
                self._learn(row, resource)

    def _learn(self, row: int, resource: str) -> None:
        """Gives out IDs again where all pods that may hold devices without known IDs were removed."""
        at, kept_back = (row, resource), self._kept_back.get((row, resource), 0)
        mask = self._ledger.free_without(row, resource, self._gone, self._lifted)
        if mask is None or at in self._learnt:
            return
        if not any(to == row and resource in one.requests for to, one, _ in self.placed):  # by count
            self._learnt[at] = None
            self._masks[at] = mask & ~kept_back
            before = self._ledger.columns[resource].free.item(row)
            self._taken.append((row, resource, before - self._masks[at].bit_count()))

    def lift(self, uid: str) -> None:
        """Ignores the pod's device claims. Lifting twice changes nothing."""
        if uid not in self._lifted:
            self._lifted[uid] = None
            for row, resource, ids in self._ledger.claims(uid):
                self.touched[row] = None
                self._give_back(row, resource, ids)

    def _give_back(self, row: int, resource: str, ids: Iterable[str]) -> None:
        if (row, resource) not in self._learnt and any(self._ledger.why_unknown(row, resource)):
            return
        before = self.device_mask(row, resource)
        # Two pods that went together may have held the same device: it is freed once.
        freed = self._ledger.freed_by(row, resource, ids, self._gone, self._lifted) & ~before
        freed &= ~self._kept_back.get((row, resource), 0)
        if freed:
            self._masks[row, resource] = before | freed
            self._taken.append((row, resource, -freed.bit_count()))

    def device_wishes(self, row: int, resource: str) -> tuple[int, Wishes]:
        return self._wishes.get((row, resource), _NO_WISHES)

    def note_given_up(self, row: int, resource: str) -> None:
        self.given_up[row, resource] = None

    def take_devices(
        self, row: int, resource: str, template: PodTemplate, masks: Sequence[int], free: int
    ) -> None:
        """Marks devices as taken, one mask per pod; the caller has checked that they are among `free`, the
        devices free there until now."""
        at, mask = (row, resource), sum(masks)
        self._masks[at] = free & ~mask
        self._taken.append((row, resource, mask.bit_count()))
        mine, wishes = self._wishes.get(at, _NO_WISHES)
        self._wishes[at] = (mine | mask, (*wishes, (template, tuple(masks))))

    def retake_devices(self, row: int, resource: str, wishes: Wishes) -> None:
        """As take_devices; `wishes` cover all pods placed there, including earlier ones."""
        at = (row, resource)
        mask = sum(one for _, masks in wishes for one in masks)
        before, _ = self._wishes[at]
        self._masks[at] = (self.device_mask(row, resource) | before) & ~mask
        self._taken.append((row, resource, mask.bit_count() - before.bit_count()))
        self._wishes[at] = (mask, wishes)
        self.repacked[at] = None


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


_NONE_ALIKE: tuple[None, int] = (None, 0)
_NO_WISHES: tuple[int, Wishes] = (0, ())


__all__ = ["ClusterView", "Trial"]
