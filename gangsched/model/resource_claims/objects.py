"""ResourceSlice, DeviceClass, ResourceClaim and DeviceTaintRule of resource.k8s.io/v1: the fields we read.

Decoded like model.objects. Parameters of drivers stay the bytes that they were: they are carried into a
claim's allocation and mean nothing here. Source: k8s.io/api v0.37.1 `resource/v1/types.go`, whose bounds the
API server keeps to.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

import msgspec

from gangsched.model.objects import Condition, NodeSelector, ObjectMeta
from gangsched.model.text import bounded

# The kinds, as named in events and view.objects.
SLICES = "resourceslices.resource.k8s.io"
CLAIMS = "resourceclaims.resource.k8s.io"
DEVICE_CLASSES = "deviceclasses.resource.k8s.io"
TAINT_RULES = "devicetaintrules.resource.k8s.io"
DEVICE_CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"
"""Before a DeviceClass' name: the resource by which any pod asks for a device of it (KEP-5004)."""

CLAIMED_FOR_KEY = "gangsched.io/claimed-for"
"""On a claim: the gang that it is being, or was, allocated for; says whose to give back after a crash."""
FINALIZER = "resource.kubernetes.io/delete-protection"
POD_CLAIM_ANNOTATION = "resource.kubernetes.io/pod-claim-name"
EXTENDED_CLAIM_ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
"""On a claim that a scheduler has made for a pod's extended resources: "true"."""
MAX_RESULTS = 32
"""Devices that the allocation of one claim may list."""
MAX_RESERVED_FOR = 256
MAX_PARAMETERS = 64 * 1024
"""The API server allows 10 KiB of parameters, in which a character may be written as six."""
MAX_PARAMETER_DEPTH = 40
"""With what is around them less than bounded.MAX_DEPTH: parts of them are never left out unnoticed."""
EXACT_COUNT, ALL = "ExactCount", "All"

Amount = str | int | float
"""A quantity as the API writes it: a text, where somebody careless a number."""


class DeviceId(NamedTuple):
    """What tells devices apart, wherever they are published."""

    driver: str
    pool: str
    name: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.name}"


class PoolId(NamedTuple):
    driver: str
    name: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.name}"


class _Kept(msgspec.Struct, rename="camel", gc=False, omit_defaults=True):
    """Shared options of all objects here."""


class _Frozen(msgspec.Struct, rename="camel", gc=False, omit_defaults=True, frozen=True):
    """The same, for values that are compared."""


class Attribute(msgspec.Struct, frozen=True, kw_only=True):
    """An attribute as the API writes it: one of its fields is set. Lists are alpha in Kubernetes 1.37."""

    int_value: int | None = msgspec.field(name="int", default=None)
    bool_value: bool | None = msgspec.field(name="bool", default=None)
    string_value: str | None = msgspec.field(name="string", default=None)
    version_value: str | None = msgspec.field(name="version", default=None)
    int_values: tuple[int, ...] | None = msgspec.field(name="ints", default=None)
    bool_values: tuple[bool, ...] | None = msgspec.field(name="bools", default=None)
    string_values: tuple[str, ...] | None = msgspec.field(name="strings", default=None)
    version_values: tuple[str, ...] | None = msgspec.field(name="versions", default=None)


class Counter(_Kept):
    value: Amount = "0"


class CounterSet(_Kept):
    name: str = ""
    counters: dict[str, Counter] = {}


class CounterConsumption(_Kept):
    counter_set: str = ""
    counters: dict[str, Counter] = {}
    compatibility_groups: list[str] | None = None


class CapacityRange(_Kept):
    min: Amount | None = None
    max: Amount | None = None
    step: Amount | None = None


class CapacityPolicy(_Kept):
    """What may be requested of a capacity; other requests are rounded up to it, or cannot be met."""

    default: Amount | None = None
    valid_values: list[Amount] | None = None
    valid_range: CapacityRange | None = None


class DeviceCapacity(_Kept):
    value: Amount = "0"
    request_policy: CapacityPolicy | None = None


class DeviceTaint(_Frozen, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""

    @property
    def keeps_out(self) -> bool:
        """Whether requests that do not tolerate it get no such device; effects not known here do nothing."""
        return self.effect in ("NoSchedule", "NoExecute")


class DeviceToleration(_Frozen, frozen=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None

    def tolerates(self, taint: DeviceTaint) -> bool:
        """An operator that is not known tolerates nothing."""
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.operator == "Exists" or (self.operator in ("", "Equal") and self.value == taint.value)


class SliceDevice(_Kept):
    """A device of a slice. all_nodes, node_name, node_selector: with per_device_node_selection only.

    node_allocatable_resources, node_allocatable_resource_mappings: what it takes of its node
    (KEP-5517, alpha).
    """

    name: str = ""
    attributes: dict[str, Attribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: list[CounterConsumption] | None = None
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    taints: list[DeviceTaint] | None = None
    binds_to_node: bool = False
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] | None = None
    allow_multiple_allocations: bool = False
    node_allocatable_resources: dict[str, msgspec.Raw] | None = None
    node_allocatable_resource_mappings: dict[str, msgspec.Raw] | None = None

    @property
    def takes_of_its_node(self) -> bool:
        """Whether it uses processors or memory of its node, as an alpha field of Kubernetes 1.37 says."""
        return bool(self.node_allocatable_resources or self.node_allocatable_resource_mappings)


class ResourcePool(_Kept):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class SliceSpec(_Kept):
    driver: str = ""
    pool: ResourcePool = msgspec.field(default_factory=ResourcePool)
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    devices: list[SliceDevice] = []
    per_device_node_selection: bool = False
    shared_counters: list[CounterSet] | None = None
    skip_node_operations: list[str] | None = None
    partition_type_attribute: str | None = None


class ResourceSlice(_Kept):
    """unreadable: the paths that cannot be read, for people; set at the edge, and no field of Kubernetes. No
    device of such a slice's pool is given out.
    """

    metadata: ObjectMeta
    spec: SliceSpec = msgspec.field(default_factory=SliceSpec)
    unreadable: str = msgspec.field(default="", name="gangsched.io/unreadable")

    @property
    def pool_id(self) -> PoolId:
        """The pool that its devices are in."""
        return PoolId(self.spec.driver, self.spec.pool.name)


class CelSelector(_Frozen, frozen=True):
    expression: str = ""


class SelectorEntry(_Frozen, frozen=True):
    cel: CelSelector | None = None


class CapacityRequests(_Kept):
    requests: dict[str, Amount] | None = None


class DerivedAttribute(_Kept):
    name: str = ""


class _Request(_Kept):
    """What both kinds of requests have."""

    device_class_name: str = ""
    selectors: list[SelectorEntry] | None = None
    allocation_mode: str = EXACT_COUNT
    count: int = 1
    tolerations: list[DeviceToleration] | None = None
    capacity: CapacityRequests | None = None
    derived_attributes: list[DerivedAttribute] | None = None


class ExactRequest(_Request):
    admin_access: bool = False


class SubRequest(_Request):
    name: str = ""


class DeviceRequest(_Kept):
    """One of `exactly` and `first_available` is set."""

    name: str = ""
    exactly: ExactRequest | None = None
    first_available: list[SubRequest] | None = None


class ClaimConstraint(_Kept):
    """requests: names of requests or, as "request/subrequest", of subrequests; without any, all."""

    requests: list[str] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class OpaqueConfiguration(_Kept):
    """Raises: ValueError, if the parameters are too long or nested too deep to be carried along."""

    driver: str = ""
    parameters: msgspec.Raw = msgspec.Raw(b"{}")

    def __post_init__(self) -> None:
        try:
            bounded.check(self.parameters, max_bytes=MAX_PARAMETERS, max_depth=MAX_PARAMETER_DEPTH)
        except msgspec.MsgspecError as error:  # so that the decoder adds where it is
            raise ValueError(f"a driver's configuration {error}") from None


class ClassConfiguration(_Kept):
    opaque: OpaqueConfiguration | None = None


class ClaimConfiguration(ClassConfiguration):
    requests: list[str] | None = None


class DeviceClaim(_Kept):
    requests: list[DeviceRequest] | None = None
    constraints: list[ClaimConstraint] | None = None
    config: list[ClaimConfiguration] | None = None


class ResourceClaimSpec(_Kept):
    devices: DeviceClaim = msgspec.field(default_factory=DeviceClaim)


class AllocatedDevice(_Kept):
    """One device of an allocation. share_id: of a device that several claims may have a share of."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: list[DeviceToleration] | None = None
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] | None = None
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: dict[str, Amount] | None = None

    @property
    def id(self) -> DeviceId:
        """The device."""
        return DeviceId(self.driver, self.pool, self.device)


class AllocatedConfiguration(ClaimConfiguration):
    source: str = ""


class AllocatedDevices(_Kept):
    results: list[AllocatedDevice] = []
    config: list[AllocatedConfiguration] | None = None


class Allocation(_Kept):
    """node_selector: where the devices can be used; None: everywhere."""

    devices: AllocatedDevices = msgspec.field(default_factory=AllocatedDevices)
    node_selector: NodeSelector | None = None
    allocation_timestamp: datetime | None = None


class Consumer(_Frozen, frozen=True):
    """Whom a claim is reserved for: a pod, or a PodGroup."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class DeviceStatus(_Kept):
    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(default=None, name="shareID")
    conditions: list[Condition] | None = None


class ResourceClaimStatus(_Kept):
    allocation: Allocation | None = None
    reserved_for: list[Consumer] | None = None
    devices: list[DeviceStatus] | None = None


class ClaimMeta(ObjectMeta):
    finalizers: list[str] | None = None


class ResourceClaim(_Kept):
    """unreadable: as of slices. Such a claim holds what can be read of its allocation, and gets none."""

    metadata: ClaimMeta
    spec: ResourceClaimSpec = msgspec.field(default_factory=ResourceClaimSpec)
    status: ResourceClaimStatus = msgspec.field(default_factory=ResourceClaimStatus)
    unreadable: str = msgspec.field(default="", name="gangsched.io/unreadable")

    @property
    def key(self) -> str:
        """`namespace/name`, for people; state is keyed by UID."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def extended_for(self) -> str:
        """The UID of the pod whose extended resources the claim is for; "" if it was not made for that."""
        if (self.metadata.annotations or {}).get(EXTENDED_CLAIM_ANNOTATION) != "true":
            return ""
        owner = self.metadata.controller
        return owner.uid if owner is not None and owner.kind == "Pod" else ""


class ClassSpec(_Kept):
    selectors: list[SelectorEntry] | None = None
    config: list[ClassConfiguration] | None = None
    extended_resource_name: str = ""


class DeviceClass(_Kept):
    """A kind of devices; those of it are also given to pods that request extended_resource_name."""

    metadata: ObjectMeta
    spec: ClassSpec = msgspec.field(default_factory=ClassSpec)


class TaintSelector(_Kept):
    """None matches everything."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None

    def matches(self, device: DeviceId) -> bool:
        """Whether the taint is on that device."""
        return (
            self.driver in (None, device.driver)
            and self.pool in (None, device.pool)
            and self.device in (None, device.name)
        )


class TaintRuleSpec(_Kept):
    """Without a selector the rule is on no device."""

    device_selector: TaintSelector | None = None
    taint: DeviceTaint = msgspec.field(default_factory=DeviceTaint)


class DeviceTaintRule(_Kept):
    metadata: ObjectMeta
    spec: TaintRuleSpec = msgspec.field(default_factory=TaintRuleSpec)
