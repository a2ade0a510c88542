"""ClaimPlans: where and when a unit will fit, if pods end when expected.

A first guess comes from arrays (PlanRooms, by core.queueing.room): a filter, by resources. Then what decides
(core.groups.attempts.placer) is asked for that time and the remaining later ones, on Trials without the pods
that will have ended.
Called by core.kept.claiming.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from gangsched.core.cache.pods.volume_users import claims_for_one_pod, claims_of
from gangsched.core.cache.trial import Trial
from gangsched.core.cycle.domains.domains import domain_codes, topology_of
from gangsched.core.cycle.unit_limits import weight_of
from gangsched.core.framework.plan import FitError, Plan
from gangsched.core.framework.plugin_calls import PluginError
from gangsched.core.kept.overrun import Places
from gangsched.core.queueing.claims import MAX_CLAIMS, Claims
from gangsched.core.queueing.ends import End
from gangsched.core.queueing.idle import TooIdle, idle_until
from gangsched.core.queueing.kept_from import kept_from, walltime_s
from gangsched.core.queueing.planning import MAX_LOOKS, Search, moments_from
from gangsched.core.queueing.room import ClaimedRoom, Held, Room, free_ids
from gangsched.core.queueing.running_pods import RunningPods
from gangsched.core.state.state import SharedState
from gangsched.core.types.arrays import BoolArray
from gangsched.core.types.claim import Blocker, StartClaim
from gangsched.core.types.group import PENDING, Group, PodInfo
from gangsched.core.types.placement import Nominated, Placement
from gangsched.core.types.templates.affinity_terms import counted_to_spread
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.core.units import Units
from gangsched.model.selectors import PodTerm
from gangsched.model.storage import CLAIMS


class _Asked(NamedTuple):
    """The unit to plan for. to_all: leave room also to claims with a promised start that yield to it; by_s:
    the latest start that is of use."""

    claims: Claims
    unit: list[Group]
    to_all: bool = False
    by_s: float = math.inf


class ClaimPlans:
    """Plans claims; changes nothing."""

    def __init__(self, shared: SharedState, units: Units, placer: Places) -> None:
        self._shared = shared
        self._placer = placer
        self.rooms = PlanRooms(shared, units)

    def made(
        self, claims: Claims, unit: list[Group], *, to_all: bool = False, by_s: float = math.inf
    ) -> StartClaim | None:
        """Plans a claim for the first time found at which the unit fits; None: it would not fit even if all
        pods ended, or not by `by_s`. to_all: so that claims that yield to it can start as promised."""
        try:
            found = self._first(_Asked(claims, unit, to_all, by_s))
        except PluginError as error:
            self._shared.hooks.blame(error, unit[0])
            return None
        if found is None:
            return None
        return self._claim(claims, unit, *found)

    def eased(self, claims: Claims, claim: StartClaim) -> StartClaim | None:
        """Plans the claim for the same start, keeping less of what is free now; None: it keeps no more than
        it must, or cannot keep its start."""
        if claim.start_s <= self._shared.now_s:
            return None
        try:
            plan = self._easier(_Asked(claims, list(claim.unit), to_all=True), claim)
        except PluginError as error:
            self._shared.hooks.blame(error, claim.unit[0])
            return None
        return None if plan is None else self._claim(claims, list(claim.unit), claim.start_s, plan)

    def _easier(self, asked: _Asked, claim: StartClaim) -> Plan | None:
        """The plan for `eased`. Raises: PluginError."""
        view, at_s, rooms = self._shared.cache.view, claim.start_s, self.rooms.rooms(asked.unit)
        if len(rooms) != 1 or not rooms[0].is_known:
            return None
        rows = [row for one in claim.held if (row := view.row_of(one.node_name)) is not None]
        ahead = self.rooms.held(self._holding_up(asked, at_s))
        if rooms[0].n_beyond(at_s, ahead, np.array(rows, dtype=np.int64)) <= 0:
            return None
        answer = self._at(asked, at_s, rooms, spared=self._spared(asked, at_s, rooms))
        return answer if isinstance(answer, Plan) else None

    def _claim(self, claims: Claims, unit: list[Group], start_s: float, plan: Plan) -> StartClaim:
        now_s = self._shared.now_s
        held = self._held(plan.placements)
        nodes = dict.fromkeys(one.node_name for one in held)
        priority = min(group.priority for group in unit)
        return StartClaim(
            unit=tuple(unit),
            serial=claims.next_serial(),
            priority=priority,
            start_s=start_s,
            end_s=start_s + walltime_s(self._shared, unit),
            held=held,
            blockers=self.blockers(nodes, start_s),
            beside=self._beside(nodes, start_s, priority),
            planned_s=now_s,
            look_s=math.inf,
            looked_s=now_s,
        )

    def blockers(
        self, nodes: Iterable[str], start_s: float, among: Collection[str] | None = None
    ) -> tuple[Blocker, ...]:
        """The pods on these nodes that end before a claim starts, the soonest first. among: only pods with
        these UIDs; None: all pods."""
        found = [
            Blocker(info.pod.key, end.at_s, end.is_stated, end.is_over, info.uid)
            for info, end in self._ending(nodes, start_s)
            if among is None or info.uid in among
        ]
        return tuple(sorted(found, key=lambda one: (one.end_s, one.name)))

    def landed(self, claim: StartClaim) -> tuple[Blocker, ...]:
        """Other schedulers' pods that have come to the claim's nodes since it was planned, and end before it
        starts."""
        known = claim.beside.union(one.uid for one in claim.blockers)
        found = (info for name in claim.nodes for info in self._shared.cache.by_node.get(name, {}).values())
        came = [info.uid for info in found if info.group is None and info.uid not in known]
        return self.blockers(claim.nodes, claim.start_s, came) if came else ()

    def _beside(self, nodes: Iterable[str], start_s: float, priority: int) -> frozenset[str]:
        """UIDs of pods there that stay and are another scheduler's or of higher priority."""
        return frozenset(
            info.uid
            for name in nodes
            for info in self._shared.cache.by_node.get(name, {}).values()
            if (info.group is None or info.group.priority > priority)
            and (info.row < 0 or self._shared.end_of(info).at_s > start_s)
        )

    def still(self, claims: Claims, claim: StartClaim) -> tuple[Nominated, ...]:
        """Where its members go if it keeps its nodes and its start; () if it cannot."""
        at_s, unit = max(claim.start_s, self._shared.now_s), list(claim.unit)
        within = self._within(claim.nodes)
        try:
            gone = self.rooms.ended_on(within, at_s, [one.template for one in claim.held])
            rooms = self.rooms.rooms(unit)
            for room in rooms:
                room.ok = room.ok & within
            asked = _Asked(claims, unit)
            spared = self._spared(asked, at_s, rooms)
            answer = self._try(asked, at_s, gone, within, spared)
            if isinstance(answer, FitError) and spared:
                answer = self._try(asked, at_s, gone, within)
        except PluginError as error:
            self._shared.hooks.blame(error, unit[0])
            return ()
        return self._held(answer.placements) if isinstance(answer, Plan) else ()

    def too_idle(self, claims: Claims, claim: StartClaim, *, stands: bool = False) -> TooIdle | None:
        """Why the claim cannot be afforded in mode budget: what it will keep idle if no pod fills the room
        meanwhile (core.queueing.idle.idle_until). None: it can, or there is no budget.

        stands: it has kept room already, and may be continued on credit: given up, all that would be lost,
        often for one last pod, and the next claim would start over.
        """
        if claims.budget is None:
            return None
        view, now_s = self._shared.cache.view, self._shared.now_s
        leaving = [
            (info.row, end.at_s, info.template) for info, end in self._ending(claim.nodes, claim.start_s)
        ]
        costs_s: Mapping[str, float] = idle_until(claim.start_s, claim.held, view, leaving, now_s)
        return claims.budget.too_idle(claims.budget.on_credit(costs_s) if stands else costs_s, now_s)

    def tenant(self, group: Group) -> str:
        """The group's queue; its namespace if no queues are configured."""
        view = self._shared.queue_view
        return group.key.namespace if view is None else view.queue_of(group)

    def has_slot(self, claims: Claims, group: Group) -> bool:
        """Whether the group's tenant may have one more claim: as many as are left for others. So one alone
        has at most half of all, two a third each, and the next always finds some.

        Source: Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches"
        (IEEE/ACM Transactions on Networking 6(2), 1998).
        """
        tenant = self.tenant(group)
        return sum(self.tenant(one.unit[0]) == tenant for one in claims.all) < MAX_CLAIMS - len(claims)

    def _first(self, asked: _Asked) -> tuple[float, Plan] | None:
        ahead = asked.claims.ahead_of(asked.unit)
        rooms = self.rooms.rooms(asked.unit)
        held = self.rooms.held(ahead)
        ends_s = np.array([asked.claims.end_s(one) for one in ahead], dtype=np.float64)
        first_s = self._shared.now_s
        for room in rooms:
            first_s = max(first_s, room.earliest_s(held, ends_s[held.claims], first_s))
            if not math.isfinite(first_s) or first_s > asked.by_s:
                return None
        answer = self._sparing(asked, first_s, rooms) or self._at(asked, first_s, rooms)
        if isinstance(answer, Plan):
            return first_s, answer
        ends_s = np.append(self.rooms.running().ends_s, ends_s)
        moments = moments_from(math.nextafter(first_s, math.inf), ends_s[ends_s <= asked.by_s])
        weight = weight_of([group.in_state(PENDING) for group in asked.unit])
        search, found = Search(len(moments), max(MAX_LOOKS // weight, 1)), None
        for at in search:
            at_s = moments[at]
            answer = self._at(asked, at_s, rooms) if self._has_room(asked, at_s, rooms) else None
            search.report(isinstance(answer, Plan))
            if isinstance(answer, Plan):
                found = at_s, answer
        if found is not None and (answer := self._sparing(asked, found[0], rooms)) is not None:
            return found[0], answer
        return found

    def _has_room(self, asked: _Asked, at_s: float, rooms: Sequence[Room]) -> bool:
        """Whether each template has room then by resources alone; costs a tenth of a try."""
        held = self.rooms.held(self._holding_up(asked, at_s))
        return all(room.n_at(at_s, held) >= room.need for room in rooms if room.free is not None)

    def _sparing(self, asked: _Asked, at_s: float, rooms: Sequence[Room]) -> Plan | None:
        """A plan that spares what is free now and not needed then; None: there is none, or nothing to
        spare."""
        spared = self._spared(asked, at_s, rooms)
        answer = self._at(asked, at_s, rooms, spared) if spared else None
        return answer if isinstance(answer, Plan) else None

    def _spared(self, asked: _Asked, at_s: float, rooms: Sequence[Room]) -> list[Nominated]:
        return self.rooms.spared(at_s, self._holding_up(asked, at_s), rooms, asked.unit[0].priority)

    def _at(
        self, asked: _Asked, at_s: float, rooms: Sequence[Room], spared: Sequence[Nominated] = ()
    ) -> Plan | FitError | None:
        """Places the unit on the cluster as it will be then."""
        answer: Plan | FitError | None = None
        for gone in self.rooms.ended_by(at_s, self._holding_up(asked, at_s), rooms):
            answer = self._try(asked, at_s, gone, spared=spared)
            if isinstance(answer, Plan) or spared:  # without sparing anything it is tried anyway
                break
        return answer

    def _try(
        self,
        asked: _Asked,
        at_s: float,
        gone: Sequence[PodInfo],
        within: BoolArray | None = None,
        spared: Sequence[Nominated] = (),
    ) -> Plan | FitError:
        """Places the unit without the pods in `gone`, beside the claims to which it yields and what is
        spared. within bool[n_rows]: the nodes allowed."""
        trial = Trial(self._shared.cache.view)
        trial.remove(*gone)
        kept = kept_from(self._shared, asked.unit, at_s, to_all=asked.to_all).room
        return self._placer.trial(asked.unit, trial, [*kept, *spared], within=within)

    def _holding_up(self, asked: _Asked, at_s: float) -> Sequence[StartClaim]:
        """The claims beside which the unit would run if it starts then."""
        return kept_from(self._shared, asked.unit, at_s, to_all=asked.to_all).claims

    def _within(self, nodes: Iterable[str]) -> BoolArray:
        """bool[n_rows]: these nodes."""
        view = self._shared.cache.view
        found: BoolArray = np.zeros(view.n_rows, dtype=np.bool_)
        found[[row for name in nodes if (row := view.row_of(name)) is not None]] = True
        return found

    def _ending(self, nodes: Iterable[str], by_s: float) -> Iterator[tuple[PodInfo, End]]:
        """The pods on these nodes that end by then, in the order of the nodes."""
        for name in nodes:
            for info in self._shared.cache.by_node.get(name, {}).values():
                if info.row >= 0 and (end := self._shared.end_of(info)).at_s <= by_s:
                    yield info, end

    def _held(self, placements: Sequence[Placement]) -> tuple[Nominated, ...]:
        view = self._shared.cache.view
        held = []
        for one in placements:
            ids: dict[str, tuple[str, ...]] = {}
            for sets in one.allocation.values():
                for resource, some in sets.items():
                    ids[resource] = (*ids.get(resource, ()), *some)
            assert one.info.group is not None
            held.append(Nominated(one.info, view.name(one.row), one.info.group.priority, ids))
        return tuple(held)


# Limit on spared copies: a gang that does not fit with this much free room lacks something else.
_MAX_SPARED = 4096
# With more ended pods than this, a Trial first leaves out only the ones that make most room.
_MANY = 1024


def _spread_terms(template: PodTemplate) -> Iterator[PodTerm]:
    """The pods that the template's own required spread constraints count."""
    constraints = template.spec.topology_spread_constraints or ()
    for one, selector in zip(constraints, template.spread_selectors, strict=True):
        if one.when_unsatisfiable == "DoNotSchedule":
            term = counted_to_spread(template.namespace, selector)
            if term is not None:
                yield term


def _devices_by_node(claims: Iterable[StartClaim]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for one in (one for claim in claims for one in claim.held):
        found.setdefault(one.node_name, set()).update(i for ids in one.ids.values() for i in ids)
    return found


class PlanRooms:
    """Changes nothing but its record of running pods."""

    def __init__(self, shared: SharedState, units: Units) -> None:
        self._shared = shared
        self._units = units
        self._running: RunningPods | None = None
        self._looked: tuple[float, ...] = ()
        """State as of which `_running` was updated: checking and replanning a claim must not do it twice."""
        self._claimed = ClaimedRoom(shared.cache.view)

    def rooms(self, unit: list[Group]) -> list[Room]:
        """A Room for each template of the unit, counted by itself."""
        view, running = self._shared.cache.view, self.running()
        found = []
        for demand in self._units.demands(unit):
            required = [level.key for level in topology_of(demand) if level.required]
            for template, members in demand.by_template().values():
                state, status = demand.pre_filter(template, view)
                if not status.is_success or not template.columns:
                    found.append(Room(template, members[0], 0, len(members), view.live, running))
                    continue
                ok = demand.profile.filtering.feasible(state, template, view)
                ok = ok if state.subset is None else ok & state.subset
                need = demand.n_needed - len(demand.members) + len(members)
                free = view.free_at(template.column_array, np.arange(view.n_rows))
                amounts = running.amounts(template.names)
                domains = domain_codes(view, required, view.live) if required else None
                found.append(
                    Room(template, members[0], need, len(members), ok, running, free, amounts, domains)
                )
        return found

    def held(self, claims: Sequence[StartClaim]) -> Held:
        """What these claims hold."""
        return self._claimed.held(claims)

    def spared(
        self, at_s: float, ahead: Sequence[StartClaim], rooms: Sequence[Room], priority: int
    ) -> list[Nominated]:
        """Room, with devices, that is free now and not needed at `at_s` beside the claims ahead; as
        nominations of members."""
        if at_s <= self._shared.now_s or not all(room.is_known for room in rooms):
            return []
        view, found = self._shared.cache.view, list[Nominated]()
        held = self._claimed.held(ahead)
        taken: dict[str, set[str]] | None = None
        for room in rooms:
            n_of = room.surplus_now(at_s, held)
            rows = np.flatnonzero(n_of)
            if int(n_of.sum()) > _MAX_SPARED:
                return []
            if len(rows) and taken is None:
                taken = _devices_by_node(ahead)
            for row in rows.tolist():
                name, n = view.name(row), int(n_of[row])
                free = free_ids(view, row, room.template, (taken or {}).get(name, set()))
                for k in range(n):
                    ids = {
                        resource: some[k * amount : (k + 1) * amount]
                        for resource, (amount, some) in free.items()
                    }
                    found.append(Nominated(room.member, name, priority, ids))
        return found

    def ended_by(
        self, at_s: float, ahead: Sequence[StartClaim], rooms: Sequence[Room]
    ) -> Iterator[list[PodInfo]]:
        """Lists of pods that will have ended, where that matters, to try the unit without. If they are many,
        first only the ones that make most room, then all."""
        if any(room.free is None for room in rooms):
            yield self._ended_in(None, at_s)
            return
        rows = few = self._that_matter([room.template for room in rooms])
        held = self._claimed.held(ahead)
        where = [room.rows_at(at_s, held) for room in rooms]
        rows = np.logical_or.reduce([rows, *where])
        if rooms and rooms[0].running.n_ended(at_s, rows) > _MANY:
            # Templates that fit on the fewest nodes come first: the others need room elsewhere.
            for at in sorted(range(len(rooms)), key=lambda at: int(where[at].sum())):
                few = few | rooms[at].gaining_rows(at_s, held, few)
            yield self._ended_in(few, at_s)
        yield self._ended_in(rows, at_s)

    def _that_matter(self, templates: Iterable[PodTemplate]) -> BoolArray:
        """bool[n_rows]: nodes with pods that matter to such pods on other nodes: one has terms about the
        other, or both use a volume claim that only one pod may use."""
        view = self._shared.cache.view
        found: BoolArray = np.zeros(view.n_rows, dtype=np.bool_)
        for template in templates:
            for term in _spread_terms(template):
                found |= view.matching(term) > 0
            for _, stated in template.affinity_terms if template.needs else ():
                found |= view.matching(stated.term) > 0
            for _, counts in view.carried_against(template):
                found[list(counts)] = True
            exclusive = claims_for_one_pod(template, view.objects(CLAIMS))
            if taken := {claim for claim in exclusive if view.claim_users(claim)}:
                for row, users in view.volume_users().items():
                    found[row] |= any(not taken.isdisjoint(claims_of(user)) for user in users)
        return found

    def ended_on(self, nodes: BoolArray, at_s: float, templates: Iterable[PodTemplate]) -> list[PodInfo]:
        """Pods that will have ended on `nodes` (bool[n_rows]), or elsewhere if they matter to `templates`."""
        return self._ended_in(self._that_matter(templates) | nodes, at_s)

    def _ended_in(self, rows: BoolArray | None, at_s: float) -> list[PodInfo]:
        """Pods on these rows that will have ended; None: on all rows."""
        by_node, name = self._shared.cache.by_node, self._shared.cache.view.name
        if rows is None:
            there = list(by_node.values())
        else:
            there = [by_node.get(name(row), {}) for row in np.flatnonzero(rows).tolist()]
        return [
            info
            for infos in there
            for info in infos.values()
            if info.row >= 0 and self._shared.end_of(info).at_s <= at_s
        ]

    def follow(self) -> None:
        """Keeps up with changes of running pods, at the end of a turn."""
        self._pods().follow(self._shared.now_s, self._shared.wall_ahead_s)

    def running(self) -> RunningPods:
        """The running pods as of now."""
        shared, running = self._shared, self._pods()
        looked = (shared.n_inputs, shared.now_s, shared.cache.view.journal_end)
        if looked != self._looked:
            self._looked = looked
            running.read_changed(shared.now_s, shared.wall_ahead_s)
        return running

    def _pods(self) -> RunningPods:
        shared = self._shared
        assert shared.ends is not None
        if self._running is None or self._running.ends is not shared.ends:
            self._running = RunningPods(shared.cache, shared.ends, shared.stuck)
            self._looked = ()
        return self._running
