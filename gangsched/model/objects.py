"""Kubernetes objects as the scheduler reads them: only the fields that matter for decisions.

Decoded by msgspec straight from the API server's JSON, immutable by convention once decoded, passed by
reference everywhere. Unknown fields are skipped by the decoder and cost almost nothing. `gc=False`: no object
here can be part of a reference cycle. Not here: derived values (core.cache.cache) and the meaning of
annotations (model.devices.annotations, model.pod_group).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec


class _Wire(msgspec.Struct, rename="camel", gc=False, omit_defaults=True):
    """Shared options of all decoded objects."""


class OwnerReference(_Wire):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(_Wire):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    owner_references: list[OwnerReference] | None = None

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that controls the object."""
        return next((one for one in self.owner_references or () if one.controller), None)


class ResourceRequirements(_Wire):
    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class ContainerPort(_Wire):
    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class RestartRule(_Wire):
    action: str = ""


class VolumeMount(_Wire):
    bind_mount_options: list[str] | None = None


class Container(_Wire):
    name: str = ""
    image: str = ""
    resources: ResourceRequirements | None = None
    ports: list[ContainerPort] | None = None
    restart_policy: str | None = None
    restart_policy_rules: list[RestartRule] | None = None
    volume_mounts: list[VolumeMount] | None = None
    """Only those that need a kubelet that can mount with options; the names of others are random."""

    def __post_init__(self) -> None:
        if self.volume_mounts is not None:
            self.volume_mounts = [one for one in self.volume_mounts if one.bind_mount_options] or None


class Toleration(msgspec.Struct, rename="camel", gc=False, frozen=True, omit_defaults=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class SelectorRequirement(_Wire):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class NodeSelectorTerm(_Wire):
    match_expressions: list[SelectorRequirement] | None = None
    match_fields: list[SelectorRequirement] | None = None


class NodeSelector(_Wire):
    node_selector_terms: list[NodeSelectorTerm] | None = None


class PreferredSchedulingTerm(_Wire):
    weight: int = 0
    preference: NodeSelectorTerm = msgspec.field(default_factory=NodeSelectorTerm)


class NodeAffinity(_Wire):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredSchedulingTerm] | None = None


class LabelSelector(_Wire):
    """As written; model.selectors compiles it."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[SelectorRequirement] | None = None


class PodAffinityTerm(_Wire):
    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class WeightedPodAffinityTerm(_Wire):
    weight: int = 0
    pod_affinity_term: PodAffinityTerm = msgspec.field(default_factory=PodAffinityTerm)


class PodAffinity(_Wire):
    """Terms that attract a pod to other pods, or repel it."""

    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] | None = None
    preferred_during_scheduling_ignored_during_execution: list[WeightedPodAffinityTerm] | None = None


class Affinity(_Wire):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(_Wire):
    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class ImageVolume(_Wire):
    reference: str = ""


class ClaimVolume(_Wire):
    claim_name: str = ""


class EphemeralVolume(_Wire):
    """A claim of the pod's own, made from a template and named after pod and volume."""


class GceDisk(_Wire):
    pd_name: str = ""
    read_only: bool = False


class EbsVolume(_Wire):
    volume_id: str = msgspec.field(default="", name="volumeID")


class AzureDisk(_Wire):
    disk_uri: str = msgspec.field(default="", name="diskURI")


class CinderVolume(_Wire):
    volume_id: str = msgspec.field(default="", name="volumeID")


class RbdImage(_Wire):
    """The monitors of an inline volume have the same field name in a PersistentVolume."""

    monitors: list[str] | None = None
    pool: str = "rbd"
    image: str = ""
    read_only: bool = False


class IscsiVolume(_Wire):
    iqn: str = ""
    read_only: bool = False


class InlineCsiVolume(_Wire):
    driver: str = ""


class Volume(_Wire):
    """Only what restricts where a pod may run; most volumes (tokens, maps, scratch) do not."""

    name: str = ""
    image: ImageVolume | None = None
    persistent_volume_claim: ClaimVolume | None = None
    ephemeral: EphemeralVolume | None = None
    gce_persistent_disk: GceDisk | None = None
    aws_elastic_block_store: EbsVolume | None = None
    azure_disk: AzureDisk | None = None
    cinder: CinderVolume | None = None
    rbd: RbdImage | None = None
    iscsi: IscsiVolume | None = None
    csi: InlineCsiVolume | None = None

    @property
    def inline_driver(self) -> str:
        """The CSI driver that makes the volume on the pod's node; "": none does."""
        return "" if self.csi is None else self.csi.driver

    @property
    def is_storage(self) -> bool:
        """A disk in one place, or one with an attach limit."""
        return any(
            one is not None
            for one in (
                *(self.persistent_volume_claim, self.ephemeral, self.gce_persistent_disk),
                *(self.aws_elastic_block_store, self.azure_disk, self.cinder, self.rbd, self.iscsi),
            )
        )


class SchedulingGate(_Wire):
    name: str = ""


class SchedulingGroup(_Wire):
    """The core API's reference from a pod to its PodGroup (KEP-4671)."""

    pod_group_name: str = ""


class PodResourceClaim(_Wire):
    """A claim of Dynamic Resource Allocation that the pod uses: one by its name, or one made for it."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSpec(_Wire):
    node_name: str = ""
    scheduler_name: str = ""
    scheduling_gates: list[SchedulingGate] | None = None
    scheduling_group: SchedulingGroup | None = None
    workload_ref: dict[str, Any] | None = None
    """A Workload of scheduling.k8s.io/v1alpha1, by which Kubernetes 1.35 makes gangs; no later one does."""
    priority: int | None = None
    preemption_policy: str | None = None
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    containers: list[Container] = []
    init_containers: list[Container] | None = None
    resources: ResourceRequirements | None = None
    overhead: dict[str, str | int | float] | None = None
    host_network: bool = False
    host_users: bool | None = None
    topology_spread_constraints: list[TopologySpreadConstraint] | None = None
    volumes: list[Volume] | None = None
    """Only volumes that restrict nodes.

    The API server gives each pod a token volume with a random name, which would make all pods of a gang
    differ.
    """
    resource_claims: list[PodResourceClaim] | None = None
    not_understood: str = msgspec.field(default="", name="gangsched.io/not-understood")
    """Why the pod is held for a field of a newer Kubernetes: set at the edge, and no field of Kubernetes."""

    def __post_init__(self) -> None:
        if self.volumes is not None:
            kept = [one for one in self.volumes if one.is_storage or one.image is not None or one.csi]
            self.volumes = kept or None


class Condition(_Wire):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    observed_generation: int = 0


class ContainerRun(_Wire):
    """A container's start; its time does not matter."""


class ContainerEnd(_Wire):
    """A container's end; its times and code do not matter."""

    reason: str = ""


class ContainerState(_Wire):
    running: ContainerRun | None = None
    terminated: ContainerEnd | None = None


class ResourceHealth(_Wire):
    """A device of a container. health: Healthy, Unhealthy or Unknown."""

    resource_id: str = msgspec.field(default="", name="resourceID")
    health: str = ""


class ResourceStatus(_Wire):
    """A container's devices of one resource, or of one claim: see model.devices.unwell."""

    name: str = ""
    resources: list[ResourceHealth] | None = None


class ContainerStatus(_Wire):
    """Kubelet writes an end with the reason ContainerStatusUnknown for every container that it cannot find
    when the pod ends, also for one that it never made; only one that was made has an ID.

    Source: pkg/kubelet/status/status_manager.go, TerminatePod.
    """

    state: ContainerState = msgspec.field(default_factory=ContainerState)
    last_state: ContainerState = msgspec.field(default_factory=ContainerState)
    container_id: str = msgspec.field(default="", name="containerID")
    allocated_resources_status: list[ResourceStatus] | None = None

    @property
    def has_run(self) -> bool:
        """Whether the container has ever run."""
        if self.last_state.running or self.last_state.terminated or self.state.running:
            return True
        end = self.state.terminated
        return end is not None and (end.reason != "ContainerStatusUnknown" or bool(self.container_id))


class PodResourceClaimStatus(_Wire):
    """resource_claim_name: of the claim that was made for that entry; None: it needs none."""

    name: str = ""
    resource_claim_name: str | None = None


class RequestMapping(_Wire):
    """The request of a claim that serves a resource to a container."""

    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class ExtendedClaimStatus(_Wire):
    """The claim by which device classes serve a pod's extended resources."""

    request_mappings: list[RequestMapping] = []
    resource_claim_name: str = ""


class PodStatus(_Wire):
    phase: str = ""
    conditions: list[Condition] | None = None
    nominated_node_name: str = ""
    start_time: datetime | None = None
    """When kubelet admitted the pod, by the node's clock."""
    observed_generation: int = 0
    """The generation of the spec that the kubelet has seen; 0: not stated."""
    reason: str = ""
    """Why it is in this phase, in one word; kubelet gives one to pods that it refuses or ends itself."""
    container_statuses: list[ContainerStatus] | None = None
    """Kept of pods that have failed; of others only devices that are not well (kube.watch.pod_reader)."""
    init_container_statuses: list[ContainerStatus] | None = None
    resource_claim_statuses: list[PodResourceClaimStatus] | None = None
    extended_resource_claim_status: ExtendedClaimStatus | None = None


class Pod(_Wire):
    metadata: ObjectMeta
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)
    unreadable: str = msgspec.field(default="", name="gangsched.io/unreadable")
    """The paths that cannot be read, for people: set at the edge, and no field of Kubernetes."""

    @property
    def key(self) -> str:
        """`namespace/name`, for people; state is keyed by UID."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def uses_claims(self) -> bool:
        """Whether it has claims of devices: its own, or one that was made for its extended resources."""
        return bool(self.spec.resource_claims) or self.status.extended_resource_claim_status is not None

    @property
    def is_terminal(self) -> bool:
        """Whether its containers have stopped for good, so that it holds nothing on its node."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def bound_at(self) -> datetime | None:
        """When the pod was bound, by its condition; None: no condition, or it was created on its node."""
        for one in self.status.conditions or ():
            if one.type == "PodScheduled" and one.status == "True" and one.last_transition_time is not None:
                return one.last_transition_time
        return None


class Taint(msgspec.Struct, rename="camel", gc=False, frozen=True, omit_defaults=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(_Wire):
    unschedulable: bool = False
    taints: list[Taint] | None = None


class NodeImage(_Wire):
    names: list[str] | None = None
    size_bytes: int = 0


class NodeStatus(_Wire):
    allocatable: dict[str, str | int | float] | None = None
    conditions: list[Condition] | None = None
    images: list[NodeImage] | None = None
    """Kubelets report fifty a node; core.cache.nodes.images keeps them, and the cache's nodes omit them."""
    declared_features: list[str] | None = None


class Node(_Wire):
    metadata: ObjectMeta
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class CustomObject(_Wire):
    """A PodGroup of any dialect, its spec and status left as plain JSON for model.pod_group to read."""

    metadata: ObjectMeta
    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


class PlainObject(dict[str, Any]):
    """An object of a kind that only an out-of-tree plugin knows, as plain JSON."""

    @property
    def metadata(self) -> ObjectMeta:
        return msgspec.convert(self.get("metadata") or {}, ObjectMeta)
