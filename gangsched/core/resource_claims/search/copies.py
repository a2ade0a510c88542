"""Copies: how many pods find devices for claims of their own on a node, worked out once for all equal nodes.

Nodes are equal to a pod's claims if their devices are: the same answers of its selectors, values of the
attributes in its constraints, amounts, counters and taints, in the same order, and as much of it given out.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from gangsched.core.resource_claims.book import ClaimBook
from gangsched.core.resource_claims.candidates import (
    AllocationError,
    Cluster,
    NodeOffer,
    WantedDevices,
    wanted,
)
from gangsched.core.resource_claims.devices import ListedDevice, Pool
from gangsched.core.resource_claims.requests import PreparedClaim, Request
from gangsched.core.resource_claims.search.allocator import STEPS, Ask, Solution, allocate

Digests = tuple[str, ...]
"""Of the specs of one pod's own claims, in its order."""
MOST = 256
"""More pods than any node takes: claims whose devices can be shared without end limit nothing."""
_MAX_KEPT = 50_000


class CopyCount:
    """n: how many more pods find devices; reason: why none does. is_proved: that there are no more; else the
    search ended at its budget.
    """

    __slots__ = ("is_proved", "n", "reason")

    def __init__(self, n: int, *, is_proved: bool = True, reason: str = "") -> None:
        self.n = n
        self.is_proved = is_proved
        self.reason = reason


class Copies:
    """Counts copies, on nodes as they are and with pods placed there before. Raises: ClaimProblem."""

    def __init__(self, book: ClaimBook) -> None:
        self.book = book
        self._counts: dict[Hashable, CopyCount] = {}
        self._points: dict[Hashable, int] = {}
        self._edition = book.edition
        self._shapes: dict[Hashable, int] = {}
        self._cluster = book.cluster

    def count(
        self,
        offer: NodeOffer,
        digests: Digests,
        before: Sequence[tuple[Digests, int]],
        cluster: Cluster,
    ) -> CopyCount:
        """Counts how many more such pods the node takes, beside those placed `before`: (claims, pods).

        cluster: the devices that claims hold.
        """
        key = self._key(offer, digests, before, cluster)
        found = self._counts.get(key)
        if found is None:
            if len(self._counts) >= _MAX_KEPT:
                self._counts.clear()
            found = self._counts[key] = self._counted(offer, digests, before)
        return found

    def points(
        self,
        offer: NodeOffer,
        digests: Digests,
        before: Sequence[tuple[Digests, int]],
        cluster: Cluster,
    ) -> int:
        """Returns PreparedClaim.points of the next such pod there; 0 if it finds no devices."""
        key = self._key(offer, digests, before, cluster)
        found = self._points.get(key)
        if found is None:
            if len(self._points) >= _MAX_KEPT:
                self._points.clear()
            found = self._points[key] = self._points_of(offer, digests, before)
        return found

    def _points_of(self, offer: NodeOffer, digests: Digests, before: Sequence[tuple[Digests, int]]) -> int:
        try:
            chosen = self._solved(offer, (*before, (digests, 1))).chosen
        except AllocationError:
            return 0
        own = chosen[-len(digests) :] if chosen is not None else ()
        return sum(
            self.book.prepared(digest).points(one.request.name for one in devices)
            for digest, devices in zip(digests, own, strict=False)
        )

    def _key(
        self,
        offer: NodeOffer,
        digests: Digests,
        before: Sequence[tuple[Digests, int]],
        cluster: Cluster,
    ) -> Hashable:
        self._forget_former()
        self._cluster = cluster
        return (digests, tuple(before), self._kind(offer, (digests, *(one for one, _ in before))))

    def _forget_former(self) -> None:
        if self._edition != self.book.edition:
            self._edition = self.book.edition
            self._counts.clear()
            self._points.clear()
            self._shapes.clear()

    def _counted(
        self, offer: NodeOffer, digests: Digests, before: Sequence[tuple[Digests, int]]
    ) -> CopyCount:
        low, is_proved = 0, True
        try:
            high = self._bound(offer, [self.book.prepared(one) for one in digests])
        except AllocationError as error:
            return CopyCount(0, reason=error.reason)
        # The bound of whole devices is mostly reached; where devices are shared it says nothing.
        n = high if high < MOST else 1
        while low < high:
            try:
                solution = self._solved(offer, (*before, (digests, n)))
            except AllocationError as error:
                if n == 1:
                    return CopyCount(0, reason=error.reason)
                # A pod alone may do without the device that it is about.
                solution = Solution(None, is_proved=False)
            if solution.chosen is not None:
                low = n
            else:
                high, is_proved = n - 1, is_proved and solution.is_proved
            n = (low + high + 1) // 2 if high < MOST else min(2 * n, high)
        reason = "" if low else self._lack(offer, [self.book.prepared(one) for one in digests])
        return CopyCount(low, is_proved=is_proved, reason=reason)

    def _lack(self, offer: NodeOffer, claims: Sequence[PreparedClaim]) -> str:
        """Returns what the first request lacks that a pod alone cannot be served there; "" if each of them
        could be."""
        for each in (each for claim in claims for each in claim.choices):
            lacks = [self._lack_of(offer, one) for one in each]
            if all(lacks):
                return lacks[0]
        return ""

    def _lack_of(self, offer: NodeOffer, request: Request) -> str:
        verdict, cluster = self.book.selectors.verdict, self._cluster
        name = f"request {request.name} (class {request.device_class.metadata.name})"
        suiting = [
            device
            for device, _ in offer.devices
            if offer.has(device) and all(verdict(text, device) is True for text in request.selectors)
        ]
        n_wanted = max(len(suiting), 1) if request.is_all else request.count
        if len(suiting) < n_wanted:
            unusable = next((pool for pool in offer.pools if pool.problem), None)
            if unusable is not None:
                state = "being updated" if unusable.is_incomplete else "invalid"
                return f"node(s) whose pool of {unusable.id.driver} is {state} ({unusable.problem}): {name}"
            return f"node(s) without the devices for {name}"
        usable = [one for one in suiting if all(request.tolerates(taint) for taint in cluster.taints(one))]
        if len(usable) < n_wanted:
            return f"node(s) with tainted devices for {name}"
        free = [one for one in usable if one.id not in cluster.holdings.whole]
        if len(free) < n_wanted and not request.admin_access:
            return f"node(s) whose devices for {name} are in use"
        return ""

    def _solved(self, offer: NodeOffer, pods: Sequence[tuple[Digests, int]]) -> Solution:
        asks: list[Ask] = []
        pod = 0
        for digests, n in pods:
            claims = [self.book.prepared(one) for one in digests]
            for i in range(n):
                for at, claim in enumerate(claims):
                    like = len(asks) - len(claims) if i and not at else -1
                    asks.append(Ask(claim, offer, pod, like))
                pod += 1
        return allocate(asks, self._cluster, steps=STEPS)

    def _bound(self, offer: NodeOffer, claims: Iterable[PreparedClaim]) -> int:
        """Returns a number that cannot be exceeded: by the devices that are free for each request.

        Raises: AllocationError.
        """
        most = MOST
        for claim in claims:
            for each in wanted(claim, offer, self._cluster):
                most = min(most, max(self._bound_of(one) for one in each))
        return most

    def _bound_of(self, want: WantedDevices) -> int:
        if want.request.admin_access:
            return MOST
        whole, n_free = self._cluster.holdings.whole, 0
        for one in want.candidates:
            if one.device.shareable:
                return MOST
            n_free += one.device.id not in whole
        if want.request.is_all:
            return 1 if n_free == want.n else 0
        return n_free // want.n

    # -- kinds of nodes --------------------------------------------------------------------------------

    def _kind(self, offer: NodeOffer, kinds: tuple[Digests, ...]) -> Hashable:
        claims = tuple(dict.fromkeys(digest for digests in kinds for digest in digests))
        return tuple((self._shape(offer, pool, claims), self._given(pool)) for pool in offer.pools)

    def _shape(self, offer: NodeOffer, pool: Pool, digests: Digests) -> int:
        """Returns a number that is equal for pools whose devices are equal to these claims."""
        kept = None if pool.is_by_device else pool.shapes.get(digests)
        if kept is not None and kept[0] == self._edition:
            return kept[1]
        shape: Hashable = (pool.problem, pool.is_incomplete)
        if not pool.problem:
            prepared = [self.book.prepared(one) for one in digests]
            texts = [text for claim in prepared for one in claim.requests for text in one.selectors]
            names = [one.attribute for claim in prepared for one in claim.constraints]
            devices = tuple(self._device(offer, device, texts, names) for device in pool.devices)
            shape = (tuple(sorted(pool.counters.items())), devices)
        number = self._shapes.setdefault(shape, len(self._shapes))
        if not pool.is_by_device:
            pool.shapes[digests] = (self._edition, number)
        return number

    def _device(
        self, offer: NodeOffer, device: ListedDevice, selectors: Sequence[str], attributes: Sequence[str]
    ) -> Hashable:
        book = self.book
        verdicts = [book.selectors.verdict(text, device) for text in selectors]
        answers = tuple(one if one is True or one is False else str(one) for one in verdicts)
        values = tuple([device.value(name) for name in attributes])
        capacity: Hashable = ()
        if device.capacity:
            capacity = tuple(sorted((name, repr(one)) for name, one in device.capacity.items()))
        taints = tuple(book.cluster.taints(device))
        return (answers, values, capacity, device.counters, taints, device.shareable, offer.has(device))

    def _given(self, pool: Pool) -> Hashable:
        """Returns what is given out of the pool."""
        held = self._cluster.holdings
        given: list[Hashable] = []
        for at, device in enumerate(pool.devices):
            if device.id in held.whole:
                given.append(at)
            if device.id in held.shared:
                given.append((at, tuple(sorted(held.given(device.id).items()))))
        if len(pool.consumers) > len(pool.devices) or (pool.counters and given):
            given.append(tuple(held.counters_left(pool).values()))
        return tuple(given)
