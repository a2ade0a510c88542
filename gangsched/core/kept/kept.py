"""Kept: asked what a unit may use from now until it ends, and who keeps the rest.

    kept                      by                                                until
    room, devices of nodes    a unit that waits until its victims have gone     it is placed, or gives up
    room of a node            another scheduler's pod that nominates the node   it is placed; some minutes
    room, devices of a node   a running gang that has lost a member there       another is placed; a minute
    room, devices of nodes,   a group with a claim: passed as often as its      it starts, or is not in line
    from a time on            bound allows, or first in line                    with these members any more
    amounts within limits     both of them; and a group that is passed at a     as above; it is admitted
                              limit as often as its bound allows

What is kept on nodes is one value (core.queueing.kept_from); what is kept within limits is asked by plugins
(core.kept.limits). Who no longer keeps room announces it as a change of the cluster, and the phase *wake*
puts those in line that it may cure (core.turns.turn, core.state.line.waking). Who keeps room is tried again
when something on its nodes changes, and when its time comes.

The parts are behind this: core.groups and core.explaining.explain ask it alone. Called by
core.groups.attempts.attempts, core.groups.attempts.making_room, core.groups.attempts.placer, core.turns.turn,
core.turns.overdue and core.explaining.room.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gangsched.core.cache.queues.namespace_usage import QueueView
from gangsched.core.framework.eviction_rule import TakesKeptRoom
from gangsched.core.framework.plan import FitError, Plan, PostFilterResult, Shortage
from gangsched.core.framework.plugin_calls import PluginError
from gangsched.core.framework.status import Status
from gangsched.core.framework.supports import serves
from gangsched.core.kept.claim_reports import ClaimReports
from gangsched.core.kept.claiming import Claiming
from gangsched.core.kept.limits import KeptInLimits
from gangsched.core.kept.overrun import Places, past_walltime
from gangsched.core.queueing.claims import Claims
from gangsched.core.queueing.kept_from import KeptFrom, kept_from, walltime_s
from gangsched.core.state.reporter import Reporter
from gangsched.core.state.state import SharedState
from gangsched.core.types.claim import StartClaim
from gangsched.core.types.group import Group
from gangsched.core.types.placement import Nominated
from gangsched.core.units import Units
from gangsched.core.why import Why


class Kept:
    """What is kept from groups in line, for others."""

    def __init__(self, shared: SharedState, reporter: Reporter, units: Units, placer: Places) -> None:
        self._shared = shared
        self._units = units
        self._placer = placer
        self._reports = ClaimReports(shared, reporter)
        self._overruled = Overruled(shared, units)
        self.claiming = Claiming(shared, self._reports, units, placer)
        self.limits = shared.limits = KeptInLimits(shared)

    # -- the question --------------------------------------------------------------------------------------

    def kept_from(self, unit: Sequence[Group]) -> KeptFrom:
        """What is kept from the unit on nodes, if it starts now."""
        return self._overruled.without(kept_from(self._shared, unit, self._shared.now_s), unit)

    def ways_to_start(self, unit: Sequence[Group]) -> Iterator[list[Nominated]]:
        """What the unit leaves free if it starts now, each to be tried if it does not fit beside the one
        before: first also what is promised to groups whose claims yield to its own, so that it makes none of
        them late; last, claims that hold it up have been eased, if they kept more than they must."""
        claims = self._shared.claims
        if claims is None or not claims.by_key:  # nearly always: nothing is kept but for nominations
            holes, nominated = self._shared.holes, self._shared.cache.nominated
            yield list(holes.reserved(unit) if holes.kept else nominated.values())
            return
        if yielding := self._yielding(claims, unit):
            kept = self.kept_from(unit)
            yield kept._replace(claims=[*kept.claims, *yielding]).room_now
        yield self.kept_from(unit).room_now
        if self.claiming.ease(self.kept_from(unit).claims):
            yield self.kept_from(unit).room_now

    def _yielding(self, claims: Claims, unit: Sequence[Group]) -> list[StartClaim]:
        """Promised claims that yield to the unit's own later one: if it starts now, they may become late."""
        now_s = self._shared.now_s
        return claims.yielding(unit, now_s, now_s + walltime_s(self._shared, unit))

    def starts_soon(self, unit: Sequence[Group]) -> bool:
        """Whether the unit's own claim starts so soon that preemption is not worth it, and is not late."""
        return self.claiming.starts_soon(unit)

    def past_walltime(self, unit: list[Group]) -> PostFilterResult | None:
        """The pods past their stated walltime to evict so that the unit, which has a claim, can start; None:
        it has none, or no choice would help. Raises: PluginError."""
        if not self._shared.claims:
            return None
        demands = self._units.demands(unit)
        nominated = self.kept_from([demand.group for demand in demands]).room
        return past_walltime(self._shared, unit, demands, nominated, self._placer)

    # -- what becomes of units -----------------------------------------------------------------------------

    def admitted(self, unit: Sequence[Group], answer: Status) -> None:
        """Records Admit's answer: whether a limit keeps the unit out."""
        self.limits.answered(unit, answer)

    def charge_bypasses(self, unit: Sequence[Group], plan: Plan) -> bool:
        """Counts the groups that the unit bypasses by this plan. False: one of them was given a claim
        instead; plan the unit again, beside that claim."""
        return self.claiming.charge_bypasses(unit, plan)

    def charge_passes(self, unit: Sequence[Group]) -> None:
        """Counts the groups that the unit, about to be reserved, passes at limits."""
        self.limits.charge_passes(unit)

    def started(self, unit: Sequence[Group], plan: Plan) -> None:
        """Records that the plan's members are reserved: the unit keeps its room itself now."""
        if self._shared.holes.kept:
            self._shared.fill_holes(plan.placements)
        self._overruled.take_room(unit, plan)
        self.claiming.started(unit, plan)

    def refused(self, unit: list[Group], answer: FitError) -> Why:
        """Records that the unit does not fit now, and checks its claim; returns a sentence about that."""
        shared = self._shared
        if shared.queue.bypasses is not None:
            demands = self._units.demands(unit)
            shared.queue.bypasses.refused(demands, answer.code, shared.cache.view, shared.now_s)
        return self.claiming.refused(unit)

    def kept_out(self, unit: Sequence[Group], *, for_good: bool = False) -> Why:
        """Records that the unit lacks something other than room; returns a sentence about its claim."""
        return self.claiming.kept_out(unit, for_good=for_good)

    # -- in words ------------------------------------------------------------------------------------------

    def describe_own(self, group: Group) -> Why:
        """A sentence about what is kept for the group, or why nothing is; "" if there is nothing to say."""
        claims = self._shared.claims
        claim = claims.claim(group) if claims is not None else None
        return self._reports.why_none(group) if claim is None else self._reports.last_words(claim)

    def describe_in_limits(self, group: Group) -> Why:
        """A sentence about groups that passed this one at a limit, and what is kept for it there; ""."""
        return self.limits.describe(group)

    def describe(self, unit: Sequence[Group], short: Shortage) -> Iterator[Why]:
        """Sentences about room that the unit lacks, and which units it is kept for."""
        if claims := self.kept_from(unit).claims:
            yield from self._reports.kept(claims, short)

    # -- between turns -------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Has the groups of claims that are due tried again."""
        self.claiming.advance()


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
        standing = self._shared.claims
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
