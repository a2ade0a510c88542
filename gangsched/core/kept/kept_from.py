"""KeptFrom: what a unit may not use on nodes if it runs from one time to another, and who keeps it.

    reserved    by units that wait until their victims have gone, and for other schedulers' pods that nominate
                a node: all of it, at any time; the cycle ignores what is of lower priority than the unit
    claimed     by groups at their bound: all that they need, from their start on; and of what is free now,
                what they need beyond what pods leave there by then (core.queueing.claims)

A unit that ends before a claim starts may use all of its room until then.

Not here: what is kept within limits (core.kept.limits), how claims are made (core.kept.claiming). Called by
core.kept.kept, core.kept.claim_plans and core.estimates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from gangsched.core.cache.namespace_usage import QueueView
from gangsched.core.framework.eviction_rule import TakesKeptRoom
from gangsched.core.framework.plan import Plan
from gangsched.core.framework.plugin_calls import PluginError
from gangsched.core.framework.supports import serves
from gangsched.core.queueing.claims import Claims
from gangsched.core.state.state import SharedState
from gangsched.core.types.claim import StartClaim
from gangsched.core.types.group import Group
from gangsched.core.types.placement import Nominated
from gangsched.core.units import Units


class KeptFrom(NamedTuple):
    """What is kept from one unit. claims: in order of precedence; standing: all of them; None: none are
    made."""

    reserved: Sequence[Nominated]
    claims: Sequence[StartClaim]
    standing: Claims | None

    @property
    def room(self) -> list[Nominated]:
        """All of it, also what is not free yet."""
        return [*self.reserved, *(one for claim in self.claims for one in claim.held)]

    @property
    def room_now(self) -> list[Nominated]:
        """What must stay free now."""
        if not self.claims or self.standing is None:
            return list(self.reserved)
        return [*self.reserved, *self.standing.kept_now(self.claims)]


def kept_from(shared: SharedState, unit: Sequence[Group], from_s: float, *, to_all: bool = False) -> KeptFrom:
    """What is kept from the unit if it runs from then until its walltime is over.

    to_all: also what claims keep that yield to its own, as of their first promised starts.
    """
    standing, claims = shared.queue.claims, list[StartClaim]()
    if standing is not None and standing.by_key:
        until_s = from_s + walltime_s(shared, unit)
        claims = standing.holding_up(unit, from_s, until_s, to_all=to_all)
    return KeptFrom(list(shared.cache.nominated.values()), claims, standing)


def kept_until(shared: SharedState, now_s: float) -> list[tuple[float, Nominated]]:
    """All room that is kept from anyone, and until when; inf: it is not known."""
    standing, found = shared.queue.claims, list[tuple[float, Nominated]]()
    for claim in standing.all if standing is not None else ():
        assert standing is not None
        found += [(standing.end_s(claim, now_s), one) for one in claim.held]
    return [*found, *((math.inf, one) for one in shared.cache.nominated.values())]


def walltime_s(shared: SharedState, unit: Sequence[Group]) -> float:
    """The longest walltime of the unit's groups."""
    walltimes = shared.walltimes
    return math.inf if walltimes is None else max(walltimes.walltime(group).seconds for group in unit)


class Overruled:
    """Claims whose room a unit may use because a rule of its queue says so.

    A claim keeps its room from all units of no higher priority, so a queue would wait for its guarantee until
    the claim has started. So the eviction rule (EvictionRule) applies to claimed room as well: a unit that
    may evict running pods may also take room in which no pod runs yet. Claims still yield to each other by
    priority and age alone, so that no two wait for each other. It remembers its answer, as it is asked
    several times a turn.
    """

    def __init__(self, shared: SharedState, units: Units) -> None:
        self._shared = shared
        self._units = units
        self._asked: tuple[object, ...] = ()
        self._serials: frozenset[int] = frozenset()

    def without(self, kept: KeptFrom, unit: Sequence[Group]) -> KeptFrom:
        """What is kept from the unit but for these claims."""
        view, claims = self._shared.queue_view, kept.claims
        if kept.standing is None or view is None or not claims:
            return kept
        if not self._shared.profile_of(unit[0]).admit_plugins:
            return kept
        tree = None if view.queues is None else view.queues.tree
        revision, n_inputs = kept.standing.revision, self._shared.n_inputs
        asked = (tree, revision, n_inputs, self._shared.cache.view.journal_end, *unit)
        if asked != self._asked:
            self._asked, self._serials = asked, self._found(list(unit), claims, view)
        return kept._replace(claims=[claim for claim in claims if claim.serial not in self._serials])

    def take_room(self, unit: Sequence[Group], plan: Plan) -> None:
        """Marks the claims whose room the unit has taken by starting as planned."""
        standing = self._shared.queue.claims
        if standing is None or not self._serials or self._asked[4:] != tuple(unit):
            return
        nodes = frozenset(self._shared.cache.view.name(one.row) for one in plan.placements)
        for claim in standing.all:
            if claim.serial in self._serials and not nodes.isdisjoint(claim.nodes):
                claim.lost_to_guarantee = True

    def _found(self, unit: list[Group], claims: Sequence[StartClaim], view: QueueView) -> frozenset[int]:
        shared = self._shared
        members = [info for one in self._units.demands(unit) for info in one.members[: one.n_needed]]
        try:
            rule: object = shared.profile_of(unit[0]).eviction_rule(unit, members, view)
            if rule is None or not serves(rule, TakesKeptRoom):
                return frozenset()
            return frozenset(
                one.serial for one in claims if rule.takes_kept_room([held.info for held in one.held])
            )
        except PluginError as error:
            shared.hooks.blame(error, unit[0])
            return frozenset()
