"""NodeVolumeLimits: how many volumes of a driver a node can have attached.

CSI drivers state the limits in the node's CSINode; in-tree volumes count for the driver that they were
migrated to. A node without a CSINode has no CSI: there the old cloud limits apply, which kube-scheduler has
dropped: 39 EBS volumes, 16 GCE disks, or as many as the argument says. Sources: kube-scheduler 1.37
`plugins/nodevolumelimits/csi.go`; kubernetes 1.26 `nodevolumelimits/non_csi.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import msgspec
import numpy as np

from gangsched.core.cache.trial import ClusterView
from gangsched.core.cache.view.objects import ObjectQueries
from gangsched.core.cache.volume_users import claims_of
from gangsched.core.framework.interface import (
    SKIP,
    SUCCESS,
    BoolArray,
    Change,
    ClusterChange,
    CycleState,
    Status,
)
from gangsched.core.types.pod_template import PodTemplate
from gangsched.model.objects import Volume
from gangsched.model.storage import (
    ATTACHMENTS,
    CLAIMS,
    CLASSES,
    NODES,
    VOLUMES,
    CsiNode,
    PersistentVolumeClaim,
    VolumeSpec,
)
from gangsched.plugins.claims import claim_of, class_name, class_of, volume_of

REASON = "node(s) exceed max volume count"
_EBS, _GCE = "kubernetes.io/aws-ebs", "kubernetes.io/gce-pd"
_DRIVERS = {
    _EBS: "ebs.csi.aws.com",
    _GCE: "pd.csi.storage.gke.io",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
}
CLASSIC_LIMITS: Mapping[str, int] = {_EBS: 39, _GCE: 16}


class Args(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """max_pd_volumes: the old cloud limit of each kind of in-tree volume, 0: CLASSIC_LIMITS. kube-scheduler
    reads it from KUBE_MAX_PD_VOLS, and so do we where this says nothing.
    """

    max_pd_volumes: int = 0

    def __post_init__(self) -> None:
        if self.max_pd_volumes < 0:
            raise ValueError(f"maxPdVolumes: {self.max_pd_volumes} is below 0")


_Unique = tuple[str, str]
"""(CSI driver, or an in-tree plugin's name; the volume's own name)."""


class NodeVolumeLimits:
    """Filter on how many volumes are attached."""

    name = "NodeVolumeLimits"
    sees_pods: ClassVar[bool] = True
    watches: ClassVar[tuple[str, ...]] = (CLAIMS, VOLUMES, CLASSES, NODES, ATTACHMENTS)
    cured_by = Change.ROOM_FREED | Change.NODE_ADDED | Change.OBJECT

    def __init__(self, args: Args | None = None) -> None:
        most = args.max_pd_volumes if args is not None else 0
        self._classic = dict.fromkeys(_DRIVERS, most) if most else CLASSIC_LIMITS
        self._drivers: tuple[int, frozenset[str]] = (-1, frozenset())
        self._attached: tuple[object, Mapping[str, frozenset[_Unique]]] = (None, {})

    def concerns(self, template: PodTemplate) -> bool:
        return bool(template.volumes)

    def pre_filter(self, state: CycleState, template: PodTemplate, view: ObjectQueries) -> Status:
        """Skipped also when no node limits any of the drivers, as for storage that is not attached."""
        if not any(_may_count(volume) for volume in template.volumes):
            return SKIP
        drivers = {driver for driver, _ in _used_by(template, view)}
        drivers |= {_DRIVERS[plugin] for plugin in drivers if plugin in _DRIVERS}
        return SKIP if drivers.isdisjoint(self._limited(view)) else SUCCESS

    def filter(self, state: CycleState, template: PodTemplate, view: ClusterView) -> BoolArray | None:
        mask = np.ones(view.n_rows, dtype=np.bool_)
        wanted = _used_by(template, view)
        if not wanted:
            return mask
        csi_nodes, users = view.objects(NODES), view.volume_users()
        attached = self._attachments(view)
        for row in np.flatnonzero(view.live):
            name = view.name(int(row))
            csi_node: CsiNode | None = csi_nodes.get(("", name))
            limits = self._limits(csi_node)
            new = _counted(wanted, csi_node)
            if not any(driver in limits for driver, _ in new):
                continue
            there: set[_Unique] = set()
            for user in users.get(int(row), ()):
                there |= _counted(_used_by(user, view), csi_node)
            held = there | attached.get(name, frozenset())
            mask[row] = _fits(new - there, held, limits)
        return mask

    def reasons(
        self, state: CycleState, template: PodTemplate, view: ClusterView
    ) -> Sequence[tuple[str, BoolArray]]:
        mask = self.filter(state, template, view)
        return () if mask is None else ((REASON, ~mask),)

    def cures(self, change: ClusterChange, template: PodTemplate | None, view: ClusterView) -> bool:
        if change.what is Change.OBJECT:
            return change.kind in self.watches
        if change.what is Change.ROOM_FREED and change.pod is not None:
            return any(_may_count(volume) for volume in change.pod.spec.volumes or ())
        return True

    def _limited(self, view: ObjectQueries) -> frozenset[str]:
        """The drivers, and the old in-tree plugins, that some node has a limit for."""
        revision = view.objects_revision(NODES)
        if self._drivers[0] != revision:
            found = {name for csi_node in view.objects(NODES).values() for name in self._limits(csi_node)}
            self._drivers = (revision, frozenset(found | set(self._classic)))
        return self._drivers[1]

    def _limits(self, csi_node: CsiNode | None) -> Mapping[str, int]:
        if csi_node is None:
            return self._classic
        return {
            driver.name: driver.allocatable.count
            for driver in csi_node.spec.drivers or ()
            if driver.allocatable is not None and driver.allocatable.count is not None
        }

    def _attachments(self, view: ObjectQueries) -> Mapping[str, frozenset[_Unique]]:
        """By node: volumes attached although no pod there uses them (any more)."""
        revision = (view.objects_revision(ATTACHMENTS), view.objects_revision(VOLUMES))
        if self._attached[0] != revision:
            found: dict[str, set[_Unique]] = {}
            for attachment in view.objects(ATTACHMENTS).values():
                spec = attachment.spec
                volume = volume_of(view, spec.source.persistent_volume_name)
                if spec.attacher and volume is not None and volume.spec.csi is not None:
                    unique = (spec.attacher, volume.spec.csi.volume_handle)
                    found.setdefault(spec.node_name, set()).add(unique)
            self._attached = (revision, {name: frozenset(one) for name, one in found.items()})
        return self._attached[1]


def _may_count(volume: Volume) -> bool:
    return bool(volume.persistent_volume_claim or volume.ephemeral or _in_tree(volume))


def _in_tree(source: Volume | VolumeSpec) -> _Unique | None:
    """(in-tree plugin, the disk's name); None: no plugin with a limit of its own."""
    if source.aws_elastic_block_store is not None:
        return _EBS, source.aws_elastic_block_store.volume_id
    if source.gce_persistent_disk is not None:
        return _GCE, source.gce_persistent_disk.pd_name
    if source.azure_disk is not None:
        return "kubernetes.io/azure-disk", source.azure_disk.disk_uri
    if source.cinder is not None:
        return "kubernetes.io/cinder", source.cinder.volume_id
    return None


def _used_by(template: PodTemplate, view: ObjectQueries) -> set[_Unique]:
    """The volumes of its pods, each once; missing claims count for nothing."""
    found = {unique for volume in template.volumes if (unique := _in_tree(volume)) is not None}
    for key in claims_of(template):
        claim = claim_of(view, key)
        unique = _behind(claim, view) if claim is not None else None
        if unique is not None:
            found.add(unique)
    return found


def _behind(claim: PersistentVolumeClaim, view: ObjectQueries) -> _Unique | None:
    """The volume that the claim is bound to; if unbound, the one that its class would provision."""
    volume = volume_of(view, claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is not None:
        csi = volume.spec.csi
        if csi is not None:
            return (csi.driver, csi.volume_handle) if csi.driver and csi.volume_handle else None
        return _in_tree(volume.spec)
    storage_class = class_of(view, class_name(claim))
    if storage_class is None or not storage_class.provisioner:
        return None
    # A placeholder that no volume has as its name: the volume does not exist yet.
    return storage_class.provisioner, f"{claim.metadata.namespace}/{claim.metadata.name}"


def _counted(used: Iterable[_Unique], csi_node: CsiNode | None) -> set[_Unique]:
    """As the node counts them: if it has CSI, in-tree volumes count for their driver."""
    if csi_node is None:
        return set(used)
    return {(_DRIVERS.get(plugin, plugin), name) for plugin, name in used}


def _fits(new: set[_Unique], held: set[_Unique] | frozenset[_Unique], limits: Mapping[str, int]) -> bool:
    for driver in {driver for driver, _ in new}:
        if driver in limits:
            n_new = sum(one == driver for one, _ in new)
            n_held = sum(one == driver for one, _ in held)
            if n_held + n_new > limits[driver]:
                return False
    return True
