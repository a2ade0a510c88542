"""Which claims a pod uses, and what of them is still to be allocated.

Source: k8s.io/dynamic-resource-allocation v0.37.1 `resourceclaim/resourceclaim.go`, Name and IsForPod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from gangsched.model.objects import Pod
from gangsched.model.resource_claims.objects import ResourceClaim


class UsedClaim(NamedTuple):
    """An entry of a pod's spec.resourceClaims. name: of its claim, None: not known yet. is_own: it was made
    for this pod from a template."""

    entry: str
    name: str | None
    is_own: bool


class ClaimNeed(NamedTuple):
    """What a pod's entry means to the scheduler; equal for pods that it need not tell apart.

    digest: of the spec of a claim of its own that is to be allocated. uid: of any other: one that others may
    use too, or that is allocated.
    """

    entry: str
    digest: str = ""
    uid: str = ""


def used_claims(pod: Pod) -> Iterator[UsedClaim]:
    """Yields the pod's claims; entries for which none is needed are left out."""
    named = {one.name: one.resource_claim_name for one in pod.status.resource_claim_statuses or ()}
    for entry in pod.spec.resource_claims or ():
        if entry.resource_claim_name is not None:
            yield UsedClaim(entry.name, entry.resource_claim_name, is_own=False)
        elif entry.name not in named:
            yield UsedClaim(entry.name, None, is_own=True)
        elif (name := named[entry.name]) is not None:
            yield UsedClaim(entry.name, name, is_own=True)


def problem_of(pod: Pod, claim_of: Callable[[str], ResourceClaim | None]) -> str:
    """Returns why the pod's claims are not ready for it, in kube-scheduler's words; "" if they are.

    claim_of: a claim of the pod's namespace by its name.
    """
    meta = pod.metadata
    for used in used_claims(pod):
        if used.name is None:
            return f'pod "{meta.namespace}/{meta.name}": ResourceClaim not created yet'
        claim = claim_of(used.name)
        if claim is None:
            return f'resourceclaim.resource.k8s.io "{used.name}" not found'
        if claim.metadata.deletion_timestamp is not None:
            return f'resourceclaim "{used.name}" is being deleted'
        if claim.unreadable:
            return f'resourceclaim "{used.name}": {claim.unreadable} cannot be read'
        controller = claim.metadata.controller
        if used.is_own and (controller is None or controller.uid != meta.uid):
            return (
                f"ResourceClaim {meta.namespace}/{used.name} was not created for Pod "
                f"{meta.namespace}/{meta.name} (Pod is not owner)"
            )
    return ""
