"""SharedState: state shared by the core's packages during a turn, and the turn's output.

No part keeps state of its own about pods or groups. A turn is one call of Scheduler.handle, advance or
schedule_next: it collects effects and changes here, and ends by waking the groups that these may cure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gangsched.config import Settings, on_trial
from gangsched.config.queueing import SHADOW, QueueingSettings
from gangsched.core.cache.cache import Cache
from gangsched.core.cache.queues.book import QueueBook
from gangsched.core.cache.queues.namespace_usage import Limits, NamespaceUsage, QueueView
from gangsched.core.cache.queues.tree import QueueTree
from gangsched.core.cache.template_table import Signers
from gangsched.core.framework.observer import Observer
from gangsched.core.framework.plugin_calls import PluginError
from gangsched.core.framework.points.queueing import usage_labels
from gangsched.core.framework.profile import Profile
from gangsched.core.queueing.bounds import ArrivalWaits
from gangsched.core.queueing.bypasses import Bypasses
from gangsched.core.queueing.claims import Claims
from gangsched.core.queueing.ends import End, Ends, EndsNow
from gangsched.core.queueing.walltimes import Walltimes
from gangsched.core.state.claim_uses import DEALLOCATED_WITHIN_S, ClaimUses
from gangsched.core.state.evictions import Evictions
from gangsched.core.state.holes import Holes
from gangsched.core.state.line.lanes import Lanes
from gangsched.core.state.line.queue import SchedulingQueue
from gangsched.core.state.line.queue_order import QueueOrder
from gangsched.core.state.line.requeue_order import RequeueOrder
from gangsched.core.state.line.waking import Waking
from gangsched.core.state.pending_hooks import PendingHooks
from gangsched.core.state.plugin_waits import EnqueueWaits, PermitWait
from gangsched.core.state.start_together import StartTogether
from gangsched.core.state.tables.groups import Cause
from gangsched.core.state.timers import DeadlineKind, Deadlines, Retries, Timers
from gangsched.core.types.clock import Clock
from gangsched.core.types.cluster_events import ClusterChange
from gangsched.core.types.group import Group, GroupState, MemberState, PodInfo, Preemption
from gangsched.core.types.placement import Placement
from gangsched.core.types.states import ENDED
from gangsched.core.why import Why
from gangsched.model.effects import Effect
from gangsched.model.objects import Pod
from gangsched.model.pod_group import GroupKey

PRE_ENQUEUE = -1
"""In place of a retry's attempt: PreEnqueue failed, and is called again."""
READ_GONE = -2
"""Likewise: read a pod that the server reported gone before the watch did."""


class SharedState:
    """Shared state and this turn's output."""

    def __init__(
        self,
        profiles: Mapping[str, Profile],
        settings: Settings,
        *,
        node_capacity: int = 64,
        observer: Observer | None = None,
        wall_ahead_s: float | None = None,
    ) -> None:
        """wall_ahead_s: Unix time less the turns' clock; None if unknown."""
        self.profiles = profiles
        self.retiring: frozenset[str] = frozenset()
        """Profiles that are gone from the configuration but still bind (core.turns.reconfigure)."""
        self.settings = settings
        self.observer = observer
        self.cache = Cache(
            node_capacity=node_capacity,
            invalid_inventory=settings.invalid_inventory,
            counted=settings.devices.counted,
            in_labels=settings.devices.in_labels,
            by_plan=settings.devices.spaced,
            signers=_signers(profiles),
        )
        self.cache.claims.picks_better = settings.devices.picks_better
        self.queue_view: QueueView | None = None
        """What PreEnqueue and QueueSort see, if one of them looks."""
        self.queue_book: QueueBook | None = None
        """What each queue holds, if queues are configured."""
        self.limits: Limits | None = None
        """What limits keep for groups: core.kept.limits, which is made with the core's other parts."""
        self.walltimes: Walltimes | None = None
        self.ends: Ends | None = None
        self.ends_now: EndsNow | None = None
        self.claims: Claims | None = None
        """The record of claims, while there is `queueing` whose bounds are enforced."""
        self.wall_ahead_s = wall_ahead_s
        self.groups: dict[GroupKey, Group] = {}
        self.start_together = StartTogether(self.groups)
        self.clock = Clock()
        self.n_inputs = 0  # grows whenever events or settings are taken in
        self.effects: list[Effect] = []
        """What this turn has decided; several parts add to this one list."""
        self.changes: list[ClusterChange] = []
        self.marked_groups: dict[GroupKey, Group] = {}
        self.timers = Timers()
        self.settle_by_s: Deadlines[GroupKey] = Deadlines(self.timers, DeadlineKind.HALF_BOUND)
        """Half-bound groups, and when each is unwound unless it is whole by then."""
        self.holes = Holes(self.cache, self.timers)
        self.retries = Retries(self.timers)
        """Binds to be sent again, and PreEnqueue to be called again."""
        self.lowest_of_groups = 2**31
        """The lowest priority of any group's object, ever."""
        self.victims: dict[str, list[Preemption]] = {}
        """By UID: pods whose leaving some group waits for."""
        self.stuck: dict[str, None] = {}
        """UIDs of victims that had not gone by their deadline; not chosen again."""
        self.unanswered: dict[str, Pod] = {}
        """By UID: refused pods that may have a bind in flight, as last seen; their room stays reserved."""
        self.counters: Counter[str] = Counter()
        self.claim_uses = ClaimUses(self.cache.claims, self.timers)
        """What is being written about resource claims."""
        self.hooks = PendingHooks(self.effects, self.counters)
        self.permit_waits: dict[GroupKey, PermitWait] = {}
        """Reserved groups that Permit plugins were asked about."""
        self.enqueue_waits = EnqueueWaits(self)
        """Pods that PreEnqueue plugins keep out of the queue."""
        self.requeue_order = RequeueOrder()
        self.reported_pods: dict[str, frozenset[str]] = {}
        """By node: UIDs of the pods whose devices kubelet has reported."""
        self.evictions = Evictions(self.cache.pods, self.effects)
        self.decides = False
        """Whether all existing objects have been received and no other process leads."""
        self.broken_reservations: dict[GroupKey, tuple[Group, Why]] = {}
        """Groups with a broken reservation found in this turn, and why."""
        self._take_walltimes(settings.queueing)
        order, lanes = self._take_order(profiles)
        self.queue = SchedulingQueue(
            shared=self,
            order=order,
            waking=Waking(self),
            clock=self.clock,
            timers=self.timers,
            initial_backoff_s=settings.pod_initial_backoff_s,
            max_backoff_s=settings.pod_max_backoff_s,
            flush_s=settings.unschedulable_flush_s,
            observer=self.observer,
        )
        self.queue.lanes = lanes
        self._take_queueing(settings.queueing)

    @property
    def now_s(self) -> float:
        """The time of this turn."""
        return self.clock.now_s

    def configure(self, profiles: Mapping[str, Profile], settings: Settings) -> None:
        """Puts these into effect; core.turns.reconfigure handles which pods are ours."""
        self.profiles = profiles
        self.settings = settings
        self.n_inputs += 1
        self.queue.configure(
            initial_backoff_s=settings.pod_initial_backoff_s,
            max_backoff_s=settings.pod_max_backoff_s,
            flush_s=settings.unschedulable_flush_s,
        )
        self.cache.sign_by(_signers(profiles))
        self._take_walltimes(settings.queueing)
        self.queue.order, self.queue.lanes = self._take_order(profiles)
        self._take_queueing(settings.queueing)

    def become_copy(self, *, allow_eviction: bool) -> None:
        """Makes this a copy that answers what-if questions; observers are no longer called."""
        self.observer = self.queue.observer = None
        self.profiles = {name: profile.quiet for name, profile in self.profiles.items()}
        self.settings = on_trial(self.settings, allow_eviction=allow_eviction)

    def _take_order(self, profiles: Mapping[str, Profile]) -> tuple[QueueOrder, Lanes | None]:
        """Sets the plugins' usage trackers, and each namespace's use if a plugin reads it; returns the
        queue's order."""
        trackers = [one for profile in profiles.values() for one in profile.usage_trackers]
        before, self.queue_view, usage = self.queue_view, None, None
        known, self.queue_book, workloads = self.queue_book, None, self.cache.objects.workloads
        if self.walltimes is not None:
            self.walltimes.tree = None
        if any(profile.reads_usage for profile in profiles.values()):
            usage = NamespaceUsage(usage_labels(next(iter(profiles.values())).queue_sort))
            trackers.append(usage)
            if self.settings.queues is not None:
                tree = QueueTree(self.settings.queues)
                if self.walltimes is not None:
                    self.walltimes.tree = tree
                self.queue_book = QueueBook(tree, usage.changed, workloads, self.ends, self.wall_ahead_s)
                trackers.append(self.queue_book)
                if known is not None:
                    self.queue_book.inherit(known, self.now_s)
            nodes, book, nominated = self.cache.nodes, self.queue_book, self.cache.nominated
            walltimes, going = self.walltimes, self.victims
            self.queue_view = QueueView(nodes, usage, book, walltimes, nominated, going, self, before)
        self.cache.keep_usage_trackers(trackers)
        sort = next(iter(profiles.values())).queue_sort
        order = QueueOrder(sort, self.queue_view, self.hooks)
        if not order.has_lanes or self.queue_view is None or usage is None:
            return order, None
        return order, Lanes(self.queue_view, usage, order)

    def queues(self) -> QueueBook | None:
        """Returns what each queue holds, as shares of what the nodes offer now; None without queues."""
        return None if self.queue_view is None else self.queue_view.queues

    def _take_walltimes(self, own: QueueingSettings | None) -> None:
        """Keeps what was learned while there is `queueing`. Runs before the queues, which read it."""
        if own is None:
            self.walltimes = self.ends = self.ends_now = None
        elif self.walltimes is None or self.ends is None:
            self.walltimes = Walltimes(own)
            self.ends = Ends(self.walltimes, self.cache.pods)
            self.ends_now = EndsNow(self.ends, self.stuck, self.clock, self.wall_ahead_s)
        else:
            self.walltimes.configure(own)
            self.ends.configured()

    def _take_queueing(self, own: QueueingSettings | None) -> None:
        """Keeps its counts while `queueing` is in effect."""
        if own is None or self.ends is None or self.ends_now is None:
            self.queue.bypasses = self.claims = None
            self.timers.claims = {}
            return
        order, view = self.queue.order, self.queue_view
        tree = None if self.queue_book is None else self.queue_book.tree
        if self.queue.bypasses is None:
            waits = ArrivalWaits(view, self.ends)
            self.queue.bypasses = Bypasses(own, self.groups, order, tree, waits)
        else:
            self.queue.bypasses.configure(own, order, tree, view, self.now_s)
        if own.mode == SHADOW:
            self.claims, self.timers.claims = None, {}
            self.queue.bypasses.count_claimed(())
        elif self.claims is None:
            self.claims = Claims(self.cache, self.clock, self.ends_now)
            self.timers.claims = self.claims.by_key
            self.queue.bypasses.count_claimed(self.claims.by_key)
        if self.claims is not None:
            self.claims.configure(own, self.now_s)

    def end_of(self, info: PodInfo) -> End:
        """Returns when a pod on a node is expected to end; only where the configuration has `queueing`."""
        assert self.ends_now is not None
        return self.ends_now.end(info)

    def passing_place(self, group: Group) -> tuple[object, ...]:
        """Returns the group's place in its lane: a group behind it that starts first has passed it."""
        return self.queue.order.passing(group)[1]

    def set_time(self, now_s: float) -> None:
        """Begins a turn at this time."""
        self.clock.now_s = now_s
        self.cache.usage_trackers.advance(now_s)
        if self.queue_view is not None:
            self.queue_view.set_time(now_s)

    def is_reported(self, info: PodInfo) -> bool:
        """Whether kubelet has reported what it gave this pod."""
        return info.uid in self.reported_pods.get(info.node_name, ())

    def emit(self, effect: Effect) -> None:
        """Adds an effect to this turn's output."""
        self.effects.append(effect)

    def take_effects(self) -> list[Effect]:
        """Ends a turn's output: returns it."""
        effects = self.effects.copy()
        self.effects.clear()
        return effects

    def count(self, name: str, n: int = 1) -> None:
        """Adds to a counter in statistics()."""
        self.counters[name] += n

    def mark_group(self, group: Group) -> None:
        """Marks the group: its numbers and state are worked out again before the turn ends."""
        self.marked_groups[group.key] = group

    def profile_of(self, group: Group) -> Profile:
        return self.profiles[group.scheduler_name]

    def packing_weight(self, group: Group) -> int | None:
        """Returns the weight of packing beside the scores; None: the gang is packed first."""
        own = group.definition.packing_weight if group.definition is not None else None
        return self.settings.packing_weights.get(group.scheduler_name) if own is None else own

    def forget(self, info: PodInfo, state: MemberState) -> None:
        """Releases what a member holds and moves it to `state`."""
        self.release(info)
        if info.group is not None:
            if state is MemberState.DONE and self.walltimes is not None:
                self.walltimes.finished(info.group, info)
            info.group.move(info, state)
        else:
            info.state = state
        self.left_node(info.uid, info.pod if state in ENDED else None)

    def release(self, info: PodInfo) -> None:
        """Releases what a pod holds, reserved or on its node; the freed room may cure other groups."""
        if info.state is MemberState.BOUND and self.settings.successor_timeout_s:
            self.holes.left(info)
        if info.state is MemberState.ASSUMED:
            self.unreserve([info])
        elif self.ends is not None and self.queue_book is not None:
            self.ends.note_leaving(info, self.now_s)  # only shortest-first queues ask how long pods run
        group = info.group  # groups that start together are as important as the first of them
        was_kept = info.uid in self.stuck or (group is not None and bool(group.start_together))
        if (change := self.cache.forget(info, was_kept=was_kept)) is not None:
            self.changes.append(change)

    def lowest_priority(self) -> int:
        """Returns a cheap lower bound of the priorities of pods on nodes."""
        return min(min(self.cache.priorities, default=2**31), self.lowest_of_groups)

    def left_node(self, uid: str, pod: Pod | None = None) -> None:
        """Handles a pod that has left its node: if it was the last victim of a group, that group gets its
        turn. pod: it has ended, or is gone, so that nothing uses its claims for it."""
        self.stuck.pop(uid, None)
        if pod is not None and pod.uses_claims and uid in self.victims:
            self.claim_uses.victim_gone(pod, self.now_s + DEALLOCATED_WITHIN_S)
        for preemption in self.victims.pop(uid, ()):
            del preemption.waits_for[uid]
            if not preemption.waits_for:
                self.queue.activate(preemption.unit[0], Cause.LOOK_AGAIN)

    def forget_all(self, group: Group, why: Why) -> int:
        """Releases all reservations of a group that has not sent a bind; returns their number."""
        held = group.in_state(MemberState.ASSUMED)
        if held:
            self.unreserve(held)
        for info in held:
            if (change := self.cache.forget(info)) is not None:
                self.changes.append(change)
        group.move_all(held, MemberState.ASSUMED, MemberState.PENDING)
        self.forget_permit(group)
        if held and self.observer is not None:
            self.observer.gave_back(group, len(held), str(why))
        return len(held)

    def forget_permit(self, group: Group) -> None:
        """Forgets Permit's answers about a group that binds, or has given its reservations back."""
        if (wait := self.permit_waits.pop(group.key, None)) is not None:
            self.hooks.cancel(wait.open.values())

    def unreserve(self, held: Sequence[PodInfo]) -> None:
        """Calls Unreserve plugins for members of one group that are about to lose their reservations."""
        group = held[0].group
        if group is not None and (profile := self.profile_of(group)).reserves:
            self.hooks.unreserve(group, held, profile)

    def release_kept(self, uid: str) -> None:
        """Releases the room that is kept for a pod, and announces it: what nobody keeps any more is a change
        of the cluster, and wakes who waits for it as any other does."""
        self.changes += self.cache.unnominate(uid)

    def fill_holes(self, placements: Iterable[Placement]) -> None:
        """Keeps no longer what is kept for members that have been placed."""
        for one in placements:
            if one.info.group is not None:
                self.changes += self.holes.filled(one.info.group, self.cache.view.name(one.row))

    def end_holes(self) -> None:
        """Keeps no longer what has been kept for lost members for long enough."""
        self.changes += self.holes.expired(self.now_s)

    def flush_changes(self) -> None:
        """Wakes the groups that this turn's changes may cure."""
        changes = self.changes
        if self.cache.index.changes:
            changes += self.cache.index.changes
            self.cache.index.changes.clear()
        if self.claims is not None and self.claims.freed:
            changes += self.claims.take_freed()
        if changes:
            self.changes = []
            self.enqueue_waits.note_cured(changes)
            self.queue.wake_cured(changes, self.now_s)

    def siblings(self, group: Group) -> Mapping[str, Group]:
        """The other existing groups of its set, by "namespace/name"; see core.state.start_together."""
        return self.start_together.siblings(group)

    def list_changed(self, group: Group, before: tuple[str, ...]) -> None:
        """The group's list changed, or it is gone: retries groups of a refused set that may start now."""
        self.try_again(self.start_together.changed(group, before))

    def try_again(self, groups: Iterable[Group]) -> None:
        """Tries these groups again: what they wait for in another group has changed."""
        for group in groups:
            if group.state is GroupState.WAITING:
                self.queue.activate(group, Cause.LOOK_AGAIN)
            else:
                self.queue.wake(group, Cause.CURED, self.now_s)

    def retry_bind_at(self, when_s: float, info: PodInfo) -> None:
        """Resends the member's bind at `when_s`."""
        self.retries.add(when_s, info.uid, info.attempt)

    def ask_pre_enqueue_at(self, when_s: float, info: PodInfo) -> None:
        """Calls PreEnqueue for a pod again at `when_s`."""
        self.retries.add(when_s, info.uid, PRE_ENQUEUE)

    def read_gone_at(self, when_s: float, info: PodInfo) -> None:
        """Checks at `when_s` whether a pod reported gone still exists."""
        self.retries.add(when_s, info.uid, READ_GONE)

    def member_edited(self, group: Group) -> None:
        """Wakes a group with an edited member: Admit may let it in now, or it may end before a claim
        starts."""
        may_end_before = self.claims is not None and self.claims.edited(group)
        profile = self.profile_of(group)
        was_kept_out = profile.admit_plugins and profile.admit_that_refused(group.rejected_by) is not None
        if may_end_before or was_kept_out:
            self.queue.wake(group, Cause.CURED, self.now_s)

    def end_edited(self, info: PodInfo, others: Mapping[str, PodInfo] | None = None) -> None:
        """A running pod was edited, so it may end at another time. others: pods of its group whose walltime
        changed with it."""
        self.queue.ends_edited(others or {info.uid: info}, self.now_s)
        if self.queue_book is not None:
            self.queue_book.end_edited(info)
        if info.group is not None and self.settings.ends_overrun:
            self.mark_group(info.group)

    def sort_key(self, group: Group) -> tuple[tuple[Any, ...], PluginError | None]:
        """Returns QueueSort's key and, where there is no valid one, why; changes nothing."""
        return self.queue.order.key_among_all(group)

    def drop_group(self, group: Group) -> None:
        """Drops a group whose last member is gone."""
        self.forget_permit(group)
        self.queue.forget(group)
        self.groups.pop(group.key, None)
        self.changes += self.holes.drop(group.key)
        if group.start_together:
            self.list_changed(group, group.start_together)
        self.settle_by_s.drop(group.key)
        self.marked_groups.pop(group.key, None)


def _signers(profiles: Mapping[str, Profile]) -> Signers | None:
    """Returns what each profile's plugins read of metadata; None if none of them reads any."""
    if not any(profile.signing.is_used for profile in profiles.values()):
        return None
    return {name: profile.signing for name, profile in profiles.items()}
