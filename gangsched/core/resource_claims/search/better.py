"""Better: of the devices that would do, those that leave most for others, and that lie side by side.

Three things count, the first most. Which subrequest of a firstAvailable list is served: never a later one
than where devices are taken in Kubernetes' order. Whether a claim's devices are of one PCIe root, or else of
one NUMA node, as far as their drivers say so by the attributes that Kubernetes names for all of them. And
which devices go first: those that others share already; of partitions, those that make the fewest other free
devices impossible; then those of the root, and of the NUMA node, of which the fewest devices are free.

There are devices exactly where `allocate` finds some.

Source: k8s.io/dynamic-resource-allocation v0.37.1 `deviceattribute/attribute.go`, for the two names; KEP-4815
on partitions, KEP-5075 on shares.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import lru_cache

from gangsched.core.resource_claims.candidates import AllocationError, Cluster, NodeOffer
from gangsched.core.resource_claims.devices import A_LIST, CounterName, ListedDevice, Pool, Value
from gangsched.core.resource_claims.holdings import Holdings
from gangsched.core.resource_claims.requests import Constraint, PreparedClaim, Request
from gangsched.core.resource_claims.search.allocator import STEPS, Ask, Ranks, Solution, allocate
from gangsched.model.resource_claims.amounts import billionths
from gangsched.model.resource_claims.objects import ClaimConstraint, DeviceId

SIDE_BY_SIDE = ("resource.kubernetes.io/pcieRoot", "resource.kubernetes.io/numaNode")
"""Attributes of which the devices of a claim had better have one value, the closest first."""
_STEPS, _STEPS_EACH = 1_000, 200
"""Devices tried in one search for devices that lie side by side, and more for each claim."""
_MAX_ONE_BY_ONE = 16
"""Where not all claims can have that, and they are no more, it is tried for one after the other."""
_NOT_SHARED = 1_000_001
_MAX_RANKED = 20_000
"""Devices of all nodes of a search: of more, as where nodes share a large pool, all are alike."""
_MAX_COMPARED = 200_000
"""Amounts: of a pool whose devices consume more of each other's counters, all devices are alike."""

Needs = tuple[tuple[int, ...], ...]


def allocate_better(asks: Sequence[Ask], cluster: Cluster, *, steps: int = STEPS) -> Solution:
    """Finds devices for all claims together, the better ones of those that would do.

    Raises: AllocationError.
    """
    first = allocate(asks, cluster, steps=steps)
    places = {id(ask.place): ask.place for ask in asks}
    if not _can_be_written(first) or sum(len(one.devices) for one in places.values()) > _MAX_RANKED:
        return first
    ranked = ((at, _ranks(place, cluster.holdings)) for at, place in places.items())
    ranks = {at: one for at, one in ranked if one is not None}
    return _Better(asks, cluster, ranks, steps).than(first) if ranks else first


def _can_be_written(found: Solution) -> bool:
    """Whether there is a solution, and none of its devices is where an allocation cannot say."""
    return found.chosen is not None and not any(
        one.device.reach.is_of_choice for each in found.chosen for one in each
    )


class _Better:
    """Solutions in the better order, none of whose claims is served a worse alternative."""

    def __init__(self, asks: Sequence[Ask], cluster: Cluster, ranks: Ranks, steps: int) -> None:
        self._asks = asks
        self._cluster = cluster
        self._ranks = ranks
        self._steps = steps
        self._closer = _Closer(cluster)
        self._least: list[int] = []

    def than(self, first: Solution) -> Solution:
        """Returns the best one found."""
        self._least = self._points(first)
        best = self._tried(self._asks, self._steps) or first
        self._least = self._points(best)
        best = self._side_by_side() or best
        # Where a claim has alternatives, the first one may have been side by side already.
        is_as_good = self._points(first) == self._points(best)
        return first if is_as_good and _n_apart(first) < _n_apart(best) else best

    def _points(self, found: Solution) -> list[int]:
        return [
            ask.claim.points(one.request.name for one in chosen)
            for ask, chosen in zip(self._asks, found.chosen or (), strict=True)
        ]

    def _tried(self, asks: Sequence[Ask], steps: int) -> Solution | None:
        try:
            found = allocate(asks, self._cluster, steps=steps, ranks=self._ranks)
        except AllocationError:
            return None
        if not _can_be_written(found):
            return None
        is_as_good = all(a >= b for a, b in zip(self._points(found), self._least, strict=True))
        return found if is_as_good else None

    def _side_by_side(self) -> Solution | None:
        """Returns a solution with as many claims as possible, the first ones first, whose devices lie side by
        side; None if no claim's can."""
        asks, closer = self._asks, self._closer
        could = [[one for name in SIDE_BY_SIDE if (one := closer.of(ask, name)) is not None] for ask in asks]
        steps = min(self._steps, _STEPS + _STEPS_EACH * len(asks))
        for level in range(max((len(each) for each in could), default=0)):
            all_of_them = [
                ask._replace(claim=each[min(level, len(each) - 1)]) if each else ask
                for ask, each in zip(asks, could, strict=True)
            ]
            if (found := self._tried(all_of_them, steps)) is not None:
                return found
        if len(asks) > _MAX_ONE_BY_ONE:
            return None
        # From here on equal pods may be asked for unlike claims, and cannot change places.
        so_far, best = [ask._replace(like=-1) for ask in asks], None
        for at, each in enumerate(could):
            for claim in each:
                trial = [*so_far[:at], so_far[at]._replace(claim=claim), *so_far[at + 1 :]]
                if (found := self._tried(trial, steps)) is not None:
                    so_far, best = trial, found
                    break
        return best


def _n_apart(found: Solution) -> tuple[int, ...]:
    """Returns how many claims have devices of several PCIe roots, and of several NUMA nodes."""
    return tuple(
        sum(
            len({one.device.value(name) for one in chosen if not one.request.admin_access} - {None}) > 1
            for chosen in found.chosen or ()
        )
        for name in SIDE_BY_SIDE
    )


class _Closer:
    """Claims whose devices must have one value of an attribute too, each made once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._made: dict[tuple[int, int, str], PreparedClaim | None] = {}

    def of(self, ask: Ask, attribute: str) -> PreparedClaim | None:
        """Returns the claim with that demand on the devices that have the attribute; None: it would be too
        much, or say nothing."""
        key = (id(ask.claim), id(ask.place), attribute)
        if key not in self._made:
            self._made[key] = self._closer(ask.claim, ask.place, attribute)
        return self._made[key]

    def _closer(self, claim: PreparedClaim, place: NodeOffer, attribute: str) -> PreparedClaim | None:
        asked = [one for one in claim.requests if not one.admin_access]
        if _n_most(asked) < 2:
            return None
        held = self._cluster.holdings.whole
        free = Counter(
            one.value(attribute) for one, _ in place.devices if one.shareable or one.id not in held
        )
        n_silent = free.pop(None, 0)
        if not free or (max(free.values()) + n_silent < _n_least(asked) and not _has_shareable(place)):
            return None
        found = copy(claim)
        only = ClaimConstraint(match_attribute=attribute, requests=[one.name for one in asked])
        found.constraints = (*claim.constraints, Constraint(only, spares_silent=True))
        return found


def _has_shareable(place: NodeOffer) -> bool:
    return any(one.shareable for one, _ in place.devices)


def _n_most(requests: Iterable[Request]) -> int:
    """Returns how many devices they get at most, of subrequests those of one; of "All" there may be two."""
    most = Counter[str]()
    for one in requests:
        most[one.parent] = max(most[one.parent], 2 if one.is_all else one.count)
    return most.total()


def _n_least(requests: Iterable[Request]) -> int:
    """Returns how many devices they get at least."""
    least: dict[str, int] = {}
    for one in requests:
        n = 0 if one.is_all else one.count
        least[one.parent] = min(least.get(one.parent, n), n)
    return sum(least.values())


# -- which go first ----------------------------------------------------------------------------------------


def _ranks(place: NodeOffer, held: Holdings) -> dict[DeviceId, int] | None:
    """Returns the places of the devices in the order in which they had better be given out; None: the order
    of Kubernetes is as good."""
    if not any(_is_told_apart(pool) for pool in place.pools):
        return None
    blocked: dict[DeviceId, int] = {}
    for pool in place.pools:
        if pool.counters:
            blocked.update(_blocked(pool, held))
    devices, free = place.devices, Counter[tuple[str, Value]]()
    for device, _ in devices:
        if not held.has(device.id):
            free.update(_near(device))
    keys = [
        (
            _share_left(device, held),
            blocked.get(device.id, 0),
            _n_free_near(device, free),
            at,
            device.id,
        )
        for at, (device, _) in enumerate(devices)
    ]
    return {one[-1]: at for at, one in enumerate(sorted(keys))}


def _is_told_apart(pool: Pool) -> bool:
    """Whether its devices differ in what counts here."""
    if pool.is_told_apart is None:
        pool.is_told_apart = bool(pool.counters) or any(
            one.shareable or any(name in one.attributes for name in SIDE_BY_SIDE) for one in pool.devices
        )
    return pool.is_told_apart


def _n_free_near(device: ListedDevice, free: Mapping[tuple[str, Value], int]) -> tuple[int, ...]:
    """Returns how many devices are free of its PCIe root, and of its NUMA node."""
    near = dict(_near(device))
    return tuple(free.get((name, near[name]), 0) if name in near else 0 for name in SIDE_BY_SIDE)


def _near(device: ListedDevice) -> Iterator[tuple[str, Value]]:
    for name in SIDE_BY_SIDE:
        if (value := device.value(name)) is not None and value is not A_LIST:
            yield name, value


def _share_left(device: ListedDevice, held: Holdings) -> int:
    """Returns how many millionths are left of the capacity of which the most is given out, as far as others
    share the device."""
    if not device.shareable:
        return 0
    if device.id not in held.shared:
        return _NOT_SHARED
    given = held.given(device.id)
    left = [
        1_000_000 * (total - given.get(name, 0)) // total
        for name, one in device.capacity.items()
        if (total := billionths(one.value)) > 0
    ]
    return max(0, min(left, default=0))


def _blocked(pool: Pool, held: Holdings) -> Iterator[tuple[DeviceId, int]]:
    """Yields the pool's devices that consume counters, each with how many others that are free now would not
    be possible beside it."""
    left = held.counters_left(pool)
    groups: dict[tuple[str, ...], list[ListedDevice]] = {}
    is_apart = all(len(set(one.counter_sets)) == 1 for one in pool.devices if one.counters)
    for device in pool.devices:
        if device.counters and not held.has(device.id):
            groups.setdefault(device.counter_sets[:1] if is_apart else (), []).append(device)
    for devices in groups.values():
        names = sorted({name for device in devices for name, _ in device.counters})
        if len(devices) ** 2 * len(names) > _MAX_COMPARED:
            continue
        for device, n in zip(devices, _n_blocked(*_needs(devices, names, left)), strict=True):
            yield device.id, n


def _needs(
    devices: Sequence[ListedDevice], names: Sequence[CounterName], left: dict[CounterName, int]
) -> tuple[Needs, tuple[int, ...]]:
    """Returns what each device consumes of these counters, and what is left of them: equal for GPUs that are
    alike and cut alike."""
    needs = [dict(device.counters) for device in devices]
    return (
        tuple(tuple(one.get(name, 0) for name in names) for one in needs),
        tuple(left[name] for name in names),
    )


@lru_cache(maxsize=1024)
def _n_blocked(needs: Needs, left: tuple[int, ...]) -> tuple[int, ...]:
    """Returns for each device how many of the others fit what is left, but not what it would leave."""
    fitting = [one for one in needs if _fits(one, left)]
    found: list[int] = []
    for mine in needs:
        rest = tuple(a - b for a, b in zip(left, mine, strict=True))
        n = sum(not _fits(one, rest) for one in fitting)
        found.append(n - 1 if _fits(mine, left) and not _fits(mine, rest) else n)
    return tuple(found)


def _fits(need: tuple[int, ...], left: tuple[int, ...]) -> bool:
    return all(a <= b for a, b in zip(need, left, strict=True))
