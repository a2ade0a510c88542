"""Storage objects: claims, volumes, classes and drivers' reports about nodes; only the fields we read.

Decoded like model.objects. A plugin that lists their kind in its `watches` finds them in view.objects(kind).
"""

from __future__ import annotations

import msgspec

from gangsched.model.objects import (
    AzureDisk,
    CinderVolume,
    EbsVolume,
    GceDisk,
    LabelSelector,
    NodeSelector,
    ObjectMeta,
    ResourceRequirements,
)

# The kinds, as named in events and view.objects.
CLAIMS = "persistentvolumeclaims"
VOLUMES = "persistentvolumes"
CLASSES = "storageclasses.storage.k8s.io"
NODES = "csinodes.storage.k8s.io"
DRIVERS = "csidrivers.storage.k8s.io"
CAPACITIES = "csistoragecapacities.storage.k8s.io"
ATTACHMENTS = "volumeattachments.storage.k8s.io"

_ONE_POD = "ReadWriteOncePod"


class _Kept(msgspec.Struct, rename="camel", gc=False, omit_defaults=True):
    """Shared options of all objects here."""


class ClaimSpec(_Kept):
    access_modes: list[str] | None = None
    resources: ResourceRequirements | None = None
    storage_class_name: str | None = None
    volume_name: str = ""
    volume_mode: str = "Filesystem"
    selector: LabelSelector | None = None
    volume_attributes_class_name: str | None = None


class ClaimStatus(_Kept):
    phase: str = ""


class PersistentVolumeClaim(_Kept):
    metadata: ObjectMeta
    spec: ClaimSpec = msgspec.field(default_factory=ClaimSpec)
    status: ClaimStatus = msgspec.field(default_factory=ClaimStatus)

    @property
    def is_for_one_pod(self) -> bool:
        """Whether only one pod in the whole cluster may use it at a time."""
        return _ONE_POD in (self.spec.access_modes or ())


class ObjectReference(_Kept):
    name: str = ""
    namespace: str = ""
    uid: str = ""


class VolumeNodeAffinity(_Kept):
    required: NodeSelector | None = None


class CsiSource(_Kept):
    driver: str = ""
    volume_handle: str = ""


class VolumeSpec(_Kept):
    access_modes: list[str] | None = None
    capacity: dict[str, str | int | float] | None = None
    storage_class_name: str = ""
    volume_mode: str = "Filesystem"
    claim_ref: ObjectReference | None = None
    node_affinity: VolumeNodeAffinity | None = None
    volume_attributes_class_name: str | None = None
    csi: CsiSource | None = None
    gce_persistent_disk: GceDisk | None = None
    aws_elastic_block_store: EbsVolume | None = None
    azure_disk: AzureDisk | None = None
    cinder: CinderVolume | None = None


class VolumeStatus(_Kept):
    phase: str = ""


class PersistentVolume(_Kept):
    metadata: ObjectMeta
    spec: VolumeSpec = msgspec.field(default_factory=VolumeSpec)
    status: VolumeStatus = msgspec.field(default_factory=VolumeStatus)


class TopologyRequirement(_Kept):
    key: str = ""
    values: list[str] | None = None


class TopologyTerm(_Kept):
    match_label_expressions: list[TopologyRequirement] | None = None


class StorageClass(_Kept):
    metadata: ObjectMeta
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: list[TopologyTerm] | None = None


class Allocatable(_Kept):
    count: int | None = None


class NodeDriver(_Kept):
    name: str = ""
    allocatable: Allocatable | None = None


class CsiNodeSpec(_Kept):
    drivers: list[NodeDriver] | None = None


class CsiNode(_Kept):
    """The CSI drivers on the node of that name, and each one's volume limit."""

    metadata: ObjectMeta
    spec: CsiNodeSpec = msgspec.field(default_factory=CsiNodeSpec)


class CsiDriverSpec(_Kept):
    storage_capacity: bool = False
    prevent_pod_scheduling_if_missing: bool = False


class CsiDriver(_Kept):
    metadata: ObjectMeta
    spec: CsiDriverSpec = msgspec.field(default_factory=CsiDriverSpec)


class CsiStorageCapacity(_Kept):
    metadata: ObjectMeta
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: str | int | float | None = None
    maximum_volume_size: str | int | float | None = None


class AttachedVolume(_Kept):
    persistent_volume_name: str = ""


class VolumeAttachmentSpec(_Kept):
    attacher: str = ""
    node_name: str = ""
    source: AttachedVolume = msgspec.field(default_factory=AttachedVolume)


class VolumeAttachment(_Kept):
    metadata: ObjectMeta
    spec: VolumeAttachmentSpec = msgspec.field(default_factory=VolumeAttachmentSpec)
