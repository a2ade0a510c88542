"""The allocator: devices for several claims together, each on its node, or the proof that there are none.

What is feasible is what Kubernetes' structured allocator finds feasible, and the first solution in its
order is its solution: claims as given, their requests as written, pools and devices as listed. Beyond it,
claims may be those of several pods, on one node or on several, which look at each other's choices until all
have devices; and devices that differ in nothing that matters here are tried once.

Source: k8s.io/dynamic-resource-allocation v0.37.1 `structured/internal/incubating/allocator_incubating.go`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from gangsched.core.resource_claims.candidates import (
    AllocationError,
    Candidate,
    Cluster,
    NodeOffer,
    WantedDevices,
    wanted,
)
from gangsched.core.resource_claims.devices import A_LIST, CounterName, ListedDevice, Value
from gangsched.core.resource_claims.holdings import Tried
from gangsched.core.resource_claims.requests import Constraint, PreparedClaim, Request
from gangsched.model.devices.sets import SearchBudget
from gangsched.model.resource_claims.amounts import Consumption, billionths
from gangsched.model.resource_claims.objects import MAX_RESULTS, DeviceId

STEPS = 20_000
"""Devices tried in one search: some tens of milliseconds."""


class Ask(NamedTuple):
    """A claim to be allocated. pod: a number; claims of one pod do not share devices even by admin access.

    like: the ask before this one that it could change places with, -1 if there is none.
    """

    claim: PreparedClaim
    place: NodeOffer
    pod: int = 0
    like: int = -1


class ChosenDevice(NamedTuple):
    """A device for a request; taken: of a device that is shared, how much."""

    request: Request
    device: ListedDevice
    taken: dict[str, Consumption] | None = None


class Solution(NamedTuple):
    """By ask, the devices; None: there are none, which `is_proved` unless the steps were spent."""

    chosen: list[list[ChosenDevice]] | None
    is_proved: bool = True


Ranks = Mapping[int, Mapping[DeviceId, int]]
"""By the id() of a place: its devices' places in another order."""


def allocate(
    asks: Sequence[Ask], cluster: Cluster, *, steps: int = STEPS, ranks: Ranks | None = None
) -> Solution:
    """Finds devices for all claims together, the first in the order of Kubernetes' allocator, or by `ranks`.

    Raises: AllocationError.
    """
    search = _Search(asks, cluster, SearchBudget(steps))
    if ranks:
        search.order(ranks)
    return search.run()


class _Slot(NamedTuple):
    """The next device to find: of an ask, a request and a subrequest of it, -1 if that is still to be chosen;
    the first candidate to try."""

    ask: int
    request: int = 0
    sub: int = -1
    nth: int = 0
    start: int = 0


class _Outcome(Enum):
    """What became of a slot: nothing yet; there is no device; the claim would list too many."""

    NEW = 0
    FAILED = 1
    EXCEEDED = 2


NEW, FAILED, EXCEEDED = _Outcome.NEW, _Outcome.FAILED, _Outcome.EXCEEDED


class _End:
    """The end of a claim: where a later one would list too many devices, this one may choose others."""

    def __init__(self, slot: _Slot) -> None:
        self._following = _Slot(slot.ask + 1)

    def following(self, outcome: _Outcome) -> _Slot | _Outcome:
        return self._following if outcome is NEW else FAILED


class _Choice:
    """Which subrequest of a request is served: the first that can be."""

    def __init__(self, slot: _Slot, n: int) -> None:
        self._slot, self._n = slot, n
        self._sub = -1
        self._outcome = EXCEEDED

    def following(self, outcome: _Outcome) -> _Slot | _Outcome:
        if outcome is FAILED:
            self._outcome = FAILED
        self._sub += 1
        return self._slot._replace(sub=self._sub) if self._sub < self._n else self._outcome


class _Pick:
    """Which device is the next one of a request. failed: kinds of devices that were tried here in vain."""

    def __init__(self, slot: _Slot, want: WantedDevices, search: _Search) -> None:
        self._slot, self._want, self._search = slot, want, search
        self._at = slot.nth if want.request.is_all else slot.start
        self._taken: Candidate | None = None
        self._failed: set[Hashable] = set()

    def following(self, outcome: _Outcome) -> _Slot | _Outcome:
        """Raises: AllocationError."""
        slot, want, search = self._slot, self._want, self._search
        if self._taken is not None:
            search.give_back(slot.ask, want, self._taken)
            self._failed.add(search.kind(self._taken))
            self._taken = None
        if outcome is EXCEEDED or (outcome is FAILED and want.request.is_all):
            return outcome
        end = slot.nth + 1 if want.request.is_all else search.end(slot, want)
        for at in range(self._at, end):
            one = want.candidates[at]
            if not search.spend():
                break
            kind = search.kind(one) if self._failed else None
            if (kind is not None and kind in self._failed) or not search.take(slot, want, one):
                continue
            self._at, self._taken = at + 1, one
            return slot._replace(nth=slot.nth + 1, start=at + 1)
        return FAILED


class _Search:
    """One search: what is chosen so far, and the decisions that led there as a stack."""

    def __init__(self, asks: Sequence[Ask], cluster: Cluster, budget: SearchBudget) -> None:
        """Raises: AllocationError."""
        self._asks = asks
        self._cluster = cluster
        self._budget = budget
        self._left: dict[int, dict[CounterName, int] | None] = {}
        self._common = Tried()
        # What a pod has by admin access, which only its own claims see.
        self._own: dict[int, Tried] = {}
        self._chosen: list[list[ChosenDevice]] = [[] for _ in asks]
        self._marked: list[set[DeviceId]] = [set() for _ in asks]
        self._counted: list[bool] = []
        self._first: list[int] = [0 for _ in asks]
        self._values: list[list[list[Value]]] = [[[] for _ in ask.claim.constraints] for ask in asks]
        self._made: dict[tuple[int, int], list[list[WantedDevices]]] = {}
        self._wanted = [self._wants(ask) for ask in asks]
        # Where a selector fails on a device, the search ends when it meets that device, as Kubernetes' does;
        # so it has to take the same way.
        self._is_literal = any(
            one.error is not None
            for wants in self._made.values()
            for each in wants
            for want in each
            for one in want.candidates
        )
        self._kinds: dict[DeviceId, Hashable] | None = None

    def _wants(self, ask: Ask) -> list[list[WantedDevices]]:
        key = (id(ask.claim), id(ask.place))
        known = self._made.get(key)
        if known is None:
            known = self._made[key] = wanted(ask.claim, ask.place, self._cluster)
        return known

    def order(self, ranks: Ranks) -> None:
        """Tries devices in that order, which is left as it is where a selector fails on one of them."""
        if self._is_literal:
            return
        for (_, place), wants in self._made.items():
            if (rank := ranks.get(place)) is None:
                continue
            for want in (want for each in wants for want in each):
                for one in want.candidates:
                    one.at = rank[one.device.id]
                if not want.request.is_all and not want.request.admin_access:
                    want.candidates.sort(key=_at)

    def run(self) -> Solution:
        """Raises: AllocationError."""
        frames: list[_End | _Choice | _Pick] = []
        step: _Slot | _Outcome = _Slot(0)
        while True:
            if isinstance(step, _Slot):
                opened = self._open(step)
                if opened is None:
                    return Solution(self._chosen)
                if isinstance(opened, _Outcome):
                    step = opened
                    continue
                frames.append(opened)
                step = NEW
            elif self._budget.is_spent:
                return Solution(None, is_proved=False)
            elif not frames:
                if step is EXCEEDED:
                    raise AllocationError(f"more than {MAX_RESULTS} devices in one claim")
                return Solution(None)
            step = frames[-1].following(step)
            if isinstance(step, _Outcome):
                frames.pop()

    def _open(self, slot: _Slot) -> _End | _Choice | _Pick | _Outcome | None:
        """Returns the decision that the slot is about; None: every claim has its devices."""
        while slot.ask < len(self._asks):
            wanted = self._wanted[slot.ask]
            if slot.request == len(wanted):
                return _End(slot)
            if slot.sub < 0:
                if self._asks[slot.ask].claim.is_prioritized[slot.request]:
                    return _Choice(slot, len(wanted[slot.request]))
                slot = slot._replace(sub=0)
            want = wanted[slot.request][slot.sub]
            if want.request.is_all and not want.n:
                return FAILED
            if slot.nth < want.n:
                room = MAX_RESULTS - len(self._chosen[slot.ask])
                return EXCEEDED if want.n - slot.nth > room else _Pick(slot, want, self)
            slot = _Slot(slot.ask, slot.request + 1)
        return None

    def spend(self) -> bool:
        """Takes a step; returns whether there was one left."""
        return self._budget.spend()

    def end(self, slot: _Slot, want: WantedDevices) -> int:
        """Returns the first candidate after which too few are left for the request."""
        n = len(want.candidates)
        return n if self._is_literal else n - (want.n - slot.nth - 1)

    def take(self, slot: _Slot, want: WantedDevices, one: Candidate) -> bool:
        """Chooses the device if it is free and all constraints allow it. Raises: AllocationError."""
        ask, request, device = self._asks[slot.ask], want.request, one.device
        is_first = not slot.request and not slot.nth
        if is_first and ask.like >= 0 and not self._is_literal and one.at < self._first[ask.like]:
            return False
        own = self._own.get(ask.pod)
        if request.admin_access:
            if device.id in self._marked[slot.ask]:
                return False
        elif self._is_whole(device.id, own):
            return False
        if one.error is not None:
            raise one.error
        is_counted = device.counters and not (device.shareable and self._is_shared(device.id, own))
        if is_counted and not self._has_counters(one, own):
            return False
        if one.is_tainted:
            return False
        if (refusing := self._refusing(slot.ask, want, device)) is not None:
            if request.is_all and not refusing.spares_silent:
                # Kubernetes takes a claim that contradicts itself for an error.
                raise AllocationError(
                    f"request {request.name}: cannot add device {device.id} because a claim constraint would"
                    " not be satisfied"
                )
            return False
        if not self._has_capacity(one, own):
            return False
        if request.admin_access:
            own = self._own.setdefault(ask.pod, Tried())
        self._count(
            own if own is not None and request.admin_access else self._common, one, 1, bool(is_counted)
        )
        if not device.shareable:
            self._marked[slot.ask].add(device.id)
        for number in want.constraints:
            value = device.value(ask.claim.constraints[number].attribute)
            if value is not None:
                self._values[slot.ask][number].append(value)
        self._chosen[slot.ask].append(ChosenDevice(request, device, one.taken if device.shareable else None))
        self._counted.append(bool(is_counted))
        if is_first:
            self._first[slot.ask] = one.at
        return True

    def give_back(self, at: int, want: WantedDevices, one: Candidate) -> None:
        """Takes back the device that was chosen last, this one."""
        self._chosen[at].pop()
        for number in want.constraints:
            if one.device.value(self._asks[at].claim.constraints[number].attribute) is not None:
                self._values[at][number].pop()
        self._marked[at].discard(one.device.id)
        tried = self._own[self._asks[at].pod] if want.request.admin_access else self._common
        self._count(tried, one, -1, self._counted.pop())

    def kind(self, one: Candidate) -> Hashable:
        """Returns a value that is equal for devices which could change places in all that is still to be
        found; None: the device is like no other."""
        device = one.device.id
        if self._is_literal or self._common.has(device) or any(own.has(device) for own in self._own.values()):
            return None
        if self._kinds is None:
            self._kinds = self._told_apart()
        return self._kinds[device]

    def _told_apart(self) -> dict[DeviceId, Hashable]:
        kinds: dict[DeviceId, list[Hashable]] = {}
        attributes = sorted({one.attribute for ask in self._asks for one in ask.claim.constraints})
        number = 0
        for wants in self._made.values():
            for want in (want for each in wants for want in each):
                number += 1
                for one in want.candidates:
                    known = kinds.get(one.device.id)
                    if known is None:
                        known = kinds[one.device.id] = self._nature(one, attributes)
                    taken = tuple(sorted((name, used.amount) for name, used in one.taken.items()))
                    known.append((number, one.is_tainted, taken))
        return {device: tuple(kind) for device, kind in kinds.items()}

    def _nature(self, one: Candidate, attributes: Sequence[str]) -> list[Hashable]:
        device, held = one.device, self._cluster.holdings
        counted = (one.pool.id, tuple(sorted(device.counters))) if device.counters else None
        shares: Hashable = None
        if device.shareable or device.id in held.shared:
            shares = (
                tuple(sorted((name, str(each.value)) for name, each in device.capacity.items())),
                device.id in held.shared,
                tuple(sorted(held.given(device.id).items())),
            )
        values = tuple(device.value(name) for name in attributes)
        return [counted, shares, values, device.shareable, device.id in held.whole]

    def _is_whole(self, device: DeviceId, own: Tried | None) -> bool:
        return (
            device in self._cluster.holdings.whole
            or device in self._common.whole
            or (own is not None and device in own.whole)
        )

    def _is_shared(self, device: DeviceId, own: Tried | None) -> bool:
        return (
            device in self._cluster.holdings.shared
            or device in self._common.shared
            or (own is not None and device in own.shared)
        )

    def _has_counters(self, one: Candidate, own: Tried | None) -> bool:
        pool = one.pool
        if id(pool) not in self._left:
            found = self._cluster.holdings.counters_left(pool)
            # Kubernetes gives out none of a pool's devices that consume counters once any counter is below 0.
            self._left[id(pool)] = None if any(amount < 0 for amount in found.values()) else found
        left = self._left[id(pool)]
        if left is None:
            return False
        used = self._common.counters.get(pool.id, _NOTHING)
        by_own = own.counters.get(pool.id, _NOTHING) if own is not None else _NOTHING
        return all(
            left[name] >= used.get(name, 0) + by_own.get(name, 0) + amount
            for name, amount in one.device.counters
        )

    def _has_capacity(self, one: Candidate, own: Tried | None) -> bool:
        device = one.device
        if not one.taken or not self._is_shared(device.id, own):
            return True
        given, used = self._cluster.holdings.given(device.id), self._common.given(device.id)
        by_own = own.given(device.id) if own is not None else _NOTHING_GIVEN
        return all(
            given.get(name, 0) + used.get(name, 0) + by_own.get(name, 0) + taken.amount
            <= billionths(device.capacity[name].value)
            for name, taken in one.taken.items()
        )

    def _refusing(self, at: int, want: WantedDevices, device: ListedDevice) -> Constraint | None:
        """Returns the first constraint that keeps the device from the claim."""
        for number in want.constraints:
            constraint, known = self._asks[at].claim.constraints[number], self._values[at][number]
            value = device.value(constraint.attribute)
            if value is None and constraint.spares_silent:
                continue
            if value is None or (known and (value is A_LIST or not _fits(constraint, value, known))):
                return constraint
        return None

    def _count(self, tried: Tried, one: Candidate, n: int, is_counted: bool) -> None:
        if one.device.shareable:
            tried.share(one.device.id, {name: taken.amount for name, taken in one.taken.items()}, n)
        else:
            tried.hold(one.device.id, n)
        if is_counted:
            tried.consume(one.device, n)


def _at(one: Candidate) -> int:
    return one.at


def _fits(constraint: Constraint, value: Value, known: Sequence[Value]) -> bool:
    return value not in known if constraint.is_distinct else value == known[0]


_NOTHING: Mapping[CounterName, int] = {}
_NOTHING_GIVEN: Mapping[str, int] = {}
