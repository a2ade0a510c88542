"""KeptRoom: checks, step by step, that pods that start leave claims their room, and that bounds hold.

Made by lab.sim.judges.step_judges for one process. Requests, IDs and walltimes are read from the pods given
to the process (lab.sim.reading.documents); reservations, and where claims stand, from the scheduler. Which
claims yield to a pod is worked out again, here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from gangsched.core.scheduler import Scheduler
from gangsched.core.types.claim import StartClaim
from gangsched.core.types.group import ASSUMED, Group, GroupState
from gangsched.core.types.needed import completes
from gangsched.lab.sim.judges.gangs.starts import names_with
from gangsched.lab.sim.reading.documents import allocatable, is_vast, pod_asks, stated_s
from gangsched.lab.sim.reading.received import Received
from gangsched.model import effects as ef
from gangsched.model.objects import Pod

_SAME_S = 1.0
_CAUSES = frozenset(
    ("overrun", "extended", "estimate", "node", "priority", "guarantee", "other scheduler", "claims")
)
_WAITS = (GroupState.ACTIVE, GroupState.ASKING, GroupState.BACKOFF, GroupState.UNSCHEDULABLE)


class _Started(msgspec.Struct):
    """A pod that was placed and must leave claims their room. number: of the step."""

    number: int
    ends_s: float
    priority: int
    before: frozenset[int]
    """Serials of the claims that yield to it: its own is older, or it is within a guarantee."""


class _Promise(msgspec.Struct, frozen=True):
    """A claim's start, whether it was promised, the start that was promised first, and how often it
    slipped."""

    start_s: float
    is_promise: bool
    first_s: float | None
    n_slips: int

    def broken_by(self, claim: StartClaim) -> Iterator[str]:
        """claim-promise: a promise moves later only with a cause, each time is counted, and the first stays
        recorded."""
        if self.is_promise and claim.start_s > self.start_s + _SAME_S:
            if claim.n_slips == self.n_slips:
                yield f"claim-promise: {claim.unit} slips to {claim.start_s:g}, and that is not counted"
            if claim.because not in _CAUSES:
                yield (
                    f"claim-promise: {claim.unit} slips to {claim.start_s:g}, and the cause is "
                    f"{claim.because!r}"
                )
        if self.first_s is not None and claim.promised_s != self.first_s:
            yield (
                f"claim-promise: {claim.unit} was promised {self.first_s:g} first, and that is "
                f"{claim.promised_s} now"
            )


def _never(*_: object) -> bool:
    return False


class KeptRoom:
    """Claims after every step, their holders, and the pods evicted for them: the judges claim-*."""

    def __init__(self) -> None:
        self.begin()
        self._started: dict[str, _Started] = {}
        self._reserved: dict[str, tuple[str, Mapping[str, tuple[str, ...]]]] = {}
        """By UID: the node and IDs of its reservation, before this step."""
        self._held: dict[int, tuple[object, dict[str, int], dict[str, dict[str, int] | None]]] = {}
        """By serial of a claim: its resources, since which step on each node, and the node's room then."""
        self._own: dict[str, StartClaim] = {}
        """By group: its claim, before this step."""
        self._n = 0

    def begin(
        self, takes_kept_room: Callable[[Sequence[Pod], StartClaim, Received, Sequence[Pod]], bool] = _never
    ) -> None:
        """Applies other settings from the next step on. takes_kept_room: whether their queue lets pods that
        start together take the claim's room, beside pods that are promised room."""
        self._takes_kept_room = takes_kept_room
        self._promises: dict[int, _Promise] = {}
        """By serial of a claim: what was promised, before this step."""
        self._passed: dict[str, int] | None = None
        """By group: how many had passed it before the first step, under settings with another bound."""

    def check(
        self, scheduler: Scheduler, effects: Iterable[ef.Effect], received: Received, now_s: float
    ) -> Iterator[str]:
        """After every step."""
        self._n += 1
        shared = scheduler.shared
        claims = shared.claims
        if claims is None:
            return
        for effect in effects:
            if isinstance(effect, (ef.EvictPod, ef.DeletePod)):
                yield from self._may_go(scheduler, effect, now_s)
        starting = [received.pods[uid] for uid in self._placed(scheduler) if uid in received.pods]
        promised = [one.info.pod for one in scheduler.shared.cache.nominated.values()]
        yielding = frozenset(
            one.serial
            for one in self._own.values()
            if starting and self._takes_kept_room(starting, one, received, promised)
        )
        together = names_with(starting, scheduler, received) if starting and self._own else {}
        for pod in starting:
            self._note(scheduler, pod, now_s, yielding, together.get(pod.metadata.uid, ()))
        standing = claims.all
        self._own = {str(key): claim for key, claim in claims.by_key.items()}
        self._held = {
            one.serial: self._held[one.serial]
            if one.serial in self._held and self._held[one.serial][0] is one.held
            else (one.held, dict.fromkeys(one.nodes, self._n), {n: _room(received, n) for n in one.nodes})
            for one in standing
        }
        for claim in standing:
            yield from self._keeps(claim, received)
            yield from self._is_held(scheduler, claim, received)
            if (before := self._promises.get(claim.serial)) is not None:
                yield from before.broken_by(claim)
        if self._passed is None:
            self._passed = {str(group.key): n for group, n, _ in _passes(scheduler, shared.groups.values())}
        self._promises = {
            one.serial: _Promise(one.start_s, one.is_promise, one.promised_s, one.n_slips) for one in standing
        }
        for group, n, bound in _passes(scheduler, (group for claim in standing for group in claim.unit)):
            is_new = self._passed.get(str(group.key), 0) < bound  # else it has a claim once it is tried
            if n > bound and is_new and claims.budget is None:
                yield f"claim-bound: {group!r} was passed {n} times, its bound is {bound}"

    def _is_held(self, scheduler: Scheduler, claim: StartClaim, received: Received) -> Iterator[str]:
        """claim-exists: all groups and pods of a claim exist and wait."""
        for group in claim.unit:
            if scheduler.shared.groups.get(group.key) is not group or group.state not in _WAITS:
                yield f"claim-exists: room is kept for {group!r}, which does not wait for it"
        for one in claim.held:
            pod = received.pods.get(one.info.uid)
            if pod is None or pod.spec.node_name or pod.is_terminal:
                yield f"claim-exists: room is kept for {one.info!r}, which is gone or has started"

    def _may_go(
        self, scheduler: Scheduler, effect: ef.EvictPod | ef.DeletePod, now_s: float
    ) -> Iterator[str]:
        """claim-evictions: a pod evicted for a claim has run as long as it stated."""
        waiting = scheduler.shared.victims.get(effect.uid, ())
        started = self._started.get(effect.uid)
        if started is not None and any(one.is_overrun for one in waiting) and now_s < started.ends_s:
            yield (
                f"claim-evictions: {effect.uid} is evicted at {now_s:g} for a claim, and has "
                f"stated {started.ends_s:g}"
            )

    def _placed(self, scheduler: Scheduler) -> list[str]:
        """Returns UIDs of pods that were placed in this step; their binds may wait for plugins."""
        before, self._reserved = self._reserved, {}
        for uid, info in scheduler.shared.cache.pods.items():
            if info.state is ASSUMED:
                self._reserved[uid] = (info.node_name, info.ids)
        return [uid for uid, place in self._reserved.items() if before.get(uid) != place]

    def _note(
        self, scheduler: Scheduler, pod: Pod, now_s: float, before: frozenset[int], together: Collection[str]
    ) -> None:
        """before: claims that yield to it by queues; together: the names of the gangs in its set, of whose
        claims the oldest counts."""
        uid = pod.metadata.uid
        self._started.pop(uid, None)
        info = scheduler.shared.cache.pods.get(uid)
        group = info.group if info is not None else None
        if group is None or completes(group):
            return
        owns = [claim.serial for name in together or (str(group.key),) if (claim := self._own.get(name))]
        if owns:
            before |= {one.serial for one in self._own.values() if one.serial > min(owns)}
        ends_s = now_s + max(stated_s(one.pod) for one in group.members.values())
        self._started[uid] = _Started(self._n, ends_s, group.priority, before)

    def _keeps(self, claim: StartClaim, received: Received) -> Iterator[str]:
        """claim-room-kept: pods that started while it stands there, and end after its start, leave it its
        room and IDs."""
        _, since, rooms = self._held[claim.serial]
        for name in claim.nodes:
            room = _room(received, name)
            if room is None or room != rooms.get(name):
                since[name] = self._n  # the node has changed: what starts there now fits it as it is
                continue
            kept: Counter[str] = Counter()
            ids: dict[str, set[str]] = {}
            for one in claim.held:
                if one.node_name == name:
                    kept.update(pod_asks(one.info.pod.spec))
                    for resource, some in one.ids.items():
                        ids.setdefault(resource, set()).update(some)
            for other in received.claims_on(name):
                started = self._started.get(other.uid)
                if started is None or started.number <= since[name] or started.ends_s <= claim.start_s:
                    continue
                if (
                    other.uid in received.pods
                    and received.pods[other.uid].metadata.deletion_timestamp is not None
                ):
                    continue  # it is being deleted, whatever it stated
                if started.priority > claim.priority or claim.serial in started.before:
                    continue
                kept.update(other.requests)
                for resource, theirs in other.ids.items():
                    if both := ids.get(resource, set()) & theirs:
                        yield (
                            f"claim-room-kept: {other.uid} is given {sorted(both)} of {name}, "
                            f"kept for {claim.unit}"
                        )
            for resource, amount in kept.items():
                there = room.get(resource, 0)
                if amount > there and not is_vast(there):
                    yield (
                        f"claim-room-kept: {amount} {resource} of {there} on {name} are taken "
                        f"and kept for {claim.unit}"
                    )


def _passes(scheduler: Scheduler, groups: Iterable[Group]) -> Iterator[tuple[Group, int, int]]:
    """Yields each group with how many have passed it, and its bound."""
    passed = scheduler.shared.queue.bypasses
    for group in groups if passed is not None else ():
        count = passed.count(group) if passed is not None else None
        if count is not None:
            yield group, count.n, count.bound


def _room(received: Received, name: str) -> dict[str, int] | None:
    node = received.nodes.get(name)
    return None if node is None else allocatable(node)


def acyclic(scheduler: Scheduler) -> Iterator[str]:
    """claims-no-cycle: no claim yields to one that yields to it, and none waits for what never ends."""
    claims = scheduler.shared.claims
    for claim in claims.all if claims is not None else ():
        assert claims is not None
        for other in claims.ahead_of(claim.unit):
            if claim in claims.ahead_of(other.unit):
                yield f"claims-no-cycle: {claim.unit} and {other.unit} wait for each other"
        if not math.isfinite(claim.start_s):
            yield f"claims-no-cycle: {claim.unit} waits for what never ends"
