"""MadeClaims: the claims that we make ourselves, for extended resources that device classes serve (KEP-5004).

Such a claim is made with its finalizer and our mark, allocated and reserved like any other
(core.binding.claim_writes), and stated in the pod's status before its Binding: kubelet looks for it there,
and does not count the resources that it serves. One of an attempt that has ended is deleted, once it is not
allocated any more; the next attempt makes another, whose requests may be others.

    the pod's status does not state it    NOTE, with the pod's version: a change of the pod decides again
    it is stated, and the watch shows it  the pod may be bound
"""

from __future__ import annotations

from typing import Any

import msgspec

from gangsched.core.state.claim_uses import MAX_CLAIM_TRIES, ClaimRecord, MadeClaim
from gangsched.core.state.state import SharedState
from gangsched.core.types.group import PodInfo
from gangsched.core.why import Why
from gangsched.model.effects import DropClaim, MakeClaim, NoteClaim
from gangsched.model.events import ClaimNoted
from gangsched.model.objects import ExtendedClaimStatus
from gangsched.model.resource_claims.objects import (
    CLAIMED_FOR_KEY,
    EXTENDED_CLAIM_ANNOTATION,
    FINALIZER,
    ResourceClaim,
)

_RETRY_S = 0.5
_encode = msgspec.json.Encoder().encode


class MadeClaims:
    """Makes, states and deletes them."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared

    def make(self, record: ClaimRecord, made: MadeClaim) -> None:
        """Sends the claim."""
        body = _body(made, record.group)
        ticket = self._ticket(record)
        self._shared.emit(
            MakeClaim(record.uid, made.namespace, made.name, made.pod, body, ticket, record.cause_id)
        )

    def drop(self, record: ClaimRecord, claim: ResourceClaim) -> None:
        """Deletes a claim that is not allocated."""
        meta, ticket = claim.metadata, self._ticket(record)
        record.sent_version = meta.resource_version
        self._shared.emit(
            DropClaim(record.uid, meta.namespace, meta.name, meta.resource_version, ticket, record.cause_id)
        )

    def is_stated(self, record: ClaimRecord) -> bool:
        """Whether the pod's status states the claim, as the watch has shown; if not, it is written."""
        made, info = record.made, self._pod_of(record)
        if made is None or info is None or _states(info, made):
            return True
        meta, wanted = info.pod.metadata, ExtendedClaimStatus(list(made.mappings), made.name)
        if record.noted_at != meta.resource_version:
            record.noted_at = meta.resource_version
            self._shared.emit(
                NoteClaim(
                    *(info.uid, meta.namespace, meta.name, meta.resource_version),
                    wanted,
                    self._ticket(record),
                    record.cause_id,
                )
            )
        return False

    def noted(self, event: ClaimNoted) -> None:
        """Takes the answer of a pod's status: what it states is taken from the watch."""
        record = self._record_of(event.uid)
        if record is None or record.ticket != event.ticket or not event.message:
            return
        # After a conflict the watch mostly brings the pod's new version before that.
        record.n_tries += event.code != 409
        if event.code not in (0, 409) or record.n_tries >= MAX_CLAIM_TRIES:
            record.why = f"writing the status of {record.group}: {event.message}"
        record.noted_at = ""
        self._shared.claim_uses.again_s.set(record.uid, self._shared.now_s + _RETRY_S)

    def stated_otherwise(self, info: PodInfo) -> Why:
        """Returns that the pod's status states another claim than the one that it is to be bound with, or
        one although a plugin is to serve it; a write of a process that led before may have come late."""
        record = self._record_of(info.uid)
        if record is None or record.made is None:
            if info.pod.status.extended_resource_claim_status is None:
                return ""
        elif _states(info, record.made):
            return ""
        return f"pod {info.pod.key} states another claim for its extended resources"

    def _pod_of(self, record: ClaimRecord) -> PodInfo | None:
        return self._shared.cache.pods.get(record.made.pod) if record.made is not None else None

    def _record_of(self, pod: str) -> ClaimRecord | None:
        uses = self._shared.claim_uses
        for uid in uses.of_pod.get(pod, ()):
            record = uses.records[uid]
            if record.made is not None:
                return record
        return None

    def _ticket(self, record: ClaimRecord) -> int:
        self._shared.count("claims_written")
        return self._shared.claim_uses.give_ticket(record)


def _states(info: PodInfo, made: MadeClaim) -> bool:
    stated = info.pod.status.extended_resource_claim_status
    return stated == ExtendedClaimStatus(list(made.mappings), made.name)


def _body(made: MadeClaim, group: str) -> bytes:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": made.pod_name, "uid": made.pod, "controller": True}
    metadata: dict[str, Any] = {
        "name": made.name,
        "namespace": made.namespace,
        "annotations": {EXTENDED_CLAIM_ANNOTATION: "true", CLAIMED_FOR_KEY: group},
        "finalizers": [FINALIZER],
        "ownerReferences": [owner],
    }
    return _encode(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": metadata,
            "spec": made.spec,
        }
    )
