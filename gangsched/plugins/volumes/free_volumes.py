"""FreeVolumes: the persistent volumes that a claim could get, by claim, class and node.

Most volumes of a cluster are bound to other claims. The books follow the names of volumes that have changed,
so bound volumes cost nothing when a claim is matched; and what fits claims with the same request is computed
once, until a volume or a node changes; claims that differ in size alone share one sorted list. Read only by
VolumeBinding's Matching.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Hashable, Iterable, Mapping
from heapq import merge
from itertools import islice

import numpy as np

from gangsched.core.cache.object_store import Name
from gangsched.core.cache.trial import ClusterView
from gangsched.core.framework.filters.row_cache import n_kept
from gangsched.core.framework.interface import IntArray
from gangsched.model.selectors import selector_of
from gangsched.model.storage import VOLUMES, PersistentVolume, PersistentVolumeClaim, VolumeSpec
from gangsched.model.text.quantity import to_int
from gangsched.plugins.volumes.claims import class_name, on_nodes

STORAGE = "storage"
# Memory for a volume on a shelf, in words of 8 bytes.
_WORDS_OF_VOLUME = 16


class _Shelf:
    """Volumes that differ only in size and place, the smallest first; ties: by name.

    A place is an index into volumes. Of volumes that not all nodes reach, by node row: Shapes: rows int64[k]
    and places int64[k], sorted by row and then place; here: the same places; begins: where each row begins.
    """

    __slots__ = ("begins", "everywhere", "here", "places", "rows", "rows_of", "sizes", "volumes")

    def __init__(self, volumes: Iterable[PersistentVolume], free: FreeVolumes, view: ClusterView) -> None:
        sized = sorted((size_of(one.spec), one.metadata.name, one) for one in volumes)
        self.volumes = [one for _, _, one in sized]
        self.sizes = [size for size, _, _ in sized]
        self.everywhere: list[int] = []
        self.rows_of: dict[str, tuple[int, IntArray]] = {}
        for k, volume in enumerate(self.volumes):
            rows = free.reached_by(volume, view)
            if rows is None:
                self.everywhere.append(k)
            else:
                self.rows_of[volume.metadata.name] = k, rows
        found = list(self.rows_of.values())
        rows = np.concatenate([rows for _, rows in found]) if found else np.zeros(0, dtype=np.int64)
        places = np.repeat([k for k, _ in found], [len(rows) for _, rows in found]).astype(np.int64)
        order = np.argsort(rows, kind="stable")
        self.rows: IntArray = rows[order]
        self.places: IntArray = places[order]
        self.here: list[int] = self.places.tolist()
        self.begins: list[int] = np.searchsorted(self.rows, np.arange(view.n_rows + 1)).tolist()


class Fitting:
    """The volumes that fit a claim: those of a shelf from a place on.

    is_given: the volume names the claim as its owner, so no reservation of another claim counts.
    """

    def __init__(self, shelf: _Shelf, request: int, n_rows: int, *, is_given: bool = False) -> None:
        self.is_given = is_given
        self._shelf = shelf
        self._begin = bisect_left(shelf.sizes, request)
        fits = shelf.rows[shelf.places >= self._begin]
        self._n_on_rows: IntArray = np.bincount(fits, minlength=n_rows).astype(np.int64)

    @property
    def n_on_rows(self) -> IntArray:
        """int64[n_rows]: number of volumes that reach each node, without those that reach all nodes."""
        return self._n_on_rows

    @property
    def n_everywhere(self) -> int:
        """Number of volumes that reach all nodes."""
        return len(self._shelf.everywhere) - bisect_left(self._shelf.everywhere, self._begin)

    @property
    def shelf(self) -> object:
        """The same for claims of which the larger ones fit no volume that a smaller one does not fit."""
        return self._shelf

    def n_left(self, without: Collection[str]) -> IntArray:
        """n_on_rows without the volumes of these names."""
        left = self._n_on_rows.copy()
        for name in without if not self.is_given else ():
            place, rows = self._shelf.rows_of.get(name, (-1, None))
            if rows is not None and place >= self._begin:
                left[rows] -= 1
        return left

    def first(
        self, row: int | None, used: Collection[str], taken: Collection[str], after: int = -1
    ) -> tuple[int, PersistentVolume | None]:
        """Returns the smallest volume on a node that is neither used nor taken, with its place; row None: of
        those on all nodes. after: the place that a smaller claim of the same shelf got there."""
        least = max(self._begin, after + 1)
        everywhere = self._shelf.everywhere
        places: Iterable[int] = islice(everywhere, bisect_left(everywhere, least), None)
        if row is not None:
            begin, end = self._shelf.begins[row : row + 2]
            begin = bisect_left(self._shelf.here, least, begin, end)
            if begin < end:
                places = merge(places, self._shelf.here[begin:end])
        for k in places:
            volume = self._shelf.volumes[k]
            name = volume.metadata.name
            if name not in used and (self.is_given or name not in taken):
                return k, volume
        return len(self._shelf.volumes), None


class FreeVolumes:
    """Free and reserved volumes by name."""

    def __init__(self) -> None:
        self._revision = -1
        self._nodes: tuple[int, int] = (-1, -1)
        self._places: dict[str, tuple[str, Name | None]] = {}
        self._of_class: dict[str, dict[str, PersistentVolume]] = {}
        self._of_claim: dict[Name, dict[str, PersistentVolume]] = {}
        self._reached: dict[str, tuple[PersistentVolume, IntArray | None]] = {}
        self._shelves: dict[Hashable, _Shelf] = {}
        self._fitting: dict[Hashable, Fitting] = {}

    def fitting(self, claim: PersistentVolumeClaim, view: ClusterView) -> Fitting:
        """Returns the volumes that a claim could get; if one is reserved for it already, only that one."""
        self._follow(view)
        meta = claim.metadata
        given = self._of_claim.get((meta.namespace, meta.name), {})
        for _, volume in sorted(given.items()):
            owner = volume.spec.claim_ref
            is_its = owner is not None and owner.uid in ("", meta.uid)
            if is_its and class_name(volume) == class_name(claim) and _suits(volume, claim):
                return Fitting(_Shelf([volume], self, view), 0, view.n_rows, is_given=True)
        modes = frozenset(claim.spec.access_modes or ())
        selector = selector_of(claim.spec.selector)
        wants = (claim.spec.volume_mode, claim.spec.volume_attributes_class_name or "")
        of = (class_name(claim), modes, selector, *wants)
        request = request_of(claim)
        known = self._fitting.get((of, request))
        if known is None:
            # The authors of claims choose the sizes, so there may be any number of keys.
            if len(self._fitting) >= n_kept(view.n_rows):
                self._fitting.clear()
            known = self._fitting[of, request] = Fitting(self._shelf(of, claim, view), request, view.n_rows)
        return known

    def _shelf(self, of: Hashable, claim: PersistentVolumeClaim, view: ClusterView) -> _Shelf:
        """Returns the volumes that fit the claim but for their size."""
        known = self._shelves.get(of)
        if known is None:
            if len(self._shelves) >= n_kept(_WORDS_OF_VOLUME * len(self._places)):
                self._shelves.clear()
                self._fitting.clear()
            modes, selector = frozenset(claim.spec.access_modes or ()), selector_of(claim.spec.selector)
            found = (
                volume
                for volume in self._of_class.get(class_name(claim), {}).values()
                if _is_alike(volume, claim)
                and modes.issubset(volume.spec.access_modes or ())
                and (selector is None or selector.matches(volume.metadata.labels or {}))
            )
            known = self._shelves[of] = _Shelf(found, self, view)
        return known

    def reached_by(self, volume: PersistentVolume, view: ClusterView) -> IntArray | None:
        """Returns the rows of the nodes that can use the volume; None: all of them."""
        name = volume.metadata.name
        known = self._reached.get(name)
        if known is None or known[0] is not volume:
            mask = on_nodes(volume, view)
            rows = None if mask is None else np.flatnonzero(mask)
            known = self._reached[name] = (volume, rows)
        return known[1]

    def _follow(self, view: ClusterView) -> None:
        """Takes in the volumes that have changed."""
        nodes = (view.static_revision, view.n_rows)
        if nodes != self._nodes:
            self._nodes = nodes
            self._reached.clear()
            self._forget()
        revision = view.objects_revision(VOLUMES)
        if revision == self._revision:
            return
        self._forget()
        volumes = view.objects(VOLUMES)
        names = view.objects_since(VOLUMES, self._revision) if self._revision >= 0 else None
        if names is None:
            self._places, self._of_class, self._of_claim, self._reached = {}, {}, {}, {}
            names = list(volumes)
        self._revision = revision
        for key in set(names):
            self._put(key[1], volumes.get(key))

    def _forget(self) -> None:
        self._shelves.clear()
        self._fitting.clear()

    def _put(self, name: str, volume: PersistentVolume | None) -> None:
        of, claim = self._places.pop(name, ("", None))
        if claim is not None:
            owned = self._of_claim[claim]
            owned.pop(name)
            if not owned:
                del self._of_claim[claim]
        else:
            self._of_class.get(of, {}).pop(name, None)
        if volume is None or volume.metadata.deletion_timestamp is not None:
            self._reached.pop(name, None)
            return
        owner, of = volume.spec.claim_ref, class_name(volume)
        if owner is not None:
            claim = (owner.namespace, owner.name)
            self._of_claim.setdefault(claim, {})[name] = volume
            self._places[name] = (of, claim)
        elif volume.status.phase == "Available":
            self._of_class.setdefault(of, {})[name] = volume
            self._places[name] = (of, None)


def size_of(spec: VolumeSpec) -> int:
    """Returns bytes of storage, 0 if not stated."""
    return _bytes(spec.capacity)


def request_of(claim: PersistentVolumeClaim) -> int:
    """Likewise returns what a claim requests."""
    return _bytes(claim.spec.resources.requests if claim.spec.resources else None)


def _bytes(amounts: Mapping[str, str | int | float] | None) -> int:
    text = (amounts or {}).get(STORAGE)
    return 0 if text is None else to_int(str(text))


def _suits(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether the volume's size, mode and attributes suit the claim."""
    return size_of(volume.spec) >= request_of(claim) and _is_alike(volume, claim)


def _is_alike(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether the volume's mode and attributes suit the claim."""
    one, other = volume.spec, claim.spec
    return one.volume_mode == other.volume_mode and (one.volume_attributes_class_name or "") == (
        other.volume_attributes_class_name or ""
    )
