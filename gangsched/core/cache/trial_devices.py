"""TrialDevices: the devices of a Trial: which are free on it, and which its pods have. Base class of Trial.

Not here: what pods use besides devices (core.cache.trial), and which set a pod gets
(core.cycle.device_allocation).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gangsched.core.cache.cluster_view import ClusterView
from gangsched.core.cache.view.devices import Wishes
from gangsched.core.cache.view.rows import shown
from gangsched.core.types.arrays import IntArray
from gangsched.core.types.group import PodInfo
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.model.devices.annotations import DeviceInventory

# Summing up to this many changes is faster than copying a column.
FEW = 8


class TrialDevices(ClusterView):
    """A view on which devices are taken and given back. touched: rows that differ from the cache."""

    __slots__ = (
        "_device_free",
        "_gone",
        "_kept_back",
        "_learnt",
        "_lifted",
        "_masks",
        "_taken",
        "_wishes",
        "given_up",
        "repacked",
        "touched",
    )

    def __init__(self, view: ClusterView) -> None:
        super().__init__(view._nodes, view._ledger, view._by_node, view._index, view._objects)
        self.touched: dict[int, None] = {}
        self._gone: dict[str, PodInfo] = {}
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

    def _copy_devices(self, other: TrialDevices) -> None:
        """Makes another trial start from this one."""
        other.touched = dict(self.touched)
        other._gone = dict(self._gone)
        other._lifted = dict(self._lifted)
        other._taken = list(self._taken)
        other._masks = dict(self._masks)
        other._kept_back = dict(self._kept_back)
        other._learnt = dict(self._learnt)
        other._device_free = {r: (n, own.copy()) for r, (n, own) in self._device_free.items() if n > FEW}
        other._wishes = dict(self._wishes)
        other.repacked = dict(self.repacked)
        other.given_up = self.given_up

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


_NO_WISHES: tuple[int, Wishes] = (0, ())
