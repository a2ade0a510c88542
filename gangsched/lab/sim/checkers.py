"""The invariants of the fault catalogue, one function each; each yields violations, in words.

They read the API server's store, the events given to the process (lab.sim.told) and the scheduler's own
tables, and share no code with what they check: annotations and quantities are parsed by lab.sim.reading.
Called by lab.sim.driver: some after every effect, some after every turn, some when a run has come to rest.
Invariants over time have files of their own: half_bound, progress.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from gangsched.core.scheduler import Scheduler
from gangsched.core.state.pending_hooks import PRE_BIND
from gangsched.core.types.group import ASSUMED, LEAVING, Group, GroupState, MemberState
from gangsched.lab.sim.api import SimApi
from gangsched.lab.sim.asked_devices import KEYS, devices_as_asked
from gangsched.lab.sim.physical import hides_ids, listed_ids
from gangsched.lab.sim.reading import (
    Ids,
    allocatable,
    container_asks,
    gang_of,
    given,
    healthy_ids,
    ids_of,
    is_vast,
    required_labels,
    says_devices,
)
from gangsched.lab.sim.told import Told
from gangsched.model import effects as ef
from gangsched.model.objects import Pod

_CLOSES = ("NoSchedule", "NoExecute")


def bind_is_sound(bind: ef.BindPod, told: Told, *, is_repetition: bool = False) -> Iterator[str]:
    """2, 10, topology: a bind fits what was known when it was decided. Its device IDs are free, healthy and
    match the pod, and its node is in the domain of its gang.

    A repeated bind must be the same again, so it may lack the IDs of an inventory that came in between.
    """
    pod, node = told.pods.get(bind.uid), told.nodes.get(bind.node)
    if pod is None or node is None:
        yield f"room: {bind.name} is bound to {bind.node}, of which the scheduler was not told both"
        return
    if not is_repetition:  # by then a node that was gone, with members on it, may have come back
        yield from _in_one_domain(bind, pod, told)
    mine = told.claim_of_bind(bind)
    others = [claim for claim in told.claims_on(bind.node) if claim.uid != bind.uid]
    room = allocatable(node)
    if room is None:
        yield f"room: {bind.name} goes to {bind.node}, whose room cannot be read"
        return
    for resource, amount in mine.requests.items():
        used = amount + sum(claim.requests.get(resource, 0) for claim in others)
        if used > room.get(resource, 0) and not is_vast(room.get(resource, 0)):
            yield (
                f"room: {bind.name} makes {used} {resource} on {bind.node}, which has {room.get(resource, 0)}"
            )
    for resource, ids in mine.ids.items():
        for claim in others:
            if both := ids & claim.ids.get(resource, frozenset()):
                yield f"one-holder: {bind.name} is given {sorted(both)} on {bind.node}, held by {claim.uid}"
    if is_repetition and not says_devices(bind.annotations, bind.labels):
        return
    healthy = healthy_ids(node)
    if healthy is None:
        if any(resource.count("/") for resource in mine.requests):
            yield f"devices-as-bound: {bind.name} goes to {bind.node}, whose inventory does not parse"
        return
    listed = listed_ids(node)
    hidden = {one for one in healthy if not is_repetition and hides_ids(one, node, listed, others, told)}
    for resource in sorted(hidden & mine.ids.keys()):
        yield (
            f"known-devices: {bind.name} is given IDs of {resource} on {bind.node}, where not "
            "all holders are known"
        )
    # One whose bind is about to be sent again, as it was, or may still land: where it has no IDs, or IDs of a
    # node that is gone, this one may have none either.
    unshown = [claim for claim in told.unshown.by_node.get(bind.node, {}).values() if claim.uid != bind.uid]
    for one in healthy.keys() - mine.ids.keys() - hidden if unshown and not is_repetition else ():
        if hides_ids(one, node, listed, unshown, told):
            hidden.add(one)
    yield from _ids_match(bind, pod, {one: ids for one, ids in healthy.items() if one not in hidden})
    if not is_repetition and not KEYS.isdisjoint(pod.metadata.annotations or ()):
        gang = gang_of(pod)
        yield from devices_as_asked(bind, pod, node, told.groups.get(gang) if gang is not None else None)


def node_is_open(bind: ef.BindPod, told: Told) -> Iterator[str]:
    """room: no bind is decided for a node closed to the pod, if the plugins for that are on. Pods with
    tolerations are not judged, as they may go there."""
    pod, node = told.pods.get(bind.uid), told.nodes.get(bind.node)
    if pod is None or node is None or pod.spec.tolerations:
        return
    if node.spec.unschedulable:
        yield f"room: {bind.name} goes to {bind.node}, which is cordoned"
    if keys := [taint.key for taint in node.spec.taints or () if taint.effect in _CLOSES]:
        yield f"room: {bind.name} goes to {bind.node}, which has the taints {keys}"


def _in_one_domain(bind: ef.BindPod, pod: Pod, told: Told) -> Iterator[str]:
    """topology: a gang that requires one rack, or one value of another node label, is on nodes with the same
    value."""
    gang = gang_of(pod)
    keys = required_labels(pod, told.groups.get(gang) if gang is not None else None)
    for key in keys:
        value = (told.nodes[bind.node].metadata.labels or {}).get(key)
        if value is None:
            yield f"topology: {bind.name} requires {key} and goes to {bind.node}, which has none"
        for other, name in told.mates_of(pod) if value is not None else ():
            node = told.nodes.get(name)
            theirs = value if node is None else (node.metadata.labels or {}).get(key)
            if theirs != value:
                yield f"topology: {bind.name} goes to {key} {value}, {other.metadata.name} is in {theirs}"


def _ids_match(bind: ef.BindPod, pod: Pod, healthy: Ids) -> Iterator[str]:
    allocation = given(bind.annotations, bind.labels)
    if allocation is None:
        yield f"devices-as-bound: what {bind.name} is given cannot be read"
        return
    for container in (*(pod.spec.init_containers or ()), *pod.spec.containers):
        asked = container_asks(container)
        if asked is None:
            yield f"devices-as-bound: {bind.name} is bound, and what {container.name} asks for cannot be read"
            return
        for resource in {*asked, *allocation.get(container.name, {})}:
            ids = allocation.get(container.name, {}).get(resource, ())
            wanted = asked.get(resource, 0) if resource in healthy else 0
            if len(ids) != wanted or len(set(ids)) != wanted:
                yield (
                    f"devices-as-bound: {bind.name}/{container.name} asks for {wanted} "
                    f"{resource} and is given {ids}"
                )
            if bad := set(ids) - healthy.get(resource, frozenset()):
                yield (
                    f"devices-as-bound: {bind.name} is given {sorted(bad)} of {bind.node}, not healthy there"
                )
    names = {c.name for c in (*(pod.spec.init_containers or ()), *pod.spec.containers)}
    if strange := set(allocation) - names:
        yield f"devices-as-bound: {bind.name} has no container {sorted(strange)}"


class OneOwner:
    """one-holder: no device ID is on two live pods, bound in the store or promised by the scheduler."""

    def __init__(self) -> None:
        self._sound: tuple[object, ...] = ()
        """The store's owners and the promises that were checked last and found sound."""

    def look(self, api: SimApi, scheduler: Scheduler) -> Iterator[str]:
        """Looks again once either has changed."""
        # Mappings of IDs are replaced, never changed.
        promised = [
            (info.uid, info.node_name, info.ids)
            for info in scheduler.shared.cache.pods.values()
            if info.state is ASSUMED
        ]
        now = (api.books, api.books.n_takings, promised)
        if now != self._sound:
            yield from _owned_twice(api, promised)
            self._sound = now


def _owned_twice(
    api: SimApi, promises: Iterable[tuple[str, str, Mapping[str, Iterable[str]]]]
) -> Iterator[str]:
    for node, resource, device_id in api.books.doubled:
        owners = " and ".join(api.books.owners[node, resource, device_id])
        yield f"one-holder: {device_id} of {resource} on {node} is held by {owners}"
    promised: dict[tuple[str, str, str], str] = {}
    for uid, node, held in promises:
        for resource, ids in held.items():
            for device_id in ids:
                place = (node, resource, device_id)
                for other in (*api.books.owners.get(place, ()), promised.setdefault(place, uid)):
                    if other != uid:
                        yield f"one-holder: {device_id} on {node} is held by {other} and {uid}"


def bound_as_sent(api: SimApi, sent: dict[str, list[ef.BindPod]]) -> Iterator[str]:
    """devices-as-bound: a pod that carries our mark is on the node, with the IDs, of a bind that was sent for
    its UID."""
    for pod in api.books.changed.values():
        own, labels = pod.metadata.annotations or {}, pod.metadata.labels or {}
        binds = sent.get(pod.metadata.uid, [])
        if not any(
            bind.node == pod.spec.node_name
            and all(own.get(k) == v for k, v in bind.annotations.items())
            and all(labels.get(k) == v for k, v in bind.labels.items())
            for bind in binds
        ):
            yield (
                f"whole-in-time, devices-as-bound: {pod.key} ({pod.metadata.uid}) on "
                f"{pod.spec.node_name} was bound for another pod"
            )
    api.books.changed.clear()


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
    """nothing-leaks: at rest nothing binds or unwinds, and only who waits for a user holds a reservation."""
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


class Preemptions:
    """victims-once: who waits for victims takes no further ones for the same room, and none in vain."""

    def __init__(self) -> None:
        self._waiting: dict[str, frozenset[str]] = {}
        self._number: dict[str, int] = {}
        """Which of its preemptions each group waits for: where room is lost, it is made anew elsewhere."""
        self._asked: dict[str, tuple[int, dict[str, None]]] = {}
        self._started: dict[str, int] = {}
        self._n = 0

    def look(self, scheduler: Scheduler, effects: Iterable[ef.Effect]) -> Iterator[str]:
        """Checks after every step that the victims a group waits for only become fewer."""
        self._n += 1
        waited, self._waiting = self._waiting, {}
        for group in scheduler.shared.groups.values():
            if group.preemption is None or not group.preemption.waits_for:
                continue
            key = str(group.key)
            now = self._waiting[key] = frozenset(group.preemption.waits_for)
            before = waited.get(key, frozenset())
            number = group.preemption.number
            if self._number.get(key) != number:
                self._number[key], before = number, frozenset()
            if before and now - before:
                yield (
                    f"victims-once: {group!r} waits for {sorted(before)} and takes {sorted(now - before)} too"
                )
        for effect in effects:
            if isinstance(effect, ef.BindPod):
                self._started[effect.group] = self._n
            elif isinstance(effect, (ef.EvictPod, ef.DeletePod)):
                key = effect.cause_id.rpartition("#")[0]
                if effect.uid in self._waiting.get(key, ()):
                    _, victims = self._asked.setdefault(key, (self._n, {}))
                    victims[effect.uid] = None

    def in_vain(self, priorities: Mapping[str, int]) -> Iterator[str]:
        """Checks, in good weather, that no pod was evicted for a group that has not started since.

        No violation if a group of higher priority started after that: it may take the room.
        """
        for key, (n, victims) in self._asked.items():
            since = [other for other, at in self._started.items() if at >= n]
            if key not in since and not any(priorities[other] > priorities[key] for other in since):
                yield f"victims-once: {sorted(victims)} were taken for {key}, which has not started since"


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
    claims, fresh = scheduler.shared.queue.claims, start()
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
        if kept or at_limit:  # kept for others: the fresh process has no claims yet, and counts passes anew
            continue
        for bind in binds:
            group = left.get(bind.uid)
            if group is not None and not group.counts[LEAVING] and group.state not in skipped:
                yield f"nothing-starves: {group!r} fits ({bind.name} on {bind.node}) and is not bound"
            return


def _waits_at_limit(group: Group, scheduler: Scheduler) -> bool:
    """Whether it leaves room at a limit to groups ahead of it, in a queue that is in use, or has lost members
    and its queue is at its limit."""
    book = scheduler.shared.queues()
    if book is None:
        return False
    kept = scheduler.attempts.limits.kept_ahead_of(group)
    if any(book.used(name).get(resource) for name, some in kept.items() for resource in some):
        return True
    # A fresh process cannot distinguish a gang that was whole from one that was bound in part; members of the
    # latter are admitted whatever the limits.
    view = scheduler.shared.queue_view
    if view is None or not group.has_started:
        return False
    asked = view.request_of(group)
    return any(
        book.used(name).get(resource, 0) + asked.get(resource, 0) > limit
        for name in book.tree.paths.get(view.queue_of(group), ())
        for resource, limit in book.tree.queues[name].limit.items()
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
