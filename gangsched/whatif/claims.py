"""Resource claims of a job's pods, as the resourceclaim controller would make them; and what writes of the
core make of a claim. Pure.

Called by manifests, and by trial.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from gangsched.errors import ConfigError
from gangsched.model.effects import DropClaim, MakeClaim, PatchClaim
from gangsched.model.events import ClaimGone, ClaimPatched, Event, ObjectGone, ObjectPut
from gangsched.model.objects import OwnerReference, Pod, PodResourceClaimStatus
from gangsched.model.resource_claims.objects import (
    CLAIMS,
    Allocation,
    ClaimMeta,
    Consumer,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimStatus,
)
from gangsched.whatif.makers.templates import Json

TEMPLATE = ("resource.k8s.io", "ResourceClaimTemplate")
Templates = Mapping[tuple[str, str], ResourceClaimSpec]
"""By namespace and name: what claims of it ask for."""


class Made(NamedTuple):
    """A pod with its claims. missing: templates that it names and that are not known."""

    pod: Pod
    claims: tuple[ResourceClaim, ...]
    missing: tuple[str, ...]


def template_of(document: Json) -> ResourceClaimSpec:
    """Raises: ConfigError."""
    spec = document.get("spec")
    try:
        return msgspec.convert(spec.get("spec") if isinstance(spec, dict) else None, ResourceClaimSpec)
    except msgspec.ValidationError as error:
        raise ConfigError(f"is no ResourceClaimTemplate: {str(error)[:200]}", path="spec.spec") from None


def with_claims(pod: Pod, templates: Templates) -> Made:
    """Makes the claims that the pod has by templates."""
    meta = pod.metadata
    claims: list[ResourceClaim] = []
    missing: list[str] = []
    statuses: list[PodResourceClaimStatus] = []
    owner = OwnerReference(api_version="v1", kind="Pod", name=meta.name, uid=meta.uid, controller=True)
    for entry in pod.spec.resource_claims or ():
        if (template := entry.resource_claim_template_name) is None:
            continue
        spec = templates.get((meta.namespace, template))
        if spec is None:
            missing.append(template)
            continue
        name = f"{meta.name}-{entry.name}"
        made = ClaimMeta(
            name=name,
            namespace=meta.namespace,
            uid=f"{meta.uid}-{entry.name}",
            resource_version="1",
            owner_references=[owner],
        )
        claims.append(ResourceClaim(made, spec))
        statuses.append(PodResourceClaimStatus(entry.name, name))
    if statuses:
        pod = replace(pod, status=replace(pod.status, resource_claim_statuses=statuses))
    return Made(pod, tuple(claims), tuple(missing))


def made(effect: MakeClaim) -> list[Event]:
    """What follows when a claim is made for a pod's extended resources."""
    raw = msgspec.json.decode(effect.body)
    raw["metadata"] |= {"uid": f"{effect.uid}-made", "resourceVersion": "1"}
    claim = msgspec.convert(raw, ResourceClaim, strict=False)
    return [ObjectPut(CLAIMS, claim), ClaimPatched(effect.uid, effect.ticket, claim)]


def dropped(effect: DropClaim) -> list[Event]:
    """What follows when such a claim is deleted."""
    gone = ObjectGone(CLAIMS, effect.namespace, effect.name, effect.uid)
    return [ClaimGone(effect.uid, effect.ticket), gone]


def patched(claim: ResourceClaim, patch: PatchClaim) -> ResourceClaim:
    """Returns the claim after the patch."""
    body: dict[str, Any] = msgspec.json.decode(patch.patch)
    meta = replace(claim.metadata, resource_version=_next(claim.metadata.resource_version))
    if not patch.is_status:
        more = body["metadata"]
        annotations = {**(meta.annotations or {}), **(more.get("annotations") or {})}
        finalizers = more.get("finalizers", meta.finalizers)
        return replace(claim, metadata=replace(meta, annotations=annotations, finalizers=finalizers))
    status, more = claim.status, body["status"]
    if "allocation" in more:
        stated = more["allocation"]
        status = replace(
            status, allocation=None if stated is None else msgspec.convert(stated, Allocation, strict=False)
        )
    if "reservedFor" in more:
        status = replace(status, reserved_for=msgspec.convert(more["reservedFor"] or [], list[Consumer]))
    return replace(claim, metadata=meta, status=status)


def given_back(claim: ResourceClaim, gone: Sequence[str]) -> ResourceClaim | None:
    """Returns the claim without these pods, as the resourceclaim controller leaves it; None: it goes with the
    pod that it was made for."""
    owner = claim.metadata.controller
    if owner is not None and owner.uid in gone:
        return None
    left = [one for one in claim.status.reserved_for or () if one.uid not in gone]
    meta = replace(claim.metadata, resource_version=_next(claim.metadata.resource_version))
    status = replace(claim.status, reserved_for=left) if left else ResourceClaimStatus()
    return replace(claim, metadata=meta, status=status)


def _next(version: str) -> str:
    return str(int(version) + 1) if version.isdecimal() else f"{version}+"
