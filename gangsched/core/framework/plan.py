"""What a scheduling cycle is asked and what it answers: Demand in, Plan or FitError out; nothing is decided.

Made by core.groups.attempts (Demand) and core.cycle.cycle (the answers).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Generic, TypeVar

import msgspec

from gangsched.core.cache.trial import Trial
from gangsched.core.framework.sampling import EarlyStop
from gangsched.core.framework.status import Code, CycleState
from gangsched.core.types.group import Group, PodInfo
from gangsched.core.types.placement import Nominated, Placement
from gangsched.core.types.pod_template import PodTemplate
from gangsched.model.pod_group import GroupKey

ProfileT = TypeVar("ProfileT")


def first_of(n: int) -> int:
    """The lowest row wins."""
    return 0


class DemandOn(msgspec.Struct, Generic[ProfileT], gc=False):
    """What one group asks of this cycle: `members` to place, at least `n_needed` of them.

    core.framework.profile has it with its own Profile, as Demand; the plugin interface, which that one is
    built on, knows no more than this.

    pick: which of n equally good nodes a lone pod gets, from 0. early_stop: a lone pod is offered no more
    than enough nodes; None: all of them.
    """

    group: Group
    profile: ProfileT
    members: list[PodInfo]
    n_needed: int
    pick: Callable[[int], int] = first_of
    early_stop: EarlyStop | None = None

    def by_template(self) -> dict[int, tuple[PodTemplate, list[PodInfo]]]:
        """The members by template serial, in the order in which they come."""
        first = self.members[0].template
        for info in self.members:
            if info.template is not first:
                break
        else:  # nearly always
            return {first.serial: (first, self.members)}
        found: dict[int, tuple[PodTemplate, list[PodInfo]]] = {}
        before: PodTemplate | None = None
        for info in self.members:
            template = info.template
            if template is not before:
                before, alike = template, found.setdefault(template.serial, (template, []))[1]
            alike.append(info)
        return found


class Plan(msgspec.Struct, gc=False):
    """Where everybody goes. states: what the cycle of each template left, for Reserve, by (group, serial);
    n_tried: placements that core.cycle.order_search tried for it."""

    placements: list[Placement]
    states: dict[tuple[GroupKey, int], CycleState] = {}
    n_tried: int = 0


class SearchOutcome(enum.Enum):
    """What is known of the orders of placing that were not tried first."""

    NONE = "none"
    """There are no others, or they were not asked for."""
    PROVED = "proved"
    """No order does: equal members and equal nodes taken together, all were tried."""
    GAVE_UP = "gave up"
    """The budget ran out before all were tried: its own, or that of a search for sets of devices."""


GAVE_UP = "A placement may exist: the search for one ended at searchPlacements."
"""What people are told of GAVE_UP."""


class FitError(msgspec.Struct, gc=False):
    """Nobody goes anywhere, and why: for people, and (plugin, template) for what can cure it."""

    group: Group
    message: str
    rejected_by: tuple[tuple[str, PodTemplate | None], ...]
    code: Code = Code.UNSCHEDULABLE
    search: SearchOutcome = SearchOutcome.NONE
    n_tried: int = 0


class DryRun(msgspec.Struct, gc=False):
    """What a PostFilter plugin may try. place: the unit's cycle on a Trial of the plugin's making; search:
    the same, and other orders of placing for so many placements, of which search_budget is what the unit may
    spend at a time; siblings: groups that start with a group; lowest_priority: no pod has a lower one;
    nominated: promises that `place` keeps room for; n_looks: how often it may ask what a node takes; spared:
    UIDs of pods that did not go when they were asked to."""

    place: Callable[[Trial], Plan | FitError]
    search: Callable[[Trial, int], Plan | FitError]
    siblings: Callable[[Group], Mapping[str, Group]]
    lowest_priority: int
    nominated: Sequence[Nominated] = ()
    n_looks: int = 20_000
    search_budget: int = 0
    spared: Collection[str] = ()


class PostFilterResult(msgspec.Struct, gc=False):
    """Room can be made: where everybody goes once `victims` are gone, and which of them (UIDs) a disruption
    budget protects that has nothing left: they are deleted, the others evicted."""

    plan: Plan
    victims: tuple[PodInfo, ...]
    violating: frozenset[str] = frozenset()
