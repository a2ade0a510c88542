"""ClaimedLimits: what claims, and groups that wait for their victims, need within the limits of their queues.

A claim keeps nodes, but if other groups of its queue use up a limit by its start, its promise breaks all the
same. So what its groups need is kept within their limits too, from units that yield to the claim and would
still run when it starts (core.queueing.claims). Not kept twice: what is held by pods of the same queue that
the claim waits for, as they end before. What a pod holds counts once, though several claims wait for it. The
same holds for a preempting group: room on nodes is of no use to it if its limit is used up by the time its
victims are gone. Called by core.groups.limit_line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from gangsched.core.cache.namespace_usage import QueueView
from gangsched.core.cache.queue_tree import QueueTree
from gangsched.core.state.state import SharedState
from gangsched.core.types.claim import StartClaim
from gangsched.core.types.group import Group, PodInfo
from gangsched.core.types.needed import needed_members

Amounts = dict[str, dict[str, int]]
"""queue with a limit -> resource -> amount."""


def limited_needs(view: QueueView, tree: QueueTree, group: Group) -> Amounts:
    """What the group needs of limited resources, by the queues on its path that limit them."""
    asked, found = view.request_of(group), Amounts()
    book = view.queues
    admissions = None if book is None else book.admissions
    passing = {} if admissions is None else admissions.passing(needed_members(group), 1)
    for name in tree.paths.get(view.queue_of(group), ()):
        own = passing.get(name, {})
        counted = {r: asked.get(r, 0) - own.get(r, 0) for r in tree.queues[name].limit}
        needs = {resource: n for resource, n in counted.items() if n}
        if needs:
            found[name] = needs
    return found


def add_needs(to: Amounts, more: Amounts) -> None:
    """Adds `more` to `to`."""
    for name, some in more.items():
        mine = to.setdefault(name, {})
        for resource, n in some.items():
            mine[resource] = mine.get(resource, 0) + n


class _Kept(msgspec.Struct, frozen=True):
    """What a unit needs within limits, and by UID what pods hold there that end before it starts."""

    needs: Amounts
    ending: Mapping[str, Amounts]


class ClaimedLimits:
    """Reads claims; changes nothing but what it remembers of them."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self._standing: list[StartClaim] = []
        self._kept: dict[int, _Kept] = {}
        """Claim serial -> what it keeps within limits."""
        self._as_of: tuple[object, ...] = ()

    def kept_from(self, group: Group, *, by_claims: bool) -> Amounts:
        """What a group that starts now must leave within limits: to preempting units whose room on nodes it
        must leave as well and, with by_claims, to claims."""
        parts = self._by_preemption(group)
        shared = self._shared
        claims, walltimes, now_s = shared.queue.claims, shared.walltimes, shared.now_s
        if by_claims and claims is not None and (standing := self.standing()):
            lasts_s = math.inf if walltimes is None else walltimes.walltime(group).seconds
            found = claims.holding_up([group], now_s, now_s + lasts_s, among=standing)
            parts += [self._kept[claim.serial] for claim in sorted(found, key=lambda one: one.start_s)]
        return _jointly(parts)

    def _by_preemption(self, group: Group) -> list[_Kept]:
        found: list[_Kept] = []
        shared, view = self._shared, self._shared.queue_view
        if view is None or shared.queue_book is None or not shared.cache.nominated:
            return found
        owners = (one.info.group for one in shared.cache.nominated.values())
        waiting = {id(p): p for owner in owners if owner is not None and (p := owner.preemption) is not None}
        for one in waiting.values():
            rank = max(one.keeps_at, min(other.priority for other in one.unit))
            if group not in one.unit and rank >= group.priority:
                found.append(_kept(one.unit, one.waits_for.values(), view, shared.queue_book.tree))
        return found

    def standing(self) -> list[StartClaim]:
        """The claims that keep something within limits."""
        claims, view = self._shared.queue.claims, self._shared.queue_view
        tree = None if view is None or view.queues is None else view.queues.tree
        if claims is None or view is None or tree is None or not claims.by_key:
            return []
        as_of = (claims, claims.revision, tree, self._shared.cache.view.journal_end)
        if as_of != self._as_of:
            self._as_of, pods = as_of, self._shared.cache.pods
            self._kept = {
                claim.serial: _kept(
                    claim.unit, (pods[i.uid] for i in claim.blockers if i.uid in pods), view, tree
                )
                for claim in claims.all
            }
            self._standing = [claim for claim in claims.all if self._kept[claim.serial].needs]
        return self._standing

    def starts(self) -> dict[int, tuple[float, frozenset[str]]]:
        """By serial, the standing claims: when each starts, and the resources that it keeps."""
        return {
            claim.serial: (claim.start_s, frozenset(n for some in kept.needs.values() for n in some))
            for claim in self.standing()
            if (kept := self._kept[claim.serial]).needs
        }


def _kept(unit: Sequence[Group], ending: Iterable[PodInfo], view: QueueView, tree: QueueTree) -> _Kept:
    needs, held = Amounts(), dict[str, Amounts]()
    for group in unit:
        add_needs(needs, limited_needs(view, tree, group))
    for info in ending if needs else ():
        path, requests = tree.paths.get(tree.choice(info.pod).queue, ()), info.template.requests
        own = {name: {r: requests[r] for r in needs[name] if r in requests} for name in path if name in needs}
        held[info.uid] = own
    return _Kept(needs, held)


def _jointly(parts: Sequence[_Kept]) -> Amounts:
    """What all of these keep now: the most that any first few of them need beyond what has ended by then.

    In the order of their starts. Each by itself may need nothing: two that wait for the same pod, which holds
    as much as either needs, need it for one of them only.
    """
    found, needed = Amounts(), Amounts()
    ended: dict[str, Amounts] = {}
    for part in parts:
        add_needs(needed, part.needs)
        for uid, held in part.ending.items():
            mine = ended.setdefault(uid, {})
            for name, some in held.items():
                mine[name] = {**mine.get(name, {}), **some}
        for name, some in needed.items():
            kept = found.setdefault(name, {})
            for resource, n in some.items():
                freed = sum(one.get(name, {}).get(resource, 0) for one in ended.values())
                kept[resource] = max(kept.get(resource, 0), n - freed)
    return found
