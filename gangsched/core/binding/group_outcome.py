"""GroupOutcome: what happens to a group once its binds are answered: bound, planned anew, completed, unwound.

A gang bound in part is a state of its own: completed first in line, or unwound by policy, within `settle_s`.
Unwinding and eviction ask again for as long as the pods are there, ever more rarely where we have no right to
evict. Called by core.groups.reconciler, core.groups.walltime_evictions, core.device_audit.device_health and
core.scheduler; the answers to binds are core.binding.binder's.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from gangsched.core.binding.pre_bind import PreBind
from gangsched.core.binding.staggered_bind import StaggeredBind
from gangsched.core.state.reporter import Reporter, clean
from gangsched.core.state.state import SharedState
from gangsched.core.state.transitions import Cause
from gangsched.core.types.group import Group, GroupState, MemberState, PodInfo
from gangsched.model.effects import EvictPod
from gangsched.model.events import EvictionFailed

UNWIND = "unwind"
_EVICT_AGAIN_S = 2.0
_LONGEST_AGAIN_S = 60.0
# A gang bound in part that waits for members says so after this long.
_GATHER_TOLD_S = 5.0


class GroupOutcome:
    """Decides for groups that are binding, bound in part or unwinding."""

    def __init__(
        self, shared: SharedState, reporter: Reporter, pre_bind: PreBind, staggered: StaggeredBind
    ) -> None:
        self._shared = shared
        self._reporter = reporter
        self._pre_bind = pre_bind
        self._staggered = staggered
        self._overrun: WeakKeyDictionary[Group, str] = WeakKeyDictionary()
        """Groups that are evicted for their walltime, and why in words."""
        self._rare_s: WeakKeyDictionary[Group, float] = WeakKeyDictionary()
        """Groups whose evictions are asked for ever more rarely, and for how long they were left alone."""

    def settle(self, group: Group) -> None:
        """Decides once no bind of the group is in flight."""
        self._pre_bind.look(group)
        if group.failed_binds:
            self._staggered.give_back(group)
        if group.n_assumed:
            return
        shared = self._shared
        why = next(iter(group.failed_binds.values()), "members left")
        if group.satisfied or group.is_whole_with(_failed_at_once(group)):
            self._whole(group, why)
        elif not group.n_holding:
            shared.queue.back_off(group, Cause.BIND_FAILED, shared.now_s)
            if group.is_gang and group.n_pending:
                shared.touch(group)  # the numbers that it was being bound by hold no longer
            said = f"gang {group.key} was not bound: {why}" if group.is_gang else why
            self._reporter.rejected(group, said)
        else:
            self._reporter.bound_in_part(group, why)
            self.half_bound(group)
        shared.stir(shared.siblings(group).values())

    def _whole(self, group: Group, why: str) -> None:
        """It has started; further members whose binds failed are tried again after its backoff."""
        shared = self._shared
        is_short = bool(group.failed_binds) and group.n_pending > 0
        landed = (info.attempt == group.attempts for info in group.in_state(MemberState.BOUND))
        group.satisfied = True
        group.recovering = False
        if not group.n_bound:
            shared.touch(group)  # all have failed already: nobody is to take it for one that runs
        shared.settle_by_s.drop(group.key)
        shared.requeue_order.drop(group)
        shared.queue.park(group, Cause.ALL_BOUND)
        if not is_short or any(landed):
            shared.count("groups_bound")
            self._reporter.bound(group)
        if is_short:
            shared.queue.back_off(group, Cause.BIND_FAILED, shared.now_s)
            self._reporter.rejected(group, f"gang {group.key} has started without all of its members: {why}")
            return
        group.failure = 0
        if group.n_pending:
            shared.queue.activate(group, Cause.MORE_MEMBERS)

    def half_bound(self, group: Group) -> None:
        """By policy: unwound at once, or first in line until half of settle_s is over and then unwound.

        Half, so that the evicted pods' grace period falls into the limit too.
        """
        shared = self._shared
        policy = (
            group.definition.on_partial_bind if group.definition else ""
        ) or shared.settings.on_partial_bind
        if policy == UNWIND:
            self.unwind(group)
            return
        shared.settle_by_s.set_if_absent(group.key, shared.now_s + shared.settings.settle_s / 2)
        self._complete(group)

    def _complete(self, group: Group) -> None:
        """First in line, at once; when that has failed before, after its backoff."""
        again, group.recovering = group.recovering, True
        if group.problem:
            # It stays refused until that is mended. What came up while it was being bound refuses it now.
            if group.state is GroupState.BINDING:
                self._shared.queue.activate(group, Cause.HALF_BOUND)
                self._shared.touch(group)
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
        group.recovering = False
        shared.forget_all(group, "the gang is bound in part and unwound")
        shared.count("groups_unwound")
        group.attempts += 1
        group.cause_id = f"{group.key}#{group.attempts}"
        self._reporter.aborted(
            group,
            f"gang {group.key} was bound in part ({group.n_bound} of {group.start_count}) and could not be "
            f"completed{': ' + group.message if group.message else ''}; its bound members are evicted",
        )
        shared.queue.park(group, Cause.UNWINDS, shared.now_s + _EVICT_AGAIN_S)
        self.evict_bound(group)
        self.unwound(group)

    def _complete_for_ever(self, group: Group) -> None:
        """Eviction is off: bound members stay, and the rest is tried first in line, until the gang is whole.

        At the latest every settle_s, whether or not anything has changed that could help.
        """
        shared = self._shared
        self._reporter.aborted(
            group,
            f"gang {group.key} is bound in part ({group.n_bound} of {group.start_count}) and cannot be "
            "given back: allowEviction is off",
        )
        shared.settle_by_s.set(group.key, shared.now_s + shared.settings.settle_s)
        if group.state is GroupState.BACKOFF:
            group.recovering = True
        else:
            group.recovering = False
            self._complete(group)

    def evict_gang(self, group: Group) -> None:
        """Evicts a gang that was whole; its successors start together when the last of it is gone."""
        self._evict_all(group, Cause.EVICTED)

    def evict_overrun(self, group: Group, why: str) -> None:
        """Likewise a gang or pod whose time is over. Refused evictions are repeated ever more rarely, and
        members that have succeeded stay as they are: only what is evicted is still owed."""
        self._overrun[group], self._rare_s[group] = why, _EVICT_AGAIN_S
        group.message = why
        self._evict_all(group, Cause.OVERRUN)

    def _evict_all(self, group: Group, cause: Cause) -> None:
        shared = self._shared
        group.recovering = False
        shared.settle_by_s.drop(group.key)
        shared.forget_all(group, "its gang is evicted")
        group.attempts += 1
        group.cause_id = f"{group.key}#{group.attempts}"
        shared.queue.park(group, cause, shared.now_s + _EVICT_AGAIN_S)
        self.evict_bound(group)
        self.unwound(group)

    def evict_bound(self, group: Group) -> None:
        """Requests the eviction of every bound member that is not terminating yet."""
        for info in group.in_state(MemberState.BOUND):
            if info.pod.metadata.deletion_timestamp is None:
                meta = info.pod.metadata
                self._shared.emit(EvictPod(info.uid, meta.namespace, meta.name, group.cause_id))

    def eviction_failed(self, event: EvictionFailed) -> None:
        """A refusal by a budget (429) is retried later; a missing verb (403) is reported, and retried
        ever more rarely: it takes a person."""
        info = self._shared.cache.pods.get(event.uid)
        if info is None or info.group is None or event.code == 404:
            return
        group, refused = info.group, f"evicting {info.pod.key}: {event.code} {event.message}"
        if (why := self._overrun.get(group)) is not None:
            group.message = clean(f"{why} It is asked again, refused: {refused}")
        elif event.code != 403:
            self._forget_refusals(group)
        elif group.state is GroupState.UNWINDING:
            self._rare_s.setdefault(group, _EVICT_AGAIN_S)
            group.message = clean(refused)
        if event.code != 429:
            self._reporter.aborted(group, refused)

    def unwound(self, group: Group) -> None:
        """When the last bound member is gone the gang starts over with those that have not succeeded."""
        if group.counts[MemberState.BOUND]:
            return
        self._forget_refusals(group)
        self._shared.queue.back_off(group, Cause.UNWOUND, self._shared.now_s)
        self._shared.stir(self._shared.siblings(group).values())

    def is_overrun(self, group: Group) -> bool:
        """Whether it is evicted for its walltime."""
        return group in self._overrun

    def stays(self, group: Group) -> None:
        """Evictions are not allowed any more: what is left of the group is not asked to go again."""
        self._forget_refusals(group)
        self._shared.queue.park(group, Cause.STAYS)
        self._shared.touch(group)

    def _forget_refusals(self, group: Group) -> None:
        self._overrun.pop(group, None)
        if self._rare_s.pop(group, None) is not None:
            group.message = ""

    def evict_again(self, group: Group) -> None:
        """Repeats evictions without effect until they succeed."""
        again_s = _EVICT_AGAIN_S
        if (before_s := self._rare_s.get(group)) is not None:
            again_s = self._rare_s[group] = min(2.0 * before_s, _LONGEST_AGAIN_S)
        self._shared.queue.set_deadline(group, self._shared.now_s + again_s)
        self.evict_bound(group)


def _failed_at_once(group: Group) -> list[PodInfo]:
    """Members started by this attempt that have already failed: their binds landed all the same."""
    return [info for info in group.in_state(MemberState.FAILED) if info.attempt == group.attempts]
