"""Attempts: one group's turn, from the front of the queue to bound, waiting or rejected.

Runs the cycle for the group, or for all groups that start together, on one Trial. Applies the Plan (assume),
calls Permit, then starts the binds, holds the reservations, or rejects. Also ends a wait in Permit.
core.state.transitions explains why waiting groups never wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from gangsched.core.binding.binder import Binder
from gangsched.core.binding.reservation_checks import reservation_lost
from gangsched.core.cache.trial import ClusterView
from gangsched.core.cycle.cycle import GANG, run_cycle
from gangsched.core.cycle.near_names import unoffered
from gangsched.core.cycle.shortage import lack_sentences
from gangsched.core.cycle.unit_limits import over_unit_limit
from gangsched.core.framework.interface import SUCCESS, Code, Status
from gangsched.core.framework.plan import FitError, Plan, Shortage, first_of
from gangsched.core.framework.plugin_calls import PluginError
from gangsched.core.framework.profile import Demand
from gangsched.core.groups.failed_searches import FailedSearches
from gangsched.core.groups.forecasts import Forecasts
from gangsched.core.groups.making_room import MakingRoom
from gangsched.core.groups.owners import Owners
from gangsched.core.groups.permits import Permits
from gangsched.core.kept.claim_reports import latest_end
from gangsched.core.kept.kept import Kept
from gangsched.core.kept.nominations import Nominations, room_taken
from gangsched.core.queueing.expected_ends import EndsTold
from gangsched.core.state.reporter import Reporter
from gangsched.core.state.state import SharedState
from gangsched.core.state.transitions import Cause
from gangsched.core.types.group import (
    ASSUMED,
    NEVER_S,
    PENDING,
    Group,
    GroupState,
    MemberState,
    PodInfo,
    Preemption,
)
from gangsched.core.types.placement import Nominated, Placement
from gangsched.core.types.pod_template import PodTemplate
from gangsched.core.units import GroupAdmission, Units
from gangsched.model.printable import marked
from gangsched.model.workloads import DEVICE_CLASSES

# Limit on claims made for other groups in one turn; each costs a plan.
_MAX_CLAIMED = 4
# How many unreadable statements one event names.
_MAX_UNREAD = 3
NOT_ANY_MORE = "preemption: its victims may no longer be evicted"
_CLAIMS_FIRST = "groups ahead of it have been passed as often as allowed: room is kept for them first"


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
        self.kept = Kept(shared, reporter, self._units)
        self._ends = EndsTold()
        self.forecasts = Forecasts(shared, reporter, owners)
        self.searches = FailedSearches(shared)
        self._room = MakingRoom(
            shared,
            self.nominations,
            self.kept,
            self._units,
            self.searches,
            cycle=self._cycle,
            place=self._place,
            give_back=self.give_back,
            rounds=self.nominations.rounds,
        )

    def run(self, group: Group) -> None:
        """Takes the group's turn, with the groups that start together with it."""
        if group.start_together and not group.starts_alone:
            if too_large := self._shared.start_together.problem(group):
                self._refuse_set(group, too_large)
                return
            self._shared.start_together.refused.pop(group.key, None)
            if (busy := self._shared.start_together.busy(group)) is not None:
                other = marked("gang", [str(busy.key)])
                why = f"gang {group.key} starts together with {other}, which is {busy.state.value}"
                self._keep_out([group], why, GANG)
                return
        unit = self._units.unit(group)
        if self._shared.cache.index.selected.waiting and self._waits_for_labels(unit):
            return
        for each in unit:
            each.attempts += 1
            each.tried_s = self._shared.now_s
            each.cause_id = f"{each.key}#{each.attempts}"
            self._shared.queue.leave_line(each)
        self._shared.count("attempts", len(unit))
        self._report_unread_walltimes(unit)
        if self._shared.observer is not None:
            self._shared.observer.attempt_began(unit)
        if too_much := over_unit_limit([group.in_state(PENDING) for group in unit]):
            self._keep_out(unit, too_much, GANG)
            return
        try:
            admitted = self.admission.ask(unit)
            now = admitted if admitted.is_success else self._room.below_limits(unit, admitted)
            self.kept.admitted(unit, now or SUCCESS)
            if now is not None and now.is_success:
                self.decide(unit)
            elif now is not None:
                self._keep_out(unit, f"{now.plugin}: {now.reason}", now.plugin, code=now.code)
        except PluginError as error:
            self._shared.hooks.blame(error, group)
            self._keep_out(unit, str(error), error.plugin)

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
        named = ", ".join([*wanted][:3]) + (", …" if len(wanted) > 3 else "")
        message = (
            f"pods are still being indexed by labels that selectors have only begun to use ({named}); "
            "it is tried again within seconds"
        )
        self._reject(unit, message, FitError(unit[0], message, (), Code.PENDING))
        return True

    def _report_unread_walltimes(self, unit: Sequence[Group]) -> None:
        walltimes = self._shared.walltimes
        if walltimes is None:
            return
        for group in unit:
            if problems := walltimes.problems(group):
                message = f"its walltime counts as not stated: {'; '.join(problems[:_MAX_UNREAD])}"
                self._reporter.event(group, "Warning", "WalltimeUnread", "Scheduling", message)

    def _describe_ends(self, short: Shortage) -> Iterator[str]:
        """Sentences for the condition: which groups run where room is short, and until when."""
        shared, queueing = self._shared, self._shared.settings.queueing
        if queueing is None or not queueing.writes_estimates or shared.walltimes is None:
            return
        revision = (shared.n_inputs, shared.cache.view.journal_end)
        yield from self._ends.told(short, shared.walltimes, revision, partial(latest_end, shared))

    def _refuse_set(self, group: Group, why: str) -> None:
        """Refuses a set with more groups than allowed. Groups already waiting are refused in their turn."""
        self._shared.start_together.refused[group.key] = None
        self._keep_out([group], why, GANG)
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
            later = FitError(unit[0], _CLAIMS_FIRST, (), Code.PENDING)
            self._reject(unit, _CLAIMS_FIRST, later)
            return
        for each in unit:
            if waited is not None and not each.n_assumed:
                self._shared.queue.set_deadline(each, NEVER_S)  # it was the victims' deadline
            self.nominations.drop(each, keep_written=True)
        refused = self._reserve(unit, answer)
        if refused is not None:
            self._keep_out(unit, refused.reason or f"{refused.plugin} refused it in Reserve", refused.plugin)
            return
        self._permit(unit)

    def _place_anyhow(self, unit: list[Group], waited: Preemption | None) -> Plan | FitError | None:
        """Places it beside what it holds, from scratch, or by preemption; None: it waits for victims."""
        answer = self._place(unit)
        if isinstance(answer, FitError) and all(each.n_assumed and each.n_short <= 0 for each in unit):
            answer = Plan([])  # members beyond the needed ones stay pending for now
        if isinstance(answer, FitError):
            why = f"the rest does not fit beside what was reserved: {answer.message}"
            if sum(self._shared.forget_all(each, why) for each in unit) > 0:
                self._shared.flush_changes()
                answer = self._place(unit)
        if isinstance(answer, FitError):
            if waited is not None and waited.unit[0].preemption is waited:
                return self._room.keep_waiting(unit, waited, answer)
            return self._room.make(unit, answer)
        return answer

    def _refuse(self, unit: list[Group], answer: FitError) -> None:
        """Rejects a unit that does not fit now."""
        claimed = self.kept.refused(unit, answer)
        message = answer.message
        if answer.shortage is not None:
            if unoffered(answer.shortage):
                self._shared.cache.objects.asked_for[DEVICE_CLASSES] = None
            holding = self._shared.queue.waiting
            sentences = lack_sentences(answer.shortage, answer.group, holding)
            kept = self.kept.describe(unit, answer.shortage)
            former = self._owners.former_sentences(answer.group)
            message = " ".join((message, *sentences, *kept, *former, *self._describe_ends(answer.shortage)))
        self._reject(unit, f"{claimed} {message}" if claimed else message, answer)

    def _place(self, unit: list[Group]) -> Plan | FitError:
        demands = self._units.demands(unit, observed=True)
        if not demands:
            return Plan([])  # all of it is reserved already
        groups, view = [demand.group for demand in demands], self._shared.cache.view
        answer: Plan | FitError | None = None
        for kept in self.kept.ways_to_start(groups):
            answer = self._cycle(demands, view, nominated=kept)
            if isinstance(answer, Plan):
                break
        assert answer is not None, "there is at least one way"
        return answer

    def _cycle(
        self,
        demands: Sequence[Demand],
        view: ClusterView,
        search_budget: int | None = None,
        nominated: Sequence[Nominated] | None = None,
    ) -> Plan | FitError:
        """Runs the cycle. nominated: room kept from it; None: all that claims will need."""
        shared = self._shared
        if nominated is None:
            nominated = self.kept.kept_from([demand.group for demand in demands]).room
        return run_cycle(
            demands,
            view,
            topology_key=shared.settings.topology_key,
            nominated=nominated,
            search_budget=shared.settings.search_placements if search_budget is None else search_budget,
        )

    # -- outcomes ----------------------------------------------------------------------------------------

    def _reserve(self, unit: list[Group], plan: Plan) -> Status | None:
        """Applies the Plan; returns the first Reserve plugin's "no". Raises: PluginError."""
        observer = self._shared.observer
        if observer is not None:
            observer.point_began("Reserve")
        self.kept.charge_passes(unit)
        self._shared.cache.assume(plan.placements)
        self.kept.started(unit, plan)
        self.forecasts.started(unit)
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
            self._keep_out(unit, refused.reason or f"{refused.plugin} refused it in Permit", refused.plugin)
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
            why = status.reason or "another group that starts with it"
            unread = shared.start_together.unread(group)
            self._reporter.waiting(group, f"{why} ({unread})" if unread else why, wait_s)

    def _keep_out(self, unit: list[Group], why: str, plugin: str, *, code: Code = Code.UNSCHEDULABLE) -> None:
        """Rejects the unit, but not for lack of room: a plugin refuses or fails, or its set cannot start."""
        for group in unit:
            self._shared.forget_all(group, why)
        claimed = self.kept.kept_out(unit, for_good=code is Code.UNRESOLVABLE)
        message = f"{claimed} {why}" if claimed else why
        self._rejected(unit, message, ((plugin, None),), is_pending=code is Code.PENDING)

    def _reject(self, unit: list[Group], message: str, answer: FitError) -> None:
        """Rejects the unit and releases its reservations."""
        for group in unit:
            self._shared.forget_all(group, message)
        self._rejected(unit, message, answer.rejected_by, is_pending=answer.code is Code.PENDING)

    def _rejected(
        self,
        unit: list[Group],
        message: str,
        rejected_by: tuple[tuple[str, PodTemplate | None], ...],
        *,
        is_pending: bool = False,
    ) -> None:
        """Ends the attempt, reservations released. is_pending: no change will signal when it may fit."""
        for group in unit:
            self.nominations.drop(group)
        self.forecasts.rejected(unit)
        self._shared.flush_changes()
        for group in unit:
            group.rejected_by = rejected_by
            for info in group.in_state(MemberState.PENDING):
                self.nominations.unwrite(info)
            self._shared.count("rejections")
            if is_pending:
                self._shared.queue.back_off(group, Cause.SAID_LATER, self._shared.now_s)
            else:
                self._shared.queue.reject(group, Cause.REJECTED, self._shared.now_s)
                self.nominations.rounds.awaited(group, unit[0])
            self._reporter.rejected(group, message)

    def timed_out(self, group: Group) -> None:
        """Acts on WaitOnPermit's deadline: releases the reservations of the whole set."""
        if group.preemption is not None:
            if self._is_outdated(group):
                self.give_back(group, NOT_ANY_MORE)
            elif not self.nominations.again(group):
                self._shared.count("preemption_timeouts")
                left = marked("pod", [info.pod.key for info in group.preemption.waits_for.values()])
                self.give_back(group, f"preemption: its victims did not go in time: {left}")
            return
        if not group.n_assumed:  # it waited for victims with a group that is gone, or no longer of its set
            self._shared.queue.activate(group, Cause.LOOK_AGAIN)
            return
        self._shared.count("permit_timeouts")
        waited_for = group.message.removeprefix(f"gang {group.key} is reserved and waits: ")
        waited_for = waited_for.rpartition("; for ")[0]
        why = f" ({waited_for})" if waited_for else ""
        in_s = self._shared.queue.backoff_s(group.failure + 1)
        self.give_back(group, f"WaitOnPermit timed out{why}; it is tried again in {in_s:g} s")

    def _is_outdated(self, group: Group) -> bool:
        try:
            return group.preemption is not None and self._room.is_outdated(group.preemption)
        except PluginError as error:
            self._shared.hooks.blame(error, group)
            return True

    def give_back(self, group: Group, why: str) -> None:
        """Releases the reservations of a waiting group and its waiting siblings; they back off."""
        shared = self._shared
        together = [group, *(g for g in shared.siblings(group).values() if g.state is GroupState.WAITING)]
        for each in together:
            shared.forget_all(each, why)
            self.nominations.drop(each)
            shared.queue.back_off(each, Cause.GAVE_BACK, shared.now_s)
            self._reporter.aborted(each, f"gang {each.key} gives its reservations back: {why}")
            self._reporter.rejected(each, f"gang {each.key} gave its reservations back: {why}")
        shared.flush_changes()
