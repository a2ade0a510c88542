"""Paths, bodies and answers of requests about a ResourceClaim, from values to bytes and back. No I/O here.

A status write cannot change annotations and finalizers, so they go to the claim itself. Called by
kube.effects.claim_lane, kube.effects.write_lanes and kube.effects.bumps.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from gangsched.errors import ApiError
from gangsched.kube.evidence import Target
from gangsched.kube.transport.http1 import segment
from gangsched.kube.watch.decode import followed
from gangsched.model.effects import BumpClaim, DropClaim, GetClaim, MakeClaim, NoteClaim, PatchClaim
from gangsched.model.objects import ExtendedClaimStatus
from gangsched.model.resource_claims.objects import CLAIMS, ResourceClaim
from gangsched.model.text import bounded

_KIND = followed(CLAIMS)
_GROUP_VERSION = _KIND.api_version("v1")

AboutClaim = PatchClaim | MakeClaim | DropClaim | GetClaim | BumpClaim

_encode = msgspec.json.Encoder().encode
# Fields of an object, not decoded: parameters of drivers must stay the bytes that they are.
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_NULL = msgspec.Raw(b"null")


def claims_path(namespace: str) -> str:
    """Path of a namespace's claims."""
    return f"/apis/{_GROUP_VERSION}/namespaces/{segment(namespace)}/{_KIND.resource}"


def claim_path(effect: AboutClaim, subresource: str = "") -> str:
    """Path of a claim or of its status."""
    path = f"{claims_path(effect.namespace)}/{segment(effect.name)}"
    return f"{path}/{subresource}" if subresource else path


def claim_target(effect: AboutClaim) -> Target:
    """The claim as a target."""
    return Target(_KIND.resource, _KIND.kind, effect.name, effect.namespace, _KIND.group)


def claim_body(effect: PatchClaim, wall_s: float) -> bytes:
    """The patch, for this version of this claim only; a new allocation gets its time."""
    patch, only = _fields(effect.patch), {"uid": effect.uid, "resourceVersion": effect.resource_version}
    if not effect.is_status:
        return _encode({**patch, "metadata": {**_fields(patch.get("metadata", b"{}")), **only}})
    # A JSON patch (RFC 6902), since merge patches have no nulls: of parameters they would be lost.
    status: dict[str, Any] = dict(_fields(patch["status"]))
    allocation = status.get("allocation", _NULL)
    if allocation != _NULL:
        now = datetime.fromtimestamp(int(wall_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        status["allocation"] = {"allocationTimestamp": now, **_fields(allocation)}
    steps = [("replace", f"/metadata/{name}", value) for name, value in only.items()]
    steps += [("add", f"/status/{name}", value) for name, value in status.items()]
    return _encode([{"op": op, "path": path, "value": value} for op, path, value in steps])


def drop_body(effect: DropClaim) -> bytes:
    """DeleteOptions for this version of this claim only."""
    preconditions = {"uid": effect.uid, "resourceVersion": effect.resource_version}
    return _encode({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions})


def note_body(effect: NoteClaim) -> bytes:
    """A merge patch of the status of this version of this pod only."""
    metadata = {"uid": effect.uid, "resourceVersion": effect.resource_version}
    return _encode({"metadata": metadata, "status": {"extendedResourceClaimStatus": effect.claim}})


class _Stating(msgspec.Struct, gc=False, rename="camel"):
    extended_resource_claim_status: ExtendedClaimStatus | None = None


class _StatingPod(msgspec.Struct, gc=False):
    """A pod, read only for the claim that its status states."""

    status: _Stating = msgspec.field(default_factory=_Stating)


_decode_stating = bounded.lenient_decoder(_StatingPod)


def keeps_note(body: bytes, effect: NoteClaim) -> bool:
    """Whether the pod in an answer states the claim; API servers before Kubernetes 1.36 drop the field."""
    stated = _decode_stating(body).status.extended_resource_claim_status
    return stated is not None and stated.resource_claim_name == effect.claim.resource_claim_name


def claim_application(effect: BumpClaim) -> bytes:
    """An apply patch of the claim's status that has none of its fields."""
    metadata = {"namespace": effect.namespace, "name": effect.name, "uid": effect.uid}
    return _encode({"apiVersion": _GROUP_VERSION, "kind": _KIND.kind, "metadata": metadata, "status": {}})


def read_claim(body: bytes, effect: AboutClaim) -> ResourceClaim | None:
    """The claim in an answer, in part if it does not parse; None: another claim has this name. One whose UID
    is not known yet is told by the pod that it was made for.

    Raises: ApiError, when the body is no claim of that name.
    """
    try:
        claim: ResourceClaim | None = _KIND.decode_object(body)
    except msgspec.MsgspecError:
        claim = _KIND.read_in_part(body, None)
    if claim is None or not claim.metadata.uid or claim.key != f"{effect.namespace}/{effect.name}":
        raise ApiError(f"an answer about {claim.key if claim is not None else 'no claim that can be read'}")
    owner = "" if isinstance(effect, (PatchClaim, BumpClaim, DropClaim)) else effect.owner
    is_it = claim.extended_for == owner if owner else claim.metadata.uid == effect.uid
    return claim if is_it else None
