"""Writes about ResourceClaims, sent as carefully as binds: pods are bound only when their claims are written.

Lives here: the requests, and their events: ClaimPatched, ClaimRefused, ClaimUnclear and ClaimCancelled for
what BindSucceeded, BindFailed, BindUnknown and BindCancelled are to a bind in the table of
kube.effects.binding_lane, whose lane this is; a claim that is deleted is ClaimGone, and what becomes of a
pod's status is ClaimNoted. Not here: paths and bodies (kube.effects.claim_writes), reads and bumps
(kube.effects.write_lanes, kube.effects.bumps). Called by kube.effects.dispatcher only.

A patch is done only by a 2xx with the claim in a version other than the one that the patch was for. The same
version means that nothing was written: the API server found nothing to change, or something in front of it
dropped the patch. That is ClaimUnclear, and a read tells.
"""

from __future__ import annotations

import time

from gangsched.errors import ApiError
from gangsched.kube.effects.binding_lane import OnceLane
from gangsched.kube.effects.claim_writes import (
    claim_body,
    claim_path,
    claim_target,
    claims_path,
    drop_body,
    keeps_note,
    note_body,
    read_claim,
)
from gangsched.kube.effects.writes import pod_path
from gangsched.kube.evidence import Target, outline_of, pod
from gangsched.kube.status import is_success
from gangsched.kube.transport.http1 import JSON, JSON_PATCH, MERGE_PATCH, Verb
from gangsched.kube.transport.lane_connection import Call
from gangsched.model.effects import DropClaim, MakeClaim, NoteClaim, PatchClaim
from gangsched.model.events import (
    ClaimCancelled,
    ClaimGone,
    ClaimNoted,
    ClaimPatched,
    ClaimRefused,
    ClaimUnclear,
    Event,
)

ClaimRequest = PatchClaim | MakeClaim | DropClaim | NoteClaim

_OF_STATUS, _OF_CLAIM = Verb("PATCH", JSON_PATCH), Verb("PATCH", MERGE_PATCH)
_NOT_KEPT = 501
_WHY_NOT_KEPT = (
    "the API server does not keep status.extendedResourceClaimStatus: device classes serve resources of pods"
    " from Kubernetes 1.36 on, or with the feature gate DRAExtendedResource"
)
_POST, _DELETE = Verb("POST", JSON), Verb("DELETE", JSON)


class ClaimLane(OnceLane[ClaimRequest]):
    """Sends writes about claims; each results in exactly one event."""

    name = "write a resource claim"
    method = "PATCH"
    goes_on = "writes of resource claims are going out again"

    def _target(self, item: ClaimRequest) -> Target:
        return pod(item.namespace, item.name) if isinstance(item, NoteClaim) else claim_target(item)

    def _request(self, call: Call[ClaimRequest]) -> tuple[Verb, str, bytes]:
        item = call.item
        if isinstance(item, MakeClaim):
            return _POST, claims_path(item.namespace), item.body
        if isinstance(item, DropClaim):
            return _DELETE, claim_path(item), drop_body(item)
        if isinstance(item, NoteClaim):
            # Its list is replaced as a whole, so not a strategic merge patch.
            return _OF_CLAIM, pod_path(item, "status"), note_body(item)
        # A strategic merge patch writes drivers' parameters anew, their keys in order and without nulls: the
        # API server takes that for a change, and refuses. It refuses every patch of the claim, and an update
        # with its JSON too, where they are stored with blanks, or with <, > or & unescaped, as it compares
        # bytes and writes others; and so it does with entries for such an allocation, which only another
        # program can have written. ClaimRefused then says that a field is immutable.
        verb, path = (_OF_STATUS, "status") if item.is_status else (_OF_CLAIM, "")
        return verb, claim_path(item, path), claim_body(item, time.time())

    def _proves(self, call: Call[ClaimRequest], body: bytes) -> bool:
        item = call.item
        found = outline_of(body, self._target(item))
        if isinstance(item, MakeClaim):
            return found is not None
        is_it = found is not None and found.metadata.uid == item.uid
        return is_it or (isinstance(item, DropClaim) and is_success(body))

    def _succeeded(self, item: ClaimRequest, body: bytes) -> Event:
        if isinstance(item, DropClaim):
            return ClaimGone(item.uid, item.ticket)
        if isinstance(item, NoteClaim):
            if keeps_note(body, item):
                return ClaimNoted(item.uid, item.ticket)
            return ClaimNoted(item.uid, item.ticket, _NOT_KEPT, _WHY_NOT_KEPT)
        try:
            claim = read_claim(body, item)
        except ApiError as error:
            return self._unknown(item, str(error), refused=False)
        if claim is None or (
            isinstance(item, PatchClaim) and claim.metadata.resource_version in ("", item.resource_version)
        ):
            self.n_unknown += 1
            return self._unknown(item, "answered with the claim as it was", refused=False)
        return ClaimPatched(item.uid, item.ticket, claim)

    def _failed(self, item: ClaimRequest, error: ApiError) -> Event:
        if isinstance(item, NoteClaim):
            return ClaimNoted(item.uid, item.ticket, error.code, error.message)
        return ClaimRefused(item.uid, item.ticket, error.code, error.reason, error.message)

    def _unknown(self, item: ClaimRequest, why: str, *, refused: bool) -> Event:
        if isinstance(item, NoteClaim):
            return ClaimNoted(item.uid, item.ticket, 0, why)
        return ClaimUnclear(item.uid, item.ticket, why, refused)

    def _cancelled(self, item: ClaimRequest) -> Event:
        return ClaimCancelled(item.uid, item.ticket)
