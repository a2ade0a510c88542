"""Progress: no pod may rest without a deadline, or a named cure that depends on someone else.

Checked when a run has come to rest. For each state of a group the table below names what will move it on; if
that is an outside actor, the store must show that this actor has something to do, and the pods must say so,
since a person who is not told does nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import NEVER_S, Group, GroupState, MemberState, PodInfo
from gangsched.lab.sim.api import SimApi
from gangsched.lab.sim.roles import role_of
from gangsched.model.objects import Pod

Cure = str
_LISTED_S = 60.0
"""A process has taken the fence and listed every kind that it waits for within this time, in any weather."""


def resting_groups_can_go_on(api: SimApi, scheduler: Scheduler) -> Iterator[str]:
    """nothing-forgotten: at rest every group has a deadline or a named cure, and every member too."""
    pods = {pod.metadata.uid: pod for pod in api.pods.values()}
    for group in scheduler.shared.groups.values():
        cure = _CURES.get(group.state)
        if cure is None:
            yield f"nothing-forgotten: {group!r} rests in a state that ends by itself at once"
        elif not (named := cure(group, pods)):
            yield (
                f"nothing-forgotten: {group!r} rests without a deadline, and nothing that is "
                "to come can move it"
            )
        elif group.n_pending and not _is_told(group, pods) and not _is_due_to_tell(group):
            yield f"nothing-forgotten: {group!r} waits for {named}, and none of its pods says so"
        for info in group.members.values():
            if not (named := _cure_of_member(info, group, pods.get(info.uid), scheduler)):
                yield (
                    f"nothing-forgotten: {info!r} of {group!r} rests as {info.state.value}, "
                    "and nothing will end that"
                )


def decides_in_time(unsynced_s: float) -> Iterator[str]:
    """nothing-starves: no process waits for long until all kinds are listed. unsynced_s: how long it has."""
    if unsynced_s > _LISTED_S:
        yield (
            f"nothing-starves: nothing has been decided for {unsynced_s:.0f} s, since not all "
            "kinds have been listed"
        )


def _by_deadline(group: Group, pods: dict[str, Pod]) -> Cure:
    return f"its deadline at {group.deadline_s:.1f}" if group.deadline_s < NEVER_S else ""


def _gathering(group: Group, pods: dict[str, Pod]) -> Cure:
    """The user must create something: members, or the group's object."""
    if group.definition is None or group.problem:
        return "its numbers"
    counted = [pods[uid] for uid, info in group.members.items() if uid in pods and _counts(info, pods[uid])]
    if len(counted) < group.start_count or not group.n_pending:
        return "members"
    of_role = Counter(role_of(group.key.dialect, pod) for pod in counted)
    if any(of_role[role] < n for role, n in group.definition.roles.items()):
        return "members of a role"
    return _by_deadline(group, pods)


def _counts(info: PodInfo, pod: Pod) -> bool:
    """Whether the pod counts as existing; one that has succeeded does, as it does not come back."""
    if pod.spec.node_name:
        return pod.status.phase != "Failed"
    is_open = not pod.spec.scheduling_gates and info.state is not MemberState.GATED
    return is_open and pod.metadata.deletion_timestamp is None and not pod.is_terminal


def _gated(group: Group, pods: dict[str, Pod]) -> Cure:
    gates = [pods[uid].spec.scheduling_gates for uid in group.members if uid in pods]
    return "its gates" if any(gates) else ""


def _bound(group: Group, pods: dict[str, Pod]) -> Cure:
    return "" if group.n_pending else "the end of its pods"


_CURES: dict[GroupState, Callable[[Group, dict[str, Pod]], Cure]] = {
    GroupState.GATED: _gated,
    GroupState.GATHERING: _gathering,
    GroupState.UNSCHEDULABLE: _by_deadline,
    GroupState.BACKOFF: _by_deadline,
    GroupState.WAITING: _by_deadline,
    GroupState.BOUND: _bound,
}


def _cure_of_member(info: PodInfo, group: Group, pod: Pod | None, scheduler: Scheduler) -> Cure:
    if info.state is MemberState.LEAVING:
        is_going = pod is None or pod.metadata.deletion_timestamp is not None or pod.is_terminal
        return "its end" if is_going or _is_due(info, scheduler) else ""
    if info.state is MemberState.GATED:
        is_gated = pod is not None and bool(pod.spec.scheduling_gates)
        return "its gates" if is_gated or _is_due(info, scheduler) else ""
    if info.state is MemberState.ASSUMED:
        return _by_deadline(group, {})
    return "its group"


def _is_due(info: PodInfo, scheduler: Scheduler) -> bool:
    """Whether the scheduler will reconsider it by itself."""
    return info.uid in scheduler.shared.retries


def _is_due_to_tell(group: Group) -> bool:
    """Members arrive one by one: only a gang that is still gathering after a while needs a message."""
    return group.state is GroupState.GATHERING and group.deadline_s < NEVER_S


def _is_told(group: Group, pods: dict[str, Pod]) -> bool:
    """Whether a condition of one of its pods states why it waits."""
    conditions = [c for uid in group.members if uid in pods for c in pods[uid].status.conditions or ()]
    return any(c.type == "PodScheduled" and c.status == "False" and c.message for c in conditions)
