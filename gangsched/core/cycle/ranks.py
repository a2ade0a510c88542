"""Ranks along the fabric: equal members change places, so that neighbours by index are near each other.

Once a Plan is found its places stay as they are: node, devices and ports belong to the place, and only which
of some equal members gets it is decided here, without a search. Places are sorted depth first through the
labels that the gang names in its topology (else topologyKey), domains and nodes in the natural order of
names. So each domain is left once, which no order can better: the distances of neighbours add up to the
number of domains used, less one, of each label. The order is that of names, not the one in which domains were
taken: a process that completes what another has begun, and members by which a gang grows, follow it too.

Called by core.cycle.cycle (who gets which place), core.binding (who gets which rank) and by those that tell
people. Not here: reading an index (model.stated.index). Source of the idea: Slurm, which numbers tasks in the
order of the topology.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from functools import lru_cache
from itertools import groupby, pairwise
from operator import attrgetter, itemgetter, ne
from typing import NamedTuple

from gangsched.core.cache.cluster_view import ClusterView
from gangsched.core.framework.plan import Plan
from gangsched.core.framework.profile import Demand
from gangsched.core.types.group import NO_ROW, Group, PodInfo
from gangsched.core.types.placement import Placement
from gangsched.model.stated.index import Index
from gangsched.model.text.natural import Natural, natural

# Roles that come before the others of their gang.
_LEADING = frozenset(("master", "leader", "launcher", "driver", "head", "chief"))
_FIRST, _OTHER, _NONE = 0, 1, 2

_Domain = tuple[int, Natural]
Place = tuple[_Domain, ...]
"""A node's domain of each label, the widest first, and the node: the order of places, and how far apart two
of them are."""


class Fabric:
    """The order of a gang's places. first: the row of a node whose domains come before all others."""

    def __init__(self, view: ClusterView, group: Group, topology_key: str, first: int = NO_ROW) -> None:
        topology = () if group.definition is None else group.definition.topology
        self._keys = tuple([level.key for level in topology]) or (topology_key,)
        self._view = view
        self._known: dict[int, Place] = view.noted(self._keys)
        self._first: Place = ()
        if first != NO_ROW:
            self._first = self.at(first)

    def at(self, row: int) -> Place:
        """Returns a node's place."""
        place = self._known.get(row)
        if place is None:
            node = self._view.node(row)
            labels = (node.metadata.labels if node is not None else None) or {}
            levels = [_domain(labels.get(key)) for key in self._keys]
            place = self._known[row] = (*levels, (_OTHER, natural(self._view.name(row))))
        return _led(place, self._first) if self._first else place

    def along(self, rows: Sequence[int]) -> list[Place]:
        """Returns the place of each."""
        if self._first:
            return [self.at(row) for row in rows]
        known = self._known
        return [known[row] if row in known else self.at(row) for row in rows]


# Equal domains are one object: those are compared at once.
@lru_cache(maxsize=8_192)
def _domain(value: str | None) -> _Domain:
    return (_NONE, ()) if value is None else (_OTHER, natural(value))


def _led(place: Place, first: Place) -> Place:
    """The place, with those of its domains that are the first ones' before all others."""
    n = len(place) - max(_distance(place, first), 1)
    return (*((_FIRST, name) for _, name in place[:n]), *place[n:])


class Walk(NamedTuple):
    """The way from rank to rank: the sum of the neighbours' distances, and the least that their places allow.
    A distance is the number of labels whose domain changes, and one more if the node does.
    """

    total: int
    least: int


class _Kind(NamedTuple):
    """Equal members of one group, those that have an index before the others and by it, and the positions of
    their placements in the plan."""

    leaf: _Leaf
    n_indexed: int
    members: Sequence[PodInfo]
    ats: Sequence[int]


def lay_along(demands: Sequence[Demand], plan: Plan, view: ClusterView, topology_key: str) -> None:
    """Lets equal members of the plan change places, so that those with an index lie in its order.

    Only members of one template and role are equal: a place also carries devices, ports, and what volumes and
    claims allow. If not all equal members have a place, those with the lowest indexes get one.
    """
    placements = plan.placements
    if len(placements) < 2:
        return
    if len(demands) == 1:
        _lay(demands[0], placements, range(len(placements)), view, topology_key)
        return
    mine: dict[Group | None, list[int]] = {}
    for at, one in enumerate(placements):
        mine.setdefault(one.info.group, []).append(at)
    for demand in demands:
        if demand.group in mine:
            _lay(demand, placements, mine[demand.group], view, topology_key)


def _lay(
    demand: Demand, placements: list[Placement], mine: Sequence[int], view: ClusterView, topology_key: str
) -> None:
    group, first = demand.group, NO_ROW
    kinds = _kinds(demand, placements, mine)
    if not any(kind.n_indexed for kind in kinds):
        return
    if len(kinds) > 1 or group.n_of_role:
        first = next((info.row for info in group.members.values() if info.rank == 0), NO_ROW)
        if first == NO_ROW:
            leading = min(kinds, key=lambda one: (one.leaf, one.members[0].index or ()))
            first = min((placements[at].row for at in leading.ats), key=Fabric(view, group, topology_key).at)
    places = Fabric(view, group, topology_key, first)
    for kind in kinds:
        if kind.n_indexed:
            _give(kind, placements, places)


def _kinds(demand: Demand, placements: Sequence[Placement], mine: Sequence[int]) -> list[_Kind]:
    if not demand.group.n_of_role and len({info.template.serial for info in demand.members}) == 1:
        return [_Kind(_NO_LEAF, *by_index(demand.members), mine)]
    equal: dict[tuple[str, int], list[PodInfo]] = {}
    for info in demand.members:
        equal.setdefault((info.role, info.template.serial), []).append(info)
    ats: dict[tuple[str, int], list[int]] = {}
    for at in mine:
        info = placements[at].info
        ats.setdefault((info.role, info.template.serial), []).append(at)
    return [_Kind(_leaf(kind[0]), *by_index(equal[kind]), some) for kind, some in ats.items()]


def _give(kind: _Kind, placements: list[Placement], places: Fabric) -> None:
    """Gives the places of these members to them in their order."""
    ats = kind.ats
    rows = [placements[at].row for at in ats]
    if rows.count(rows[0]) < len(rows):
        # Many members share a node, and numbers are compared faster than places.
        nodes = sorted(set(rows), key=places.at)
        number = dict(zip(nodes, range(len(nodes)), strict=True))
        way = [number[row] for row in rows]
        ats = [ats[n] for n in sorted(range(len(way)), key=way.__getitem__)]
    for at, info in zip(ats, kind.members, strict=False):
        one = placements[at]
        if one.info is not info:
            placements[at] = Placement(info, one.row, one.allocation)


def by_index(infos: Sequence[PodInfo]) -> tuple[int, Sequence[PodInfo]]:
    """(how many have an index; these in its order, then the others). Where none has one, ranks of an earlier
    attempt count as such."""
    having = [info for info in infos if info.index is not None]
    if having:
        having.sort(key=_BY_INDEX)
        others = [info for info in infos if info.index is None] if len(having) < len(infos) else ()
        return len(having), [*having, *others]
    if all(info.rank >= 0 for info in infos):
        return len(infos), sorted(infos, key=_BY_RANK)
    return 0, infos


def in_order(
    group: Group, infos: Sequence[PodInfo], view: ClusterView, topology_key: str
) -> Sequence[PodInfo]:
    """Sorts members that have their places as their ranks are to follow each other: role by role, by index,
    and those without one by place."""
    if len(infos) < 2:
        return infos
    found: list[PodInfo] = []
    for members in _leaves(infos):
        n_indexed, members = by_index(members)
        if n_indexed < len(members):
            places = Fabric(view, group, topology_key, found[0].row if found else NO_ROW)
            others = members[n_indexed:]
            way = places.along([info.row for info in others])
            names = [info.pod.metadata.name for info in others]
            order = sorted(range(len(others)), key=lambda n: (way[n], len(names[n]), names[n]))
            members = [*members[:n_indexed], *(others[n] for n in order)]
        found += members
    return found


def beside_neighbours(group: Group, infos: Collection[PodInfo]) -> dict[str, int]:
    """By UID the rank that a member's index gives it among those that have ranks: as far from that of the
    nearest lower index (if there is none, the nearest higher one) as the indexes are from each other."""
    found: dict[str, int] = {}
    mine = {info.uid for info in infos}
    known: dict[str, list[tuple[Index, int]]] = {}
    for info in group.members.values():
        index = info.index
        if index is not None and info.rank >= 0 and info.uid not in mine:
            known.setdefault(info.role, []).append((index, info.rank))
    for ranked in known.values():
        ranked.sort()
    for info in infos:
        index = info.index
        if index is not None and (ranked := known.get(info.role, [])):
            at = bisect_right(ranked, index, key=itemgetter(0))
            near, rank = ranked[max(at - 1, 0)]
            same = near[:-1] == index[:-1]
            found[info.uid] = rank + (index[-1] - near[-1] if same else 1 if at else -1)
    return found


def walk(group: Group, infos: Sequence[PodInfo], view: ClusterView, topology_key: str) -> Walk:
    """Measures the way along members that have places and ranks; from one role to the next is no step of
    it."""
    if len({info.row for info in infos}) < 2:
        return Walk(0, 0)
    total = least = 0
    places = Fabric(view, group, topology_key)
    for members in _leaves(sorted(infos, key=_BY_RANK)):
        # What follows counts once for neighbours of one node: no step leads out of it.
        rows = [row for row, _ in groupby([info.row for info in members])]
        if len(rows) > 1:
            way = places.along(rows)
            for n in range(1, len(way[0])):
                domains = [place[:n] for place in way] if n > 1 else [place[0] for place in way]
                total += sum(map(ne, domains, domains[1:]))
                least += len(set(domains)) - 1
            total += len(rows) - 1
            least += len(set(rows)) - 1
    return Walk(total, least)


def widest_step(
    group: Group, infos: Sequence[PodInfo], view: ClusterView, topology_key: str
) -> tuple[int, PodInfo, PodInfo] | None:
    """The first of the longest steps of this way, and the members that it leads from and to; None: all are on
    one node."""
    at = Fabric(view, group, topology_key).at
    steps = [
        (_distance(at(one.row), at(other.row)), one, other)
        for members in _leaves(sorted(infos, key=_BY_RANK))
        for one, other in pairwise(members)
    ]
    widest = max(steps, key=itemgetter(0), default=None)
    return widest if widest is not None and widest[0] else None


def _distance(one: Place, other: Place) -> int:
    return next((len(one) - n for n, here in enumerate(one) if here != other[n]), 0)


def _leaves(infos: Sequence[PodInfo]) -> list[Sequence[PodInfo]]:
    """The members by role, those first that lead."""
    role = infos[0].role if infos else ""
    for info in infos:
        if info.role != role:
            break
    else:
        return [infos] if infos else []
    found: dict[str, list[PodInfo]] = {}
    for info in infos:
        found.setdefault(info.role, []).append(info)
    return [found[role] for role in sorted(found, key=_leaf)]


_Leaf = tuple[bool, Natural]
_NO_LEAF: _Leaf = (True, ())
_BY_INDEX, _BY_RANK = attrgetter("index"), attrgetter("rank")


def _leaf(role: str) -> _Leaf:
    return role.lower() not in _LEADING, natural(role)
