"""Claiming: when a group gets a claim, where and for when, how the claim is maintained while it waits, and
why it starts later than planned.

If a start would bypass a group beyond its bound, that group gets a claim, and the start is planned again
beside the claim. The claim is planned by what places gangs, on a Trial without the pods that will have ended.
The gang is still tried on the whole cluster and may start anywhere; each time it fails, its claim is checked.
The claim keeps its nodes and start unless it cannot, or could start much earlier.

Not here: the bound (core.queueing.bypasses), which claim yields to which (core.queueing.claims), when pods
end (core.queueing.ends), what is reported of claims (core.kept.claim_reports). Called by core.kept.kept.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from gangsched.config.queueing import QueueingSettings
from gangsched.core.framework.plan import Plan
from gangsched.core.framework.profile import Demand
from gangsched.core.kept.claim_plans import ClaimPlans
from gangsched.core.kept.claim_reports import ClaimReports, had_claim, was_claimed
from gangsched.core.kept.overrun import Places, fix_ends, may_be_evicted_for
from gangsched.core.queueing.bypasses import Bypasses
from gangsched.core.queueing.claims import Claims
from gangsched.core.queueing.idle import IdleOfQueues
from gangsched.core.queueing.needs import open_to
from gangsched.core.state.state import SharedState
from gangsched.core.state.tables.groups import Cause
from gangsched.core.state.timers import DeadlineKind
from gangsched.core.types.claim import Blocker, StartClaim
from gangsched.core.types.group import Group, PodInfo
from gangsched.core.units import Units
from gangsched.core.why import Why
from gangsched.model.effects import START_PROMISED

# Pause before a failed claim, or early promise, is tried again: a plan costs several turns.
_HOPELESS_S = 60.0
# Kubelets take a moment to end a pod whose time is over: a claim is not late before this.
_LATE_S = 30.0
# Least pause before a claim that keeps too much idle is planned again.
_AGAIN_S = 10.0
_CHECK_EVERY_S = 30.0
# A victim's grace period, and half a minute.
_SOON_S = 60.0
_LEAST_PAUSE_S = 1.0
# Limit for one unit: each costs a look at all pods on nodes.
_MAX_EASED = 4
# An earlier start is taken if it is at least this much earlier: a claim that starts later than it could lets
# units start that delay its gang. Only larger steps are reported to users (core.kept.claim_reports).
_EARLIER_S = 60.0
_PLAN_EVERY_S = 60.0


class Claiming:
    """Makes claims, maintains them and reports them."""

    def __init__(self, shared: SharedState, reports: ClaimReports, units: Units, placer: Places) -> None:
        self._shared = shared
        self._units = units
        self.plans = ClaimPlans(shared, units, placer)
        self._reports = reports
        self._idle = IdleOfQueues(shared.cache.view)
        self._mark = 0
        self._revision = 0
        self._n_inputs = -1
        self._settled: QueueingSettings | None = None
        self._before: Claims | None = None
        """As of the last turn: a new configuration may end all claims."""

    @property
    def _claims(self) -> Claims | None:
        return self._shared.claims

    # -- in a turn -------------------------------------------------------------------------------------

    def ease(self, claims: Sequence[StartClaim]) -> bool:
        """Replans, for the same start, those of these claims that keep more free room than they must.

        Returns whether one of them keeps less now.
        """
        standing, at = self._claims, self._shared.cache.view.journal_end
        looked = [claim for claim in claims if claim.eased_at != at][:_MAX_EASED]
        found = False
        for claim in looked:
            assert standing is not None
            claim.eased_at = at
            fresh = self.plans.eased(standing, claim)
            if fresh is not None and fresh.is_promise >= claim.is_promise:
                self._move(standing, claim, fresh)
                found = True
        return found

    def charge_bypasses(self, unit: Sequence[Group], plan: Plan) -> bool:
        """Counts the groups that the unit bypasses. False: one of them was given a claim instead; plan the
        unit again, beside that claim."""
        bypasses, shared, claims = self._shared.queue.bypasses, self._shared, self._claims
        if bypasses is None:
            return True
        while (full := bypasses.charge(unit, plan, shared.cache.view, shared.now_s)) is not None:
            assert claims is not None, "bounds are enforced"
            if bypasses.is_early(full):
                if self._make_early(claims, bypasses, full):
                    return False
            elif self.plans.has_slot(claims, full):
                if self._make(claims, bypasses, full):
                    return False
            elif claims.budget is None and self.plans.tenant(unit[0]) == self.plans.tenant(full):
                return False
            else:
                bypasses.let_pass_until(full, shared.now_s + _HOPELESS_S, shared.now_s)
        return True

    def started(self, unit: Sequence[Group], plan: Plan) -> None:
        """Records that the plan's members are reserved."""
        if self._shared.ends is not None:
            self._shared.ends.note_reserved(plan.placements, self._shared.now_s)
        if (claims := self._claims) is not None and claims.by_key:
            nodes = frozenset(self._shared.cache.view.name(one.row) for one in plan.placements)
            self._filled_in(claims, unit, plan, nodes)
        for group in unit:
            if was_claimed(group) and START_PROMISED not in group.reported_conditions:
                self._reports.started(group)

    def _filled_in(self, claims: Claims, unit: Sequence[Group], plan: Plan, nodes: frozenset[str]) -> None:
        """Makes other claims on these nodes depend on the end of the unit, which starts there."""
        uids = frozenset(one.info.uid for one in plan.placements)
        for claim in claims.all:
            if claim.unit[0] not in unit and (there := nodes.intersection(claim.nodes)):
                self._rests_on(claims, claim, self.plans.blockers(there, claim.start_s, uids))

    def _rests_on(self, claims: Claims, claim: StartClaim, more: Sequence[Blocker] = ()) -> None:
        if claims.update_blockers(claim, more):
            self._stands(claim)
            self._reports.moved(claim)

    def _recall(self, unit: Sequence[Group]) -> None:
        """Renews the claims of an earlier process: its counts are lost, but each such group was at its
        bound. If no claim can be made, withdraws what that process reported."""
        claims, bypasses, first = self._claims, self._shared.queue.bypasses, unit[0]
        if first.attempts != 1 or START_PROMISED in first.reported_conditions:
            return
        if claims is not None and bypasses is not None and claims.unit_claim(unit) is None:
            for group in (found := [one for one in unit if had_claim(one)]):
                bypasses.set_to_bound(group, self._shared.now_s)
            if found and self.plans.has_slot(claims, first):
                self._make(claims, bypasses, first, is_paid=True)
        if claims is None or claims.unit_claim(unit) is None:
            self._reports.withdrawn(unit)

    def refused(self, unit: list[Group]) -> Why:
        """Checks the claim of a unit that does not fit now; returns a sentence about it."""
        claims = self._claims
        self._recall(unit)
        claim = claims.unit_claim(unit) if claims is not None else None
        if claims is None or claim is None:
            return self._reports.why_none(unit[0])
        # Any group of a set may have its turn first.
        if frozenset(claim.unit) != frozenset(unit) or not claims.is_sound(claim):
            for one in claims.claims(unit):
                self._drop(claims, one)
            return ""
        now_s = self._shared.now_s
        if now_s >= claim.looked_s + _LEAST_PAUSE_S:
            claim.looked_s = now_s
            self._check_at(claim, _next_check_s(claim, now_s))
            self._keep_or_move(claims, claim)
        elif now_s >= claim.start_s + _LATE_S:  # it was looked at just before it was late
            self._check_at(claim, claim.looked_s + _LEAST_PAUSE_S)
        return (
            self._reports.words(claim) if claims.claim(unit[0]) is claim else self._reports.why_none(unit[0])
        )

    def kept_out(self, unit: Sequence[Group], *, for_good: bool = False) -> Why:
        """Handles a unit that lacks something other than room, say a plugin's consent; returns a sentence
        about its claim. The claim stays until it is late, unless the unit is kept out for good. Without a
        claim, no bypass of the unit is counted until it is room that it lacks."""
        claims, bypasses = self._claims, self._shared.queue.bypasses
        self._recall(unit)
        if claims is not None and (claim := claims.unit_claim(unit)) is not None:
            if not for_good and claims.is_sound(claim) and self._shared.now_s < claim.start_s + _LATE_S:
                self._mark = self._shared.cache.view.journal_end  # ignore changes made in its own turn
                return self._reports.words(claim)
            self._drop(claims, claim)
        if bypasses is not None:
            for group in unit:
                bypasses.no_claim(group, self._shared.now_s)
        return ""

    def starts_soon(self, unit: Sequence[Group]) -> bool:
        """Whether the unit's claim starts so soon that preemption is not worth it, and is not late."""
        claim = self._claims.unit_claim(unit) if self._claims is not None else None
        return claim is not None and abs(claim.start_s - self._shared.now_s) < _SOON_S

    # -- between turns -----------------------------------------------------------------------------------

    def maintain(self) -> None:
        """At the end of a turn: drops claims whose groups have changed, and schedules checks of claims whose
        nodes have."""
        claims, shared = self._claims, self._shared
        if claims is not self._before:
            before, self._before = self._before, claims
            if before is not None:
                self._end_all(before)
        if claims is None:
            return
        if (book := shared.queue_book) is not None:
            self._idle.charge(book, claims.all, claims.revision, shared.now_s)
        if claims.by_key or (shared.queue.bypasses is not None and shared.queue.bypasses.counts_any):
            self.plans.rooms.follow()
        elif (
            claims.revision == self._revision
            and self._settled is shared.settings.queueing
            and not claims.ended
            and not claims.is_doubtful
        ):
            # There is no claim and was none at the end of the last turn, and all below is about claims.
            self._mark, self._n_inputs = shared.cache.nodes.journal_end, shared.n_inputs
            return
        n_inputs, self._n_inputs = self._n_inputs, shared.n_inputs
        if claims.is_doubtful or n_inputs != self._n_inputs:
            claims.is_doubtful = False
            for claim in claims.all:
                if not claims.is_sound(claim):  # its members or numbers have changed
                    self._drop(claims, claim)
        self._reports.ended(claims)
        mark, self._mark = self._mark, shared.cache.view.journal_end
        revision, self._revision = self._revision, claims.revision
        if claims.budget is not None and (mark, revision) != (self._mark, self._revision):
            claims.budget.keep(claims.idle(), shared.now_s)
        is_new, self._settled = shared.settings.queueing is not self._settled, shared.settings.queueing
        if is_new or revision != self._revision:
            fix_ends(self._shared, claims)
        self._reports.extended(claims)
        if not claims.by_key or mark == self._mark:
            return
        rows = (view := shared.cache.view).changed_since(mark)
        changed = None if rows is None else {view.name(row) for row in rows.tolist()}
        for claim in claims.all:
            if changed is None or not (changed.isdisjoint(on := claim.nodes) and view.has_all(on)):
                soon_s = max(claim.looked_s + _LEAST_PAUSE_S, shared.now_s)
                self._check_at(claim, min(claim.look_s, soon_s))

    def _end_all(self, claims: Claims) -> None:
        for claim in claims.all:
            claims.drop(claim)
        if self._shared.queue_book is not None:
            self._idle.charge(self._shared.queue_book, (), claims.revision, self._shared.now_s)
        self._shared.changes += claims.take_freed()
        self._reports.ended(claims)

    def advance(self) -> None:
        """Has the groups of claims that are due tried again."""
        self._n_inputs = -1
        now_s = self._shared.now_s
        for claim in self._shared.timers.take(DeadlineKind.CLAIM, now_s):
            self._check_at(claim, _next_check_s(claim, now_s))
            self._shared.queue.wake(claim.unit[0], Cause.CURED, now_s)

    def _check_at(self, claim: StartClaim, when_s: float) -> None:
        if when_s != claim.look_s:
            claim.look_s = when_s
            self._shared.timers.push(when_s, DeadlineKind.CLAIM, claim)

    # -- one claim ---------------------------------------------------------------------------------------

    def _make_early(self, claims: Claims, bypasses: Bypasses, group: Group) -> bool:
        """Makes a claim for the first in line if its start can be promised; else it waits for its bound."""
        unit = self._units.unit(group)
        may_be_made = self.plans.has_slot(claims, group) and self._is_admitted(unit)
        claim = self.plans.made(claims, unit) if may_be_made else None
        if claim is not None and claim.is_promise and self.plans.too_idle(claims, claim) is None:
            self._put_up(claims, claim)
            return True
        bypasses.not_early(group, self._shared.now_s + _HOPELESS_S)
        return False

    def _make(self, claims: Claims, bypasses: Bypasses, group: Group, *, is_paid: bool = False) -> bool:
        """Makes a claim; False: not now, and the group may be bypassed for a while. is_paid: an earlier
        process had it, so limits and budget are not asked."""
        unit = self._units.unit(group)
        claim = self.plans.made(claims, unit) if is_paid or self._is_admitted(unit) else None
        if claim is None:
            claims.too_idle.pop(group.key, None)
            bypasses.no_claim(group, self._shared.now_s + _HOPELESS_S)
            return False
        if not is_paid and not self._affords(claims, claim):
            return False
        self._put_up(claims, claim)
        return True

    def _is_admitted(self, unit: list[Group]) -> bool:
        """Whether limits leave it room, beside claims made since it was tried. If not, has it tried again, to
        be counted as kept out by a limit."""
        if self._units.is_admitted(unit):
            return True
        self._shared.queue.wake(unit[0], Cause.CURED, self._shared.now_s)
        return False

    def _put_up(self, claims: Claims, claim: StartClaim) -> None:
        claims.put(claim)
        self._check_at(claim, self._shared.now_s)  # tried once more, it reports the claim on its pods
        self._stands(claim)
        self._shared.count("claims_made")
        self._reports.made(claim)

    def _affords(self, claims: Claims, claim: StartClaim, *, stands: bool = False) -> bool:
        """Whether the budget allows what the claim will keep idle; if not, its groups yield until it does."""
        shared = self._shared
        too_idle = self.plans.too_idle(claims, claim, stands=stands)
        if too_idle is None or shared.queue.bypasses is None:
            return True
        again_s = min(max(too_idle.from_s, shared.now_s + _AGAIN_S), shared.now_s + _HOPELESS_S)
        for group in claim.unit:
            claims.too_idle[group.key] = too_idle
            shared.queue.bypasses.let_pass_until(group, again_s, shared.now_s)
        return False

    def _stands(self, claim: StartClaim) -> None:
        assert self._shared.queue.bypasses is not None
        if claim.is_promise and claim.promised_s is None:
            claim.promised_s = claim.start_s
        self._shared.queue.bypasses.claimed(claim.unit, self._shared.now_s)

    def _drop(self, claims: Claims, claim: StartClaim) -> None:
        claims.drop(claim)
        assert self._shared.queue.bypasses is not None
        self._shared.queue.bypasses.claimed(claim.unit, self._shared.now_s)

    def _keep_or_move(self, claims: Claims, claim: StartClaim) -> None:
        """Keeps the claim, moves it, or drops it."""
        now_s, unit = self._shared.now_s, list(claim.unit)
        is_late = now_s >= claim.start_s + _LATE_S
        if not is_late and may_be_evicted_for(self._shared, claim):
            self._check_at(claim, claim.start_s + _LATE_S)
            return
        stays = () if is_late else self.plans.still(claims, claim)
        if stays:
            claims.keep(claim, stays, claim.start_s, claim.end_s)
            self._rests_on(claims, claim, self.plans.landed(claim))
            if now_s < (next_s := claim.planned_s + _PLAN_EVERY_S) and not claim.has_new_end:
                return self._check_at(claim, min(claim.look_s, next_s))
            claim.has_new_end = False
        # An earlier start must not delay the claims after it: they are promised, too.
        by_s = claim.start_s - _EARLIER_S if stays else math.inf
        fresh = self.plans.made(claims, unit, to_all=bool(stays), by_s=by_s)
        if fresh is None and not stays:
            self._drop(claims, claim)
            assert self._shared.queue.bypasses is not None
            self._shared.queue.bypasses.no_claim(unit[0], now_s + _HOPELESS_S)
            return
        if fresh is None:
            claim.planned_s = now_s
            return
        if fresh.start_s > claim.start_s + 1.0 and not self._affords(claims, fresh, stands=True):
            self._drop(claims, claim)
            return
        self._move(claims, claim, fresh)
        claim.planned_s = now_s

    def _move(self, claims: Claims, claim: StartClaim, fresh: StartClaim) -> None:
        if fresh.start_s > claim.start_s + 1.0:
            claim.n_slips += 1
            claim.slipped_s = self._shared.now_s
            claim.because = slip_cause(self._shared, claim, self._units.demands(list(claim.unit)))
            claim.lost_to_guarantee = False
        claims.keep(claim, fresh.held, fresh.start_s, fresh.end_s)
        self._check_at(claim, fresh.start_s + 1.0)
        claim.blockers, claim.beside = fresh.blockers, fresh.beside
        self._stands(claim)
        self._reports.moved(claim)


def slip_cause(shared: SharedState, claim: StartClaim, demands: Sequence[Demand]) -> str:
    """Why the claim cannot keep its start (core.queueing.claims.CAUSES). demands: its unit's."""
    if claim.lost_to_guarantee:
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
                is_foreign = is_foreign or (info.group is None and not before.is_known)
        elif info.uid in claim.beside:
            continue
        elif info.group is None:
            return "other scheduler"
        elif info.group.priority > claim.priority:
            return "priority"
    if any(one.is_known for one in late):
        return "overrun"
    if late:
        return "other scheduler" if is_foreign and claim.promised_s is not None else "estimate"
    claims = shared.claims
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


def _next_check_s(claim: StartClaim, now_s: float) -> float:
    """When a claim that was just looked at is looked at again: no later than when it is late."""
    late_s, next_s = claim.start_s + _LATE_S, max(claim.start_s + 1.0, now_s + _CHECK_EVERY_S)
    return min(late_s, next_s) if late_s > now_s else next_s
