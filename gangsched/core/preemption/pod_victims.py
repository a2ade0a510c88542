"""PodVictims: one pod's victims, by kube-scheduler's rule: the pods of the node where they cost least.

On a node all potential victims are removed; then they are spared one by one, the most important first,
starting with those protected by a disruption budget. Nodes are tried in the order that resources alone
suggest (core.preemption.node_costs): if no other Filter matters the first result is the best one. Otherwise
as many nodes are compared as the plugin's arguments say; kube-scheduler begins with a random node, we with
the cheapest. Called by core.preemption.search. Sources: kube-scheduler 1.37 `plugins/defaultpreemption`
(SelectVictimsOnNode), `framework/preemption/preemption.go` (DryRunPreemption, pickOneNodeForPreemption).

Unlike there, a pod that is terminating costs nothing: waiting for it harms no pod.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter

from gangsched.core.framework.plan import Plan
from gangsched.core.framework.profile import Demand
from gangsched.core.preemption.costs import Chosen, Cost
from gangsched.core.preemption.node_costs import NodeCosts, OnNodes, rank
from gangsched.core.preemption.victim_trials import VictimTrials
from gangsched.core.preemption.victims import Victims
from gangsched.core.types.group import PodInfo

# Plugins whose Filter depends on resources only (apart from ports).
_BY_ROOM = {"NodeResourcesFit", "Devices", "NodePorts"}
_Found = tuple[Cost, int, dict[str, PodInfo]]


class PodVictims:
    """One pod's search among the potential victims. ran_out: it ended before enough nodes were compared."""

    def __init__(
        self, demand: Demand, victims: Victims, trials: VictimTrials, n_candidates: Callable[[int], int]
    ) -> None:
        self.ran_out = False
        self._demand = demand
        self._template = demand.members[0].template
        self._victims = victims
        self._trials = trials
        self._n_candidates = n_candidates

    def choose(self) -> tuple[Plan, dict[str, PodInfo]] | None:
        """Returns where the pod goes, and its victims; None: no node's pods make room for it."""
        victims = OnNodes(self._victims.on_row, self._victims.guarded, self._victims.last)
        ranking = rank(self._trials.room, self._template, victims)
        for _, _, chosen in sorted(self._weighed(ranking), key=itemgetter(0, 1)):
            plan = self._trials.place(chosen)
            if isinstance(plan, Plan):
                return plan, chosen
        return None

    def _weighed(self, ranking: NodeCosts) -> list[_Found]:
        is_sure = self._room_decides()
        n_enough = self._n_candidates(len(ranking.rows))
        found: list[_Found] = []
        for at, row in enumerate(ranking.rows.tolist()):
            if len(found) >= n_enough:
                break
            if self._trials.is_spent:
                self.ran_out = True
                break
            weighed = self._on_node(row)
            if weighed is None:
                is_sure = False
                continue
            found.append((weighed[0], row, weighed[1]))
            is_sure = is_sure and weighed[0].key == ranking.keys[at]
            if is_sure:
                break
        return found

    def _room_decides(self) -> bool:
        """Whether core.preemption.node_costs is exact for all nodes if it is for the first."""
        template, profile = self._template, self._demand.profile
        state = self._trials.state(self._demand, template, self._trials.room)
        if state is None or template.host_ports or template.volumes or template.constraints:
            return False
        concerned = {one.name for one in profile.filtering.capacities if one.name not in state.unconcerned}
        room_only = concerned <= _BY_ROOM and profile.filtering.is_local(state)
        return room_only and self._victims.are_independent

    def _on_node(self, row: int) -> tuple[Cost, dict[str, PodInfo]] | None:
        """Returns what the node has to give up, by SelectVictimsOnNode; None: even that would not suffice."""
        everybody = self._victims.closure({info.uid: info for info in self._victims.on_row[row]})
        against = self._victims.violating(everybody)
        victims = self._needed(row, everybody)
        if victims is not None and not self._victims.accepts(victims):
            victims = self._needed(row, self._victims.allowed(everybody, {}))
        if victims is None:
            return None
        return self._victims.cost(victims, n_violations=len(against & victims.keys())), victims

    def _needed(self, row: int, victims: dict[str, PodInfo]) -> dict[str, PodInfo] | None:
        """Returns those of the victims that must go; None: all of them are not enough."""
        if not self._takes(row, victims):
            return None
        return self._victims.needed(victims, row, {}, lambda fewer: self._takes(row, fewer))

    def _takes(self, row: int, gone: Chosen) -> bool:
        trial = self._trials.without(gone)
        return self._trials.capacity_on(self._demand, self._template, trial, row) > 0
