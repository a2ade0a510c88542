"""Starts: checks that gangs start with as many members as they state, and with the groups that they list.

A second implementation of the rules of Permit and of core.state.start_together, from the events given to the
process. Not here: the core's sets; what has started in part (lab.sim.judges.gangs.half_bound). Called by
lab.sim.judges.step_judges and lab.sim.runs.duel after every step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import Group, GroupState
from gangsched.lab.sim.reading.documents import OF_OBJECTS, Gang, gang_of, least, needed_by
from gangsched.lab.sim.reading.received import RANK_KEY, Received, reserved_on
from gangsched.lab.sim.reading.roles import missing_roles
from gangsched.lab.sim.reading.texts import json_of
from gangsched.lab.sim.world.hooks import as_bind
from gangsched.model import effects as ef
from gangsched.model.objects import Pod
from gangsched.plugins.gang_scheduling import GangScheduling

KEY = "gangsched.io/groups"
_MAX_LISTED, _FAILED, _ALONE = 64, "Failed", "pod"
_ON_PODS = "gangsched"
"""The dialect whose pods carry the list. A pod alone lists no group; in the other dialects here the group's
object carries the list."""

Lists = Mapping[Gang, frozenset[str]]


class _KnownGangs(NamedTuple):
    """All gangs that the process knows. needed: how many must start together, None if what states it is gone
    or cannot be read; unread: names of those gangs, whose lists are not reliable; reserved: UIDs of reserved
    pods; begun: gangs of which a member is or was on a node, or is about to be."""

    members: Mapping[Gang, Sequence[Pod]]
    lists: Lists
    needed: Mapping[Gang, int | None]
    unread: Set[str]
    reserved: frozenset[str]
    begun: Set[Gang]

    def has_all(self, gang: Gang) -> bool:
        """Whether as many of its pods as it needs exist and may be placed."""
        pods = [pod for pod in self.members[gang] if not pod.spec.scheduling_gates and not _goes(pod)]
        needed = self.needed[gang]
        return needed is not None and len(pods) >= needed

    def judges(self, gang: Gang) -> bool:
        """Whether it lists other groups, and the lists of its whole set are known."""
        if gang not in self.lists:
            return False
        return not any(self.lists[one] & self.unread for one in set_of(gang, self.lists))


class Starts:
    """starts-whole: when a gang's first bind is sent, the members that it needs are reserved, also of each
    role. sets-start-together: all gangs of its set exist by then, and each has the members that it needs
    reserved or has begun already; later binds complete it. ranks-unique: no other member that exists and
    stays has the rank of a bound pod."""

    def __init__(self) -> None:
        self._sent: set[str] = set()
        """UIDs of pods whose bind was sent, while they are reserved: it may be sent again."""
        self._sent_for: dict[str, str] = {}
        """UID -> gang of the last bind sent for the pod. A pod that is edited meanwhile names another, and
        moves there only once the bind is answered."""

    def check(self, scheduler: Scheduler, effects: Iterable[ef.Effect], received: Received) -> Iterator[str]:
        """Called before the effects are sent."""
        binds = [bind for effect in effects if (bind := as_bind(effect)) is not None]
        sent = [received.pods[bind.uid] for bind in binds if bind.uid in received.pods]
        new = [pod for pod in sent if pod.metadata.uid not in self._sent]
        had = dict(self._sent_for)
        self._sent_for |= {bind.uid: bind.group for bind in binds}
        starting: dict[Gang, Pod] = {}
        for pod in new:
            if (gang := gang_of(pod)) is not None and gang.dialect != _ALONE:
                starting.setdefault(gang, pod)
        if not starting:
            self._sent |= {pod.metadata.uid for pod in sent}  # one alone may be named a member later
            return
        members, reserved = _members(scheduler, received), reserved_by(scheduler)
        self._sent &= reserved
        if any(_list_of(gang, [pod], received) for gang, pod in starting.items()):
            known = self._known_gangs(members, reserved, received)
            for gang in starting:
                if gang not in known.begun and known.judges(gang):
                    yield from _starts_apart(gang, known)
        ranks = {bind.uid: bind.annotations.get(RANK_KEY) for bind in binds}
        for gang, pods in members.items():
            if gang not in starting:
                continue
            yield from _share_a_rank(gang, pods, ranks, received)
            has_begun = any(self._is_bound(pod, received) for pod in pods)
            if not has_begun and not self._begun_by_edited(gang, had, received):
                yield from _starts_short(gang, pods, reserved, received)
        self._sent |= {pod.metadata.uid for pod in sent}

    def at_rest(
        self, scheduler: Scheduler, received: Received, excuses: Callable[[Group], bool]
    ) -> Iterator[str]:
        """sets-start-together, at rest: no gang holds reservations and waits while all of its set exist and
        none of them is refused."""
        self._sent.clear()  # nothing is on its way
        self._sent_for = {uid: name for uid, name in self._sent_for.items() if uid in received.pods}
        known = self._known_gangs(_members(scheduler, received), reserved_by(scheduler), received)
        groups = {_gang(group): group for group in scheduler.shared.groups.values()}
        for gang, group in groups.items():
            if group.state is not GroupState.WAITING or not known.judges(gang) or excuses(group):
                continue
            near = set_of(gang, known.lists, ends=known.begun)
            names = {str(one) for one in near}
            others = [one for one in near if one not in known.begun]
            if any(groups[one].problem or _waits_for_others(groups[one], scheduler) for one in near):
                continue
            # One that has begun and is short of members may be bound in part: its set waits for them too.
            if not all(known.has_all(one) for one in near if one in known.begun and one in known.lists):
                continue
            if all(known.lists[one] <= names and known.has_all(one) for one in others):
                yield f"sets-start-together: {gang} waits, and its set is there: {group.message}"

    def _known_gangs(
        self, members: Mapping[Gang, Sequence[Pod]], reserved: frozenset[str], received: Received
    ) -> _KnownGangs:
        lists = _lists(members, received)
        begun = {gang for gang, pods in members.items() if any(self._is_bound(pod, received) for pod in pods)}
        needed = {gang: least(gang, pods[0], received.groups.get(gang)) for gang, pods in members.items()}
        unread = {str(gang) for gang, n in needed.items() if n is None}
        return _KnownGangs(members, lists, needed, unread, reserved, begun)

    def _begun_by_edited(self, gang: Gang, sent_for: Mapping[str, str], received: Received) -> bool:
        """Whether a pod that was sent for the gang, and names another by now, is bound or about to be."""
        sent = (received.pods.get(uid) for uid, name in sent_for.items() if name == str(gang))
        return any(pod is not None and self._is_bound(pod, received) for pod in sent)

    def _is_bound(self, pod: Pod, received: Received) -> bool:
        """Whether it runs, has succeeded, or is about to run; replacements of failed pods must start together
        again."""
        uid = pod.metadata.uid
        is_there = bool(pod.spec.node_name) or uid in received.answered or uid in self._sent
        return is_there and pod.status.phase != _FAILED


def _waits_for_others(group: Group, scheduler: Scheduler) -> bool:
    """Whether a plugin's Permit holds it back for something other than its set."""
    return any(plugin != GangScheduling.name for plugin in scheduler.permits.waits_for(group))


def _gang(group: Group) -> Gang:
    key = group.key
    return Gang(key.dialect, key.namespace, key.name, key.uid)


def _share_a_rank(
    gang: Gang, pods: Sequence[Pod], ranks: Mapping[str, str | None], received: Received
) -> Iterator[str]:
    """ranks-unique. ranks: of the pods that are being bound, by UID."""
    has: dict[str | None, str] = {}
    for pod in (pod for pod in pods if pod.metadata.uid not in ranks and not _goes(pod)):
        if (claim := received.claim_of(pod.metadata.uid)) is not None:
            has[claim.rank] = pod.metadata.name
    for pod in (pod for pod in pods if pod.metadata.uid in ranks):
        rank, name = ranks[pod.metadata.uid], pod.metadata.name
        if rank is None or rank in has:
            yield f"ranks-unique: {name} of {gang} gets rank {rank}, which {has.get(rank, 'no pod')} has"
        has[rank] = name


def _starts_short(
    gang: Gang, pods: Sequence[Pod], reserved: frozenset[str], received: Received
) -> Iterator[str]:
    item = received.groups.get(gang)
    if item is None and gang.dialect in OF_OBJECTS:
        yield f"starts-whole: {gang} starts, and its object has not been read"
    if (needed := needed_by(gang, pods, item)) is None:
        return  # the number that it starts by cannot be known
    there = [pod for pod in pods if pod.metadata.uid in reserved]
    if len(there) < needed:
        yield f"starts-whole: {gang} starts with {len(there)} places of {needed}"
    for role, n, least_of_it in missing_roles(gang.dialect, there, item):
        yield f"starts-whole: {gang} starts with {n} places of {least_of_it} for {role}"


def _starts_apart(gang: Gang, known: _KnownGangs) -> Iterator[str]:
    together = set_of(gang, known.lists)
    if len({str(one) for one in together}) < len(together):
        yield f"sets-start-together: {gang} starts, and two of its set have one name"
    if len(together) > _MAX_LISTED:
        yield f"sets-start-together: {gang} starts, and its set has {len(together)} groups"
    # Gangs in the set only through one that has begun have started before, and may have lost pods since.
    near = set_of(gang, known.lists, ends=known.begun)
    for one in (one for one in near if one not in known.begun):
        if missing := sorted(known.lists[one] - {str(other) for other in near}):
            yield f"sets-start-together: {gang} starts, and {one} waits for {missing}"
        needed = known.needed[one]
        n = sum(pod.metadata.uid in known.reserved for pod in known.members[one])
        if needed is not None and n < needed:
            yield f"sets-start-together: {gang} starts, and {one} has {n} places of {needed}"


def set_of(gang: Gang, lists: Lists, *, ends: Set[Gang] = frozenset()) -> list[Gang]:
    """Returns all gangs connected with it by listing each other; gangs in `ends` connect no others."""
    found = [gang]
    for one in found:
        for name in sorted(lists[one]) if one not in ends else ():
            other = _meant(name, one, lists)
            if other is None or other in found or str(one) not in lists[other]:
                continue
            if _meant(str(one), other, lists) == one:
                found.append(other)
    return found


def with_more_important(lowest: int, scheduler: Scheduler, received: Received) -> frozenset[str]:
    """Returns UIDs of pods that would be lost together with more important ones: pods of gangs whose set has
    a pod that has not ended and has priority `lowest` or more."""
    members = _members(scheduler, received)
    lists = _lists(members, received)
    important = {
        gang
        for gang, pods in members.items()
        if any(not pod.is_terminal and (pod.spec.priority or 0) >= lowest for pod in pods)
    }
    kept = (gang for gang in lists if not important.isdisjoint(set_of(gang, lists)))
    return frozenset(pod.metadata.uid for gang in kept for pod in members[gang])


def names_with(pods: Iterable[Pod], scheduler: Scheduler, received: Received) -> dict[str, list[str]]:
    """By UID, for pods in sets: the names of all gangs of that set."""
    lists = _lists(_members(scheduler, received), received)
    gangs = ((pod.metadata.uid, gang_of(pod)) for pod in pods)
    sets = ((uid, set_of(gang, lists)) for uid, gang in gangs if gang is not None and gang in lists)
    return {uid: [str(one) for one in together] for uid, together in sets}


def _meant(name: str, by: Gang, lists: Lists) -> Gang | None:
    """Returns the group that a list means by a name: the one of the same dialect, else the only one so
    named."""
    named = [gang for gang in lists if str(gang) == name]
    alike = [gang for gang in named if gang.dialect == by.dialect]
    if alike:
        return alike[0]
    return named[0] if len(named) == 1 else None


def _members(scheduler: Scheduler, received: Received) -> dict[Gang, list[Pod]]:
    """By gang: the pods that the process knows, without those that ended before they ran."""
    members: dict[Gang, list[Pod]] = {}
    for pod in received.pods.values():
        gang = gang_of(pod) if pod.spec.scheduler_name in scheduler.shared.profiles else None
        if gang is not None and (pod.spec.node_name or not pod.is_terminal):
            members.setdefault(gang, []).append(pod)
    return members


def _goes(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None or pod.status.phase == _FAILED


def _lists(members: Mapping[Gang, Sequence[Pod]], received: Received) -> Lists:
    """By gang that lists any: the names that it lists."""
    return {gang: listed for gang, pods in members.items() if (listed := _list_of(gang, pods, received))}


def _list_of(gang: Gang, pods: Sequence[Pod], received: Received) -> frozenset[str]:
    """Returns the names that it lists, in full, its own among them; empty if none, or if they cannot be
    read."""
    if gang.dialect == _ON_PODS:
        texts = {(pod.metadata.annotations or {}).get(KEY, "") for pod in pods}
    else:
        item = received.groups.get(gang)
        texts = {(item.metadata.annotations or {}).get(KEY, "")} if item is not None else set()
    if len(texts) != 1:
        return frozenset()
    names = json_of(texts.pop() or "[]")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return frozenset()
    full = {name if "/" in name else f"{gang.namespace}/{name}" for name in names} | {str(gang)}
    return frozenset(full) if 1 < len(full) <= _MAX_LISTED else frozenset()


def reserved_by(scheduler: Scheduler) -> frozenset[str]:
    """Returns UIDs of pods that are reserved and not known to be bound."""
    return frozenset(reserved_on(scheduler))
