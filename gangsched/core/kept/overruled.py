"""OverruledClaims: claims whose room a unit may use because a rule of its queue says so.

A claim keeps its room from all units of no higher priority, so a queue would wait for its guarantee until the
claim has started. So the eviction rule (EvictionRule) applies to claimed room as well: a unit that may evict
running pods may also take room in which no pod runs yet. Claims still yield to each other by priority and age
alone, so that no two wait for each other. Called by core.kept.claiming.
"""

from __future__ import annotations

from collections.abc import Sequence

from gangsched.core.cache.namespace_usage import QueueView
from gangsched.core.framework.eviction_rule import TakesKeptRoom
from gangsched.core.framework.plugin_calls import PluginError
from gangsched.core.framework.supports import serves
from gangsched.core.state.state import SharedState
from gangsched.core.types.claim import StartClaim
from gangsched.core.types.group import Group
from gangsched.core.units import Units


class OverruledClaims:
    """Remembers its answer, as it is asked several times a turn."""

    def __init__(self, shared: SharedState, units: Units) -> None:
        self._shared = shared
        self._units = units
        self._asked: tuple[object, ...] = ()
        self._serials: frozenset[int] = frozenset()

    def without(self, unit: Sequence[Group], claims: Sequence[StartClaim], revision: int) -> list[StartClaim]:
        """The claims that keep their room from the unit. revision: of all claims."""
        view = self._shared.queue_view
        if view is None or not claims or not self._shared.profile_of(unit[0]).admit_plugins:
            return list(claims)
        tree = None if view.queues is None else view.queues.tree
        asked = (tree, revision, self._shared.n_inputs, self._shared.cache.view.journal_end, *unit)
        if asked != self._asked:
            self._asked, self._serials = asked, self._overruled(list(unit), claims, view)
        return [claim for claim in claims if claim.serial not in self._serials]

    def taken(self, unit: Sequence[Group], claims: Sequence[StartClaim], nodes: frozenset[str]) -> None:
        """Marks the claims whose room the unit has taken by starting on these nodes."""
        if self._asked[4:] != tuple(unit):
            return
        for claim in claims:
            if claim.serial in self._serials and not nodes.isdisjoint(claim.nodes):
                claim.lost_to_guarantee = True

    def _overruled(self, unit: list[Group], claims: Sequence[StartClaim], view: QueueView) -> frozenset[int]:
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
