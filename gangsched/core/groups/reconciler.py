"""Reconciler: examines a group whose members or numbers changed, and sets its state accordingly.

The table of states, with every cause and why no two gangs ever wait for each other, is
core.state.tables.groups. A group found half bound, at start-up or after outside changes, is completed or
unwound here (`recover`).
"""

from __future__ import annotations

from collections.abc import Callable

from gangsched.core.binding.binder import Binder
from gangsched.core.groups.attempts.attempts import Attempts
from gangsched.core.groups.lost_members import LostMembers
from gangsched.core.groups.members.leaving import Leaving
from gangsched.core.groups.members.refusals import Refusals
from gangsched.core.groups.owners import Owners
from gangsched.core.state.reporter import Reporter
from gangsched.core.state.state import SharedState
from gangsched.core.state.tables.groups import Cause
from gangsched.core.state.tables.starts import StartCause, move_start
from gangsched.core.types.group import LONG_AGO_S, NEVER_S, Group, GroupState, MemberState
from gangsched.core.types.lost_members import runs_enough
from gangsched.core.types.states import BINDING, NOT_STARTED
from gangsched.core.why import Why
from gangsched.core.why.incomplete import (
    DefinitionMissing,
    EndedDeleted,
    MembersLeft,
    MembersMissing,
    ObjectMissing,
)
from gangsched.model.events import RefusalsRead

# An incomplete gang is not reported before this: its pods are created one by one.
GATHER_REPORT_S = 5.0
# States in line, or back in line without intervention.
_TRIED_ANYWAY = (GroupState.ACTIVE, GroupState.ASKING, GroupState.BACKOFF)


class Reconciler:
    """Examines a group whose members or numbers changed and moves it along the table."""

    def __init__(
        self,
        shared: SharedState,
        reporter: Reporter,
        owners: Owners,
        binder: Binder,
        attempts: Attempts,
        leaving: Leaving,
    ) -> None:
        self._shared = shared
        self._leaving = leaving
        self._owners = owners
        self._reporter = reporter
        self._binder = binder
        self._attempts = attempts
        self.refusals = Refusals(shared)
        self.losses = LostMembers(shared, reporter, binder, attempts)
        self._reconcile_in: dict[GroupState, Callable[[Group], None]] = {
            GroupState.BINDING: binder.outcome.settle,
            GroupState.UNWINDING: binder.outcome.unwound,
            GroupState.WAITING: self._reconcile_waiting,
        }

    def found(self, group: Group) -> None:
        """Queues a group found at start-up by when its last member was created, oldest first."""
        created = [
            t.timestamp()
            for info in group.members.values()
            if (t := info.pod.metadata.creation_timestamp) is not None
        ]
        if created:
            # Only the order matters; these times are all before those of gangs that become complete later.
            group.first_complete_s = max(created) - LONG_AGO_S

    def reconcile(self, group: Group) -> None:
        """Moves the group to the state that its members imply; idempotent, safe at any time."""
        if not group.members:
            self._binder.pre_bind.go_on_or_stop(group)  # what is prepared for it is no longer needed
            self._attempts.nominations.drop(group)
            self._owners.forget(group)
            self._shared.drop_group(group)
            return
        self._leaving.let_leave(group)
        if not group.n_bound or (group.n_pending and not group.n_holding and not group.is_whole):
            # No member of the former gang runs: its successors start together. Members that have succeeded
            # keep counting, so that only what is still missing has to start whole.
            if group.is_completing:  # bound in part no more: no precedence any more, and its time is over
                self._shared.settle_by_s.drop(group.key)
            if group.start is not NOT_STARTED:
                move_start(group, StartCause.NOBODY_LEFT)
        elif not group.has_started and group.definition is not None and group.is_whole:
            self._has_started(group)
        self._reconcile_in.get(group.state, self._reconcile_at_rest)(group)
        if group.has_started:
            self._shared.settle_by_s.drop(group.key)
            self.losses.report(group)
            is_at_rest = group.state not in (BINDING, GroupState.UNWINDING)
            if group.doubts and is_at_rest and (group.lost or runs_enough(group)):
                self._binder.records.correct_others(group)
        elif group.lost:
            self.losses.report(group)

    def recover(self, group: Group) -> None:
        """Completes or unwinds, by policy, a group found half bound, mostly after a restart, or goes on with
        its eviction; marks it as started if it was whole (core.binding.start_records)."""
        outcome, records = self._binder.outcome, self._binder.records
        if records.is_evicted(group) and self._shared.settings.allow_eviction:
            outcome.evict_gang(group)
        elif records.was_whole(group):
            self._has_started(group)
        else:
            if group.failed_binds and group.state is not BINDING:
                self._reporter.bound_in_part(group, next(iter(group.failed_binds.values())))
            outcome.half_bound(group)

    def _has_started(self, group: Group) -> None:
        """Marks a gang whose members are found to run as started; its siblings need not wait for it."""
        if not group.has_started:
            move_start(group, StartCause.WHOLE)
        if group.state is not BINDING and runs_enough(group):  # else its last bind's outcome does so
            self._binder.records.write_whole(group)
        self._reporter.found_started(group)
        self._shared.try_again(self._shared.siblings(group).values())

    def _reconcile_waiting(self, group: Group) -> None:
        if group.problem or group.definition is None or not group.is_complete:
            left = MembersLeft(group.n_existing, group.min_count, tuple(group.missing_roles()))
            self._attempts.commits.give_back(group, group.problem or left)
            self._reconcile_at_rest(group)
        elif not group.n_pending and not group.n_assumed:
            # The members that waited are gone, and the rest run: there is nothing to reserve or bind.
            self._attempts.nominations.drop(group)
            self._reconcile_at_rest(group)
        else:
            # Reconsidered in its turn, keeping its reservations.
            self._shared.queue.activate(group, Cause.LOOK_AGAIN)

    def _reconcile_at_rest(self, group: Group) -> None:
        queue, now_s = self._shared.queue, self._shared.now_s
        if group.problem:
            if group.is_half_bound and group.definition is not None and not group.is_completing:
                # Only its owner can complete it now; the time limit for that starts.
                self.recover(group)
                if group.state is GroupState.UNWINDING:
                    return
            if group.state is not GroupState.UNSCHEDULABLE or group.why != group.problem:
                group.rejected_by = (("GangScheduling", None),)
                queue.set_aside(group, Cause.PROBLEM, now_s)
            self._reporter.rejected(group, group.problem)  # also for members that came later
            group.why = group.problem
            return
        if group.is_completing and not group.n_pending:
            return
        if group.is_half_bound and group.definition is not None and not group.is_completing:
            self.recover(group)
            if not group.has_started:
                return
        if not group.n_pending:
            if group.n_bound:
                queue.park(group, Cause.BOUND_ELSEWHERE)
            elif group.counts[MemberState.GATED]:
                queue.park(group, Cause.GATED)
            else:
                queue.park(group, Cause.NOTHING_PENDING)
            return
        if not group.is_complete:
            if group.state is not GroupState.GATHERING or group.deadline_s == NEVER_S:
                queue.park(group, Cause.INCOMPLETE, now_s + GATHER_REPORT_S)
            return
        if group.first_complete_s == NEVER_S:
            group.first_complete_s = self._shared.requeue_order.take(group, now_s)
        if group.has_started and group.n_changes != group.n_changes_tried:
            # Its members start each for itself: one that has come since has not failed, and may be smaller.
            queue.end_backoff(group, now_s)
        if group.state in _TRIED_ANYWAY:
            if queue.bypasses is not None:
                queue.bypasses.moved(group)  # bypasses of an unwound group count from now on
            return
        if group.state is GroupState.UNSCHEDULABLE:
            queue.wake(group, Cause.COMPLETE, now_s)
        else:
            queue.activate(group, Cause.COMPLETE)

    def expired(self, group: Group) -> None:
        """Acts on a passed queue deadline: of backoff, flush, report or wait, by the group's state."""
        if group.state is GroupState.WAITING:
            self._attempts.timed_out(group)
        elif group.state is GroupState.GATHERING and group.key in self._shared.marked_groups:
            # This turn's events may have completed or defined it, and are not looked at before the deadlines.
            self._shared.queue.park(group, Cause.INCOMPLETE, self._shared.now_s)
        elif group.state is GroupState.GATHERING:
            self.gathering_report(group)
        elif group.state is GroupState.UNWINDING:
            self._binder.outcome.evict_again(group)
        elif group.state in (GroupState.BACKOFF, GroupState.UNSCHEDULABLE):
            self._shared.queue.park(group, Cause.TIME_IS_UP)
            self.reconcile(group)

    def gathering_report(self, group: Group) -> None:
        """Reports what is missing of a gang that has been incomplete for a while."""
        if group.definition is None:
            kind = "PodGroup object" if group.is_gang else "definition"
            missing = self._owners.why_missing(group) or ObjectMissing(kind)
            why: Why = DefinitionMissing(str(group.key), missing)
        else:
            more = self._ended(group), self._owners.why_never(group), self.refusals.sentence(group)
            why = MembersMissing(
                str(group.key),
                group.n_existing,
                group.min_count,
                group.counts[MemberState.GATED],
                tuple(group.missing_roles()),
                tuple(one for one in more if one),
            )
            self.refusals.ask(group)
        self._reporter.rejected(group, why)

    def _ended(self, group: Group) -> Why:
        """That members which had ended were deleted, where this may be why others wait for ever; else ""."""
        n_gone = self._leaving.n_ended_gone.get(group, 0)
        return EndedDeleted(n_gone) if n_gone and not group.n_holding else ""

    def refusals_read(self, event: RefusalsRead) -> None:
        """Takes the refusals that a controller got when it created a gang's members; reports new ones."""
        group = self.refusals.take(event)
        if group is not None and group.definition is not None and not group.is_complete:
            self.gathering_report(group)
