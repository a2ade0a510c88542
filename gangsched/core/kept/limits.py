"""KeptInLimits: what is kept from a group within the limits of its queues, and for which groups.

Small groups fit below a limit whenever one of them ends; a large one never does while small ones keep coming.
So a start counts as a pass of each group of the same queue that comes before it in line, has no lower
priority, and is kept out by a limit on something that the start takes. A start in another queue below the
same limit counts too, if that limit alone keeps the group out and the group's queue would have the next turn.
Once a group is at its bound (core.queueing.bypasses), what it needs is kept for it within its limits: later
groups start only if they leave it that. No node is kept, and nothing once the group is admitted.

In each queue the first 8 to 16 in line are counted; groups behind them once they have moved up. A count ends
when its group has started or is gone; it outlives failed binds, gates, and renamed queues. Used only with
`queueing` and an enforced bound.

A claim keeps nodes, but if other groups of its queue use up a limit by its start, its promise breaks all the
same. So what its groups need is kept within their limits too (ClaimedInLimits), from units that yield to the
claim and would still run when it starts (core.queueing.claims). Not kept twice: what is held by pods of the
same queue that the claim waits for, as they end before. What a pod holds counts once, though several claims
wait for it. The same holds for a preempting group: room on nodes is of no use to it if its limit is used up
by the time its victims are gone.

Not here: the limits (plugins.fairness). Called by core.kept.kept; read by plugins, through their QueueView,
and by core.explaining.queues.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from gangsched.core.cache.queues.namespace_usage import QueueView
from gangsched.core.cache.queues.tree import QueueTree
from gangsched.core.framework.status import Code, Status
from gangsched.core.queueing.kept_from import kept_from
from gangsched.core.state.state import SharedState
from gangsched.core.types.claim import StartClaim
from gangsched.core.types.cluster_events import Change, ClusterChange
from gangsched.core.types.group import Group, PodInfo
from gangsched.core.types.needed import completes, needed_members
from gangsched.core.types.states import IN_LINE, NOT_QUEUED
from gangsched.core.why import Why
from gangsched.core.why.kept import PassedAtLimit
from gangsched.model.pod_group import GroupKey

_N_COUNTED = 16
_FAIRNESS = "Fairness"
_GIVEN_UP: tuple[float, frozenset[str]] = (math.inf, frozenset())


class KeptOut(msgspec.Struct, eq=False):
    """One group. needs: of limited resources; n: how many groups have passed it, of at most `bound`. is_out:
    a limit kept it out at its last try; is_away: it has since been reserved or gated, or lacks members;
    queue: its lane."""

    group: Group
    queue: str
    needs: Amounts
    bound: int
    n: int = 0
    is_out: bool = True
    is_away: bool = False

    @property
    def is_at_bound(self) -> bool:
        return self.n >= self.bound


class KeptInLimits:
    """Counts passes at limits, and keeps room within them."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self._claimed = ClaimedInLimits(shared)
        self._claims: dict[int, tuple[float, frozenset[str]]] = {}
        """By serial, claims that keep limited resources: when each starts, and which resources."""
        self._tree: QueueTree | None = None
        self._known: dict[GroupKey, KeptOut] = {}
        self._of_queue: dict[str, dict[GroupKey, KeptOut]] = {}
        self._first: dict[str, list[KeptOut]] = {}
        """The first few of each queue, unordered."""
        self._held: tuple[KeptOut, ...] = ()
        """Groups for which something was kept at the end of the last turn."""
        self._kept_from: dict[str, Mapping[str, Sequence[KeptOut]]] = {}
        """By queue, and by another whose turn came before its own then: for which of these it was kept."""

    def answered(self, unit: Sequence[Group], answer: Status) -> None:
        """Records Admit's answer about the unit."""
        if answer.is_success and not self._known:
            return
        view, bypasses = self._shared.queue_view, self._shared.queue.bypasses
        is_out = answer.plugin == _FAIRNESS and answer.code is Code.UNSCHEDULABLE and self._is_on
        claims = self._shared.claims
        if is_out and claims is not None and claims.unit_claim(unit) is not None:
            # The claim keeps what it needs.
            is_out = False
        if not is_out or view is None or view.queues is None or bypasses is None:
            for group in unit if self._known else ():
                if (known := self._known.get(group.key)) is not None:
                    known.is_out = False
            return
        tree = self._follow(view, view.queues.tree)
        for group in unit:
            if not bypasses.bounds.protects(group):
                continue
            queue, needs = view.queue_of(group), limited_needs(view, tree, group)
            known = self._known.get(group.key)
            if known is None or known.group is not group or known.queue != queue:
                if known is not None:
                    self._drop(known)
                bound = bypasses.bounds.first(group, self._shared.now_s)
                known = self._known[group.key] = KeptOut(group, queue, needs, bound)
                self._of_queue.setdefault(queue, {})[group.key] = known
                self._line_up(known)
            elif known.is_away:
                self._line_up(known)
            known.needs, known.is_out, known.is_away = needs, True, False

    def charge_passes(self, unit: Sequence[Group]) -> None:
        """Counts the passes of a unit whose members are about to be reserved."""
        view = self._shared.queue_view
        if not self._known or view is None or view.queues is None:
            return
        for group in unit:
            if completes(group):
                continue
            taken = view.request_of(group)
            for one, needs in self._ahead_of(group):
                asks = {resource for some in needs.values() for resource in some}
                if asks & taken.keys() and (needs is one.needs or self._is_over(view, needs, taken)):
                    one.n += 1

    def kept_ahead_of(self, group: Group) -> Mapping[str, Mapping[str, int]]:
        """What is kept within limits from this group, by queue with a limit.

        A unit that waits for its victims keeps what it needs from every group that must leave it its room.
        From a group with a claim only older claims keep anything else; groups at their bound keep nothing. If
        it waited for them too, none of them would start, and the limit would be idle. It passes them once,
        and no other group gets a claim as long as they keep it out.
        """
        found = self._claimed.kept_from(group, by_claims=not completes(group))
        claims = self._shared.claims
        if not self._known or self._shared.queue_view is None or completes(group):
            return found
        if claims is not None and claims.claim(group) is not None:
            return found
        for one, needs in self._ahead_of(group):
            if one.is_at_bound:
                add_needs(found, needs)
        return found

    def kept_out(self, group: Group) -> KeptOut | None:
        """The group's count; None if no limit keeps it out."""
        known = self._known.get(group.key)
        return known if known is not None and known.group is group and self._is_kept_out(known) else None

    def describe(self, group: Group) -> Why:
        """A sentence about groups that have passed it, and what is kept for it; "": none has, nothing is."""
        if (known := self.kept_out(group)) is None or not (known.n or known.is_at_bound):
            return ""
        return PassedAtLimit(known.n, known.bound, known.is_at_bound)

    def announce(self) -> None:
        """At the end of a turn: announces what is no longer kept, so that groups kept out are tried again."""
        if not (self._claims or self._known or self._held):
            claims = self._shared.claims
            if claims is None or not claims.by_key:
                return
        given_up = {*self._given_up_by_claims()}
        if self._known or self._held:
            for one in [one for first in self._first.values() for one in first if not self._is_there(one)]:
                self._leave(one)
            if len(self._known) > 2 * len(self._shared.groups) + _N_COUNTED:
                for one in [one for one in self._known.values() if self._has_ended(one)]:
                    self._drop(one)
            counted = (one for first in self._first.values() for one in first)
            held = tuple(one for one in counted if one.is_at_bound and self._is_kept_out(one))
            left = (one for one in self._held if one not in held)
            given_up.update(name for one in left for some in one.needs.values() for name in some)
            given_up.update(self._given_up_to_queues(held))
            self._held = held
        if given_up:
            self._shared.changes.append(ClusterChange(Change.ROOM_FREED, resources=frozenset(given_up)))

    def _given_up_to_queues(self, held: Sequence[KeptOut]) -> Iterator[str]:
        """Resources that are no longer kept for other queues from one that has the turn before them now."""
        before, self._kept_from = self._kept_from, {}
        bypasses = self._shared.queue.bypasses
        if not (held or before):
            return
        by_queue: dict[str, list[KeptOut]] = {}
        for one in held:
            by_queue.setdefault(one.queue, []).append(one)
        for queue, first in self._first.items():
            waiting = [one.group for one in first if self._is_kept_out(one)]
            if waiting and bypasses is not None:
                place = bypasses.order.lane_place(min(waiting, key=self._place)), queue
                ahead = {
                    other: some
                    for other, some in by_queue.items()
                    if other != queue and self._leads(other, some, place)
                }
                self._kept_from[queue] = ahead
            for other, some in before.get(queue, {}).items():
                if other not in self._kept_from.get(queue, {}):
                    yield from (name for one in some for needs in one.needs.values() for name in needs)

    def _leads(self, queue: str, found: Sequence[KeptOut], place: tuple[object, ...]) -> bool:
        """Whether the queue has its turn, with these groups, before the group of another at this place."""
        bypasses = self._shared.queue.bypasses
        assert bypasses is not None
        leading = min(found, key=lambda one: self._place(one.group)).group
        return (bypasses.order.lane_place(leading), queue) < place

    def _given_up_by_claims(self) -> Iterator[str]:
        """Resources that a claim no longer keeps within limits, or keeps only for a later start."""
        before, self._claims = self._claims, self._claimed.starts()
        for serial, (start_s, resources) in before.items():
            now_s, _ = self._claims.get(serial, _GIVEN_UP)
            if now_s > start_s:
                yield from resources

    def _ahead_of(self, group: Group) -> Iterator[tuple[KeptOut, Amounts]]:
        """Kept-out groups that this one may not pass without limit, each with what it needs at the limits
        that apply to both."""
        view, bypasses = self._shared.queue_view, self._shared.queue.bypasses
        if view is None or view.queues is None or bypasses is None:
            return
        queue, tree = view.queue_of(group), self._follow(view, view.queues.tree)
        for one in self._first.get(queue, ()):
            if self._is_kept_out(one) and self._is_before(one.group, group):
                yield one, one.needs
        above = frozenset(name for name in tree.paths.get(queue, ()) if tree.queues[name].limit)
        place: tuple[object, ...] = ()
        for other, first in self._first.items() if above else ():
            if other == queue or above.isdisjoint(tree.paths.get(other, ())):
                continue
            found = [one for one in first if one.group.priority >= group.priority and self._is_kept_out(one)]
            found = [one for one in found if self._is_free_below(view, one, above)]
            if not found:
                continue
            place = place or (bypasses.order.lane_place(group), queue)
            if self._leads(other, found, place):
                for one in found:
                    yield one, {name: some for name, some in one.needs.items() if name in above}

    def _is_free_below(self, view: QueueView, one: KeptOut, above: Collection[str]) -> bool:
        """Whether only limits of these queues keep it out."""
        own = {name: some for name, some in one.needs.items() if name not in above}
        return not self._is_over(view, own, {})

    def _is_over(self, view: QueueView, needs: Amounts, taken: Mapping[str, int]) -> bool:
        """Whether the needs exceed limits once `taken` is used below each of them."""
        assert view.queues is not None
        asked = {
            name: {resource: n + taken.get(resource, 0) for resource, n in some.items()}
            for name, some in needs.items()
        }
        return next(view.queues.over_limits(asked, {}), None) is not None

    def _line_up(self, one: KeptOut) -> None:
        first = self._first.setdefault(one.queue, [])
        if one in first:
            return
        first.append(one)
        if len(first) > _N_COUNTED:
            first.remove(max(first, key=lambda each: self._place(each.group)))

    def _follow(self, view: QueueView, tree: QueueTree) -> QueueTree:
        """Recomputes the queues, needs and bounds of all groups after a reload."""
        bypasses = self._shared.queue.bypasses
        if tree is not self._tree and bypasses is not None:
            self._tree = tree
            known = [one for one in self._known.values() if not self._has_ended(one)]
            self._known, self._of_queue, self._first = {}, {}, {}
            for one in known:
                one.queue, one.needs = view.queue_of(one.group), limited_needs(view, tree, one.group)
                one.bound = bypasses.bounds.after(one.bound, one.group, self._shared.now_s)
                self._known[one.group.key] = one
                self._of_queue.setdefault(one.queue, {})[one.group.key] = one
                self._line_up(one)
        return tree

    def _leave(self, one: KeptOut) -> None:
        """Takes out a group that is not kept out for now. Its count stays: it may come back after giving back
        its reservations."""
        if self._has_ended(one):
            self._drop(one)
        else:
            one.is_away = True
            self._fill_up(one)

    def _drop(self, one: KeptOut) -> None:
        """Forgets a group that has started, or no longer waits in that queue."""
        of_queue = self._of_queue[one.queue]
        del self._known[one.group.key], of_queue[one.group.key]
        if not of_queue:
            del self._of_queue[one.queue], self._first[one.queue]
        else:
            self._fill_up(one)

    def _fill_up(self, without: KeptOut) -> None:
        """Takes the group out of the first few of its queue; refills them once they are half."""
        queue = without.queue
        first, of_queue = self._first[queue], self._of_queue[queue]
        if without in first:
            first.remove(without)
            if len(first) <= _N_COUNTED // 2 and len(of_queue) > len(first):
                left = (each for each in of_queue.values() if self._is_there(each))
                self._first[queue] = heapq.nsmallest(
                    _N_COUNTED, left, key=lambda each: self._place(each.group)
                )

    @property
    def _is_on(self) -> bool:
        """Whether bounds are enforced."""
        return self._shared.claims is not None

    def _is_there(self, one: KeptOut) -> bool:
        group = self._shared.groups.get(one.group.key)
        return group is one.group and group.state in IN_LINE and group.is_complete and self._is_on

    def _has_ended(self, one: KeptOut) -> bool:
        group = self._shared.groups.get(one.group.key)
        return group is not one.group or group.state in NOT_QUEUED or not self._is_on

    def _is_kept_out(self, one: KeptOut) -> bool:
        return one.is_out and self._is_there(one)

    def _is_before(self, group: Group, other: Group) -> bool:
        """Whether `group` comes first and has no lower priority, so passes by `other` count."""
        if group is other or other.priority > group.priority:
            return False
        return self._place(group) < self._place(other)

    def _place(self, group: Group) -> tuple[object, ...]:
        return self._shared.passing_place(group), group.key


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


class ClaimedInLimits:
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
        if by_claims and (standing := self.standing()):
            found = kept_from(self._shared, [group], self._shared.now_s, among=standing).claims
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
        claims, view = self._shared.claims, self._shared.queue_view
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
