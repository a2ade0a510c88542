"""How the devices of a node are linked, and the best set to take from the free ones.

Nodes of one type have the same wiring and share one DeviceTopology, so its results are cached. Called by
model.devices.annotations, which reads inventories, and by all code that chooses devices.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import combinations
from math import comb
from typing import Any

# Source for the order: the legend of `nvidia-smi topo -m`, from the farthest path to the nearest.
_LINK_WEIGHT = {"SYS": 1, "NODE": 5, "PHB": 10, "PXB": 15, "PIX": 20}
_NVLINK = re.compile(r"NV(\d{1,3})")
_NVLINK_BASE_WEIGHT = 100
_SAME_NUMA_WEIGHT = 5
LINK_KINDS = tuple(reversed(_LINK_WEIGHT))
"""Kinds of path without NVLink, nearest first."""
# Every pair of linked devices has a weight: 4,096 would take six seconds and 130 MiB for one node.
MAX_LINKED = 256
# Limit on the pairs of all cached topologies together, some tens of MiB.
_MAX_PAIRS = 4 * 2**20
# Above this many candidate sets, or members of all sets together, a greedy search replaces the exact one. 8
# devices never reach it, and linked devices never reach the second limit.
_EXACT_SETS = 5000
_EXACT_MEMBERS = 500_000
# If there are more than MAX_LINKED devices and they list more NUMA nodes than this, all their nodes are taken
# as unknown.
_MAX_NUMA_NODES = 64
# Bounds memory; recomputing takes microseconds a set.
_MAX_REMEMBERED = 20_000


Quality = tuple[int, int, int, tuple[int, ...]]


class DeviceTopology:
    """How n devices are linked, by index; nodes of one type share one, so choices can be cached.

    Shapes: weight int[n][n], symmetric, larger is nearer; numa int[n], -1 unknown; models and memory_mib of
    length n, "" and 0 unknown. kept: results that other modules computed from this (model.devices.sets).
    is_flat: all weights are 0, since no links are known or there are more devices than MAX_LINKED.
    """

    __slots__ = ("_best", "_best_of", "is_flat", "kept", "memory_mib", "models", "numa", "weight")

    def __init__(
        self,
        weight: tuple[tuple[int, ...], ...],
        numa: tuple[int, ...],
        models: tuple[str, ...] = (),
        memory_mib: tuple[int, ...] = (),
    ) -> None:
        self.weight = weight
        self.is_flat = not any(map(any, dict.fromkeys(weight)))
        self.numa = numa
        self.models = models or ("",) * len(numa)
        self.memory_mib = memory_mib or (0,) * len(numa)
        self._best: dict[tuple[int, int], int] = {}
        self._best_of: dict[tuple[int, int, int], tuple[int, ...]] = {}
        self.kept: dict[Hashable, Any] = {}

    def best_set(self, free: int, count: int) -> int:
        """Returns the `count` devices to take from the bit mask `free`, as a bit mask.

        Best linked first, then on the fewest NUMA nodes, then leaving the best-linked rest, then the lowest
        indices. Exact up to 5,000 candidate sets, greedy beyond. Raises: ValueError when fewer than `count`
        are free (the caller has checked).
        """
        found = self._best.get((free, count))
        if found is None:
            found = self._search(free, count)
            if len(self._best) > _MAX_REMEMBERED:
                self._best.clear()
            self._best[free, count] = found
        return found

    def best_sets(self, free: int, count: int, n: int) -> tuple[int, ...]:
        """Returns n sets, each the `best_set` of what the previous ones left."""
        found = self._best_of.get((free, count, n))
        if found is None:
            sets = self._of_single_homes(free, count, n) if self.is_flat else []
            left = free & ~sum(sets)
            while len(sets) < n:
                sets.append(self.best_set(left, count))
                left ^= sets[-1]
            found = tuple(sets)
            if len(self._best_of) > _MAX_REMEMBERED:
                self._best_of.clear()
            self._best_of[free, count, n] = found
        return found

    def _search(self, free: int, count: int) -> int:
        indices = list(bits_of(free))
        if count > len(indices):
            raise ValueError(f"{count} devices asked for, {len(indices)} free")
        if self.is_flat and (homes := self._of_single_homes(free, count, 1)):
            return homes[0]
        chosen: tuple[int, ...]
        n_sets = comb(len(indices), count)
        if n_sets <= _EXACT_SETS and n_sets * count <= _EXACT_MEMBERS:
            chosen = max(combinations(indices, count), key=self.quality(indices))
        elif self.is_flat:
            largest = sorted(self._homes(indices), key=lambda home: (-len(home), home[0]))
            chosen = tuple([i for home in largest for i in home][:count])
        else:
            chosen = self._greedy(indices, count)
        return sum(1 << i for i in chosen)

    def _homes(self, indices: Iterable[int]) -> list[list[int]]:
        """These devices by NUMA node."""
        homes: dict[int, list[int]] = {}
        for i in indices:
            homes.setdefault(self.numa[i], []).append(i)
        return list(homes.values())

    def _of_single_homes(self, free: int, count: int, n: int) -> list[int]:
        """Returns the best n sets if nothing is linked, while one NUMA node has room for a whole set."""
        homes = [home for home in self._homes(bits_of(free)) if len(home) >= count]
        first = [(home[0], k, 0) for k, home in enumerate(homes)]
        heapify(first)
        sets: list[int] = []
        while first and len(sets) < n:
            _, k, at = heappop(first)
            sets.append(sum(1 << i for i in homes[k][at : at + count]))
            if len(homes[k]) - at >= 2 * count:
                heappush(first, (homes[k][at + count], k, at + count))
        return sets

    def quality(self, free: Sequence[int]) -> Callable[[Iterable[int]], Quality]:
        """Returns the key that `best_set` maximizes among these devices, by the indices of a set.

        Rating the rest costs as much as the smaller of set and rest, as it is derived from each device's
        total.
        """
        near = {} if self.is_flat else {i: sum(map(self.weight[i].__getitem__, free)) for i in free}
        whole = sum(near.values()) // 2

        def key(chosen: Iterable[int]) -> Quality:
            taken = tuple(chosen)
            span = len({self.numa[i] for i in taken})
            order = tuple(-i for i in taken)
            if not near:
                return 0, -span, 0, order
            if 2 * len(taken) <= len(near):
                inside = self._inside(taken)
                return inside, -span, whole - sum(map(near.__getitem__, taken)) + inside, order
            among = frozenset(taken)
            rest = [i for i in free if i not in among]
            outside = self._inside(rest)
            return whole - sum(map(near.__getitem__, rest)) + outside, -span, outside, order

        return key

    def _inside(self, chosen: Sequence[int]) -> int:
        return sum(self.weight[a][b] for k, a in enumerate(chosen) for b in chosen[k + 1 :])

    def _greedy(self, indices: list[int], count: int) -> tuple[int, ...]:
        degree = {i: sum(self.weight[i][j] for j in indices) for i in indices}
        chosen = [max(indices, key=lambda i: (degree[i], -i))]
        pull = {i: self.weight[i][chosen[0]] for i in indices if i != chosen[0]}
        while len(chosen) < count:
            nearest = max(pull, key=lambda i: (pull[i], -i))
            del pull[nearest]
            chosen.append(nearest)
            for i in pull:
                pull[i] += self.weight[i][nearest]
        return tuple(sorted(chosen))


def bits_of(mask: int) -> Iterator[int]:
    """The indices of the bits that are set, the lowest first."""
    return (i for i, bit in enumerate(reversed(f"{mask:b}")) if bit == "1")


Wiring = tuple[tuple[int, tuple[tuple[int, str], ...], str, int], ...]
"""By index: NUMA node, (index, kind of path) of its links, model, memory in MiB."""
_topologies: dict[Wiring, DeviceTopology] = {}


def topology_of(wiring: Wiring) -> DeviceTopology:
    """Returns the topology of a wiring, computed once: nodes of one type differ only in IDs."""
    found = _topologies.get(wiring)
    if found is None:
        # A cluster has a handful of node types; forged wirings must not accumulate.
        if sum(map(_n_pairs, _topologies)) > _MAX_PAIRS or len(_topologies) > 10_000:
            _topologies.clear()
        found = _topologies[wiring] = DeviceTopology(
            _weights(wiring),
            _numa_nodes(wiring),
            tuple(one[2] for one in wiring),
            tuple(one[3] for one in wiring),
        )
    return found


def _n_pairs(wiring: Wiring) -> int:
    return len(wiring) ** 2 if len(wiring) <= MAX_LINKED else len(wiring)


def _numa_nodes(wiring: Wiring) -> tuple[int, ...]:
    found = tuple(one[0] for one in wiring)
    is_forged = len(wiring) > MAX_LINKED and len(set(found)) > _MAX_NUMA_NODES
    return (-1,) * len(wiring) if is_forged else found


def _weights(wiring: Wiring) -> tuple[tuple[int, ...], ...]:
    if len(wiring) > MAX_LINKED or all(one[0] < 0 and not one[1] for one in wiring):
        return ((0,) * len(wiring),) * len(wiring)
    numa = [one[0] for one in wiring]
    weight = [[_SAME_NUMA_WEIGHT if a == b and a >= 0 else 0 for b in numa] for a in numa]
    for i, (_, links, _, _) in enumerate(wiring):
        for j, kind in links:
            if j >= 0:
                weight[i][j] = weight[j][i] = max(weight[i][j], weight[j][i], link_weight(kind))
    for i in range(len(wiring)):
        weight[i][i] = 0
    return tuple(map(tuple, weight))


def link_weight(kind: str) -> int:
    """Returns how near two devices are: NV18 above NV4 above PIX above SYS; an unknown name counts as SYS."""
    match = _NVLINK.fullmatch(kind)
    if match:
        return _NVLINK_BASE_WEIGHT + int(match.group(1))
    return _LINK_WEIGHT.get(kind, _LINK_WEIGHT["SYS"])


def is_link_kind(kind: str) -> bool:
    """Whether `nvidia-smi topo -m` uses this name."""
    return kind in _LINK_WEIGHT or _NVLINK.fullmatch(kind) is not None
