"""A scheduling cycle's input and output: Demand in, Plan or FitError out; no decisions here.

Made by core.units (Demand) and core.cycle.cycle (the answers).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Generic, TypeVar

import msgspec

from gangsched.core.cache.trial import Trial
from gangsched.core.framework.eviction_rule import EvictionRule
from gangsched.core.framework.sampling import EarlyStop
from gangsched.core.framework.status import Code, CycleState
from gangsched.core.types.arrays import BoolArray
from gangsched.core.types.group import Group, PodInfo
from gangsched.core.types.placement import Nominated, Placement
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.core.why import OfGang, OfMember, Why
from gangsched.model.pod_group import GroupKey
from gangsched.model.resource_claims.objects import Allocation

ProfileT = TypeVar("ProfileT")

TOPOLOGY = "Topology"
"""The name, among plugins that refuse nodes, for the domain that a group is narrowed to."""


def first_of(n: int) -> int:
    """Picks the lowest row."""
    return 0


class DemandOn(msgspec.Struct, Generic[ProfileT], gc=False):
    """One group's request to a cycle: `members` to place, at least `n_needed` of them.

    core.framework.profile adds its Profile to it, as Demand; the plugin interface, which Profile builds on,
    knows no more than this.

    pick: which of n equally good nodes a lone pod gets, from 0. early_stop: a lone pod gets a node among the
    first that are enough; None: the best of all nodes. within, within_name: the nodes of the domain that the
    group is narrowed to (core.cycle.domains.topology), bool[n_rows], and its name; None: all nodes. roles:
    how many members of each role are needed at least; these come first among the members. packing_weight:
    packing's weight among the scores; None: the gang is packed first.
    """

    group: Group
    profile: ProfileT
    members: list[PodInfo]
    n_needed: int
    pick: Callable[[int], int] = first_of
    early_stop: EarlyStop | None = None
    within: BoolArray | None = None
    within_name: str = ""
    roles: Mapping[str, int] = {}
    packing_weight: int | None = None

    def by_template(self) -> dict[int, tuple[PodTemplate, list[PodInfo]]]:
        """Returns the members by template serial, in the order in which they come."""
        return by_template(self.members)


def by_template(members: list[PodInfo]) -> dict[int, tuple[PodTemplate, list[PodInfo]]]:
    """Groups the members, at least one, by template serial, in the order in which they come."""
    first = members[0].template
    for info in members:
        if info.template is not first:
            break
    else:  # nearly always
        return {first.serial: (first, members)}
    found: dict[int, tuple[PodTemplate, list[PodInfo]]] = {}
    before: PodTemplate | None = None
    for info in members:
        template = info.template
        if template is not before:
            before, alike = template, found.setdefault(template.serial, (template, []))[1]
        alike.append(info)
    return found


class Plan(msgspec.Struct, gc=False):
    """Where the members go. states: the cycle state of each template, for Reserve, by (group, serial);
    n_tried: placements tried by core.cycle.orders.order_search. claiming: the members with resource claims;
    claims: what these get, by UID."""

    placements: list[Placement]
    states: dict[tuple[GroupKey, int], CycleState] = {}
    n_tried: int = 0
    claiming: Sequence[Placement] = ()
    claims: Mapping[str, Allocation] = {}


class SearchOutcome(enum.Enum):
    """What is known about placing orders beyond the usual ones."""

    NONE = "none"
    """There are no others, or they were not searched."""
    PROVED = "proved"
    """No order works: up to swaps of equal members and equal nodes, all were tried."""
    GAVE_UP = "gave up"
    """A budget ran out before all were tried: the search's own, or that of a search for device sets."""


class Shortage(msgspec.Struct, gc=False):
    """Where placing a group ended: n_fit of n_wanted members fit, `member` does not on `trial`. own: (row,
    template) of the members that were placed there, without room kept for other pods. found: the plugins'
    reasons for the nodes that they excluded. suits: bool[n_rows], the nodes that suit the member by their
    fixed properties, whatever is used."""

    member: PodInfo
    template: PodTemplate
    trial: Trial
    own: Sequence[tuple[int, PodTemplate]]
    n_fit: int
    n_wanted: int
    found: Sequence[tuple[str, Why, BoolArray]]
    suits: BoolArray
    is_alike: bool
    """Whether all members to be placed are of its template."""
    minds_pods: bool = False
    """Whether it depends on the pods beside it: by affinity, spread or ports."""
    n_held: int = 0
    """How many of n_fit were running or held room before."""
    about_domains: str = ""
    """Why none of the group's possible domains takes it; the rest is then about the nearest one."""


class FitError(msgspec.Struct, gc=False):
    """Why no member is placed, and as (plugin, template) the changes that can cure it.

    shortage: where the first order of placing ended; None where a plugin or a rule refused the members
    before.
    """

    group: Group
    why: Why
    rejected_by: tuple[tuple[str, PodTemplate | None], ...]
    code: Code = Code.UNSCHEDULABLE
    search: SearchOutcome = SearchOutcome.NONE
    n_tried: int = 0
    shortage: Shortage | None = None

    @property
    def message(self) -> str:
        """Why, in words."""
        return str(self.why)


def of_member(info: PodInfo, why: Why) -> Why:
    """Returns why a pod is refused; in a gang, all of whose members get the message, with the pod's name."""
    group = info.group
    if group is None or not group.is_gang:
        return why
    return OfGang(str(group.key), OfMember(info.pod.metadata.name, why))


class DryRun(msgspec.Struct, gc=False):
    """What a PostFilter plugin may try. place: the unit's cycle on a Trial of the plugin's; search: the same,
    trying further orders for up to a number of placements; search_budget: the unit's limit for each use;
    siblings: groups that start with a group; lowest_priority: no pod has a lower one; nominated: reservations
    that `place` leaves room for; n_looks: how often it may compute a node's capacity; spared: UIDs of pods
    that an earlier eviction did not remove; going: pods evicted for other units, terminating or not yet;
    rule: which pods may be evicted; None: those of lower priority; lacks: why the unit is kept out whatever
    room it has, if these pods are gone ("": it is not); None: it lacks room alone."""

    place: Callable[[Trial], Plan | FitError]
    search: Callable[[Trial, int], Plan | FitError]
    siblings: Callable[[Group], Mapping[str, Group]]
    lowest_priority: int
    nominated: Sequence[Nominated] = ()
    n_looks: int = 20_000
    search_budget: int = 0
    spared: Collection[str] = ()
    going: Mapping[str, PodInfo] = {}
    rule: EvictionRule | None = None
    lacks: Callable[[Collection[PodInfo]], Why] | None = None

    def may_find(self, priority: int) -> bool:
        """Whether there may be victims for a unit of this priority."""
        return self.lowest_priority < priority or (self.rule is not None and self.rule.takes_any)


class PostFilterResult(msgspec.Struct, gc=False):
    """Room can be made: where the members go once `victims` are gone. violating: UIDs of victims protected by
    an exhausted disruption budget; those are deleted, the others evicted. cost: of the victims; of several
    ways to make room the cheapest is taken."""

    plan: Plan
    victims: tuple[PodInfo, ...]
    violating: frozenset[str] = frozenset()
    cost: tuple[float, ...] = ()
