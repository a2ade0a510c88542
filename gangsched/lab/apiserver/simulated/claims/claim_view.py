"""A claim of devices as its controller and kubelets read it, and which claim an entry of a pod means.

Source: k8s.io/dynamic-resource-allocation/resourceclaim of Kubernetes 1.37.
"""

from __future__ import annotations

import msgspec

from gangsched.lab.apiserver.simulated.view import Named, PodClaim, PodView
from gangsched.lab.apiserver.storage.store import Item

MAX_CONSUMERS = 256
PROTECTION = "resource.kubernetes.io/delete-protection"
POD_CLAIM = "resource.kubernetes.io/pod-claim-name"
SCHEDULING = "scheduling.k8s.io"


class Consumer(msgspec.Struct, rename="camel", frozen=True):
    """One entry of reservedFor."""

    resource: str = ""
    name: str = ""
    uid: str = ""
    api_group: str = ""

    @property
    def is_pod(self) -> bool:
        return not self.api_group and self.resource == "pods"

    @property
    def is_group(self) -> bool:
        """Whether it is a PodGroup."""
        return self.api_group == SCHEDULING and self.resource == "podgroups"


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


class ClaimView(Named):
    """A claim as of the last event."""

    status: _Status = msgspec.field(default_factory=_Status)

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

    @property
    def controller_uid(self) -> str:
        """UID of what it was made for; "" if a user made it."""
        return next((owner.uid for owner in self.metadata.owner_references if owner.controller), "")

    def is_for(self, pod: PodView) -> bool:
        """Whether it was made for this pod, or for its PodGroup, whose UID no pod knows."""
        return any(
            owner.controller
            and (
                owner.uid == pod.uid
                or (
                    pod.group != ""
                    and (owner.kind, owner.name) == ("PodGroup", pod.group)
                    and owner.api_version.startswith(f"{SCHEDULING}/")
                )
            )
            for owner in self.metadata.owner_references
        )

    def is_reserved_for(self, pod: PodView) -> bool:
        """Whether it is reserved for the pod, or for its PodGroup."""
        return any(
            consumer.uid == pod.uid or (consumer.is_group and consumer.name == pod.group)
            for consumer in self.status.reserved_for
        )


class _MadeClaim(msgspec.Struct, rename="camel"):
    name: str = ""
    resource_claim_name: str | None = None


class _GroupSpec(msgspec.Struct, rename="camel"):
    resource_claims: tuple[PodClaim, ...] = ()


class _GroupStatus(msgspec.Struct, rename="camel"):
    resource_claim_statuses: tuple[_MadeClaim, ...] = ()


class GroupView(Named):
    """A PodGroup as of the last event: the claims that its members share."""

    spec: _GroupSpec = msgspec.field(default_factory=_GroupSpec)
    status: _GroupStatus = msgspec.field(default_factory=_GroupStatus)

    @property
    def claims(self) -> tuple[PodClaim, ...]:
        return self.spec.resource_claims


_decode = msgspec.json.Decoder(ClaimView).decode
_decode_group = msgspec.json.Decoder(GroupView).decode


def claim_of(item: Item) -> ClaimView:
    return _decode(item.raw)


def group_of(item: Item) -> GroupView:
    return _decode_group(item.raw)


class NotYet(LookupError):
    """The claim of this entry has not been made."""


def claim_name(pod: PodView | GroupView, entry: PodClaim) -> str | None:
    """Returns the name of the claim that an entry of `spec.resourceClaims` means; None: it needs none.

    Raises: NotYet.
    """
    if entry.resource_claim_name is not None:
        return entry.resource_claim_name
    for status in pod.status.resource_claim_statuses:
        if status.name == entry.name:
            return status.resource_claim_name
    raise NotYet(f"claim {entry.name} has not been made for {pod.key}")
