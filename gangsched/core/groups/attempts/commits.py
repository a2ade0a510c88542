"""Commits: what a decision about a unit changes: it is reserved, rejected, or gives its reservations back.

Not here: the decision (core.groups.attempts.attempts, core.groups.attempts.placer), the room of units that
wait for victims and their evictions (core.kept.nominations), binds (core.binding).
"""

from __future__ import annotations

from gangsched.core.cycle.claim_allocation import made_uid
from gangsched.core.framework.interface import Code, Status
from gangsched.core.framework.plan import FitError, Plan
from gangsched.core.groups.attempts.forecasts import Forecasts
from gangsched.core.kept.kept import Kept
from gangsched.core.kept.nominations import Nominations, room_taken
from gangsched.core.resource_claims.extended import ENTRY, claim_name
from gangsched.core.state.claim_uses import MadeClaim
from gangsched.core.state.reporter import Reporter
from gangsched.core.state.state import SharedState
from gangsched.core.state.tables.groups import Cause
from gangsched.core.types.group import ASSUMED, PENDING, Group, GroupState, MemberState
from gangsched.core.types.placement import Placement
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.core.why import Why, together
from gangsched.core.why.released import GaveBack


class Commits:
    """Carries out decisions, in the core's own state."""

    def __init__(
        self,
        shared: SharedState,
        reporter: Reporter,
        nominations: Nominations,
        kept: Kept,
        forecasts: Forecasts,
    ) -> None:
        self._shared = shared
        self._reporter = reporter
        self._nominations = nominations
        self._kept = kept
        self._forecasts = forecasts

    def reserve(self, unit: list[Group], plan: Plan) -> Status | None:
        """Applies the Plan; returns the first Reserve plugin's "no". Raises: PluginError."""
        observer = self._shared.observer
        if observer is not None:
            observer.point_began("Reserve")
        self._kept.charge_passes(unit)
        self._shared.cache.assume(plan.placements)
        for uid, allocation in plan.claims.items():
            self._shared.cache.claims.promise(uid, allocation)
        for placement in plan.claiming:
            if placement.info.template.by_class:
                self._hold_made(placement)
            else:
                self._shared.claim_uses.hold(placement.info)
        self._kept.started(unit, plan)
        self._forecasts.started(unit)
        if self._shared.victims:
            names = {self._shared.cache.view.name(one.row) for one in plan.placements}
            room_taken(self._shared, names, unit)
        for group in unit:
            mine = [p.info for p in plan.placements]
            if len(unit) > 1:
                mine = [info for info in mine if info.group is group]
            group.move_all(mine, PENDING, ASSUMED)
        refused = None
        try:
            for group in unit:
                refused = refused or self._asked_to_reserve(group, plan)
        finally:
            if observer is not None:
                observer.point_ended("Reserve", refused.code if refused is not None else Code.SUCCESS)
        return refused

    def _hold_made(self, placement: Placement) -> None:
        """Notes the claims of a pod with extended resources, and the one to be made where classes serve
        them."""
        info, book, made = placement.info, self._shared.cache.claims, None
        for need in book.extended.on(info.template.claims or (), info.node_name):
            if need.entry == ENTRY:
                meta, claim = info.pod.metadata, book.extended.claims[need.digest]
                name = claim_name(info.pod, f"{self._shared.now_s}")
                made = MadeClaim(meta.namespace, name, meta.uid, meta.name, claim.spec, claim.mappings)
        self._shared.claim_uses.hold(info, made_uid(placement), made)

    def _asked_to_reserve(self, group: Group, plan: Plan) -> Status | None:
        profile = self._shared.profile_of(group)
        for (key, _), state in plan.states.items():
            if key == group.key and not state.unconcerned.issuperset(profile.reserve_names):
                break
        else:
            return None
        mine: dict[int, list[Placement]] = {}
        for placement in plan.placements:
            if placement.info.group is group:
                mine.setdefault(placement.info.template.serial, []).append(placement)
        for serial, placements in mine.items():
            refused = profile.run_reserve(plan.states[group.key, serial], group, placements)
            if refused is not None:
                return refused
        return None

    def keep_out(
        self,
        unit: list[Group],
        why: Why,
        plugin: str,
        *,
        code: Code = Code.UNSCHEDULABLE,
        was_tried: bool = True,
    ) -> None:
        """Rejects the unit, but not for lack of room: a plugin refuses or fails, or its set cannot start.
        was_tried: whether it counts as one more failure, after which it waits longer."""
        for group in unit:
            self._shared.forget_all(group, why)
        claimed = self._kept.kept_out(unit, for_good=code is Code.UNRESOLVABLE)
        full = together(claimed, why) if claimed else why
        is_pending = code is Code.PENDING
        self._rejected(unit, full, ((plugin, None),), is_pending=is_pending, was_tried=was_tried)

    def reject(self, unit: list[Group], why: Why, answer: FitError) -> None:
        """Rejects the unit and releases its reservations."""
        for group in unit:
            self._shared.forget_all(group, why)
        self._rejected(unit, why, answer.rejected_by, is_pending=answer.code is Code.PENDING)

    def _rejected(
        self,
        unit: list[Group],
        why: Why,
        rejected_by: tuple[tuple[str, PodTemplate | None], ...],
        *,
        is_pending: bool = False,
        was_tried: bool = True,
    ) -> None:
        """Ends the attempt, reservations released. is_pending: no change will signal when it may fit."""
        for group in unit:
            self._nominations.drop(group)
        self._forecasts.rejected(unit)
        self._shared.flush_changes()
        for group in unit:
            group.rejected_by = rejected_by
            for info in group.in_state(MemberState.PENDING):
                self._nominations.unwrite(info)
            self._shared.count("rejections")
            if self._shared.claim_uses.may_be_left:
                self._shared.mark_group(group)  # what was found allocated for it may be why it does not fit
            if is_pending:
                self._shared.queue.back_off(group, Cause.SAID_LATER, self._shared.now_s)
            else:
                now_s = self._shared.now_s
                self._shared.queue.reject(group, Cause.REJECTED, now_s, was_tried=was_tried)
                self._nominations.rounds.awaited(group, unit[0])
            self._reporter.rejected(group, why)

    def give_back(self, group: Group, why: Why) -> None:
        """Releases the reservations of a waiting group and its waiting siblings; they back off."""
        shared = self._shared
        waiting = [group, *(g for g in shared.siblings(group).values() if g.state is GroupState.WAITING)]
        for each in waiting:
            shared.forget_all(each, why)
            self._nominations.drop(each)
            shared.queue.back_off(each, Cause.GAVE_BACK, shared.now_s)
            self._reporter.aborted(each, f"gang {each.key} gives its reservations back: {why}")
            self._reporter.rejected(each, GaveBack(str(each.key), why))
        shared.flush_changes()
