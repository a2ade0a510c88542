"""Why a claim starts later than it was to. Called by core.groups.claiming."""

from __future__ import annotations

from gangsched.core.state.state import SharedState
from gangsched.core.types.claim import Blocker, StartClaim
from gangsched.core.types.group import PodInfo


def slip_cause(shared: SharedState, claim: StartClaim) -> str:
    """Why the claim cannot stay where it is (core.queueing.claims.CAUSES)."""
    cache, now_s = shared.cache, shared.now_s
    known = {one.uid: one for one in claim.blockers}
    least = claim.priority
    for name in claim.nodes:
        row = cache.nodes.row_of.get(name)
        if row is None or cache.view.unschedulable[row]:
            return "node"
        for info in cache.by_node.get(name, {}).values():
            if (before := known.get(info.uid)) is not None:
                if _is_extended(shared, info, before):
                    return "extended"
                continue
            if info.group is None:
                return "other scheduler"
            if info.group.priority > least:
                return "priority"
    late = [one for one in claim.blockers if one.end_s <= now_s]
    if late:
        return "overrun" if any(one.is_stated or one.is_over for one in late) else "estimate"
    claims = shared.queue.claims
    for other in claims.ahead_of(claim.unit) if claims is not None else ():
        if other.slipped_s >= claim.planned_s:  # the claim waits for this one, and comes later as that does
            return other.because
    return "claims" if claim.is_promise else "estimate"


def _is_extended(shared: SharedState, info: PodInfo, before: Blocker) -> bool:
    """Whether the pod now states another end than before, one that is still to come."""
    ends, now_s = shared.ends, shared.now_s
    if ends is None or not before.is_stated or before.end_s <= now_s:
        return False
    return ends.of(info, now_s, shared.wall_ahead_s).at_s > before.end_s + 1.0
