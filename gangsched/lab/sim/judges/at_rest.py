"""What must hold when a run has come to rest: nothing is lost, leaks or starves, and every group can go on.

No pod may rest without a deadline, or a named cure that depends on someone else. For each state of a group
the table below names what will move it on; if that is an outside actor, the store must show that this actor
has something to do, and a condition of the pods must name it: what is not reported, no user can act on.
Called by lab.sim.runs.driver and lab.sim.runs.duel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from gangsched.core.scheduler import Scheduler
from gangsched.core.state.pending_hooks import PRE_BIND
from gangsched.core.types.group import ASSUMED, LEAVING, NEVER_S, Group, GroupState, MemberState, PodInfo
from gangsched.lab.sim.reading.documents import allocatable, ids_of, is_vast
from gangsched.lab.sim.reading.roles import role_of
from gangsched.lab.sim.world.api import SimApi
from gangsched.model import effects as ef
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
        elif group.n_pending and not _says_why(group, pods) and not _is_due_for_message(group):
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


def _is_due_for_message(group: Group) -> bool:
    """Members arrive one by one: only a gang that is still gathering after a while needs a message."""
    return group.state is GroupState.GATHERING and group.deadline_s < NEVER_S


def _says_why(group: Group, pods: dict[str, Pod]) -> bool:
    """Whether a condition of one of its pods states why it waits."""
    conditions = [c for uid in group.members if uid in pods for c in pods[uid].status.conditions or ()]
    return any(c.type == "PodScheduled" and c.status == "False" and c.message for c in conditions)


def nothing_lost(api: SimApi, scheduler: Scheduler) -> Iterator[str]:
    """nothing-forgotten: with an empty inbox every pod of ours is a member of exactly one known group."""
    shared = scheduler.shared
    profiles, known, groups = shared.profiles, shared.cache.pods, shared.groups
    for pod in api.pods.values():
        if pod.spec.scheduler_name not in profiles:
            continue
        info = known.get(pod.metadata.uid)
        group = None if info is None else info.group
        if group is None:
            yield f"nothing-forgotten: {pod.key} ({pod.metadata.uid}) is nowhere"
        elif groups.get(group.key) is not group:
            yield f"nothing-forgotten: {pod.key} is in {group!r}, which the scheduler does not know"


def cache_is_store(api: SimApi, scheduler: Scheduler) -> Iterator[str]:
    """cache-is-store: with an empty inbox and nothing on the way, the cache holds what a list would show."""
    cache = scheduler.shared.cache
    if set(cache.nodes.row_of) != set(api.nodes):
        yield f"cache-is-store: nodes {sorted(set(cache.nodes.row_of) ^ set(api.nodes))} differ"
        return
    for name, node in api.nodes.items():
        row = cache.nodes.row_of[name]
        for resource, amount in (allocatable(node) or {}).items():
            known = cache.nodes.allocatable.item(cache.table.column(resource), row)
            if known != amount and not (is_vast(known) and is_vast(amount)):
                yield (
                    f"cache-is-store: {resource} of {name} is {known} in the cache and {amount} in the store"
                )
    live = {pod.metadata.uid: pod for pod in api.pods.values() if pod.spec.node_name and not pod.is_terminal}
    known_uids = {i.uid for i in cache.pods.values() if i.node_name and i.state is not ASSUMED}
    if known_uids != set(live):
        yield (
            f"cache-is-store: pods {sorted(known_uids ^ set(live))} hold room in one of cache and store only"
        )
    for uid, pod in live.items():
        info = cache.pods.get(uid)
        if info is not None and info.node_name:
            ids = {r: frozenset(some) for r, some in info.ids.items()}
            if info.node_name != pod.spec.node_name or ids != ids_of(pod):
                yield (
                    f"cache-is-store: {pod.key} is on {info.node_name} {ids} in the cache, not "
                    "so in the store"
                )


def nothing_leaks(scheduler: Scheduler) -> Iterator[str]:
    """nothing-leaks: at rest nothing binds or unwinds, and only groups that wait for a user hold
    reservations."""
    for group in scheduler.shared.groups.values():
        if group.state in (GroupState.BINDING, GroupState.UNWINDING, GroupState.ACTIVE):
            yield f"nothing-leaks: {group!r} at rest"
        elif group.n_assumed and group.state is not GroupState.WAITING:
            yield f"nothing-leaks: {group!r} holds reservations"
        if group.preemption is not None:
            yield f"nothing-leaks: {group!r} waits for victims"
    if kept := sorted(scheduler.shared.cache.ledger.claimants):
        yield f"nothing-leaks: devices are claimed for {kept}"
    known = set(scheduler.shared.cache.pods)
    nominated, ours = scheduler.shared.cache.nominated, scheduler.shared.profiles
    own = {uid for uid, one in nominated.items() if one.info.pod.spec.scheduler_name in ours}
    if strange := own - known:
        yield f"nothing-leaks: nominations of {sorted(strange)}, which do not exist"


def waits_for_user(scheduler: Scheduler) -> bool:
    """Whether some group waits for objects that were never created, and so will retry for ever."""
    for group in scheduler.shared.groups.values():
        numbers = group.definition
        if numbers is None or group.has_started:
            continue
        if group.n_existing < numbers.total_count:
            return True
        there = {str(group.key): group, **scheduler.shared.siblings(group)}
        for name in () if group.starts_alone else numbers.start_together:
            if name not in there or not (there[name].starts_alone or there[name].is_complete):
                return True
    return False


def nothing_starves(
    scheduler: Scheduler,
    start: Callable[[], Scheduler],
    now_s: float,
    skipped: Collection[GroupState] = (),
) -> Iterator[str]:
    """nothing-starves: at rest a fresh process, shown the same store, finds nothing to bind that this one has
    left unbound.

    `start` makes one that was shown the objects. Its first binds must fit on the present cluster. Not checked
    while a group waits for its user with room that the fresh process has not reserved, nor for a gang that
    was unwound around ended members: a fresh process still counts those as started; nor for groups in a
    `skipped` state.
    """
    if any(group.n_assumed for group in scheduler.shared.groups.values()):
        return
    left = {info.uid: g for g in scheduler.shared.groups.values() for info in g.in_state(MemberState.PENDING)}
    if not left:
        return
    claims, fresh = scheduler.shared.claims, start()
    while (effects := fresh.schedule_next(now_s)) is not None:
        binds = [one for effect in effects if (one := _placed(effect)) is not None]
        kept = {
            bind.node
            for bind in binds
            for claim in (claims.all if claims is not None else ())
            if (group := left.get(bind.uid)) is not None
            and group not in claim.unit
            and group.priority <= claim.priority
            and bind.node in claim.nodes
        }
        at_limit = any(_waits_at_limit(left[bind.uid], scheduler) for bind in binds if bind.uid in left)
        if kept or at_limit:  # kept for others: the fresh process has no claims yet, and counts passes from 0
            continue
        for bind in binds:
            group = left.get(bind.uid)
            if group is not None and not group.counts[LEAVING] and group.state not in skipped:
                yield f"nothing-starves: {group!r} fits ({bind.name} on {bind.node}) and is not bound"
            return


def _waits_at_limit(group: Group, scheduler: Scheduler) -> bool:
    """Whether it leaves room at a limit to groups ahead of it, in a queue that is in use, or has lost members
    and its queue is at its limit."""
    queues = scheduler.shared.queues()
    if queues is None:
        return False
    kept = scheduler.attempts.kept.limits.kept_ahead_of(group)
    if any(queues.used(name).get(resource) for name, some in kept.items() for resource in some):
        return True
    # A fresh process cannot distinguish a gang that was whole from one that was bound in part; members of the
    # latter are admitted whatever the limits.
    view = scheduler.shared.queue_view
    if view is None or not group.has_started:
        return False
    asked = view.request_of(group)
    return any(
        queues.used(name).get(resource, 0) + asked.get(resource, 0) > limit
        for name in queues.tree.paths.get(view.queue_of(group), ())
        for resource, limit in queues.tree.queues[name].limit.items()
    )


class _Placed(NamedTuple):
    uid: str
    name: str
    node: str


def _placed(effect: ef.Effect) -> _Placed | None:
    """Returns the pod that the effect binds, or prepares for that, and its node."""
    if isinstance(effect, ef.BindPod):
        return _Placed(effect.uid, effect.name, effect.node)
    if isinstance(effect, ef.RunHook) and effect.point == PRE_BIND and effect.pod is not None:
        return _Placed(effect.pod.metadata.uid, effect.pod.metadata.name, effect.node_name)
    return None
