"""PlanRooms: where a unit will have room, and which pods will have ended by then.

By resources, from arrays (core.queueing.room): a filter for core.groups.claim_plans, which then runs the
cycle only for the remaining times, without the pods found here. Called by it alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from gangsched.core.cache.volume_users import claims_for_one_pod, claims_of
from gangsched.core.cycle.domains import domain_codes, topology_of
from gangsched.core.groups.units import Units
from gangsched.core.queueing.claimed_room import ClaimedRoom, Held
from gangsched.core.queueing.room import Room, free_ids
from gangsched.core.queueing.running_pods import RunningPods
from gangsched.core.state.state import SharedState
from gangsched.core.types.affinity_terms import counted_to_spread
from gangsched.core.types.arrays import BoolArray
from gangsched.core.types.claim import StartClaim
from gangsched.core.types.group import Group, PodInfo
from gangsched.core.types.placement import Nominated
from gangsched.core.types.pod_template import PodTemplate
from gangsched.model.selectors import PodTerm
from gangsched.model.storage import CLAIMS

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
            n_of = room.to_spare(at_s, held)
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
        looked = (shared.n_heard, shared.now_s, shared.cache.view.journal_end)
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
