"""FreeVolumes: the persistent volumes that a claim could get, by claim, class and node.

Most volumes of a cluster are bound to other claims. The books follow the names of volumes that have changed,
so bound volumes cost nothing when a claim is matched; and what fits claims with the same request is computed
once, until a volume or a node changes. Read only by VolumeBinding's Matching.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from heapq import merge

import numpy as np

from gangsched.core.cache.object_store import Name
from gangsched.core.cache.trial import ClusterView
from gangsched.core.framework.interface import IntArray
from gangsched.core.framework.row_cache import n_kept
from gangsched.model.quantity import to_int
from gangsched.model.selectors import selector_of
from gangsched.model.storage import VOLUMES, PersistentVolume, PersistentVolumeClaim, VolumeSpec
from gangsched.plugins.claims import class_name, on_nodes

STORAGE = "storage"
# Memory for a volume that fits, beside the nodes, in words of 8 bytes.
_WORDS_OF_VOLUME = 32


class Fitting:
    """The volumes that fit a claim, the smallest first; ties: by name.

    is_given: the volume names the claim as its owner, so no reservation of another claim counts.
    """

    def __init__(
        self, volumes: Iterable[PersistentVolume], free: FreeVolumes, view: ClusterView, *, is_given: bool
    ) -> None:
        self.is_given = is_given
        self._volumes = sorted(volumes, key=lambda one: (size_of(one.spec), one.metadata.name))
        self._everywhere: list[int] = []
        self._on_rows: dict[int, list[int]] = {}
        self._rows: dict[str, IntArray] = {}
        self._n_on_rows: IntArray = np.zeros(view.n_rows, dtype=np.int64)
        for k, volume in enumerate(self._volumes):
            rows = free.reached_by(volume, view)
            if rows is None:
                self._everywhere.append(k)
                continue
            self._rows[volume.metadata.name] = rows
            self._n_on_rows[rows] += 1
            for row in rows.tolist():
                self._on_rows.setdefault(row, []).append(k)

    @property
    def n_on_rows(self) -> IntArray:
        """int64[n_rows]: number of volumes that reach each node, without those that reach all nodes."""
        return self._n_on_rows

    def n_left(self, without: Collection[str]) -> IntArray:
        """The same, without the volumes of these names."""
        left = self._n_on_rows.copy()
        for name in without if not self.is_given else ():
            if name in self._rows:
                left[self._rows[name]] -= 1
        return left

    def first(
        self, row: int | None, used: Collection[str], taken: Collection[str]
    ) -> PersistentVolume | None:
        """Returns the smallest volume on a node that is neither used nor taken; row None: of those on all
        nodes."""
        here = self._on_rows.get(row, []) if row is not None else []
        for k in merge(self._everywhere, here) if here else self._everywhere:
            volume = self._volumes[k]
            name = volume.metadata.name
            if name not in used and (self.is_given or name not in taken):
                return volume
        return None


class FreeVolumes:
    """Free and reserved volumes by name."""

    def __init__(self) -> None:
        self._revision = -1
        self._nodes: tuple[int, int] = (-1, -1)
        self._places: dict[str, tuple[str, Name | None]] = {}
        self._of_class: dict[str, dict[str, PersistentVolume]] = {}
        self._of_claim: dict[Name, dict[str, PersistentVolume]] = {}
        self._reached: dict[str, tuple[PersistentVolume, IntArray | None]] = {}
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
                return Fitting([volume], self, view, is_given=True)
        modes = frozenset(claim.spec.access_modes or ())
        selector = selector_of(claim.spec.selector)
        wants = (claim.spec.volume_mode, claim.spec.volume_attributes_class_name or "")
        key = (class_name(claim), request_of(claim), modes, selector, *wants)
        known = self._fitting.get(key)
        if known is None:
            found = (
                volume
                for volume in self._of_class.get(class_name(claim), {}).values()
                if _suits(volume, claim)
                and (selector is None or selector.matches(volume.metadata.labels or {}))
                and modes.issubset(volume.spec.access_modes or ())
            )
            # The authors of claims choose the sizes, so there may be any number of keys.
            if len(self._fitting) >= n_kept(view.n_rows + _WORDS_OF_VOLUME * len(self._places)):
                self._fitting.clear()
            known = self._fitting[key] = Fitting(found, self, view, is_given=False)
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
            self._fitting.clear()
        revision = view.objects_revision(VOLUMES)
        if revision == self._revision:
            return
        self._fitting.clear()
        volumes = view.objects(VOLUMES)
        names = view.objects_since(VOLUMES, self._revision) if self._revision >= 0 else None
        if names is None:
            self._places, self._of_class, self._of_claim, self._reached = {}, {}, {}, {}
            names = list(volumes)
        self._revision = revision
        for key in set(names):
            self._put(key[1], volumes.get(key))

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
    one, other = volume.spec, claim.spec
    return (
        size_of(one) >= request_of(claim)
        and one.volume_mode == other.volume_mode
        and (one.volume_attributes_class_name or "") == (other.volume_attributes_class_name or "")
    )
