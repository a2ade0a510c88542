"""Provisioning: on which nodes a driver could make a claim's volume, and how much room it reports there.

A driver with `storageCapacity` reports its room in CSIStorageCapacity objects, often one per node. They are
read again when one of them, a class or a node has changed, and once for all claims of one class and size.
Read only by VolumeBinding's Matching. Source: kube-scheduler 1.37 `plugins/volumebinding/binder.go`
(hasEnoughCapacity: the object's maximumVolumeSize, else its capacity).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from gangsched.core.cache.object_store import Name
from gangsched.core.cache.trial import ClusterView
from gangsched.core.cache.view.nodes import NodeQueries
from gangsched.core.framework.filters.row_cache import n_kept
from gangsched.core.framework.interface import BoolArray, IntArray
from gangsched.model.objects import LabelSelector
from gangsched.model.storage import (
    CAPACITIES,
    CLASSES,
    DRIVERS,
    PersistentVolumeClaim,
    StorageClass,
)
from gangsched.model.text.quantity import to_int
from gangsched.plugins.volumes.claims import class_name, class_of, selected_nodes
from gangsched.plugins.volumes.free_volumes import request_of

_NO_PROVISIONER = "kubernetes.io/no-provisioner"


class Provision(msgspec.Struct, frozen=True):
    """Where a claim's volume could be provisioned: bool[n_rows]. capacity: bytes there, -1 if unknown."""

    allowed: BoolArray
    has_space: BoolArray
    capacity: IntArray


class _Room(NamedTuple):
    """One CSIStorageCapacity: the largest volume, and the room on its nodes."""

    largest: int
    capacity: int
    rows: IntArray


class Provisioning:
    """Provisions by class and size."""

    def __init__(self) -> None:
        self._nodes: tuple[int, int] = (-1, -1)
        self._revisions: tuple[int, ...] = ()
        self._rows: dict[Name, tuple[LabelSelector, IntArray]] = {}
        """For each capacity object: its node selector, and the rows that it selects."""
        self._rooms: dict[str, list[_Room]] | None = None
        self._known: dict[tuple[str, int], Provision] = {}

    def provision(self, claim: PersistentVolumeClaim, view: ClusterView) -> Provision:
        """Returns where a new volume for the claim could be made."""
        self._follow(view)
        key = (class_name(claim), request_of(claim))
        known = self._known.get(key)
        if known is None:
            # The authors of claims choose the sizes, so there may be any number of keys.
            if len(self._known) >= n_kept(view.n_rows):
                self._known.clear()
            known = self._known[key] = self._made(class_of(view, key[0]), key[1], view)
        return known

    def _follow(self, view: ClusterView) -> None:
        """Forgets answers that may have changed."""
        nodes = (view.static_revision, view.n_rows)
        revisions = tuple(view.objects_revision(kind) for kind in (CAPACITIES, CLASSES, DRIVERS))
        if nodes != self._nodes:
            self._rows.clear()
        if (nodes, revisions) != (self._nodes, self._revisions):
            self._nodes, self._revisions = nodes, revisions
            self._rooms = None
            self._known.clear()

    def _made(self, storage_class: StorageClass | None, wanted: int, view: ClusterView) -> Provision:
        everywhere = np.ones(view.n_rows, dtype=np.bool_)
        capacity = np.full(view.n_rows, -1, dtype=np.int64)
        if storage_class is None or storage_class.provisioner in ("", _NO_PROVISIONER):
            return Provision(~everywhere, everywhere, capacity)
        allowed = _allowed(storage_class, view)
        driver = view.objects(DRIVERS).get(("", storage_class.provisioner))
        if not wanted or driver is None or not driver.spec.storage_capacity:
            return Provision(allowed, everywhere, capacity)
        if self._rooms is None:
            self._rooms = {}
            for of, room in self._read(view):
                self._rooms.setdefault(of, []).append(room)
        has_space = ~everywhere
        # Where several have room, the first by name counts: it is written last.
        for room in reversed(self._rooms.get(storage_class.metadata.name, ())):
            if room.largest >= wanted:
                has_space[room.rows] = True
                capacity[room.rows] = room.capacity
        return Provision(allowed, has_space, capacity)

    def _read(self, view: ClusterView) -> Iterator[tuple[str, _Room]]:
        capacities = view.objects(CAPACITIES)
        if len(self._rows) > 2 * len(capacities):
            self._rows.clear()  # drivers make new objects under new names
        for name, one in sorted(capacities.items(), key=lambda one: one[0]):
            largest = one.maximum_volume_size if one.maximum_volume_size is not None else one.capacity
            if largest is None or one.node_topology is None:
                continue
            known = self._rows.get(name)
            if known is None or known[0] != one.node_topology:
                rows = np.flatnonzero(selected_nodes(one.node_topology, view))
                known = self._rows[name] = (one.node_topology, rows)
            capacity = 0 if one.capacity is None else to_int(str(one.capacity))
            yield one.storage_class_name, _Room(to_int(str(largest)), capacity, known[1])


def _allowed(storage_class: StorageClass, view: NodeQueries) -> BoolArray:
    """Returns the nodes of the class's allowedTopologies: those with all labels of one of the terms."""
    terms = storage_class.allowed_topologies or ()
    mask = np.full(view.n_rows, not terms, dtype=np.bool_)
    for term in terms:
        own = np.ones(view.n_rows, dtype=np.bool_)
        for one in term.match_label_expressions or ():
            codes, values = view.label(one.key)
            own &= np.isin(codes, [values[value] for value in one.values or () if value in values])
        mask |= own
    return mask
