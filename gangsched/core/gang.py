"""The gang's table: every state a group can be in, what moves it on, and where to.

    state                  on                                             to             by
    ─────────────────────  ─────────────────────────────────────────────  ─────────────  ─────────────────
    Gated, Gathering       members >= min_count, numbers known            Active         GangTable.look
    Active                 Plan; all Reserve and Permit say yes           Binding        Binder.start
    Active                 extenders must be asked                        Asking         Extension.rests
    Asking                 they have answered                             Active         Extension.answered
    Asking                 one failed that may not; nobody answers        Backoff        Extension.late
    Active                 Plan; some Permit says wait                    Waiting        Attempts.decide
    Active                 FitError; others must go first (PostFilter)    Waiting        Nominations.promise
    Active                 FitError; Reserve or Permit denies             Unschedulable  Attempts.reject
    Unschedulable          curing change; 5 minute flush                  Active*        queue.hear, due
    Backoff                its end                                        Active         queue.due
    Waiting                Permit says yes                                Binding        Binder.start
    Waiting                Permit, asked at the edge, denies              Unschedulable  Attempts.reject
    Waiting                WaitOnPermit deadline; rejected by hand        Backoff        Attempts.give_back
    Waiting                a reserved node or device gone; a member       Backoff        Attempts.give_back
                           deleted below min_count
    Waiting                a member or sibling that came does not fit     Unschedulable  Attempts.reject
    Waiting for victims    the last of them is gone                       Binding        Attempts.decide
    Waiting for victims    their deadline                                 Backoff        Attempts.give_back
    Waiting for victims    what was promised will not be there            Unschedulable  Attempts.reject
    Binding                every PreBind says yes                         Binding        Binder: BindPod
    Binding                a PreBind denies, fails or is late; a member   Backoff        Preparing.stop
                           deleted below min_count before any bind
    Binding                BindUnknown; a Bind plugin has answered        Binding        Binder: GetPod
    Binding                all bound                                      Bound          Binder.settle
    Binding                a bind failed for good, nothing bound          Backoff        Binder.settle
    Binding                a bind failed for good, some bound: complete   Active, first  Binder.settle
    Binding                a bind failed for good, some bound: unwind     Unwinding      Binder.unwind
    half bound, not Bound  settle limit                                   Unwinding      Binder.unwind
    Unwinding              last bound member gone                         Gathering      Binder.unwound
    found half bound       start-up, a bind by another hand               Active, first  GangTable.recover
    Bound                  a new member                                   Active         GangTable.look
    Bound                  a device failed; its policy is evictGang       Unwinding      Binder.evict_gang
    any                    last member gone                               Deleted        GangTable.look

(* through Backoff while the backoff of the last failure is not over)

Why two gangs never wait for each other. A group holds reservations without binding only in Waiting, and
it enters Waiting only when every existing member of every group of its start_together set is reserved too
(they are placed on one Trial, all or nothing). So what a Waiting group waits for is always something that
does not exist yet: a pod or a group that its user has still to create. When that comes and does not fit
beside what is held, all the set's holds are given back in the same turn before it is tried again as one
piece (Attempts.decide), and groups of a set leave Waiting together. Hence no edge "waits for" ever points
from a group that holds to a group that holds: there is no cycle to be in, and the deadline is for users
who never come, not for deadlocks. A group that waits for its victims holds no pod's reservation: it waits
for pods that were told to go, and those wait for nobody. tests/sim/test_no_deadlock.py draws that graph
after every turn.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from gangsched.core.attempts import Attempts
from gangsched.core.binding import Binder
from gangsched.core.group import NEVER_S, Group, GroupState, MemberState
from gangsched.core.reporter import Reporter
from gangsched.core.world import World
from gangsched.model.objects import Pod

# A gang that is still being created says nothing for this long: its pods come one by one.
GATHER_REPORT_S = 5.0
# In line, or back in line by itself.
_TRIED_ANYWAY = (GroupState.ACTIVE, GroupState.ASKING, GroupState.BACKOFF)


class GangTable:
    """Looks at a group whose members or numbers changed and moves it along the table."""

    def __init__(self, world: World, reporter: Reporter, binder: Binder, attempts: Attempts) -> None:
        self._world = world
        self._reporter = reporter
        self._binder = binder
        self._attempts = attempts
        self._look_in: dict[GroupState, Callable[[Group], None]] = {
            GroupState.BINDING: binder.settle,
            GroupState.UNWINDING: binder.unwound,
            GroupState.WAITING: self._look_waiting,
        }

    def look(self, group: Group) -> None:
        """Moves the group to where its facts put it; safe to call at any time, twice changes nothing."""
        if not group.members:
            self._attempts.nominations.drop(group)
            self._world.drop_group(group)
            return
        if not group.n_bound:
            group.satisfied = False  # all of the gang that was whole is gone: its successors start together
        elif not group.satisfied and group.definition is not None and group.n_bound >= group.start_count:
            group.satisfied = True
        self._look_in.get(group.state, self._look_at_rest)(group)
        if group.satisfied:
            self._world.settle_by_s.pop(group.key, None)
            group.recovering = False

    def recover(self, group: Group) -> None:
        """A group found half bound is completed first or unwound, by policy: after a restart, mostly.

        A gang that was whole and lost members looks the same but for time: its pending members were created
        after the last bind. A pending member that existed before it was left out of a gang that never was
        whole, however many of the others are gone by now: their eviction may have been under way. Both times
        are the API server's own, to the second; a tie counts as half bound.
        """
        bound_at = [t for info in group.in_state(MemberState.BOUND) if (t := _bound_at(info.pod))]
        last = max(bound_at, default=None)
        for info in group.in_state(MemberState.PENDING):
            created = info.pod.metadata.creation_timestamp
            if last is None or created is None or created <= last:
                self._binder.half_bound(group)
                return
        group.satisfied = True

    def _look_waiting(self, group: Group) -> None:
        if group.problem or group.definition is None or not group.is_complete:
            why = group.problem or f"{group.n_existing} of {group.min_count} members are left"
            self._attempts.give_back(group, why)
            self._look_at_rest(group)
        else:
            self._world.queue.activate(group)  # looked at again in its turn, holding what it holds

    def _look_at_rest(self, group: Group) -> None:
        queue, now_s = self._world.queue, self._world.now_s
        if group.problem:
            if group.state is not GroupState.UNSCHEDULABLE or group.message != group.problem:
                group.rejected_by = (("GangScheduling", None),)
                queue.reject(group, now_s)
            self._reporter.rejected(group, group.problem)  # also to members that have come since
            group.message = group.problem
            return
        if group.recovering and not group.n_pending:
            return
        if group.is_half_bound and group.definition is not None and not group.recovering:
            self.recover(group)
            if not group.satisfied:
                return
        if not group.n_pending:
            if group.n_bound:
                queue.park(group, GroupState.BOUND)
            elif group.counts[MemberState.GATED]:
                queue.park(group, GroupState.GATED)
            else:
                queue.park(group, GroupState.GATHERING)
            return
        if not group.is_complete:
            if group.state is not GroupState.GATHERING or group.deadline_s == NEVER_S:
                queue.park(group, GroupState.GATHERING, now_s + GATHER_REPORT_S)
            return
        if group.first_complete_s == NEVER_S:
            group.first_complete_s = self._world.places.take(group, now_s)
        if group.state in _TRIED_ANYWAY:
            return
        if group.state is GroupState.UNSCHEDULABLE:
            queue.wake(group, now_s)
        else:
            queue.activate(group)

    def expired(self, group: Group) -> None:
        """A deadline of the queue's has passed: backoff, flush, report or wait, by the group's state."""
        if group.state is GroupState.WAITING:
            self._attempts.timed_out(group)
        elif group.state is GroupState.GATHERING:
            self.gathering_report(group)
        elif group.state is GroupState.UNWINDING:
            self._binder.evict_again(group)
        elif group.state in (GroupState.BACKOFF, GroupState.UNSCHEDULABLE):
            self._world.queue.park(group, GroupState.GATHERING)
            self.look(group)

    def gathering_report(self, group: Group) -> None:
        """A gang that has been incomplete for a while says who is missing."""
        if group.definition is None:
            kind = "PodGroup object" if group.is_gang else "definition"
            message = f"gang {group.key} waits for its {kind}, which does not exist (yet)"
        else:
            gated = group.counts[MemberState.GATED]
            message = f"gang {group.key} waits for members: {group.n_existing} of {group.min_count} exist"
            message += f", {gated} more are gated" if gated else ""
        self._reporter.rejected(group, message)


def _bound_at(pod: Pod) -> datetime | None:
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "True":
            return condition.last_transition_time
    return None
