"""Claims: room that is kept for groups that have been bypassed as often as their bound allows.

A claim has a start time. A unit that ends before it may use the room until then. Any other unit of no higher
priority is placed as if the claiming pods were there already. If their room is still taken, the free room
counts as negative, so what becomes free there goes to the claim. Of two claims of one priority the later one
yields. So claims wait only for running pods and for earlier claims, never in a cycle. A claim ends when its
group leaves the line, for whatever reason.

How much of a node's free room must stay free now (KeptNow): a claim starts when pods on its nodes have ended,
and then uses the room that they leave. Only what it needs beyond that must be free already. The rest of a
node's free room may be used by any unit, however long it runs. When such a pod ends early, the room that it
leaves is kept from then on. A pod that states no end counts as staying: a guess of its end must not give room
away.

Not here: when and where claims are made (core.kept.claiming). Called by core.kept.claiming and
core.state.line.queue (moved); read by web.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from gangsched.config.queueing import BUDGET, QueueingSettings
from gangsched.core.cache.cache import Cache
from gangsched.core.queueing.ends import EndsNow
from gangsched.core.queueing.idle import IdleBudget, TooIdle, idle_now
from gangsched.core.types.claim import Blocker, StartClaim
from gangsched.core.types.clock import Clock
from gangsched.core.types.cluster_events import ClusterChange
from gangsched.core.types.group import PENDING, Group, GroupState, PodInfo
from gangsched.core.types.needed import completes
from gangsched.core.types.placement import Nominated
from gangsched.core.types.states import IN_LINE
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.model.pod_group import GroupKey

MAX_CLAIMS = 64
KEPT_WITHIN_S = 60.0
"""A promise is kept if the start is at most this much later than first promised."""
ERRORS_S = (1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0)
KEPT = "kept"
OVERRUN = "overrun"
CAUSES = (
    KEPT,
    OVERRUN,
    "extended",
    "estimate",
    "node",
    "priority",
    "guarantee",
    "other scheduler",
    "claims",
)
_STARTS = (GroupState.WAITING, GroupState.BINDING, GroupState.BOUND)
_ENDS = (*_STARTS, GroupState.UNWINDING, GroupState.DELETED)


class Claims:
    """All current claims, and statistics of how promises ended."""

    def __init__(self, cache: Cache, clock: Clock, ends: EndsNow) -> None:
        self._cache = cache
        self._clock = clock
        self._ends = ends
        self._kept_now = KeptNow(cache, ends)
        self._n_made = 0
        self.revision = 0
        """Changes with every claim that comes, moves or goes."""
        self.by_key: dict[GroupKey, StartClaim] = {}
        """Each claim by each of its groups. Written only by put and drop."""
        self._all: list[StartClaim] | None = []
        """In order; None: out of date, as a claim was added or dropped."""
        self._waits: dict[int, tuple[tuple[Blocker, ...], frozenset[str]]] = {}
        """serial -> (the claim's blockers, their UIDs)."""
        self.is_doubtful = False
        """Whether a group with a claim has changed its state since all claims were last found sound."""
        self.freed: list[ClusterChange] = []
        """Room of claims that have ended or moved, not announced yet."""
        self.ended: list[StartClaim] = []
        """Claims that have ended, not reported yet."""
        self.promises: Counter[str] = Counter()
        """Promised starts by outcome: kept, or what made them late."""
        self.errors = [0] * (len(ERRORS_S) + 1)
        """Histogram of how late promised starts were."""
        self.total_error_s = 0.0
        self.budget: IdleBudget | None = None
        """None except in mode budget."""
        self._evicts_for: dict[GroupKey, StartClaim] = {}
        """By its first group: an ended claim whose unit waits for victims and has not started yet."""
        self.too_idle: dict[GroupKey, TooIdle] = {}
        """Groups at their bound whose claim would keep too much idle, and when it can be made."""

    def configure(self, settings: QueueingSettings, now_s: float) -> None:
        """Applies these settings from now on; the budget earned so far stays."""
        if settings.mode != BUDGET:
            self.budget = None
            self.too_idle.clear()
        elif self.budget is None:
            self.budget = IdleBudget(settings.idle_share, now_s)
        else:
            self.budget.configure(settings.idle_share, now_s)

    def idle(self) -> dict[str, float]:
        """By resource: the share of the cluster's amount that is claimed and free."""
        return idle_now((one for claim in self.all for one in claim.held), self._cache.view)

    def __len__(self) -> int:
        return len(self.all)

    @property
    def all(self) -> list[StartClaim]:
        """All claims, each once, in order of precedence: later ones yield."""
        if self._all is None:
            self._all = sorted(dict.fromkeys(self.by_key.values()), key=_rank)
        return self._all

    def claim(self, group: Group) -> StartClaim | None:
        """The group's claim, if it has one."""
        return self.by_key.get(group.key)

    def unit_claim(self, unit: Sequence[Group]) -> StartClaim | None:
        """The claim of the unit, or of one of its groups."""
        return next((claim for group in unit if (claim := self.claim(group)) is not None), None)

    def claims(self, unit: Sequence[Group]) -> list[StartClaim]:
        """All claims of the unit's groups: several if they had claims before they were a unit."""
        return list(dict.fromkeys(claim for group in unit if (claim := self.claim(group)) is not None))

    def waiting_for_ends(self, edited: Mapping[str, PodInfo]) -> list[StartClaim]:
        """The claims that wait for the end of one of these pods (by UID). If one states a new end, they are
        planned again, not only checked."""
        if len(self._waits) > 2 * MAX_CLAIMS:
            self._waits.clear()
        found = []
        for claim in self.all:
            known = self._waits.get(claim.serial)
            if known is None or known[0] is not claim.blockers:
                known = claim.blockers, frozenset(one.uid for one in claim.blockers)
                self._waits[claim.serial] = known
            if not edited.keys().isdisjoint(known[1]):
                found.append(claim)
                there = (one for one in claim.blockers if one.uid in edited)
                claim.has_new_end = claim.has_new_end or any(
                    self._ends.end(edited[one.uid]).at_s != one.end_s for one in there
                )
        return found

    def edited(self, group: Group) -> bool:
        """Records that the group's members were edited: what is kept for it, and its queue, may change.
        Returns whether there are claims, in front of which a shorter walltime may let it start."""
        self.revision += group.key in self.by_key
        return bool(self.by_key)

    def next_serial(self) -> int:
        """The serial of a claim about to be made."""
        self._n_made += 1
        return self._n_made

    def holding_up(
        self,
        unit: Sequence[Group],
        from_s: float,
        until_s: float,
        among: Sequence[StartClaim] | None = None,
        to_all: bool = False,
    ) -> list[StartClaim]:
        """The claims to which a unit must leave room if it runs between these times.

        A partly bound gang, or one that replaces a lost member, waits for no claim; one that grows does.
        among: only these claims; None: all. to_all: also claims that yield to its own, as of their first
        promised starts.
        """
        if not self.by_key or any(completes(group) for group in unit):
            return []
        own = self.unit_claim(unit)
        found = []
        for claim in self._ahead_of(unit, own, among, to_all=to_all):
            later_s = 0.0
            if to_all and own is not None and claim.priority == own.priority and claim.serial > own.serial:
                if claim.promised_s is None:
                    continue
                later_s = max(claim.promised_s - claim.start_s, 0.0)
            if claim.start_s + later_s < until_s and self.end_s(claim) + later_s > from_s:
                found.append(claim)
        return found

    def yielding(self, unit: Sequence[Group], from_s: float, until_s: float) -> list[StartClaim]:
        """The claims with promised starts in that time that yield to the unit's own claim, if that starts
        after `from_s`."""
        own = self.unit_claim(unit)
        if own is None or own.start_s <= from_s:
            return []
        found = self.holding_up(unit, from_s, until_s, to_all=True)
        return [one for one in found if one.priority == own.priority and one.serial > own.serial]

    def kept_now(self, claims: Sequence[StartClaim]) -> list[Nominated]:
        """The room, now free, that these claims keep from other units now (core.queueing.claims)."""
        return self._kept_now.kept(claims, self._clock.now_s)

    def end_s(self, claim: StartClaim, now_s: float | None = None) -> float:
        """When its groups end if they start as soon as they can; a late claim ends late. now_s: the time, if
        that of the last turn is too old."""
        return claim.end_s + max((self._clock.now_s if now_s is None else now_s) - claim.start_s, 0.0)

    def ahead_of(
        self, unit: Sequence[Group], among: Sequence[StartClaim] | None = None, *, to_all: bool = False
    ) -> list[StartClaim]:
        """The other claims to which the unit yields.

        among: only these claims; None: all. to_all: also claims that yield to its own.
        """
        return self._ahead_of(unit, self.unit_claim(unit), among, to_all=to_all)

    def _ahead_of(
        self,
        unit: Sequence[Group],
        own: StartClaim | None,
        among: Sequence[StartClaim] | None,
        *,
        to_all: bool,
    ) -> list[StartClaim]:
        priority = min(group.priority for group in unit)
        return [
            claim
            for claim in (self.all if among is None else among)
            if claim is not own
            and (
                claim.priority > priority
                or (claim.priority == priority and (to_all or own is None or claim.serial < own.serial))
            )
        ]

    def put(self, claim: StartClaim) -> None:
        """Adds the claim."""
        self.revision += 1
        self._all = None
        self.is_doubtful = True
        for group in claim.unit:
            self.by_key[group.key] = claim
            self.too_idle.pop(group.key, None)

    def keep(self, claim: StartClaim, held: tuple[Nominated, ...], start_s: float, end_s: float) -> None:
        """Sets where and when the claim's members go. Frees what is no longer kept: all of the former room if
        it is kept for another time. A claim that stays frees nothing: others that wait for its room would be
        tried in vain, and those with claims would have each other tried without end."""
        is_later = (start_s, end_s) != (claim.start_s, claim.end_s)
        kept = {} if is_later else _places(held)
        left = [one for place, one in _places(claim.held).items() if place not in kept]
        if left or is_later or len(held) != len(claim.held):
            self.freed += self._changes(left)
            self.revision += 1
        claim.held, claim.start_s, claim.end_s = held, start_s, end_s

    def update_blockers(self, claim: StartClaim, more: Sequence[Blocker]) -> bool:
        """Drops blockers that are gone, and adds `more`; returns whether the claim became, or stopped being,
        a promise."""
        pods, was_promise = self._cache.pods, claim.is_promise
        again = {one.uid for one in more}  # known ones may recur: reserved again after a failed bind
        left = [
            one
            for one in claim.blockers
            if one.uid not in again and (info := pods.get(one.uid)) is not None and info.row >= 0
        ]
        if more or len(left) < len(claim.blockers):
            self.revision += 1
            claim.blockers = tuple(sorted((*left, *more), key=lambda one: (one.end_s, one.name)))
        return claim.is_promise != was_promise

    def drop(self, claim: StartClaim) -> None:
        """Removes the claim. Dropping it twice changes nothing."""
        if not any(self.by_key.get(group.key) is claim for group in claim.unit):
            return
        self.revision += 1
        self._all = None
        for group in claim.unit:
            self.by_key.pop(group.key, None)
        self.freed += self._changes(claim.held)
        self.ended.append(claim)

    def take_freed(self) -> list[ClusterChange]:
        """Returns room of claims that have ended or moved, and was not announced yet."""
        freed, self.freed = self.freed, []
        return freed

    def moved(self, group: Group) -> None:
        """Records that the group's state has changed. Whether it still waits is checked later (is_sound):
        between two attempts it leaves the line for a moment."""
        if not self.by_key and not self.too_idle and not self._evicts_for:
            return
        self.is_doubtful = self.is_doubtful or group.key in self.by_key
        if group.state not in _ENDS:
            return
        self.too_idle.pop(group.key, None)
        claim = self.by_key.get(group.key) or self._evicts_for.get(group.key)
        if claim is None:
            return
        self._evicts_for.pop(claim.unit[0].key, None)
        if group.state in _STARTS and group.preemption is None:
            self._started(claim)
        elif group.state is GroupState.WAITING and group.preemption is not None:
            if group.preemption.is_overrun:
                claim.because = claim.because or OVERRUN
            self._evicts_for[claim.unit[0].key] = claim
        self.drop(claim)

    def is_sound(self, claim: StartClaim) -> bool:
        """Whether the claim's groups still wait with the members and priority that it was made for."""
        if min(group.priority for group in claim.unit) != claim.priority:
            return False
        for group in claim.unit:
            if group.state not in IN_LINE or group.problem or not group.is_complete:
                return False
        for one in claim.held:
            info = one.info
            if info.state is not PENDING or info.group not in claim.unit:
                return False
        return True

    def _started(self, claim: StartClaim) -> None:
        if claim.promised_s is None:
            return
        late_s = max(self._clock.now_s - claim.promised_s, 0.0)
        self.promises[KEPT if late_s <= KEPT_WITHIN_S else claim.because or "claims"] += 1
        self.errors[sum(late_s > limit_s for limit_s in ERRORS_S)] += 1
        self.total_error_s += late_s

    def _changes(self, left: Iterable[Nominated]) -> Iterable[ClusterChange]:
        """What becomes free; equal room is announced once."""
        alike = {(one.node_name, one.template.serial, frozenset(one.ids)): one for one in left}
        return [change for one in alike.values() for change in self._cache.room_of(one)]


def _places(held: Iterable[Nominated]) -> dict[tuple[str, str, str], Nominated]:
    return {(one.info.uid, one.node_name, repr(one.ids)): one for one in held}


def _rank(claim: StartClaim) -> tuple[int, int]:
    return -claim.priority, claim.serial


# Ends are looked up again after this: a pod may state a new walltime.
_AGAIN_S = 30.0
# Limit on reduced templates; beyond it all are forgotten.
_MAX_REDUCED = 4096


class _Ending(NamedTuple):
    """A pod that states its end, and how much of each column it holds."""

    end_s: float
    holds: Mapping[int, int]


class _Node(NamedTuple):
    """A node's pods that state an end, the soonest first. until_s: when they are looked up again."""

    endings: list[_Ending]
    until_s: float


class KeptNow:
    """Remembers for each node when its pods end."""

    def __init__(self, cache: Cache, ends: EndsNow) -> None:
        self._cache = cache
        self._ends = ends
        self._mark = -1
        self._nodes: dict[str, _Node] = {}
        self._n_reduced = 0
        self._reduced: dict[tuple[tuple[int, tuple[str, int]], ...], PodTemplate] = {}

    def kept(self, claims: Sequence[StartClaim], now_s: float) -> list[Nominated]:
        """What must stay free for these claims now."""
        self._follow()
        there: dict[str, list[tuple[float, Nominated]]] = {}
        for claim in claims:
            for one in claim.held:
                there.setdefault(one.node_name, []).append((claim.start_s, one))
        return [one for name, held in there.items() for one in self._on(name, held, now_s)]

    def _follow(self) -> None:
        view = self._cache.view
        changed = view.rows_since(self._mark) if self._mark >= 0 else None
        self._mark = view.journal_end
        if changed is None:
            self._nodes.clear()
            return
        for row in changed:
            if row < view.n_rows:
                self._nodes.pop(view.name(row), None)

    def _on(self, name: str, held: list[tuple[float, Nominated]], now_s: float) -> list[Nominated]:
        all_of_it = [one for _, one in held]
        # Constraints depend on which devices are free, not how many; ends of host ports are not tracked.
        if any(one.template.constraints or one.template.host_ports for one in all_of_it):
            return all_of_it
        endings = self._endings(name, now_s)
        if not endings:
            return all_of_it
        held.sort(key=lambda one: one[0])
        if endings[0].end_s > held[-1][0]:
            return all_of_it
        ids: dict[str, tuple[str, ...]] = {}
        for one in all_of_it:
            for resource, some in one.ids.items():
                ids[resource] = (*ids.get(resource, ()), *some)
        keeps = self._template(all_of_it[0].template, _most_at_once(held, endings))
        return [replace(max(all_of_it, key=lambda one: one.priority), ids=ids, keeps=keeps)]

    def _template(self, like: PodTemplate, amounts: Mapping[int, tuple[str, int]]) -> PodTemplate:
        key = tuple(amounts.items())
        found = self._reduced.get(key)
        if found is None:
            if len(self._reduced) >= _MAX_REDUCED:
                self._reduced.clear()
            self._n_reduced += 1  # the serials of pods' templates are above 0
            found = self._reduced[key] = like.reduced(amounts, -self._n_reduced)
        return found

    def _endings(self, name: str, now_s: float) -> list[_Ending]:
        known = self._nodes.get(name)
        if known is None or known.until_s <= now_s:
            endings = []
            for info in self._cache.by_node.get(name, {}).values():
                end = self._ends.end(info)
                if info.row >= 0 and (end.is_stated or end.is_over):
                    holds = dict(zip(info.template.columns, info.template.amounts, strict=True))
                    endings.append(_Ending(end.at_s, holds))
            endings.sort(key=lambda one: one.end_s)
            until_s = min(endings[0].end_s if endings else math.inf, now_s + _AGAIN_S)
            known = self._nodes[name] = _Node(endings, until_s)
        return known.endings


def _most_at_once(
    held: Sequence[tuple[float, Nominated]], endings: Sequence[_Ending]
) -> dict[int, tuple[str, int]]:
    """column -> (resource name, how much must be free now so that enough is free at each start).

    held: sorted by start; endings: sorted by end.
    """
    names: dict[int, str] = {}
    needs: dict[int, int] = {}
    most: dict[int, int] = {}
    n_ended = 0
    for at, (start_s, one) in enumerate(held):
        template = one.template
        for name, column, amount in zip(template.names, template.columns, template.amounts, strict=True):
            names[column] = name
            needs[column] = needs.get(column, 0) + amount
        if at + 1 < len(held) and held[at + 1][0] == start_s:
            continue
        while n_ended < len(endings) and endings[n_ended].end_s <= start_s:
            for column, amount in endings[n_ended].holds.items():
                needs[column] = needs.get(column, 0) - amount
            n_ended += 1
        for column, amount in needs.items():
            most[column] = max(most.get(column, 0), amount)
    return {column: (name, most[column]) for column, name in names.items() if most[column] > 0}
