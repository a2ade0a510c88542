"""Containment: an exception in one event, one group's turn or one deadline affects only the object concerned.

Such an exception is a bug of ours, triggered by an object that any user may have written. So the process
goes on, the fault is reported to the assembly (log, `gangsched_invariant_violations_total`), and a half-done
step is undone by recounting.

| what failed | consequence |
|---|---|
| a pod's event | refused: in no group, with a condition; the resources that can be read count on its node |
| ... with its bind in flight | the same on its reserved node, until the bind's answer has come |
| a node's event | refused: nothing is placed there, and nothing held there is given out twice |
| a PodGroup's or another object's event | treated as if it did not parse |
| a group's turn | its reservations are released, it is retried after its backoff |
| ... while it is being evicted | the same, and its evictions go on |

The next event of a refused object is handled as usual. Called by core.scheduler if the assembly passes a
`guard`; without one (tests, simulation) exceptions are raised unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from gangsched.core.cache.recount import recount_group, take_out
from gangsched.core.state.pending_hooks import POST_BIND
from gangsched.core.state.state import SharedState
from gangsched.core.state.tables.binds import BindCause, move_bind
from gangsched.core.state.tables.groups import Cause
from gangsched.core.turns.parts import SchedulerParts
from gangsched.core.turns.refused_pods import RefusedPods
from gangsched.core.turns.steps import Defect, Faults, Take, name_of
from gangsched.core.types.cluster_events import Change, ClusterChange
from gangsched.core.types.group import (
    ASSUMED,
    BOUND,
    NEVER_S,
    NO_ROW,
    ON_ITS_WAY,
    PENDING,
    BindState,
    Group,
    GroupState,
    PodInfo,
)
from gangsched.model import events as ev
from gangsched.model.effects import NODE_REFUSED, BumpPod, GetPod
from gangsched.model.objects import Node
from gangsched.model.pod_group import GroupKey

_ANSWERS = (ev.BindSucceeded, ev.BindFailed, ev.BindCancelled, ev.BindUnknown, ev.PodRead, ev.PodBumped)
# States of siblings that were tried with a group; siblings in other states keep what they have.
_WERE_TRIED = (
    GroupState.ACTIVE,
    GroupState.ASKING,
    GroupState.BACKOFF,
    GroupState.UNSCHEDULABLE,
    GroupState.WAITING,
    GroupState.BINDING,
)
# A deadline whose work fails stays in the past; retry it only after a pause.
_PAUSE_S = 0.2
_MAX_STEPS = 100


class Containment:
    """Cleans up after steps of the scheduler that failed."""

    def __init__(self, scheduler: SchedulerParts, guard: Callable[[Defect], None]) -> None:
        self._scheduler = scheduler
        self._shared: SharedState = scheduler.shared
        self._faults = Faults(scheduler.shared, guard)
        self._pods = RefusedPods(scheduler, self._faults)
        self._refused: set[GroupKey] = set()
        self._unresolved: set[GroupKey] = set()
        self._skipped: dict[GroupKey, Group] = {}
        self.not_before_s = 0.0
        self.more_at_s = NEVER_S

    # -- steps -------------------------------------------------------------------------------------------

    def events_failed(self, take: Take, events: Sequence[ev.Event], n_left: int, error: Exception) -> bool:
        """Refuses the event that failed; the rest is applied."""
        at = len(events) - n_left - 1
        if at < 0:
            self._faults.tell(name_of(take), "", error)
            return False
        whole = isinstance(events[0], ev.BindSucceeded)  # read to their end before any is applied
        for event in events[: at + 1] if whole else events[at : at + 1]:
            self._refuse_event(event, error)
        return True

    def applied(self, events: Sequence[ev.Event]) -> None:
        if self._shared.unanswered and isinstance(events[0], _ANSWERS):
            for event in events:
                self._faults.step(partial(self._answered, event))

    def begin(self, now_s: float) -> None:
        self._refused.clear()
        self.more_at_s = NEVER_S
        self._faults.step(lambda: self._shared.set_time(now_s))

    def each(self, do: Callable[[], Any]) -> None:
        """Runs `do` until it succeeds: each failed item has been removed, so it continues with the next."""
        for _ in range(_MAX_STEPS):
            if self._faults.step(do):
                break

    def every(self, work: Sequence[Callable[[], Any]]) -> None:
        for do in work:
            self.each(do)

    def end(self) -> None:
        if self._faults.is_shaken:
            self._faults.step(lambda: self._shared.queue.rebuild(self._shared.groups.values()))
            self._faults.is_shaken = False
        if self._pods.is_asking:
            self.more_at_s = self._pods.ask_about_binds()
        if self._skipped:
            self._shared.marked_groups.update(self._skipped)
            self._skipped.clear()
            self.more_at_s = min(self.more_at_s, self._shared.now_s + _PAUSE_S)

    def by_deadline(self, do: Callable[[], Any]) -> None:
        if not self._faults.step(do):
            self.not_before_s = self._shared.now_s + _PAUSE_S

    def may_step(self, group: Group) -> bool:
        """A group that was refused in this turn waits for the next."""
        if group.key in self._refused:
            self._skipped[group.key] = group
            return False
        if group.key in self._unresolved:
            resolve = self._scheduler.group_specs.resolve
            try:
                resolve(group)
            except Exception as error:
                self.group_failed(group, name_of(resolve), error)
                return False
            self._unresolved.discard(group.key)
        return True

    def pod_failed(self, uid: str, where: str, error: Exception) -> None:
        message = _left_out(self._faults.tell(where, uid, error))
        info = self._shared.cache.pods.get(uid)
        if info is not None:
            self._pods.refuse(uid, info.pod, message)

    # -- after a failure ---------------------------------------------------------------------------------

    def _refuse_event(self, event: Any, error: Exception) -> None:
        where, about = type(event).__name__, _about(event)
        message = _left_out(self._faults.tell(where, about, error))
        self._shared.count(f"objects_refused/{_kind_of(event)}")
        try:
            self._refuse(event, message, error)
        except Exception as again:  # cleaning up may fail too; that must not end the process
            self._faults.tell(f"refusing after {where}", about, again)

    def _refuse(self, event: Any, message: str, error: Exception) -> None:
        if isinstance(event, ev.PodAdded | ev.PodUpdated):
            self._pods.refuse(event.pod.metadata.uid, event.pod, message)
        elif isinstance(event, ev.PodDeleted):
            self._pods.drop(event.pod.metadata.uid, event.pod)
        elif isinstance(event, ev.NodeAdded | ev.NodeUpdated | ev.NodeDeleted):
            self._refuse_node(event.node, message, is_gone=isinstance(event, ev.NodeDeleted))
        elif isinstance(event, ev.PodGroupAdded | ev.PodGroupUpdated | ev.PodGroupDeleted):
            meta = event.item.metadata
            key = GroupKey(event.dialect, meta.namespace, meta.name)
            self._scheduler.group_specs.refuse_object(key, meta.uid, f"PodGroup {key}: {message}")
        elif isinstance(event, ev.OwnerPut):
            for group in self._scheduler.owners.refuse(event.owner.named, message):
                self._shared.mark_group(group)
        elif isinstance(event, ev.ObjectPut):
            meta = event.object.metadata
            self._scheduler.reporter.refused(event.kind, meta.namespace, meta.name, meta.uid, message)
        elif isinstance(event, ev.KindSynced | ev.KindMissing | ev.LeadershipGained):
            for group in self._shared.groups.values():
                self._shared.mark_group(group)
        elif isinstance(event, ev.HookAnswered):
            call = self._shared.hooks.latest
            if call is not None:
                self.group_failed(call.group, type(event).__name__, error)
        elif isinstance(event, ev.GroupAllowed | ev.GroupRejected):
            named = self._shared.groups.get(event.group)
            if named is not None:
                self.group_failed(named, type(event).__name__, error)
        else:
            info = self._shared.cache.pods.get(getattr(event, "uid", ""))
            if info is not None:
                if isinstance(event, ev.BindSucceeded) and info.state is ASSUMED:
                    move_bind(info, BindCause.NOT_TAKEN_IN)
                self._pods.refuse(info.uid, info.pod, message)

    def _answered(self, event: Any) -> None:
        """Applies what an answer makes certain about the bind of a pod that was refused meanwhile."""
        shared = self._shared
        pod = shared.unanswered.get(event.uid)
        if pod is None:
            return
        if isinstance(event, ev.BindUnknown):
            shared.emit(GetPod(event.uid, pod.metadata.namespace, pod.metadata.name, ""))
            return
        if shared.settings.fence and _may_land(event):
            shared.emit(BumpPod(event.uid, pod.metadata.namespace, pod.metadata.name, ""))
            return
        if isinstance(event, ev.BindSucceeded):
            return  # the watch will show it; older versions of the pod may come first
        self._pods.drop(event.uid, pod)
        if isinstance(event, ev.PodRead | ev.PodBumped):
            pod = event.pod
        if pod is not None:
            self._scheduler.apply(self._scheduler.membership.put_pods, [ev.PodUpdated(pod)])

    # -- nodes -------------------------------------------------------------------------------------------

    def _refuse_node(self, node: Node, message: str, *, is_gone: bool) -> None:
        """Treats the node as absent: its pods stay known and are counted when it comes back."""
        shared, scheduler = self._shared, self._scheduler
        cache, name = shared.cache, node.metadata.name
        for info in cache.by_node.get(name, {}).values():
            info.row, info.pod_class = NO_ROW, None
        row = cache.nodes.row_of.get(name)
        if row is not None:
            cache.nodes.drop(name)
            cache.ledger.forget_node(row)
            self._faults.step(lambda: cache.usage_trackers.remove_node(row))
            cache.index.forget_counts(cache.pods)
        scheduler.audit.node_gone(name)
        scheduler.health.node_gone(name)
        shared.changes.append(ClusterChange(Change.NODE_REMOVED))
        self._faults.step(lambda: scheduler.reservations.recheck(node))
        if not is_gone:
            scheduler.reporter.node_problem(node, message, reason=NODE_REFUSED)

    # -- groups ------------------------------------------------------------------------------------------

    def group_failed(self, group: Group, where: str, error: Exception) -> None:
        """Makes the group, and those tried with it, release what they can and back off."""
        message = self._faults.tell(where, str(group.key), error)
        self.not_before_s = self._shared.now_s + _PAUSE_S  # the step may have been a deadline's
        try:
            together = [g for g in self._shared.siblings(group).values() if g.state in _WERE_TRIED]
        except Exception as again:
            self._faults.tell("looking for siblings", str(group.key), again)
            together = []
        for one in (group, *together):
            self._refused.add(one.key)
            self._unresolved.add(one.key)
            if one.state is not GroupState.DELETED:
                self._faults.step(
                    partial(self._give_back, one, f"gang {one.key}: {message}" if one.is_gang else message)
                )

    def _give_back(self, group: Group, message: str) -> None:
        shared, scheduler = self._shared, self._scheduler
        for stop in (scheduler.binder.pre_bind.stop, scheduler.binder.staggered.stop):
            self._faults.step(partial(stop, group, message))
        calls = [call for call in shared.hooks.calls.values() if call.group is group]
        shared.hooks.cancel([call for call in calls if call.point != POST_BIND])
        shared.forget_permit(group)  # its plugins are asked again: these calls get no answer
        self._faults.step(lambda: scheduler.attempts.nominations.drop(group))
        if group.preemption is None:  # dropped, now or in part by the step that failed
            for uid in group.members:
                shared.release_kept(uid)
        promises = [info for info in group.members.values() if _is_promise(info)]
        if promises:
            self._faults.step(lambda: shared.unreserve(promises))
        for info in promises:
            take_out(shared.cache, info)
            info.state = PENDING
            move_bind(info, BindCause.CONTAINED)
        recount_group(group)
        for info in group.members.values():
            if info.state is ASSUMED and info.bind is BindState.SENT:
                # Its bind may not have been sent: should no answer come, the server is queried.
                self._pods.ask_later(info.uid)
        if group.n_assumed:
            group.failed_binds.setdefault("", message)
            shared.queue.park(group, Cause.CONTAINED_BINDING)
            return
        group.failed_binds.clear()
        if group.state is GroupState.UNWINDING and group.counts[BOUND]:
            # Its bound members are evicted all the same.
            shared.queue.set_deadline(group, shared.now_s + _PAUSE_S)
            return
        if group.is_half_bound:
            shared.settle_by_s.set_if_absent(group.key, shared.now_s + shared.settings.settle_s / 2)
        shared.queue.back_off(group, Cause.CONTAINED, shared.now_s)
        self._faults.step(lambda: scheduler.reporter.rejected(group, message))


def _is_promise(info: PodInfo) -> bool:
    """Whether it holds room, even in part, and no bind was sent for it."""
    is_unsent = info.bind not in ON_ITS_WAY or info.bind_tries == 0
    return (info.state is ASSUMED and is_unsent) or (info.state is PENDING and bool(info.node_name))


def _may_land(event: Any) -> bool:
    """Whether an earlier bind may still land after this answer, unless the pod's version changes."""
    if isinstance(event, ev.PodRead):
        return event.pod is not None and not event.pod.spec.node_name
    return isinstance(event, ev.BindFailed | ev.BindCancelled)


def _about(event: Any) -> str:
    owner = getattr(event, "owner", None)
    if owner is not None:
        return str(owner.named)
    for name in ("pod", "node", "item", "object"):
        found = getattr(event, name, None)
        if found is not None:
            return f"{found.metadata.namespace}/{found.metadata.name}".removeprefix("/")
    return str(getattr(event, "uid", "") or getattr(event, "group", ""))


def _kind_of(event: Any) -> str:
    kinds = (("pod", "Pod"), ("node", "Node"), ("item", "PodGroup"), ("owner", "Owner"))
    return next((kind for name, kind in kinds if hasattr(event, name)), getattr(event, "kind", "Pod"))


def _left_out(fault: str) -> str:
    """What is told of an object that is treated as absent for a fault of ours."""
    return f"{fault}; it is left out until it changes"
