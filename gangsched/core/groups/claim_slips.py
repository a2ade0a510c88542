"""Why a claim starts later than planned. Called by core.groups.claiming."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gangsched.core.framework.profile import Demand
from gangsched.core.queueing.needs import open_to
from gangsched.core.state.state import SharedState
from gangsched.core.types.claim import Blocker, StartClaim
from gangsched.core.types.group import PodInfo


def slip_cause(shared: SharedState, claim: StartClaim, demands: Sequence[Demand]) -> str:
    """Why the claim cannot keep its start (core.queueing.claims.CAUSES). demands: its unit's."""
    if claim.is_outranked:
        return "guarantee"
    if _is_shut(shared, claim, demands):
        return "node"
    cache, now_s = shared.cache, shared.now_s
    known = {one.uid: one for one in claim.blockers}
    late: list[Blocker] = []
    is_foreign = False  # one of `late` is another scheduler's pod that states no end
    for info in (info for name in claim.nodes for info in cache.by_node.get(name, {}).values()):
        if (before := known.get(info.uid)) is not None:
            if _is_extended(shared, info, before):
                return "extended"
            if before.end_s <= now_s:
                late.append(before)
                is_foreign = is_foreign or (info.group is None and not before.is_said)
        elif info.uid in claim.beside:
            continue
        elif info.group is None:
            return "other scheduler"
        elif info.group.priority > claim.priority:
            return "priority"
    if any(one.is_said for one in late):
        return "overrun"
    if late:
        return "other scheduler" if is_foreign and claim.promised_s is not None else "estimate"
    claims = shared.queue.claims
    for other in claims.ahead_of(claim.unit) if claims is not None else ():
        if other.slipped_s >= claim.planned_s:  # the claim waits for this one, and slips with it
            return other.because
    return "claims" if claim.is_promise else "estimate"


def _is_shut(shared: SharedState, claim: StartClaim, demands: Sequence[Demand]) -> bool:
    """Whether some node would not take what is claimed on it even if it were empty: it is gone, cordoned or
    tainted, or offers less."""
    view, ledger = shared.cache.view, shared.cache.ledger
    open_rows = {
        template.serial: open_to(demand, template, view)
        for demand in demands
        for template, _ in demand.by_template().values()
    }
    kept = Counter[tuple[int, int]]()
    for one in claim.held:
        row, template = view.row_of(one.node_name), one.template
        if row is None or view.unschedulable[row]:
            return True
        if template.serial in open_rows and not open_rows[template.serial][row]:
            return True
        if any(ledger.promised_unusable(row, resource, ids) for resource, ids in one.ids.items()):
            return True
        kept.update({(row, c): n for c, n in zip(template.columns, template.amounts, strict=True)})
    return any(view.allocatable(column)[row] < amount for (row, column), amount in kept.items())


def _is_extended(shared: SharedState, info: PodInfo, before: Blocker) -> bool:
    """Whether the pod now states a later end than before, and the former end has not passed."""
    ends, now_s = shared.ends, shared.now_s
    if ends is None or not before.is_stated or before.end_s <= now_s:
        return False
    return ends.end(info, now_s, shared.wall_ahead_s).at_s > before.end_s + 1.0
