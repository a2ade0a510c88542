"""Which claims a pod uses, and what of them is still to be allocated.

Source: k8s.io/dynamic-resource-allocation v0.37.1 `resourceclaim/resourceclaim.go`: Name, IsForPod, BindTo.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from gangsched.model.objects import Pod
from gangsched.model.pod_group import GroupClaim
from gangsched.model.resource_claims.extended import ExtendedNeed
from gangsched.model.resource_claims.objects import MAX_RESERVED_FOR, Consumer, ResourceClaim


class SharingGroup(NamedTuple):
    """A PodGroup whose members share claims, which are reserved for it as a whole."""

    name: str
    uid: str
    claims: frozenset[GroupClaim]

    @property
    def consumer(self) -> Consumer:
        """Its entry in the reservations of its claims."""
        return Consumer(api_group="scheduling.k8s.io", resource="podgroups", name=self.name, uid=self.uid)


class UsedClaim(NamedTuple):
    """An entry of a pod's spec.resourceClaims. name: of its claim, None: not known yet. is_made: it was made
    from a template. is_group: it is one of the pod's PodGroup."""

    entry: str
    name: str | None
    is_made: bool
    is_group: bool

    @property
    def is_own(self) -> bool:
        """Whether it was made for this pod alone."""
        return self.is_made and not self.is_group


class ClaimNeed(NamedTuple):
    """What a pod's entry means to the scheduler; equal for pods that it need not tell apart.

    digest: of the spec of a claim of its own that is to be allocated. uid: of any other: one that others may
    use too, or that is allocated. is_group: it is reserved for the pod's PodGroup, for any number of pods.
    extended: of resources that classes serve; what that is as a claim depends on the node
    (core.resource_claims.extended).
    """

    entry: str
    digest: str = ""
    uid: str = ""
    is_group: bool = False
    extended: ExtendedNeed | None = None

    @property
    def is_own(self) -> bool:
        """Whether it is a claim of the pod's own that is still to be allocated."""
        return bool(self.digest) or self.extended is not None


def own_digests(needs: Sequence[ClaimNeed]) -> tuple[str, ...]:
    """Returns the digests of the claims of the pod's own that are to be allocated."""
    return tuple(need.digest for need in needs if need.digest)


def used_claims(pod: Pod, group: SharingGroup | None = None) -> Iterator[UsedClaim]:
    """Yields the pod's claims; entries for which none is needed are left out. group: its PodGroup, if that
    has claims."""
    named = {one.name: one.resource_claim_name for one in pod.status.resource_claim_statuses or ()}
    for entry in pod.spec.resource_claims or ():
        given, template = entry.resource_claim_name, entry.resource_claim_template_name
        is_group = group is not None and GroupClaim(entry.name, given, template) in group.claims
        if given is not None:
            yield UsedClaim(entry.name, given, is_made=False, is_group=is_group)
        elif entry.name not in named:
            yield UsedClaim(entry.name, None, is_made=True, is_group=is_group)
        elif (name := named[entry.name]) is not None:
            yield UsedClaim(entry.name, name, is_made=True, is_group=is_group)


def too_many_users(claim: ResourceClaim) -> str:
    """Returns that no further pod can use the claim, for people."""
    listed = "unless a PodGroup that lists it is theirs"
    return f"resource claim {claim.key}: at most {MAX_RESERVED_FOR} pods may use it, {listed}"


def problem_of(
    pod: Pod, claim_of: Callable[[str], ResourceClaim | None], group: SharingGroup | None = None
) -> str:
    """Returns why the pod's claims are not ready for it, in kube-scheduler's words; "" if they are.

    claim_of: a claim of the pod's namespace by its name. group: as for used_claims.
    """
    meta = pod.metadata
    for used in used_claims(pod, group):
        if used.name is None:
            return f'pod "{meta.namespace}/{meta.name}": ResourceClaim not created yet'
        claim = claim_of(used.name)
        if claim is None:
            return f'could not find ResourceClaim "{meta.namespace}/{used.name}"'
        if claim.metadata.deletion_timestamp is not None:
            return f'resourceclaim "{used.name}" is being deleted'
        if claim.unreadable:
            return f'resourceclaim "{used.name}": {claim.unreadable} cannot be read'
        controller = claim.metadata.controller
        owner, why = meta.uid, "Pod is not owner"
        if used.is_group and group is not None:
            owner, why = group.uid, f"neither Pod nor PodGroup {group.name} is the owner"
        if used.is_made and (controller is None or controller.uid != owner):
            return (
                f"ResourceClaim {meta.namespace}/{used.name} was not created for Pod "
                f"{meta.namespace}/{meta.name} ({why})"
            )
    return ""
