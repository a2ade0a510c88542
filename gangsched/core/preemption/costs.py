"""Cost: what a set of victims costs, and the disruption budgets that it depends on. Called by all of
core.preemption."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from gangsched.core.types.group import PodInfo

# Makes every priority positive, so that two pods never cost less than one of them.
OFFSET = 2**31

Chosen = Mapping[str, PodInfo]
"""A set of pods by UID."""


class DisruptionBudget(msgspec.Struct, frozen=True, gc=False):
    """A PodDisruptionBudget's present state: how many more of these pods may be disrupted."""

    allowed: int
    uids: frozenset[str]


class Cost(msgspec.Struct, frozen=True, gc=False, order=True):
    """The cost of a set of victims; the first difference decides, less is better.

    n_last: pods that a rule of queues takes only if all others are not enough. n_violations: pods protected
    by a disruption budget. highest: the highest priority. total: the sum of the priorities, each made
    positive. latest: the start, negated, of the first pod with the highest priority: of two sets the one
    whose pods have run for less is cheaper.
    """

    n_last: int = 0
    n_violations: int = 0
    highest: int = -OFFSET
    total: int = 0
    n_pods: int = 0
    latest: float = -math.inf

    @property
    def level(self) -> Level:
        """Whether some go last, whether a budget is violated, and the highest priority."""
        return self.n_last > 0, self.n_violations > 0, self.highest

    @property
    def key(self) -> tuple[float, ...]:
        """The cost in the form that core.preemption.node_costs uses."""
        return self.n_last, self.n_violations, self.highest, self.total, self.n_pods, self.latest


Level = tuple[bool, bool, int]
