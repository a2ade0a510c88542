"""A claim of devices as its controller and kubelets read it, and which claim an entry of a pod means.

Source: k8s.io/dynamic-resource-allocation/resourceclaim of Kubernetes 1.37.
"""

from __future__ import annotations

import msgspec

from gangsched.lab.apiserver.simulated.view import Meta, PodClaim, PodView
from gangsched.lab.apiserver.storage.store import Item

MAX_CONSUMERS = 256
PROTECTION = "resource.kubernetes.io/delete-protection"
POD_CLAIM = "resource.kubernetes.io/pod-claim-name"


class Consumer(msgspec.Struct, rename="camel", frozen=True):
    """One entry of reservedFor."""

    resource: str = ""
    name: str = ""
    uid: str = ""
    api_group: str = ""

    @property
    def is_pod(self) -> bool:
        return not self.api_group and self.resource == "pods"


class _Result(msgspec.Struct, rename="camel"):
    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(default=None, name="shareID")
    admin_access: bool | None = None


class _Devices(msgspec.Struct):
    results: list[_Result] = msgspec.field(default_factory=list)


class _Allocation(msgspec.Struct):
    devices: _Devices = msgspec.field(default_factory=_Devices)


class _Status(msgspec.Struct, rename="camel"):
    allocation: _Allocation | None = None
    reserved_for: list[Consumer] = msgspec.field(default_factory=list)


class ClaimView(msgspec.Struct):
    """A claim as of the last event."""

    metadata: Meta
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def is_allocated(self) -> bool:
        return self.status.allocation is not None

    @property
    def is_deleted(self) -> bool:
        """Whether it is marked for deletion."""
        return bool(self.metadata.deletion_timestamp)

    @property
    def is_protected(self) -> bool:
        return PROTECTION in self.metadata.finalizers

    @property
    def devices(self) -> list[tuple[str, str, str, str]]:
        """Driver, pool, device and share (or "") of what it holds; admin access holds nothing."""
        results = self.status.allocation.devices.results if self.status.allocation else ()
        return [
            (result.driver, result.pool, result.device, result.share_id or "")
            for result in results
            if not result.admin_access
        ]

    @property
    def can_be_reserved(self) -> bool:
        return len(self.status.reserved_for) < MAX_CONSUMERS

    @property
    def maker(self) -> tuple[str, str]:
        """Name and UID of the pod for which it was made; empty if a user made it."""
        for owner in self.metadata.owner_references:
            if owner.controller and owner.api_version == "v1" and owner.kind == "Pod":
                return owner.name, owner.uid
        return "", ""

    def is_for(self, pod: PodView) -> bool:
        """Whether it was made for this pod."""
        owners = self.metadata.owner_references
        return any(owner.controller and owner.uid == pod.uid for owner in owners)

    def is_reserved_for(self, pod: PodView) -> bool:
        return any(consumer.uid == pod.uid for consumer in self.status.reserved_for)


_decode = msgspec.json.Decoder(ClaimView).decode


def claim_of(item: Item) -> ClaimView:
    return _decode(item.raw)


class NotYet(LookupError):
    """The claim of this entry has not been made."""


def claim_name(pod: PodView, entry: PodClaim) -> str | None:
    """Returns the name of the claim that an entry of `spec.resourceClaims` means; None: it needs none.

    Raises: NotYet.
    """
    if entry.resource_claim_name is not None:
        return entry.resource_claim_name
    for status in pod.status.resource_claim_statuses:
        if status.name == entry.name:
            return status.resource_claim_name
    raise NotYet(f"claim {entry.name} has not been made for pod {pod.key}")
