"""ClaimedLimits: what claims, and groups that wait for their victims, need within the limits of their queues.

A claim keeps nodes, but if other groups of its queue use up a limit by its start, its promise breaks all the
same. So what its groups need is kept within their limits too, from units that yield to the claim and would
still run when it starts (core.queueing.claims). Not kept twice: what is held by pods of the same queue that
the claim waits for, as they end before. The same holds for a preempting group: room on nodes is of no use to
it if its limit is used up by the time its victims are gone. Called by core.groups.limit_line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from gangsched.core.cache.namespace_usage import QueueView
from gangsched.core.cache.queue_tree import QueueTree
from gangsched.core.state.state import SharedState
from gangsched.core.types.claim import StartClaim
from gangsched.core.types.group import Group, PodInfo

Amounts = dict[str, dict[str, int]]
"""queue with a limit -> resource -> amount."""


def limited_needs(view: QueueView, tree: QueueTree, group: Group) -> Amounts:
    """What the group needs of limited resources, by the queues on its path that limit them."""
    asked, found = view.request_of(group), Amounts()
    for name in tree.paths.get(view.queue_of(group), ()):
        needs = {resource: asked[resource] for resource in tree.queues[name].limit if asked.get(resource)}
        if needs:
            found[name] = needs
    return found


def add_needs(to: Amounts, more: Amounts) -> None:
    """Adds `more` to `to`."""
    for name, some in more.items():
        mine = to.setdefault(name, {})
        for resource, n in some.items():
            mine[resource] = mine.get(resource, 0) + n


class ClaimedLimits:
    """Reads claims; changes nothing but what it remembers of them."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self._standing: list[StartClaim] = []
        self._needs: dict[int, Amounts] = {}
        """Claim serial -> what it keeps within limits."""
        self._as_of: tuple[object, ...] = ()

    def kept_from(self, group: Group) -> Amounts:
        """What a group that starts now must leave within limits."""
        found, shared = Amounts(), self._shared
        claims, walltimes, now_s = shared.queue.claims, shared.walltimes, shared.now_s
        if claims is None or not (standing := self.standing()):
            return found
        lasts_s = math.inf if walltimes is None else walltimes.of(group).seconds
        for claim in claims.holding_up([group], now_s, now_s + lasts_s, among=standing):
            add_needs(found, self._needs[claim.serial])
        return found

    def kept_by_preemption(self, group: Group) -> Amounts:
        """What the group must leave to preempting units whose room on nodes it must leave as well."""
        found, shared, view = Amounts(), self._shared, self._shared.queue_view
        if view is None or shared.queue_book is None or not shared.cache.nominated:
            return found
        owners = (one.info.group for one in shared.cache.nominated.values())
        waiting = {id(p): p for owner in owners if owner is not None and (p := owner.preemption) is not None}
        for one in waiting.values():
            rank = max(one.keeps_at, min(other.priority for other in one.unit))
            if group not in one.unit and rank >= group.priority:
                add_needs(found, self._beside(one.unit, one.waits_for.values(), view, shared.queue_book.tree))
        return found

    def standing(self) -> list[StartClaim]:
        """The claims that keep something within limits."""
        claims, view = self._shared.queue.claims, self._shared.queue_view
        tree = None if view is None or view.queues is None else view.queues.tree
        if claims is None or view is None or tree is None or not claims.by_key:
            return []
        as_of = (claims, claims.revision, tree, self._shared.cache.view.journal_end)
        if as_of != self._as_of:
            self._as_of = as_of
            self._needs = {claim.serial: self._needs_of(claim, view, tree) for claim in claims.all}
            self._standing = [claim for claim in claims.all if self._needs[claim.serial]]
        return self._standing

    def starts(self) -> dict[int, tuple[float, frozenset[str]]]:
        """By serial, the standing claims: when each starts, and the resources that it keeps."""
        return {
            claim.serial: (claim.start_s, frozenset(n for some in needs.values() for n in some))
            for claim in self.standing()
            if (needs := self._needs[claim.serial])
        }

    def _needs_of(self, claim: StartClaim, view: QueueView, tree: QueueTree) -> Amounts:
        pods = self._shared.cache.pods
        return self._beside(
            claim.unit, (pods[one.uid] for one in claim.blockers if one.uid in pods), view, tree
        )

    @staticmethod
    def _beside(
        unit: Sequence[Group], ending: Iterable[PodInfo], view: QueueView, tree: QueueTree
    ) -> Amounts:
        """What the unit needs, minus what is held in the same queues by pods that end before it starts."""
        needs = Amounts()
        for group in unit:
            add_needs(needs, limited_needs(view, tree, group))
        for info in ending if needs else ():
            path = tree.paths.get(tree.of(info.pod).queue, ())
            for name in (name for name in path if name in needs):
                for resource, n in needs[name].items():
                    needs[name][resource] = max(n - info.template.requests.get(resource, 0), 0)
        return needs
