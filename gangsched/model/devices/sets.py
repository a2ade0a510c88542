"""Sets of devices that satisfy a constraint: how many disjoint ones exist, and which to take.

A set that satisfies a constraint is a clique in a graph over the node's devices: two are joined if the
constraint allows them in one set. The number of disjoint cliques of k devices is exact within the search's
budget; beyond it the answer is the most found so far, and is marked inexact. Called by
plugins.resources.devices (how many) and core.cycle.device_allocation (which).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from gangsched.model.devices.constraints import ANY, DeviceConstraint
from gangsched.model.devices.links import DeviceTopology, bits_of

# Devices examined in one search: some tens of milliseconds. A node of eight takes a few hundred.
_BUDGET = 30_000
# If there are more sets, only the first this many are compared.
_MAX_COMPARED = 2_000
_MAX_KEPT = 20_000
# Where wishes compete, each set tried costs a search for the next wish and a count for each wish: a fraction
# of a millisecond for this many devices, growing with the square of their number.
_CHEAP = 8
_MAX_TOGETHER = 2_000
_TOGETHER = "together"


class Packing(NamedTuple):
    """Disjoint sets, as masks; not `exact`: the search ended before it ruled out more sets."""

    sets: tuple[int, ...]
    exact: bool = True


class Most(NamedTuple):
    """Like Packing, but only the number of sets."""

    n: int
    exact: bool = True


class SearchBudget:
    """Counts steps down; `is_spent` once more steps were taken than available."""

    __slots__ = ("left",)

    def __init__(self, steps: int) -> None:
        self.left = steps

    @property
    def is_spent(self) -> bool:
        return self.left < 0

    def spend(self, steps: int = 1) -> bool:
        """Takes steps; returns whether that many were left."""
        self.left -= steps
        return self.left >= 0


class DeviceSets:
    """The sets that one constraint allows on nodes of one topology. Masks are by device index.

    near[i]: the devices that may share a set with i. parts: the masks of the cliques if the graph is a union
    of them (NUMA nodes; all linked with all), so that counting is arithmetic.
    """

    __slots__ = ("_best", "_packed", "eligible", "near", "parts", "topology")

    def __init__(self, topology: DeviceTopology, constraint: DeviceConstraint) -> None:
        n = len(topology.numa)
        self.topology = topology
        self.eligible = sum(
            1 << i for i in range(n) if constraint.admits(topology.models[i], topology.memory_mib[i])
        )
        self.near = [0] * n
        self.parts: tuple[int, ...] | None = None
        homes = _homes(topology, self.eligible) if constraint.same_numa else (self.eligible,)
        for home in homes:
            for i in bits_of(home):
                weight, far = topology.weight[i], constraint.link_weight
                if not far:
                    self.near[i] = home & ~(1 << i)
                elif not topology.is_flat:
                    self.near[i] = sum(1 << j for j in bits_of(home) if j != i and weight[j] >= far)
        self.parts = self._cliques_apart() if constraint.link_weight else homes
        self._packed: dict[tuple[int, int], Packing] = {}
        self._best: dict[tuple[int, int, int], int] = {}

    def most(self, free: int, count: int) -> Most:
        """Returns how many disjoint sets of `count` exist among the devices `free`."""
        free &= self.eligible
        if count <= 1:
            return Most(free.bit_count())
        if self.parts is not None:
            return Most(sum((free & part).bit_count() // count for part in self.parts))
        packing = self.packed(free, count)
        return Most(len(packing.sets), packing.exact)

    def packed(self, free: int, count: int) -> Packing:
        """Returns as many disjoint sets as exist, without preferring well-linked ones; `best` does that."""
        free &= self.eligible
        if count <= 1:
            return Packing(tuple(1 << i for i in bits_of(free)))
        found = self._packed.get((free, count))
        if found is None:
            budget = SearchBudget(_BUDGET)
            sets = self._pack(free, count, budget, {})
            if budget.is_spent:
                sets = max(sets, self._greedily(free, count), key=len)
            if len(self._packed) > _MAX_KEPT:
                self._packed.clear()
            exact = not budget.is_spent or len(sets) == free.bit_count() // count
            found = self._packed[free, count] = Packing(sets, exact)
        return found

    def best(self, free: int, count: int, *, leaving: int = 0) -> int:
        """Returns the set to take, as a mask, that leaves at least `leaving` more sets; 0: none was found.

        The best-linked first, as in DeviceTopology.best_set.
        """
        key = (free, count, leaving)
        found = self._best.get(key)
        if found is None:
            if len(self._best) > _MAX_KEPT:
                self._best.clear()
            found = self._best[key] = self._search(free, count, leaving)
        return found

    def choose(self, free: int, count: int, n: int) -> list[int]:
        """Returns sets for n equal pods, each the best that leaves enough for the rest; fewer if need be."""
        if self.parts is not None and self.topology.is_flat and self.most(free, count).n >= n:
            rooms = sum(part for part in self.parts if (free & part).bit_count() >= count)
            return list(self.topology.best_sets(free & rooms, count, n))
        chosen: list[int] = []
        left = free
        while len(chosen) < n:
            one = self.best(left, count, leaving=n - len(chosen) - 1)
            if not one:  # rare: a search has given up, or n is too large
                return max(chosen, list(self.packed(free, count).sets[:n]), key=len)
            chosen.append(one)
            left &= ~one
        return chosen

    def sets(self, free: int, count: int) -> tuple[list[int], bool]:
        """Returns (sets of `count` among `free`, best first; whether they are all the sets)."""
        indices = list(bits_of(free))
        budget = SearchBudget(_BUDGET)
        found = list(islice(self._cliques(free & self.eligible, count, budget), _MAX_COMPARED))
        quality = self.topology.quality(indices)
        found.sort(key=lambda one: quality(bits_of(one)), reverse=True)
        return found, len(found) < _MAX_COMPARED and not budget.is_spent

    def _search(self, free: int, count: int, leaving: int) -> int:
        if self.parts is not None:
            # Any set within one part costs that part one set: the other sets certainly remain.
            if self.most(free, count).n <= leaving:
                return 0
            indices = list(bits_of(free))
            rooms = [free & part for part in self.parts if (free & part).bit_count() >= count]
            offers = [self.topology.best_set(room, count) for room in rooms]
            quality = self.topology.quality(indices)
            return max(offers, key=lambda one: quality(bits_of(one)), default=0)
        for one in self.sets(free, count)[0]:
            if not leaving or self.most(free & ~one, count).n >= leaving:
                return one
        return 0

    def _cliques_apart(self) -> tuple[int, ...] | None:
        parts: list[int] = []
        left = self.eligible
        while left:
            i = left.bit_length() - 1
            part = self.near[i] | 1 << i
            if any(self.near[j] | 1 << j != part for j in bits_of(part)):
                return None
            parts.append(part)
            left &= ~part
        return tuple(parts)

    def _cliques(self, among: int, count: int, budget: SearchBudget) -> Iterator[int]:
        """Yields each clique of `count` once, lowest device first; ends early when the budget is spent."""
        if count == 0:
            yield 0
            return
        for i in bits_of(among):
            if not budget.spend():
                return
            higher = among & self.near[i] & -(1 << i + 1)
            if higher.bit_count() >= count - 1:
                for rest in self._cliques(higher, count - 1, budget):
                    yield rest | 1 << i

    def _pack(
        self, free: int, count: int, budget: SearchBudget, known: dict[int, tuple[int, ...]]
    ) -> tuple[int, ...]:
        """Returns as many disjoint cliques in `free` as possible; without budget left, those found so far."""
        free = self._pruned(free, count)
        n_free = free.bit_count()
        if n_free < count:
            return ()
        found = known.get(free)
        if found is not None:
            return found
        if not budget.spend(n_free):
            return ()
        part = self._component(free)
        if part != free:
            found = (
                *self._pack(part, count, budget, known),
                *self._pack(free & ~part, count, budget, known),
            )
        else:
            found = self._pack_connected(free, count, budget, known)
        known[free] = found
        return found

    def _pack_connected(
        self, free: int, count: int, budget: SearchBudget, known: dict[int, tuple[int, ...]]
    ) -> tuple[int, ...]:
        bound = free.bit_count() // count
        i = min(bits_of(free), key=lambda j: ((self.near[j] & free).bit_count(), j))
        most: tuple[int, ...] = ()
        for rest in self._cliques(self.near[i] & free, count - 1, budget):
            one = rest | 1 << i
            most = max(most, (one, *self._pack(free & ~one, count, budget, known)), key=len)
            if len(most) >= bound or budget.is_spent:
                return most
        return max(most, self._pack(free & ~(1 << i), count, budget, known), key=len)

    def _greedily(self, free: int, count: int) -> tuple[int, ...]:
        found: list[int] = []
        while one := next(self._cliques(free, count, SearchBudget(_BUDGET)), 0):
            found.append(one)
            free &= ~one
        return tuple(found)

    def _pruned(self, free: int, count: int) -> int:
        """Removes devices with too few near devices left to be in any set."""
        while True:
            alone = sum(1 << i for i in bits_of(free) if (self.near[i] & free).bit_count() < count - 1)
            if not alone:
                return free
            free &= ~alone

    def _component(self, free: int) -> int:
        part = fresh = free & -free
        while fresh:
            reached = 0
            for i in bits_of(fresh):
                reached |= self.near[i] & free
            fresh = reached & ~part
            part |= fresh
        return part


def sets_of(topology: DeviceTopology, constraint: DeviceConstraint = ANY) -> DeviceSets:
    """Returns the sets, cached by arguments; nodes of one type share them."""
    found: DeviceSets | None = topology.kept.get(constraint)
    if found is None:
        if len(topology.kept) > 1_000:  # users write constraints; forged ones must not accumulate
            topology.kept.clear()
        found = topology.kept[constraint] = DeviceSets(topology, constraint)
    return found


class Wish(NamedTuple):
    """`n_pods` pods that each request `n_devices` from these sets."""

    sets: DeviceSets
    n_devices: int
    n_pods: int


def pack_together(free: int, wishes: Sequence[Wish]) -> tuple[list[list[int]] | None, bool]:
    """Returns disjoint sets for all pods of all wishes: (masks by wish or None, exact).

    None and exact: no assignment exists; None and not exact: none was found within the budget. The result is
    cached by arguments for equal nodes and further attempts: do not change it.
    """
    kept = wishes[0].sets.topology.kept.setdefault(_TOGETHER, {})
    key = (free, tuple(wishes))
    if key not in kept:
        if len(kept) >= _MAX_TOGETHER:
            kept.clear()
        kept[key] = _pack_together(free, wishes)
    found: tuple[list[list[int]] | None, bool] = kept[key]
    return found


def _pack_together(free: int, wishes: Sequence[Wish]) -> tuple[list[list[int]] | None, bool]:
    budget = SearchBudget(_BUDGET // max(1, free.bit_count() ** 2 // _CHEAP**2))
    taken: list[list[int]] = [[] for _ in wishes]
    # The wish with the fewest sets chooses first.
    order = sorted(
        range(len(wishes)),
        key=lambda i: (wishes[i].sets.most(free, wishes[i].n_devices).n - wishes[i].n_pods, i),
    )
    exact = _place_wishes(free, wishes, order, taken, budget)
    if exact is None:
        return taken, True
    return None, exact


def _place_wishes(
    free: int, wishes: Sequence[Wish], order: Sequence[int], taken: list[list[int]], budget: SearchBudget
) -> bool | None:
    """Fills `taken` and returns None; on failure, returns whether it is certain that none exists."""
    left = [i for i in order if len(taken[i]) < wishes[i].n_pods]
    if not left:
        return None
    certain = True
    for i in left:
        most = wishes[i].sets.most(free, wishes[i].n_devices)
        if most.n < wishes[i].n_pods - len(taken[i]):
            return most.exact
        certain = certain and most.exact
    i = left[0]
    wish = wishes[i]
    if len(left) == 1:
        return _place_alike(free, wish, taken[i])
    last = taken[i][-1] if taken[i] else None
    candidates, is_all = wish.sets.sets(free, wish.n_devices)
    certain = certain and is_all
    for one in candidates:
        # Equal pods are interchangeable: try each combination of their sets once.
        if last is not None and one > last:
            continue
        if not budget.spend(free.bit_count()):
            return False
        taken[i].append(one)
        answer = _place_wishes(free & ~one, wishes, order, taken, budget)
        if answer is None:
            return None
        taken[i].pop()
        certain = certain and answer
    return certain


def _place_alike(free: int, wish: Wish, taken: list[int]) -> bool | None:
    """Places the last wish, which has the node to itself now; `most` has confirmed that there is room."""
    chosen = wish.sets.choose(free, wish.n_devices, wish.n_pods - len(taken))
    if len(chosen) < wish.n_pods - len(taken):
        return False
    taken += chosen
    return None


def _homes(topology: DeviceTopology, eligible: int) -> tuple[int, ...]:
    """Returns the devices of each NUMA node; a device of unknown node forms a mask by itself."""
    by_node: dict[tuple[int, int], int] = {}
    for i in bits_of(eligible):
        numa = topology.numa[i]
        key = (numa, -1) if numa >= 0 else (-1, i)
        by_node[key] = by_node.get(key, 0) | 1 << i
    return tuple(by_node.values())
