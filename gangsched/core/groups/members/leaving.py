"""Leaving: members that are being deleted, and when they leave their gang.

A pod that is being deleted holds its node and devices until it is gone, and a gang's next pods are often made
before that. So that these start together and not one by one beside the ending ones,

    the gang is a controller's, and was whole          it leaves at once
    any other gang                                     once all that run are being deleted and new ones exist
    the gang is being bound, or is evicted             it stays: the gang starts again when the last is gone

A member that has left is a lone pod. Called by core.groups.members.membership, and by core.groups.reconciler.
Also here: what makes refused evictions worth repeating at once, called by core.turns.event_handlers too.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from gangsched.core.device_audit.device_health import DeviceHealth
from gangsched.core.device_audit.drift import DriftAudit
from gangsched.core.state.state import SharedState
from gangsched.core.types.group import BOUND, DONE, Group, GroupState, PodInfo
from gangsched.model.objects import Pod
from gangsched.model.pod_group import is_inferred, lone_key, role_of, stated_by

_STAYS = (GroupState.BINDING, GroupState.UNWINDING)


def evict_soon(shared: SharedState, health: DeviceHealth, audit: DriftAudit, info: PodInfo) -> None:
    """Repeats what is asked for this pod, with short pauses again: the pod, or a budget, has changed.

    A unit that waits for its victims looks every two seconds anyway.
    """
    shared.evictions.forget(info.uid)
    health.evict_soon(info.uid)
    audit.evict_soon(info.uid)
    if info.group is not None and info.group.state is GroupState.UNWINDING:
        shared.queue.set_deadline(info.group, shared.now_s)


def evict_edited(
    shared: SharedState, health: DeviceHealth, audit: DriftAudit, info: PodInfo, old: Pod
) -> None:
    """Does so if the pod, now of another version than `old`, may be treated otherwise by a budget."""
    if shared.evictions.is_asked(info.uid) and _seen_by_budgets(old) != _seen_by_budgets(info.pod):
        evict_soon(shared, health, audit, info)


def _seen_by_budgets(pod: Pod) -> tuple[object, ...]:
    ready = [one.status for one in pod.status.conditions or () if one.type == "Ready"]
    return pod.metadata.labels, pod.status.phase, ready


class Leaving:
    """Knows which members of each gang are being deleted."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self._known: WeakKeyDictionary[Group, dict[str, PodInfo]] = WeakKeyDictionary()
        self.n_ended_gone: WeakKeyDictionary[Group, int] = WeakKeyDictionary()
        """How many members that had ended were deleted; only for messages."""

    def note(self, info: PodInfo) -> None:
        """Notes that this pod is being deleted."""
        group = info.group
        if group is None or not group.is_gang:
            return
        if info.state is BOUND and group.has_started and is_inferred(group.key):
            self._leave(info, group)
            return
        known = self._known.setdefault(group, {})
        known[info.uid] = info
        if group.n_pending and len(known) >= group.n_holding:
            self._shared.mark_group(group)

    def forget(self, info: PodInfo, group: Group) -> None:
        """Forgets a pod that is no longer a member."""
        if known := self._known.get(group):
            known.pop(info.uid, None)
        if info.state is DONE:
            self.n_ended_gone[group] = self.n_ended_gone.get(group, 0) + 1

    def let_leave(self, group: Group) -> None:
        """Lets the members that hold nodes leave if all of them are being deleted and others are pending."""
        known = self._known.get(group)
        if not known or not group.n_pending or group.n_assumed or group.state in _STAYS:
            return
        holding = [info for info in known.values() if info.state is BOUND]
        if len(holding) == group.n_holding:
            for info in holding:
                self._leave(info, group)

    def _leave(self, info: PodInfo, group: Group) -> None:
        """Makes the member a lone pod; it keeps its room and devices until it is gone."""
        shared, key = self._shared, lone_key(info.pod)
        self.forget(info, group)
        group.remove(info)
        shared.mark_group(group)
        info.stated, info.role = stated_by(key, info.pod), role_of(key, info.pod)
        alone = shared.groups[key] = Group(key, info.pod.spec.scheduler_name, now_s=shared.now_s)
        alone.add(info)
        shared.mark_group(alone)
