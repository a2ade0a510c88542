"""Patches of ResourceClaims, sent as carefully as binds: pods are bound only when their claims are written.

Lives here: the request, and its events: ClaimPatched, ClaimRefused, ClaimUnclear and ClaimCancelled for what
BindSucceeded, BindFailed, BindUnknown and BindCancelled are to a bind in the table of
kube.effects.binding_lane, whose lane this is. Not here: paths and bodies (kube.effects.claim_writes), reads
and bumps (kube.effects.write_lanes, kube.effects.bumps). Called by kube.effects.dispatcher only.

Done is only a 2xx with the claim in a version other than the one that the patch was for. The same version
means that nothing was written: the API server found nothing to change, or something in front of it dropped
the patch. That is ClaimUnclear, and a read tells.
"""

from __future__ import annotations

import time

from gangsched.errors import ApiError
from gangsched.kube.effects.binding_lane import OnceLane
from gangsched.kube.effects.claim_writes import claim_body, claim_path, claim_target, read_claim
from gangsched.kube.evidence import Target, outline_of
from gangsched.kube.transport.http1 import JSON_PATCH, MERGE_PATCH, Verb
from gangsched.kube.transport.lane_connection import Call
from gangsched.model.effects import PatchClaim
from gangsched.model.events import ClaimCancelled, ClaimPatched, ClaimRefused, ClaimUnclear

_OF_STATUS, _OF_CLAIM = Verb("PATCH", JSON_PATCH), Verb("PATCH", MERGE_PATCH)


class ClaimLane(OnceLane[PatchClaim]):
    """Sends patches of claims; each results in exactly one event."""

    name = "patch a resource claim"
    method = "PATCH"
    goes_on = "patches of resource claims are going out again"

    def _target(self, item: PatchClaim) -> Target:
        return claim_target(item)

    def _request(self, call: Call[PatchClaim]) -> tuple[Verb, str, bytes]:
        item = call.item
        # A strategic merge patch writes drivers' parameters anew, their keys in order and without nulls: the
        # API server takes that for a change, and refuses. It refuses every patch of the claim, and an update
        # with its JSON too, where they are stored with blanks, or with <, > or & unescaped, as it compares
        # bytes and writes others; and so it does with entries for such an allocation, which only another
        # program can have written. ClaimRefused then says that a field is immutable.
        verb, path = (_OF_STATUS, "status") if item.is_status else (_OF_CLAIM, "")
        return verb, claim_path(item, path), claim_body(item, time.time())

    def _proves(self, call: Call[PatchClaim], body: bytes) -> bool:
        found = outline_of(body, claim_target(call.item))
        return found is not None and found.metadata.uid == call.item.uid

    def _succeeded(self, item: PatchClaim, body: bytes) -> ClaimPatched | ClaimUnclear:
        try:
            claim = read_claim(body, item)
        except ApiError as error:
            return self._unknown(item, str(error), refused=False)
        assert claim is not None, "its UID was compared"
        if claim.metadata.resource_version in ("", item.resource_version):
            self.n_unknown += 1
            return self._unknown(item, "answered with the claim as it was", refused=False)
        return ClaimPatched(item.uid, item.ticket, claim)

    def _failed(self, item: PatchClaim, error: ApiError) -> ClaimRefused:
        return ClaimRefused(item.uid, item.ticket, error.code, error.reason, error.message)

    def _unknown(self, item: PatchClaim, why: str, *, refused: bool) -> ClaimUnclear:
        return ClaimUnclear(item.uid, item.ticket, why, refused)

    def _cancelled(self, item: PatchClaim) -> ClaimCancelled:
        return ClaimCancelled(item.uid, item.ticket)
