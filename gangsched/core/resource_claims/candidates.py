"""Which devices each request of a claim may get on a node, whoever has them now.

What a search by core.resource_claims.search.allocator starts from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from gangsched.core.resource_claims.devices import ListedDevice, Pool
from gangsched.core.resource_claims.holdings import Holdings
from gangsched.core.resource_claims.requests import PreparedClaim, Request
from gangsched.core.resource_claims.selectors import Selectors
from gangsched.model.cel.values import SelectorError
from gangsched.model.resource_claims.amounts import CapacityError, Consumption, consumption
from gangsched.model.resource_claims.objects import MAX_RESULTS, DeviceTaint, DeviceTaintRule


class AllocationError(Exception):
    """What ends the search on a node."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class SelectorFailed(AllocationError):
    """A selector that fails on a device. It ends the attempt on all nodes alike, as Kubernetes' does: where
    what it reads is missing cannot be told from where it is wrong."""


class Cluster(NamedTuple):
    """What a search reads. rules: taints beside those that devices are listed with, by name."""

    holdings: Holdings
    selectors: Selectors
    rules: Mapping[str, DeviceTaintRule]

    def taints(self, device: ListedDevice) -> Iterable[DeviceTaint]:
        """Returns the device's taints, those by rules too."""
        if not self.rules:
            return device.taints
        by_rules = (
            one.spec.taint
            for one in self.rules.values()
            if one.spec.device_selector is not None and one.spec.device_selector.matches(device.id)
        )
        return (*device.taints, *by_rules)


class NodeOffer:
    """A node as claims see it: its pools in order, and which devices it reaches of those that say it each for
    themselves."""

    __slots__ = ("_common", "labels", "name", "pools")

    def __init__(self, pools: Sequence[Pool], name: str, labels: Mapping[str, str]) -> None:
        self.pools = pools
        self.name = name
        self.labels = labels
        self._common: tuple[tuple[ListedDevice, Pool], ...] | None = None

    @property
    def devices(self) -> tuple[tuple[ListedDevice, Pool], ...]:
        """The devices of its pools, those too that it does not reach; nothing of it is kept for each node, as
        all of them may reach a pool of thousands."""
        if self._common is not None:
            return self._common
        there = [pool.pairs for pool in self.pools if not pool.problem]
        return there[0] if len(there) == 1 else tuple(chain.from_iterable(there))

    def common(self, others: Sequence[NodeOffer]) -> NodeOffer:
        """Returns what this node and the others reach."""
        there = [{device.id for device, _ in one.devices if one.has(device)} for one in others]
        found = NodeOffer(self.pools, self.name, self.labels)
        found._common = tuple(
            (device, pool)
            for device, pool in self.devices
            if self.has(device) and all(device.id in ids for ids in there)
        )
        return found

    def has(self, device: ListedDevice) -> bool:
        """Whether the node reaches the device, one of its pools'."""
        return device.own_reach is None or device.own_reach.holds(self.name, self.labels)


class Candidate:
    """A device that a request may get. at: its position among its place's devices. taken: how much of each of
    its capacities. error: why trying it ends the search. is_tainted: of All alone, which fails on it."""

    __slots__ = ("at", "device", "error", "is_tainted", "pool", "taken")

    def __init__(self, at: int, device: ListedDevice, pool: Pool) -> None:
        self.at = at
        self.device = device
        self.pool = pool
        self.error: AllocationError | None = None
        self.is_tainted = False
        self.taken: dict[str, Consumption] = {}


class WantedDevices(NamedTuple):
    """A request with the devices that it may get, in order, and how many of them. constraints: those of its
    claim that it is in, by number."""

    request: Request
    candidates: list[Candidate]
    n: int
    constraints: tuple[int, ...]


def wanted(claim: PreparedClaim, place: NodeOffer, cluster: Cluster) -> list[list[WantedDevices]]:
    """Returns what a claim wants there: for each request its subrequests. Raises: AllocationError."""
    found = [[_wanted(claim, one, place, cluster) for one in each] for each in claim.choices]
    n_least = 0
    for each in found:
        n_least += min(one.n for one in each)
        if n_least > MAX_RESULTS:
            name = each[0].request.parent
            raise AllocationError(f"request {name}: more than {MAX_RESULTS} devices in one claim")
    return found


def _wanted(claim: PreparedClaim, request: Request, place: NodeOffer, cluster: Cluster) -> WantedDevices:
    if request.is_all:
        for pool in place.pools:
            if pool.problem:
                state = "being updated" if pool.is_incomplete else "invalid"
                raise AllocationError(
                    f"request {request.name}: asks for all devices, but resource pool {pool.id} is currently"
                    f" {state}: {pool.problem}"
                )
    candidates: list[Candidate] = []
    for at, (device, pool) in enumerate(place.devices):
        one = Candidate(at, device, pool)
        if _admits(request, one, place, cluster):
            candidates.append(one)
        if request.is_all and one.error is not None:
            raise one.error
    n = len(candidates) if request.is_all else request.count
    numbers = tuple(i for i, one in enumerate(claim.constraints) if one.concerns(request))
    return WantedDevices(request, candidates, n, numbers)


def _admits(request: Request, one: Candidate, place: NodeOffer, cluster: Cluster) -> bool:
    """Whether the request may get the device, or ends when it is tried."""
    device = one.device
    for number, expression in enumerate(request.selectors):
        verdict = cluster.selectors.verdict(expression, device)
        if verdict is False:
            return False
        if isinstance(verdict, SelectorError):
            one.error = SelectorFailed(_failed(request, number, device, verdict))
            return True
    if device.own_reach is not None and not place.has(device):
        if not device.own_reach.problem:
            return False
        one.error = AllocationError(f"device {device.id}: its node selector: {device.own_reach.problem}")
        return True
    try:
        taken = consumption(request.capacity, device.capacity)
    except CapacityError as error:
        one.error = AllocationError(
            f"request {request.name}: checking capacity for device {device.id}: {error}"
        )
        return True
    if taken is None:
        return False
    one.taken = taken
    one.is_tainted = any(not request.tolerates(taint) for taint in cluster.taints(device))
    return request.is_all or not one.is_tainted


def _failed(request: Request, number: int, device: ListedDevice, error: SelectorError) -> str:
    """Says which selector failed, and on which device."""
    if number < request.of_class:
        whose = f"class {request.device_class.metadata.name}: selector #{number}"
    else:
        whose = f"request {request.name}: selector #{number - request.of_class}"
    return f"{whose} on device {device.id}: CEL runtime error: {error}"
