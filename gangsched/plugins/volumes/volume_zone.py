"""VolumeZone: places a pod where its bound volumes are, by their zone and region labels.

Source: kube-scheduler 1.37 `plugins/volumezone/volume_zone.go`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from gangsched.core.cache.nodes.table import MISSING
from gangsched.core.cache.trial import ClusterView
from gangsched.core.cache.view.nodes import NodeQueries
from gangsched.core.cache.view.objects import ObjectQueries
from gangsched.core.framework.interface import (
    SKIP,
    SUCCESS,
    BoolArray,
    Change,
    ClusterChange,
    CycleState,
    Status,
)
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.model.storage import CLAIMS, CLASSES, VOLUMES, PersistentVolume
from gangsched.plugins.volumes.claims import WAITS, claim_of, class_name, class_of, not_found, volume_of

REASON = "node(s) had no available volume zone"
# An older label, and its replacement on current nodes.
_LABELS = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}

_Wanted = tuple[str, frozenset[str]]


class VolumeZone:
    """Filter on the labels of bound volumes."""

    name = "VolumeZone"
    watches: ClassVar[tuple[str, ...]] = (CLAIMS, VOLUMES, CLASSES)
    cured_by = Change.NODE_ADDED | Change.NODE_LABELS | Change.OBJECT

    def concerns(self, template: PodTemplate) -> bool:
        return bool(template.volumes)

    def pre_filter(self, state: CycleState, template: PodTemplate, view: ObjectQueries) -> Status:
        wanted: list[_Wanted] = []
        for volume in template.volumes:
            if volume.persistent_volume_claim is not None:
                found = _zones_of(template.namespace, volume.persistent_volume_claim.claim_name, view)
                if isinstance(found, Status):
                    return found
                wanted += found
        if not wanted:
            return SKIP
        state.data[self.name] = wanted
        return SUCCESS

    def filter(self, state: CycleState, template: PodTemplate, view: NodeQueries) -> BoolArray | None:
        """Lets a node without any of the labels pass: the cluster has one zone."""
        wanted: list[_Wanted] = state.data.get(self.name, [])
        labelled = np.zeros(view.n_rows, dtype=np.bool_)
        for key in _LABELS:
            labelled |= view.label(key)[0] != MISSING
        mask = np.ones(view.n_rows, dtype=np.bool_)
        for key, values in wanted:
            mask &= _has(key, values, view)
        return mask | ~labelled

    def reasons(
        self, state: CycleState, template: PodTemplate, view: NodeQueries
    ) -> Sequence[tuple[str, BoolArray]]:
        mask = self.filter(state, template, view)
        return () if mask is None else ((REASON, ~mask),)

    def cures(self, change: ClusterChange, template: PodTemplate | None, view: ClusterView) -> bool:
        return change.what is not Change.OBJECT or change.kind in self.watches


def _zones_of(namespace: str, name: str, view: ObjectQueries) -> list[_Wanted] | Status:
    if not name:
        return Status.unresolvable("PersistentVolumeClaim had no name")
    claim = claim_of(view, (namespace, name))
    if claim is None:
        return Status.unresolvable(not_found("persistentvolumeclaim", name))
    if claim.spec.volume_name:
        volume = volume_of(view, claim.spec.volume_name)
        if volume is None:
            return Status.unresolvable(not_found("persistentvolume", claim.spec.volume_name))
        return _labels_of(volume)
    chosen = class_name(claim)
    if not chosen:
        return Status.unresolvable("PersistentVolumeClaim had no pv name and storageClass name")
    storage_class = class_of(view, chosen)
    if storage_class is None:
        return Status.unresolvable(not_found("storageclass.storage.k8s.io", chosen))
    if storage_class.volume_binding_mode != WAITS:
        return Status.unresolvable("PersistentVolume had no name")
    return []


def _labels_of(volume: PersistentVolume) -> list[_Wanted]:
    """Returns the label's zones; two underscores separate several, and an empty zone voids the label."""
    found = []
    for key in _LABELS:
        text = (volume.metadata.labels or {}).get(key)
        zones = [zone.strip() for zone in text.split("__")] if text is not None else [""]
        if all(zones):
            found.append((key, frozenset(zones)))
    return found


def _has(key: str, values: frozenset[str], view: NodeQueries) -> BoolArray:
    """Compares the label itself; on nodes without it, its replacement."""
    codes, known = view.label(key)
    own = np.isin(codes, [known[value] for value in sorted(values) if value in known])
    if _LABELS[key] == key:
        return own
    codes_now, known_now = view.label(_LABELS[key])
    now = np.isin(codes_now, [known_now[value] for value in sorted(values) if value in known_now])
    answer: BoolArray = np.where(codes != MISSING, own, now)
    return answer
