"""Sets of devices that satisfy a constraint: how many disjoint ones exist, and which to take.

A set that satisfies a constraint is a clique in a graph over the node's devices: two are joined if the
constraint allows them in one set. The number of disjoint cliques of k devices is exact within the search's
budget; beyond it the answer is the most found so far, and is marked inexact. Called by plugins.devices (how
many) and core.cycle.device_allocation (which).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from gangsched.model.device_constraints import ANY, DeviceConstraint
from gangsched.model.device_topology import DeviceTopology, bits_of

# Devices examined in one search: some tens of milliseconds. A node of eight takes a few hundred.
_BUDGET = 30_000
# If there are more sets, only the first this many are compared.
_MAX_COMPARED = 2_000
_MAX_KEPT = 20_000
# Where wishes compete, each set that is tried costs a search for the next wish and a count for each: a
# fraction of a millisecond for this many devices, and the square as much more for more.
_CHEAP = 8
_MAX_TOGETHER = 2_000
_TOGETHER = "together"


class Packing(NamedTuple):
    """Disjoint sets, as masks; not `exact`: the search ended before it had ruled out more."""

    sets: tuple[int, ...]
    exact: bool = True


class Most(NamedTuple):
    """As Packing, where only the number matters."""

    n: int
    exact: bool = True


class SearchBudget:
    """Counts steps down; `is_spent` once more was requested than available."""

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

    near[i]: the devices that may share a set with i. parts: if the graph is a union of cliques (NUMA nodes;
    all linked with all), their masks: then counting is arithmetic.
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
        """How many disjoint sets of `count` there are among the devices `free`."""
        free &= self.eligible
        if count <= 1:
            return Most(free.bit_count())
        if self.parts is not None:
            return Most(sum((free & part).bit_count() // count for part in self.parts))
        packing = self.packed(free, count)
        return Most(len(packing.sets), packing.exact)

    def packed(self, free: int, count: int) -> Packing:
        """As many disjoint sets as exist, in no preference; `best` is for the good ones."""
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
        """The set to take, as a mask, that leaves at least `leaving` more; 0: none was found.

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
        """The sets of n equal pods, each the best one that leaves enough for the others; fewer: no more."""
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
        """(sets of `count` among `free`, the best first; whether that is all of them)."""
        indices = list(bits_of(free))
        budget = SearchBudget(_BUDGET)
        found = list(islice(self._cliques(free & self.eligible, count, budget), _MAX_COMPARED))
        quality = self.topology.quality(indices)
        found.sort(key=lambda one: quality(bits_of(one)), reverse=True)
        return found, len(found) < _MAX_COMPARED and not budget.is_spent

    def _search(self, free: int, count: int, leaving: int) -> int:
        if self.parts is not None:
            # A set within one part costs that part one set, whichever it is: the others certainly remain.
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
        """Each clique of `count` once, by its lowest device first; ends early when the budget is spent."""
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
        """The most disjoint cliques among `free`; with the budget spent, those that were found."""
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
        """Without devices that have too few near ones left to be in any set."""
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
    """Cached by arguments; nodes of one type share it."""
    found: DeviceSets | None = topology.kept.get(constraint)
    if found is None:
        if len(topology.kept) > 1_000:  # users write constraints; forged ones must not accumulate
            topology.kept.clear()
        found = topology.kept[constraint] = DeviceSets(topology, constraint)
    return found


class Wish(NamedTuple):
    """`n_pods` that ask for `n_devices` each, of these sets."""

    sets: DeviceSets
    n_devices: int
    n_pods: int


def pack_together(free: int, wishes: Sequence[Wish]) -> tuple[list[list[int]] | None, bool]:
    """Disjoint sets for all pods of all wishes: (masks by wish, or None, exact).

    None and exact: there is no such assignment; None and not exact: none was found within the budget. Cached
    by arguments, for equal nodes and further attempts: not to be changed.
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
    """None: done, `taken` is the answer; else whether it is certain that there is none."""
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
        # Equal pods are interchangeable: each combination of their sets is tried once.
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
    """The last wish: it has the node to itself now, and `most` has confirmed that there is room."""
    chosen = wish.sets.choose(free, wish.n_devices, wish.n_pods - len(taken))
    if len(chosen) < wish.n_pods - len(taken):
        return False
    taken += chosen
    return None


def _homes(topology: DeviceTopology, eligible: int) -> tuple[int, ...]:
    """The devices of each NUMA node; those with an unknown node are in none."""
    by_node: dict[tuple[int, int], int] = {}
    for i in bits_of(eligible):
        numa = topology.numa[i]
        key = (numa, -1) if numa >= 0 else (-1, i)
        by_node[key] = by_node.get(key, 0) | 1 << i
    return tuple(by_node.values())
