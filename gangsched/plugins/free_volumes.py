"""FreeVolumes: the persistent volumes that a claim could be given, by claim and by class.

Most volumes of a cluster are bound to others' claims. Kept up to date by the names of those that have
changed, so bound volumes cost nothing when a claim is matched. Read by VolumeBinding's Matching alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from gangsched.core.cache.object_store import Name
from gangsched.core.cache.trial import ClusterView
from gangsched.core.framework.interface import BoolArray
from gangsched.model.storage import VOLUMES, PersistentVolume
from gangsched.plugins.claims import class_name, on_nodes

# Nodes that volumes reach are kept for so many; beyond it they are worked out again.
_MAX_REACHES = 2000


class FreeVolumes:
    """By name of the volume."""

    def __init__(self) -> None:
        self._revision = -1
        self._places: dict[str, tuple[str, Name]] = {}
        self._of_class: dict[str, dict[str, PersistentVolume]] = {}
        self._of_claim: dict[Name, dict[str, PersistentVolume]] = {}
        self._nodes: tuple[int, int] = (-1, -1)
        self._reaches: dict[str, tuple[PersistentVolume, BoolArray | None]] = {}

    def given_to(self, claim: Name) -> Iterator[PersistentVolume]:
        """Those that name this claim as their owner, in the order of their names."""
        there = self._of_claim.get(claim, {})
        return (there[name] for name in sorted(there))

    def of_class(self, storage_class: str) -> Iterator[PersistentVolume]:
        """Those that are available and have no owner."""
        yield from self._of_class.get(storage_class, {}).values()

    def reach(self, volume: PersistentVolume, view: ClusterView) -> BoolArray | None:
        """bool[n_rows]: the nodes that can use it; None: all of them."""
        nodes = (view.static_revision, view.n_rows)
        if nodes != self._nodes or len(self._reaches) >= _MAX_REACHES:
            self._nodes = nodes
            self._reaches.clear()
        name = volume.metadata.name
        known = self._reaches.get(name)
        if known is None or known[0] is not volume:
            known = self._reaches[name] = (volume, on_nodes(volume, view))
        return known[1]

    def follow(self, view: ClusterView) -> None:
        """Looks again at the volumes that have changed."""
        revision = view.objects_revision(VOLUMES)
        if revision == self._revision:
            return
        volumes = view.objects(VOLUMES)
        names = view.objects_since(VOLUMES, self._revision) if self._revision >= 0 else None
        if names is None:
            self._places, self._of_class, self._of_claim = {}, {}, {}
            names = list(volumes)
        self._revision = revision
        for key in set(names):
            self._put(key[1], volumes.get(key))

    def _put(self, name: str, volume: PersistentVolume | None) -> None:
        before = self._places.pop(name, None)
        if before is not None:
            self._of_class.get(before[0], {}).pop(name, None)
            owned = self._of_claim.get(before[1], {})
            owned.pop(name, None)
            if not owned:
                self._of_claim.pop(before[1], None)
        if volume is None or volume.metadata.deletion_timestamp is not None:
            return
        owner, of = volume.spec.claim_ref, class_name(volume)
        if owner is not None:
            claim = (owner.namespace, owner.name)
            self._of_claim.setdefault(claim, {})[name] = volume
        elif volume.status.phase == "Available":
            claim = ("", "")
            self._of_class.setdefault(of, {})[name] = volume
        else:
            return
        self._places[name] = (of, claim)
