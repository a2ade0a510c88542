"""What the scenarios of public faults do and look at, beside what tests.core.claims offers."""

from __future__ import annotations

import json

from msgspec.structs import replace

from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Pod
from tests.core.claims import ClaimCluster, Json


def given(c: ClaimCluster) -> list[str]:
    """The devices that were asked to be written into claims, each as often as that was asked."""
    found = []
    for one in c.all(ef.PatchClaim):
        status = json.loads(one.patch).get("status") or {}
        results = (status.get("allocation") or {}).get("devices", {}).get("results", ())
        found += [f"{each['pool']}/{each['device']}" for each in results]
    return found


def stored(c: ClaimCluster, name: str) -> Json:
    """The claim as the server has it, to be edited and written."""
    raw: Json = json.loads(json.dumps(c.resource_claims[f"uid-{name}"]))
    return raw


def no_answer(c: ClaimCluster) -> None:
    """The writes that are held have no answer, and what is written from now on is answered."""
    c.claim_answer = lambda patch: "ok"
    for one in c.held_patches:
        c.tell(ev.ClaimUnclear(one.uid, one.ticket, "timed out"))


def without_claims(pod: Pod) -> Pod:
    """The pod before claims were made for it."""
    return replace(pod, status=replace(pod.status, resource_claim_statuses=None))
