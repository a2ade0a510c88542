"""GroupOutcome: what happens to a group once its binds are answered: planned again, completed, unwound.

A gang bound in part has a state of its own: completed first in line, or unwound by policy, within `settle_s`.
Unwinding and eviction ask again for as long as the pods are there, ever more rarely (core.state.evictions).
Called by core.groups.reconciler, core.groups.walltime_evictions, core.device_audit.device_health,
core.turns.overdue, core.turns.event_handlers and core.turns.reconfigure; core.binding.binder takes the
answers to binds.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from gangsched.core.binding.pre_bind import PreBind
from gangsched.core.binding.staggered_bind import StaggeredBind
from gangsched.core.binding.start_records import BOUND_IN_PART, EVICTED, StartRecords, all_landed
from gangsched.core.state.evictions import FIRST_PAUSE_S
from gangsched.core.state.reporter import Reporter
from gangsched.core.state.state import SharedState
from gangsched.core.state.tables.groups import Cause
from gangsched.core.state.tables.starts import StartCause, move_start
from gangsched.core.types.group import BOUND, Group, GroupState
from gangsched.core.why import Why
from gangsched.core.why.binds import LeftWhileBound, NotBound, StartedInPart
from gangsched.core.why.evictions import Evicted, EvictedAgain, EvictionRefused
from gangsched.model.events import EvictionFailed

UNWIND = "unwind"
# A gang bound in part that waits for members reports it after this long.
_GATHER_TOLD_S = 5.0


class GroupOutcome:
    """Decides for groups that are binding, bound in part or unwinding."""

    def __init__(
        self,
        shared: SharedState,
        reporter: Reporter,
        pre_bind: PreBind,
        staggered: StaggeredBind,
        records: StartRecords,
    ) -> None:
        self._shared = shared
        self._reporter = reporter
        self._pre_bind = pre_bind
        self._staggered = staggered
        self._records = records
        self._overrun: WeakKeyDictionary[Group, Why] = WeakKeyDictionary()
        """Groups evicted for their walltime, and the reason."""
        self._refused: WeakKeyDictionary[Group, None] = WeakKeyDictionary()
        """Groups whose message is the last refusal of an eviction."""

    def settle(self, group: Group) -> None:
        """Decides once no bind of the group is in flight."""
        self._pre_bind.go_on_or_stop(group)
        if group.failed_binds:
            self._staggered.give_back(group)
        if group.n_assumed:
            return
        shared = self._shared
        why = next(iter(group.failed_binds.values()), LeftWhileBound())
        if group.has_started or all_landed(group):
            self._whole(group, why)
        elif not group.n_holding:
            shared.queue.back_off(group, Cause.BIND_FAILED, shared.now_s)
            if group.is_gang and group.n_pending:
                shared.mark_group(group)  # the numbers by which it was being bound no longer hold
            self._reporter.rejected(group, NotBound(str(group.key), why) if group.is_gang else why)
        else:
            self._reporter.bound_in_part(group, why)
            self.half_bound(group)
        shared.try_again(shared.siblings(group).values())

    def _whole(self, group: Group, why: Why) -> None:
        """Records that the group has started; other members whose binds failed are retried after its
        backoff."""
        shared = self._shared
        is_short = bool(group.failed_binds) and group.n_pending > 0
        if not group.has_started:
            move_start(group, StartCause.WHOLE)
        self._records.write_whole(group)
        if not group.n_bound:
            shared.mark_group(group)  # all have failed already: it must not be taken for a running group
        shared.settle_by_s.drop(group.key)
        shared.requeue_order.drop(group)
        shared.queue.park(group, Cause.ALL_BOUND)
        if not is_short or any(info.attempt == group.attempts for info in group.in_state(BOUND)):
            shared.count("groups_bound")
            self._reporter.bound(group)
        if is_short:
            shared.queue.back_off(group, Cause.BIND_FAILED, shared.now_s)
            self._reporter.rejected(group, StartedInPart(str(group.key), why))
            return
        group.failure = 0
        if group.n_pending:
            shared.queue.activate(group, Cause.MORE_MEMBERS)

    def half_bound(self, group: Group) -> None:
        """By policy: unwinds at once, or tries the gang first in line for half of settle_s and then unwinds
        it.

        Half, so that the evicted pods' grace period is within the limit too.
        """
        shared = self._shared
        policy = (
            group.definition.on_partial_bind if group.definition else ""
        ) or shared.settings.on_partial_bind
        if policy == UNWIND:
            self.unwind(group)
            return
        shared.settle_by_s.set_if_absent(group.key, shared.now_s + shared.settings.settle_s / 2)
        in_part = f"gang {group.key} is bound in part ({group.n_bound} of {group.start_count})"
        self._records.mark(group, BOUND_IN_PART, f"{in_part}: {group.message or 'members left'}")
        self._complete(group)

    def _complete(self, group: Group) -> None:
        """Tries the gang first in line, at once; after its backoff if that has failed before."""
        again = group.is_completing
        if not again:
            move_start(group, StartCause.IN_PART)
        if group.problem:
            # It stays refused until that is fixed. A problem found while it was being bound refuses it now.
            if group.state is GroupState.BINDING:
                self._shared.queue.activate(group, Cause.HALF_BOUND)
                self._shared.mark_group(group)
            return
        if not group.n_pending:
            self._shared.queue.park(group, Cause.HALF_BOUND_ALONE, self._shared.now_s + _GATHER_TOLD_S)
        elif again:
            self._shared.queue.back_off(group, Cause.HALF_BOUND_AGAIN, self._shared.now_s)
        else:
            self._shared.queue.activate(group, Cause.HALF_BOUND)

    def unwind(self, group: Group) -> None:
        """Unwinds a half-bound gang: evicts its bound members, releases its reservations."""
        shared = self._shared
        shared.settle_by_s.drop(group.key)
        if not shared.settings.allow_eviction:
            self._complete_for_ever(group)
            return
        if group.is_completing:
            move_start(group, StartCause.GIVEN_UP)
        shared.forget_all(group, "the gang is bound in part and unwound")
        shared.count("groups_unwound")
        group.attempts += 1
        group.cause_id = f"{group.key}#{group.attempts}"
        self._reporter.aborted(
            group,
            f"gang {group.key} was bound in part ({group.n_bound} of {group.start_count}) and could not be "
            f"completed{': ' + group.message if group.message else ''}; its bound members are evicted",
        )
        shared.queue.park(group, Cause.UNWINDS, shared.now_s + FIRST_PAUSE_S)
        self.evict_bound(group)
        self.unwound(group)

    def _complete_for_ever(self, group: Group) -> None:
        """Keeps bound members, as eviction is off, and tries the rest first in line until the gang is whole.

        Tries at least every settle_s, whether or not anything has changed that could help.
        """
        shared = self._shared
        self._reporter.aborted(
            group,
            f"gang {group.key} is bound in part ({group.n_bound} of {group.start_count}) and cannot be "
            "given back: allowEviction is off",
        )
        shared.settle_by_s.set(group.key, shared.now_s + shared.settings.settle_s)
        if group.is_completing:
            move_start(group, StartCause.GIVEN_UP)
        if group.state is GroupState.BACKOFF:
            move_start(group, StartCause.IN_PART)
        else:
            self._complete(group)

    def evict_gang(self, group: Group) -> None:
        """Evicts a gang that was whole; its successors start together when the last of it is gone."""
        self._evict_all(group, Cause.EVICTED)

    def evict_overrun(self, group: Group, why: Why) -> None:
        """Likewise evicts a gang or pod whose time is over. Members that have succeeded stay as they are:
        only evicted ones still have to run."""
        self._overrun[group] = group.why = Evicted(why)
        self._evict_all(group, Cause.OVERRUN)

    def _evict_all(self, group: Group, cause: Cause) -> None:
        shared = self._shared
        if group.is_completing:
            move_start(group, StartCause.GIVEN_UP)
        shared.settle_by_s.drop(group.key)
        shared.forget_all(group, "its gang is evicted")
        group.attempts += 1
        group.cause_id = f"{group.key}#{group.attempts}"
        shared.queue.park(group, cause, shared.now_s + FIRST_PAUSE_S)
        self.evict_bound(group)
        self.unwound(group)

    def evict_bound(self, group: Group) -> None:
        """Requests the eviction of every bound member that is not terminating yet. A later process goes on
        with it where a member says so."""
        if group.is_gang and group.n_holding > 1:
            self._records.mark(group, EVICTED, f"gang {group.key} is evicted whole")
        for info in group.in_state(BOUND):
            if info.pod.metadata.deletion_timestamp is None:
                self._shared.evictions.ask(info, self._shared.now_s, group.cause_id)

    def eviction_failed(self, event: EvictionFailed) -> None:
        """Keeps the refusal for explain; reports it as an event unless a budget refused (429)."""
        info = self._shared.cache.pods.get(event.uid)
        if info is None or info.group is None or event.code == 404:
            return
        group, refused = info.group, EvictionRefused(info.pod.key, event.code, event.message)
        if (why := self._overrun.get(group)) is not None:
            group.why = EvictedAgain(why, refused)
        elif group.state is GroupState.UNWINDING:
            self._refused[group] = None
            group.why = refused
        if event.code != 429:
            self._reporter.aborted(group, str(refused))

    def unwound(self, group: Group) -> None:
        """Starts the gang over, once its last bound member is gone, with members that have not succeeded."""
        if group.counts[BOUND]:
            return
        self._forget_refusals(group)
        self._shared.queue.back_off(group, Cause.UNWOUND, self._shared.now_s)
        self._shared.try_again(self._shared.siblings(group).values())

    def is_overrun(self, group: Group) -> bool:
        """Whether the group is evicted for its walltime."""
        return group in self._overrun

    def stays(self, group: Group) -> None:
        """Leaves what remains of the group: evictions are not allowed any more."""
        self._forget_refusals(group)
        self._shared.queue.park(group, Cause.STAYS)
        self._shared.mark_group(group)

    def _forget_refusals(self, group: Group) -> None:
        if self._overrun.pop(group, None) is not None or group in self._refused:
            self._refused.pop(group, None)
            group.why = ""

    def evict_again(self, group: Group) -> None:
        """Repeats evictions without effect until they succeed."""
        self.evict_bound(group)
        self._shared.queue.set_deadline(group, self._again_s(group))

    def _again_s(self, group: Group) -> float:
        staying = [i for i in group.in_state(BOUND) if i.pod.metadata.deletion_timestamp is None]
        return self._shared.evictions.again_s(staying, self._shared.now_s)
