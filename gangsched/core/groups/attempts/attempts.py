"""Attempts: one group's turn, from the front of the queue to bound, waiting or rejected.

Asks where the group, or all groups that start together, fit (core.groups.attempts.placer). Has the Plan
applied (core.groups.attempts.commits), calls Permit, then starts the binds, holds the reservations, or has
the unit rejected. Also ends a wait in Permit. core.state.tables.groups explains why waiting groups never wait
for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from gangsched.core.binding.binder import Binder
from gangsched.core.binding.reservation_checks import reservation_lost
from gangsched.core.cycle.cycle import GANG
from gangsched.core.cycle.near_names import unoffered
from gangsched.core.cycle.shortage import lack_sentences
from gangsched.core.cycle.unit_limits import over_unit_limit
from gangsched.core.framework.interface import SUCCESS, Code, Status
from gangsched.core.framework.plan import FitError, Plan, Shortage, first_of
from gangsched.core.framework.plugin_calls import PluginError
from gangsched.core.groups.attempts.commits import Commits
from gangsched.core.groups.attempts.failed_searches import FailedSearches
from gangsched.core.groups.attempts.forecasts import Forecasts
from gangsched.core.groups.attempts.making_room import MakingRoom
from gangsched.core.groups.attempts.permits import Permits
from gangsched.core.groups.attempts.placer import Placer
from gangsched.core.groups.owners import Owners
from gangsched.core.kept.claim_reports import latest_end
from gangsched.core.kept.kept import Kept
from gangsched.core.kept.nominations import Nominations
from gangsched.core.queueing.expected_ends import ExpectedEnds
from gangsched.core.state.reporter import Reporter
from gangsched.core.state.state import SharedState
from gangsched.core.state.tables.groups import Cause
from gangsched.core.types.group import (
    ASSUMED,
    NEVER_S,
    PENDING,
    Group,
    GroupState,
    PodInfo,
    Preemption,
)
from gangsched.core.units import GroupAdmission, Units
from gangsched.core.why import OfPlugin, Why, together
from gangsched.core.why.kept import ClaimsFirst
from gangsched.core.why.not_tried import (
    ClaimLeaves,
    LabelsNotIndexed,
    RefusedInPermit,
    RefusedInReserve,
    SetBusy,
)
from gangsched.core.why.released import (
    OthersOfSet,
    PermitTimedOut,
    Reserved,
    RestDoesNotFit,
    VictimsProtected,
    VictimsStay,
    WithProblem,
)
from gangsched.model.resource_claims.objects import DEVICE_CLASSES

# Limit on claims made for other groups in one turn; each costs a plan.
_MAX_CLAIMED = 4
# How many unreadable statements one event names.
_MAX_UNREAD = 3
NOT_ANY_MORE = VictimsProtected()


class Attempts:
    """Decides one group's (or one set's) attempt."""

    def __init__(
        self,
        shared: SharedState,
        reporter: Reporter,
        binder: Binder,
        permits: Permits,
        owners: Owners,
        pick: Callable[[int], int] = first_of,
    ) -> None:
        self._shared = shared
        self._reporter = reporter
        self._binder = binder
        self._permits = permits
        self._owners = owners
        self.nominations = Nominations(shared, reporter)
        self.admission = GroupAdmission(shared)
        self._units = Units(shared, self.admission, pick)
        self.placer = Placer(shared, self._units)
        self.kept = Kept(shared, reporter, self._units, self.placer)
        self._ends = ExpectedEnds()
        self.forecasts = Forecasts(shared, reporter, owners)
        self.commits = Commits(shared, reporter, self.nominations, self.kept, self.forecasts)
        self.searches = FailedSearches(shared)
        self._room = MakingRoom(
            shared,
            self.nominations,
            self.kept,
            self._units,
            self.searches,
            self.placer,
            self.commits,
        )

    def run(self, group: Group) -> None:
        """Takes the group's turn, with the groups that start together with it."""
        if group.start_together and not group.starts_alone:
            if too_large := self._shared.start_together.problem(group):
                self._refuse_set(group, too_large)
                return
            self._shared.start_together.refused.pop(group.key, None)
            if (busy := self._shared.start_together.busy(group)) is not None:
                why = SetBusy(str(group.key), str(busy.key), busy.state.value)
                self.commits.keep_out([group], why, GANG, was_tried=False)
                return
        unit = self._units.unit(group)
        if self._shared.cache.index.selected.waiting and self._waits_for_labels(unit):
            return
        if self._shared.cache.claims.leaving and self._waits_for_claims(unit):
            return
        for each in unit:
            each.attempts += 1
            each.tried_s, each.n_changes_tried = self._shared.now_s, each.n_changes
            each.cause_id = f"{each.key}#{each.attempts}"
            self._shared.queue.leave_line(each)
        self._shared.count("attempts", len(unit))
        self._report_unread_walltimes(unit)
        if self._shared.observer is not None:
            self._shared.observer.attempt_began(unit)
        if too_much := over_unit_limit([group.in_state(PENDING) for group in unit]):
            self.commits.keep_out(unit, too_much, GANG)
            return
        try:
            admitted = self.admission.ask(unit)
            now = admitted if admitted.is_success else self._room.below_limits(unit, admitted)
            self.kept.admitted(unit, now or SUCCESS)
            if now is not None and now.is_success:
                self.decide(unit)
            elif now is not None:
                self.commits.keep_out(unit, OfPlugin(now.plugin, now.why), now.plugin, code=now.code)
        except PluginError as error:
            self._shared.hooks.blame(error, group)
            self.commits.keep_out(unit, str(error), error.plugin)

    def _waits_for_labels(self, unit: list[Group]) -> bool:
        """Whether pods must first be regrouped by labels that its members have or select by. For a unit with
        reservations or bound members they are regrouped at once, so it does not wait.
        """
        shared = self._shared
        selected = shared.cache.index.selected
        pending = [info for group in unit for info in group.in_state(PENDING)]
        wanted = dict.fromkeys(key for info in pending for key in selected.waited_for(info))
        if not wanted:
            return False
        if any(group.n_assumed or group.is_completing for group in unit):
            selected.add_now(wanted)
            shared.cache.settle(shared.now_s)
            return False
        why = LabelsNotIndexed((*wanted,))
        self.commits.reject(unit, why, FitError(unit[0], why, (), Code.PENDING))
        return True

    def _waits_for_claims(self, unit: list[Group]) -> bool:
        """Whether resource claims of its members are being taken back: until then it is not known what the
        members need."""
        book = self._shared.cache.claims
        for group in unit:
            for info in group.in_state(PENDING):
                for claim in book.claims_of(info.pod).values():
                    if claim.metadata.uid in book.leaving:
                        why = ClaimLeaves(claim.key)
                        self.commits.reject(unit, why, FitError(unit[0], why, (), Code.PENDING))
                        return True
        return False

    def _report_unread_walltimes(self, unit: Sequence[Group]) -> None:
        walltimes = self._shared.walltimes
        if walltimes is None:
            return
        for group in unit:
            if problems := walltimes.problems(group):
                message = f"its walltime counts as not stated: {'; '.join(problems[:_MAX_UNREAD])}"
                self._reporter.event(group, "Warning", "WalltimeUnread", "Scheduling", message)

    def _describe_ends(self, short: Shortage) -> Iterator[Why]:
        """Sentences for the condition: which groups run where room is short, and until when."""
        shared, queueing = self._shared, self._shared.settings.queueing
        if queueing is None or not queueing.writes_estimates or shared.walltimes is None:
            return
        revision = (shared.n_inputs, shared.cache.view.journal_end)
        yield from self._ends.sentences(short, shared.walltimes, revision, partial(latest_end, shared))

    def _refuse_set(self, group: Group, why: Why) -> None:
        """Refuses a set with more groups than allowed. Groups already waiting are refused in their turn."""
        self._shared.start_together.refused[group.key] = None
        self.commits.keep_out([group], why, GANG)
        for other in self._shared.start_together.neighbours(group):
            if other.state is GroupState.WAITING:
                self._shared.queue.activate(other, Cause.LOOK_AGAIN)

    def decide(self, unit: list[Group]) -> None:
        """Places the unit beside what it holds; if that fails, releases that and tries from scratch."""
        cache = self._shared.cache
        held: list[PodInfo] = []
        for group in unit:
            if group.n_assumed:
                held += group.in_state(ASSUMED)
        if lost := next((why for info in held if (why := reservation_lost(cache, info))), ""):
            for each in unit:
                self._shared.forget_all(each, lost)
        waited = self.nominations.lift(unit)
        for _ in range(_MAX_CLAIMED):
            answer = self._place_anyhow(unit, waited)
            if answer is None:
                return
            if isinstance(answer, FitError):
                self._refuse(unit, answer)
                return
            if self.kept.charge_bypasses(unit, answer):
                break
        else:
            later = FitError(unit[0], ClaimsFirst(), (), Code.PENDING)
            self.commits.reject(unit, later.why, later)
            return
        for each in unit:
            if waited is not None and not each.n_assumed:
                self._shared.queue.set_deadline(each, NEVER_S)  # it was the victims' deadline
            self.nominations.drop(each, keep_written=True)
        refused = self.commits.reserve(unit, answer)
        if refused is not None:
            why = refused.why or RefusedInReserve(refused.plugin)
            self.commits.keep_out(unit, why, refused.plugin)
            return
        self._permit(unit)

    def _place_anyhow(self, unit: list[Group], waited: Preemption | None) -> Plan | FitError | None:
        """Places it beside what it holds, from scratch, or by preemption; None: it waits for victims."""
        answer = self.placer.place(unit, self.kept)
        if isinstance(answer, FitError) and all(each.n_assumed and each.n_short <= 0 for each in unit):
            answer = Plan([])  # members beyond the needed ones stay pending for now
        if isinstance(answer, FitError):
            why = RestDoesNotFit(answer.why)
            if sum(self._shared.forget_all(each, why) for each in unit) > 0:
                self._shared.flush_changes()
                answer = self.placer.place(unit, self.kept)
        if isinstance(answer, FitError):
            if waited is not None and waited.unit[0].preemption is waited:
                return self._room.keep_waiting(unit, waited, answer)
            return self._room.make(unit, answer)
        return answer

    def _refuse(self, unit: list[Group], answer: FitError) -> None:
        """Rejects a unit that does not fit now."""
        claimed = self.kept.refused(unit, answer)
        why = answer.why
        if answer.shortage is not None:
            if unoffered(answer.shortage):
                self._shared.cache.objects.asked_for[DEVICE_CLASSES] = None
            holding = self._shared.queue.waiting
            sentences = lack_sentences(answer.shortage, answer.group, holding)
            kept = self.kept.describe(unit, answer.shortage)
            former = self._owners.former_revisions(answer.group)
            more = *sentences, *kept, former, *self._describe_ends(answer.shortage)
            why = together(why, *(one for one in more if one))
        self.commits.reject(unit, together(claimed, why) if claimed else why, answer)

    # -- outcomes ----------------------------------------------------------------------------------------

    def _permit(self, unit: list[Group]) -> None:
        shared = self._shared
        answers = []
        for group in unit:
            siblings = shared.siblings(group)
            status = self._permits.ask(group, siblings) if not group.is_completing else SUCCESS
            answers.append((group, status))
        others = [status for _, status in answers if not status.is_success]
        refused = next((status for status in others if status.code is not Code.WAIT), None)
        if refused is not None:
            why = refused.why or RefusedInPermit(refused.plugin)
            self.commits.keep_out(unit, why, refused.plugin)
        elif not others:
            for group in unit:
                self._permits.forget(group)
            self._binder.start(unit)
        else:
            for group, status in answers:
                self._hold(group, status)

    def _hold(self, group: Group, status: Status) -> None:
        """Lets the group wait with its reservations; its deadline runs from the first time it waits."""
        shared = self._shared
        deadline_s = group.deadline_s
        own = group.definition.schedule_timeout_s if group.definition else None
        wait_s = status.timeout_s or own or shared.settings.permit_wait_s
        if group.state is not GroupState.WAITING or deadline_s == NEVER_S:
            deadline_s = shared.now_s + wait_s
        shared.queue.park(group, Cause.PERMIT_WAITS, deadline_s)
        if not self._permits.is_asking(group):
            why = status.why or OthersOfSet()
            unread = shared.start_together.unread(group)
            self._reporter.waiting(group, WithProblem(why, unread) if unread else why, wait_s)

    def timed_out(self, group: Group) -> None:
        """Acts on WaitOnPermit's deadline: releases the reservations of the whole set."""
        if group.preemption is not None:
            if self._is_outdated(group):
                self.commits.give_back(group, NOT_ANY_MORE)
            elif not self.nominations.again(group):
                self._shared.count("preemption_timeouts")
                left = tuple(info.pod.key for info in group.preemption.waits_for.values())
                self.commits.give_back(group, VictimsStay(left))
            return
        if not group.n_assumed:  # it waited for victims with a group that is gone, or no longer of its set
            self._shared.queue.activate(group, Cause.LOOK_AGAIN)
            return
        self._shared.count("permit_timeouts")
        waits_for = group.why.waits_for if isinstance(group.why, Reserved) else ""
        in_s = self._shared.queue.backoff_s(group.failure + 1)
        self.commits.give_back(group, PermitTimedOut(waits_for, in_s))

    def _is_outdated(self, group: Group) -> bool:
        try:
            return group.preemption is not None and self._room.is_outdated(group.preemption)
        except PluginError as error:
            self._shared.hooks.blame(error, group)
            return True
